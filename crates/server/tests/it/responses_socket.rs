//! `GET /v1/responses`: responses over a WebSocket. The numbers are those of the checks in the module documentation of each
//! group below; the real SDKs are in `e2e/`.

use crate::auth::create_key;
use crate::blocks::socket::{Received, Socket};
use crate::broker_fixture::broker_server;
use crate::harness::Server;
use crate::responses::{get_response, output_text, parse_error};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;

const TERMINAL: [&str; 3] = ["response.completed", "response.failed", "response.incomplete"];

async fn connect(hw: &Server) -> Socket {
    Socket::connect_to(hw, "/v1/responses", "").await.unwrap_or_else(|head| panic!("{head}"))
}

fn create(mut message: Value) -> Value {
    message["type"] = json!("response.create");
    if message["model"].is_null() {
        message["model"] = json!("demo");
    }
    message
}

/// The events of one turn, or its only message if that is an error.
async fn read_turn(socket: &mut Socket) -> Vec<Value> {
    let mut events = Vec::new();
    loop {
        let event = socket.next_event().await;
        let is_last = event["type"] == "error" || TERMINAL.contains(&event["type"].as_str().unwrap());
        events.push(event);
        if is_last {
            return events;
        }
    }
}

async fn turn(socket: &mut Socket, fields: Value) -> Value {
    socket.send_json(&create(fields)).await;
    let events = read_turn(socket).await;
    let last = events.last().unwrap();
    assert_ne!(last["type"], "error", "{last}");
    last["response"].clone()
}

/// The status, code and parameter of a refused turn.
async fn refused(socket: &mut Socket, message: &Value) -> (u64, String, Value) {
    socket.send_json(message).await;
    read_error(socket).await
}

async fn read_error(socket: &mut Socket) -> (u64, String, Value) {
    let error = socket.next_event().await;
    assert_eq!(error["type"], "error", "{error}");
    assert!(error["error"]["message"].is_string() && error["error"]["type"].is_string(), "{error}");
    let code = error["error"]["code"].as_str().unwrap().to_owned();
    (error["status"].as_u64().unwrap(), code, error["error"]["param"].clone())
}

fn not_found() -> (u64, String, Value) {
    (400, "previous_response_not_found".to_owned(), json!("previous_response_id"))
}

/// The data of an event stream, byte for byte.
fn stream_data(text: &str) -> Vec<String> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    data.map(str::to_owned).collect()
}

#[tokio::test]
async fn a_turn_is_the_event_stream_without_its_framing() {
    let hw = Server::demo();
    let mut socket = connect(&hw).await;
    for input in ["hello", "weather", "help", "parallel", "handoff", "image", "fail", "story 30 fast", "trade"] {
        socket.send_json(&create(json!({"input": input, "stream": true}))).await;
        let mut texts = Vec::new();
        let last = loop {
            let text = socket.next_text().await;
            let event: Value = serde_json::from_str(&text).unwrap();
            texts.push(text);
            if TERMINAL.contains(&event["type"].as_str().unwrap()) {
                break event;
            }
        };
        let path = format!("/v1/responses/{}", last["response"]["id"].as_str().unwrap());
        assert_eq!(texts, stream_data(&hw.get(&format!("{path}?stream=true")).await.text), "{input}");
        assert_eq!(get_response(&hw, &last["response"]["id"]).await, last["response"], "{input}");
    }
}

