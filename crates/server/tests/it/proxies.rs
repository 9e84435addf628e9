//! A provider beyond a proxy that the environment names.

use crate::fake::dialect::Dialect;
use crate::fake::loopback::{Act, Asked, Loopback, stream};
use crate::harness::{client, frames, headwater};
use serde_json::json;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_is_asked_through_the_proxy_of_the_environment() {
    let asked_for = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked_for);
    let proxy = Loopback::open(move |asked: Asked| {
        seen.lock().unwrap().push(asked.path);
        let d = Dialect::Responses;
        let answer =
            [d.head(), d.open(0), d.word(0, "Far away."), d.close(0, "Far away."), d.end(false, 9, 2)].concat();
        vec![stream(), Act::Send(answer.into_bytes())]
    });
    let proxy = proxy.await;
    let dir = tempfile::tempdir().unwrap();
    // Nobody has this name: only a proxy can be asked for it.
    let mut command = headwater(dir.path());
    command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir", "data"]).stdout(Stdio::piped());
    command.env("OPENAI_BASE_URL", "http://models.invalid/v1").env("http_proxy", proxy.url(""));
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.trim().strip_prefix("headwater listening on ").unwrap();
    let body = json!({"model": "openai/x", "input": "go", "stream": true}).to_string();
    let request = client().post(format!("{url}/v1/tasks")).header("content-type", "application/json").body(body);
    let text = request.send().await.unwrap().text().await.unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(frames(&text).last().map(|frame| frame.event.clone()).as_deref(), Some("task.completed"), "{text}");
    assert!(text.contains("Far away."), "{text}");
    assert_eq!(*asked_for.lock().unwrap(), ["http://models.invalid/v1/responses"]);
}
