//! `serve --record` keeps what a provider answered, and another server plays it without the provider.

use crate::fake::dialect::Dialect;
use crate::fake::loopback::{Act, Asked, Loopback, stream};
use crate::harness::{client, frames, headwater};
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
    let mut command = headwater(dir);
    command.args(["serve", "--listen", "127.0.0.1:0"]).args(args).envs(env.iter().cloned()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, line.trim().strip_prefix("headwater listening on ").unwrap().to_owned())
}

/// What a run says, and how it ends.
async fn said(url: &str, model: &str) -> (String, String) {
    let body = json!({"model": model, "input": "go", "stream": true}).to_string();
    let request = client().post(format!("{url}/v1/tasks")).header("content-type", "application/json").body(body);
    let frames = frames(&request.send().await.unwrap().text().await.unwrap());
    let pieces = frames.iter().filter(|frame| frame.event == "task.text.delta");
    let words = pieces.map(|frame| frame.data["delta"].as_str().unwrap().to_owned()).collect::<String>();
    (words, frames.last().unwrap().event.clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_recorded_from_a_provider_plays_without_it_and_holds_no_key() {
    let upstream = Loopback::open(|asked: Asked| {
        let d = Dialect::of(&asked.path);
        let words = [d.word(0, "Once "), d.word(0, "upon.")].concat();
        let answer = [d.head(), d.open(0), words, d.close(0, "Once upon."), d.end(false, 9, 2)].concat();
        vec![stream(), Act::Send(answer.into_bytes())]
    });
    let upstream = upstream.await;
    let dir = tempfile::tempdir().unwrap();
    let key = "sk-a-key-that-nobody-else-has".to_owned();
    let env = [("OPENAI_BASE_URL", upstream.url("/v1")), ("OPENAI_API_KEY", key.clone())];
    let (mut child, url) = serve(dir.path(), &["--data-dir", "first", "--record", "tapes"], &env);
    let live = said(&url, "openai/x").await;
    assert_eq!(live, ("Once upon.".to_owned(), "task.completed".to_owned()));
    child.kill().unwrap();
    child.wait().unwrap();
    let tapes: Vec<_> = std::fs::read_dir(dir.path().join("tapes")).unwrap().map(|tape| tape.unwrap().path()).collect();
    assert_eq!(tapes.len(), 1);
    assert!(!std::fs::read_to_string(&tapes[0]).unwrap().contains(&key));

    std::fs::write(dir.path().join("headwater.toml"), PLAYED).unwrap();
    let (mut child, url) = serve(dir.path(), &["--data-dir", "second", "--config", "headwater.toml"], &[]);
    assert_eq!(said(&url, "again").await, live);
    child.kill().unwrap();
    child.wait().unwrap();
}