/// Laws 4 and 5: the socket has no cursors of its own. What it sent is a prefix of the stored stream at every moment, and the
/// stream goes on after its last event, also after a crash.
#[tokio::test]
async fn laws_4_and_5_hold_for_a_socket_that_breaks_at_any_event_and_after_a_kill() {
    let mut hw = Server::demo();
    for seen in [1, 2, 3, 5, 8, 13, 21] {
        let mut socket = connect(&hw).await;
        socket.send_json(&create(json!({"input": "weather"}))).await;
        let mut texts = Vec::new();
        while texts.len() < seen {
            texts.push(socket.next_text().await);
        }
        drop(socket);
        let first: Value = serde_json::from_str(&texts[0]).unwrap();
        let path = format!("/v1/responses/{}?stream=true", first["response"]["id"].as_str().unwrap());
        let all = stream_data(&hw.get(&path).await.text);
        assert_eq!(texts, all[..seen], "what was sent begins the whole stream");
        let rest = stream_data(&hw.get(&format!("{path}&starting_after={}", seen - 1)).await.text);
        assert_eq!(rest, all[seen..], "the rest follows");
    }
    let mut socket = connect(&hw).await;
    socket.send_json(&create(json!({"input": "story 100"}))).await;
    let mut texts = Vec::new();
    while texts.len() < 20 {
        texts.push(socket.next_text().await);
    }
    hw.kill9();
    hw.restart();
    let id = serde_json::from_str::<Value>(&texts[0]).unwrap()["response"]["id"].clone();
    let all = stream_data(&hw.get(&format!("/v1/responses/{}?stream=true", id.as_str().unwrap())).await.text);
    assert_eq!(texts, all[..20]);
    // A new socket goes on from the stored response.
    let mut socket = connect(&hw).await;
    let next = turn(&mut socket, json!({"input": "hello", "previous_response_id": id})).await;
    assert_eq!((&next["status"], &next["previous_response_id"]), (&json!("completed"), &id));
    let task = hw.get("/v1/tasks").await.json();
    let threads: Vec<_> = task["data"].as_array().unwrap().iter().take(2).map(|task| &task["thread_id"]).collect();
    assert_eq!(threads[0], threads[1], "the same conversation");
}

#[tokio::test]
async fn requests_have_their_turn_one_after_the_other() {
    let hw = Server::demo();
    let mut socket = connect(&hw).await;
    for n in 0..2 {
        socket.send_json(&create(json!({"input": "story 20", "metadata": {"n": format!("{n}")}}))).await;
    }
    for n in 0..2 {
        let events = read_turn(&mut socket).await;
        assert_eq!(events[0]["type"], "response.created", "{}", events[0]);
        let numbers: Vec<_> = events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
        let id = &events[0]["response"]["id"];
        let last = &events.last().unwrap()["response"];
        assert_eq!((&last["id"], &last["metadata"]["n"]), (id, &json!(format!("{n}"))));
    }
}

#[tokio::test]
async fn a_flood_is_refused_and_every_accepted_request_is_answered() {
    let hw = Server::demo();
    let mut socket = connect(&hw).await;
    socket.send_json(&create(json!({"input": "slow 1"}))).await;
    socket.read_until("response.created").await;
    for _ in 0..20 {
        socket.send_json(&create(json!({"input": "hello"}))).await;
    }
    let (mut errors, mut completed) = (Vec::new(), 0);
    while completed < 17 {
        let event = socket.next_event().await;
        match event["type"].as_str().unwrap() {
            "error" => errors.push((event["status"].clone(), event["error"]["code"].clone())),
            "response.completed" => completed += 1,
            _ => {}
        }
    }
    assert_eq!(errors, vec![(json!(429), json!("too_many_requests")); 4], "16 wait beside the first");
    assert_eq!(hw.get("/v1/tasks").await.json()["data"].as_array().unwrap().len(), 17);
}

#[tokio::test]
async fn an_unstored_response_can_be_continued_on_its_socket_alone() {
    let mut hw = Server::demo();
    let mut socket = connect(&hw).await;
    let first = turn(&mut socket, json!({"input": "hello", "store": false})).await;
    let next = || create(json!({"input": "hello", "store": false, "previous_response_id": first["id"]}));
    let second = turn(&mut socket, next()).await;
    assert_eq!(second["previous_response_id"], first["id"]);
    let mut other = connect(&hw).await;
    assert_eq!(refused(&mut other, &next()).await, not_found(), "another socket");
    assert_eq!(turn(&mut other, json!({"input": "hello", "previous_response_id": null})).await["status"], "completed");
    let over_http = json!({"model": "demo", "input": "hello", "previous_response_id": first["id"]});
    let (status, code, param) = parse_error(&hw.post("/v1/responses", over_http).await);
    assert_eq!((u64::from(status), code, param), not_found());
    let path = format!("/v1/responses/{}", first["id"].as_str().unwrap());
    assert_eq!(hw.get(&path).await.status, 404, "it cannot be read");
    hw.kill9();
    hw.restart();
    let mut socket = connect(&hw).await;
    assert_eq!(refused(&mut socket, &next()).await, not_found(), "after a restart");
    let stored = turn(&mut socket, json!({"input": "hello"})).await;
    let mut other = connect(&hw).await;
    let next = turn(&mut other, json!({"input": "hello", "previous_response_id": stored["id"]})).await;
    assert_eq!(next["status"], "completed", "a stored one can be continued anywhere");
}

