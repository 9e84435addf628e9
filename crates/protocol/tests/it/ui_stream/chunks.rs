//! The chunks of the demo's scenarios.

use super::project;
use crate::responses::log::{Log, text};
use crate::responses::scenario_logs as scenarios;
use protocol::ui_stream::UiVersion;
use serde_json::{Value, json};

/// A chunk in short: its type, what it is about, `!` for `providerExecuted` and `~` for `preliminary`.
fn brief(chunk: &Value) -> String {
    let names = ["messageId", "id", "approvalId", "toolCallId", "sourceId", "finishReason", "url", "reason"];
    let about = names.iter().find_map(|name| chunk[*name].as_str());
    let about = about.map(|about| format!("({about})")).unwrap_or_default();
    let mark = |name: &str, mark: &'static str| if chunk[name] == true { mark } else { "" };
    let taken_back = if chunk["providerExecuted"] == false { "?" } else { "" };
    let (executed, partial) = (mark("providerExecuted", "!"), mark("preliminary", "~"));
    format!("{}{about}{executed}{taken_back}{partial}", chunk["type"].as_str().unwrap())
}

fn briefs(log: &Log, segments: (u32, u32), version: UiVersion) -> Vec<String> {
    project(&log.records, segments, version).iter().map(brief).collect()
}

fn assert_chunks(log: &Log, segments: (u32, u32), version: UiVersion, expected: &str) {
    let expected: Vec<&str> = expected.split_whitespace().collect();
    assert_eq!(briefs(log, segments, version), expected);
}

fn find(log: &Log, version: UiVersion, chunk_type: &str) -> Vec<Value> {
    let is_wanted = |chunk: &Value| chunk["type"] == chunk_type;
    project(&log.records, (1, u32::MAX), version).into_iter().filter(is_wanted).collect()
}

