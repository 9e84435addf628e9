//! HTTP providers against a fake service: the requests that it gets, and the effect of all its behaviours.

mod cassettes;
mod hostile;
mod refused;
mod service;

use crate::vocabulary::{asked, user};
use ::upstream::{chat, messages, responses};
use model::history::HistoryEntry;
use model::history::RawItem;
use model::model_turn::{ModelDelta, ModelEvent, ModelRequest};
use model::ports::ModelClient;
use model_testing::{Rng, test_seeds};
use providers::http::{HttpProviderSettings, UpstreamDialect};
use serde_json::{Value, json};
use service::{Act, KEY, Service, answer, failure, send, stream, turn};
use sse::{DecodeLimits as EventLimits, Decoder};
use std::path::PathBuf;
use std::sync::Arc;

/// A turn of a model called `m/1`.
fn hello() -> ModelRequest {
    asked("up/m/1", [user("hello")], &[])
}

fn folder(kind: UpstreamDialect) -> &'static str {
    match kind {
        UpstreamDialect::Responses => "responses",
        UpstreamDialect::Messages => "messages",
        UpstreamDialect::Chat => "chat",
    }
}

/// Every stream fixture of the protocol.
fn streams(kind: UpstreamDialect) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../upstream/tests/it/streams").join(folder(kind));
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|ending| ending == "sse"));
    files.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

/// The events of a stream from this origin.
fn decode_stream(kind: UpstreamDialect, origin: String, stream: &[u8]) -> Vec<ModelEvent> {
    let turn = hello();
    let mut ingest = match kind {
        UpstreamDialect::Responses => responses::new_ingest(origin, &turn),
        UpstreamDialect::Messages => messages::new_ingest(origin, &turn),
        UpstreamDialect::Chat => chat::new_ingest(origin, &turn),
    };
    let (mut decoder, mut rest, mut out) = (Decoder::new(EventLimits::default()), stream, Vec::new());
    while let Some(event) = decoder.decode(&mut rest).unwrap() {
        ingest.on_event(&event, &mut out);
    }
    ingest.on_end(&mut out);
    out
}

/// The stream as a chunked body, in chunks of any size.
fn chunked(stream: &[u8], rng: &mut Rng) -> Vec<Act> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut acts = vec![send(head)];
    let mut rest = stream;
    while !rest.is_empty() {
        let (piece, more) = rest.split_at(rng.between(1, 300).min(u32::try_from(rest.len()).unwrap()) as usize);
        acts.push(send([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat()));
        rest = more;
    }
    acts.push(send("0\r\n\r\n"));
    acts
}

/// The events without the position in failure messages.
fn without_place(mut events: Vec<ModelEvent>) -> Vec<ModelEvent> {
    for event in &mut events {
        if let ModelEvent::Failed(failure) = event {
            failure.error.details = None;
        }
    }
    events
}

#[tokio::test]
async fn every_stream_is_decoded_the_same_in_any_chunking() {
    let seed = test_seeds().next().unwrap();
    let mut rng = Rng::new(seed);
    for kind in UpstreamDialect::ALL {
        let streams = streams(kind);
        assert!(streams.len() > 10, "{kind:?}");
        for (path, bytes) in streams {
            let service = Service::start(vec![chunked(&bytes, &mut rng)]).await;
            let origin = format!("{}:{}/v1:e90931eb:m/1", kind.config_name(), service.address);
            let events = turn(service.settings(kind), hello()).await;
            let wanted = without_place(decode_stream(kind, origin, &bytes));
            assert_eq!(without_place(events), wanted, "SEED={seed} {}", path.display());
        }
    }
}

#[tokio::test]
async fn a_request_has_its_path_its_headers_and_agent_options_over_provider_options() {
    let key =
        [format!("authorization: bearer {KEY}"), format!("x-api-key: {KEY}"), format!("authorization: bearer {KEY}")];
    let paths = ["/v1/responses", "/v1/messages", "/v1/chat/completions"];
    for ((kind, key), path) in UpstreamDialect::ALL.into_iter().zip(key).zip(paths) {
        let (_, bytes) = streams(kind).into_iter().find(|(path, _)| path.ends_with("text.sse")).unwrap();
        let mut service = Service::start(vec![vec![stream(), send(bytes)]]).await;
        let options = json!({"temperature": 0.5, "seed": 7}).as_object().cloned().unwrap();
        let settings = HttpProviderSettings { options: Arc::new(options), ..service.settings(kind) };
        let own = json!({"temperature": 1}).as_object().cloned().unwrap();
        turn(settings, ModelRequest { provider_options: Arc::new(own), ..hello() }).await;
        let (head, body) = service.request().await;
        assert!(head.starts_with(&format!("post {path} http/1.1\r\n")), "{head}");
        for line in [key.as_str(), "x-team: rivers", "accept: text/event-stream", "content-type: application/json"] {
            assert!(head.lines().any(|other| other == line), "{line}: {head}");
        }
        assert_eq!(head.contains("anthropic-version: "), kind == UpstreamDialect::Messages);
        assert_eq!((&body["model"], &body["stream"]), (&json!("m/1"), &json!(true)));
        assert_eq!((&body["temperature"], &body["seed"]), (&json!(1), &json!(7)));
    }
}

