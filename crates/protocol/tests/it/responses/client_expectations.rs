//! Common complaints of clients about such servers, one test each. The checks of `order` hold for every stream; these
//! state each requirement briefly and independently.

use super::log::Log;
use super::order::Frame;
use super::scenario_frames::segment;
use super::scenario_logs;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Every response of every scenario.
fn responses() -> Vec<Vec<Frame>> {
    let scenes = [
        scenario_logs::weather(),
        scenario_logs::help(),
        scenario_logs::parallel(),
        scenario_logs::trade_approved(),
        scenario_logs::trade_refused("user"),
        scenario_logs::trade_cancelled(),
        scenario_logs::client(),
        scenario_logs::fail("provider_error"),
        scenario_logs::cancel(),
        scenario_logs::limit(),
        scenario_logs::recover(),
        scenario_logs::handoff(),
        scenario_logs::nested(),
        scenario_logs::image(),
        side_by_side(),
    ];
    let all = scenes.iter().flat_map(|log| [segment(log, 1), segment(log, 2)]);
    all.filter(|frames| !frames.is_empty()).collect()
}

/// Two calls with interleaved arguments.
fn side_by_side() -> Log {
    let mut log = Log::new();
    log.step();
    let item = |number: u32, arguments: &str, status: &str| {
        json!({"type": "tool_call", "id": format!("fc_R{number}"), "call_id": format!("call_R{number}"), "name": "pick",
            "arguments": arguments, "kind": "client", "gate": "never", "status": status})
    };
    let place = |number: u32| json!({"item_id": format!("fc_R{number}"), "output_index": number - 1});
    let with = |number: u32, kind: &str, more: Value| {
        let mut event = place(number);
        event["type"] = kind.into();
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        event
    };
    for number in [1, 2] {
        log.add(with(number, "task.output_item.added", json!({"item": item(number, "", "in_progress")})));
    }
    for piece in ["{\"n\":", "N}"] {
        for number in [1, 2] {
            let delta = piece.replace('N', &number.to_string());
            log.add(with(number, "task.tool_call_arguments.delta", json!({ "delta": delta })));
        }
    }
    for number in [2, 1] {
        let arguments = format!("{{\"n\":{number}}}");
        log.add(with(number, "task.tool_call_arguments.done", json!({ "arguments": arguments })));
        log.add(with(number, "task.output_item.done", json!({"item": item(number, &arguments, "completed")})));
    }
    log.step_done("tool_calls").pause(&[("client_tool", 1, "task_R"), ("client_tool", 2, "task_R")]);
    log
}

fn text<'a>(data: &'a Value, key: &str) -> &'a str {
    data[key].as_str().unwrap_or_else(|| panic!("no {key} in {data}"))
}

/// The positions of the frames of this item and of this type.
fn places(frames: &[Frame], id: &str, kind: &str) -> Vec<usize> {
    let is_it = |(event, data): &Frame| event == kind && (data["item_id"] == id || data["item"]["id"] == id);
    frames.iter().enumerate().filter(|(_, frame)| is_it(frame)).map(|(place, _)| place).collect()
}

fn items(frames: &[Frame]) -> Vec<&Value> {
    let added = frames.iter().filter(|(event, _)| event == "response.output_item.added");
    added.map(|(_, data)| &data["item"]).collect()
}

#[test]
fn content_indexes_start_at_zero_in_every_item() {
    for frames in responses() {
        for item in items(&frames) {
            let id = text(item, "id");
            for (kind, key) in [("content_part", "content_index"), ("reasoning_summary_part", "summary_index")] {
                let added = places(&frames, id, &format!("response.{kind}.added"));
                let numbers: Vec<&Value> = added.iter().map(|place| &frames[*place].1[key]).collect();
                assert_eq!(numbers, (0..added.len()).collect::<Vec<_>>(), "{id}");
            }
        }
    }
}

#[test]
fn no_delta_comes_before_its_item_and_part() {
    for frames in responses() {
        for (place, (event, data)) in frames.iter().enumerate() {
            if event == "response.output_text.delta" {
                let id = text(data, "item_id");
                let first = |kind: &str| places(&frames, id, kind).into_iter().next().unwrap();
                let (item, part) = (first("response.output_item.added"), first("response.content_part.added"));
                assert!(item < part && part < place, "{id}");
            }
        }
    }
}

#[test]
fn an_item_has_one_id_and_one_index_in_all_frames_and_in_the_final_object() {
    for frames in responses() {
        let mut ids: BTreeMap<u64, String> = BTreeMap::new();
        for (event, data) in &frames {
            let Some(index) = data["output_index"].as_u64() else { continue };
            let id = data.get("item").map_or_else(|| text(data, "item_id"), |item| text(item, "id"));
            if event == "response.output_item.added" {
                assert_eq!(index, ids.len() as u64, "places go up by one");
                ids.insert(index, id.to_owned());
            }
            assert_eq!(ids[&index], id, "{event}");
        }
        let output = frames.last().unwrap().1["response"]["output"].as_array().unwrap();
        assert!(output.iter().all(|item| ids.values().any(|id| *id == text(item, "id"))));
    }
}

