//! Searches of tools that the provider makes itself: they are shown, and sent back with what they found.

use super::event_lines::{read, turn};
use model::ItemId;
use model::content::ContentPart;
use model::history::HistoryEntry;
use model::json::JsonObject;
use model::model_turn::{ModelDelta, ModelEvent, ModelItemKind};
use serde_json::{Value, json};
use upstream::RequestTarget;
use upstream::messages;

fn search() -> Value {
    json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "tool_search_tool_bm25", "input": {"query": "orders"}})
}

fn found() -> Value {
    let references = json!([{"type": "tool_reference", "tool_name": "list_orders"}]);
    let content = json!({"type": "tool_search_tool_search_result", "tool_references": references});
    json!({"type": "tool_search_tool_result", "tool_use_id": "srvtoolu_1", "content": content})
}

fn stream() -> Vec<u8> {
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x", "content": [],
        "usage": {"input_tokens": 9, "output_tokens": 1}});
    let mut events = vec![json!({"type": "message_start", "message": message})];
    for (index, block) in [search(), found()].into_iter().enumerate() {
        events.push(json!({"type": "content_block_start", "index": index, "content_block": block}));
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}}));
    events.push(json!({"type": "message_stop"}));
    let lines = events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()));
    lines.collect::<String>().into_bytes()
}

#[test]
fn a_search_and_what_it_found_survive_into_the_next_turn() {
    let events = read([stream().as_slice()]);
    let name = events.iter().find_map(|event| match event {
        ModelEvent::Delta(ModelDelta::Started { item: ModelItemKind::HostedCall { name, .. }, .. }) => {
            Some(name.clone())
        }
        _ => None,
    });
    assert_eq!(name.as_deref(), Some("tool_search_tool_bm25"));
    let action = events.iter().rev().find_map(|event| match event {
        ModelEvent::Delta(ModelDelta::Hosted { action, .. }) => action.clone(),
        _ => None,
    });
    assert_eq!(action, Some(json!({"input": search()["input"], "result": found()["content"]})));
    let raw = events.iter().find_map(|event| match event {
        ModelEvent::Delta(ModelDelta::Done { raw, .. }) => raw.clone(),
        _ => None,
    });
    let user = |text: &str| HistoryEntry::User { content: vec![ContentPart::text(text)] };
    let hosted = HistoryEntry::Hosted { id: ItemId::from("hc_R1"), name: name.unwrap(), raw: raw.unwrap() };
    let request = turn(vec![user("orders?"), hosted, user("go on")], JsonObject::new());
    let target = RequestTarget { model: "claude-x", origin: "here", store: false };
    let sent = messages::build_request(&request, &target)["messages"][1]["content"].take();
    let blocks: Vec<Value> = sent.as_array().unwrap().iter().map(without_mark).collect();
    assert_eq!(blocks, [search(), found()]);
}

/// A block without the mark of the prompt cache.
fn without_mark(block: &Value) -> Value {
    let mut block = block.clone();
    block.as_object_mut().unwrap().remove("cache_control");
    block
}
