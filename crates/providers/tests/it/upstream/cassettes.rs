//! Recorded responses contain no secrets and replay unchanged.

use super::service::{KEY, Service, answer, send, stream, turn};
use super::{hello, streams, without_place};
use crate::vocabulary::{asked, user};
use futures_util::StreamExt as _;
use model::model_turn::{ModelEvent, ModelRequest};
use model::ports::ModelClient as _;
use providers::cassette::{CassetteError, CassetteProvider, PlaybackSpeed};
use providers::http::{HttpProviderSettings, UpstreamDialect};
use std::time::Duration;
use tokio::time::Instant;

fn user_request(said: &str, step: u32) -> ModelRequest {
    ModelRequest { step, task: format!("task_{step}").as_str().into(), ..asked("up/m/1", [user(said)], &[]) }
}

#[tokio::test]
async fn every_stream_replays_from_its_cassette_unchanged() {
    for kind in UpstreamDialect::ALL {
        for (path, bytes) in streams(kind) {
            let folder = tempfile::tempdir().unwrap();
            let service = Service::start(vec![vec![stream(), send(bytes)]]).await;
            let settings =
                HttpProviderSettings { cassette_dir: Some(folder.path().to_owned()), ..service.settings(kind) };
            let came = turn(settings, hello()).await;
            let cassettes = CassetteProvider::open(folder.path(), PlaybackSpeed::Fast).unwrap();
            let played: Vec<ModelEvent> = cassettes.stream_turn(hello()).collect().await;
            // The URL of the recording is not the URL of the replay.
            assert_eq!(without_place(played), without_place(came), "{}", path.display());
        }
    }
}

#[tokio::test]
async fn a_cassette_holds_no_secret_even_if_the_service_repeats_it() {
    let folder = tempfile::tempdir().unwrap();
    let complaint = format!("{{\"error\":{{\"message\":\"{KEY} is no key\",\"type\":\"x\"}}}}");
    let said = format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{KEY}\"}}}}]}}\n\n");
    let spoken = vec![stream(), send(said)];
    let service = Service::start(vec![answer("401 Unauthorized", "application/json", "", &complaint), spoken]).await;
    for step in [1, 2] {
        let settings = HttpProviderSettings {
            cassette_dir: Some(folder.path().to_owned()),
            ..service.settings(UpstreamDialect::Chat)
        };
        turn(settings, user_request(&format!("my key is {KEY}"), step)).await;
    }
    let mut files = 0;
    for file in std::fs::read_dir(folder.path()).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        assert!(!text.contains(KEY) && !text.contains("authorization"), "{text}");
        assert!(text.contains("[removed]"), "{text}");
        files += 1;
    }
    assert_eq!(files, 2);
}

#[tokio::test]
async fn an_error_response_replays_as_the_same_failure() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(vec![answer("429 Too Many", "application/json", "retry-after: 3\r\n", "{}")]).await;
    let settings = HttpProviderSettings {
        cassette_dir: Some(folder.path().to_owned()),
        ..service.settings(UpstreamDialect::Responses)
    };
    let came = turn(settings, hello()).await;
    assert!(matches!(came.last(), Some(ModelEvent::Failed(failure)) if failure.retry_after_ms == Some(3_000)));
    let cassettes = CassetteProvider::open(folder.path(), PlaybackSpeed::Fast).unwrap();
    assert_eq!(cassettes.stream_turn(hello()).collect::<Vec<_>>().await, came);
}

fn cassette(said: &str, step: u32, word: &str, at_ms: u64) -> String {
    let asked = serde_json::json!({"line": "asked", "cassette": 1, "kind": "openai-chat", "model": "up/m", "origin": "o",
        "said": said, "step": step, "request": {}});
    let piece = serde_json::json!({"choices": [{"index": 0, "delta": {"content": word}}]}).to_string();
    let done = serde_json::json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}).to_string();
    let heard = |data: &str| serde_json::json!({"line": "event", "at_ms": at_ms, "data": data});
    format!("{asked}\n{}\n{}\n", heard(&piece), heard(&done))
}

fn words(events: &[ModelEvent]) -> String {
    format!("{events:?}")
}

#[tokio::test(start_paused = true)]
async fn user_text_step_and_attempt_select_a_cassette_which_keeps_its_timing() {
    let folder = tempfile::tempdir().unwrap();
    let kept =
        [("a", "one", 1, "first"), ("b", "one", 2, "second"), ("c", "two", 1, "other"), ("d", "one", 1, "again")];
    for (name, said, step, word) in kept {
        let path = folder.path().join(format!("{name}.cassette.jsonl"));
        std::fs::write(path, cassette(said, step, word, 1_500)).unwrap();
    }
    let fast = CassetteProvider::open(folder.path(), PlaybackSpeed::Fast).unwrap();
    for (said, step, attempt, word) in [
        ("one", 1, 1, "first"),
        ("one", 2, 1, "second"),
        ("two", 1, 1, "other"),
        ("one", 1, 2, "again"),
        ("one", 1, 9, "again"),
    ] {
        let request = ModelRequest { attempt, ..user_request(said, step) };
        let began = Instant::now();
        let events: Vec<_> = fast.stream_turn(request).collect().await;
        assert!(words(&events).contains(word), "{events:?}");
        assert!(matches!(events.last(), Some(ModelEvent::End(_))), "{events:?}");
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
    let slow = CassetteProvider::open(folder.path(), PlaybackSpeed::Original).unwrap();
    let began = Instant::now();
    let _events: Vec<_> = slow.stream_turn(user_request("one", 1)).collect().await;
    assert_eq!(began.elapsed(), Duration::from_millis(1_500));
    let nothing: Vec<_> = slow.stream_turn(user_request("three", 1)).collect().await;
    assert!(
        matches!(&nothing[..], [ModelEvent::Failed(failure)] if failure.error.code == "no_cassette"),
        "{nothing:?}"
    );
}

#[test]
fn a_missing_or_damaged_cassette_is_refused_with_its_path() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(CassetteProvider::open(folder.path(), PlaybackSpeed::Fast), Err(CassetteError::Empty(_))));
    let missing = folder.path().join("missing");
    assert!(matches!(CassetteProvider::open(&missing, PlaybackSpeed::Fast), Err(CassetteError::Read { .. })));
    let good = cassette("one", 1, "x", 0);
    for (text, line, why) in [
        ("", 1, "first line"),
        ("{}\n", 1, "line"),
        (&*good.replace("\"cassette\":1", "\"cassette\":2"), 1, "format 2"),
        (&*good.replace("openai-chat", "telegraph"), 1, "telegraph"),
        (&*format!("{good}nonsense\n"), 4, "expected"),
        (&*format!("{good}{good}"), 4, "first line"),
    ] {
        std::fs::write(folder.path().join("a.cassette.jsonl"), text).unwrap();
        let error = CassetteProvider::open(folder.path(), PlaybackSpeed::Fast).unwrap_err().to_string();
        assert!(error.contains(&format!("line {line}:")) && error.contains(why), "{error}");
    }
}
