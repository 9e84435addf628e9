//! Properties of every answer and every history.

use super::event_lines::{read, read_with, turn};
use crate::dialect::{self, ends_once};
use crate::growing_thread::{check_unwritten_entries, for_each_request, thread_entries, thread_steps};
use crate::seed::config;
use crate::streams;
use model::content::ContentPart;
use model::history::HistoryEntry;
use model::history::RawItem;
use model::item::ResultStatus;
use model::model_turn::ModelRequest;
use model::{CallId, ItemId};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::HashMap;
use upstream::RequestTarget;
use upstream::responses;

#[test]
fn every_stream_matches_its_expected_result() {
    streams::hold("responses", |bytes| read([bytes]));
}

#[test]
fn chunking_never_changes_the_result() {
    dialect::cuts_never_show("responses", &|pieces| read(pieces.iter().copied()));
}

#[test]
fn a_reordered_stream_ends_once_and_keeps_its_items_separate() {
    dialect::disorder_ends_once("responses", &|pieces| read(pieces.iter().copied()));
    dialect::disorder_ends_once("responses", &|pieces| read_with(&["computer"], pieces.iter().copied()));
}

/// A million tiny deltas: this would not end if a delta cost time in proportion to those before it.
#[test]
fn a_million_deltas_take_linear_time() {
    let piece = r#"{"type":"response.output_text.delta","item_id":"m","output_index":0,"content_index":0,"delta":"x"}"#;
    let mut stream = format!("data: {piece}\n\n").repeat(100_000);
    stream.push_str("data: {\"type\":\"response.completed\"}\n\n");
    let events = read([stream.as_bytes()]);
    assert_eq!(events.len(), 100_002);
    ends_once(&events);
}

const KINDS: [&str; 20] = [
    "response.output_item.added",
    "response.output_item.done",
    "response.content_part.added",
    "response.content_part.done",
    "response.output_text.delta",
    "response.output_text.done",
    "response.output_text.annotation.added",
    "response.refusal.delta",
    "response.reasoning_summary_text.delta",
    "response.reasoning_summary_part.done",
    "response.reasoning_text.delta",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.custom_tool_call_input.delta",
    "response.web_search_call.searching",
    "response.image_generation_call.partial_image",
    "response.code_interpreter_call_code.delta",
    "response.completed",
    "response.incomplete",
    "error",
];

fn odd_item() -> impl Strategy<Value = Value> {
    let kind = prop::sample::select(vec![
        "message",
        "reasoning",
        "function_call",
        "custom_tool_call",
        "computer_call",
        "mcp_approval_request",
        "web_search_call",
        "image_generation_call",
        "compaction",
    ]);
    let part = prop::sample::select(vec![
        r#"{"type":"output_text","text":"ab","annotations":[{"type":"url_citation","url":"u"}]}"#,
        r#"{"type":"refusal","refusal":"no"}"#,
        r#"{"type":"reasoning_text","text":"hm"}"#,
        r#"{"type":"summary_text","text":"hm"}"#,
        "7",
    ])
    .prop_map(|part| serde_json::from_str::<Value>(part).unwrap());
    let parts = move || prop::collection::vec(part.clone(), 0..3);
    let status = prop::sample::select(vec![json!("completed"), json!("incomplete"), Value::Null]);
    (kind, prop::option::of("[ab]"), "[{}]?", parts(), parts(), status).prop_map(
        |(kind, id, arguments, content, summary, status)| {
            json!({"type": kind, "id": id, "call_id": id, "name": "t", "arguments": arguments, "input": arguments,
                "content": content, "summary": summary, "status": status, "result": arguments})
        },
    )
}

