//! Edge cases of responses: partial answers, lost turns, and content without a representation.

use super::log::{Log, text};
use super::order::check;
use super::scenario_frames::{dropped, segment, story};
use super::scenario_logs;
use model::record::PrivatePayload;
use protocol::responses::InputItems;
use serde_json::{Value, json};

fn output(log: &Log, number: u32) -> Value {
    let frames = segment(log, number);
    check(&frames, &dropped(&log.records)).unwrap();
    frames.last().unwrap().1["response"]["output"].clone()
}

fn of_item(log: &Log, index: usize, names: &str) -> Vec<String> {
    let frames = segment(log, 1);
    let own = frames.iter().filter(|(event, data)| data["output_index"] == index && event.contains(names));
    story(&own.cloned().collect::<Vec<_>>())
}

#[test]
fn pending_requests_are_listed_again_at_the_next_pause() {
    let (tool, client) = (["tool", "always"], ["client", "never"]);
    let mut log = Log::new();
    log.step().call(1, "execute_trade", tool, &["{}"]).call(2, "execute_trade", tool, &["{}"]);
    log.call(3, "pick", client, &["{}"]).step_done("tool_calls");
    log.ask(1, "execute_trade", json!({})).ask(2, "execute_trade", json!({}));
    log.pause(&[("approval", 1, "task_R"), ("approval", 2, "task_R"), ("client_tool", 3, "task_R")]);
    log.resume("user").decide(1, json!({"type": "approve"}), "user").started(1, "{}").result(1, json!([text("ok")]));
    log.pause(&[("approval", 2, "task_R"), ("client_tool", 3, "task_R")]);
    let ids = |number| -> Vec<String> {
        output(&log, number).as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(1), ["fc_R3", "apr_R1", "apr_R2"]);
    assert_eq!(ids(2), ["mcp_R1", "apr_R2", "fc_R3"]);
}

#[test]
fn edited_arguments_are_the_ones_shown() {
    let mut log = scenario_logs::trade();
    let less = json!({"symbol": "VNM", "quantity": 1});
    log.resume("user").decide(2, json!({"type": "edit", "args": less}), "user").started(2, &less.to_string());
    log.result(2, json!([text("Order placed: VNM x1")]));
    log.step().message("msg_R3", &["Done."], None).step_done("stop").completed();
    assert_eq!(output(&log, 2)[0]["arguments"], less.to_string());
    assert_eq!(output(&log, 1)[1]["arguments"], scenario_logs::ORDER);
}

