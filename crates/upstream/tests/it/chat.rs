//! Chat Completions: streams as real services send them, and the resulting events.
//!
//! Each file in `streams/chat` is one answer. Those in `beyond-sdk` are from services that deviate so far from OpenAI
//! that its own client cannot parse them.

pub(crate) mod event_lines;
mod laws;

use crate::dialect::folder;
use event_lines::{read, tell};
use model::model_turn::{ModelDelta, ModelEvent};

/// The lines of the stream of this name.
fn story(name: &str) -> String {
    let bytes = std::fs::read(folder("chat").join(name).with_extension("sse")).unwrap();
    tell(&read([bytes.as_slice()]))
}

#[track_caller]
fn expect(name: &str, lines: &[&str]) {
    let told = story(name);
    assert_eq!(told, lines.join("\n"), "{name} tells:\n{told}");
}

#[test]
fn text_is_streamed_with_usage_at_the_end() {
    expect(
        "text",
        &[
            "0 message",
            "0.0 says The river is 12 °C today 🌊.",
            "0 done",
            "end Stop 19/8/0/10/4 gpt-5.2-2025-12-11 default",
        ],
    );
}

#[test]
fn parallel_calls_do_not_mix() {
    expect(
        "tool-calls",
        &[
            "0 message",
            "0.0 says I will look it up.",
            "0 done",
            "1 call get_weather call_JbH1nUZVvXYS",
            r#"1 with {"city":"Bern"}"#,
            "2 call get_time call_qR2oPlXkZ0a1",
            r#"2 with {"zone":"Europe/Zurich"}"#,
            r#"1 done here {"function":{"arguments":"{\"city\":\"Bern\"}","name":"get_weather"},"id":"call_JbH1nUZVvXYS","type":"function"}"#,
            r#"2 done here {"function":{"arguments":"{\"zone\":\"Europe/Zurich\"}","name":"get_time"},"id":"call_qR2oPlXkZ0a1","type":"function"}"#,
            "end ToolCalls 19/8/0/10/4 gpt-5.2-2025-12-11 default",
        ],
    );
}

#[test]
fn reasoning_comes_before_the_answer() {
    expect(
        "reasoning-content",
        &[
            "0 reasoning",
            "0.0 thinks The user greets.",
            r#"0 done here {"reasoning_content":"The user greets."}"#,
            "1 message",
            "1.0 says Hello!",
            "1 done",
            "end Stop 11/0/0/9/5 deepseek-chat",
        ],
    );
}

#[test]
fn signed_reasoning_is_kept_complete() {
    expect(
        "reasoning-details",
        &[
            "0 reasoning",
            "0.0 thinks Weather needs a tool.",
            r#"0 done here {"reasoning":"Weather needs a tool.","reasoning_details":[{"format":"anthropic-claude-v1","index":0,"signature":"EqQBCgIYAhIM1gbcDa9","text":"Weather needs a tool.","type":"reasoning.text"}]}"#,
            "1 call get_weather toolu_01A09q90qw90lq917835",
            r#"1 with {"city": "Bern"}"#,
            r#"1 done here {"function":{"arguments":"{\"city\": \"Bern\"}","name":"get_weather"},"id":"toolu_01A09q90qw90lq917835","type":"function"}"#,
            "end ToolCalls 412/0/400/60/21 anthropic/claude-sonnet-4.5",
        ],
    );
}

#[test]
fn a_refusal_is_distinguished_from_an_answer() {
    expect(
        "refusal",
        &["0 message", "0.0 declines I'm sorry, no.", "0 done", "end Stop 19/8/0/10/4 gpt-4o-2024-08-06"],
    );
}

#[test]
fn logprobs_stay_with_their_text() {
    expect(
        "logprobs",
        &["0 message", "0.0 says Yes -0.1", "0.0 says . -0.02", "0 done", "end Stop 19/8/0/10/4 gpt-4o-2024-08-06"],
    );
}

#[test]
fn citations_point_into_the_text() {
    expect(
        "annotations",
        &[
            "0 message",
            "0.0 says Snow fell ([example.org](https://example.org/snow))",
            r#"0.0 cites https://example.org/snow Some("Snow") 9..53"#,
            "0 done",
            "end Stop 19/8/0/10/4 gpt-4o-search-preview-2025-03-11",
        ],
    );
}

