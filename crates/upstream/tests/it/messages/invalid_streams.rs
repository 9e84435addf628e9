//! Streams that the real service does not send but others may: missing, duplicate or reordered events.

use super::event_lines::{read, tell};
use serde_json::{Value, json};

/// The lines of these events.
fn story(events: &[Value]) -> String {
    let stream: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    tell(&read([stream.as_bytes()]))
}

fn start(index: u64, block: &Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn says(index: u64, text: &str) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": text}})
}

fn stop(index: u64) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn reason(reason: &str) -> Value {
    json!({"type": "message_delta", "delta": {"stop_reason": reason}})
}

fn over() -> Value {
    json!({"type": "message_stop"})
}

fn text() -> Value {
    json!({"type": "text", "text": ""})
}

const END: &str = "end Stop 0/0/0/0/0 - -";

#[test]
fn text_without_a_block_start_is_a_message() {
    let told = story(&[says(0, "a"), stop(0), reason("end_turn"), over()]);
    assert_eq!(told, format!("0 message\n0.0 says \"a\"\n0 done\n{END}"));
}

#[test]
fn blocks_without_an_index_are_separated_by_order() {
    let mut events = [
        start(0, &text()),
        says(0, "a"),
        stop(0),
        start(0, &json!({"type": "thinking", "thinking": "b"})),
        stop(0),
        over(),
    ];
    for event in &mut events {
        event.as_object_mut().unwrap().remove("index");
    }
    let told = story(&events);
    assert_eq!(told, format!("0 message\n0.0 says \"a\"\n0 done\n1 reasoning\n1.0 thinks \"b\"\n1 done\n{END}"));
}

#[test]
fn a_reused_index_does_not_mix_two_items() {
    let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "look", "input": {}});
    let piece = |text: &str| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": text}});
    let told = story(&[start(0, &call("a")), piece("{\"x\""), start(0, &call("b")), piece("{}"), stop(0), over()]);
    let first = "0 call look a\n0 with \"{\\\"x\\\"\"";
    assert_eq!(told, format!("{first}\n1 call look b\n1 with \"{{}}\"\n0 done\n1 done\n{END}"));
}

#[test]
fn simultaneously_open_texts_are_two_messages() {
    let told = story(&[
        start(0, &text()),
        says(0, "a"),
        start(1, &text()),
        says(1, "b"),
        says(0, "c"),
        stop(0),
        stop(1),
        over(),
    ]);
    let said = "0 message\n0.0 says \"a\"\n1 message\n1.0 says \"b\"\n0.0 says \"c\"";
    assert_eq!(told, format!("{said}\n0 done\n1 done\n{END}"));
}

#[test]
fn a_complete_input_is_reported_once() {
    let call = json!({"type": "tool_use", "id": "a", "name": "look", "input": {"x": 1}});
    let told = story(&[start(0, &call), stop(0), reason("tool_use"), over()]);
    let end = "end ToolCalls 0/0/0/0/0 - -";
    assert_eq!(told, format!("0 call look a\n0 with \"{{\\\"x\\\":1}}\"\n0 done\n{end}"));
}

#[test]
fn a_complete_text_is_reported_once() {
    let told = story(&[start(0, &json!({"type": "text", "text": "a"})), says(0, "b"), stop(0), over()]);
    assert_eq!(told, format!("0 message\n0.0 says \"ab\"\n0 done\n{END}"));
}

#[test]
fn an_empty_text_is_no_message() {
    let cited = json!({"type": "text", "text": "", "citations": [{"type": "char_location", "file_id": "f"}]});
    assert_eq!(story(&[start(0, &cited), stop(0), over()]), END);
}

#[test]
fn a_result_for_a_call_of_another_answer_is_a_separate_item() {
    let result =
        json!({"type": "code_execution_tool_result", "tool_use_id": "s", "content": {"type": "x", "stdout": "1"}});
    let told = story(&[start(0, &result), stop(0), over()]);
    let shown = r#"{"result":{"stdout":"1","type":"x"}}"#;
    assert_eq!(told, format!("0 hosted code_execution\n0 completed {shown}\n0 done\n{END}"));
}

#[test]
fn an_oversized_result_is_only_sent_back() {
    let result = json!({"type": "web_fetch_tool_result", "tool_use_id": "s", "content": {"data": "x".repeat(40_000)}});
    assert_eq!(
        story(&[start(0, &result), stop(0), over()]),
        format!("0 hosted web_fetch\n0 completed {{}}\n0 done\n{END}")
    );
}

#[test]
fn an_answer_without_message_stop_is_complete_if_it_has_a_stop_reason() {
    assert_eq!(story(&[reason("end_turn")]), END);
    let open = story(&[start(0, &text()), says(0, "a"), reason("end_turn")]);
    assert!(
        open.ends_with("failed upstream_incomplete true The provider's response ended before it was complete."),
        "{open}"
    );
}

#[test]
fn no_event_follows_the_end() {
    assert_eq!(story(&[over(), says(0, "late"), over(), json!({"type": "error"})]), END);
    let failed = story(&[json!({"type": "error", "error": {"type": "api_error", "message": "oops"}}), over()]);
    assert_eq!(failed, "failed provider_error true The provider failed: oops");
}

#[test]
fn invalid_json_fails_the_turn() {
    let told = tell(&read([&b"data: {\"type\":\n\n"[..]]));
    assert!(told.starts_with("failed provider_protocol_error true "), "{told}");
    assert_eq!(told.lines().count(), 1);
}

#[test]
fn invalid_token_counts_are_zero() {
    let start = json!({"type": "message_start", "message": {"model": "m", "usage": {
        "input_tokens": -5, "cache_read_input_tokens": null, "cache_creation_input_tokens": 2.9, "output_tokens": "7"}}});
    let delta = json!({"type": "message_delta", "usage": {"input_tokens": null, "output_tokens": u64::MAX,
        "cache_read_input_tokens": u64::MAX, "output_tokens_details": {"thinking_tokens": 3}}});
    let max = u64::MAX;
    let told = story(&[start, delta, over()]);
    assert_eq!(told, format!("usage 2/0/2/0/0\nusage {max}/{max}/2/{max}/3\nend Stop {max}/{max}/2/{max}/3 m -"));
}