/// Earlier versions logged the nearest number of 64 bits beside the text of the model, and showed the text.
#[test]
fn a_question_of_an_earlier_version_is_shown_as_it_was() {
    let shown = |args: Value| {
        let mut log = Log::new();
        log.step().call(1, "execute_trade", ["tool", "always"], &[r#"{"quantity": 1e2}"#]).step_done("tool_calls");
        log.ask(1, "execute_trade", args).pause(&[("approval", 1, "task_R")]);
        output(&log, 1)[0]["arguments"].clone()
    };
    assert_eq!(shown(json!({"quantity": 100.0})), r#"{"quantity": 1e2}"#);
    assert_eq!(shown(json!({"quantity": 7})), r#"{"quantity":7}"#);
}

#[test]
fn an_automatic_approval_is_not_shown() {
    let mut log = Log::new();
    log.step().call(1, "execute_trade", ["tool", "maybe"], &["{}"]).step_done("tool_calls");
    assert_eq!(segment(&log, 1).len(), 2, "nothing is known of it yet");
    log.started(1, "{}").result(1, json!([text("ok")])).step().message("msg_R2", &["Done."], None);
    log.step_done("stop").completed();
    let call = &output(&log, 1)[0];
    assert_eq!((&call["id"], &call["approval_request_id"]), (&json!("mcp_R1"), &Value::Null));
}

#[test]
fn calls_of_a_lost_turn_never_ran() {
    let mut log = Log::new();
    log.step().call(1, "get_weather", ["tool", "never"], &[scenario_logs::PARIS]);
    log.call(2, "execute_trade", ["tool", "always"], &["{}"]).step_done("lost");
    log.add(json!({"type": "task.recovered", "step": 1, "attempt": 2, "cut": ["fc_R1", "fc_R2"]}));
    log.step_again().message("msg_R3", &["No need."], None).step_done("stop").completed();
    let expected = ["output_item.done 0 mcp_R1 mcp_call incomplete"];
    assert_eq!(of_item(&log, 0, "output_item.done"), expected);
    assert_eq!(of_item(&log, 0, "mcp_call."), Vec::<String>::new());
    assert_eq!(output(&log, 1).as_array().unwrap().len(), 1);
}

#[test]
fn calls_of_a_limited_turn_end_incomplete() {
    let mut log = Log::new();
    log.step().call(1, "get_weather", ["tool", "never"], &["{}"]).call(2, "trade", ["tool", "always"], &["{}"]);
    log.step_done("max_tokens");
    log.no_result(1, "incomplete", "limit", "Not run.").no_result(2, "incomplete", "limit", "Not run.");
    log.ended("incomplete", json!({"reason": "content_filter"}));
    let items = output(&log, 1);
    assert_eq!((&items[0]["status"], &items[1]["status"]), (&json!("incomplete"), &json!("incomplete")));
    let last = segment(&log, 1).pop().unwrap().1;
    assert_eq!(last["response"]["incomplete_details"], json!({"reason": "content_filter"}));
}

/// A message of a text, an image and a refusal.
fn mixed() -> Log {
    let mut log = Log::new();
    log.step();
    let picture = json!({"type": "image", "image_url": {"url": "/v1/blobs/ab12"}});
    let cited = json!([
        {"type": "url_citation", "url": "https://example.org", "start_index": 0, "end_index": 2},
        {"type": "file_citation", "file_id": "file_1", "filename": "a.pdf", "index": 2},
    ]);
    let blocks = json!([
        {"type": "text", "text": "Hm.", "annotations": cited}, picture, {"type": "text", "text": "No.", "refusal": true},
    ]);
    let item = |blocks: &Value, status: &str| {
        json!({"type": "message", "id": "msg_R1", "role": "assistant", "phase": "commentary", "block_list": blocks,
            "status": status})
    };
    let added = item(&json!([]), "in_progress");
    log.add(json!({"type": "task.output_item.added", "output_index": 0, "item": added}));
    let place = |kind: &str, block: usize, more: Value| {
        let mut event = json!({"type": kind, "item_id": "msg_R1", "output_index": 0, "block_index": block});
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        event
    };
    log.add(place("task.text.done", 0, json!({"item": blocks[0]})));
    log.add(place("task.image.done", 1, json!({"item": blocks[1]})));
    let empty = json!({"type": "text", "text": "", "refusal": true});
    log.add(place("task.text.added", 2, json!({ "item": empty })));
    log.add(place("task.text.delta", 2, json!({"delta": "No."})));
    log.add(place("task.text.done", 2, json!({"item": {"type": "text", "refusal": true}})));
    let done = item(&blocks, "completed");
    log.add(json!({"type": "task.output_item.done", "output_index": 0, "item": done})).step_done("stop").completed();
    log
}

#[test]
fn a_message_has_texts_and_refusals_and_no_images() {
    let log = mixed();
    let expected = [
        "content_part.added 0.0",
        "output_text.delta 0.0 Hm.",
        r#"output_text.annotation.added 0.0 {"end_index":2,"start_index":0,"title":"https://example.org","type":"url_citation","url":"https://example.org"}"#,
        r#"output_text.annotation.added 0.0 {"file_id":"file_1","filename":"a.pdf","index":2,"type":"file_citation"}"#,
        "output_text.done 0.0 Hm.",
        "content_part.done 0.0",
        "content_part.added 0.1",
        "refusal.delta 0.1 No.",
        "refusal.done 0.1",
        "content_part.done 0.1",
    ];
    let inside = of_item(&log, 0, "");
    assert_eq!(inside[1..inside.len() - 1], expected);
    let item = &output(&log, 1)[0];
    assert_eq!(item["content"][1], json!({"type": "refusal", "refusal": "No."}));
    assert_eq!((&item["phase"], item["content"].as_array().unwrap().len()), (&json!("commentary"), 2));
}

#[test]
fn logprobs_come_with_their_deltas_and_with_the_complete_text() {
    let mut log = Log::new();
    log.step();
    let item = |blocks: Value, status: &str| json!({"type": "message", "id": "msg_R1", "role": "assistant", "block_list": blocks, "status": status});
    let added = item(json!([]), "in_progress");
    log.add(json!({"type": "task.output_item.added", "output_index": 0, "item": added}));
    let place = json!({"item_id": "msg_R1", "output_index": 0, "block_index": 0});
    let with = |kind: &str, more: Value| {
        let mut event = place.clone();
        event["type"] = kind.into();
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        event
    };
    log.add(with("task.text.added", json!({"item": {"type": "text", "text": ""}})));
    let likely = |token: &str| json!({"token": token, "logprob": -0.5});
    log.add(with("task.text.delta", json!({"delta": "a", "logprobs": [likely("a")]})));
    log.add(with("task.text.delta", json!({"delta": "b"})));
    log.add(with("task.text.delta", json!({"delta": "c", "logprobs": [likely("c")]})));
    log.add(with("task.text.done", json!({"item": {"type": "text", "text": "abc"}})));
    let done = item(json!([{"type": "text", "text": "abc"}]), "completed");
    log.add(json!({"type": "task.output_item.done", "output_index": 0, "item": done})).step_done("stop").completed();
    let frames = segment(&log, 1);
    let said = |event: &str| {
        frames.iter().filter(|(name, _)| name == event).map(|(_, data)| data["logprobs"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(said("response.output_text.delta"), [json!([likely("a")]), json!([]), json!([likely("c")])]);
    assert_eq!(said("response.output_text.done"), [json!([likely("a"), likely("c")])]);
    assert_eq!(output(&log, 1)[0]["content"][0]["logprobs"], json!([likely("a"), likely("c")]));
}

/// A hosted call: its name, its states with their actions, and its final status.
fn hosted(name: &str, states: &[(&str, Value)], status: &str) -> Log {
    let mut log = Log::new();
    log.step();
    let item = |status: &str, action: &Value| {
        let mut item = json!({"type": "hosted_call", "id": "hc_R1", "name": name, "block_list": [], "status": status});
        if !action.is_null() {
            item["action"] = action.clone();
        }
        item
    };
    let added = item("in_progress", &Value::Null);
    log.add(json!({"type": "task.output_item.added", "output_index": 0, "item": added}));
    for (state, action) in states {
        let mut moved =
            json!({"type": "task.hosted_call.updated", "item_id": "hc_R1", "output_index": 0, "state": state});
        if !action.is_null() {
            moved["action"] = action.clone();
        }
        log.add(moved);
    }
    let last = states.iter().rev().map(|(_, action)| action).find(|action| !action.is_null());
    let mut done = item(status, last.unwrap_or(&Value::Null));
    if status == "incomplete" {
        done["reason"] = "cancelled".into();
    }
    log.add(json!({"type": "task.output_item.done", "output_index": 0, "item": done})).step_done("stop").completed();
    log
}

#[test]
fn code_is_streamed_and_then_run() {
    let code = |code: &str| json!({ "code": code });
    let whole = json!({"code": "1 + 1", "container_id": "c_1"});
    let log = hosted(
        "code_interpreter",
        &[
            ("in_progress", Value::Null),
            ("in_progress", code("1 +")),
            ("interpreting", code("1 + 1")),
            ("completed", whole),
        ],
        "completed",
    );
    let expected = [
        "code_interpreter_call.in_progress 0",
        "code_interpreter_call_code.delta 0 1 +",
        "code_interpreter_call_code.delta 0  1",
        "code_interpreter_call_code.done 0",
        "code_interpreter_call.interpreting 0",
        "code_interpreter_call.completed 0",
    ];
    assert_eq!(of_item(&log, 0, "code_interpreter"), expected);
    let item = &output(&log, 1)[0];
    assert_eq!((&item["code"], &item["container_id"]), (&json!("1 + 1"), &json!("c_1")));
}

#[test]
fn hosted_calls_end_with_the_events_of_their_type() {
    let search = [("searching", json!({"query": "rivers"}))];
    let whole = &output(&hosted("web_search", &search, "completed"), 1)[0];
    let action = json!({"type": "search", "query": "rivers"});
    let id = json!("hc_R1");
    assert_eq!(*whole, json!({"type": "web_search_call", "id": id, "status": "completed", "action": action}));
    // The protocol has no other status for an interrupted search.
    assert_eq!(output(&hosted("web_search", &search, "incomplete"), 1)[0]["status"], "failed");
    assert_eq!(output(&hosted("file_search", &search, "incomplete"), 1)[0]["status"], "incomplete");
    let unknown = hosted("telepathy", &[("in_progress", json!({"to": "all"}))], "completed");
    let expected = [
        "mcp_call.in_progress 0",
        r#"mcp_call_arguments.delta 0 {"to":"all"}"#,
        r#"mcp_call_arguments.done 0 {"to":"all"}"#,
        "mcp_call.completed 0",
    ];
    assert_eq!(of_item(&unknown, 0, "mcp_call"), expected);
}

#[test]
fn the_outcome_of_an_mcp_call_comes_after_its_arguments() {
    let ask = |more: Value| {
        let mut action = json!({"name": "ask", "server_label": "deepwiki"});
        action.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        action
    };
    for (status, end) in [("failed", json!({"error": "no page"})), ("completed", json!({"output": "So."}))] {
        let mut last = ask(json!({"arguments": "{\"q\":1}"}));
        last.as_object_mut().unwrap().extend(end.as_object().cloned().unwrap());
        let states = [
            ("in_progress", ask(json!({}))),
            ("in_progress", ask(json!({"arguments": "{\"q\""}))),
            (status, Value::Null),
            (status, last),
        ];
        let log = hosted("mcp", &states, status);
        let expected = [
            "mcp_call.in_progress 0".to_owned(),
            r#"mcp_call_arguments.delta 0 {"q""#.to_owned(),
            "mcp_call_arguments.delta 0 :1}".to_owned(),
            r#"mcp_call_arguments.done 0 {"q":1}"#.to_owned(),
            format!("mcp_call.{status} 0"),
        ];
        assert_eq!(of_item(&log, 0, "mcp_call"), expected);
        let item = &output(&log, 1)[0];
        assert_eq!((&item["status"], &item["name"]), (&json!(status), &json!("ask")));
        assert_eq!((&item["server_label"], &item["arguments"]), (&json!("deepwiki"), &json!("{\"q\":1}")));
        assert_eq!(item["error"], end.get("error").cloned().unwrap_or_default());
    }
}

#[test]
fn the_service_tier_is_the_providers() {
    let tier = |echo: Value, told: Option<&str>| {
        let mut log = Log::asked(Some(echo));
        log.step().message("msg_R1", &["Hi."], None);
        let usage = json!({"input_tokens": 1, "cached_tokens": 0, "output_tokens": 1, "reasoning_tokens": 0});
        log.add(json!({
            "type": "task.step.done", "step": 1, "model": "m", "stop_reason": "stop", "usage": usage, "service_tier": told,
        }));
        log.completed();
        segment(&log, 1).last().unwrap().1["response"]["service_tier"].clone()
    };
    assert_eq!(tier(json!({"service_tier": "flex"}), Some("priority")), "priority");
    assert_eq!(tier(json!({}), Some("flex")), "flex");
    assert_eq!(tier(json!({"service_tier": "flex"}), None), "default");
}

#[test]
fn every_annotation_of_the_provider_is_passed_on() {
    let mut log = Log::new();
    log.step();
    let annotations = json!([
        {"type": "file_citation", "file_id": "file-1", "filename": "river.md", "index": 3, "quote": "It flows.",
            "start_index": 1, "end_index": 3},
        {"type": "container_file_citation", "container_id": "cntr_1", "file_id": "cfile_1", "filename": "plot.png",
            "start_index": 0, "end_index": 3},
        {"type": "file_path", "file_id": "file-2", "index": 4},
    ]);
    let item = |status: &str, blocks: Value| json!({"type": "message", "id": "msg_R1", "role": "assistant", "block_list": blocks, "status": status});
    let at = |kind: &str, more: Value| {
        let mut event = json!({"type": kind, "item_id": "msg_R1", "output_index": 0, "block_index": 0});
        event.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        event
    };
    let block = json!({"type": "text", "text": "See it.", "annotations": annotations});
    log.add(json!({"type": "task.output_item.added", "output_index": 0, "item": item("in_progress", json!([]))}));
    log.add(at("task.text.added", json!({"item": {"type": "text", "text": ""}})));
    log.add(at("task.text.delta", json!({"delta": "See it."})));
    for (index, annotation) in annotations.as_array().unwrap().iter().enumerate() {
        log.add(at("task.text.annotation.added", json!({"annotation_index": index, "annotation": annotation})));
    }
    log.add(at("task.text.done", json!({ "item": block })));
    log.add(json!({"type": "task.output_item.done", "output_index": 0, "item": item("completed", json!([block]))}));
    log.step_done("stop").completed();
    assert_eq!(output(&log, 1)[0]["content"][0]["annotations"], annotations);
}

/// The provider runs what was approved, and shows that itself: the decision is no item of ours.
#[test]
fn a_question_of_the_provider_has_the_label_of_its_server() {
    for decision in ["approve", "reject"] {
        let log = scenario_logs::hosted_approval(decision);
        let question = json!({"type": "mcp_approval_request", "id": "apr_R1", "name": "roll", "server_label": "dice",
            "arguments": "{\"n\":6}"});
        assert_eq!(output(&log, 1), json!([question]));
        let types: Vec<Value> = output(&log, 2).as_array().unwrap().iter().map(|item| item["type"].clone()).collect();
        assert_eq!(types, ["message"]);
    }
}

#[test]
fn a_pending_computer_call_has_the_shape_that_came() {
    let check = json!({"id": "sc_1", "code": "malicious_instructions", "message": "Take care."});
    for (key, value) in [("action", json!({"type": "click"})), ("actions", json!([{"type": "click"}]))] {
        let arguments = json!({key: value, "pending_safety_checks": [check]});
        let log = scenario_logs::client_computer(&arguments.to_string());
        let mut expected = json!({"type": "computer_call", "id": "fc_R1", "call_id": "call_R1", "status": "completed"});
        expected.as_object_mut().unwrap().extend(arguments.as_object().unwrap().clone());
        assert_eq!(output(&log, 1), json!([expected]));
    }
    // Not a computer call: then it is a function of that name.
    assert_eq!(output(&scenario_logs::client_computer("{}"), 1)[0]["type"], "function_call");
}

#[test]
fn a_screenshot_is_an_input_item_with_the_checks_that_the_client_acknowledged() {
    let mut log = Log::new();
    log.step().call(1, "computer", ["client", "never"], &[r#"{"actions":[]}"#]).step_done("tool_calls");
    log.pause(&[("client_tool", 1, "task_R")]).resume("user");
    let at = log.result_added(1);
    let image = json!({"type": "image", "image_url": {"url": "/v1/blobs/ab12"}});
    let place = json!({"item_id": "fco_R1", "output_index": at, "block_index": 0});
    let mut event = json!({"type": "task.image.done", "item": image});
    event.as_object_mut().unwrap().extend(place.as_object().unwrap().clone());
    log.add(event);
    let item = json!({"type": "tool_result", "id": "fco_R1", "call_id": "call_R1", "status": "completed"});
    let private =
        PrivatePayload { acknowledged_checks: Some(vec![json!({"id": "sc_1"})]), ..PrivatePayload::default() };
    log.with(json!({"type": "task.output_item.done", "output_index": at, "item": item}), private);
    let mut inputs = InputItems::default();
    let items: Vec<Value> = log.records.iter().flat_map(|record| inputs.read_record(record)).collect();
    let expected = json!([{"type": "computer_call_output", "id": "fco_R1", "call_id": "call_R1", "status": "completed",
        "output": {"type": "computer_screenshot", "image_url": "/v1/blobs/ab12"},
        "acknowledged_safety_checks": [{"id": "sc_1"}]}]);
    assert_eq!(Value::Array(items), expected);
}
