//! Responses frame by frame: the demo's scenarios, one line per frame, and the laws over random logs.

use super::log::{Log, run, thread};
use super::order::{Client, Frame, check};
use super::scenario_logs;
use crate::resumes::{Place, frames, hold, runs};
use model::event::Event;
use model::ports::{Frames, Projection};
use model::{Record, TaskId, ThreadId};
use model_testing::{LogOptions, generate_thread_log, test_seeds};
use protocol::responses::ResponsesProjection;
use serde_json::{Value, json};
use sse::{DecodeLimits, Decoder};
use std::collections::BTreeSet;

/// The events of a stream.
pub(crate) fn read(mut bytes: &[u8]) -> Vec<Frame> {
    let mut decoder = Decoder::new(DecodeLimits { line_bytes_max: 1 << 24, event_bytes_max: 1 << 24 });
    let mut events = Vec::new();
    while let Some(event) = decoder.decode(&mut bytes).unwrap() {
        let data = serde_json::from_str(&event.data).unwrap();
        events.push((event.event.unwrap(), data));
    }
    events
}

pub(crate) fn segment(log: &Log, number: u32) -> Vec<Frame> {
    read(&frames(Box::new(ResponsesProjection::new(run(), number, &thread())), &log.records))
}

/// A response as lines: each frame's type and its essential fields.
pub(crate) fn story(frames: &[Frame]) -> Vec<String> {
    frames.iter().map(|(event, data)| line(event.strip_prefix("response.").unwrap_or(event), data)).collect()
}

fn line(name: &str, data: &Value) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let place = &data["output_index"];
    if let Some(object) = data.get("response") {
        let output: Vec<String> = object["output"].as_array().unwrap().iter().map(|item| text(&item["id"])).collect();
        return format!("{name} {} {} [{}]", text(&object["id"]), text(&object["status"]), output.join(" "));
    }
    if let Some(item) = data.get("item") {
        let status = item.get("status").map(|status| format!(" {}", text(status))).unwrap_or_default();
        return format!("{name} {place} {} {}{status}", text(&item["id"]), text(&item["type"]));
    }
    let index = data.get("summary_index").or(data.get("content_index"));
    let place = index.map_or(place.to_string(), |index| format!("{place}.{index}"));
    let said = ["delta", "text", "arguments", "annotation", "partial_image_b64"].iter().find_map(|key| data.get(*key));
    said.map_or_else(|| format!("{name} {place}"), |said| format!("{name} {place} {}", text(said)))
}

#[track_caller]
fn assert_lines(log: &Log, number: u32, lines: &[&str]) {
    let frames = segment(log, number);
    let told = story(&frames);
    assert_eq!(told, lines, "\n{}", told.join("\n"));
    let dropped = dropped(&log.records);
    check(&frames, &dropped).unwrap();
}

/// The items that were repeated.
pub(crate) fn dropped(records: &[Record]) -> BTreeSet<String> {
    let mut dropped = BTreeSet::new();
    for record in records {
        if let Event::Recovered(recovered) = record.event() {
            for id in &recovered.cut {
                dropped.insert(id.to_string());
                let number = id.as_str().strip_prefix("fc_");
                dropped.extend(number.into_iter().flat_map(|n| [format!("mcp_{n}"), format!("tsc_{n}")]));
            }
        }
    }
    dropped
}

const THOUGHTS: [&str; 12] = [
    "output_item.added 0 rs_R1 reasoning in_progress",
    "reasoning_summary_part.added 0.0",
    "reasoning_summary_text.delta 0.0 Let me",
    "reasoning_summary_text.delta 0.0  see.",
    "reasoning_summary_text.done 0.0 Let me see.",
    "reasoning_summary_part.done 0.0",
    "reasoning_summary_part.added 0.1",
    "reasoning_summary_text.delta 0.1 A tool",
    "reasoning_summary_text.delta 0.1  knows.",
    "reasoning_summary_text.done 0.1 A tool knows.",
    "reasoning_summary_part.done 0.1",
    "output_item.done 0 rs_R1 reasoning completed",
];

