//! Hostile services: time-outs, error responses, wrong formats, oversized data, and leaks of our own key.

use super::hello;
use super::service::{Act, KEY, PATIENCE, Service, answer, failure, head, send, settings, stream, turn, upstream};
use futures_util::StreamExt as _;
use model::model_turn::{ModelDelta, ModelEvent};
use model::ports::ModelClient as _;
use providers::http::{HttpProviderSettings, HttpTimeouts, ResponseLimits, UpstreamDialect};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(60);
const EVENT: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";

fn timeouts(first_byte: Duration, idle: Duration, total: Duration) -> HttpTimeouts {
    HttpTimeouts { first_byte, idle, total }
}

#[tokio::test]
async fn every_wait_has_a_time_out_that_names_it() {
    let cases: [(HttpTimeouts, Vec<Act>, &str); 6] = [
        (timeouts(SHORT, PATIENCE, PATIENCE), vec![Act::Hold], "did not begin its response within 60 ms."),
        (timeouts(SHORT, PATIENCE, PATIENCE), vec![stream(), Act::Hold], "did not begin its response within 60 ms."),
        (
            timeouts(SHORT, PATIENCE, PATIENCE),
            vec![stream(), send(": queued\n\n"), Act::Hold],
            "did not begin its response within 60 ms.",
        ),
        (
            timeouts(PATIENCE, SHORT, PATIENCE),
            vec![stream(), send(EVENT), Act::Hold],
            "stalled in the middle of its response: no data for 60 ms.",
        ),
        (
            timeouts(PATIENCE, PATIENCE, SHORT),
            vec![stream(), send(EVENT), Act::Hold],
            "did not complete its response within 60 ms.",
        ),
        // It never falls silent and never ends.
        (
            timeouts(PATIENCE, PATIENCE, SHORT),
            vec![stream(), Act::Flood(b": still here\n\n".repeat(1000))],
            "did not complete its response within 60 ms.",
        ),
    ];
    for (timeouts, acts, wanted) in cases {
        let service = Service::start(vec![acts]).await;
        let error =
            failure(HttpProviderSettings { timeouts, ..service.settings(UpstreamDialect::Chat) }, hello()).await.error;
        assert_eq!((error.code.as_str(), error.retryable), ("upstream_timeout", Some(true)), "{wanted}");
        assert_eq!(error.message, format!("{} {wanted}", service.address));
        assert_eq!(error.details, Some(json!({"provider": "up", "host": service.address})));
    }
}

/// A listener with a full backlog: new connections wait.
fn full() -> (socket2::Socket, SocketAddr, Vec<std::net::TcpStream>) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        waiting.push(stream);
        assert!(waiting.len() < 1000, "the queue is never full");
    }
    (socket, address, waiting)
}

#[tokio::test]
async fn connection_refused_and_connect_time_out_are_distinguished() {
    let (_socket, address, _waiting) = full();
    let error = failure(settings(UpstreamDialect::Chat, &format!("http://{address}")), hello()).await.error;
    assert_eq!((error.code.as_str(), error.retryable), ("upstream_timeout", Some(true)));
    assert_eq!(error.message, format!("{address} did not accept the connection in time."));

    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = failure(settings(UpstreamDialect::Chat, &format!("http://{nobody}")), hello()).await.error;
    assert_eq!((error.code.as_str(), error.retryable), ("upstream_unreachable", Some(true)));
    assert!(error.message.starts_with(&format!("Cannot reach {nobody}: Connection refused")), "{}", error.message);
}

#[tokio::test]
async fn a_response_that_is_no_event_stream_is_reported_as_such() {
    let page = "<html><head><title>502 Bad Gateway</title></head></html>";
    let json_error = r#"{"error": {"message": "no such model", "type": "not_found_error"}}"#;
    let cases = [
        (answer("502 Bad Gateway", "text/html", "", page), "provider_error", true, "status 502): 502 Bad Gateway"),
        (answer("429 Too Many Requests", "application/json", "retry-after: 3\r\n", "{}"), "rate_limited", true, "429"),
        (
            answer("307 Temporary Redirect", "text/plain", "location: /elsewhere\r\n", ""),
            "provider_refused",
            false,
            "307",
        ),
        (answer("200 OK", "text/html", "", page), "provider_protocol_error", true, "returned a web page"),
        (answer("200 OK", "application/json", "", "{\"id\": 1}"), "provider_protocol_error", true, "one JSON document"),
        (answer("200 OK", "application/json", "", json_error), "provider_error", true, "no such model"),
        (answer("200 OK", "image/png", "", "x"), "provider_protocol_error", true, "`image/png`"),
        (vec![stream()], "upstream_incomplete", true, "ended before it was complete"),
        (vec![stream(), send("data: {\"choi")], "upstream_incomplete", true, "ended before it was complete"),
        (vec![stream(), send("data: <html>\n\n")], "provider_protocol_error", true, "not JSON"),
        (vec![], "upstream_incomplete", true, "The connection to"),
    ];
    for (acts, code, retryable, words) in cases {
        let mut service = Service::start(vec![acts, vec![]]).await;
        let failure = failure(service.settings(UpstreamDialect::Chat), hello()).await;
        let error = &failure.error;
        assert!(error.message.contains(words), "{words}: {error:?}");
        assert_eq!((error.code.as_str(), error.retryable), (code, Some(retryable)), "{words}: {error:?}");
        assert_eq!(failure.retry_after_ms, (code == "rate_limited").then_some(3000));
        assert_eq!(error.details.as_ref().unwrap()["host"], service.address);
        service.request().await;
    }
}

