//! Anthropic Messages: streams as the real service sends them, and the resulting events.
//!
//! Each file in `streams/messages` is one answer.

mod event_lines;
mod invalid_streams;
mod laws;
mod round_trip;
mod service_rules;
mod tool_searches;

use event_lines::{fixture, read, tell};

#[track_caller]
fn expect(name: &str, lines: &[&str]) {
    let told = tell(&read([fixture(name).as_slice()]));
    assert_eq!(told, lines.join("\n"), "{name} tells:\n{told}");
}

#[test]
fn text_is_streamed_and_cache_tokens_count_as_input() {
    expect(
        "text",
        &[
            "usage 2264/2051/188/1/0",
            "0 message",
            r#"0.0 says "Hello, wörld 👋\n\nHow can I help?""#,
            "usage 2264/2051/188/15/0",
            "0 done",
            "end Stop 2264/2051/188/15/0 claude-sonnet-4-5-20250929 standard",
        ],
    );
}

#[test]
fn reasoning_comes_before_the_answer() {
    expect(
        "thinking",
        &[
            "usage 44/0/0/1/0",
            "0 reasoning",
            r#"0.0 thinks "Let me solve this step by step:\n\n1. First break down 27 * 453\n2. 453 = 400 + 50 + 3""#,
            "0 done",
            "1 message",
            r#"1.0 says "27 * 453 = 12,231""#,
            "usage 44/0/0/96/71",
            "1 done",
            "end Stop 44/0/0/96/71 claude-sonnet-4-5-20250929 standard",
        ],
    );
}

#[test]
fn redacted_thinking_is_an_item() {
    expect(
        "thinking-omitted",
        &[
            "usage 44/0/0/1/0",
            "0 reasoning",
            "0 done",
            "1 message",
            r#"1.0 says "12,231""#,
            "usage 44/0/0/80/0",
            "1 done",
            "end Stop 44/0/0/80/0 claude-sonnet-4-5-20250929 standard",
        ],
    );
    expect(
        "thinking-redacted",
        &[
            "usage 44/0/0/1/0",
            "0 reasoning",
            r#"0.0 thinks "The user asks for something delicate.""#,
            "0 done",
            "1 reasoning",
            "1 done",
            "2 message",
            r#"2.0 says "Let us begin.""#,
            "usage 44/0/0/64/0",
            "2 done",
            "end Stop 44/0/0/64/0 claude-sonnet-4-5-20250929 standard",
        ],
    );
}

#[test]
fn calls_have_their_arguments_and_missing_ones_are_an_empty_object() {
    expect(
        "tool-use",
        &[
            "usage 472/0/0/1/0",
            "0 message",
            r#"0.0 says "Okay, let me check both.""#,
            "0 done",
            "1 call get_weather toolu_01T1x1fJ34qAmk2tNTrN7Up6",
            r#"1 with "{\"location\": \"San Francisco, CA\"}""#,
            "1 done",
            "2 call get_time toolu_01T1x1fJ34qAmk2tNTrN7Up7",
            r#"2 with "{}""#,
            "usage 472/0/0/89/0",
            "2 done",
            "end ToolCalls 472/0/0/89/0 claude-sonnet-4-5-20250929 standard",
        ],
    );
}

#[test]
fn reasoning_may_come_between_text_and_calls() {
    expect(
        "thinking-between-tools",
        &[
            "usage 512/0/0/1/0",
            "0 reasoning",
            r#"0.0 thinks "I need the weather first.""#,
            "0 done",
            "1 message",
            r#"1.0 says "Checking.""#,
            "1 done",
            "2 reasoning",
            r#"2.0 thinks "Paris, then.""#,
            "2 done",
            "3 call get_weather toolu_01Aq9w938a90dw8q",
            r#"3 with "{\"location\": \"Paris\"}""#,
            "usage 512/0/0/120/0",
            "3 done",
            "end ToolCalls 512/0/0/120/0 claude-sonnet-4-5-20250929 standard",
        ],
    );
}