const BEGINS: [&str; 2] = ["created resp_R in_progress []", "in_progress resp_R in_progress []"];
const GOES_ON: [&str; 2] = ["created resp_R_2 in_progress []", "in_progress resp_R_2 in_progress []"];

/// A message in one delta.
fn message_lines(index: u32, id: &str, text: &str) -> Vec<String> {
    vec![
        format!("output_item.added {index} {id} message in_progress"),
        format!("content_part.added {index}.0"),
        format!("output_text.delta {index}.0 {text}"),
        format!("output_text.done {index}.0 {text}"),
        format!("content_part.done {index}.0"),
        format!("output_item.done {index} {id} message completed"),
    ]
}

#[track_caller]
fn tells_all(log: &Log, number: u32, lines: &[Vec<String>]) {
    let lines = lines.concat();
    assert_lines(log, number, &lines.iter().map(String::as_str).collect::<Vec<_>>());
}

fn own(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

#[test]
fn a_server_tool_is_an_mcp_call_and_a_reference_a_url_citation() {
    let cited = r#"{"end_index":60,"start_index":56,"title":"[1]","type":"url_citation","url":"headwater:/threads/thr_1/references/1"}"#;
    let annotated = format!("output_text.annotation.added 2.0 {cited}");
    tells_all(
        &scenario_logs::weather(),
        1,
        &[
            own(&BEGINS),
            own(&THOUGHTS),
            own(&[
                "output_item.added 1 mcp_R2 mcp_call in_progress",
                r#"mcp_call_arguments.delta 1 {"location":"#,
                r#"mcp_call_arguments.delta 1 "Paris, France"}"#,
                r#"mcp_call_arguments.done 1 {"location":"Paris, France"}"#,
                "mcp_call.in_progress 1",
                "mcp_call.completed 1",
                "output_item.done 1 mcp_R2 mcp_call completed",
                "output_item.added 2 msg_R3 message in_progress",
                "content_part.added 2.0",
                "output_text.delta 2.0 The weather in Paris is sunny ",
                "output_text.delta 2.0 with a temperature of 15C.[^",
                "output_text.delta 2.0 1]",
                &annotated,
                "output_text.done 2.0 The weather in Paris is sunny with a temperature of 15C.[^1]",
                "content_part.done 2.0",
                "output_item.done 2 msg_R3 message completed",
                "completed resp_R completed [rs_R1 mcp_R2 msg_R3]",
            ]),
        ],
    );
    let frames = segment(&scenario_logs::weather(), 1);
    let call = &frames.last().unwrap().1["response"]["output"][1];
    let expected = json!({
        "id": "mcp_R2", "type": "mcp_call", "name": "get_weather", "server_label": "headwater",
        "arguments": scenario_logs::PARIS, "status": "completed", "output": "{\"temperature\":15}\n[image /v1/blobs/ab12]",
        "error": null, "approval_request_id": null,
    });
    assert_eq!(*call, expected);
}

#[test]
fn a_sub_agent_is_one_call_that_returns_its_last_message() {
    let log = scenario_logs::help();
    let call = [
        "output_item.added 1 mcp_R2 mcp_call in_progress",
        "mcp_call_arguments.delta 1 {}",
        "mcp_call_arguments.done 1 {}",
        "mcp_call.in_progress 1",
        "mcp_call.completed 1",
        "output_item.done 1 mcp_R2 mcp_call completed",
    ];
    let mut message = message_lines(2, "msg_R6", "WeatherAgent says: sunny, 15C.[^1]");
    let cited = r#"{"end_index":34,"start_index":30,"title":"[1]","type":"url_citation","url":"headwater:/threads/thr_1/references/1"}"#;
    message.insert(3, format!("output_text.annotation.added 2.0 {cited}"));
    let end = own(&["completed resp_R completed [rs_R1 mcp_R2 msg_R6]"]);
    tells_all(&log, 1, &[own(&BEGINS), own(&THOUGHTS), own(&call), message, end]);
    let last = &segment(&log, 1).pop().unwrap().1["response"];
    let answer = "The weather in Paris is sunny with a temperature of 15C.[^1]";
    assert_eq!(last["output"][1]["output"], answer);
    // Four turns, two of them of the sub-agent.
    let usage = json!({
        "input_tokens": 40, "input_tokens_details": {"cached_tokens": 16, "cache_write_tokens": 0},
        "output_tokens": 20, "output_tokens_details": {"reasoning_tokens": 8}, "total_tokens": 60,
    });
    assert_eq!(last["usage"], usage);
}

#[test]
fn parallel_calls_end_as_their_tools_do() {
    let mut calls: Vec<String> = Vec::new();
    for (index, id) in ["mcp_R1", "mcp_R2", "mcp_R3"].iter().enumerate() {
        calls.push(format!("output_item.added {index} {id} mcp_call in_progress"));
        calls.push(format!("mcp_call_arguments.delta {index} {{}}"));
        calls.push(format!("mcp_call_arguments.done {index} {{}}"));
    }
    calls.extend((0..3).map(|index| format!("mcp_call.in_progress {index}")));
    for (index, id) in [(1, "mcp_R2"), (0, "mcp_R1"), (2, "mcp_R3")] {
        calls.push(format!("mcp_call.completed {index}"));
        calls.push(format!("output_item.done {index} {id} mcp_call completed"));
    }
    let end = own(&["completed resp_R completed [mcp_R1 mcp_R2 mcp_R3 msg_R4]"]);
    tells_all(&scenario_logs::parallel(), 1, &[own(&BEGINS), calls, message_lines(3, "msg_R4", "All three."), end]);
}

#[test]
fn a_call_that_needs_approval_ends_the_response_with_an_approval_request() {
    let question = [
        "output_item.added 1 apr_R2 mcp_approval_request",
        "output_item.done 1 apr_R2 mcp_approval_request",
        "completed resp_R completed [msg_R1 apr_R2]",
    ];
    let message = message_lines(0, "msg_R1", "I will place the order.");
    for log in [scenario_logs::trade(), scenario_logs::trade_approved(), scenario_logs::trade_cancelled()] {
        tells_all(&log, 1, &[own(&BEGINS), message.clone(), own(&question)]);
    }
    let asked = &segment(&scenario_logs::trade(), 1).pop().unwrap().1["response"]["output"][1];
    let expected = json!({
        "id": "apr_R2", "type": "mcp_approval_request", "server_label": "headwater", "name": "execute_trade",
        "arguments": scenario_logs::ORDER,
    });
    assert_eq!(*asked, expected);
}

#[test]
fn the_next_response_starts_with_the_outcome_of_the_approval() {
    let shown = [
        "output_item.added 0 mcp_R2 mcp_call in_progress".to_owned(),
        format!("mcp_call_arguments.delta 0 {}", scenario_logs::ORDER),
        format!("mcp_call_arguments.done 0 {}", scenario_logs::ORDER),
    ];
    let ran = ["mcp_call.in_progress 0", "mcp_call.completed 0", "output_item.done 0 mcp_R2 mcp_call completed"];
    let mut message = message_lines(1, "msg_R3", "Done: bought VNM.[^1]");
    let cited = r#"{"end_index":21,"start_index":17,"title":"[1]","type":"url_citation","url":"headwater:/threads/thr_1/references/1"}"#;
    message.insert(3, format!("output_text.annotation.added 1.0 {cited}"));
    let end = own(&["completed resp_R_2 completed [mcp_R2 msg_R3]"]);
    let approved = scenario_logs::trade_approved();
    tells_all(&approved, 2, &[own(&GOES_ON), shown.to_vec(), own(&ran), message, end.clone()]);
    let last = &segment(&approved, 2).pop().unwrap().1["response"];
    assert_eq!(last["previous_response_id"], "resp_R");
    assert_eq!(last["output"][0]["approval_request_id"], "apr_R2");
    assert_eq!(last["output"][0]["output"], "Order placed: VNM x100");

    let refused = ["mcp_call.failed 0", "output_item.done 0 mcp_R2 mcp_call failed"];
    for (by, why) in [("user", "too risky"), ("timeout", "No decision within 300 s")] {
        let log = scenario_logs::trade_refused(by);
        let message = message_lines(1, "msg_R3", "I did not.");
        tells_all(&log, 2, &[own(&GOES_ON), shown.to_vec(), own(&refused), message, end.clone()]);
        let call = &segment(&log, 2).pop().unwrap().1["response"]["output"][0];
        let error = json!({"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": why}]});
        assert_eq!((&call["error"], &call["output"]), (&error, &Value::Null));
    }

    let cancelled = own(&["output_item.done 0 mcp_R2 mcp_call incomplete", "incomplete resp_R_2 cancelled [mcp_R2]"]);
    tells_all(&scenario_logs::trade_cancelled(), 2, &[own(&GOES_ON), shown.to_vec(), cancelled]);
}

