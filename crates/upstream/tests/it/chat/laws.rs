//! Properties of every answer and every history.

use super::event_lines::{read, turn};
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
use std::collections::HashSet;
use upstream::RequestTarget;
use upstream::chat;

#[test]
fn every_stream_matches_its_expected_result() {
    streams::hold("chat", |bytes| read([bytes]));
}

#[test]
fn chunking_never_changes_the_result() {
    dialect::cuts_never_show("chat", &|pieces| read(pieces.iter().copied()));
}

#[test]
fn a_reordered_stream_ends_once_and_keeps_its_items_separate() {
    dialect::disorder_ends_once("chat", &|pieces| read(pieces.iter().copied()));
}

/// JSON similar enough to a chunk to be processed.
fn odd_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0..3_u64).prop_map(Value::from),
        prop::sample::select(vec![
            "",
            "a",
            "{}",
            "{\"a\":",
            "stop",
            "length",
            "tool_calls",
            "error",
            "text",
            "thinking"
        ])
        .prop_map(Value::from),
    ];
    let key = prop::sample::select(vec![
        "choices",
        "delta",
        "message",
        "index",
        "finish_reason",
        "content",
        "role",
        "reasoning",
        "reasoning_content",
        "reasoning_details",
        "refusal",
        "tool_calls",
        "function_call",
        "function",
        "name",
        "arguments",
        "id",
        "type",
        "text",
        "thinking",
        "images",
        "image_url",
        "url",
        "annotations",
        "url_citation",
        "audio",
        "usage",
        "x_groq",
        "prompt_tokens",
        "completion_tokens",
        "logprobs",
        "error",
        "code",
        "extra_content",
        "model",
    ]);
    leaf.prop_recursive(6, 60, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..6)
                .prop_map(|fields| fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
}

/// A chunk with a choice of arbitrary content.
fn odd_chunk() -> impl Strategy<Value = Value> {
    prop_oneof![
        odd_json(),
        odd_json().prop_map(|delta| json!({"choices": [{"delta": delta}]})),
        odd_json().prop_map(|call| json!({"choices": [{"delta": {"tool_calls": [call]}}]})),
        prop::collection::vec((0..3_u64, "[ab]?", "[xy]?", "[{}1]?"), 1..4).prop_map(|pieces| {
            let piece = |(index, id, name, arguments)| {
                json!({"index": index, "id": id, "function": {"name": name, "arguments": arguments}})
            };
            let pieces: Vec<Value> = pieces.into_iter().map(piece).collect();
            json!({"choices": [{"delta": {"tool_calls": pieces}}]})
        }),
    ]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_chunks_end_once(chunks in prop::collection::vec(odd_chunk(), 0..12), done: bool) {
        let mut stream: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
        if done {
            stream.push_str("data: [DONE]\n\n");
        }
        ends_once(&read([stream.as_bytes()]));
    }

    #[test]
    fn any_error_body_is_classified(status: u16, body: Vec<u8>, after: Option<u64>) {
        let failure = chat::classify_error(status, &body, after);
        prop_assert!(failure.error.retryable.is_some() && failure.retry_after_ms == after);
    }
}

/// The requirements of every service on the messages, as strict as the strictest of them.
fn demands(messages: &[Value]) {
    let system = messages.iter().position(|message| message["role"] == "system");
    assert!(system.is_none_or(|place| place == 0), "the system message is the first, if there is one");
    let messages = &messages[system.map_or(0, |_| 1)..];
    assert_eq!(messages[0]["role"], "user");
    let mut open: Vec<&Value> = Vec::new();
    let mut named = HashSet::new();
    let mut before = "";
    for message in messages {
        let role = message["role"].as_str().unwrap();
        match role {
            "tool" => assert_eq!(open.remove(0), &message["tool_call_id"], "results in the order of the calls"),
            _ => assert!(open.is_empty() && role != before, "{role} after {before}, {open:?} open"),
        }
        let calls = message["tool_calls"].as_array().map_or(&[][..], Vec::as_slice);
        for call in calls {
            assert!(named.insert(call["id"].to_string()), "{} is named twice", call["id"]);
            let arguments = call["function"]["arguments"].as_str().unwrap();
            assert!(serde_json::from_str::<Value>(arguments).unwrap().is_object(), "{arguments}");
            open.push(&call["id"]);
        }
        let has_words = message["content"].as_str().is_some_and(|text| !text.trim().is_empty());
        let has_parts = message["content"].as_array().is_some_and(|parts| !parts.is_empty());
        assert!(has_words || has_parts || !calls.is_empty(), "{message} is empty");
        before = role;
    }
    assert!(open.is_empty(), "{open:?} have no result");
    assert_ne!(before, "assistant");
}