#[test]
fn images_are_parts_between_texts() {
    expect(
        "images",
        &[
            "0 message",
            "0.0 says Here:",
            "0.1 shows data:image/png;base64,iVBORw0KGgo=",
            "0.2 says A lake.",
            "0 done",
            "end Stop 19/8/0/10/4 google/gemini-2.5-flash-image",
        ],
    );
}

#[test]
fn a_call_truncated_by_a_limit_is_never_done() {
    expect(
        "length",
        &[
            "0 call write_file call_a1",
            r#"0 with {"path":"a.txt","text":"It was a"#,
            "end MaxTokens 19/8/0/10/4 gpt-5.2-2025-12-11",
        ],
    );
}

#[test]
fn a_content_filter_is_a_limit() {
    expect("content-filter", &["0 message", "0.0 says Once upon", "end ContentFilter 0/0/0/0/0 gpt-4o-2024-08-06"]);
}

#[test]
fn complete_calls_determine_the_stop_reason() {
    let told = story("whole-calls");
    assert!(told.contains("1 call get_weather call_9mkv1c0a\n1 with {\"city\":\"Bern\"}\n2 call"), "{told}");
    assert!(told.ends_with("end ToolCalls 171/0/0/62/0 qwen3:8b"), "{told}");
}

#[test]
fn a_signed_call_keeps_its_signature_and_usage_is_reported_during_the_stream() {
    expect(
        "signed-call",
        &[
            "0 call get_weather function-call-6717",
            r#"0 with {"city":"Bern"}"#,
            "usage 40/0/0/12/0",
            r#"0 done here {"extra_content":{"google":{"thought_signature":"CpMBAXLI2ny"}},"function":{"arguments":"{\"city\":\"Bern\"}","name":"get_weather"},"id":"function-call-6717","type":"function"}"#,
            "end ToolCalls 40/0/0/14/0 gemini-3-flash-preview",
        ],
    );
}

#[test]
fn only_the_first_choice_counts() {
    let told = story("several-choices");
    let unknown = told.lines().filter(|line| line.starts_with("unknown")).count();
    assert_eq!(unknown, 3, "{told}");
    let others = told.lines().filter(|line| !line.starts_with("unknown")).collect::<Vec<_>>();
    let expected = ["0 message", "0.0 says Heads", "0.0 says .", "0 done", "end Stop 19/8/0/10/4 gpt-4o-2024-08-06"];
    assert_eq!(others, expected);
}

#[test]
fn audio_is_passed_through() {
    expect(
        "audio",
        &[
            r#"unknown {"audio":{"id":"audio_681","transcript":"Hel"}}"#,
            r#"unknown {"audio":{"data":"UklGRg=="}}"#,
            r#"unknown {"audio":{"expires_at":1763003600}}"#,
            "end Stop 19/8/0/10/4 gpt-4o-audio-preview-2024-12-17",
        ],
    );
}

#[test]
fn the_legacy_function_call_is_a_call() {
    expect(
        "function-call",
        &[
            "0 call get_weather -",
            r#"0 with {"city":"Bern"}"#,
            r#"0 done here {"function":{"arguments":"{\"city\":\"Bern\"}","name":"get_weather"},"id":"","type":"function"}"#,
            "end ToolCalls 19/8/0/10/4 gpt-4-0613",
        ],
    );
}

#[test]
fn finish_reason_or_done_ends_the_stream() {
    expect("no-done", &["0 message", "0.0 says <think>hm</think> Hi", "0 done", "end Stop 9/0/0/5/0 qwen3-4b"]);
    expect("no-finish-reason", &["0 message", "0.0 says Hi there", "0 done", "end Stop 0/0/0/0/0 qwen3-4b"]);
}

#[test]
fn a_stream_without_an_end_fails_and_its_call_is_not_done() {
    expect(
        "truncated",
        &[
            "0 message",
            "0.0 says Wait",
            "0 done",
            "1 call pay call_t1",
            r#"1 with {"amount":1"#,
            "failed upstream_incomplete true The provider's response ended before it was complete.",
        ],
    );
}