#[test]
fn a_client_tool_is_a_function_call_and_its_result_is_not_echoed() {
    let call = [
        "output_item.added 0 fc_R1 function_call in_progress",
        "function_call_arguments.delta 0 {",
        "function_call_arguments.delta 0 }",
        "function_call_arguments.done 0 {}",
        "output_item.done 0 fc_R1 function_call completed",
        "completed resp_R completed [fc_R1]",
    ];
    let log = scenario_logs::client();
    tells_all(&log, 1, &[own(&BEGINS), own(&call)]);
    let end = own(&["completed resp_R_2 completed [msg_R2]"]);
    tells_all(&log, 2, &[own(&GOES_ON), message_lines(0, "msg_R2", "Red, then."), end]);
    let call = &segment(&log, 1).pop().unwrap().1["response"]["output"][0];
    let expected = json!({"id": "fc_R1", "type": "function_call", "call_id": "call_R1", "name": "pick",
        "arguments": "{}", "status": "completed"});
    assert_eq!(*call, expected);
    assert_eq!(segment(&log, 3), []);
}

/// An interrupted text in two deltas.
fn cut(second: &str) -> Vec<String> {
    vec![
        "output_item.added 0 msg_R1 message in_progress".to_owned(),
        "content_part.added 0.0".to_owned(),
        "output_text.delta 0.0 Once upon ".to_owned(),
        format!("output_text.delta 0.0 {second}"),
        format!("output_text.done 0.0 Once upon {second}"),
        "content_part.done 0.0".to_owned(),
        "output_item.done 0 msg_R1 message incomplete".to_owned(),
    ]
}

