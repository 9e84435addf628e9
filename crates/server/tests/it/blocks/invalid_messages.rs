//! Invalid messages, and valid ones at a bad moment.

use super::socket::{Received, Socket};
use super::{chat_message, read_turn};
use crate::harness::Server;
use serde_json::{Value, json};

async fn paused(socket: &mut Socket, session: &str) -> Value {
    socket.send_json(&chat_message(session, "trade")).await;
    loop {
        let frame = socket.next_event().await;
        if frame["content_block"]["type"] == "approval_request" {
            socket.read_until("content_block_stop").await;
            return frame["content_block"]["approval_key"].clone();
        }
    }
}

#[tokio::test]
async fn an_array_is_no_message_and_no_decision() {
    let hw = Server::demo();
    let mut socket = Socket::connect(&hw).await;
    for text in ["5", "null", "true", "\"ping\"", "[\"ping\"]", "[{\"type\":\"ping\"}]"] {
        socket.send_text(text).await;
        assert_eq!(socket.next_event().await["code"], "invalid_body", "{text}");
    }
    for deep in [format!("{}{}", "[".repeat(500), "]".repeat(500)), format!("{{\"type\":{}", "[".repeat(100_000))] {
        socket.send_text(&deep).await;
        assert_eq!(socket.next_event().await["code"], "invalid_json");
    }
    let key = paused(&mut socket, "s1").await;
    for decision in [json!(["approve"]), json!(["approve", null, null]), json!("approve"), json!(null)] {
        socket.send_json(&json!({"type": "approval_response", "approval_key": key, "decisions": [decision]})).await;
        assert_eq!(socket.next_event().await["code"], "invalid_body", "{decision} is no yes");
    }
    let row = hw.get("/v1/tasks").await.json()["data"][0].clone();
    assert_eq!(row["status"], "paused", "nothing was decided");
}

#[tokio::test]
async fn an_error_names_the_field_and_explains() {
    let hw = Server::demo();
    let mut socket = Socket::connect(&hw).await;
    for (message, field) in [
        (json!({"type": "chat", "content": null}), "`content`"),
        (json!({"type": "chat", "content": "a", "display_mode": "both"}), "`display_mode`"),
        (json!({"type": "chat", "content": "a", "agent": 1}), "`agent`"),
        (json!({"type": "resume", "session_id": []}), "`session_id`"),
        (json!({"type": "approval_response", "approval_key": "apr_1", "decisions": {}}), "`decisions`"),
        (json!({"type": "shout"}), "`type`"),
        (json!({"type": "stop", "session_id": []}), "`session_id`"),
    ] {
        socket.send_json(&message).await;
        let error = socket.next_event().await;
        assert_eq!(error["code"], "invalid_body", "{message}");
        assert!(error["message"].as_str().unwrap().contains(field), "{message}: {error}");
    }
    let key = paused(&mut socket, "s1").await;
    let decide =
        |decision: &str| json!({"type": "approval_response", "approval_key": key, "decisions": [{"type": decision}]});
    socket.send_json(&decide("reject")).await;
    socket.read_until("message_stop").await;
    // A repetition is ignored; a different one is too late.
    socket.send_json(&decide("reject")).await;
    socket.send_json(&decide("approve")).await;
    let late = socket.next_event().await;
    assert_eq!((&late["code"], &late["approval"]["key"]), (&json!("already_decided"), &key), "{late}");
    assert_eq!(late["approval"]["decision"]["type"], "reject", "{late}");
    socket.send_json(&json!({"type": "resume", "session_id": "s1", "after": "999999"})).await;
    let ahead = socket.next_event().await;
    assert_eq!((&ahead["code"], ahead["head"].is_u64()), (&json!("cursor_ahead"), true), "{ahead}");
    socket.send_json(&json!({"type": "chat", "content": "hello", "agent": "nobody"})).await;
    let unknown = socket.next_event().await;
    assert_eq!((&unknown["type"], &unknown["agents"][1]), (&json!("error"), &json!("demo")), "{unknown}");
}

#[tokio::test]
async fn an_invalid_cursor_is_refused_even_when_already_attached() {
    let hw = Server::demo();
    let mut socket = Socket::connect(&hw).await;
    socket.send_json(&chat_message("other", "hello")).await;
    let foreign = read_turn(&mut socket).await[0]["cursor"].clone();
    socket.send_json(&chat_message("s1", "weather")).await;
    let frames = read_turn(&mut socket).await;
    let inner = frames.iter().find_map(|frame| frame["cursor"].as_str().filter(|cursor| cursor.contains(".blocks.")));
    let of_another = inner.unwrap().replace(".blocks.", ".agent-runs.");
    let mut socket = Socket::connect(&hw).await;
    socket.send_json(&json!({"type": "resume", "session_id": "s1"})).await;
    assert_eq!(read_turn(&mut socket).await, frames);
    for (after, code) in [
        (json!(""), "invalid_cursor"),
        (json!("x"), "invalid_cursor"),
        (foreign, "cursor_foreign"),
        (json!(of_another), "cursor_foreign"),
        (json!("999999"), "cursor_ahead"),
    ] {
        socket.send_json(&json!({"type": "resume", "session_id": "s1", "after": after})).await;
        assert_eq!(socket.next_event().await["code"], code, "{after}");
    }
    // A refused one changes nothing, and a valid one restarts there.
    socket.send_json(&json!({"type": "resume", "session_id": "s1", "after": frames[0]["cursor"]})).await;
    assert_eq!(socket.read_until("message_stop").await, frames[1..]);
    socket.send_json(&json!({"type": "ping"})).await;
    assert_eq!(socket.next_event().await["type"], "pong");
}

