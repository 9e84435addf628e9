//! `https` with a test certificate authority: a model and a tool behind it are reached if the system trusts it, and not
//! otherwise.

use crate::harness::{Server, headwater_command, http_client, parse_frames};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// A server with a certificate of its own authority, and that authority's certificate.
struct Site {
    port: u16,
    authority: String,
}

/// What accepts connections for `localhost`, and the certificate of its authority.
fn test_acceptor() -> (TlsAcceptor, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(["localhost".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key);
    let acceptor = TlsAcceptor::from(Arc::new(config.unwrap()));
    (acceptor, authority.pem())
}

impl Site {
    async fn start() -> Self {
        let (acceptor, authority) = test_acceptor();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                // A client that does not trust us disconnects here.
                let Ok(mut socket) = acceptor.accept(socket).await else { continue };
                let request = read(&mut socket).await;
                socket.write_all(answer(&request).as_bytes()).await.unwrap();
                socket.shutdown().await.ok();
            }
        });
        Self { port, authority }
    }

    /// A reverse proxy for a server that speaks plain HTTP.
    async fn in_front_of(server: String) -> Self {
        let (acceptor, authority) = test_acceptor();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let Ok(mut socket) = acceptor.accept(socket).await else { continue };
                let mut server = TcpStream::connect(&server).await.unwrap();
                tokio::spawn(async move { copy_bidirectional(&mut socket, &mut server).await.ok() });
            }
        });
        Self { port, authority }
    }
}

async fn read(socket: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut bytes = Vec::new();
    loop {
        assert_ne!(socket.read_buf(&mut bytes).await.unwrap(), 0);
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head
            .to_ascii_lowercase()
            .split("content-length: ")
            .nth(1)
            .map_or(0, |rest| rest.lines().next().unwrap().parse::<usize>().unwrap());
        if body.len() >= length {
            return text.into_owned();
        }
    }
}

/// A tool that returns `sunny`, and a model that calls it and repeats its result.
fn answer(request: &str) -> String {
    let (media_type, body) = if request.starts_with("GET /look ") {
        ("text/plain", "sunny".to_owned())
    } else if request.contains("sunny") {
        ("text/event-stream", chunk(&json!({"content": "It is sunny."}), "stop"))
    } else {
        let call = json!({"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}});
        ("text/event-stream", chunk(&json!({ "tool_calls": [call] }), "tool_calls"))
    };
    format!("HTTP/1.1 200 OK\r\ncontent-type: {media_type}\r\nconnection: close\r\n\r\n{body}")
}

fn chunk(delta: &Value, finish_reason: &str) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish_reason});
    format!("data: {}\n\ndata: [DONE]\n\n", json!({"id": "x", "model": "m", "choices": [choice]}))
}

/// A server that ends with the test.
struct Running {
    child: Child,
    url: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A server that trusts the authorities in this file only.
fn start(dir: &Path, site: &Site, trusted: &str) -> Running {
    let port = site.port;
    let config = format!(
        "[agents.a]\nmodel = \"tls/m\"\ntools = [\"look\"]\n\
         [tools.look]\nkind = \"http\"\nurl = \"https://localhost:{port}/look\"\n\
         [providers.tls]\nkind = \"openai-chat\"\nbase_url = \"https://localhost:{port}/v1\"\n\
         [limits]\nmodel_retries_max = 0\n"
    );
    std::fs::write(dir.join("headwater.toml"), config).unwrap();
    std::fs::write(dir.join("authority.pem"), &site.authority).unwrap();
    let mut child = headwater_command(dir)
        .args(["serve", "--config", "headwater.toml", "--listen", "127.0.0.1:0", "--data-dir", "data"])
        .env("SSL_CERT_FILE", dir.join(trusted))
        .env("SSL_CERT_DIR", dir.join("none"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.trim().strip_prefix("headwater listening on ").unwrap_or_default().to_owned();
    Running { child, url }
}

/// The last event of a run, and its text.
async fn run(server: &Running) -> (String, Value, String) {
    let body = json!({"model": "a", "input": "look", "stream": true}).to_string();
    let request = http_client().post(format!("{}/v1/tasks", server.url)).header("content-type", "application/json");
    let text = request.body(body).send().await.unwrap().text().await.unwrap();
    let frames = parse_frames(&text);
    let last = frames.last().unwrap();
    (last.event.clone(), last.data.clone(), text)
}

#[tokio::test]
async fn https_models_and_tools_are_reached_through_the_system_trust_store() {
    let site = Site::start().await;
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), &site, "authority.pem");
    let (event, _, text) = run(&server).await;
    assert_eq!(event, "task.completed", "{text}");
    assert!(text.contains("It is sunny."), "{text}");
}

#[tokio::test]
async fn an_empty_trust_store_trusts_nothing_and_the_server_still_starts() {
    let site = Site::start().await;
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), &site, "no-such-file.pem");
    let (event, data, text) = run(&server).await;
    assert_eq!(event, "task.failed", "{text}");
    let error = &data["error"];
    assert_eq!((&error["code"], &error["retryable"]), (&json!("upstream_unreachable"), &json!(false)), "{error}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("localhost") && message.contains("certificate"), "{message}");
}

/// `tail` and `chat` trust what the system trusts, or what `SSL_CERT_FILE` names.
#[tokio::test]
async fn tail_and_chat_talk_to_a_server_behind_https() {
    let hw = Server::demo();
    let task = hw.post("/v1/tasks", json!({"model": "demo", "input": "story 3 fast", "wait": true})).await.json();
    let site = Site::in_front_of(hw.address.clone()).await;
    std::fs::write(hw.path("authority.pem"), &site.authority).unwrap();
    let url = format!("https://localhost:{}", site.port);
    let run = async |args: &[&str], trusted: &str| {
        let mut command = headwater_command(&hw.path(""));
        command.args(args).args(["--url", &url]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("SSL_CERT_FILE", hw.path(trusted)).env("SSL_CERT_DIR", hw.path("none"));
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"story 2 fast\n").ok();
        let output = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    let id = task["task_id"].as_str().unwrap();
    let told = task["output"][0]["block_list"][0]["text"].as_str().unwrap();
    let (ok, stdout, stderr) = run(&["tail", id], "authority.pem").await;
    assert!(ok && stdout.contains(told), "{stdout}{stderr}");
    let (ok, stdout, stderr) = run(&["chat", "--agent", "demo"], "authority.pem").await;
    assert!(ok && stdout.contains("Once upon"), "{stdout}{stderr}");
    let (ok, stdout, stderr) = run(&["tail", id], "no-such-file.pem").await;
    assert!(!ok && stderr.contains("certificate"), "{stdout}{stderr}");
}