#[test]
fn every_terminal_event_keeps_the_partial_output() {
    let ends = [
        (scenario_logs::cancel(), "incomplete resp_R cancelled [msg_R1]"),
        (scenario_logs::limit(), "incomplete resp_R incomplete [msg_R1]"),
        (scenario_logs::fail("provider_error"), "failed resp_R failed [msg_R1]"),
    ];
    for (log, end) in &ends {
        tells_all(log, 1, &[own(&BEGINS), cut("a time"), own(&[end])]);
        let output = &segment(log, 1).pop().unwrap().1["response"]["output"];
        assert_eq!(output[0]["content"][0]["text"], "Once upon a time");
    }
    let last = |log: &Log| segment(log, 1).pop().unwrap().1["response"].clone();
    assert_eq!(last(&ends[0].0)["incomplete_details"], json!({"reason": "cancelled"}));
    assert_eq!(last(&ends[1].0)["incomplete_details"], json!({"reason": "max_output_tokens"}));
    let error = json!({"code": "server_error", "message": "The provider failed."});
    assert_eq!(last(&ends[2].0)["error"], error);
    assert_eq!(last(&scenario_logs::fail("rate_limited"))["error"]["code"], "rate_limit_exceeded");
}

#[test]
fn repeated_items_are_streamed_and_left_out_of_the_final_output() {
    let end = own(&["completed resp_R completed [msg_R2]"]);
    tells_all(
        &scenario_logs::recover(),
        1,
        &[own(&BEGINS), cut("a ti"), message_lines(1, "msg_R2", "Once more."), end],
    );
}