#[tokio::test]
async fn a_failed_turn_forgets_the_response_that_it_names() {
    let hw = Server::demo();
    let mut socket = connect(&hw).await;
    let unmatched = json!([{"type": "function_call_output", "call_id": "call_1", "output": "x"}]);
    for store in [false, true] {
        let first = turn(&mut socket, json!({"input": "hello", "store": store})).await;
        let wrong = create(json!({"previous_response_id": first["id"], "input": unmatched, "store": store}));
        assert_eq!(refused(&mut socket, &wrong).await.1, "call_not_found");
        let again = create(json!({"previous_response_id": first["id"], "input": "hello", "store": store}));
        if store {
            assert_eq!(turn(&mut socket, again).await["status"], "completed", "what is stored stays");
        } else {
            assert_eq!(refused(&mut socket, &again).await, not_found());
        }
    }
    // A response that fails does the same; one that is incomplete does not.
    let first = turn(&mut socket, json!({"input": "hello", "store": false})).await;
    let failed = turn(&mut socket, json!({"input": "fail", "store": false, "previous_response_id": first["id"]})).await;
    assert_eq!(failed["status"], "failed");
    let again = create(json!({"input": "hello", "store": false, "previous_response_id": first["id"]}));
    assert_eq!(refused(&mut socket, &again).await, not_found());
    assert_eq!(turn(&mut socket, json!({"input": "hello"})).await["status"], "completed", "the socket lives");
}