fn odd_event() -> impl Strategy<Value = Value> {
    let kind = prop::sample::select(KINDS.to_vec());
    let place = (prop::option::of("[ab]"), prop::option::of(0..3_u32), prop::option::of(0..3_u32));
    let words = prop::sample::select(vec![json!("a"), json!("ab"), json!(""), Value::Null, json!(7)]);
    (kind, place, words, odd_item(), prop::collection::vec(odd_item(), 0..3)).prop_map(
        |(kind, (id, index, part), words, item, output)| {
            json!({"type": kind, "item_id": id, "output_index": index, "content_index": part, "summary_index": part,
                "delta": words, "text": words, "arguments": words, "input": words, "partial_image_b64": words,
                "annotation": {"type": "url_citation", "url": words}, "part": item["content"][0], "item": item,
                "response": {"output": output, "usage": {"input_tokens": words}}})
        },
    )
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_events_end_once(events in prop::collection::vec(odd_event(), 0..14)) {
        let stream: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        ends_once(&read([stream.as_bytes()]));
        ends_once(&read_with(&["computer"], [stream.as_bytes()]));
    }

    #[test]
    fn any_error_body_is_classified(status: u16, body: Vec<u8>, after: Option<u64>) {
        let failure = responses::classify_error(status, &body, after);
        prop_assert!(failure.error.retryable.is_some() && failure.retry_after_ms == after);
    }
}

/// The requirements of the service on the input, according to its error messages.
fn demands(input: &[Value]) {
    assert!(!input.is_empty(), "some input is required");
    let kind = |item: &Value| item["type"].as_str().unwrap_or("message").to_owned();
    let mut open: HashMap<String, String> = HashMap::new();
    let mut thought = false;
    for (at, item) in input.iter().enumerate() {
        let said = matches!(&*kind(item), "message" | "function_call" | "custom_tool_call") && item["role"] != "user";
        assert!(!said || thought || item.get("id").is_none(), "{item} was provided without its required reasoning");
        thought = kind(item) == "reasoning" || (thought && item["role"] != "user" && !kind(item).ends_with("_output"));
        let call_id = item["call_id"].as_str().unwrap_or_default().to_owned();
        match &*kind(item) {
            "reasoning" => {
                assert!(!item["encrypted_content"].as_str().unwrap_or_default().is_empty(), "Item not found");
                let next = input[at + 1..].iter().find(|next| kind(next) != "reasoning");
                let follows = next.is_some_and(|next| next.get("id").is_some());
                assert!(follows, "{item} was provided without its required following item");
            }
            "function_call" | "custom_tool_call" | "computer_call" => {
                assert!(open.insert(call_id, kind(item)).is_none(), "{item} is called twice");
                let name = item["name"].as_str().unwrap_or("computer");
                let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
                assert!(!name.is_empty() && name.bytes().all(plain), "Invalid name {name}");
            }
            output if output.ends_with("_output") => {
                let call = open.remove(&call_id).unwrap_or_else(|| panic!("No tool call found for {item}"));
                assert_eq!(format!("{call}_output"), output);
            }
            "message" => {
                let has_words = item["content"].as_str().is_some_and(|text| !text.trim().is_empty());
                assert!(
                    has_words || item["content"].as_array().is_some_and(|parts| !parts.is_empty()),
                    "{item} is empty"
                );
                assert!(open.is_empty() || item["role"] == "assistant", "No tool output found for {open:?}");
            }
            "mcp_approval_request" => {
                let id = item["id"].as_str().unwrap_or_default().to_owned();
                assert!(open.insert(id, kind(item)).is_none(), "{item} is asked twice");
            }
            "mcp_approval_response" => {
                let id = item["approval_request_id"].as_str().unwrap_or_default();
                assert_eq!(open.remove(id).as_deref(), Some("mcp_approval_request"), "nobody asked for {item}");
                assert!(item["approve"].is_boolean(), "{item}");
            }
            "web_search_call" => assert!(item.get("id").is_some()),
            other => panic!("{other} cannot be given back"),
        }
    }
    assert!(open.is_empty(), "No tool output found for {open:?}");
}

fn odd_raw() -> impl Strategy<Value = RawItem> {
    let items = vec![
        json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}),
        json!({"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": null}),
        json!({"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]}),
        json!({"type": "message", "id": "msg_2", "too_long": true}),
        json!({"type": "function_call", "id": "fc_1", "call_id": "p", "name": "look", "arguments": "{}"}),
        json!({"type": "custom_tool_call", "id": "ct_1", "call_id": "p", "name": "look", "input": ""}),
        json!({"type": "computer_call", "id": "cu_1", "call_id": "q", "pending_safety_checks": []}),
        json!({"type": "mcp_approval_request", "id": "p", "name": "t", "server_label": "s", "arguments": "{}"}),
        json!({"type": "mcp_approval_request", "id": "q"}),
        json!({"type": "web_search_call", "id": "ws_1", "status": "completed"}),
        json!({"type": "shell_call", "id": "sh_1", "call_id": "p"}),
        Value::Null,
    ];
    let origin = prop::sample::select(vec!["here", "here", "there"]);
    (origin, prop::sample::select(items)).prop_map(|(origin, item)| RawItem { origin: origin.to_owned(), item })
}

