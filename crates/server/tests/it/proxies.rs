//! A provider behind a proxy from the environment.

use crate::fake_provider::dialect::ProviderDialect;
use crate::fake_provider::loopback::{Loopback, ReceivedRequest, ResponseAction, stream_head};
use crate::harness::{headwater_command, http_client, parse_frames};
use serde_json::json;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_is_called_through_the_proxy_of_the_environment() {
    let asked_for = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked_for);
    let proxy = Loopback::start(move |asked: ReceivedRequest| {
        seen.lock().unwrap().push(asked.path);
        let d = ProviderDialect::Responses;
        let answer = [
            d.answer_start(),
            d.message_start(0),
            d.text_delta(0, "Far away."),
            d.message_end(0, "Far away."),
            d.terminal_event(false, 9, 2),
        ]
        .concat();
        vec![stream_head(), ResponseAction::Send(answer.into_bytes())]
    });
    let proxy = proxy.await;
    let dir = tempfile::tempdir().unwrap();
    // This name does not resolve: only a proxy can reach it.
    let mut command = headwater_command(dir.path());
    command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir", "data"]).stdout(Stdio::piped());
    command.env("OPENAI_BASE_URL", "http://models.invalid/v1").env("http_proxy", proxy.url(""));
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.trim().strip_prefix("headwater listening on ").unwrap();
    let body = json!({"model": "openai/x", "input": "go", "stream": true}).to_string();
    let request = http_client().post(format!("{url}/v1/tasks")).header("content-type", "application/json").body(body);
    let text = request.send().await.unwrap().text().await.unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(
        parse_frames(&text).last().map(|frame| frame.event.clone()).as_deref(),
        Some("task.completed"),
        "{text}"
    );
    assert!(text.contains("Far away."), "{text}");
    assert_eq!(*asked_for.lock().unwrap(), ["http://models.invalid/v1/responses"]);
}