fn odd_entry() -> impl Strategy<Value = HistoryEntry> {
    let raw = || {
        let origin = prop::sample::select(vec!["here", "there"]);
        let item = prop::sample::select(vec![r#"{"id":"p","reasoning_content":"x"}"#, r#"{"id":"q"}"#, "null"]);
        (origin, item)
            .prop_map(|(origin, item)| RawItem { origin: origin.to_owned(), item: serde_json::from_str(item).unwrap() })
    };
    let text = || prop::sample::select(vec!["", " ", "words"]).prop_map(str::to_owned);
    let call_id = || (0..3_u32).prop_map(|number| CallId::numbered("R", number));
    let id = || Just(ItemId::from("msg_1"));
    let url = prop::sample::select(vec!["", "https://x/y", "data:image/png;base64,AA", "/v1/blobs/1"]);
    let part = prop_oneof![text().prop_map(ContentPart::text), url.prop_map(ContentPart::image)];
    let content = || prop::collection::vec(part.clone(), 0..3);
    let arguments = prop::sample::select(vec!["", "{}", "{\"a\":", "null", "[]"]).prop_map(str::to_owned);
    let provider_call_id = prop::option::of(prop::sample::select(vec!["", "p", "q"]).prop_map(str::to_owned));
    prop_oneof![
        text().prop_map(|text| HistoryEntry::Summary { text }),
        text().prop_map(|text| HistoryEntry::System { text }),
        content().prop_map(|content| HistoryEntry::User { content }),
        (id(), raw()).prop_map(|(id, raw)| HistoryEntry::Reasoning { id, raw }),
        (id(), text(), prop::option::of(raw())).prop_map(|(id, text, raw)| HistoryEntry::Assistant { id, text, raw }),
        (id(), text(), raw()).prop_map(|(id, name, raw)| HistoryEntry::Hosted { id, name, raw }),
        (call_id(), text(), arguments, provider_call_id, prop::option::of(raw())).prop_map(
            |(call_id, name, arguments, provider_call_id, raw)| HistoryEntry::Call {
                call_id,
                name,
                arguments,
                provider_call_id,
                raw
            }
        ),
        (call_id(), content()).prop_map(|(call_id, content)| HistoryEntry::Result {
            call_id,
            status: ResultStatus::Completed,
            content,
            acknowledged_checks: None,
        }),
    ]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_history_becomes_a_request_that_every_service_accepts(history in prop::collection::vec(odd_entry(), 0..12)) {
        let target = RequestTarget { model: "m", origin: "here", store: false };
        let turn = turn(history);
        let body = chat::build_request(&turn, &target);
        prop_assert_eq!(String::from_utf8(chat::write_request(&turn, &target)).unwrap(), body.to_string());
        demands(body["messages"].as_array().unwrap());
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
            let turn = ModelRequest { history, ..turn(Vec::new()) };
            let body = chat::build_request(&turn, &target);
            assert_eq!(String::from_utf8(chat::write_request(&turn, &target)).unwrap(), body.to_string());
        });
    }
}

#[test]
fn a_turn_writes_what_is_new() {
    let target = RequestTarget { model: "m", origin: "here", store: false };
    check_unwritten_entries(|history| {
        let turn = ModelRequest { history, ..turn(Vec::new()) };
        let unwritten = chat::unwritten_entries(&turn, &target).len();
        chat::write_request(&turn, &target);
        unwritten
    });
}