#[test]
fn a_run_with_a_tool_is_one_message() {
    let log = scenarios::weather();
    assert_chunks(
        &log,
        (1, 1),
        UiVersion::Six,
        "start(task_R) start-step reasoning-start(rs_R1:0) reasoning-delta(rs_R1:0) reasoning-delta(rs_R1:0)
         reasoning-end(rs_R1:0) reasoning-start(rs_R1:1) reasoning-delta(rs_R1:1) reasoning-delta(rs_R1:1)
         reasoning-end(rs_R1:1) tool-input-start(call_R2)! tool-input-delta(call_R2) tool-input-delta(call_R2)
         tool-input-available(call_R2)! finish-step tool-output-available(call_R2)! start-step text-start(msg_R3:0)
         text-delta(msg_R3:0) text-delta(msg_R3:0) text-delta(msg_R3:0) source-document(ref-1) text-end(msg_R3:0)
         finish-step finish(stop)",
    );
    let [start] = &find(&log, UiVersion::Six, "start")[..] else { panic!("one start") };
    let metadata = json!({"agent": "demo", "createdAt": 1_710_000_000_010_u64, "runId": "task_R", "threadId": "thr_1"});
    assert_eq!(start["messageMetadata"], metadata);
    let [input] = &find(&log, UiVersion::Six, "tool-input-available")[..] else { panic!("one input") };
    assert_eq!(input["input"], json!({"location": "Paris, France"}));
    let [output] = &find(&log, UiVersion::Six, "tool-output-available")[..] else { panic!("one output") };
    let image = json!({"type": "image", "image_url": {"url": "/v1/blobs/ab12"}, "id": 1});
    let blocks = json!([text(r#"{"temperature":15}"#), image]);
    let words = "{\"temperature\":15}\n[image /v1/blobs/ab12]";
    assert_eq!(output["output"], json!({"text": words, "blocks": blocks}));
    let [end] = &find(&log, UiVersion::Six, "text-end")[..] else { panic!("one text") };
    let cited = json!({"headwater": {"citations": [{"start": 56, "end": 60, "reference": 1}]}});
    assert_eq!((&end["providerMetadata"], end.get("citations")), (&cited, None));
    let [end] = &find(&log, UiVersion::Seven, "text-end")[..] else { panic!("one text") };
    let source = json!({
        "type": "source", "sourceType": "document", "id": "ref-1", "mediaType": "text/plain", "title": "[1]",
    });
    assert_eq!(end["citations"], json!([{"source": source, "startIndex": 56, "endIndex": 60}]));
    let [finish] = &find(&log, UiVersion::Six, "finish")[..] else { panic!("one end") };
    assert_eq!(finish["messageMetadata"]["durationMs"], 7);
}

#[test]
fn a_sub_agent_is_a_call_and_a_data_part() {
    let log = scenarios::help();
    let chunks: Vec<String> = briefs(&log, (1, 1), UiVersion::Six);
    let chunks: Vec<&str> = chunks.iter().map(String::as_str).filter(|chunk| !chunk.starts_with("reasoning")).collect();
    let expected = "start(task_R) start-step tool-input-start(call_R2)! tool-input-delta(call_R2)
        tool-input-available(call_R2)! finish-step data-subagent(call_R2) data-subagent-delta data-subagent-delta
        data-subagent-delta data-subagent-delta data-subagent(call_R2) data-subagent(call_R2) data-subagent(call_R2)
        data-subagent(call_R2) data-subagent-delta data-subagent-delta data-subagent-delta data-subagent(call_R2)
        data-subagent(call_R2) tool-output-available(call_R2)! start-step text-start(msg_R6:0) text-delta(msg_R6:0)
        source-document(ref-1) text-end(msg_R6:0) finish-step finish(stop)";
    assert_eq!(chunks, expected.split_whitespace().collect::<Vec<_>>());
    let parts = find(&log, UiVersion::Six, "data-subagent");
    let last = &parts.last().unwrap()["data"];
    assert_eq!((&last["status"], &last["agent"]), (&json!("completed"), &json!("WeatherAgent")));
    let items: Vec<&str> = last["items"].as_array().unwrap().iter().filter_map(|item| item["type"].as_str()).collect();
    assert_eq!(items, ["reasoning", "tool", "text"]);
    assert_eq!(last["items"][1]["state"], "completed");
    let [output] = &find(&log, UiVersion::Six, "tool-output-available")[..] else { panic!("one output") };
    let answer = "The weather in Paris is sunny with a temperature of 15C.[^1]";
    assert_eq!(output["output"], json!({"text": answer, "blocks": []}));
}

#[test]
fn a_call_that_needs_approval_is_the_servers_once_it_runs() {
    let log = scenarios::trade_approved();
    let first = "start(task_R) start-step text-start(msg_R1:0) text-delta(msg_R1:0) text-end(msg_R1:0)
        tool-input-start(call_R2) tool-input-delta(call_R2) finish-step tool-input-available(call_R2)
        tool-approval-request(apr_R2) finish(tool-calls)";
    assert_chunks(&log, (1, 1), UiVersion::Six, first);
    assert_chunks(&log, (1, 1), UiVersion::Seven, first);
    let rest = "tool-input-available(call_R2)! tool-output-available(call_R2)! start-step text-start(msg_R3:0)
        text-delta(msg_R3:0) source-document(ref-1) text-end(msg_R3:0) finish-step finish(stop)";
    assert_chunks(&log, (2, 2), UiVersion::Six, &format!("start(task_R) {rest}"));
    assert_chunks(&log, (2, 2), UiVersion::Seven, &format!("start(task_R) tool-approval-response(apr_R2) {rest}"));
    assert_chunks(&log, (1, 2), UiVersion::Six, &format!("{first} start(task_R) {rest}"));
}

#[test]
fn a_rejected_call_is_denied_and_a_time_out_is_an_error() {
    let rest = "start-step text-start(msg_R3:0) text-delta(msg_R3:0) text-end(msg_R3:0) finish-step finish(stop)";
    let denied = format!("start(task_R) tool-input-available(call_R2)! tool-output-denied(call_R2) {rest}");
    assert_chunks(&scenarios::trade_refused("user"), (2, 2), UiVersion::Six, &denied);
    let late = scenarios::trade_refused("timeout");
    assert_chunks(&late, (2, 2), UiVersion::Six, &format!("start(task_R) tool-output-error(call_R2)! {rest}"));
    let [error] = &find(&late, UiVersion::Six, "tool-output-error")[..] else { panic!("one error") };
    assert_eq!(error["errorText"], "No decision within 300 s");
}

#[test]
fn a_call_of_the_client_is_shown_at_the_pause() {
    let log = scenarios::client();
    assert_chunks(
        &log,
        (1, 1),
        UiVersion::Six,
        "start(task_R) start-step tool-input-start(call_R1) tool-input-delta(call_R1) tool-input-delta(call_R1)
         finish-step tool-input-available(call_R1) finish(tool-calls)",
    );
    let second = "start(task_R) tool-output-available(call_R1) start-step text-start(msg_R2:0) text-delta(msg_R2:0)
        text-end(msg_R2:0) finish-step finish(stop)";
    assert_chunks(&log, (2, 2), UiVersion::Six, second);
    let [output] = &find(&log, UiVersion::Six, "tool-output-available")[..] else { panic!("one output") };
    assert_eq!((&output["output"], output.get("providerExecuted")), (&json!("red"), None));
    let start = &find(&log, UiVersion::Six, "tool-input-start")[0];
    assert_eq!((start["toolName"].as_str(), start.get("dynamic")), (Some("pick"), None));
    let computer = scenarios::client_computer(r#"{"action":{"type":"click"}}"#);
    let [output] = &find(&computer, UiVersion::Six, "tool-output-available")[..] else { panic!("one output") };
    assert_eq!(output["output"], json!({"image_url": "/v1/blobs/ab12"}));
}

#[test]
fn a_sub_agents_call_that_waits_is_shown_and_its_parent_is_paused() {
    let log = scenarios::nested();
    assert_chunks(
        &log,
        (1, 1),
        UiVersion::Six,
        "start(task_R) start-step tool-input-start(call_R1)! tool-input-delta(call_R1) tool-input-available(call_R1)!
         finish-step data-subagent(call_R1) data-subagent(call_R1) tool-input-start(call_R2)
         tool-input-available(call_R2) tool-approval-request(apr_R2) tool-output-available(call_R1)!
         finish(tool-calls)",
    );
    let second = briefs(&log, (2, 2), UiVersion::Six);
    let calls: Vec<&str> = second.iter().map(String::as_str).filter(|chunk| chunk.starts_with("tool-")).collect();
    let expected = [
        "tool-input-available(call_R1)!",
        "tool-input-available(call_R2)!",
        "tool-output-available(call_R2)!",
        "tool-output-available(call_R1)!",
    ];
    assert_eq!(calls, expected);
    let start = &find(&log, UiVersion::Six, "tool-input-start")[1];
    assert_eq!(start["toolMetadata"], json!({"kind": "tool", "subagent": "call_R1"}));
}

#[test]
fn ends_have_their_names() {
    let text =
        "start(task_R) start-step text-start(msg_R1:0) text-delta(msg_R1:0) text-delta(msg_R1:0) text-end(msg_R1:0)
        finish-step";
    let cancel = scenarios::cancel();
    assert_chunks(&cancel, (1, 1), UiVersion::Six, &format!("{text} message-metadata abort(cancelled)"));
    let cancelled = format!("{text} message-metadata abort(cancelled) finish(interrupted)");
    assert_chunks(&cancel, (1, 1), UiVersion::Seven, &cancelled);
    assert_chunks(&scenarios::fail("overloaded"), (1, 1), UiVersion::Six, &format!("{text} message-metadata error"));
    let limit = scenarios::limit();
    assert_chunks(&limit, (1, 1), UiVersion::Six, &format!("{text} finish(length)"));
    let [finish] = &find(&limit, UiVersion::Six, "finish")[..] else { panic!("one end") };
    let metadata = &finish["messageMetadata"];
    assert_eq!((&metadata["status"], &metadata["reason"]), (&json!("incomplete"), &json!("max_tokens")));
}

#[test]
fn a_run_that_ends_after_an_answer_has_one_more_step() {
    let mut log = Log::new();
    log.step().call(1, "pick", ["client", "never"], &["{}"]).step_done("tool_calls");
    log.pause(&[("client_tool", 1, "task_R")]).resume("user").result(1, json!([text("red")]));
    log.ended("incomplete", json!({"reason": "max_steps"}));
    let second = "start(task_R) tool-output-available(call_R1) start-step finish-step finish(length)";
    assert_chunks(&log, (2, 2), UiVersion::Six, second);
    let cancelled = scenarios::trade_cancelled();
    let second = "start(task_R) tool-output-error(call_R2)! message-metadata abort(cancelled)";
    assert_chunks(&cancelled, (2, 2), UiVersion::Six, second);
}

#[test]
fn version_7_takes_the_lost_step_back() {
    let log = scenarios::recover();
    let lost =
        "start(task_R) start-step text-start(msg_R1:0) text-delta(msg_R1:0) text-delta(msg_R1:0) text-end(msg_R1:0)
        finish-step";
    let again = "start-step text-start(msg_R2:0) text-delta(msg_R2:0) text-end(msg_R2:0) finish-step finish(stop)";
    assert_chunks(&log, (1, 1), UiVersion::Six, &format!("{lost} {again}"));
    assert_chunks(&log, (1, 1), UiVersion::Seven, &format!("{lost} reset-step {again}"));
}

#[test]
fn tools_of_the_provider_are_calls_with_their_images() {
    assert_chunks(
        &scenarios::image(),
        (1, 1),
        UiVersion::Six,
        "start(task_R) start-step tool-input-start(hc_R1)! tool-input-available(hc_R1)! tool-output-available(hc_R1)!~
         file(/v1/blobs/ab12) tool-output-available(hc_R1)! finish-step finish(stop)",
    );
    let servers = scenarios::mcp_server("approve");
    let [files, wiki] = &find(&servers, UiVersion::Six, "data-mcp-tools")[..] else { panic!("two lists") };
    assert_eq!(files["data"], json!({"serverLabel": "files", "tools": ["read"]}));
    assert_eq!(wiki["data"], json!({"serverLabel": "wiki", "tools": [], "error": "It is gone."}));
    let start = &find(&servers, UiVersion::Six, "tool-input-start")[0];
    assert_eq!(start["toolMetadata"], json!({"kind": "tool", "serverLabel": "files", "serverTool": "read"}));
}

#[test]
fn files_that_a_text_cites_are_sources_once() {
    let sources = find(&scenarios::cited_files(), UiVersion::Six, "source-document");
    let ids: Vec<&str> = sources.iter().filter_map(|source| source["sourceId"].as_str()).collect();
    assert_eq!(ids, ["file_1", "cfile_1", "file_2"]);
    assert_eq!((&sources[0]["title"], &sources[0]["filename"]), (&json!("a.pdf"), &json!("a.pdf")));
    assert_eq!((&sources[2]["title"], sources[2].get("filename")), (&json!("file_2"), None));
}

/// Adds a question of the tool of a call.
fn ask_question(log: &mut Log, call: u32, number: u32, message: &str) {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    log.add(json!({
        "type": "task.approval.requested", "key": format!("apr_R{call}_{number}"), "call_id": format!("call_R{call}"),
        "action_requests": [], "review_configs": [], "timeout_seconds": 300, "expires_at": 1_710_000_300_000_u64,
        "question": {"message": message, "schema": schema},
    }));
}

#[test]
fn the_questions_of_a_tool_are_shown_one_after_the_other() {
    let mut log = Log::new();
    log.step().call(1, "book", ["tool", "never"], &["{}"]).step_done("tool_calls").started(1, "{}");
    ask_question(&mut log, 1, 1, "From?");
    ask_question(&mut log, 1, 2, "To?");
    let request = |number: u32| json!({"kind": "question", "key": format!("apr_R1_{number}"), "call_id": "call_R1", "task_id": "task_R"});
    log.add(json!({"type": "task.paused", "pending": [request(1), request(2)]})).resume("user");
    let approve = json!({"type": "approve", "args": {"city": "Paris"}});
    log.add(json!({"type": "task.approval.resolved", "key": "apr_R1_1", "by": "user", "decisions": [approve]}));
    log.add(json!({"type": "task.paused", "pending": [request(2)]}));
    assert_chunks(
        &log,
        (1, 1),
        UiVersion::Six,
        "start(task_R) start-step tool-input-start(call_R1)! tool-input-delta(call_R1) tool-input-available(call_R1)!
         finish-step tool-input-available(call_R1)? tool-approval-request(apr_R1_1) finish(tool-calls)",
    );
    let second = "start(task_R) tool-approval-request(apr_R1_2) finish(tool-calls)";
    assert_chunks(&log, (2, 2), UiVersion::Six, second);
    let second = "start(task_R) tool-approval-response(apr_R1_1) tool-approval-request(apr_R1_2) finish(tool-calls)";
    assert_chunks(&log, (2, 2), UiVersion::Seven, second);
    let asked = &find(&log, UiVersion::Six, "tool-approval-request")[1]["approvalDescriptor"];
    assert_eq!((&asked["type"], &asked["message"]), (&json!("question"), &json!("To?")));
    assert_eq!(asked["schema"]["type"], "object");
}

#[test]
fn side_events_are_data() {
    let mut log = Log::new();
    log.step().add(json!({"type": "task.state.snapshot", "state": {"n": 1}}));
    log.add(json!({"type": "task.state.delta", "delta": [{"op": "replace", "path": "/n", "value": 2}]}));
    log.add(json!({"type": "task.custom", "name": "data-my chart", "value": [1]}));
    let message = json!({"id": "msg_R1", "role": "user", "content": [{"type": "text", "text": "Faster."}]});
    log.add(json!({"type": "task.input.added", "input": [message]}));
    log.message("msg_R2", &["Yes."], None).step_done("stop").completed();
    let states = find(&log, UiVersion::Six, "data-state");
    assert_eq!(states.iter().map(|chunk| chunk["data"]["n"].clone()).collect::<Vec<_>>(), [json!(1), json!(2)]);
    assert_eq!(find(&log, UiVersion::Six, "data-my-chart")[0]["data"], json!([1]));
    let parts = json!([{"type": "text", "text": "Faster."}]);
    let steering = &find(&log, UiVersion::Six, "data-steering")[0];
    assert_eq!((&steering["id"], &steering["data"]), (&json!("msg_R1"), &json!({"parts": parts})));
    assert_eq!(find(&log, UiVersion::Seven, "steering-message")[0]["parts"], parts);
    let handoff = scenarios::handoff();
    assert_eq!(find(&handoff, UiVersion::Six, "data-agent")[0]["data"]["agent"], "specialist");
    assert_eq!(find(&handoff, UiVersion::Six, "message-metadata")[0]["messageMetadata"]["agent"], "specialist");
}

#[test]
fn results_that_grow_are_partial_outputs() {
    let mut log = Log::new();
    log.step().call(1, "render", ["tool", "never"], &["{}"]).step_done("tool_calls").started(1, "{}");
    let at = log.result_added(1);
    let place = json!({"item_id": "fco_R1", "output_index": at, "block_index": 0});
    let event = |kind: &str, member: &str, value: Value| {
        let mut event = place.clone();
        event["type"] = kind.into();
        event[member] = value;
        event
    };
    log.add(event("task.text.added", "item", json!({"type": "text", "text": ""})));
    log.add(event("task.text.delta", "delta", json!("half "))).add(event("task.text.delta", "delta", json!("done")));
    log.add(event("task.text.done", "item", json!({"type": "text", "text": "half done"})));
    log.result_done(1, at, json!({"status": "completed"})).step();
    log.message("msg_R2", &["So."], None).step_done("stop").completed();
    let chunks = briefs(&log, (1, 1), UiVersion::Six).join(" ");
    let shown = "data-tool-output data-tool-output tool-output-available(call_R1)!~ tool-output-available(call_R1)!";
    assert!(chunks.contains(shown), "{chunks}");
    let outputs = find(&log, UiVersion::Six, "tool-output-available");
    assert_eq!(outputs[0]["output"]["text"], outputs[1]["output"]["text"]);
}