#[test]
fn a_search_is_one_item_and_an_answer_with_citations_one_message() {
    let input = r#"{"input":{"query":"claude shannon birth date"}"#;
    let found = concat!(
        r#"[{"page_age":"April 30, 2025","title":"Claude Shannon - Wikipedia","type":"web_search_result","#,
        r#""url":"https://en.wikipedia.org/wiki/Claude_Shannon"},{"page_age":null,"title":"Information theory","#,
        r#""type":"web_search_result","url":"https://example.org/information-theory"}]"#,
    );
    expect(
        "web-search",
        &[
            "usage 2679/0/0/1/0",
            "0 message",
            r#"0.0 says "I'll look it up.""#,
            "0 done",
            "1 hosted web_search",
            &format!("1 in_progress {input}}}"),
            &format!(r#"1 completed {input},"result":{found}}}"#),
            "1 done",
            "2 message",
            r#"2.0 says "Based on the results, Claude Shannon was born on April 30, 1916""#,
            "2.0 cites https://en.wikipedia.org/wiki/Claude_Shannon (Claude Shannon - Wikipedia) 22..63",
            r#"2.0 says ", in Petoskey.""#,
            "usage 10682/0/0/510/0",
            "2 done",
            "end Stop 10682/0/0/510/0 claude-sonnet-4-5-20250929 standard",
        ],
    );
}

#[test]
fn a_failed_search_is_reported() {
    expect(
        "web-search-failed",
        &[
            "usage 2679/0/0/1/0",
            "0 hosted web_search",
            r#"0 in_progress {"input":{"query":"x"}}"#,
            concat!(
                r#"0 failed {"input":{"query":"x"},"#,
                r#""result":{"error_code":"max_uses_exceeded","type":"web_search_tool_result_error"}}"#
            ),
            "0 done",
            "1 message",
            r#"1.0 says "I could not search.""#,
            "usage 2679/0/0/40/0",
            "1 done",
            "end Stop 2679/0/0/40/0 claude-sonnet-4-5-20250929 standard",
        ],
    );
}

/// The states of the first item, and the keys of its shown fields.
fn hosted(name: &str) -> Vec<String> {
    let told = tell(&read([fixture(name).as_slice()]));
    let lines = told.lines().filter_map(|line| line.strip_prefix("0 ")).filter(|line| line.contains(" {"));
    let shown = lines.map(|line| {
        let (state, action) = line.split_once(' ').unwrap();
        let action: serde_json::Value = serde_json::from_str(action).unwrap();
        format!("{state} {}", action.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join("+"))
    });
    shown.collect()
}

#[test]
fn all_hosted_tools_are_reported_alike() {
    for name in ["web-fetch", "code-execution"] {
        assert_eq!(hosted(name), ["in_progress input", "completed input+result"], "{name}");
    }
    assert_eq!(hosted("mcp"), ["in_progress input+server_name", "completed input+result+server_name"]);
}

#[test]
fn file_citations_are_mapped_and_others_are_passed_through() {
    let citation = concat!(
        r#"{"cited_text":"The grass is green.","document_index":1,"document_title":null,"end_page_number":6,"#,
        r#""file_id":null,"start_page_number":5,"type":"page_location"}"#
    );
    let unknown = format!(
        r#"unknown {{"delta":{{"citation":{citation},"type":"citations_delta"}},"index":1,"type":"content_block_delta"}}"#
    );
    expect(
        "document-citations",
        &[
            "usage 610/0/0/1/0",
            "0 message",
            r#"0.0 says "According to the document, ""#,
            &unknown,
            r#"0.0 says "the grass is green""#,
            "0.0 cites file_011CNha8iCJcU1wXNR6q4V8w (Example Document) 27..45 The grass is green.",
            r#"0.0 says ".""#,
            "usage 610/0/0/33/0",
            "0 done",
            "end Stop 610/0/0/33/0 claude-sonnet-4-5-20250929 standard",
        ],
    );
}

#[test]
fn an_item_that_a_limit_may_have_truncated_is_left_open() {
    expect(
        "max-tokens-in-a-call",
        &[
            "usage 400/0/0/1/0",
            "0 message",
            r#"0.0 says "One moment.""#,
            "0 done",
            "1 call make_file toolu_01cut",
            r#"1 with "{\"filename\": \"poem.txt\", \"lines_of_text\": [\"Roses are""#,
            "usage 400/0/0/30/0",
            "end MaxTokens 400/0/0/30/0 claude-sonnet-4-5-20250929 standard",
        ],
    );
    for (name, words, tokens) in
        [("max-tokens", "Once upon a time", "20/0/0/4/0"), ("context-window", "The last of it", "190000/0/0/9000/0")]
    {
        let input = tokens.split('/').next().unwrap();
        expect(
            name,
            &[
                &format!("usage {input}/0/0/1/0"),
                "0 message",
                &format!("0.0 says {words:?}"),
                &format!("usage {tokens}"),
                &format!("end MaxTokens {tokens} claude-sonnet-4-5-20250929 standard"),
            ],
        );
    }
}

#[test]
fn a_refusal_is_a_content_filter_with_its_reason() {
    let why = r#"{"category":"cyber","explanation":"The request could enable cyber harm.","type":"refusal"}"#;
    let unknown = format!(
        r#"unknown {{"delta":{{"stop_details":{why},"stop_reason":"refusal","stop_sequence":null}},"type":"message_delta","usage":{{"output_tokens":5}}}}"#
    );
    expect(
        "refusal",
        &[
            "usage 30/0/0/1/0",
            "0 message",
            r#"0.0 says "Here is how""#,
            "usage 30/0/0/5/0",
            &unknown,
            "end ContentFilter 30/0/0/5/0 claude-sonnet-4-5-20250929 standard",
        ],
    );
}

#[test]
fn a_pause_ends_the_turn_as_a_limit_does() {
    expect(
        "pause-turn",
        &[
            "usage 3000/0/0/1/0",
            "0 message",
            r#"0.0 says "Still searching.""#,
            "0 done",
            "1 hosted web_search",
            r#"1 in_progress {"input":{"query":"more"}}"#,
            "usage 3000/0/0/70/0",
            r#"unknown {"delta":{"stop_reason":"pause_turn","stop_sequence":null},"type":"message_delta","usage":{"output_tokens":70}}"#,
            "end MaxTokens 3000/0/0/70/0 claude-sonnet-4-5-20250929 standard",
        ],
    );
}

#[test]
fn an_error_in_the_middle_fails_the_turn() {
    expect(
        "overloaded",
        &[
            "usage 25/0/0/1/0",
            "0 message",
            r#"0.0 says "Hel""#,
            "failed overloaded true The provider is overloaded: Overloaded",
        ],
    );
}

#[test]
fn a_truncated_stream_fails_even_if_its_last_call_looks_complete() {
    expect(
        "cut",
        &[
            "usage 25/0/0/1/0",
            "0 call trade toolu_01half",
            r#"0 with "{\"n\": 1}""#,
            "failed upstream_incomplete true The provider's response ended before it was complete.",
        ],
    );
}

#[test]
fn unknown_events_are_passed_through() {
    expect(
        "unknown",
        &[
            "usage 25/0/0/1/0",
            r#"unknown {"degrees":21,"type":"message_weather"}"#,
            "0 message",
            r#"0.0 says "Hi""#,
            r#"unknown {"content_block":{"file_id":"file_01","type":"container_upload"},"index":1,"type":"content_block_start"}"#,
            r#"unknown {"delta":{"mood":"good","type":"mood_delta"},"index":2,"type":"content_block_delta"}"#,
            r#"0.0 says " there""#,
            "usage 25/0/0/4/0",
            r#"unknown {"delta":{"stop_reason":"bored","stop_sequence":null},"type":"message_delta","usage":{"output_tokens":4}}"#,
            "0 done",
            "end Stop 25/0/0/4/0 claude-sonnet-4-5-20250929 standard",
        ],
    );
}

#[test]
fn empty_answers_stop_sequences_and_split_characters_are_handled() {
    expect(
        "empty",
        &["usage 900/0/0/1/0", "usage 900/0/0/2/0", "end Stop 900/0/0/2/0 claude-sonnet-4-5-20250929 standard"],
    );
    for (name, words, tokens) in
        [("stop-sequence", "one two ", "12/0/0/3/0"), ("lone-surrogate", "broken \u{fffd} emoji", "25/0/0/4/0")]
    {
        let input = tokens.split('/').next().unwrap();
        expect(
            name,
            &[
                &format!("usage {input}/0/0/1/0"),
                "0 message",
                &format!("0.0 says {words:?}"),
                &format!("usage {tokens}"),
                "0 done",
                &format!("end Stop {tokens} claude-sonnet-4-5-20250929 standard"),
            ],
        );
    }
}