#[test]
fn an_error_in_mid_stream_is_a_failure() {
    let told = story("error");
    assert!(told.starts_with("0 message\n0.0 says I was\nfailed provider_error true"), "{told}");
    assert!(told.ends_with("Provider disconnected unexpectedly"), "{told}");
    let told = story("beyond-sdk/flat-error");
    assert!(
        told.contains("failed provider_error true") && told.ends_with("EngineCore encountered an issue."),
        "{told}"
    );
}

#[test]
fn content_parts_are_reasoning_and_text() {
    expect(
        "beyond-sdk/content-parts",
        &[
            "0 reasoning",
            "0.0 thinks Add them.",
            "0 done",
            "1 message",
            "1.0 says 2 + 2 = 4",
            r#"unknown {"content":[{"reference_ids":[1],"type":"reference"}]}"#,
            "1 done",
            "end Stop 10/0/0/20/0 magistral-medium-2509",
        ],
    );
}

#[test]
fn usage_in_a_nonstandard_field_is_found() {
    assert!(story("beyond-sdk/usage-aside").ends_with("end Stop 73/0/0/20/0 openai/gpt-oss-120b"));
}

#[test]
fn calls_without_an_index_do_not_mix() {
    let bern = |told: &str| told.matches(r#" with {"city":"Bern"}"#).count();
    let basel = |told: &str| told.matches(r#" with {"city":"Basel"}"#).count();
    for name in ["beyond-sdk/one-index", "beyond-sdk/no-index"] {
        let told = story(name);
        assert_eq!((bern(&told), basel(&told)), (1, 1), "{name}:\n{told}");
        assert!(told.contains("end ToolCalls"), "{told}");
    }
}

/// One event's data at a time, then the end.
fn answer(chunks: &[&str]) -> String {
    let stream: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    tell(&read([stream.as_bytes()]))
}

#[test]
fn events_after_the_end_are_ignored() {
    let hi = r#"{"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}"#;
    let whole = "0 message\n0.0 says hi\n0 done\nend Stop 0/0/0/0/0";
    assert_eq!(answer(&[hi, "[DONE]", hi, "{", "[DONE]"]), whole);
    assert!(answer(&["{", hi, "[DONE]"]).starts_with("failed provider_protocol_error true"));
    assert_eq!(answer(&["{", hi, "[DONE]"]).lines().count(), 1);
}

#[test]
fn done_without_any_chunk_is_a_failure() {
    let open = r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"t","arguments":"{\"a\":"}}]}}]}"#;
    for chunks in [vec!["[DONE]"], vec![r#"{"choices":[]}"#, "[DONE]"], vec![open, "[DONE]"], vec![]] {
        let told = answer(&chunks);
        assert!(told.lines().last().unwrap().starts_with("failed upstream_incomplete true"), "{told}");
    }
}

#[test]
fn unknown_fields_are_kept_and_harmless() {
    let told = answer(&[
        r#"{"type":"ping"}"#,
        "[1]",
        r#"{"choices":{"odd":1}}"#,
        r#"{"choices":[{"delta":{"content":"a","mood":"good"}}]}"#,
        r#"{"choices":[{"delta":{"annotations":[{"type":"file","file":{"name":"n"}}]}}]}"#,
        r#"{"choices":[{"delta":{"content":"\ud800b"},"finish_reason":"mood"}]}"#,
    ]);
    let expected = [
        r#"unknown {"type":"ping"}"#,
        "unknown [1]",
        r#"unknown {"choices":{"odd":1}}"#,
        "0 message",
        "0.0 says a",
        r#"unknown {"annotations":[{"file":{"name":"n"},"type":"file"}]}"#,
        "0.0 says \u{fffd}b",
        r#"unknown {"finish_reason":"mood"}"#,
        "0 done",
        "end Stop 0/0/0/0/0",
    ];
    assert_eq!(told, expected.join("\n"));
}

