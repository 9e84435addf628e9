//! OpenAI Responses: streams as the real service sends them, and the resulting events.
//!
//! Each file in `streams/responses` is one answer. Those in `beyond-sdk` are from services that deviate so far from
//! OpenAI that its own client cannot parse them.

mod event_lines;
mod hosted_approvals;
mod invalid_streams;
mod laws;
mod tool_searches;

use crate::dialect::folder;
use event_lines::{read, read_with, tell};
use model::model_turn::{ModelDelta, ModelEvent};

fn stream(name: &str) -> Vec<u8> {
    std::fs::read(folder("responses").join(name).with_extension("sse")).unwrap()
}

#[track_caller]
fn expect(name: &str, lines: &[&str]) {
    let told = tell(&read([stream(name).as_slice()]));
    assert_eq!(told, lines.join("\n"), "{name} tells:\n{told}");
}

/// The usual last line of an answer.
const STOP: &str = "end Stop 36/0/0/87/0 gpt-5.2-2025-12-11 default";
const TOOL_CALLS: &str = "end ToolCalls 36/0/0/87/0 gpt-5.2-2025-12-11 default";

#[test]
fn text_is_streamed_with_usage_at_the_end() {
    expect(
        "text",
        &[
            "0 message",
            "0.0 says The river is 12 °C today 🌊.",
            r#"0 done here "msg_1""#,
            "end Stop 36/16/0/12/0 gpt-5.2-2025-12-11 default",
        ],
    );
    expect("queued", &["0 message", "0.0 says Done.", r#"0 done here "msg_1""#, STOP]);
    let parts = ["0 message", "0.0 says One part.", "0.1 says Another.", r#"0 done here "msg_1""#, STOP];
    expect("several-parts", &parts);
}

#[test]
fn reasoning_has_parts_and_messages_have_a_phase() {
    expect(
        "reasoning-summary",
        &[
            "0 reasoning",
            "0.0 thinks **Looking at it**",
            "0.1 thinks **Deciding**",
            r#"0 done here "rs_1""#,
            "1 message commentary",
            "1.0 says Let me see.",
            r#"1 done here "msg_1""#,
            "2 message final_answer",
            "2.0 says It is so.",
            r#"2 done here "msg_2""#,
            "end Stop 40/0/0/300/256 gpt-5.2-2025-12-11 default",
        ],
    );
}

#[test]
fn raw_reasoning_fills_the_summary() {
    expect(
        "reasoning-text",
        &[
            "0 reasoning",
            "0.0 thinks User greets; greet back.",
            r#"0 done here "rs_1""#,
            "1 message",
            "1.0 says Hello!",
            r#"1 done here "msg_1""#,
            "end Stop 20/0/0/15/8 gpt-oss-120b default",
        ],
    );
}

/// Rule 1 of the history: only the finished item has the complete encrypted content.
#[test]
fn an_item_is_kept_in_its_final_raw_form_with_its_origin() {
    let events = read([stream("reasoning-summary").as_slice()]);
    let raw = events.iter().find_map(|event| match event {
        ModelEvent::Delta(ModelDelta::Done { slot: 0, raw }) => raw.clone(),
        _ => None,
    });
    let raw = raw.unwrap();
    assert_eq!(raw.origin, "here");
    let summary = |text: &str| serde_json::json!({"type": "summary_text", "text": text});
    let expected = serde_json::json!({"type": "reasoning", "id": "rs_1", "encrypted_content": "gAAA-whole",
        "summary": [summary("**Looking at it**"), summary("**Deciding**")]});
    assert_eq!(raw.item, expected);
}

#[test]
fn parallel_calls_do_not_mix() {
    expect(
        "function-calls",
        &[
            "0 reasoning",
            r#"0 done here "rs_1""#,
            "1 call get_weather call_1abc",
            "2 call get_time call_2abc",
            r#"1 with {"city":"#,
            r#"2 with {"zone":"Eu"#,
            r#"1 with "Bern"}"#,
            r#"2 with rope/Zurich"}"#,
            r#"1 done here "fc_1""#,
            r#"2 done here "fc_2""#,
            "end ToolCalls 80/64/0/60/32 gpt-5.2-2025-12-11 default",
        ],
    );
    let whole = [r#"0 call get_weather call_1abc"#, r#"0 with {"city":"Bern"}"#, r#"0 done here "fc_1""#, TOOL_CALLS];
    expect("function-call-without-deltas", &whole);
}

#[test]
fn a_custom_calls_text_is_an_argument() {
    expect(
        "custom-tool-call",
        &[
            "0 call sql call_1abc",
            r#"0 with {"input":"SELECT \"a\"\nFROM t -- ü"}"#,
            r#"0 done here "ctc_1""#,
            TOOL_CALLS,
        ],
    );
}

#[test]
fn searches_are_hosted_calls_and_results_are_cited() {
    expect(
        "web-search",
        &[
            r#"0 hosted web_search {"queries":["river temperature"],"query":"river temperature","type":"search"}"#,
            "0 in_progress",
            "0 searching",
            "0 completed",
            r#"0 done here "ws_1""#,
            "1 message",
            "1.0 says It is cold (example.org).",
            r#"1.0 cites https://example.org/river?utm_source=openai Some("The river") 11..24"#,
            r#"1 done here "msg_1""#,
            "end Stop 300/0/0/40/0 gpt-5.2-2025-12-11 default",
        ],
    );
    expect(
        "file-search",
        &[
            "0 hosted file_search",
            "0 in_progress",
            "0 searching",
            "0 completed",
            concat!(
                r#"0 completed {"queries":["river"],"results":[{"attributes":{},"file_id":"file-1","#,
                r#""filename":"river.md","score":0.9,"text":"cold"}]}"#
            ),
            r#"0 done here "fs_1""#,
            "1 message",
            "1.0 says See the file.",
            r#"1.0 cites file-1 Some("river.md") 12"#,
            r#"1.0 FilePath { file_id: "file-2", index: 12 }"#,
            r#"1 done here "msg_1""#,
            STOP,
        ],
    );
}

#[test]
fn code_is_streamed_and_its_output_image_is_an_image() {
    let told = tell(&read([stream("code-interpreter").as_slice()]));
    let head = |line: &str| line.chars().take(60).collect::<String>();
    let lines: Vec<String> = told.lines().map(head).collect();
    let expected = [
        r#"0 hosted code_interpreter {"container_id":"cntr_1"}"#,
        "0 in_progress",
        r#"0 in_progress {"code":"import math\ntotal_0 = math.sqrt(0)\n"#,
        r#"0 in_progress {"code":"import math\ntotal_0 = math.sqrt(0)\n"#,
        r#"0 in_progress {"code":"import math\ntotal_0 = math.sqrt(0)\n"#,
        "0 interpreting",
        "0 completed",
        r#"0 completed {"code":"import math\ntotal_0 = math.sqrt(0)\nto"#,
        "0.0 shows None https://example.org/plot.png",
        r#"0 done here "ci_1""#,
        "1 message",
        "1.0 says Plotted.",
        r#"1.0 ContainerFileCitation { container_id: "cntr_1", file_id:"#,
        r#"1 done here "msg_1""#,
        STOP,
    ];
    assert_eq!(lines, expected, "{told}");
    let outputs = r#""outputs":[{"logs":"2.236","type":"logs"},{"type":"image","url":"https://example.org/plot.png"}]"#;
    assert!(told.contains(outputs), "{told}");
}

#[test]
fn partial_images_are_reported() {
    expect(
        "image-generation",
        &[
            "0 hosted image_generation",
            "0 in_progress",
            "0 generating",
            "0.0 shows Some(0) data:image/png;base64,iVBORw0KGgo=",
            "0.0 shows Some(1) data:image/png;base64,iVBORw0KGgp=",
            "0 completed",
            concat!(
                r#"0 completed {"action":"generate","background":"opaque","output_format":"png","quality":"low","#,
                r#""revised_prompt":"A river.","size":"1024x1024"}"#
            ),
            "0.0 shows None data:image/png;base64,iVBORw0KGgq=",
            r#"0 done here "ig_1""#,
            "1 message",
            "1.0 says Here.",
            r#"1 done here "msg_1""#,
            STOP,
        ],
    );
}

#[test]
fn a_computer_call_has_the_shape_that_came() {
    let told = |name: &str| {
        let told = [&["look", "computer"][..], &[]].map(|tools| tell(&read_with(tools, [stream(name).as_slice()])));
        assert_eq!(told[0], told[1], "it is a call with and without such a tool");
        told[0].clone()
    };
    let one = [
        "0 reasoning",
        r#"0 done here "rs_1""#,
        "1 computer call_1abc",
        concat!(
            r#"1 with {"action":{"button":"left","type":"click","x":10,"y":20},"#,
            r#""pending_safety_checks":[{"code":"malicious_instructions","id":"cu_sc_1","message":"Take care."}]}"#
        ),
        r#"1 done here "cu_1""#,
        "end ToolCalls 36/0/0/87/0 computer-use-preview-2025-03-11 default",
    ];
    assert_eq!(told("computer-action"), one.join("\n"));
    let many = [
        "0 computer call_1abc",
        concat!(
            r#"0 with {"actions":[{"button":"left","type":"click","x":10,"y":20},{"type":"screenshot"}],"#,
            r#""pending_safety_checks":[]}"#
        ),
        r#"0 done here "cu_1""#,
        TOOL_CALLS,
    ];
    assert_eq!(told("computer-actions"), many.join("\n"));
}

#[test]
fn mcp_shell_and_patch_calls_are_hosted_calls_and_a_request_for_approval_is_a_call() {
    expect(
        "mcp",
        &[
            r#"0 hosted mcp_list_tools {"server_label":"deep"}"#,
            "0 in_progress",
            "0 completed",
            concat!(
                r#"0 completed {"server_label":"deep","tools":[{"annotations":null,"description":"Asks.","#,
                r#""input_schema":{"type":"object"},"name":"ask"}]}"#
            ),
            r#"0 done here "mcpl_1""#,
            r#"1 hosted mcp {"name":"ask","server_label":"deep"}"#,
            "1 in_progress",
            r#"1 in_progress {"arguments":"{\"question\":\"how?\"}","name":"ask","server_label":"deep"}"#,
            "1 completed",
            concat!(
                r#"1 completed {"arguments":"{\"question\":\"how?\"}","name":"ask","output":"So.","#,
                r#""server_label":"deep"}"#
            ),
            r#"1 done here "mcp_1""#,
            "2 approval deep/delete mcpr_1",
            "2 with {}",
            r#"2 done here "mcpr_1""#,
            TOOL_CALLS,
        ],
    );
    expect(
        "shells-and-patches",
        &[
            r#"0 hosted local_shell {"command":["ls"],"env":{},"type":"exec"}"#,
            "0 in_progress",
            "0 completed",
            r#"0 done here "lsh_1""#,
            r#"1 hosted shell {"commands":[],"max_output_length":null,"timeout_ms":null}"#,
            "1 in_progress",
            r#"1 in_progress {"command":"cat river.md"}"#,
            r#"1 completed {"commands":["cat river.md"],"max_output_length":null,"timeout_ms":null}"#,
            r#"1 done here "sh_1""#,
            r#"2 hosted apply_patch {"diff":"","path":"a.md","type":"update_file"}"#,
            "2 in_progress",
            r#"2 completed {"diff":"@@\n-a\n+b\n","path":"a.md","type":"update_file"}"#,
            r#"2 done here "apc_1""#,
            STOP,
        ],
    );
}

#[test]
fn a_refusal_is_marked_text() {
    expect("refusal", &["0 message", "0.0 declines I can't help with that.", r#"0 done here "msg_1""#, STOP]);
}

#[test]
fn logprobs_are_passed_on() {
    expect(
        "logprobs",
        &[
            "0 message",
            "0.0 says Yes -0.5",
            "0.0 says . -0.25",
            r#"0 done here "msg_1""#,
            "end Stop 36/0/0/87/0 gpt-4.1-2025-04-14 default",
        ],
    );
}

#[test]
fn an_item_truncated_by_a_limit_is_incomplete() {
    expect(
        "incomplete-max-output-tokens",
        &[
            "0 message",
            "0.0 says I look.",
            r#"0 done here "msg_1""#,
            "1 call get_weather call_1abc",
            r#"1 with {"city":"Be"#,
            "end MaxTokens 36/0/0/16/0 gpt-5.2-2025-12-11 default",
        ],
    );
    let filtered = ["0 message", "0.0 says First one", "end ContentFilter 36/0/0/3/0 gpt-5.2-2025-12-11 default"];
    expect("incomplete-content-filter", &filtered);
}

#[test]
fn a_failure_has_its_reason_and_retryability() {
    expect(
        "failed",
        &[
            "0 message",
            "0.0 says The",
            "usage 36/0/0/1/0",
            "failed provider_error true The provider failed: The model had an error while processing your request.",
        ],
    );
    let limited = "failed rate_limited true The provider limits the rate of requests: Rate limit reached for gpt-5.";
    expect("error", &[limited]);
    let events = read([stream("failed").as_slice()]);
    let Some(ModelEvent::Failed(failure)) = events.last() else { panic!("{events:?}") };
    assert_eq!(failure.error.details.as_ref().unwrap()["code"], "server_error");
}

#[test]
fn unknown_items_are_passed_through() {
    let told = tell(&read([stream("not-ours").as_slice()]));
    let unknown: Vec<&str> = told.lines().filter(|line| line.starts_with("unknown")).collect();
    assert_eq!(unknown.len(), 7, "{told}");
    assert_eq!(unknown[0], r#"unknown {"delta":"AAAA","sequence_number":2,"type":"response.audio.delta"}"#);
    assert!(told.ends_with(&["1 message", "1.0 says Hi.", r#"1 done here "msg_1""#, STOP].join("\n")), "{told}");
}