fn odd_entry() -> impl Strategy<Value = HistoryEntry> {
    let text = || prop::sample::select(vec!["", " ", "words", "a.b"]).prop_map(str::to_owned);
    let call_id = || (0..3_u32).prop_map(|number| CallId::numbered("R", number));
    let id = || Just(ItemId::from("msg_1"));
    let url = prop::sample::select(vec!["", "https://x/y", "data:image/png;base64,AA", "/v1/blobs/1"]);
    let part = prop_oneof![text().prop_map(ContentPart::text), url.prop_map(ContentPart::image)];
    let content = || prop::collection::vec(part.clone(), 0..3);
    let named = prop::option::of(prop::sample::select(vec!["", "p", "q"]).prop_map(str::to_owned));
    let call = (call_id(), text(), text(), named, prop::option::of(odd_raw())).prop_map(
        |(call_id, name, arguments, provider_call_id, raw)| HistoryEntry::Call {
            call_id,
            name,
            arguments,
            provider_call_id,
            raw,
        },
    );
    let status = ResultStatus::Completed;
    prop_oneof![
        text().prop_map(|text| HistoryEntry::Summary { text }),
        text().prop_map(|text| HistoryEntry::System { text }),
        content().prop_map(|content| HistoryEntry::User { content }),
        (id(), odd_raw()).prop_map(|(id, raw)| HistoryEntry::Reasoning { id, raw }),
        (id(), text(), prop::option::of(odd_raw())).prop_map(|(id, text, raw)| HistoryEntry::Assistant {
            id,
            text,
            raw
        }),
        (id(), text(), odd_raw()).prop_map(|(id, name, raw)| HistoryEntry::Hosted { id, name, raw }),
        call,
        (call_id(), content()).prop_map(move |(call_id, content)| HistoryEntry::Result {
            call_id,
            status,
            content,
            acknowledged_checks: None,
        }),
    ]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_history_becomes_a_request_that_the_service_accepts(history in prop::collection::vec(odd_entry(), 0..12)) {
        let target = RequestTarget { model: "gpt-5", origin: "here", store: false };
        let turn = turn(history, &[]);
        let body = responses::build_request(&turn, &target);
        prop_assert_eq!(String::from_utf8(responses::write_request(&turn, &target)).unwrap(), body.to_string());
        demands(body["input"].as_array().unwrap());
        let again = responses::without_reasoning(body);
        demands(again["input"].as_array().unwrap());
        prop_assert!(!again["input"].to_string().contains("\"id\""), "{}", again);
    }

    #[test]
    fn a_text_that_is_kept_changes_no_request(
        entries in thread_entries(odd_entry()),
        steps in thread_steps(),
        other in 0..20_usize,
    ) {
        let mut request = 0;
        for_each_request(entries, &steps, |history| {
            // A request to another model between two others.
            let origin = if request == other { "there" } else { "here" };
            request += 1;
            let target = RequestTarget { model: "m", origin, store: false };
            let turn = ModelRequest { history, ..turn(Vec::new(), &[]) };
            let body = responses::build_request(&turn, &target);
            assert_eq!(String::from_utf8(responses::write_request(&turn, &target)).unwrap(), body.to_string());
        });
    }
}

#[test]
fn a_turn_writes_what_is_new() {
    let target = RequestTarget { model: "m", origin: "here", store: false };
    check_unwritten_entries(|history| {
        let turn = ModelRequest { history, ..turn(Vec::new(), &[]) };
        let unwritten = responses::unwritten_entries(&turn, &target).len();
        responses::write_request(&turn, &target);
        unwritten
    });
}
