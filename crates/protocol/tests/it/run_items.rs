//! Run items: the frames of the demo's scenarios in short, and the laws over random logs.

use crate::responses::log::{Log, run, text, thread};
use crate::responses::order::{Frame, check};
use crate::responses::scenario_frames::read;
use crate::responses::scenario_logs;
use crate::resumes::{Place, frames, hold};
use model::event::Event;
use model::item::Item;
use model::ports::{Frames, Projection};
use model::{Record, ThreadId};
use model_testing::{LogOptions, generate_thread_log, test_seeds};
use protocol::run_items::{RUN_ITEMS_PROJECTION, RunItemsProjection};
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn frames_of(log: &Log) -> Vec<Frame> {
    read(&frames(Box::new(RunItemsProjection::new(run(), &thread())), &log.records))
}

/// Each event in short; consecutive raw frames of one response are one line.
fn story(frames: &[Frame]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for (event, data) in frames {
        assert_eq!(data["type"], event.as_str());
        let line = match event.as_str() {
            "raw_response_event" => {
                let raw = data["data"]["type"].as_str().unwrap().strip_prefix("response.").unwrap();
                let of = data["data"]["response"]["id"].as_str().or(data["data"]["item"]["id"].as_str());
                let piece = of.map_or_else(String::new, |of| format!(" {raw}({of})"));
                match lines.last_mut() {
                    Some(last) if last.starts_with("raw") => {
                        last.push_str(&piece);
                        continue;
                    }
                    _ => format!("raw{piece}"),
                }
            }
            "agent_updated_stream_event" => format!("agent {}", data["new_agent"]["name"].as_str().unwrap()),
            "run_item_stream_event" => {
                let (item, name) = (&data["item"], data["name"].as_str().unwrap());
                let raw = &item["raw_item"];
                let id = raw["id"].as_str().or(raw["call_id"].as_str()).unwrap();
                let (kind, agent) = (item["type"].as_str().unwrap(), item["agent"]["name"].as_str().unwrap());
                let output = item["output"].as_str().map(|output| format!(" = {output}")).unwrap_or_default();
                format!("{name} {kind} {id} {} by {agent}{output}", raw["type"].as_str().unwrap())
            }
            _ => data.to_string(),
        };
        lines.push(line);
    }
    lines
}

#[track_caller]
fn assert_lines(log: &Log, lines: &[&str]) {
    let frames = frames_of(log);
    let told = story(&frames);
    assert_eq!(told, lines, "\n{}", told.join("\n"));
    raw_responses_are_in_order(&frames).unwrap();
}

/// Every raw response by itself is a valid stream.
fn raw_responses_are_in_order(frames: &[Frame]) -> Result<(), String> {
    let raw = frames.iter().filter(|(event, _)| event == "raw_response_event");
    let raw: Vec<Frame> =
        raw.map(|(_, data)| (data["data"]["type"].as_str().unwrap().to_owned(), data["data"].clone())).collect();
    let begins = |frame: &Frame| frame.0 == "response.created";
    let starts: Vec<usize> = (0..raw.len()).filter(|at| begins(&raw[*at])).collect();
    let mut names = BTreeSet::new();
    for (place, start) in starts.iter().enumerate() {
        let end = starts.get(place + 1).copied().unwrap_or(raw.len());
        check(&raw[*start..end], &BTreeSet::new())?;
        if !names.insert(raw[*start].1["response"]["id"].to_string()) {
            return Err("one id for two responses".to_owned());
        }
    }
    if starts.first().is_none_or(|first| *first == 0) { Ok(()) } else { Err("raw frames of no response".to_owned()) }
}

const ENDED: &str = r#"{"interruptions":[],"reason":null,"status":"completed","type":"run_ended"}"#;

#[test]
fn a_call_is_shown_when_complete_and_its_output_when_available() {
    assert_lines(
        &scenario_logs::weather(),
        &[
            "agent demo",
            "raw created(resp_R_s1) in_progress(resp_R_s1) output_item.added(rs_R1) output_item.done(rs_R1)",
            "reasoning_item_created reasoning_item rs_R1 reasoning by demo",
            "raw output_item.added(fc_R2) output_item.done(fc_R2)",
            "tool_called tool_call_item fc_R2 function_call by demo",
            "raw completed(resp_R_s1)",
            "tool_output tool_call_output_item call_R2 function_call_output by demo = {\"temperature\":15}\n[image /v1/blobs/ab12]",
            "raw created(resp_R_s2) in_progress(resp_R_s2) output_item.added(msg_R3) output_item.done(msg_R3)",
            "message_output_created message_output_item msg_R3 message by demo",
            "raw completed(resp_R_s2)",
            ENDED,
        ],
    );
}