#[test]
fn a_handoff_is_a_call() {
    let call = [
        "output_item.added 0 mcp_R1 mcp_call in_progress",
        "mcp_call_arguments.delta 0 {}",
        "mcp_call_arguments.done 0 {}",
        "mcp_call.in_progress 0",
        "mcp_call.completed 0",
        "output_item.done 0 mcp_R1 mcp_call completed",
    ];
    let end = own(&["completed resp_R completed [mcp_R1 msg_R2]"]);
    tells_all(
        &scenario_logs::handoff(),
        1,
        &[own(&BEGINS), own(&call), message_lines(1, "msg_R2", "The specialist here."), end],
    );
}

#[test]
fn a_sub_agents_approval_is_shown_and_its_call_continues_in_the_next_response() {
    let log = scenario_logs::nested();
    let begun = [
        "output_item.added 0 mcp_R1 mcp_call in_progress",
        "mcp_call_arguments.delta 0 {}",
        "mcp_call_arguments.done 0 {}",
        "mcp_call.in_progress 0",
    ];
    let asked = [
        "output_item.done 0 mcp_R1 mcp_call incomplete",
        "output_item.added 1 apr_R2 mcp_approval_request",
        "output_item.done 1 apr_R2 mcp_approval_request",
        "completed resp_R completed [mcp_R1 apr_R2]",
    ];
    tells_all(&log, 1, &[own(&BEGINS), own(&begun), own(&asked)]);
    let ended = ["mcp_call.completed 0", "output_item.done 0 mcp_R1 mcp_call completed"];
    let end = own(&["completed resp_R_2 completed [mcp_R1 msg_R4]"]);
    tells_all(&log, 2, &[own(&GOES_ON), own(&begun), own(&ended), message_lines(1, "msg_R4", "It is done."), end]);
    assert_eq!(segment(&log, 2).pop().unwrap().1["response"]["output"][0]["output"], "Bought.");
}

#[test]
fn an_image_is_generated_in_partial_steps() {
    let drawn = [
        "output_item.added 0 hc_R1 image_generation_call in_progress",
        "image_generation_call.in_progress 0",
        "image_generation_call.generating 0",
        "image_generation_call.partial_image 0 AAAA",
        "image_generation_call.completed 0",
        "output_item.done 0 hc_R1 image_generation_call completed",
        "completed resp_R completed [hc_R1]",
    ];
    tells_all(&scenario_logs::image(), 1, &[own(&BEGINS), own(&drawn)]);
    let output = &segment(&scenario_logs::image(), 1).pop().unwrap().1["response"]["output"];
    assert_eq!(output[0]["result"], "/v1/blobs/ab12");
}

#[test]
fn each_response_echoes_its_own_request() {
    let mut log =
        scenario_logs::trade_asked(Some(json!({"instructions": "Be brief.", "model": "demo/x", "store": false})));
    let echo = Some(json!({"instructions": "Now be long.", "metadata": {"a": "b"}}));
    let private = model::record::PrivatePayload { request_echo: echo, ..model::record::PrivatePayload::default() };
    log.with(json!({"type": "task.resumed", "by": "user"}), private);
    let first = &segment(&log, 1)[0].1["response"];
    assert_eq!((&first["instructions"], &first["store"]), (&json!("Be brief."), &json!(false)));
    assert_eq!((&first["model"], &first["metadata"]), (&json!("demo/x"), &json!({"topic": "rivers"})));
    assert_eq!((&first["created_at"], &first["previous_response_id"]), (&json!(1_710_000_000), &Value::Null));
    let second = &segment(&log, 2)[0].1["response"];
    assert_eq!((&second["instructions"], &second["store"]), (&json!("Now be long."), &json!(true)));
    assert_eq!((&second["model"], &second["metadata"]), (&json!("demo"), &json!({"a": "b"})));
    assert_eq!(second["previous_response_id"], "resp_R");
}