#[tokio::test]
async fn without_a_key_no_authorization_header_is_sent() {
    let (_, bytes) = streams(UpstreamDialect::Chat).into_iter().find(|(path, _)| path.ends_with("text.sse")).unwrap();
    let mut service = Service::start(vec![vec![stream(), send(bytes)]]).await;
    turn(HttpProviderSettings { api_key_ref: None, ..service.settings(UpstreamDialect::Chat) }, hello()).await;
    assert!(!service.request().await.0.contains("authorization"));
}

#[tokio::test]
async fn a_missing_key_is_named_and_no_request_is_sent() {
    let mut service = Service::start(vec![vec![]]).await;
    let settings =
        HttpProviderSettings { api_key_ref: Some("env:NOPE".to_owned()), ..service.settings(UpstreamDialect::Chat) };
    let error = failure(settings, hello()).await.error;
    assert_eq!((error.code.as_str(), error.retryable), ("provider_auth", Some(false)));
    assert_eq!(error.message, format!("Cannot call {}: the secret `env:NOPE` is not set.", service.address));
    // The service still waits for its first request, which is this one.
    turn(service.settings(UpstreamDialect::Chat), hello()).await;
    service.request().await;
    assert!(service.seen().await.is_none());
}

/// The service's own reasoning and the text after it, in raw form.
fn spoken(address: &str) -> [HistoryEntry; 2] {
    let raw = |item: Value| RawItem { origin: format!("openai-responses:{address}/v1:e90931eb:m/1"), item };
    let thought = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "blob"});
    let content = json!([{"type": "output_text", "text": "hi", "annotations": []}]);
    let said =
        json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content});
    [
        HistoryEntry::Reasoning { id: "rs_R1".into(), raw: raw(thought) },
        HistoryEntry::Assistant { id: "msg_R1".into(), text: "hi".to_owned(), raw: Some(raw(said)) },
    ]
}

const REFUSED: &str =
    r#"{"error": {"message": "The encrypted content could not be verified.", "code": "invalid_encrypted_content"}}"#;

#[tokio::test]
async fn a_service_that_refuses_its_own_reasoning_is_retried_once_without_it() {
    let (_, bytes) =
        streams(UpstreamDialect::Responses).into_iter().find(|(path, _)| path.ends_with("text.sse")).unwrap();
    let refusal = || answer("400 Bad Request", "application/json", "", REFUSED);
    for (refuses, second) in [(false, vec![stream(), send(bytes)]), (true, refusal())] {
        let mut service = Service::start(vec![refusal(), second, refusal()]).await;
        let [thought, said] = spoken(&service.address);
        let history = [user("a"), thought, said, user("b")];
        let events = turn(service.settings(UpstreamDialect::Responses), asked("up/m/1", history, &[])).await;
        let Some(ModelEvent::Delta(ModelDelta::Unknown(note))) = events.first() else { panic!("{events:?}") };
        assert_eq!(note["type"], "headwater.history_resent");
        assert!(note["reason"].as_str().unwrap().contains("could not be verified"), "{note}");
        let blobs = |body: &Value| body["input"].to_string().matches("blob").count();
        assert_eq!(blobs(&service.request().await.1), 1);
        assert_eq!(blobs(&service.request().await.1), 0);
        match events.last() {
            Some(ModelEvent::Failed(failure)) if refuses => assert_eq!(failure.error.code, "history_refused"),
            Some(ModelEvent::End(_)) if !refuses => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn dropping_a_turn_closes_the_connection() {
    use futures_util::StreamExt as _;
    let first = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";
    for acts in [vec![Act::Hold], vec![stream(), Act::Hold], vec![stream(), send(first), Act::Hold]] {
        let events_first = acts.len() == 3;
        let mut service = Service::start(vec![acts]).await;
        let mut events = service::upstream(service.settings(UpstreamDialect::Chat)).stream_turn(hello());
        if events_first {
            assert!(events.next().await.is_some());
            service.request().await;
        } else {
            // It gets the request and does not answer.
            tokio::select! {
                event = events.next() => panic!("{event:?}"),
                _ = service.request() => {}
            }
        }
        drop(events);
        assert!(matches!(service.seen().await, Some(service::Seen::HungUp)));
    }
}

#[tokio::test]
async fn a_slow_reader_applies_back_pressure() {
    use futures_util::StreamExt as _;
    let piece = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n".repeat(1000);
    let mut service = Service::start(vec![vec![stream(), Act::Flood(piece.into_bytes())]]).await;
    let mut events = service::upstream(service.settings(UpstreamDialect::Chat)).stream_turn(hello());
    assert!(events.next().await.is_some());
    service.request().await;
    match service.seen().await {
        Some(service::Seen::Taken(bytes)) => assert!(bytes < service::FLOOD_BYTES, "{bytes}"),
        other => panic!("{other:?}"),
    }
    drop(events);
}