#[tokio::test]
async fn a_session_deleted_elsewhere_restarts_at_the_next_message() {
    let hw = Server::demo();
    // Whether the socket sees the deletion or its client's message first is a matter of chance.
    for round in 0..5 {
        let session = format!("s{round}");
        let mut socket = Socket::connect(&hw).await;
        socket.send_json(&chat_message(&session, "story 20000 fast")).await;
        // Nothing is read, so that the socket is busy until all of this has happened.
        let first = socket.next_event().await["message_id"].as_str().unwrap().to_owned();
        let thread = hw.wait_ended(&first).await["thread_id"].as_str().unwrap().to_owned();
        hw.request(reqwest::Method::DELETE, &format!("/v1/threads/{thread}"), &[], None).await;
        socket.send_json(&chat_message(&session, "hello")).await;
        let begun = loop {
            let frame = socket.next_event().await;
            if frame["type"] == "message_start" && frame["message_id"] != first {
                break frame;
            }
        };
        assert_eq!(begun["session_id"], session);
        socket.read_until("message_stop").await;
    }
}

#[tokio::test]
async fn messages_may_be_fragmented_and_closes_are_echoed() {
    let hw = Server::demo_with("[limits]\nbody_bytes_max = 1000");
    let mut socket = Socket::connect(&hw).await;
    socket.send_frame(0x01, b"{\"type\":\"pi").await;
    socket.send_frame(0x8a, b"a pong that nobody asked for").await;
    socket.send_frame(0x80, b"ng\"}").await;
    assert_eq!(socket.next_event().await, json!({"type": "pong"}));
    // The limit applies to the message, however it is fragmented; an announced length alone is not awaited.
    socket.send_frame(0x01, &[b'x'; 600]).await;
    socket.send_frame(0x80, &[b'x'; 600]).await;
    assert_eq!(socket.read_close().await, Received::Closed(1009));
    let code = |code: u16| code.to_be_bytes();
    for (first, payload, answer) in [
        (0x88, code(3000).to_vec(), 3000),
        (0x88, [&code(1000)[..], b"\xff"].concat(), 1007),
        (0x88, vec![3], 1002),
        (0x88, code(1005).to_vec(), 1002),
        (0x81, b"\xed\xa0\x80".to_vec(), 1007),
        (0x83, b"x".to_vec(), 1002),
        (0xc1, b"x".to_vec(), 1002),
        (0x80, b"x".to_vec(), 1002),
        (0x09, b"x".to_vec(), 1002),
    ] {
        let mut socket = Socket::connect(&hw).await;
        socket.send_frame(first, &payload).await;
        assert_eq!(socket.read_close().await, Received::Closed(answer), "{first:x} {payload:?}");
    }
}

#[tokio::test]
async fn a_stop_ends_the_paused_run_and_the_queue() {
    let hw = Server::demo();
    let mut socket = Socket::connect(&hw).await;
    let key = paused(&mut socket, "s1").await;
    socket.send_json(&chat_message("s1", "story 2000")).await;
    let mut other = Socket::connect(&hw).await;
    other.send_json(&chat_message("s1", "hello")).await;
    hw.wait_until("both wait", async || hw.get("/v1/tasks").await.json()["data"].as_array().unwrap().len() == 3).await;
    socket.send_json(&json!({"type": "stop"})).await;
    let frames = socket.read_until("message_stop").await;
    let result = frames.iter().find(|frame| frame["content_block"]["type"] == "tool_result").unwrap();
    assert_eq!(result["content_block"]["status"], "error", "no call is left without a result");
    assert_eq!(frames[frames.len() - 2]["delta"]["stop_reason"], "user_stopped");
    socket
        .send_json(&json!({"type": "approval_response", "approval_key": key, "decisions": [{"type": "approve"}]}))
        .await;
    assert_eq!(socket.next_event().await["code"], "already_decided");
    hw.wait_until("all were stopped", async || {
        let runs = hw.get("/v1/tasks").await.json();
        runs["data"].as_array().unwrap().iter().all(|run| run["status"] == "cancelled")
    })
    .await;
    // A client that waited for a turn that never came gets the next one.
    socket.send_json(&chat_message("s1", "hello")).await;
    let next = read_turn(&mut socket).await;
    assert_eq!(read_turn(&mut other).await, next);
}
