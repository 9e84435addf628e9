//! Streams of other services and invalid ones: what can be repaired is repaired, and the rest fails clearly.

use super::event_lines::{read, tell};
use super::{TOOL_CALLS, expect};
use serde_json::{Value, json};

/// The lines of these events as one stream.
fn story(events: &[Value]) -> String {
    let stream: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    tell(&read([stream.as_bytes()]))
}

fn added(index: u32, item: &Value) -> Value {
    json!({"type": "response.output_item.added", "output_index": index, "item": item})
}

fn done(index: u32, item: &Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": index, "item": item})
}

fn says(id: &str, index: u32, words: &str) -> Value {
    json!({"type": "response.output_text.delta", "item_id": id, "output_index": index, "content_index": 0, "delta": words})
}

fn message(id: &str, words: &str) -> Value {
    json!({"type": "message", "id": id, "role": "assistant", "content": [{"type": "output_text", "text": words}]})
}

fn call(id: &str, arguments: Option<&str>) -> Value {
    json!({"type": "function_call", "id": id, "call_id": "c1", "name": "look", "arguments": arguments})
}

fn completed(output: &Value) -> Value {
    json!({"type": "response.completed", "response": {"status": "completed", "output": output}})
}

#[test]
fn early_deltas_and_reordered_parts_are_assigned_correctly() {
    expect(
        "beyond-sdk/out-of-order",
        &[
            "1 message",
            "1.0 says Fir",
            "0 call get_weather call_1abc",
            r#"0 with {"city":"Bern"}"#,
            "1.0 says st.",
            r#"0 done here "fc_1""#,
            "1.1 says Second.",
            r#"1 done here "msg_1""#,
            TOOL_CALLS,
        ],
    );
}

#[test]
fn items_with_a_shared_id_or_index_never_merge() {
    expect(
        "beyond-sdk/shared-names",
        &[
            "0 message",
            "1 message",
            "0.0 says one",
            "1.0 says two",
            "0.0 says  more",
            "1.0 says  too",
            "2 call a call_7abc",
            "3 call b call_8abc",
            r#"2 with {"n":1"#,
            r#"3 with {"n":2"#,
            "2 with }",
            "3 with }",
            "end ToolCalls 1/0/0/1/0 gpt-5.2-2025-12-11 auto",
        ],
    );
}

#[test]
fn an_id_is_enough_and_so_is_an_index() {
    let open = [added(0, &message("a", "")), added(1, &message("b", ""))];
    let piece = |place: Value, words: &str| {
        let mut event = json!({"type": "response.output_text.delta", "delta": words});
        event.as_object_mut().unwrap().extend(place.as_object().cloned().unwrap());
        event
    };
    let said = "0 message\n1 message\n0.0 says x\n1.0 says y\nend Stop 0/0/0/0/0";
    for (first, second) in [
        (json!({"item_id": "a"}), json!({"item_id": "b"})),
        (json!({"item_id": "a", "output_index": 0}), json!({"item_id": "b", "output_index": 0})),
        (json!({"output_index": 0}), json!({"output_index": 1})),
        (json!({"item_id": "x", "output_index": 0}), json!({"item_id": "y", "output_index": 1})),
    ] {
        let events = [&open[..], &[piece(first, "x"), piece(second, "y"), completed(&json!([]))]].concat();
        assert_eq!(story(&events), said);
    }
}

#[test]
fn reasoning_and_error_events_of_other_services_are_known() {
    expect(
        "beyond-sdk/open-responses",
        &[
            "0 reasoning",
            "0.0 thinks Thinking.",
            r#"0 done here "rs_1""#,
            "1 message",
            "1.0 says Yes.",
            r#"1 done here "msg_1""#,
            "failed provider_error true The provider failed: The model died.",
        ],
    );
    expect(
        "beyond-sdk/vllm",
        &[
            "0 reasoning",
            "0.0 thinks We greet.",
            r#"0 done here "msg_a""#,
            "1 message",
            "1.0 says Hello.",
            r#"1 done here "msg_b""#,
            "end Stop 36/0/0/87/0 gpt-oss-20b default",
        ],
    );
    let flat = story(&[json!({"type": "response.error", "code": "invalid_prompt", "message": "No."})]);
    assert_eq!(flat, "failed provider_refused false The provider refused the request: No.");
    let bare = story(&[json!({"error": {"message": "Boom", "code": 500}})]);
    assert_eq!(bare, "failed provider_error true The provider failed: Boom");
}