#[tokio::test]
async fn bad_messages_are_refused_and_the_next_turn_works() {
    let hw = Server::demo();
    let mut socket = connect(&hw).await;
    for (text, code, param) in [
        ("{", "invalid_json", Value::Null),
        ("[]", "invalid_body", Value::Null),
        ("\"response.create\"", "invalid_body", Value::Null),
        ("{}", "invalid_body", json!("type")),
        (r#"{"type":"response.cancel"}"#, "invalid_body", json!("type")),
        (r#"{"type":7,"model":"demo","input":"x"}"#, "invalid_body", json!("type")),
        (r#"{"type":"response.create","model":"demo","input":"x","stream":false}"#, "invalid_body", json!("stream")),
        (
            r#"{"type":"response.create","model":"demo","input":"x","background":true}"#,
            "invalid_body",
            json!("background"),
        ),
        (
            r#"{"type":"response.create","model":"demo","input":"x","stream_options":{}}"#,
            "invalid_body",
            json!("stream_options"),
        ),
        (
            r#"{"type":"response.create","model":"demo","input":"x","stream_id":"a"}"#,
            "invalid_body",
            json!("stream_id"),
        ),
        (r#"{"type":"response.create","model":"demo","input":"x","generate":1}"#, "invalid_body", json!("generate")),
        (
            r#"{"type":"response.create","model":"nobody","input":"x","generate":false}"#,
            "model_not_found",
            json!("model"),
        ),
        (r#"{"type":"response.create","model":"nobody","input":"x"}"#, "model_not_found", json!("model")),
        (r#"{"type":"response.create","input":"x"}"#, "invalid_body", json!("model")),
        (
            r#"{"type":"response.create","model":"demo","input":"x","previous_response_id":"resp_1"}"#,
            "previous_response_not_found",
            json!("previous_response_id"),
        ),
    ] {
        socket.send_text(text).await;
        assert_eq!(read_error(&mut socket).await, (400, code.to_owned(), param), "{text}");
    }
    socket.send_frame(0x82, b"{}").await;
    assert_eq!(read_error(&mut socket).await.1, "invalid_message", "binary");
    let tools: Vec<_> = (0..1000).map(|n| json!({"type": "function", "name": format!("f{n}")})).collect();
    assert_eq!(refused(&mut socket, &create(json!({"input": "x", "tools": tools}))).await.2, json!("tools"));
    assert_eq!(hw.get("/v1/tasks").await.json()["data"], json!([]), "nothing was written");
    assert_eq!(
        turn(&mut socket, json!({"input": "hello", "stream": null, "background": false})).await["status"],
        "completed"
    );

    let small = Server::demo_with("[limits]\nbody_bytes_max = 100000");
    let mut socket = connect(&small).await;
    socket.send_text(&" ".repeat(200_000)).await;
    assert_eq!(socket.read_close().await, Received::Closed(1009));
}

#[tokio::test]
async fn tools_and_approvals_are_answered_on_the_socket() {
    let hw = broker_server("");
    let mut socket = connect(&hw).await;
    let tools = json!([{"type": "function", "name": "locate"}, {"type": "function", "name": "measure"}]);
    let base = |fields: Value| {
        let mut fields = fields;
        fields["model"] = json!("broker");
        fields["tools"] = tools.clone();
        fields["store"] = json!(false);
        fields
    };
    let item = |response: &Value, kind: &str| {
        let found = response["output"].as_array().unwrap().iter().find(|item| item["type"] == kind).cloned();
        found.unwrap_or_else(|| panic!("{kind} in {response}"))
    };
    let asked = turn(&mut socket, base(json!({"input": "locate"}))).await;
    let call = item(&asked, "function_call");
    let output = json!([{"type": "function_call_output", "call_id": call["call_id"], "output": "in the door"}]);
    let said = turn(&mut socket, base(json!({"input": output, "previous_response_id": asked["id"]}))).await;
    assert!(output_text(&said).contains("in the door"), "{said}");
    let asked = turn(&mut socket, base(json!({"input": "buy", "previous_response_id": said["id"]}))).await;
    let question = item(&asked, "mcp_approval_request");
    let answer = json!([{"type": "mcp_approval_response", "approval_request_id": question["id"], "approve": true}]);
    let done = turn(&mut socket, base(json!({"input": answer, "previous_response_id": asked["id"]}))).await;
    assert!(output_text(&done).contains("bought"), "{done}");
}

#[tokio::test]
async fn a_request_that_generates_nothing_prepares_the_next_one() {
    let hw = Server::demo();
    let mut socket = connect(&hw).await;
    let opening = json!([{"role": "user", "content": "weather"}, {"role": "assistant", "content": "Sunny."}]);
    socket.send_json(&create(json!({"input": opening, "generate": false, "store": false}))).await;
    let events = read_turn(&mut socket).await;
    let types: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["response.created", "response.completed"]);
    let warm = &events[1]["response"];
    assert_eq!((&warm["output"], &warm["usage"]["total_tokens"]), (&json!([]), &json!(0)));
    assert_eq!(hw.get("/v1/tasks").await.json()["data"], json!([]), "nothing was written");
    let next = || json!({"input": "hello", "previous_response_id": warm["id"]});
    let answer = turn(&mut socket, next()).await;
    assert!(output_text(&answer).starts_with("Hello!"), "{answer}");
    let again = turn(&mut socket, next()).await;
    assert!(output_text(&again).starts_with("Hello!"), "it can be named again: {again}");
    let mut other = connect(&hw).await;
    assert_eq!(refused(&mut other, &create(next())).await, not_found());
}

#[tokio::test]
async fn an_old_socket_ends_after_its_response() {
    let hw = Server::demo_with("[limits]\nsocket_lifetime_ms = 1500");
    let mut socket = connect(&hw).await;
    assert_eq!(turn(&mut socket, json!({"input": "hello"})).await["status"], "completed");
    assert_eq!(read_error(&mut socket).await, (400, "websocket_connection_limit_reached".to_owned(), Value::Null));
    assert_eq!(socket.read_close().await, Received::Closed(1001), "idle");

    let mut socket = connect(&hw).await;
    socket.send_json(&create(json!({"input": "slow 3"}))).await;
    socket.read_until("response.created").await;
    socket.send_json(&create(json!({"input": "hello"}))).await;
    let events = read_turn(&mut socket).await;
    assert_eq!(events.last().unwrap()["type"], "response.completed", "a response is sent to its end");
    assert_eq!(read_error(&mut socket).await.1, "websocket_connection_limit_reached");
    assert_eq!(socket.read_close().await, Received::Closed(1001));
    assert_eq!(hw.get("/v1/tasks").await.json()["data"].as_array().unwrap().len(), 2, "nothing new was begun");
}

#[tokio::test]
async fn leaving_stops_nothing_and_an_unstored_response_can_be_cancelled_by_its_id() {
    let hw = Server::demo();
    for (store, input) in [(true, "story 60"), (false, "slow 60")] {
        let mut socket = connect(&hw).await;
        socket.send_json(&create(json!({"input": input, "store": store}))).await;
        let created = socket.next_event().await;
        let path = format!("/v1/responses/{}", created["response"]["id"].as_str().unwrap());
        drop(socket);
        if store {
            let stream = hw.get(&format!("{path}?stream=true")).await.text;
            assert!(stream.contains("response.completed"), "{stream}");
        } else {
            let cancelled = hw.post(&format!("{path}/cancel"), json!({})).await;
            assert_eq!(
                (cancelled.status, &cancelled.json()["status"]),
                (200, &json!("cancelled")),
                "{}",
                cancelled.text
            );
            assert_eq!(hw.get(&path).await.status, 404, "reading it stays refused");
        }
    }
}

#[tokio::test]
async fn the_handshake_accepts_any_query_and_header_and_needs_a_key() {
    let hw = Server::demo_with("[auth]\nmode = \"keys\"");
    let (ann, ben) = (create_key(&hw, "ann"), create_key(&hw, "ben"));
    let open = async |key: &str| {
        let headers = format!("Authorization: Bearer {key}\r\nContent-Type: application/json\r\nOpenAI-Beta: x=1\r\n");
        Socket::connect_to(&hw, "/v1/responses?a=b&stream=yes", &headers).await
    };
    assert!(Socket::connect_to(&hw, "/v1/responses", "").await.err().unwrap().starts_with("HTTP/1.1 401 "));
    let key = format!("x-api-key: {ann}\r\n");
    assert!(Socket::connect_to(&hw, "/v1/responses", &key).await.is_ok());
    let headers = [("authorization", format!("Bearer {ann}"))];
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let plain = hw.request(Method::GET, "/v1/responses", &headers, None).await;
    assert_eq!(parse_error(&plain).0, 426, "without an upgrade");
    let mut hers = open(&ann).await.unwrap();
    let first = turn(&mut hers, json!({"input": "hello"})).await;
    let mut his = open(&ben).await.unwrap();
    let foreign = create(json!({"input": "hello", "previous_response_id": first["id"]}));
    assert_eq!(refused(&mut his, &foreign).await, not_found(), "somebody else's");
    let ticket = hw.request(Method::POST, "/v1/tickets", &headers, None).await.json()["ticket"].clone();
    let path = format!("/v1/responses?ticket={}", ticket.as_str().unwrap());
    let mut browser = Socket::connect_to(&hw, &path, "").await.unwrap();
    assert_eq!(
        turn(&mut browser, json!({"input": "hello", "previous_response_id": first["id"]})).await["status"],
        "completed"
    );
    let id = crate::auth::live_key_id(&hw, "ann");
    assert!(hw.run_cli(&["keys", "revoke", &id]).status.success());
    hers.send_json(&create(json!({"input": "hello"}))).await;
    assert_eq!(hers.read_close().await, Received::Closed(4401), "a revoked key has no turn");
}

#[tokio::test]
async fn a_server_that_stops_ends_the_response_first() {
    let hw = Server::demo();
    let (mut idle, mut busy) = (connect(&hw).await, connect(&hw).await);
    busy.send_json(&create(json!({"input": "story 40"}))).await;
    busy.read_until("response.created").await;
    hw.signal("-TERM");
    assert_eq!(idle.read_close().await, Received::Closed(1001));
    let events = tokio::time::timeout(Duration::from_secs(20), read_turn(&mut busy)).await.unwrap();
    assert_eq!(events.last().unwrap()["type"], "response.completed");
    assert_eq!(busy.read_close().await, Received::Closed(1012));
}