#[test]
fn a_sub_agent_shows_only_its_call_and_last_message() {
    let told = story(&frames_of(&scenario_logs::help()));
    let items: Vec<&String> = told.iter().filter(|line| !line.starts_with("raw")).collect();
    let answer = "The weather in Paris is sunny with a temperature of 15C.[^1]";
    let output = format!("tool_output tool_call_output_item call_R2 function_call_output by demo = {answer}");
    let expected = [
        "agent demo",
        "reasoning_item_created reasoning_item rs_R1 reasoning by demo",
        "tool_called tool_call_item fc_R2 function_call by demo",
        &output,
        "message_output_created message_output_item msg_R6 message by demo",
        ENDED,
    ];
    assert_eq!(items, expected);
}

#[test]
fn a_pause_lists_its_approvals_and_repeats_no_item() {
    let before = [
        "agent demo",
        "raw created(resp_R_s1) in_progress(resp_R_s1) output_item.added(msg_R1) output_item.done(msg_R1)",
        "message_output_created message_output_item msg_R1 message by demo",
        "raw output_item.added(fc_R2) output_item.done(fc_R2)",
        "tool_called tool_call_item fc_R2 function_call by demo",
        "raw completed(resp_R_s1)",
    ];
    let asked = json!({"agent": {"name": "demo"}, "key": "apr_R2", "call_id": "call_R2", "task_id": "task_R", "tool_name": "execute_trade", "arguments": scenario_logs::ORDER});
    let paused = json!({"type": "run_paused", "reason": "approval", "interruptions": [asked]}).to_string();
    let after = [
        "raw created(resp_R_s2) in_progress(resp_R_s2) output_item.added(msg_R3) output_item.done(msg_R3)",
        "message_output_created message_output_item msg_R3 message by demo",
        "raw completed(resp_R_s2)",
        ENDED,
    ];
    let ends = [
        (scenario_logs::trade_approved(), "Order placed: VNM x100"),
        (scenario_logs::trade_refused("user"), "Rejected: too risky"),
        (scenario_logs::trade_refused("timeout"), "No decision within 300 s"),
    ];
    for (log, output) in ends {
        let output = format!("tool_output tool_call_output_item call_R2 function_call_output by demo = {output}");
        let told = [&before[..], &[&paused, "agent demo", &output], &after[..]].concat();
        assert_lines(&log, &told);
    }
    let ended = r#"{"interruptions":[],"reason":"user","status":"cancelled","type":"run_ended"}"#;
    assert_lines(&scenario_logs::trade_cancelled(), &[&before[..], &[&paused, "agent demo", ended]].concat());
}

#[test]
fn a_pause_for_client_tools_is_marked() {
    let asked = json!({"agent": {"name": "demo"}, "key": null, "call_id": "call_R1", "task_id": "task_R", "tool_name": "pick", "arguments": "{}"});
    let paused = json!({"type": "run_paused", "reason": "client_tool", "interruptions": [asked]}).to_string();
    assert_lines(
        &scenario_logs::client(),
        &[
            "agent demo",
            "raw created(resp_R_s1) in_progress(resp_R_s1) output_item.added(fc_R1) output_item.done(fc_R1)",
            "tool_called tool_call_item fc_R1 function_call by demo",
            "raw completed(resp_R_s1)",
            &paused,
            "agent demo",
            "tool_output tool_call_output_item call_R1 function_call_output by demo = red",
            "raw created(resp_R_s2) in_progress(resp_R_s2) output_item.added(msg_R2) output_item.done(msg_R2)",
            "message_output_created message_output_item msg_R2 message by demo",
            "raw completed(resp_R_s2)",
            ENDED,
        ],
    );
}

#[test]
fn interrupted_items_are_in_the_raw_frames_only() {
    let message = "raw created(resp_R_s1) in_progress(resp_R_s1) output_item.added(msg_R1) output_item.done(msg_R1)";
    let ended = |status: &str, reason: &str| json!({"type": "run_ended", "status": status, "reason": reason, "interruptions": []});
    let mut failed = ended("failed", "provider_error");
    failed["error"] = json!({"code": "provider_error", "message": "The provider failed."});
    for (log, raw, ended) in [
        (scenario_logs::cancel(), "incomplete(resp_R_s1)", ended("cancelled", "user")),
        (scenario_logs::limit(), "incomplete(resp_R_s1)", ended("incomplete", "max_tokens")),
        (scenario_logs::fail("provider_error"), "failed(resp_R_s1)", failed),
    ] {
        assert_lines(&log, &["agent demo", &format!("{message} {raw}"), &ended.to_string()]);
    }
    let again = "created(resp_R_s2) in_progress(resp_R_s2) output_item.added(msg_R2) output_item.done(msg_R2)";
    let told = "message_output_created message_output_item msg_R2 message by demo";
    let raw = format!("{message} failed(resp_R_s1) {again}");
    assert_lines(&scenario_logs::recover(), &["agent demo", &raw, told, "raw completed(resp_R_s2)", ENDED]);
}

