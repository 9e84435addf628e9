//! A decoded answer is sent back unchanged.

use super::event_lines::{read, turn};
use crate::dialect::fixtures;
use model::content::ContentPart;
use model::history::HistoryEntry;
use model::history::RawItem;
use model::item::ResultStatus;
use model::json::JsonObject;
use model::model_turn::{ModelDelta, ModelEvent, ModelItemKind};
use model::{CallId, ItemId};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use upstream::RequestTarget;
use upstream::messages;

/// The content of an answer, accumulated as the service's own clients do.
fn accumulated(stream: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(stream).unwrap().replace(r"\ud83d", "\u{fffd}");
    let events = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let mut blocks: BTreeMap<u64, (Value, String)> = BTreeMap::new();
    for event in events.map(|data| serde_json::from_str::<Value>(data).unwrap()) {
        let index = event["index"].as_u64().unwrap_or_default();
        match event["type"].as_str().unwrap() {
            "content_block_start" => drop(blocks.insert(index, (event["content_block"].clone(), String::new()))),
            "content_block_delta" => {
                let (block, input) = blocks.get_mut(&index).unwrap();
                grow(block, input, &event["delta"]);
            }
            _ => {}
        }
    }
    let known = blocks.into_values().filter(|(block, _)| block["type"] != "container_upload");
    known.map(|(block, input)| whole(block, &input)).collect()
}

fn grow(block: &mut Value, input: &mut String, delta: &Value) {
    let said = |key: &str| delta[key].as_str().unwrap_or_default();
    match delta["type"].as_str().unwrap() {
        "text_delta" => block["text"] = json!(format!("{}{}", block["text"].as_str().unwrap(), said("text"))),
        "thinking_delta" => {
            block["thinking"] = json!(format!("{}{}", block["thinking"].as_str().unwrap(), said("thinking")));
        }
        "signature_delta" => block["signature"] = delta["signature"].clone(),
        "input_json_delta" => input.push_str(said("partial_json")),
        "citations_delta" => block["citations"].as_array_mut().unwrap().push(delta["citation"].clone()),
        _ => {}
    }
}

fn whole(mut block: Value, input: &str) -> Value {
    if !input.is_empty() {
        block["input"] = serde_json::from_str(input).unwrap();
    }
    block
}

/// The history after an answer, if it is complete.
fn entries(events: &[ModelEvent]) -> Option<Vec<HistoryEntry>> {
    let is_whole = matches!(events.last(), Some(ModelEvent::End(end)) if end.stop_reason.is_complete());
    let mut items: BTreeMap<u32, (&ModelItemKind, String, Option<RawItem>)> = BTreeMap::new();
    for event in events {
        match event {
            ModelEvent::Delta(ModelDelta::Started { slot, item }) => {
                items.insert(*slot, (item, String::new(), None));
            }
            ModelEvent::Delta(ModelDelta::Text { slot, text, .. } | ModelDelta::Arguments { slot, text }) => {
                items.get_mut(slot).unwrap().1.push_str(text);
            }
            ModelEvent::Delta(ModelDelta::Done { slot, raw }) => items.get_mut(slot).unwrap().2.clone_from(raw),
            _ => {}
        }
    }
    is_whole.then(|| items.into_iter().map(|(slot, (item, text, raw))| entry(slot, item, text, raw)).collect())
}

fn entry(slot: u32, item: &ModelItemKind, text: String, raw: Option<RawItem>) -> HistoryEntry {
    let id = ItemId::from(format!("item_{slot}").as_str());
    match item {
        ModelItemKind::Reasoning => HistoryEntry::Reasoning { id, raw: raw.unwrap() },
        ModelItemKind::Message { .. } => HistoryEntry::Assistant { id, text, raw },
        ModelItemKind::HostedCall { name, .. } => HistoryEntry::Hosted { id, name: name.clone(), raw: raw.unwrap() },
        ModelItemKind::ComputerCall { .. } | ModelItemKind::HostedApproval { .. } => unreachable!("of another service"),
        ModelItemKind::ToolCall { name, provider_call_id } => HistoryEntry::Call {
            call_id: CallId::numbered("R", slot),
            name: name.clone(),
            arguments: text,
            provider_call_id: provider_call_id.clone(),
            raw,
        },
    }
}

/// Citations stay only while their source does.
fn with_lasting_citations(mut blocks: Vec<Value>) -> Vec<Value> {
    for block in blocks.iter_mut().filter_map(Value::as_object_mut) {
        let Some(citations) = block.get_mut("citations").and_then(Value::as_array_mut) else { continue };
        citations.retain(|citation| citation["type"] == "web_search_result_location");
        if citations.is_empty() {
            block.remove("citations");
        }
    }
    blocks
}

#[test]
fn every_complete_answer_is_sent_back_unchanged() {
    let mut compared = 0;
    for (name, stream) in fixtures("messages") {
        let Some(said) = entries(&read([stream.as_slice()])).filter(|said| !said.is_empty()) else { continue };
        let mut history = vec![HistoryEntry::User { content: vec![ContentPart::text("hi")] }];
        let calls: Vec<CallId> = said
            .iter()
            .filter_map(|entry| match entry {
                HistoryEntry::Call { call_id, .. } => Some(call_id.clone()),
                _ => None,
            })
            .collect();
        history.extend(said);
        let content = || vec![ContentPart::text("done")];
        let answer = |call_id| {
            let status = ResultStatus::Completed;
            HistoryEntry::Result { call_id, status, content: content(), acknowledged_checks: None }
        };
        history.extend(calls.into_iter().map(answer));
        let body = messages::build_request(
            &turn(history, JsonObject::new()),
            &RequestTarget { model: "m", origin: "here", store: false },
        );
        let expected = with_lasting_citations(accumulated(&stream));
        assert_eq!(body["messages"][1]["content"], Value::from(expected), "{name}");
        compared += 1;
    }
    assert!(compared > 10, "only {compared} answers are whole");
}
