//! A run with an MCP server of the config, in each protocol: the label of the server, and its own names.

use crate::responses::log::{Log, run, thread};
use crate::responses::scenario_frames::{read, segment};
use crate::responses::scenario_logs::mcp_server;
use crate::resumes::frames;
use model::ports::Projection;
use protocol::agent_runs::AgentRunsProjection;
use protocol::blocks::BlocksProjection;
use protocol::messages::MessagesProjection;
use protocol::run_items::RunItemsProjection;
use serde_json::{Value, json};

fn output(log: &Log, number: u32) -> Value {
    segment(log, number).last().unwrap().1["response"]["output"].clone()
}

/// The frames of a projection, as JSON.
fn shown(projection: Box<dyn Projection>, log: &Log) -> Vec<Value> {
    let bytes = frames(projection, &log.records);
    let text = String::from_utf8(bytes.clone()).unwrap();
    match text.starts_with('{') {
        true => text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
        false => read(&bytes).into_iter().map(|(_, data)| data).collect(),
    }
}

fn find<'a>(frames: &'a [Value], pointer: &str, value: &str) -> &'a Value {
    let found = frames.iter().find(|frame| frame.pointer(pointer).is_some_and(|found| found == value));
    found.unwrap_or_else(|| panic!("no {value} at {pointer} in {frames:#?}"))
}

#[test]
fn responses_have_lists_approvals_and_calls_with_the_servers_own_label() {
    let log = mcp_server("approve");
    let first = output(&log, 1);
    let tool = json!({"name": "read", "description": "Reads.", "input_schema": {"type": "object"}});
    let listed = json!({"type": "mcp_list_tools", "id": "hc_R1", "server_label": "files", "tools": [tool], "status": "completed"});
    let missing = json!({"type": "mcp_list_tools", "id": "hc_R2", "server_label": "wiki", "tools": [], "error": "It is gone.",
        "status": "failed"});
    let asked = json!({"type": "mcp_approval_request", "id": "apr_R3", "name": "read", "server_label": "files", "arguments": "{\"n\":6}"});
    assert_eq!(first, json!([listed, missing, asked]));
    let call = &output(&log, 2)[0];
    assert_eq!(
        (&call["type"], &call["name"], &call["server_label"], &call["output"], &call["approval_request_id"]),
        (&json!("mcp_call"), &json!("read"), &json!("files"), &json!("six"), &json!("apr_R3"))
    );
    let events: Vec<String> = segment(&log, 1).into_iter().map(|(event, _)| event).collect();
    assert!(events.iter().any(|event| event == "response.mcp_list_tools.completed"), "{events:?}");
    assert!(events.iter().any(|event| event == "response.mcp_list_tools.failed"), "{events:?}");
}