#[test]
fn a_handoff_has_its_own_event_names() {
    assert_lines(
        &scenario_logs::handoff(),
        &[
            "agent demo",
            "raw created(resp_R_s1) in_progress(resp_R_s1) output_item.added(fc_R1) output_item.done(fc_R1)",
            "handoff_requested handoff_call_item fc_R1 function_call by demo",
            "raw completed(resp_R_s1)",
            r#"handoff_occured handoff_output_item call_R1 function_call_output by demo = {"assistant":"specialist"}"#,
            "agent specialist",
            "raw created(resp_R_s2) in_progress(resp_R_s2) output_item.added(msg_R2) output_item.done(msg_R2)",
            "message_output_created message_output_item msg_R2 message by specialist",
            "raw completed(resp_R_s2)",
            ENDED,
        ],
    );
}

#[test]
fn a_hosted_tool_call_has_its_own_shape() {
    let told = story(&frames_of(&scenario_logs::image()));
    assert_eq!(told[2], "tool_called tool_call_item hc_R1 image_generation_call by demo");
}

#[test]
fn a_computer_call_has_actions_and_returns_a_screenshot() {
    let screen = json!([text("clicked"), {"type": "image", "image_url": {"url": "/v1/blobs/cd34"}}]);
    let wait = json!({"type": "wait"});
    for (key, value) in [("action", wait.clone()), ("actions", json!([wait])), ("actions", json!([wait, wait]))] {
        let arguments = json!({key: value, "pending_safety_checks": []}).to_string();
        let mut log = Log::new();
        log.step().call(1, "computer", ["tool", "never"], &[&arguments]).step_done("tool_calls");
        log.started(1, &arguments).result(1, screen.clone());
        log.step().message("msg_R2", &["Done."], None).step_done("stop").completed();
        let frames = frames_of(&log);
        let item = |name: &str| frames.iter().find(|(_, data)| data["name"] == name).unwrap().1["item"].clone();
        let call = &item("tool_called")["raw_item"];
        assert_eq!((&call["type"], &call["call_id"]), (&json!("computer_call"), &json!("call_R1")));
        let other = if key == "action" { "actions" } else { "action" };
        assert_eq!((call.get(key), call.get(other)), (Some(&value), None), "in the shape that came");
        let output = item("tool_output");
        let shot = json!({"type": "computer_screenshot", "image_url": "/v1/blobs/cd34"});
        let raw = json!({"type": "computer_call_output", "call_id": "call_R1", "output": shot});
        assert_eq!((&output["raw_item"], &output["output"]), (&raw, &json!("/v1/blobs/cd34")));
    }
}

#[test]
fn a_question_of_the_provider_and_its_answer_have_their_own_events() {
    let before = [
        "agent demo",
        "raw created(resp_R_s1) in_progress(resp_R_s1) output_item.added(apr_R1) output_item.done(apr_R1)",
        "mcp_approval_requested mcp_approval_request_item apr_R1 mcp_approval_request by demo",
        "raw completed(resp_R_s1)",
    ];
    let asked = json!({"agent": {"name": "demo"}, "key": "apr_R1", "call_id": "call_R1", "task_id": "task_R", "tool_name": "roll", "arguments": "{\"n\":6}", "server_label": "dice"});
    let paused = json!({"type": "run_paused", "reason": "approval", "interruptions": [asked]}).to_string();
    let after = [
        "mcp_approval_response mcp_approval_response_item aprr_R1 mcp_approval_response by demo",
        "raw created(resp_R_s2) in_progress(resp_R_s2) output_item.added(msg_R2) output_item.done(msg_R2)",
        "message_output_created message_output_item msg_R2 message by demo",
        "raw completed(resp_R_s2)",
        ENDED,
    ];
    for decision in ["approve", "reject"] {
        let log = scenario_logs::hosted_approval(decision);
        assert_lines(&log, &[&before[..], &[&paused, "agent demo"], &after[..]].concat());
        let frames = frames_of(&log);
        let raw =
            |name: &str| frames.iter().find(|(_, data)| data["name"] == name).unwrap().1["item"]["raw_item"].clone();
        let question = json!({"type": "mcp_approval_request", "id": "apr_R1", "name": "roll", "server_label": "dice",
            "arguments": "{\"n\":6}"});
        assert_eq!(raw("mcp_approval_requested"), question);
        let reason = (decision == "reject").then_some("not today");
        let answer = json!({"type": "mcp_approval_response", "id": "aprr_R1", "approval_request_id": "apr_R1",
            "approve": decision == "approve", "reason": reason});
        assert_eq!(raw("mcp_approval_response"), answer);
    }
}

