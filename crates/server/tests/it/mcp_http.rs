//! MCP servers with a URL, from the request to the server, and the credential that a user brings for one.

use crate::harness::{Reply, Server};
use reqwest::Method;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

const TOKEN: &str = "alices-own-token";
const SCENARIOS: &str = r#"
[[scenario]]
match = "headers"
[[scenario.turn]]
steps = [{ call = "s__headers", arguments = "{}" }]
[[scenario.turn]]
steps = [{ text = ["Done."] }]

[[scenario]]
[[scenario.turn]]
steps = [{ call = "s__progress", arguments = "{}" }]
[[scenario.turn]]
steps = [{ text = ["Done."] }]
"#;

/// The test server of the crate `mcp`.
struct McpHost {
    process: Child,
    folder: TempDir,
    url: String,
}

impl McpHost {
    fn start(mode: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../mcp/tests/servers/http_server.py");
        let mut command = Command::new("python3");
        let mut process = command.args([script, mode]).arg(folder.path()).stdout(Stdio::piped()).spawn().unwrap();
        let mut port = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Self { process, folder, url: format!("http://127.0.0.1:{}/mcp", port.trim()) }
    }

    /// The `Authorization` headers of all calls.
    fn authorizations(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.folder.path().join("requests")).unwrap_or_default();
        let requests = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let calls = requests.filter(|request| request["message"]["method"] == "tools/call");
        calls.map(|request| request["headers"]["authorization"].clone()).collect()
    }

    fn headwater(&self, keys: &str) -> Server {
        let config = format!(
            "[agents.helper]\nmodel = \"mine/any\"\ntools = [\"mcp:s\"]\n\
             [providers.mine]\nkind = \"scripted\"\nfile = \"scenarios.toml\"\n\
             [mcp.program]\ncommand = \"sh\"\n[mcp.s]\nurl = \"{}\"\n{keys}\n",
            self.url
        );
        Server::with_config(&config, SCENARIOS)
    }
}

impl Drop for McpHost {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Starts a run with these values of the header.
async fn post_with(hw: &Server, path: &str, body: &Value, credentials: &[&str]) -> Reply {
    let header = "headwater-mcp-authorization";
    let headers: Vec<(&str, &str)> =
        credentials.iter().map(|value| (header, *value)).chain([("content-type", "application/json")]).collect();
    hw.request(Method::POST, path, &headers, Some(body.to_string().into())).await
}

fn result_of(task: &Value) -> &Value {
    let results = task["output"].as_array().unwrap().iter().find(|item| item["type"] == "tool_result");
    results.unwrap_or_else(|| panic!("no result: {task}"))
}

/// Nothing that the server keeps or prints has the token.
fn assert_token_is_nowhere(hw: &Server) {
    assert!(!hw.log().contains(TOKEN));
    let mut folders = vec![hw.data_dir()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else if let Ok(bytes) = std::fs::read(entry.path()) {
                let is_there = bytes.windows(TOKEN.len()).any(|window| window == TOKEN.as_bytes());
                assert!(!is_there, "{}", entry.path().display());
            }
        }
    }
}

#[tokio::test]
async fn a_run_calls_tools_behind_a_url_and_shows_their_progress() {
    for mode in ["sessions", "stateless"] {
        let host = McpHost::start(mode);
        let hw = host.headwater("approval = \"never\"\nrequired = true");
        let task = hw.post("/v1/tasks", json!({"model": "helper", "input": "go", "wait": true})).await.json();
        assert_eq!(result_of(&task)["block_list"][0]["text"], "done", "{mode}: {task}");
        let frames = hw.frames(&format!("/v1/tasks/{}/events", task["task_id"].as_str().unwrap()), None).await;
        let progress = frames.iter().filter(|frame| frame.event == "task.tool.progress").count();
        assert_eq!(progress, 3, "{mode}");
    }
}