/// Every response of a run: its number, and whether the log has its end.
fn segments(records: &[Record]) -> u32 {
    let resumed = records.iter().filter(|record| matches!(record.event(), Event::Resumed(_))).count();
    u32::try_from(resumed).unwrap() + 1
}

#[test]
fn every_response_of_every_random_run_passes_the_order_check() {
    let mut seen = BTreeSet::new();
    for seed in test_seeds() {
        let (thread, log) = generate_thread_log(seed, LogOptions::default());
        let mut ids: Vec<TaskId> = log.iter().map(|record| record.run.clone()).collect();
        ids.dedup();
        for run in ids {
            let dropped = dropped(&log);
            for number in 1..=segments(&log.iter().filter(|record| record.run == run).cloned().collect::<Vec<_>>()) {
                // The projection selects its own records from the thread's.
                let frames = read(&frames(Box::new(ResponsesProjection::new(run.clone(), number, &thread)), &log));
                check(&frames, &dropped).unwrap_or_else(|why| panic!("seed {seed}, {run} segment {number}: {why}"));
                seen.extend(frames.into_iter().map(|(event, _)| event));
            }
        }
    }
    // A test over logs without these cases would prove nothing.
    for event in ["refusal.delta", "mcp_call.failed", "web_search_call.searching", "output_text.annotation.added"] {
        assert!(seen.contains(&format!("response.{event}")), "{event}");
    }
}

#[test]
fn laws_4_and_5_hold_for_every_segment() {
    for number in 1..=3 {
        hold(Place::Count, |thread: &ThreadId, records: &[Record]| {
            Box::new(ResponsesProjection::new(records[0].run.clone(), number, thread))
        });
    }
}

/// What a client has accumulated equals the object at any moment.
#[test]
fn law_6_the_object_equals_the_accumulated_frames() {
    for seed in test_seeds() {
        for (thread, records) in runs(seed) {
            for number in 1..=segments(&records) {
                agrees(seed, &mut ResponsesProjection::new(records[0].run.clone(), number, &thread), &records);
            }
        }
    }
}

fn agrees(seed: u64, segment: &mut ResponsesProjection, records: &[Record]) {
    let mut client = Client::default();
    let (mut last, mut count) = (Value::Null, 0);
    for record in records {
        let mut out = Frames::default();
        segment.project(record, &mut out);
        let (bytes, _, over) = out.into_parts();
        for (event, data) in read(&bytes) {
            count += 1;
            if let Some(object) = data.get("response") {
                last = object.clone();
            } else {
                client.take_unnumbered(&event, &data).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
            }
        }
        assert_eq!(segment.frame_count(), count, "seed {seed}");
        let Some(object) = segment.object() else {
            assert!(last.is_null(), "seed {seed}: an object is missing");
            continue;
        };
        if over {
            assert_eq!(object, last, "seed {seed}: the last object");
            continue;
        }
        let output = object["output"].as_array().unwrap();
        assert_eq!(output.len(), client.items.len(), "seed {seed}");
        for (shown, item) in output.iter().zip(&client.items) {
            let parts = shown.get("content").or(shown.get("summary")).and_then(Value::as_array);
            let words = parts.into_iter().flatten().map(|part| part.get("text").unwrap_or(&part["refusal"]));
            let words: Vec<&str> = words.filter_map(Value::as_str).collect();
            let heard: Vec<&str> = item.parts.iter().map(|part| part.text.as_str()).collect();
            assert_eq!((shown["id"].as_str(), words), (Some(item.id.as_str()), heard), "seed {seed}");
            if matches!(shown["type"].as_str(), Some("mcp_call" | "function_call")) {
                assert_eq!(shown["arguments"], item.arguments.as_str(), "seed {seed}");
            }
        }
    }
}