/// Also in the raw frames, where a call of a configured tool is a function call.
#[test]
fn a_computer_call_for_the_client_has_its_shape_everywhere() {
    let log = scenario_logs::client_computer(r#"{"actions":[{"type":"wait"}]}"#);
    let told = story(&frames_of(&log));
    assert_eq!(
        told[1..3],
        [
            "raw created(resp_R_s1) in_progress(resp_R_s1) output_item.added(fc_R1) output_item.done(fc_R1)",
            "tool_called tool_call_item fc_R1 computer_call by demo",
        ]
    );
    let frames = frames_of(&log);
    let done = frames.iter().find(|(_, data)| data["data"]["type"] == "response.output_item.done").unwrap();
    let called = frames.iter().find(|(_, data)| data["name"] == "tool_called").unwrap();
    assert_eq!(done.1["data"]["item"], called.1["item"]["raw_item"]);
    assert_eq!(called.1["item"]["raw_item"]["actions"], json!([{"type": "wait"}]));
}

#[test]
fn laws_4_and_5_hold() {
    hold(Place::Id(RUN_ITEMS_PROJECTION), |thread: &ThreadId, records: &[Record]| {
        Box::new(RunItemsProjection::new(records[0].run.clone(), thread))
    });
}

/// A thread's stream is the concatenation of its runs' streams, and never ends.
#[test]
fn a_thread_shows_its_runs_in_order() {
    for seed in test_seeds() {
        let (thread, log) = generate_thread_log(seed, LogOptions::small());
        let mut ids: Vec<_> = log.iter().map(|record| record.run.clone()).collect();
        ids.dedup();
        let runs = ids.iter().map(|run| frames(Box::new(RunItemsProjection::new(run.clone(), &thread)), &log));
        let runs: Vec<u8> = runs.flatten().collect();
        let mut out = Frames::default();
        let mut projection = RunItemsProjection::for_thread(&thread);
        log.iter().for_each(|record| projection.project(record, &mut out));
        let (bytes, _, over) = out.into_parts();
        assert_eq!((bytes.as_ref(), over), (runs.as_slice(), false), "seed {seed}");
    }
}

#[test]
fn random_runs_show_every_complete_item_once_and_end_once() {
    for seed in test_seeds() {
        let (thread, log) = generate_thread_log(seed, LogOptions::default());
        let mut ids: Vec<_> = log.iter().map(|record| record.run.clone()).collect();
        ids.dedup();
        for run in ids {
            let frames = read(&frames(Box::new(RunItemsProjection::new(run.clone(), &thread)), &log));
            raw_responses_are_in_order(&frames).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
            let told = frames.iter().filter(|(event, _)| event == "run_item_stream_event");
            let told: Vec<String> = told.map(|(_, data)| named(&data["item"]["raw_item"])).collect();
            let whole = log.iter().filter(|record| record.run == run && record.task_id() == Some(run.as_str()));
            let whole: Vec<String> = whole.filter_map(|record| whole_item(record.event())).collect();
            assert_eq!(told, whole, "seed {seed}");
            let ends: Vec<usize> = (0..frames.len()).filter(|at| frames[*at].0 == "run_ended").collect();
            assert_eq!(ends, [frames.len() - 1], "seed {seed}");
        }
    }
}

fn named(raw: &Value) -> String {
    let id = raw["id"].as_str().map(str::to_owned);
    let id = id.unwrap_or_else(|| raw["call_id"].as_str().unwrap().replace("call_", "fco_"));
    // A question has the id of its approval, and an answer one like it; a search and what it found have ids of their own.
    id.replace("apr_", "fc_").replace("aprr_", "fco_").replace("tsc_", "fc_").replace("tso_", "fco_")
}

/// The item that an event declares complete.
fn whole_item(event: &Event) -> Option<String> {
    use model::item::{ItemStatus, ResultStatus};
    let Event::ItemDone(done) = event else { return None };
    let is_whole = match &done.item {
        Item::Reasoning(item) => item.status == Some(ItemStatus::Completed),
        Item::Message(item) => item.status == Some(ItemStatus::Completed),
        Item::ToolCall(item) => item.status == Some(ItemStatus::Completed),
        Item::HostedCall(item) => item.status == Some(ItemStatus::Completed),
        Item::ToolResult(item) => item.status != Some(ResultStatus::Incomplete),
        Item::FileProcessing(_) => false,
    };
    is_whole.then(|| done.item.id().to_string())
}
