//! Turns of content blocks: what each scenario looks like, frame by frame, and the laws over random logs.

mod laws;
mod log;
mod nested_agents;
mod reducer;
mod tools;
mod turn_ends;
mod turns;

use crate::resumes;
use log::Log;
use protocol::blocks::BlocksProjection;
use serde_json::Value;

/// The frames of a log for a client of the session `s1`.
fn frames(log: &Log) -> Vec<Value> {
    let bytes = resumes::frames(Box::new(BlocksProjection::new("s1".to_owned())), log.records());
    lines(&bytes)
}

fn lines(bytes: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(bytes).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The frames without the fields that all of them have, which are checked here.
fn bare(log: &Log) -> Vec<Value> {
    let mut frames = frames(log);
    for frame in &mut frames {
        let frame = frame.as_object_mut().unwrap();
        assert_eq!(frame.remove("message_id"), Some(log.run().into()), "{frame:?}");
        assert!(frame.remove("cursor").is_some_and(|cursor| cursor.is_string()), "{frame:?}");
    }
    frames
}

/// One line per frame: enough to see the order, the agent, and what is final.
fn story(log: &Log) -> Vec<String> {
    bare(log).iter().map(frame_line).collect()
}

fn frame_line(frame: &Value) -> String {
    let text = |value: &Value| value.as_str().map(str::to_owned).unwrap_or_else(|| value.to_string());
    let kind = frame["type"].as_str().unwrap();
    let index = &frame["index"];
    match kind.strip_prefix("content_block_") {
        Some("start") => {
            let block = &frame["content_block"];
            let mut told = format!("start {index} {}", text(&block["type"]));
            for name in ["id", "tool_use_id", "approval_key", "status", "content", "is_part", "subagent"] {
                if !block[name].is_null() {
                    told += &format!(" {name}={}", text(&block[name]));
                }
            }
            told
        }
        Some("delta") => {
            let delta = frame["delta"].as_object().unwrap();
            let said = ["text", "thinking", "message"].iter().find_map(|name| delta.get(*name));
            format!("delta {index} {}", said.map(text).unwrap_or_default()).trim_end().to_owned()
        }
        Some(_) if frame["is_final"].is_null() => format!("stop {index}"),
        Some(_) => format!("stop {index} is_final={}", frame["is_final"]),
        None if kind == "message_delta" => format!("message_delta {}", text(&frame["delta"]["stop_reason"])),
        None => kind.to_owned(),
    }
}
