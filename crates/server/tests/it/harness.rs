//! A server process and the test vocabulary: `Server::demo()`, `post`, `get`, `frames`, `kill9`, `restart`.

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const DEMO: &str = include_str!("../../demo/headwater.toml");
const SCENARIOS: &str = include_str!("../../demo/scenarios.toml");
/// Not a variable: the limit of descriptors with which a server is started.
const DESCRIPTORS: &str = "descriptors";

/// A model that only waits, one that says much, and one that says little.
pub(crate) const SCENARIOS_HOLD: &str = "\
    [[scenario]]\nmatch = 'hold'\n[[scenario.turn]]\nsteps = [{ pause_ms = 600000 }, { text = '' }]\n\
    [[scenario]]\nmatch = 'many'\n[[scenario.turn]]\nsteps = [{ text = 'word ', repeat = 3000, every_ms = 1 }]\n\
    [[scenario]]\n[[scenario.turn]]\nsteps = [{ text = 'hello' }]\n";
/// Longer than anything here takes; a test that hangs reports where.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A running server with its folder.
pub(crate) struct Server {
    dir: TempDir,
    child: Child,
    pub(crate) address: String,
    pub(crate) client: Client,
    key: Option<String>,
    env: Vec<(&'static str, String)>,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

/// One frame of an event stream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SseFrame {
    pub(crate) id: String,
    pub(crate) event: String,
    pub(crate) data: Value,
    /// The frame's bytes, up to its blank line.
    pub(crate) raw: String,
}

impl Server {
    pub(crate) fn demo() -> Self {
        Self::demo_with("")
    }

    /// The demo with additions to its config.
    pub(crate) fn demo_with(more: &str) -> Self {
        Self::with_config(&format!("{DEMO}\n{more}\n"), SCENARIOS)
    }

    /// The same without its answer to pictures, so that a message may have one and ask for another.
    pub(crate) fn demo_that_draws(more: &str) -> Self {
        Self::with_scenarios_and(&SCENARIOS.replacen("image = true\n", "match = '^$'\n", 1), more)
    }

    /// A config of the test, with the scenarios next to it.
    pub(crate) fn with_config(config: &str, scenarios: &str) -> Self {
        Self::with_env(config, scenarios, Vec::new())
    }

    /// A process with a limit on open descriptors, the demo's config and additions to it.
    pub(crate) fn with_descriptors(most: u32, more: &str, scenarios: &str) -> Self {
        Self::with_env(&format!("{DEMO}\n{more}\n"), scenarios, vec![(DESCRIPTORS, most.to_string())])
    }

    /// The demo's config with other scenarios.
    pub(crate) fn with_scenarios(scenarios: &str) -> Self {
        Self::with_scenarios_and(scenarios, "")
    }

    pub(crate) fn with_scenarios_and(scenarios: &str, more: &str) -> Self {
        Self::with_config(&format!("{DEMO}\n{more}\n"), scenarios)
    }

    /// The demo with its files in a bucket, and additions to its config.
    pub(crate) fn with_bucket(endpoint: &str, more: &str) -> Self {
        let env = [
            ("AWS_ENDPOINT_URL", endpoint),
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("AWS_REGION", "us-east-1"),
        ];
        let env = env.map(|(name, value)| (name, value.to_owned())).to_vec();
        Self::with_env(&format!("{DEMO}\n[files]\nurl = \"s3://bucket\"\n{more}\n"), SCENARIOS, env)
    }

    /// A node of a cluster: the demo with additions to its config, and a database.
    pub(crate) fn node(database_url: &str, more: &str) -> Self {
        Self::with_env(
            &format!("{DEMO}\n{more}\n"),
            SCENARIOS,
            vec![("HEADWATER_DATABASE_URL", database_url.to_owned())],
        )
    }

