//! Ports of the two client reducers: one keeps complete and growing blocks apart (React), the other relies on the list
//! that it shows (Flutter).

use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The React hook, with its updaters run at once.
#[derive(Default)]
pub(super) struct React {
    pub(super) blocks: Vec<Value>,
    pub(super) is_streaming: bool,
    in_progress: BTreeMap<u64, Value>,
    tool_uses: BTreeMap<String, usize>,
}

impl React {
    pub(super) fn handle(&mut self, event: &Value) {
        match event["type"].as_str().unwrap() {
            "message_start" => *self = Self { is_streaming: true, ..Self::default() },
            "content_block_start" => {
                let mut block = event["content_block"].clone();
                block["index"] = event["index"].clone();
                block["_parts"] = json!("");
                self.in_progress.insert(index(event), block);
            }
            "content_block_delta" => {
                if let Some(block) = self.in_progress.get_mut(&index(event)) {
                    grow(block, &event["delta"]);
                }
            }
            "content_block_stop" => self.stop(index(event)),
            "message_stop" => self.is_streaming = false,
            _ => {}
        }
    }

    fn stop(&mut self, index: u64) {
        let Some(block) = self.in_progress.remove(&index) else { return };
        if block["type"] == "tool_result"
            && let Some(at) = self.tool_uses.get(block["tool_use_id"].as_str().unwrap())
        {
            let call = &mut self.blocks[*at];
            call["toolResult"] = block["content"].clone();
            call["toolResultError"] = json!(block["status"] == "error");
            call["artifact"] = block["artifact"].clone();
            return;
        }
        if block["type"] == "tool_use" {
            self.tool_uses.insert(block["id"].as_str().unwrap().to_owned(), self.blocks.len());
        }
        self.blocks.push(block);
    }
}

fn grow(block: &mut Value, delta: &Value) {
    let join = |block: &Value, piece: &str| format!("{}{piece}", block["_parts"].as_str().unwrap());
    if delta["type"] == "text_delta" {
        block["text"] = json!(join(block, delta["text"].as_str().unwrap_or_default()));
        block["_parts"] = block["text"].clone();
        match delta["extras"]["block_subtype"].as_str() {
            Some("user_stopped") => block["type"] = json!("terminal_user_stopped"),
            Some("error") => {
                block["type"] = json!("terminal_error");
                block["extras"] = delta["extras"].clone();
            }
            _ => {}
        }
    } else if delta["type"] == "thinking_delta" {
        block["thinking"] = json!(join(block, delta["thinking"].as_str().unwrap_or_default()));
        block["_parts"] = block["thinking"].clone();
    }
    if !delta["action_requests"].is_null() {
        block["actionRequests"] = delta["action_requests"].clone();
    }
    for (name, kept) in [("status", "processingStatus"), ("message", "processingMessage")] {
        if !delta[name].is_null() {
            block[kept] = delta[name].clone();
        }
    }
}

/// The Flutter class. One of its steps is left out: after each delta it shows only growing blocks and forgets the
/// others, which no stream can repair.
#[derive(Default)]
pub(super) struct Flutter {
    pub(super) blocks: Vec<Value>,
    in_progress: BTreeMap<u64, Value>,
    tool_uses: BTreeMap<String, usize>,
}

impl Flutter {
    pub(super) fn handle(&mut self, event: &Value) {
        match event["type"].as_str().unwrap() {
            "message_start" => *self = Self::default(),
            "content_block_start" => {
                let data = event["content_block"].clone();
                let block = json!({"index": event["index"], "type": data["type"], "data": data,
                    "toolUseId": event["content_block"]["tool_use_id"]});
                self.in_progress.insert(index(event), block);
            }
            "content_block_delta" => {
                let Some(block) = self.in_progress.get_mut(&index(event)) else { return };
                let delta = &event["delta"];
                for (kind, name) in [("text_delta", "text"), ("thinking_delta", "thinking")] {
                    if delta["type"] == kind {
                        let so_far = block[name].as_str().unwrap_or_default();
                        block[name] = json!(format!("{so_far}{}", delta[name].as_str().unwrap_or_default()));
                    }
                }
                match delta["extras"]["block_subtype"].as_str() {
                    Some("user_stopped") => block["type"] = json!("terminal_user_stopped"),
                    Some("error") => block["type"] = json!("terminal_error"),
                    _ => {}
                }
            }
            "content_block_stop" => self.stop(index(event)),
            _ => {}
        }
    }

    fn stop(&mut self, index: u64) {
        let Some(block) = self.in_progress.remove(&index) else { return };
        if block["type"] == "tool_result"
            && let Some(at) = self.tool_uses.get(block["toolUseId"].as_str().unwrap())
        {
            self.blocks[*at]["toolResult"] = block["data"]["content"].clone();
            self.blocks[*at]["toolResultError"] = json!(block["data"]["status"] == "error");
            return;
        }
        if block["type"] == "tool_use" {
            self.tool_uses.insert(block["data"]["id"].as_str().unwrap().to_owned(), self.blocks.len());
        }
        self.blocks.push(block);
    }
}

fn index(event: &Value) -> u64 {
    event["index"].as_u64().unwrap()
}