#[test]
fn content_only_in_the_terminal_event_is_reported_there() {
    expect(
        "beyond-sdk/only-the-end",
        &[
            "0 reasoning",
            "0.0 thinks Brief.",
            r#"0 done here "rs_1""#,
            "1 message",
            "1.0 says Hi.",
            r#"1 done here "msg_1""#,
            "2 call get_weather call_1abc",
            "2 with {}",
            r#"2 done here "fc_1""#,
            "end ToolCalls 5/0/0/6/2 gpt-5.2-2025-12-11 auto",
        ],
    );
}

#[test]
fn a_terminal_event_with_repeated_or_missing_output_changes_nothing() {
    let told = [added(0, &message("msg_1", "")), says("msg_1", 0, "Hi."), done(0, &message("msg_1", "Hi."))];
    let expected = "0 message\n0.0 says Hi.\n0 done here \"msg_1\"\nend Stop 0/0/0/0/0";
    for output in [json!([]), Value::Null, json!([message("msg_1", "Hi.")]), json!([message("other", "Hi.")])] {
        let events = [&told[..], &[completed(&output)]].concat();
        assert_eq!(story(&events), expected, "{output}");
    }
    // Only the terminal event says that it is complete.
    let open = [&told[..2], &[completed(&json!([]))]].concat();
    assert_eq!(story(&open), "0 message\n0.0 says Hi.\nend Stop 0/0/0/0/0");
}

