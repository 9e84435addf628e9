//! Searches of tools, this server's own and those of providers, in Responses and in run items.

use crate::responses::log::{Log, run, text, thread};
use crate::responses::order::{Frame, check};
use crate::responses::scenario_frames::{dropped, read, segment};
use crate::resumes::frames;
use protocol::run_items::RunItemsProjection;
use serde_json::{Value, json};

const QUERY: &str = r#"{"query":"weather"}"#;

fn found() -> Value {
    let weather = json!({"name": "get_weather", "description": "Weather.", "parameters": {"type": "object"}});
    json!({"tools": [{"name": "files__read", "namespace": "files", "description": "Reads."}, weather]})
}

/// A search, the call of a tool that it found, and the answer.
fn own_search() -> Log {
    let mut log = Log::new();
    log.step()
        .call(1, "tool_search", ["tool_search", "never"], &["{\"query\":", "\"weather\"}"])
        .step_done("tool_calls");
    let at = log.result_added(1);
    log.result_done(1, at, json!({"status": "completed", "artifact": found(), "block_list": [text("get_weather")]}));
    log.step().call(2, "get_weather", ["tool", "never"], &["{}"]).step_done("tool_calls");
    log.started(2, "{}").result(2, json!([text("Sunny.")]));
    log.step().message("msg_R3", &["It is sunny."], None).step_done("stop").completed();
    log
}

fn output(log: &Log) -> Value {
    let frames = segment(log, 1);
    check(&frames, &dropped(&log.records)).unwrap();
    frames.last().unwrap().1["response"]["output"].clone()
}

fn run_items(log: &Log) -> Vec<Frame> {
    let frames = read(&frames(Box::new(RunItemsProjection::new(run(), &thread())), &log.records));
    frames.into_iter().filter(|(event, _)| event == "run_item_stream_event").collect()
}

fn names(items: &[Frame]) -> Vec<&str> {
    items.iter().map(|(_, data)| data["name"].as_str().unwrap()).collect()
}

fn types(output: &Value) -> Vec<&str> {
    output.as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect()
}

#[test]
fn a_search_of_this_server_has_the_items_of_the_responses_protocol() {
    let output = output(&own_search());
    assert_eq!(types(&output), ["tool_search_call", "tool_search_output", "mcp_call", "message"]);
    let call = json!({
        "type": "tool_search_call", "id": "tsc_R1", "call_id": "call_R1", "execution": "server", "status": "completed",
        "arguments": {"query": "weather"},
    });
    assert_eq!(output[0], call);
    let function = |name: &str, description: &str, parameters: Value| {
        json!({
            "type": "function", "name": name, "description": description, "parameters": parameters, "strict": false,
            "defer_loading": true,
        })
    };
    let files = json!({
        "type": "namespace", "name": "files", "description": "Tools of files.",
        "tools": [function("files__read", "Reads.", Value::Null)],
    });
    let found = json!({
        "type": "tool_search_output", "id": "tso_R1", "call_id": "call_R1", "execution": "server",
        "status": "completed", "tools": [files, function("get_weather", "Weather.", json!({"type": "object"}))],
    });
    assert_eq!(output[1], found);
}

#[test]
fn run_items_have_the_events_of_a_search_in_order() {
    let items = run_items(&own_search());
    let expected =
        ["tool_search_called", "tool_search_output_created", "tool_called", "tool_output", "message_output_created"];
    assert_eq!(names(&items), expected);
    let item = |index: usize| &items[index].1["item"];
    assert_eq!(
        (&item(0)["type"], &item(1)["type"]),
        (&json!("tool_search_call_item"), &json!("tool_search_output_item"))
    );
    assert_eq!((&item(0)["raw_item"], &item(1)["raw_item"]), (&output(&own_search())[0], &output(&own_search())[1]));
    assert_eq!(item(1)["agent"]["name"], "demo");
}

#[test]
fn a_search_of_a_lost_turn_is_not_in_the_final_response() {
    let mut log = Log::new();
    log.step().call(1, "tool_search", ["tool_search", "never"], &[QUERY]).step_done("lost");
    log.add(json!({"type": "task.recovered", "step": 1, "attempt": 2, "cut": ["fc_R1"]}));
    log.step_again().message("msg_R2", &["Done."], None).step_done("stop").completed();
    assert_eq!(types(&output(&log)), ["message"]);
}

#[test]
fn a_search_that_failed_has_no_tools() {
    let mut log = Log::new();
    log.step().call(1, "tool_search", ["tool_search", "never"], &["{"]).step_done("tool_calls");
    log.no_result(1, "failed", "invalid_arguments", "not JSON");
    log.step().message("msg_R2", &["Done."], None).step_done("stop").completed();
    let output = output(&log);
    assert_eq!(
        (&output[0]["arguments"], &output[1]["status"], &output[1]["tools"]),
        (&json!({"query": "{"}), &json!("incomplete"), &json!([]))
    );
    assert_eq!(names(&run_items(&log))[..2], ["tool_search_called", "tool_search_output_created"]);
}

fn hosted(log: &mut Log, at: u32, name: &str, action: &Value) {
    let id = format!("hc_R{}", at + 1);
    let item = |status: &str| json!({"type": "hosted_call", "id": id, "name": name, "block_list": [], "action": action, "status": status});
    log.add(json!({"type": "task.output_item.added", "output_index": at, "item": item("in_progress")}));
    log.add(json!({"type": "task.output_item.done", "output_index": at, "item": item("completed")}));
}

#[test]
fn a_search_of_the_provider_is_shown_as_it_came() {
    let mut log = Log::new();
    log.step();
    hosted(&mut log, 0, "tool_search", &json!({"arguments": {"paths": ["crm"]}, "execution": "server"}));
    let tools = json!([{"type": "namespace", "name": "crm", "description": "CRM.", "tools": []}]);
    hosted(&mut log, 1, "tool_search_output", &json!({"tools": tools, "execution": "server"}));
    log.step_done("stop").completed();
    let output = output(&log);
    assert_eq!(types(&output), ["tool_search_call", "tool_search_output"]);
    assert_eq!((&output[0]["arguments"], &output[0]["call_id"]), (&json!({"paths": ["crm"]}), &Value::Null));
    assert_eq!((&output[1]["tools"], &output[1]["status"]), (&tools, &json!("completed")));
    assert_eq!(names(&run_items(&log)), ["tool_search_called", "tool_search_output_created"]);
}

/// The other provider has the tools that it found in the result of the same item, by their names.
#[test]
fn a_search_with_its_result_is_shown_as_a_call_and_an_output() {
    let mut log = Log::new();
    log.step();
    let result = json!({
        "type": "tool_search_tool_search_result",
        "tool_references": [{"type": "tool_reference", "tool_name": "get_weather"}],
    });
    hosted(&mut log, 0, "tool_search_tool_bm25", &json!({"input": {"query": "weather"}, "result": result}));
    log.step_done("stop").completed();
    let output = output(&log);
    assert_eq!(types(&output), ["tool_search_call", "tool_search_output"]);
    assert_eq!((&output[0]["arguments"], &output[0]["execution"]), (&json!({"query": "weather"}), &json!("server")));
    assert!(output[0].get("input").is_none() && output[0].get("result").is_none());
    assert_eq!((&output[1]["id"], &output[1]["tools"][0]["name"]), (&json!("tso_R1"), &json!("get_weather")));
    let items = run_items(&log);
    assert_eq!(names(&items), ["tool_search_called", "tool_search_output_created"]);
    assert_eq!(items[1].1["item"]["raw_item"], output[1]);
}
