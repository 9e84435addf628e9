//! Searches of tools that the service makes itself: they are shown, and sent back with what they found.

use super::event_lines::{read, tell, turn};
use model::content::ContentPart;
use model::history::{HistoryEntry, RawItem};
use model::item::ResultStatus;
use model::model_turn::{ModelDelta, ModelEvent, ModelItemKind, ModelRequest};
use model::{CallId, ItemId};
use serde_json::{Value, json};
use std::sync::Arc;
use upstream::RequestTarget;
use upstream::responses;

const ORIGIN: &str = "here";

fn search() -> Value {
    json!({"type": "tool_search_call", "id": "tsc_1", "call_id": null, "execution": "server", "status": "completed",
        "arguments": {"paths": ["crm"]}})
}

fn found() -> Value {
    let function = json!({"type": "function", "name": "list_orders", "parameters": {}, "defer_loading": true});
    json!({"type": "tool_search_output", "id": "tso_1", "call_id": null, "execution": "server", "status": "completed",
        "tools": [{"type": "namespace", "name": "crm", "description": "CRM.", "tools": [function]}]})
}

fn call() -> Value {
    json!({"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "list_orders", "namespace": "crm",
        "arguments": "{}", "status": "completed"})
}

/// One answer of the service with these items.
fn stream(items: &[Value]) -> Vec<u8> {
    let mut events = vec![json!({"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}})];
    for (index, item) in items.iter().enumerate() {
        events.push(json!({"type": "response.output_item.added", "output_index": index, "item": item}));
        events.push(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
    }
    let response = json!({"id": "resp_1", "status": "completed", "output": items, "model": "gpt-5.4"});
    events.push(json!({"type": "response.completed", "response": response}));
    let lines = events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()));
    lines.collect::<String>().into_bytes()
}

fn entries(events: &[ModelEvent]) -> Vec<HistoryEntry> {
    let raw_of = |slot: u32| {
        events.iter().find_map(|event| match event {
            ModelEvent::Delta(ModelDelta::Done { slot: done, raw }) if *done == slot => raw.clone(),
            _ => None,
        })
    };
    let entry = |event: &ModelEvent| {
        let ModelEvent::Delta(ModelDelta::Started { slot, item }) = event else { return None };
        let raw: RawItem = raw_of(*slot).unwrap();
        Some(match item {
            ModelItemKind::HostedCall { name, .. } => {
                HistoryEntry::Hosted { id: ItemId::from("hc_R1"), name: name.clone(), raw }
            }
            ModelItemKind::ToolCall { name, provider_call_id } => HistoryEntry::Call {
                call_id: CallId::numbered("R", *slot),
                name: name.clone(),
                arguments: "{}".to_owned(),
                provider_call_id: provider_call_id.clone(),
                raw: Some(raw),
            },
            other => panic!("{other:?}"),
        })
    };
    events.iter().filter_map(entry).collect()
}

fn sent(mut history: Vec<HistoryEntry>) -> Value {
    history.insert(0, HistoryEntry::User { content: vec![ContentPart::text("orders?")] });
    let target = RequestTarget { model: "gpt-5.4", origin: ORIGIN, store: false };
    responses::build_request(&turn(history, &[]), &target)["input"].take()
}

#[test]
fn a_search_and_what_it_found_survive_into_the_next_turn() {
    let events = read([stream(&[search(), found(), call()]).as_slice()]);
    let told = tell(&events);
    assert!(told.contains("tool_search") && told.contains("tool_search_output"), "{told}");
    assert!(!told.contains("unknown"), "{told}");
    let mut history = entries(&events);
    history.push(HistoryEntry::Result {
        call_id: CallId::numbered("R", 2),
        status: ResultStatus::Completed,
        content: vec![ContentPart::text("none")],
        acknowledged_checks: None,
    });
    let sent = sent(history);
    assert_eq!((&sent[1], &sent[2]), (&search(), &found()));
    let again = json!({"type": "function_call", "call_id": "call_1", "name": "list_orders", "namespace": "crm", "arguments": "{}"});
    assert_eq!((&sent[3], &sent[4]["type"]), (&again, &json!("function_call_output")));
}

/// The service would wait for an output that nobody sends.
#[test]
fn a_search_that_others_are_to_make_is_shown_and_not_sent_back() {
    let mut asked = search();
    asked["execution"] = json!("client");
    let events = read([stream(&[asked]).as_slice()]);
    assert!(tell(&events).contains("tool_search"));
    assert_eq!(sent(entries(&events)).as_array().unwrap().len(), 1);
}

#[test]
fn deferred_functions_come_with_the_search_of_the_service() {
    let deferred = Arc::new(["b".to_owned()].into());
    let request = ModelRequest { deferred_tools: deferred, ..turn(Vec::new(), &["a", "b"]) };
    let target = RequestTarget { model: "gpt-5.4", origin: ORIGIN, store: false };
    let body = responses::build_request(&request, &target);
    let tools = body["tools"].as_array().unwrap();
    let marks: Vec<Option<bool>> =
        tools.iter().map(|tool| tool.get("defer_loading").and_then(Value::as_bool)).collect();
    assert_eq!(marks, [None, Some(true), None]);
    assert_eq!(tools[2], json!({"type": "tool_search"}));
    let own = json!({"tools": [{"type": "tool_search", "execution": "server"}]});
    let options = Arc::new(own.as_object().cloned().unwrap());
    let body = responses::build_request(&ModelRequest { provider_options: options, ..request }, &target);
    let searches = body["tools"].as_array().unwrap().iter().filter(|tool| tool["type"] == "tool_search");
    assert_eq!(searches.count(), 1, "the operator's own declaration is enough");
}