#[test]
fn a_stream_without_a_terminal_event_fails_and_its_calls_are_incomplete() {
    let incomplete = "failed upstream_incomplete true The provider's response ended before it was complete.";
    expect("beyond-sdk/cut", &["0 call get_weather call_1abc", r#"0 with {"city":"Bern"}"#, incomplete]);
    assert_eq!(tell(&read([&b""[..]])), incomplete);
    assert_eq!(tell(&read([&b"data: [DONE]\n\ndata: {\"type\":\"response.completed\"}\n\n"[..]])), incomplete);
}

#[test]
fn invalid_values_are_repaired_and_an_unknown_reason_stays_visible() {
    expect(
        "beyond-sdk/odd-values",
        &[
            "0 message",
            "0.0 says a\u{fffd}b\0",
            r#"0 done here "msg_1""#,
            r#"unknown {"response":{"incomplete_details":{"reason":"bored"}},"type":"response.incomplete"}"#,
            "end Stop 0/0/0/2/0 gpt-5.2-2025-12-11 auto",
        ],
    );
}

#[test]
fn text_added_by_an_items_end_is_kept_and_contradictions_are_ignored() {
    let longer =
        [added(0, &message("m", "")), says("m", 0, "Hel"), done(0, &message("m", "Hello")), completed(&json!([]))];
    assert_eq!(story(&longer), "0 message\n0.0 says Hello\n0 done here \"m\"\nend Stop 0/0/0/0/0");
    let other =
        [added(0, &message("m", "")), says("m", 0, "Hel"), done(0, &message("m", "Bye")), completed(&json!([]))];
    assert_eq!(story(&other), "0 message\n0.0 says Hel\n0 done here \"m\"\nend Stop 0/0/0/0/0");
    let asks = |delta: &str| json!({"type": "response.function_call_arguments.delta", "item_id": "f", "output_index": 0, "delta": delta});
    let args =
        [added(0, &call("f", Some(""))), asks("{\"a\""), done(0, &call("f", Some("{\"a\":1}"))), completed(&json!([]))];
    assert_eq!(story(&args), "0 call look c1\n0 with {\"a\":1}\n0 done here \"f\"\nend ToolCalls 0/0/0/0/0");
    // Some services send everything at the start and nothing later.
    let early = [added(0, &call("f", Some("{\"a\":1}"))), done(0, &call("f", None)), completed(&json!([]))];
    assert_eq!(story(&early), "0 call look c1\n0 with {\"a\":1}\n0 done here \"f\"\nend ToolCalls 0/0/0/0/0");
}

#[test]
fn a_summary_only_in_the_end_is_shown_and_reasoning_is_not_duplicated() {
    let whole = json!({"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "A."}, {"type": "summary_text", "text": "B."}],
        "content": [{"type": "reasoning_text", "text": "a b"}]});
    let late = story(&[
        added(0, &json!({"type": "reasoning", "id": "r", "summary": []})),
        done(0, &whole),
        completed(&json!([])),
    ]);
    assert_eq!(late, "0 reasoning\n0.0 thinks A.\n0.1 thinks B.\n0 done here \"r\"\nend Stop 0/0/0/0/0");
    let raw = json!({"type": "response.reasoning_text.delta", "item_id": "r", "output_index": 0, "content_index": 0, "delta": "a b"});
    let early = story(&[raw, done(0, &whole), completed(&json!([]))]);
    assert_eq!(early, "0 reasoning\n0.0 thinks a b\n0 done here \"r\"\nend Stop 0/0/0/0/0");
}

#[test]
fn a_truncated_call_is_never_complete() {
    let mut broken = call("f", Some("{\"a\":1}"));
    broken["status"] = "incomplete".into();
    // Whatever status the answer has.
    for end in [
        completed(&json!([])),
        json!({"type": "response.incomplete", "response": {"incomplete_details": {"reason": "steered"}}}),
        json!({"type": "response.incomplete", "response": {}}),
    ] {
        let told = story(&[added(0, &call("f", None)), done(0, &broken), end]);
        assert!(told.ends_with("end MaxTokens 0/0/0/0/0") && !told.contains("done"), "{told}");
    }
    let open = story(&[added(0, &call("f", None)), json!({"type": "response.incomplete", "response": {}})]);
    assert!(open.ends_with("end MaxTokens 0/0/0/0/0"), "{open}");
}

#[test]
fn a_call_without_a_name_is_passed_through() {
    let asks =
        json!({"type": "response.function_call_arguments.delta", "item_id": "f", "output_index": 0, "delta": "{}"});
    let told = story(&[asks.clone(), completed(&json!([]))]);
    assert_eq!(told, "unknown {\"arguments\":\"{}\",\"id\":\"f\",\"type\":\"function_call\"}\nend ToolCalls 0/0/0/0/0");
    let named = story(&[asks, completed(&json!([call("f", Some("{}"))]))]);
    assert_eq!(named, "0 call look c1\n0 with {}\n0 done here \"f\"\nend ToolCalls 0/0/0/0/0");
}

#[test]
fn every_terminal_status_is_mapped() {
    let end = |kind: &str, response: Value| story(&[json!({"type": format!("response.{kind}"), "response": response})]);
    let incomplete = |reason: &str| end("incomplete", json!({"incomplete_details": {"reason": reason}}));
    for reason in ["max_output_tokens", "max_tokens", "max_messages"] {
        assert_eq!(incomplete(reason), "end MaxTokens 0/0/0/0/0");
    }
    assert_eq!(incomplete("content_filter"), "end ContentFilter 0/0/0/0/0");
    assert!(incomplete("steered").ends_with("\nend Stop 0/0/0/0/0"));
    let cancelled = "failed provider_error true The provider cancelled the response.";
    assert_eq!(end("incomplete", json!({"status": "cancelled"})), cancelled);
    assert_eq!(end("cancelled", json!({})), cancelled);
    assert_eq!(end("failed", json!({})), "failed provider_error true The provider failed.");
    assert_eq!(end("completed", json!({"status": "failed"})), "failed provider_error true The provider failed.");
    assert_eq!(end("completed", json!({"status": "incomplete"})).lines().last(), Some("end Stop 0/0/0/0/0"));
    assert_eq!(end("completed", Value::Null), "end Stop 0/0/0/0/0");
}

#[test]
fn events_after_the_terminal_event_are_ignored() {
    let end = completed(&json!([]));
    assert_eq!(story(&[end.clone(), says("m", 0, "more"), end]), "end Stop 0/0/0/0/0");
}

#[test]
fn deltas_after_the_end_of_their_item_are_passed_through() {
    let arguments =
        json!({"type": "response.function_call_arguments.delta", "item_id": "f", "output_index": 0, "delta": "x"});
    let code =
        json!({"type": "response.code_interpreter_call_code.delta", "item_id": "ci", "output_index": 0, "delta": "x"});
    let cite = json!({"type": "response.output_text.annotation.added", "item_id": "m", "output_index": 0,
        "content_index": 0, "annotation_index": 0, "annotation": {"type": "file_path", "file_id": "f", "index": 0}});
    let image = json!({"type": "response.image_generation_call.partial_image", "item_id": "ig", "output_index": 0,
        "partial_image_index": 0, "partial_image_b64": "AAAA"});
    let interpreted = json!({"type": "code_interpreter_call", "id": "ci", "status": "completed"});
    let drawn = json!({"type": "image_generation_call", "id": "ig", "status": "completed"});
    for (item, late) in [
        (message("m", "Hi."), says("m", 0, "more")),
        (message("m", "Hi."), cite),
        (call("f", Some("{}")), arguments),
        (interpreted, code),
        (drawn, image),
    ] {
        let told = story(&[done(0, &item), late.clone(), completed(&json!([]))]);
        let lines: Vec<&str> = told.lines().collect();
        let [.., ended, passed, _] = lines.as_slice() else { panic!("{told}") };
        assert!(ended.starts_with("0 done here"), "{told}");
        assert_eq!(*passed, format!("unknown {late}"));
    }
    let text_done = json!({"type": "response.output_text.done", "item_id": "m", "output_index": 0, "content_index": 0, "text": "Hi."});
    let told = story(&[says("m", 0, "Hi."), text_done, says("m", 0, "more"), completed(&json!([]))]);
    assert_eq!(told, format!("0 message\n0.0 says Hi.\nunknown {}\nend Stop 0/0/0/0/0", says("m", 0, "more")));
}

#[test]
fn a_hosted_item_without_a_status_has_completed_or_failed() {
    let ask = |more: Value| {
        let mut item = json!({"type": "mcp_call", "id": "mcp_1", "name": "ask", "server_label": "deepwiki"});
        item.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        item
    };
    let begun = "0 hosted mcp {\"name\":\"ask\",\"server_label\":\"deepwiki\"}\n0 in_progress";
    let told = story(&[added(0, &ask(json!({}))), done(0, &ask(json!({}))), completed(&json!([]))]);
    assert_eq!(told, format!("{begun}\n0 completed\n0 done here \"mcp_1\"\nend Stop 0/0/0/0/0"));
    let told = story(&[added(0, &ask(json!({}))), done(0, &ask(json!({"error": "no page"}))), completed(&json!([]))]);
    let failed = "0 failed {\"error\":\"no page\",\"name\":\"ask\",\"server_label\":\"deepwiki\"}";
    assert_eq!(told, format!("{begun}\n{failed}\n0 done here \"mcp_1\"\nend Stop 0/0/0/0/0"));
    let told = story(&[added(0, &ask(json!({}))), completed(&json!([]))]);
    assert_eq!(told, format!("{begun}\n0 completed\nend Stop 0/0/0/0/0"));
}

#[test]
fn every_kind_of_annotation_keeps_its_members() {
    let message = json!({"type": "message", "id": "m", "content": [{"type": "output_text", "text": "See it.", "annotations": [
        {"type": "file_citation", "file_id": "file-1", "filename": "river.md", "index": 3, "quote": "It flows.",
            "start_index": 1, "end_index": 3},
        {"type": "container_file_citation", "container_id": "cntr_1", "file_id": "cfile_1", "filename": "plot.png",
            "start_index": 0, "end_index": 3},
        {"type": "file_path", "file_id": "file-2", "index": 4},
    ]}]});
    let told = story(&[done(0, &message), completed(&json!([]))]);
    let lines: Vec<&str> = told.lines().skip(2).take(3).collect();
    assert_eq!(
        lines,
        [
            r#"0.0 cites file-1 Some("river.md") 3 1..3 "It flows.""#,
            concat!(
                r#"0.0 ContainerFileCitation { container_id: "cntr_1", file_id: "cfile_1", "#,
                r#"filename: Some("plot.png"), start_index: 0, end_index: 3 }"#
            ),
            r#"0.0 FilePath { file_id: "file-2", index: 4 }"#,
        ],
        "{told}"
    );
}

#[test]
fn garbage_is_a_failure_and_an_empty_stream_too() {
    let told = tell(&read([&b"data: {\"type\":\"resp\n\n"[..]]));
    assert!(
        told.starts_with("failed provider_protocol_error true The provider sent an event that is not JSON"),
        "{told}"
    );
    assert_eq!(story(&[json!(7), json!([]), json!({"type": 7})]).lines().count(), 4, "three are unknown");
    let quiet = format!(": ping\n\ndata:\n\ndata: {}\n\n", completed(&json!([])));
    assert_eq!(tell(&read([quiet.as_bytes()])), "end Stop 0/0/0/0/0");
}
