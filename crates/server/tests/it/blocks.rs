//! Content blocks over a WebSocket: the real binary and a test client.

mod block_approvals;
mod invalid_messages;
mod limits;
mod nested_agents;
mod resumes;
mod sessions;
pub(crate) mod socket;
mod stalled_sockets;

use crate::harness::Server;
use serde_json::{Value, json};
use socket::Socket;

pub(crate) fn chat_message(session: &str, content: &str) -> Value {
    json!({"type": "chat", "session_id": session, "content": content})
}

/// A whole turn: everything up to its `message_stop`.
pub(crate) async fn read_turn(socket: &mut Socket) -> Vec<Value> {
    let frames = socket.read_until("message_stop").await;
    assert_eq!(frames[0]["type"], "message_start", "{frames:#?}");
    frames
}

/// The text of the final block of the turn.
pub(crate) fn final_text(frames: &[Value]) -> String {
    let last = frames.iter().find(|frame| frame["is_final"] == true).expect("an answer");
    let of_it = frames.iter().filter(|frame| frame["index"] == last["index"]);
    of_it.filter_map(|frame| frame["delta"]["text"].as_str()).collect()
}

pub(crate) fn frame_types(frames: &[Value]) -> Vec<&str> {
    frames.iter().map(|frame| frame["type"].as_str().unwrap()).collect()
}

fn last_message_text(task: &Value) -> String {
    let items = task["output"].as_array().unwrap();
    let message = items.iter().rfind(|item| item["type"] == "message").unwrap();
    message["block_list"].as_array().unwrap().iter().map(|block| block["text"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn the_turn_of_a_chat_agrees_with_its_task() {
    let hw = Server::demo();
    let mut socket = Socket::connect(&hw).await;
    for input in ["hello", "weather", "help", "parallel", "handoff", "image", "story 50 fast", "slow 1"] {
        socket.send_json(&chat_message("s1", input)).await;
        let frames = read_turn(&mut socket).await;
        let run = frames[0]["message_id"].as_str().unwrap().to_owned();
        assert_eq!(frames[0]["session_id"], "s1");
        for frame in &frames {
            assert_eq!(frame["message_id"], run, "{input}");
            assert!(frame["cursor"].is_string(), "{frame}");
        }
        let task = hw.get(&format!("/v1/tasks/{run}")).await.json();
        assert_eq!(final_text(&frames), last_message_text(&task), "{input}");
    }
    socket.send_json(&chat_message("s1", "fail")).await;
    let frames = read_turn(&mut socket).await;
    assert_eq!(frames[frames.len() - 2]["delta"]["stop_reason"], "error");
    let shown = hw.get("/v1/threads?limit=100").await.json();
    assert_eq!(shown["data"].as_array().unwrap().len(), 1, "one session is one thread");
}

#[tokio::test]
async fn chat_mode_has_no_reasoning() {
    let hw = Server::demo();
    let mut socket = Socket::connect(&hw).await;
    let modes = [("chat", false), ("agent", true)];
    for (mode, thinks) in modes {
        let mut message = chat_message(mode, "weather");
        message["display_mode"] = json!(mode);
        socket.send_json(&message).await;
        let frames = read_turn(&mut socket).await;
        assert_eq!(frames[0]["display_mode"], mode);
        assert_eq!(frames.iter().any(|frame| frame["content_block"]["type"] == "thinking"), thinks, "{mode}");
    }
}

#[tokio::test]
async fn errors_are_reported_and_the_socket_stays_open() {
    let hw = Server::demo();
    let mut socket = Socket::connect(&hw).await;
    let wrong: [(Value, &str); 14] = [
        (json!([]), "invalid_body"),
        (json!({"content": "hello"}), "invalid_body"),
        (json!({"type": "shout", "content": "hello"}), "invalid_body"),
        (json!({"type": "chat"}), "invalid_body"),
        (json!({"type": "chat", "contant": "hello"}), "invalid_body"),
        (json!({"type": "chat", "content": ""}), "no_input"),
        (json!({"type": "chat", "content": "hello", "agent": "nobody"}), "unknown_agent"),
        (json!({"type": "chat", "content": "hello", "session_id": "a b"}), "invalid_body"),
        (json!({"type": "chat", "content": "hello", "session_id": "thr_nobodys"}), "not_found"),
        (json!({"type": "chat", "content": "hello", "content_urls": ["a.pdf"]}), "invalid_body"),
        (json!({"type": "resume", "session_id": "unknown"}), "not_found"),
        (json!({"type": "stop"}), "no_session"),
        (
            json!({"type": "approval_response", "approval_key": "apr_1", "decisions": [{"type": "approve"}]}),
            "approval_not_found",
        ),
        (json!({"type": "approval_response", "approval_key": "apr_1", "decisions": []}), "invalid_body"),
    ];
    for (message, code) in wrong {
        socket.send_json(&message).await;
        let error = socket.next_event().await;
        assert_eq!((&error["type"], &error["code"]), (&json!("error"), &json!(code)), "{message}: {error}");
        assert!(error["message"].is_string(), "{error}");
    }
    for text in ["", "{", "{\"type\":\"ping\",\"type\":\"ping\"}", "nul"] {
        socket.send_text(text).await;
        assert_eq!(socket.next_event().await["code"], "invalid_json", "{text}");
    }
    socket.send_frame(0x82, b"\0\x01").await;
    assert_eq!(socket.next_event().await["code"], "invalid_message");
    assert_eq!(hw.count_threads_and_records().await, (0, 0), "nothing was begun");
    socket.send_json(&json!({"type": "ping"})).await;
    assert_eq!(socket.next_event().await, json!({"type": "pong"}));
    socket.send_json(&chat_message("s1", "hello")).await;
    read_turn(&mut socket).await;
    socket.send_json(&json!({"type": "resume", "session_id": "s1", "after": "00000000-1"})).await;
    let error = socket.next_event().await;
    assert_eq!((&error["code"], &error["session_id"]), (&json!("cursor_foreign"), &json!("s1")));
}
