//! Properties of every answer and every history.

use super::event_lines::{read, turn};
use super::service_rules::demands;
use crate::dialect::{self, ends_once};
use crate::seed::config;
use crate::streams;
use model::content::ContentPart;
use model::history::HistoryEntry;
use model::history::RawItem;
use model::item::ResultStatus;
use model::json::JsonObject;
use model::{CallId, ItemId};
use proptest::prelude::*;
use serde_json::{Value, json};
use upstream::RequestTarget;
use upstream::messages;

#[test]
fn every_stream_matches_its_expected_result() {
    streams::hold("messages", |bytes| read([bytes]));
}

#[test]
fn chunking_never_changes_the_result() {
    dialect::cuts_never_show("messages", &|pieces| read(pieces.iter().copied()));
}

#[test]
fn a_reordered_stream_ends_once_and_keeps_its_items_separate() {
    dialect::disorder_ends_once("messages", &|pieces| read(pieces.iter().copied()));
}

/// JSON similar enough to an event to be processed.
fn odd_json() -> impl Strategy<Value = Value> {
    let words = "|a|{}|{\"a\":|end_turn|max_tokens|pause_turn|text|thinking|tool_use|server_tool_use|text_delta|\
        web_search_tool_result|redacted_thinking|thinking_delta|input_json_delta|signature_delta|citations_delta|\
        web_search_result_location|char_location|overloaded_error";
    let keys = "type|index|content_block|delta|message|usage|error|text|thinking|partial_json|signature|citation|\
        citations|id|name|input|tool_use_id|content|stop_reason|stop_details|input_tokens|output_tokens|url|file_id";
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0..3_u64).prop_map(Value::from),
        prop::sample::select(words.split('|').collect::<Vec<_>>()).prop_map(Value::from),
    ];
    let key = prop::sample::select(keys.split('|').collect::<Vec<_>>());
    leaf.prop_recursive(4, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..6)
                .prop_map(|fields| fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
}

/// An event with a valid envelope and arbitrary content.
fn odd_event() -> impl Strategy<Value = Value> {
    let kinds = "text|thinking|redacted_thinking|tool_use|server_tool_use|web_search_tool_result|new";
    let kind = prop::sample::select(kinds.split('|').collect::<Vec<_>>());
    let start = (0..3_u64, kind, "[ab]", "[ab]?", odd_json()).prop_map(|(index, kind, id, text, odd)| {
        let block = json!({"type": kind, "id": id, "tool_use_id": id, "name": odd, "text": text, "thinking": text});
        json!({"type": "content_block_start", "index": index, "content_block": block})
    });
    let deltas = "text_delta|thinking_delta|input_json_delta|signature_delta|citations_delta|new";
    let delta = (0..3_u64, prop::sample::select(deltas.split('|').collect::<Vec<_>>()), "[ab]{0,2}", odd_json());
    let delta = delta.prop_map(|(index, kind, text, citation)| {
        let delta = json!({"type": kind, "text": text, "thinking": text, "partial_json": text, "citation": citation});
        json!({"type": "content_block_delta", "index": index, "delta": delta})
    });
    prop_oneof![
        3 => start,
        6 => delta,
        3 => (0..3_u64).prop_map(|index| json!({"type": "content_block_stop", "index": index})),
        1 => odd_json().prop_map(|delta| json!({"type": "message_delta", "delta": delta, "usage": delta})),
        1 => prop::sample::select(vec!["end_turn", "max_tokens", "tool_use", "refusal", "new"])
            .prop_map(|reason| json!({"type": "message_delta", "delta": {"stop_reason": reason}})),
        1 => odd_json().prop_map(|error| json!({"type": "error", "error": error})),
        1 => odd_json(),
    ]
}