#[tokio::test]
async fn a_users_own_credential_reaches_the_server_and_nothing_else() {
    let host = McpHost::start("sessions");
    let hw = host.headwater("approval = \"never\"\nrequired = true");
    let wanted = json!([format!("Bearer {TOKEN}")]);
    let native = json!({"model": "helper", "input": "headers", "wait": true});
    let task = post_with(&hw, "/v1/tasks", &native, &[&format!("s {TOKEN}")]).await.json();
    assert!(result_of(&task)["block_list"][0]["text"].as_str().unwrap().contains("Bearer [token]"), "{task}");
    assert_eq!(json!(host.authorizations()), wanted);
    let tools = json!([{"type": "mcp", "server_label": "s", "authorization": TOKEN}]);
    let reply = hw.post("/v1/responses", json!({"model": "helper", "input": "headers", "tools": tools})).await;
    assert_eq!((reply.status, reply.text.contains(TOKEN)), (200, false), "{}", reply.text);
    assert_eq!(json!(host.authorizations()), json!([wanted[0], wanted[0]]));
    let other = hw.post("/v1/tasks", native).await.json();
    assert!(!result_of(&other)["block_list"][0]["text"].as_str().unwrap().contains("uthorization"), "{other}");
    assert_eq!(host.authorizations().len(), 3);
    assert_eq!(host.authorizations()[2], Value::Null, "another run has none");
    assert_token_is_nowhere(&hw);
}

#[tokio::test]
async fn a_credential_is_lost_with_a_restart_and_comes_back_with_the_answer() {
    let host = McpHost::start("sessions");
    let mut hw = host.headwater("required = true");
    let native = json!({"model": "helper", "input": "headers", "wait": true});
    for brings_it_again in [false, true] {
        let paused = post_with(&hw, "/v1/tasks", &native, &[&format!("s {TOKEN}")]).await.json();
        assert_eq!(paused["status"], "paused", "{paused}");
        hw.kill9();
        hw.restart();
        let (task, key) = (paused["task_id"].as_str().unwrap(), paused["pending"][0]["key"].as_str().unwrap());
        let credential = format!("s {TOKEN}");
        let credentials: &[&str] = if brings_it_again { &[&credential] } else { &[] };
        let path = format!("/v1/tasks/{task}/approvals/{key}");
        let reply = post_with(&hw, &path, &json!({"decision": "approve"}), credentials).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
        let ended = hw.wait_ended(task).await;
        let result = result_of(&ended);
        if brings_it_again {
            assert_eq!(result["status"], "completed", "{ended}");
            assert_eq!(json!(host.authorizations()), json!([format!("Bearer {TOKEN}")]));
        } else {
            assert_eq!(result["error"]["code"], "mcp_unauthorized", "{ended}");
            let message = result["error"]["message"].as_str().unwrap();
            assert!(message.contains("Headwater-Mcp-Authorization: s TOKEN"), "{message}");
            assert_eq!(host.authorizations().len(), 0, "not called without it");
        }
    }
    assert_token_is_nowhere(&hw);
}

#[tokio::test]
async fn a_credential_for_no_server_is_refused() {
    let host = McpHost::start("sessions");
    let hw = host.headwater("");
    let native = json!({"model": "helper", "input": "headers"});
    for (credentials, words) in [
        (&["other abc"][..], "the config has no MCP server `other`"),
        (&["program abc"], "is a program, which takes no credential"),
        (&["s"], "expected `NAME TOKEN`"),
        (&["s abc def"], "printable ASCII characters, without spaces"),
        (&["s abc", "s def"], "two credentials for the MCP server `s`"),
    ] {
        let reply = post_with(&hw, "/v1/tasks", &native, credentials).await;
        assert_eq!(reply.status, 422, "{credentials:?}: {}", reply.text);
        assert!(reply.text.contains(words) && !reply.text.contains("abc"), "{credentials:?}: {}", reply.text);
    }
    let elsewhere = json!([{"type": "mcp", "server_label": "s", "server_url": "https://elsewhere.example/", "authorization": "abc"}]);
    let reply = hw.post("/v1/responses", json!({"model": "helper", "input": "x", "tools": elsewhere})).await;
    assert!(reply.text.contains("has another URL in the config"), "{}", reply.text);
}
