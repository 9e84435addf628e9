//! Nested agents over a real socket: owners of blocks, and decisions about nested calls.

use super::socket::Socket;
use super::{chat_message, final_text};
use crate::harness::Server;
use serde_json::{Value, json};

const AGENTS: &str = r#"
[agents.front]
model = "p/front"
tools = ["mid"]
[agents.mid]
model = "p/mid"
description = "Asks on."
tools = ["leaf"]
[agents.leaf]
model = "p/leaf"
description = "Does it."
tools = ["execute_trade"]
[tools.execute_trade]
kind = "builtin"
[providers.p]
kind = "scripted"
file = "scenarios.toml"
"#;

const SCENARIOS: &str = r#"
[[scenario]]
model = "leaf"
[[scenario.turn]]
steps = [
  { reasoning = "May I?" },
  { text = ["I ", "ask."], every_ms = 20 },
  { call = "execute_trade", arguments = '{"symbol":"VNM","quantity":1}' },
]
[[scenario.turn]]
steps = [{ text = ["leaf: ", "{result}"], every_ms = 20 }]

[[scenario]]
model = "mid"
[[scenario.turn]]
steps = [{ text = ["One ", "moment."], every_ms = 20 }, { call = "leaf", arguments = '{"prompt":"go"}' }]
[[scenario.turn]]
steps = [{ text = "mid: {result}" }]

[[scenario]]
[[scenario.turn]]
steps = [{ call = "mid", arguments = '{"prompt":"go"}' }, { call = "mid", arguments = '{"prompt":"go"}' }]
[[scenario.turn]]
steps = [{ text = "front: {result}" }]
"#;

/// The block that starts with this `content_block` field, and its index in the turn.
fn block<'a>(frames: &'a [Value], kind: &str, id: &Value) -> &'a Value {
    let mut starts = frames.iter().map(|frame| &frame["content_block"]);
    starts.find(|block| block["type"] == kind && block["tool_use_id"] == *id).unwrap()
}

#[tokio::test]
async fn nested_blocks_name_their_agents_and_approvals_are_decided_separately() {
    let hw = Server::with_config(AGENTS, SCENARIOS);
    let mut socket = Socket::connect(&hw).await;
    socket.send_json(&chat_message("s1", "go")).await;
    let mut frames = Vec::new();
    let mut asked: Vec<Value> = Vec::new();
    while asked.len() < 2 || frames.last().is_some_and(|frame: &Value| frame["type"] != "content_block_stop") {
        let frame = socket.next_event().await;
        if frame["content_block"]["type"] == "approval_request" {
            asked.push(frame["content_block"].clone());
        }
        frames.push(frame);
    }
    // The second one is rejected before the first is answered.
    for (question, decision) in
        [(&asked[1], json!({"type": "reject", "message": "no"})), (&asked[0], json!({"type": "approve"}))]
    {
        let key = &question["approval_key"];
        socket.send_json(&json!({"type": "approval_response", "approval_key": key, "decisions": [decision]})).await;
    }
    frames.extend(socket.read_until("message_stop").await);
    for (question, status) in [(&asked[0], "success"), (&asked[1], "error")] {
        let call = block(&frames, "tool_use", &question["tool_use_id"]);
        let result = block(&frames, "tool_result", &question["tool_use_id"]);
        assert_eq!((&call["subagent"], &result["subagent"]), (&json!("leaf"), &json!("leaf")));
        assert_eq!(result["status"], status, "{result}");
        // Up to the root: mid called the leaf, and the root called mid.
        let leaf = block(&frames, "tool_use", &call["parent_tool_use_id"]);
        assert_eq!((&leaf["name"], &leaf["subagent"]), (&json!("leaf"), &json!("mid")));
        let mid = block(&frames, "tool_use", &leaf["parent_tool_use_id"]);
        assert_eq!((&mid["name"], &mid["subagent"]), (&json!("mid"), &Value::Null));
    }
    assert_ne!(
        block(&frames, "tool_use", &asked[0]["tool_use_id"])["parent_tool_use_id"],
        block(&frames, "tool_use", &asked[1]["tool_use_id"])["parent_tool_use_id"]
    );
    let finals: Vec<&Value> = frames.iter().filter(|frame| frame["is_final"] == true).collect();
    assert_eq!(finals.len(), 1, "only the root's last word");
    assert!(final_text(&frames).starts_with("front: mid: leaf: "), "{}", final_text(&frames));

    // The same for a resumed stream at any cursor, and for a reader of the log.
    for place in (0..frames.len() - 1).step_by(7) {
        let mut back = Socket::connect(&hw).await;
        back.send_json(&json!({"type": "resume", "session_id": "s1", "after": frames[place]["cursor"]})).await;
        assert_eq!(back.read_until("message_stop").await, frames[place + 1..], "after {place}");
    }
    let run = frames[0]["message_id"].as_str().unwrap();
    let replayed = hw.run_cli(&["replay", run, "--as", "blocks", "--fast"]);
    let lines: Vec<Value> =
        String::from_utf8(replayed.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines, frames);
}