fn odd_raw() -> impl Strategy<Value = RawItem> {
    let blocks = [
        json!([{"type": "thinking", "thinking": "hm", "signature": "sig"}]),
        json!([{"type": "thinking", "thinking": "unsigned"}]),
        json!([{"type": "redacted_thinking", "data": "sealed"}]),
        json!([{"type": "text", "text": "words", "citations": [{"type": "web_search_result_location"}]}]),
        json!([{"type": "text", "text": " "}]),
        json!([{"type": "tool_use", "id": "p", "name": "t", "input": {}}]),
        json!([{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
            {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}]),
        json!([{"type": "server_tool_use", "id": "s2", "name": "web_search", "input": {}}]),
        json!({"type": "web_fetch_tool_result", "tool_use_id": "s3", "content": []}),
        Value::Null,
    ];
    let origin = prop::sample::select(vec!["here", "there"]);
    (origin, prop::sample::select(blocks.to_vec())).prop_map(|(origin, mut item)| {
        if origin == "there" {
            item = json!([{"type": "text", "text": "said elsewhere"}]);
        }
        RawItem { origin: origin.to_owned(), item }
    })
}

fn odd_entry() -> impl Strategy<Value = HistoryEntry> {
    let text = || prop::sample::select(vec!["", " ", "words"]).prop_map(str::to_owned);
    let call_id = || (0..3_u32).prop_map(|number| CallId::numbered("R", number));
    let id = || Just(ItemId::from("msg_1"));
    let url = prop::sample::select(vec!["", "https://x/y", "data:image/png;base64,AA", "/v1/blobs/1"]);
    let part = prop_oneof![text().prop_map(ContentPart::text), url.prop_map(ContentPart::image)];
    let content = || prop::collection::vec(part.clone(), 0..3);
    let arguments = prop::sample::select(vec!["", "{}", "{\"a\":", "null", "[]"]).prop_map(str::to_owned);
    let name = prop::sample::select(vec!["", "t", "a.b c"]).prop_map(str::to_owned);
    let provider_call_id = prop::option::of(prop::sample::select(vec!["", "p", "q"]).prop_map(str::to_owned));
    let status = prop::sample::select(vec![ResultStatus::Completed, ResultStatus::Failed, ResultStatus::Rejected]);
    let call = (call_id(), name, arguments, provider_call_id, prop::option::of(odd_raw()));
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
        call.prop_map(|(call_id, name, arguments, provider_call_id, raw)| {
            HistoryEntry::Call { call_id, name, arguments, provider_call_id, raw }
        }),
        (call_id(), status, content()).prop_map(|(call_id, status, content)| HistoryEntry::Result {
            call_id,
            status,
            content,
            acknowledged_checks: None,
        }),
    ]
}

fn odd_options() -> impl Strategy<Value = JsonObject> {
    let options = [
        json!({}),
        json!({"thinking": {"type": "enabled", "budget_tokens": 2000}}),
        json!({"thinking": {"type": "adaptive"}}),
        json!({"thinking": {"type": "disabled"}, "betas": ["x"]}),
        json!({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
    ];
    prop::sample::select(options.to_vec()).prop_map(|options| options.as_object().cloned().unwrap())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_events_end_once(events in prop::collection::vec(odd_event(), 0..24), stopped: bool) {
        let mut stream: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        if stopped {
            stream.push_str("data: {\"type\":\"message_stop\"}\n\n");
        }
        ends_once(&read([stream.as_bytes()]));
    }

    #[test]
    fn any_error_body_is_classified(status: u16, body: Vec<u8>, after: Option<u64>) {
        let failure = messages::classify_error(status, &body, after);
        prop_assert!(failure.error.retryable.is_some() && failure.retry_after_ms == after);
    }

    #[test]
    fn any_history_becomes_a_valid_request(
        history in prop::collection::vec(odd_entry(), 0..12),
        options in odd_options(),
    ) {
        let target = RequestTarget { model: "m", origin: "here", store: false };
        let body = messages::build_request(&turn(history, options), &target);
        demands(&body);
        demands(&messages::without_reasoning(body));
    }
}