#[test]
fn the_complete_text_comes_before_the_end_of_its_part() {
    for frames in responses() {
        for item in items(&frames).iter().filter(|item| item["type"] == "message") {
            let id = text(item, "id");
            let of = |kind: &str| places(&frames, id, kind);
            let (texts, parts) = (of("response.output_text.done"), of("response.content_part.done"));
            assert_eq!(texts.len(), parts.len());
            for (said, part) in texts.iter().zip(&parts) {
                assert!(said < part);
                assert_eq!(frames[*said].1["text"], frames[*part].1["part"]["text"]);
            }
        }
    }
}

#[test]
fn a_call_ends_after_its_arguments_and_is_in_the_output() {
    let mut calls = 0;
    for frames in responses() {
        for item in items(&frames) {
            let (id, kind) = (text(item, "id"), text(item, "type"));
            if !matches!(kind, "function_call" | "mcp_call") {
                continue;
            }
            calls += 1;
            let said = places(&frames, id, &format!("response.{kind}_arguments.done"));
            let done = places(&frames, id, "response.output_item.done");
            assert!(said.len() == 1 && done.len() == 1 && said[0] < done[0], "{id}");
            let output = frames.last().unwrap().1["response"]["output"].as_array().unwrap();
            assert!(output.iter().any(|item| *item == frames[done[0]].1["item"]), "{id}");
        }
    }
    assert!(calls > 8, "{calls}");
}

#[test]
fn arguments_of_parallel_calls_never_mix() {
    let frames = segment(&side_by_side(), 1);
    for (index, whole) in [(0, "{\"n\":1}"), (1, "{\"n\":2}")] {
        let deltas = frames
            .iter()
            .filter(|(event, data)| event == "response.function_call_arguments.delta" && data["output_index"] == index);
        assert_eq!(deltas.map(|(_, data)| text(data, "delta")).collect::<String>(), whole);
    }
    let deltas = frames.iter().filter(|(event, _)| event.ends_with("arguments.delta"));
    let order: Vec<&Value> = deltas.map(|(_, data)| &data["output_index"]).collect();
    assert_eq!(order, [0, 1, 0, 1], "they do come in turns");
}

#[test]
fn sequence_numbers_have_no_gaps() {
    for frames in responses() {
        let numbers: Vec<&Value> = frames.iter().map(|(_, data)| &data["sequence_number"]).collect();
        assert_eq!(numbers, (0..frames.len()).collect::<Vec<_>>());
    }
}

#[test]
fn a_limit_is_incomplete_and_never_completed() {
    let frames = segment(&scenario_logs::limit(), 1);
    let (event, data) = frames.last().unwrap();
    let response = &data["response"];
    assert_eq!((event.as_str(), &response["status"]), ("response.incomplete", &json!("incomplete")));
    assert_eq!(response["incomplete_details"], json!({"reason": "max_output_tokens"}));
    assert_eq!(response["output"][0]["status"], "incomplete", "and so is what was cut");
}

#[test]
fn every_response_has_one_terminal_event_with_all_output_and_its_cause() {
    for frames in responses() {
        let ends = ["response.completed", "response.incomplete", "response.failed"];
        let ended: Vec<&Frame> = frames.iter().filter(|(event, _)| ends.contains(&event.as_str())).collect();
        assert_eq!((ended.len(), ended[0]), (1, frames.last().unwrap()));
        let (event, data) = ended[0];
        let response = &data["response"];
        assert!(text(response, "id").starts_with("resp_") && response["object"] == "response");
        assert!(response["model"].is_string() && response["usage"]["total_tokens"].is_u64());
        assert_eq!(response["error"].is_object(), event == "response.failed");
        assert!(data.get("error").is_none(), "an error on top ends the stream for some");
    }
}

#[test]
fn reasoning_is_shown_as_summaries() {
    let frames = segment(&scenario_logs::weather(), 1);
    let deltas = frames.iter().filter(|(event, _)| event == "response.reasoning_summary_text.delta");
    let thought: String = deltas.map(|(_, data)| text(data, "delta")).collect();
    let whole = &frames.last().unwrap().1["response"]["output"][0]["summary"];
    let parts: String = whole.as_array().unwrap().iter().map(|part| text(part, "text")).collect();
    assert!(!thought.is_empty());
    assert_eq!(thought, parts);
    assert!(frames.iter().all(|(event, _)| !event.contains("reasoning_text")), "nothing is thought twice");
}
