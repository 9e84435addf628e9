//! Decisions, and who may make them.

use super::chat_message;
use super::socket::{Received, Socket};
use crate::harness::Server;
use serde_json::{Value, json};

async fn read_approval(socket: &mut Socket) -> (Vec<Value>, Value) {
    socket.send_json(&chat_message("s1", "trade")).await;
    let mut frames = Vec::new();
    loop {
        frames.push(socket.next_event().await);
        let last = frames.last().unwrap();
        if !last["delta"]["action_requests"].is_null() {
            let start = frames.iter().rfind(|frame| frame["content_block"]["type"] == "approval_request").unwrap();
            let key = start["content_block"]["approval_key"].clone();
            assert_eq!(last["delta"]["timeout_seconds"], 300);
            return (frames, key);
        }
    }
}

fn decide(key: &Value, decision: &Value) -> Value {
    json!({"type": "approval_response", "approval_key": key, "decisions": [decision]})
}

async fn result(socket: &mut Socket) -> Value {
    let frames = socket.read_until("message_stop").await;
    frames.iter().find(|frame| frame["content_block"]["type"] == "tool_result").unwrap()["content_block"].clone()
}

#[tokio::test]
async fn a_trade_is_approved_rejected_or_edited_and_the_turn_continues() {
    let hw = Server::demo();
    for (decision, status, content) in [
        (json!({"type": "approve"}), "success", "VNM"),
        (json!({"type": "reject", "message": "too risky"}), "error", "Rejected: too risky"),
        (json!({"type": "edit", "args": {"symbol": "FPT", "quantity": 7}}), "success", "FPT"),
    ] {
        let mut socket = Socket::connect(&hw).await;
        let (_, key) = read_approval(&mut socket).await;
        socket.send_json(&decide(&key, &decision)).await;
        let result = result(&mut socket).await;
        assert_eq!(result["status"], status, "{decision}: {result}");
        assert!(result["content"].as_str().unwrap().contains(content), "{decision}: {result}");
        socket.send_json(&decide(&key, &json!({"type": "reject", "message": "too late"}))).await;
        assert_eq!(socket.next_event().await["code"], "already_decided");
    }
}

#[tokio::test]
async fn a_second_device_sees_the_message_the_expiry_and_the_decision() {
    let hw = Server::demo();
    let mut first = Socket::connect(&hw).await;
    let (_, key) = read_approval(&mut first).await;
    let mut second = Socket::connect(&hw).await;
    second.send_json(&json!({"type": "resume", "session_id": "s1"})).await;
    let started = second.next_event().await;
    assert_eq!(started["input"][0]["content"], "trade", "{started}");
    let mut asked = second.next_event().await;
    while asked["delta"]["action_requests"].is_null() {
        asked = second.next_event().await;
    }
    let expires_at = asked["delta"]["expires_at"].as_f64().unwrap() / 1000.0;
    let waits = expires_at - started["timestamp"].as_f64().unwrap();
    assert!((300.0..400.0).contains(&waits), "{asked}");
    first.send_json(&decide(&key, &json!({"type": "reject", "message": "too risky"}))).await;
    let decided = second.read_until("approval_resolved").await.pop().unwrap();
    assert_eq!((&decided["approval_key"], &decided["by"]), (&key, &json!("user")), "{decided}");
    assert_eq!(
        (&decided["decisions"][0]["type"], &decided["decisions"][0]["message"]),
        (&json!("reject"), &json!("too risky"))
    );
    second.read_until("message_stop").await;
}

#[tokio::test]
async fn an_invalid_decision_decides_nothing() {
    let hw = Server::demo();
    let mut socket = Socket::connect(&hw).await;
    let (_, key) = read_approval(&mut socket).await;
    socket.read_until("content_block_stop").await;
    for (message, code) in [
        (decide(&key, &json!({"type": "edit"})), "invalid_body"),
        (decide(&key, &json!({"type": "approve", "args": {}})), "invalid_body"),
        (decide(&key, &json!({"type": "edit", "args": {"symbol": 1}})), "invalid_arguments"),
        (decide(&key, &json!({"type": "perhaps"})), "invalid_body"),
        (
            json!({"type": "approval_response", "approval_key": key, "decisions": [{"type": "approve"}, {"type": "approve"}]}),
            "invalid_body",
        ),
    ] {
        socket.send_json(&message).await;
        let error = socket.next_event().await;
        assert_eq!(error["code"], code, "{message}: {error}");
    }
    // Another socket may decide, also without a session of its own.
    let mut other = Socket::connect(&hw).await;
    other.send_json(&decide(&key, &json!({"type": "approve"}))).await;
    assert_eq!(result(&mut socket).await["status"], "success");
}

#[tokio::test]
async fn an_approval_of_another_session_is_not_found() {
    let hw = Server::demo();
    let mut first = Socket::connect(&hw).await;
    let (_, key) = read_approval(&mut first).await;
    let mut second = Socket::connect(&hw).await;
    second.send_json(&chat_message("s2", "hello")).await;
    second.read_until("message_stop").await;
    second.send_json(&decide(&key, &json!({"type": "approve"}))).await;
    let error = second.next_event().await;
    assert_eq!((&error["type"], &error["code"]), (&json!("error"), &json!("approval_not_found")), "{error}");
    let mut named = decide(&key, &json!({"type": "reject"}));
    named["session_id"] = json!("s2");
    first.send_json(&named).await;
    first.read_until("error").await;
    // A message that names a session applies to that session.
    named["session_id"] = json!("s1");
    second.send_json(&named).await;
    assert_eq!(result(&mut first).await["status"], "error");
}

const KEYS: &str = "[auth]\nmode = \"keys\"\n[limits]\nheartbeat_ms = 50";

fn key(hw: &Server, user: &str) -> String {
    let output = hw.run_cli(&["keys", "create", "--user", user]);
    let key = String::from_utf8(output.stdout).unwrap();
    assert!(key.starts_with("hw_"), "{}", String::from_utf8_lossy(&output.stderr));
    format!("Authorization: Bearer {}\r\n", key.trim())
}

#[tokio::test]
async fn sessions_are_scoped_to_their_user_and_a_revoked_key_closes_the_socket() {
    let hw = Server::demo_with(KEYS);
    assert!(Socket::connect_with_headers(&hw, "").await.err().unwrap().starts_with("HTTP/1.1 401"));
    let (ann, ben) = (key(&hw, "ann"), key(&hw, "ben"));
    let mut first = Socket::connect_with_headers(&hw, &ann).await.unwrap();
    let (_, question) = read_approval(&mut first).await;
    let mut second = Socket::connect_with_headers(&hw, &ben).await.unwrap();
    second.send_json(&json!({"type": "resume", "session_id": "s1"})).await;
    assert_eq!(second.next_event().await["code"], "not_found");
    second.send_json(&decide(&question, &json!({"type": "approve"}))).await;
    assert_eq!(second.next_event().await["code"], "approval_not_found");
    second.send_json(&chat_message("s1", "hello")).await;
    assert_eq!(second.next_event().await["session_id"], "s1", "a name of one's own");

    let list = String::from_utf8(hw.run_cli(&["keys", "list"]).stdout).unwrap();
    let id = list.lines().find(|line| line.contains("\tann\t")).and_then(|line| line.split('\t').next()).unwrap();
    assert!(hw.run_cli(&["keys", "revoke", id]).status.success());
    assert_eq!(first.read_close().await, Received::Closed(4401));
}