    /// A node with other variables, such as those of a bucket.
    pub(crate) fn node_with_env(database_url: &str, more: &str, env: &[(&'static str, &str)]) -> Self {
        let mut env: Vec<_> = env.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        env.push(("HEADWATER_DATABASE_URL", database_url.to_owned()));
        Self::with_env(&format!("{DEMO}\n{more}\n"), SCENARIOS, env)
    }

    /// Changes the additions of a node to its config; they take effect at its next start.
    pub(crate) fn configure_node(&self, more: &str) {
        std::fs::write(self.path("headwater.toml"), format!("{DEMO}\n{more}\n")).unwrap();
    }

    /// Runs `headwater keys` where the server's data is.
    pub(crate) fn run_keys(&self, args: &[&str]) -> Output {
        self.run_cli_with_env(&[&["keys"], args].concat())
    }

    /// Runs another subcommand with the config and the environment of the server, and so with its database.
    pub(crate) fn run_cli_with_env(&self, args: &[&str]) -> Output {
        let mut command = headwater_command(self.dir.path());
        command.envs(self.env.iter().map(|(name, value)| (*name, value.as_str())));
        command.args(args).args(["--config", "headwater.toml", "--data-dir", "data"]).output().unwrap()
    }

    fn with_env(config: &str, scenarios: &str, env: Vec<(&'static str, String)>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("headwater.toml"), config).unwrap();
        std::fs::write(dir.path().join("scenarios.toml"), scenarios).unwrap();
        let (child, address) = spawn_server(dir.path(), &env);
        Self { dir, child, address, client: http_client(), key: None, env }
    }

    /// A server on a folder that `fill` has written: a config, scenarios and `data`.
    pub(crate) fn on_folder(fill: impl FnOnce(&Path)) -> Self {
        Self::on_folder_with_env(fill, Vec::new())
    }

    /// The same with a database, which `fill` may have filled, too.
    pub(crate) fn on_folder_and_database(fill: impl FnOnce(&Path), database_url: &str) -> Self {
        Self::on_folder_with_env(fill, vec![("HEADWATER_DATABASE_URL", database_url.to_owned())])
    }

    fn on_folder_with_env(fill: impl FnOnce(&Path), env: Vec<(&'static str, String)>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fill(dir.path());
        let (child, address) = spawn_server(dir.path(), &env);
        Self { dir, child, address, client: http_client(), key: None, env }
    }

    /// The same server, used with this key.
    pub(crate) fn with_key(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// A file in the server's working directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The server's stderr.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("stderr")).unwrap()
    }

    pub(crate) async fn request(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Vec<u8>>,
    ) -> Reply {
        let mut request = self.client.request(method, self.url(path));
        if let Some(key) = &self.key
            && !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"))
        {
            request = request.bearer_auth(key);
        }
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            request = request.header(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        if let Some(body) = body {
            request = request.body(body);
        }
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Reply { status, headers, text: response.text().await.unwrap() }
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.request(Method::GET, path, &[], None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Reply {
        self.post_text(path, &body.to_string()).await
    }

    pub(crate) async fn post_text(&self, path: &str, body: impl AsRef<[u8]>) -> Reply {
        let json = [("content-type", "application/json")];
        self.request(Method::POST, path, &json, Some(body.as_ref().to_vec())).await
    }

    /// Starts a run and returns its object.
    pub(crate) async fn start_run(&self, input: &str) -> Value {
        self.create_task(json!({"model": "demo", "input": input})).await
    }

    pub(crate) async fn create_task(&self, body: Value) -> Value {
        let reply = self.post("/v1/tasks", body).await;
        assert_eq!(reply.status, 202, "{}\n{}", reply.text, self.log());
        reply.json()
    }

    /// The task's object, once it has ended.
    pub(crate) async fn wait_ended(&self, task: &str) -> Value {
        self.frames(&format!("/v1/tasks/{task}/events"), None).await;
        self.get(&format!("/v1/tasks/{task}")).await.json()
    }

    /// All frames up to the end of the stream.
    pub(crate) async fn frames(&self, path: &str, last_event_id: Option<&str>) -> Vec<SseFrame> {
        let headers: Vec<(&str, &str)> = last_event_id.map(|id| ("last-event-id", id)).into_iter().collect();
        let reply = self.request(Method::GET, path, &headers, None).await;
        assert!(matches!(reply.status, 200 | 204), "{}: {}", reply.status, reply.text);
        parse_frames(&reply.text)
    }

    /// A stream for incremental reading.
    pub(crate) async fn open_stream(&self, path: &str) -> OpenStream {
        let mut request = self.client.get(self.url(path));
        if let Some(key) = &self.key {
            request = request.bearer_auth(key);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        OpenStream { response, text: String::new() }
    }

    /// Sends raw bytes on a new connection; returns the response until the server closes it, or for a short time.
    pub(crate) async fn send_raw(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        // A server that refuses early may close before everything was sent.
        let _refused = stream.write_all(bytes.as_ref()).await;
        read_until_closed(&mut stream, TEST_TIMEOUT).await
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn kill9(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn wait_exit(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    pub(crate) fn restart(&mut self) {
        (self.child, self.address) = spawn_server(self.dir.path(), &self.env);
    }

    /// Restarts a server that may die before it listens.
    pub(crate) fn try_restart(&mut self) {
        let mut command = headwater_command(self.dir.path());
        command.args(["serve", "--config", "headwater.toml", "--listen", "127.0.0.1:0", "--data-dir", "data"]);
        self.child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    }

    /// Restarts the server at an address that clients know.
    pub(crate) fn restart_at(&mut self, address: &str) {
        (self.child, self.address) = spawn_server_at(self.dir.path(), &self.env, address);
    }

    /// Runs another subcommand on the same data folder.
    pub(crate) fn run_cli(&self, args: &[&str]) -> Output {
        headwater_command(self.dir.path()).args(args).arg("--data-dir").arg(self.data_dir()).output().unwrap()
    }

    /// Polls until the condition holds.
    pub(crate) async fn wait_until(&self, what: &str, is_so: impl AsyncFn() -> bool) {
        let began = Instant::now();
        while !is_so().await {
            assert!(began.elapsed() < TEST_TIMEOUT, "{what}: not within {TEST_TIMEOUT:?}\n{}", self.log());
            // A test that spins takes the processor from the server that it waits for.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Whether a program has written a whole line: a shell creates the file before it writes.
    pub(crate) fn has_line(&self, name: &str) -> bool {
        std::fs::read_to_string(self.path(name)).is_ok_and(|text| text.contains('\n'))
    }

    /// The number of threads and records, which a refused request must not change.
    pub(crate) async fn count_threads_and_records(&self) -> (usize, u64) {
        let threads = self.get("/v1/threads?limit=100").await.json();
        let mut records = 0;
        let list = threads["data"].as_array().unwrap();
        for thread in list {
            let thread = self.get(&format!("/v1/threads/{}", thread["thread_id"].as_str().unwrap())).await.json();
            records += thread["seq"].as_u64().unwrap();
        }
        (list.len(), records)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
        if !std::thread::panicking() {
            assert!(!self.log().contains("panicked"), "{}", self.log());
        }
    }
}

/// A client with a time-out.
pub(crate) fn http_client() -> Client {
    Client::builder().timeout(TEST_TIMEOUT).no_proxy().build().unwrap()
}

/// The binary, without environment variables of ours that it would use.
pub(crate) fn headwater_command(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headwater"));
    command.current_dir(dir);
    for name in ["CONFIG", "LISTEN", "DATA_DIR", "DATABASE_URL", "LOG", "URL", "KEY", "RECORD"] {
        command.env_remove(format!("HEADWATER_{name}"));
    }
    for name in ["OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"] {
        command.env_remove(name);
    }
    for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
        command.env_remove(name).env_remove(name.to_ascii_uppercase());
    }
    command
}

/// The binary, with a limit of descriptors.
fn limited_command(dir: &Path, descriptors: Option<&String>) -> Command {
    let command = headwater_command(dir);
    let Some(limit) = descriptors else { return command };
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -n \"$0\" && exec \"$@\"", limit]).arg(command.get_program()).current_dir(dir);
    for (name, _) in command.get_envs() {
        shell.env_remove(name);
    }
    shell
}

fn spawn_server(dir: &Path, env: &[(&str, String)]) -> (Child, String) {
    spawn_server_at(dir, env, "127.0.0.1:0")
}

fn spawn_server_at(dir: &Path, env: &[(&str, String)], listen: &str) -> (Child, String) {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(dir.join("stderr")).unwrap();
    let limit = env.iter().find(|(name, _)| *name == DESCRIPTORS).map(|(_, limit)| limit);
    let mut child = limited_command(dir, limit)
        .args(["serve", "--config", "headwater.toml", "--listen", listen, "--data-dir", "data"])
        .envs(env.iter().cloned())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("headwater listening on http://");
    let Some(address) = address else {
        panic!("it did not start: {line}{}", std::fs::read_to_string(dir.join("stderr")).unwrap());
    };
    (child, address.to_owned())
}

/// Reads until the other side closes, or until the time is up.
pub(crate) async fn read_until_closed(stream: &mut TcpStream, most: Duration) -> String {
    let mut bytes = Vec::new();
    let read = async {
        let mut piece = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut piece).await {
            bytes.extend_from_slice(&piece[..count]);
        }
    };
    let _still_open = tokio::time::timeout(most, read).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("{}: {}", self.status, self.text))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }

    /// The status and code of a problem response, whose format is checked.
    pub(crate) fn problem(&self) -> (u16, String) {
        assert_eq!(self.header("content-type"), "application/problem+json", "{}: {}", self.status, self.text);
        assert_eq!(self.header("x-content-type-options"), "nosniff");
        assert!(!self.header("x-request-id").is_empty());
        let body = self.json();
        assert_eq!(body["status"], self.status);
        assert!(body["title"].is_string() && body["detail"].is_string() && body["type"] == "about:blank", "{body}");
        let code = body["code"].as_str().unwrap().to_owned();
        let known = &openapi()["components"]["schemas"]["Problem"]["properties"]["code"]["enum"];
        assert!(known.as_array().unwrap().iter().any(|known| *known == code), "{code} is not in the OpenAPI document");
        (self.status, code)
    }
}

/// What the server says that it offers.
pub(crate) fn openapi() -> &'static Value {
    static DOCUMENT: LazyLock<Value> = LazyLock::new(|| serde_json::from_str(&openapi_text()).unwrap());
    &DOCUMENT
}

/// What `headwater openapi` prints.
pub(crate) fn openapi_text() -> String {
    let output = headwater_command(Path::new("/")).arg("openapi").output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) struct OpenStream {
    response: reqwest::Response,
    text: String,
}

impl OpenStream {
    /// Reads until the text contains this.
    pub(crate) async fn read_until(&mut self, text: &str) -> &str {
        while !self.text.contains(text) {
            let chunk = self.response.chunk().await.unwrap().expect("the stream ended");
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        &self.text
    }

    /// Reads to the end. An error is a truncated stream.
    pub(crate) async fn read_to_end(&mut self) -> Result<&str, reqwest::Error> {
        while let Some(chunk) = self.response.chunk().await? {
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        Ok(&self.text)
    }
}

/// The frames of a stream, without comments and `retry`.
pub(crate) fn parse_frames(text: &str) -> Vec<SseFrame> {
    let frame = |raw: &str| {
        let field = |name: &str| raw.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        let data: String = field("data: ")?;
        // Frames of a prelude have no id: no record stands behind them.
        let (id, event) = (field("id: ").unwrap_or_default(), field("event: ").unwrap());
        Some(SseFrame { id, event, data: serde_json::from_str(&data).unwrap(), raw: raw.to_owned() })
    };
    // A chunk without a blank line is not a frame yet.
    text.split_inclusive("\n\n").filter(|raw| raw.ends_with("\n\n")).filter_map(frame).collect()
}

pub(crate) fn concat_raw_frames(frames: &[SseFrame]) -> String {
    frames.iter().map(|frame| frame.raw.as_str()).collect()
}
