//! `serve --record` stores a provider's responses, and another server replays them without the provider.

use crate::fake_provider::dialect::ProviderDialect;
use crate::fake_provider::loopback::{Loopback, ReceivedRequest, ResponseAction, stream_head};
use crate::harness::{headwater_command, http_client, parse_frames};
use serde_json::json;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

const PLAYED: &str = r#"
[providers.played]
kind = "scripted"
cassettes = "tapes"
speed = "fast"

[agents.again]
model = "played/whatever"
"#;

fn serve(dir: &Path, args: &[&str], env: &[(&str, String)]) -> (Child, String) {
    let mut command = headwater_command(dir);
    command.args(["serve", "--listen", "127.0.0.1:0"]).args(args).envs(env.iter().cloned()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, line.trim().strip_prefix("headwater listening on ").unwrap().to_owned())
}

/// The text of a run, and how it ends.
async fn run_text(url: &str, model: &str) -> (String, String) {
    let body = json!({"model": model, "input": "go", "stream": true}).to_string();
    let request = http_client().post(format!("{url}/v1/tasks")).header("content-type", "application/json").body(body);
    let frames = parse_frames(&request.send().await.unwrap().text().await.unwrap());
    let pieces = frames.iter().filter(|frame| frame.event == "task.text.delta");
    let words = pieces.map(|frame| frame.data["delta"].as_str().unwrap().to_owned()).collect::<String>();
    (words, frames.last().unwrap().event.clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recorded_provider_replays_offline_and_contains_no_key() {
    let upstream = Loopback::start(|asked: ReceivedRequest| {
        let d = ProviderDialect::from_path(&asked.path);
        let words = [d.text_delta(0, "Once "), d.text_delta(0, "upon.")].concat();
        let answer = [
            d.answer_start(),
            d.message_start(0),
            words,
            d.message_end(0, "Once upon."),
            d.terminal_event(false, 9, 2),
        ]
        .concat();
        vec![stream_head(), ResponseAction::Send(answer.into_bytes())]
    });
    let upstream = upstream.await;
    let dir = tempfile::tempdir().unwrap();
    let key = "sk-a-key-that-nobody-else-has".to_owned();
    let env = [("OPENAI_BASE_URL", upstream.url("/v1")), ("OPENAI_API_KEY", key.clone())];
    let (mut child, url) = serve(dir.path(), &["--data-dir", "first", "--record", "tapes"], &env);
    let live = run_text(&url, "openai/x").await;
    assert_eq!(live, ("Once upon.".to_owned(), "task.completed".to_owned()));
    child.kill().unwrap();
    child.wait().unwrap();
    let tapes: Vec<_> = std::fs::read_dir(dir.path().join("tapes")).unwrap().map(|tape| tape.unwrap().path()).collect();
    assert_eq!(tapes.len(), 1);
    assert!(!std::fs::read_to_string(&tapes[0]).unwrap().contains(&key));

    std::fs::write(dir.path().join("headwater.toml"), PLAYED).unwrap();
    let (mut child, url) = serve(dir.path(), &["--data-dir", "second", "--config", "headwater.toml"], &[]);
    assert_eq!(run_text(&url, "again").await, live);
    child.kill().unwrap();
    child.wait().unwrap();
}