/// The names and types of requirement 001 and of the SDK, in their order.
#[test]
fn run_items_have_the_events_of_an_mcp_server() {
    for (decision, output) in [("approve", "six"), ("reject", "Rejected: not today")] {
        let log = mcp_server(decision);
        let frames = shown(Box::new(RunItemsProjection::new(run(), &thread())), &log);
        let items: Vec<&Value> = frames.iter().filter(|frame| frame["type"] == "run_item_stream_event").collect();
        let story: Vec<String> = items
            .iter()
            .map(|frame| {
                let (item, raw) = (&frame["item"], &frame["item"]["raw_item"]);
                [&frame["name"], &item["type"], &raw["type"]].map(|part| part.as_str().unwrap()).join(" ")
            })
            .collect();
        let expected = [
            "mcp_list_tools mcp_list_tools_item mcp_list_tools",
            "mcp_list_tools mcp_list_tools_item mcp_list_tools",
            "tool_called tool_call_item function_call",
            "mcp_approval_requested mcp_approval_request_item mcp_approval_request",
            "mcp_approval_response mcp_approval_response_item mcp_approval_response",
            "tool_output tool_call_output_item function_call_output",
            "message_output_created message_output_item message",
        ];
        assert_eq!(story, expected);
        let raw = |index: usize| &items[index]["item"]["raw_item"];
        assert_eq!((&raw(0)["server_label"], &raw(0)["tools"][0]["name"]), (&json!("files"), &json!("read")));
        assert_eq!(raw(1)["error"], "It is gone.");
        let asked = json!({"type": "mcp_approval_request", "id": "apr_R3", "name": "read", "server_label": "files",
            "arguments": "{\"n\":6}"});
        assert_eq!(raw(3), &asked);
        let reason = (decision == "reject").then_some("not today");
        let answer = json!({"type": "mcp_approval_response", "id": "aprr_R3", "approval_request_id": "apr_R3",
            "approve": decision == "approve", "reason": reason});
        assert_eq!(raw(4), &answer);
        assert_eq!(items[5]["item"]["output"], output);
        let paused = find(&frames, "/type", "run_paused");
        let asked = &paused["interruptions"][0];
        assert_eq!((&asked["tool_name"], &asked["server_label"]), (&json!("read"), &json!("files")));
        // The raw response of the first turn has the lists, too.
        let done = frames.iter().find(|frame| frame["data"]["type"] == "response.completed").unwrap();
        let types = done["data"]["response"]["output"].as_array().unwrap().iter().map(|item| &item["type"]);
        assert_eq!(types.collect::<Vec<_>>(), ["mcp_list_tools", "mcp_list_tools", "function_call"]);
    }
}

#[test]
fn a_lost_turn_does_not_list_the_tools_again() {
    let mut log = Log::new();
    log.mcp_list("hc_R1", "completed", &json!({"server_label": "files", "tools": []}));
    log.step().step_done("lost").step_again().message("msg_R2", &["Hi."], None).step_done("stop").completed();
    let frames = shown(Box::new(RunItemsProjection::new(run(), &thread())), &log);
    assert_eq!(frames.iter().filter(|frame| frame["name"] == "mcp_list_tools").count(), 1);
}

#[test]
fn blocks_and_agent_runs_name_the_server() {
    let log = mcp_server("approve");
    let blocks = shown(Box::new(BlocksProjection::new("s1".to_owned())), &log);
    let used = &find(&blocks, "/content_block/tool_use_id", "call_R3")["content_block"];
    assert_eq!((&used["name"], &used["server_label"]), (&json!("read"), &json!("files")));
    let listed = &find(&blocks, "/content_block/tool_use_id", "hc_R1")["content_block"];
    assert_eq!((&listed["name"], &listed["server_label"]), (&json!("mcp_list_tools"), &json!("files")));
    let results: Vec<&Value> =
        blocks.iter().map(|frame| &frame["content_block"]).filter(|block| block["type"] == "tool_result").collect();
    assert_eq!((&results[1]["status"], &results[1]["content"]), (&json!("error"), &json!("It is gone.")));

    let runs = shown(Box::new(AgentRunsProjection::new(thread().to_string())), &log);
    let called = &find(&runs, "/toolAgentOutput/result_summary", "six")["toolAgentOutput"];
    assert_eq!((&called["tool_name"], &called["ui_hints"]["server_label"]), (&json!("read"), &json!("files")));
    let missing = &find(&runs, "/toolAgentOutput/tool_call_id", "hc_R2")["toolAgentOutput"];
    assert_eq!((&missing["ui_hints"]["server_label"], &missing["status"]), (&json!("wiki"), &json!("failure")));
}

#[test]
fn messages_name_the_server() {
    let log = mcp_server("approve");
    let events = shown(Box::new(MessagesProjection::new(run(), 1)), &log);
    let used = &find(&events, "/content_block/id", "call_R3")["content_block"];
    assert_eq!((&used["type"], &used["name"]), (&json!("mcp_tool_use"), &json!("read")));
    assert_eq!((&used["server_name"], &used["input"]), (&json!("files"), &json!({"n": 6})));
}