#[test]
fn a_complete_message_in_place_of_a_delta_is_read_once() {
    let whole = r#"{"choices":[{"message":{"content":"hi","tool_calls":[{"id":"a","function":{"name":"t","arguments":"{}"}}]},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}"#;
    let told = answer(&[r#"{"choices":[{"delta":{"role":"assistant"}}]}"#, whole, whole, "[DONE]"]);
    assert!(told.starts_with("0 message\n0.0 says hi\n0 done\n1 call t a\n1 with {}\n1 done"), "{told}");
    assert!(told.ends_with("end ToolCalls 1/0/0/2/0"), "{told}");
}

#[test]
fn a_service_that_interleaves_everything_makes_few_items() {
    let mixed = r#"{"choices":[{"delta":{"reasoning":"x","content":"y","tool_calls":[{"index":0,"id":"a","function":{"name":"t","arguments":"1"}}]}}]}"#;
    let chunks: Vec<&str> = std::iter::repeat_n(mixed, 100).chain(["[DONE]"]).collect();
    let stream: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    let events = read([stream.as_bytes()]);
    let started = events.iter().filter(|event| matches!(event, ModelEvent::Delta(ModelDelta::Started { .. }))).count();
    assert_eq!(started, 5);
}

#[test]
fn truncated_streams_are_failures() {
    let end = |reason: &str| {
        let chunk = format!(r#"{{"choices":[{{"delta":{{"content":"a"}},"finish_reason":"{reason}"}}]}}"#);
        answer(&[&chunk, "[DONE]"]).lines().last().unwrap().to_owned()
    };
    assert!(end("error").starts_with("failed provider_error true"));
    assert!(end("insufficient_system_resource").starts_with("failed overloaded true"));
    assert!(end("abort").starts_with("failed upstream_incomplete true"));
    let choice = r#"{"choices":[{"delta":{},"finish_reason":"error","error":{"code":429,"message":"slow"}}]}"#;
    assert_eq!(answer(&[choice]), "failed rate_limited true The provider limits the rate of requests: slow");
}

/// The lines of a stream of these deltas.
fn story_of(deltas: &[serde_json::Value]) -> String {
    let chunk = |delta: &serde_json::Value| serde_json::json!({"choices": [{"index": 0, "delta": delta}]});
    let end = serde_json::json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]});
    let chunks = deltas.iter().map(chunk).chain([end]);
    let text: String = chunks.map(|chunk| format!("data: {chunk}\n\n")).collect();
    tell(&read([text.as_bytes(), b"data: [DONE]\n\n"]))
}

/// What starts after a call ends after it: everything that shows complete items shows them in this order.
#[test]
fn items_end_in_the_order_in_which_they_start() {
    use serde_json::json;
    let call = |index: u64, name: &str| json!({"tool_calls": [{"index": index, "id": name, "function": {"name": name, "arguments": "{}"}}]});
    let told = story_of(&[
        call(0, "one"),
        json!({"reasoning_content": "Hm."}),
        json!({"content": "I looked."}),
        call(1, "two"),
    ]);
    let done: Vec<&str> = told.lines().filter(|line| line.contains(" done")).map(|line| &line[..1]).collect();
    assert_eq!(done, ["0", "1", "2", "3"], "{told}");
    let started = ["0 call one one", "1 reasoning", "2 message", "3 call two two"];
    assert!(started.iter().all(|line| told.lines().any(|told| told == *line)), "{told}");
}

/// An offset that is none is the provider's mistake: the citation is passed on as it came.
#[test]
fn a_citation_with_impossible_offsets_is_passed_on() {
    use serde_json::json;
    let cites = |start: serde_json::Value, end: serde_json::Value| {
        let citation = json!({"url": "https://a.example", "start_index": start, "end_index": end});
        let told = story_of(&[
            json!({"content": "Hello."}),
            json!({"annotations": [{"type": "url_citation", "url_citation": citation}]}),
        ]);
        told.lines().find(|line| line.contains("a.example")).unwrap_or_default().to_owned()
    };
    let (negative, words, largest) =
        (cites((-1).into(), 3.into()), cites("a".into(), 3.into()), cites(0.into(), u64::MAX.into()));
    let fine = cites(0.into(), 3.into());
    let kind = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    assert_eq!(kind(&fine), kind(&largest), "{fine}\n{largest}");
    assert_ne!(kind(&fine), kind(&negative), "{fine}\n{negative}");
    assert_eq!(kind(&negative), kind(&words), "{negative}\n{words}");
    assert!(largest.contains(&u32::MAX.to_string()), "{largest}");
}