#[tokio::test]
async fn a_broken_connection_fails_unless_the_terminal_event_came() {
    let begun = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = |text: &str| send(format!("{:x}\r\n{text}\r\n", text.len()));
    let service = Service::start(vec![vec![send(begun), chunk(EVENT)]]).await;
    let error = failure(service.settings(UpstreamDialect::Chat), hello()).await.error;
    assert_eq!((error.code.as_str(), error.retryable), ("upstream_incomplete", Some(true)));
    assert!(
        error.message.starts_with(&format!("The connection to {} was lost: ", service.address)),
        "{}",
        error.message
    );

    let last = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    let service = Service::start(vec![vec![send(begun), chunk(EVENT), chunk(last)]]).await;
    let events = turn(service.settings(UpstreamDialect::Chat), hello()).await;
    assert!(matches!(events.last(), Some(ModelEvent::End(_))), "{events:?}");
}

#[tokio::test]
async fn the_request_body_is_freed_while_the_response_streams() {
    let service = Service::start(vec![vec![stream(), send(EVENT), Act::Hold]]).await;
    let request = hello();
    let history = Arc::downgrade(&request.history.entries()[0]);
    let mut turn = upstream(service.settings(UpstreamDialect::Chat)).stream_turn(request);
    let first = tokio::time::timeout(PATIENCE, turn.next()).await.unwrap();
    assert!(matches!(first, Some(ModelEvent::Delta(_))), "{first:?}");
    assert!(history.upgrade().is_none(), "pictures of many megabytes may be in it");
}

#[tokio::test]
async fn an_oversized_line_event_or_response_ends_the_turn() {
    let line = || vec![stream(), Act::Flood(vec![b'x'; 4096])];
    let event = || vec![stream(), Act::Flood(b"data: xxxxxxxxxxxxxxxx\n".repeat(100))];
    let endless = || vec![stream(), Act::Flood(b": x\n\n".repeat(1000))];
    for (acts, words) in [(line(), "line_bytes_max"), (event(), "event_bytes_max"), (endless(), "response_bytes_max")] {
        let service = Service::start(vec![acts]).await;
        let mut limits = ResponseLimits { response_bytes_max: 1024 * 1024, ..ResponseLimits::default() };
        limits.sse.line_bytes_max = 100_000;
        limits.sse.event_bytes_max = 100_000;
        let error =
            failure(HttpProviderSettings { limits, ..service.settings(UpstreamDialect::Chat) }, hello()).await.error;
        assert_eq!(error.code, "provider_protocol_error");
        assert!(error.message.starts_with(&service.address) && error.message.contains(words), "{}", error.message);
    }
}

#[tokio::test]
async fn an_echoed_key_is_redacted_everywhere() {
    // `turn` searches all events for it.
    let complaint =
        json!({"error": {"message": format!("bad{KEY}. no"), "code": KEY, "param": format!("x {KEY}")}}).to_string();
    let long = json!({"error": {"message": format!("{} {KEY}", "x".repeat(480))}}).to_string();
    let said =
        json!({"choices": [{"index": 0, "delta": {"content": format!("it is {KEY}!")}}], "more": KEY}).to_string();
    let unknown = json!({"type": "news", "key": [KEY]}).to_string();
    for kind in UpstreamDialect::ALL {
        for body in [&complaint, &long] {
            for status in ["400 Bad Request", "401 Unauthorized", "500 Internal Server Error"] {
                let service = Service::start(vec![answer(status, "application/json", "", body)]).await;
                let error = failure(service.settings(kind), hello()).await.error;
                assert!(!error.message.contains("0123"), "{error:?}");
            }
            let service = Service::start(vec![vec![stream(), send(format!("event: error\ndata: {body}\n\n"))]]).await;
            failure(service.settings(kind), hello()).await;
        }
        for data in [&said, &unknown, &KEY.to_owned()] {
            let service = Service::start(vec![vec![stream(), send(format!("data: {data}\n\n"))]]).await;
            turn(service.settings(kind), hello()).await;
        }
    }
    let service = Service::start(vec![vec![stream(), send(format!("data: {said}\n\ndata: [DONE]\n\n"))]]).await;
    let events = turn(service.settings(UpstreamDialect::Chat), hello()).await;
    let text = |event: &ModelEvent| matches!(event, ModelEvent::Delta(ModelDelta::Text { text, .. }) if text == "it is [removed]!");
    assert!(events.iter().any(text), "{events:?}");
    let service = Service::start(vec![vec![head("500 Oops", "text/plain", ""), send(KEY)]]).await;
    assert_eq!(
        failure(service.settings(UpstreamDialect::Chat), hello()).await.error.message,
        "The provider failed (status 500): [removed]"
    );
}
