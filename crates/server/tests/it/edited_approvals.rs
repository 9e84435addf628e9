//! A call whose arguments a person edited: from its start on it has the arguments that ran, for the model and in every
//! protocol.

use crate::broker_fixture::{decide, wait_outcome};
use crate::fake_provider::dialect::{DIALECTS, ProviderDialect};
use crate::fake_provider::recording_upstream::RecordingUpstream;
use crate::harness::Server;
use serde_json::{Value, json};

const TOOL: &str = r#"
[tools.work]
kind = "command"
command = ["sh", "-c", "cat >> ran; until test -e go; do sleep 0.02; done; echo refunded"]
env_pass = ["PATH"]
approval = "always"
idempotent = true
[tools.work.parameters]
type = "object"
properties.amount = { type = "integer" }
"#;
/// As the model writes them: with a space, so that a text that was parsed and printed again differs.
const WRITTEN: &str = r#"{"amount": 500}"#;

async fn refund_server() -> (RecordingUpstream, Server) {
    let upstream = RecordingUpstream::start(|dialect, body| match dialect.has_results(body) {
        true => dialect.full_answer("It is done."),
        false => dialect.full_call("work", WRITTEN),
    })
    .await;
    let server = Server::with_config(&(upstream.agents("tools = [\"work\"]") + TOOL), "");
    std::fs::write(server.path("go"), "").unwrap();
    (upstream, server)
}

async fn pause_for(hw: &Server, dialect: ProviderDialect) -> Value {
    let reply = hw.post("/v1/tasks", json!({"model": dialect.name(), "input": "refund A1", "wait": true})).await;
    let task = reply.json();
    assert_eq!(task["status"], "paused", "{task}");
    task
}

async fn edit(hw: &Server, task: &Value, amount: u32) {
    let reply = decide(hw, task, json!({"decision": "edit", "arguments": {"amount": amount}})).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
}

fn executed(hw: &Server) -> Vec<Value> {
    let text = std::fs::read_to_string(hw.path("ran")).unwrap_or_default();
    serde_json::Deserializer::from_str(&text).into_iter().map(Result::unwrap).collect()
}

fn call_of(task: &Value) -> &Value {
    task["output"].as_array().unwrap().iter().find(|item| item["type"] == "tool_call").expect("a call")
}

fn replay(hw: &Server, task: &Value, protocol: &str) -> String {
    let output = hw.run_cli(&["replay", task["task_id"].as_str().unwrap(), "--as", protocol, "--fast"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The data of all events of a stream that satisfy the condition.
fn events(stream: &str, is_wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
    let lines = stream.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line));
    let values = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    values.filter(|value| value.is_object() && is_wanted(value)).collect()
}

#[tokio::test]
async fn the_model_and_the_task_have_the_arguments_that_ran() {
    let (upstream, hw) = refund_server().await;
    for (count, dialect) in (1..).zip(DIALECTS) {
        let task = pause_for(&hw, dialect).await;
        assert_eq!(call_of(&task)["arguments"], WRITTEN, "before the decision they are the model's");
        edit(&hw, &task, 7).await;
        let (ended, words) = wait_outcome(&hw, &task).await;
        assert_eq!((&ended["status"], words.as_str()), (&json!("completed"), "It is done."), "{ended}");
        assert_eq!((executed(&hw).len(), executed(&hw).pop()), (count, Some(json!({"amount": 7}))));
        let asked = upstream.last_request(dialect);
        assert_eq!(dialect.call_arguments(&asked), [json!({"amount": 7})], "{}: {asked:#}", dialect.name());
        let is_sealed = asked.to_string().contains("sealed");
        assert!(is_sealed || dialect == ProviderDialect::Chat, "the reasoning goes with it: {asked:#}");
        let call = call_of(&ended);
        assert_eq!((&call["arguments"], &call["original_arguments"]), (&json!(r#"{"amount":7}"#), &json!(WRITTEN)));
        let path = format!("/v1/tasks/{}/events", task["task_id"].as_str().unwrap());
        let frames = hw.frames(&path, None).await;
        let started = &frames.iter().find(|frame| frame.event == "task.tool.started").unwrap().data;
        assert_eq!(
            (&started["arguments"], &started["original_arguments"]),
            (&json!(r#"{"amount":7}"#), &json!(WRITTEN))
        );
        let done = frames.iter().find(|frame| frame.event == "task.tool_call_arguments.done").unwrap();
        assert_eq!(done.data["arguments"], WRITTEN, "what was shown stays");
    }
}

#[tokio::test]
async fn every_protocol_shows_the_arguments_that_ran() {
    let (_upstream, hw) = refund_server().await;
    let task = pause_for(&hw, ProviderDialect::Responses).await;
    edit(&hw, &task, 7).await;
    wait_outcome(&hw, &task).await;

    let response = format!("/v1/responses/resp_{}_2", task["task_id"].as_str().unwrap().trim_start_matches("task_"));
    let response = hw.get(&response).await.json();
    assert_eq!(
        (&response["output"][0]["type"], &response["output"][0]["arguments"]),
        (&json!("mcp_call"), &json!(r#"{"amount":7}"#))
    );

    let stream = replay(&hw, &task, "messages");
    let deltas = events(&stream, |event| event["delta"]["type"] == "input_json_delta");
    let inputs: String = deltas.iter().map(|event| event["delta"]["partial_json"].as_str().unwrap()).collect();
    let started = events(&stream, |event| event["content_block"]["type"] == "mcp_tool_use");
    assert_eq!(started.len(), 1);
    assert!(inputs == r#"{"amount":7}"# || started[0]["content_block"]["input"] == json!({"amount": 7}), "{stream}");

    // The call was shown before the decision; its result tells the edit.
    let stream = replay(&hw, &task, "blocks");
    let block = |kind: &str| {
        let found = events(&stream, |event| event["content_block"]["type"] == kind);
        assert_eq!(found.len(), 1, "{stream}");
        found[0]["content_block"]["input"].clone()
    };
    assert_eq!((block("tool_use"), block("tool_result")), (json!({"amount": 500}), json!({"amount": 7})));

    let stream = replay(&hw, &task, "run-items");
    let item = |name: &str| events(&stream, |event| event["name"] == name)[0]["item"].clone();
    assert_eq!(item("tool_called")["raw_item"]["arguments"], WRITTEN);
    assert_eq!(item("tool_output")["arguments"], r#"{"amount":7}"#);

    let stream = replay(&hw, &task, "agent-runs");
    let results = events(&stream, |event| event["type"] == "TOOL_CALL_RESULT");
    let arguments: Vec<&Value> = results.iter().map(|event| &event["toolAgentOutput"]["tool_call_args"]).collect();
    assert_eq!(arguments, [&json!({"amount": 500}), &json!({"amount": 7})], "{stream}");
    let thread = task["thread_id"].as_str().unwrap();
    let history = hw.get(&format!("/api/v1/agent/history?threadId={thread}")).await.text;
    assert!(history.contains(r#""tool_call_args":{"amount":7}"#) && !history.contains("500"), "{history}");
}

#[tokio::test]
async fn an_edit_that_changes_nothing_keeps_the_text_of_the_model() {
    let (upstream, hw) = refund_server().await;
    let task = pause_for(&hw, ProviderDialect::Responses).await;
    edit(&hw, &task, 500).await;
    let (ended, _) = wait_outcome(&hw, &task).await;
    let call = call_of(&ended);
    assert_eq!((&call["arguments"], &call["original_arguments"]), (&json!(WRITTEN), &Value::Null));
    assert_eq!(std::fs::read_to_string(hw.path("ran")).unwrap().trim(), WRITTEN);
    assert!(upstream.last_request(ProviderDialect::Responses).to_string().contains(r#"{\"amount\": 500}"#));
    assert!(!replay(&hw, &task, "run-items").contains(r#""arguments":"{\"amount\": 500}","output""#));
}

#[tokio::test]
async fn an_edit_survives_a_kill_while_its_tool_runs() {
    let (upstream, mut hw) = refund_server().await;
    std::fs::remove_file(hw.path("go")).unwrap();
    let task = pause_for(&hw, ProviderDialect::Responses).await;
    edit(&hw, &task, 7).await;
    hw.wait_until("the tool runs", async || executed(&hw).len() == 1).await;
    hw.kill9();
    std::fs::write(hw.path("go"), "").unwrap();
    hw.restart();
    let (ended, _) = wait_outcome(&hw, &task).await;
    let call = call_of(&ended);
    assert_eq!((&call["arguments"], &call["original_arguments"]), (&json!(r#"{"amount":7}"#), &json!(WRITTEN)));
    assert_eq!(
        executed(&hw),
        [json!({"amount": 7}), json!({"amount": 7})],
        "it may be started again, as it was edited"
    );
    let dialect = ProviderDialect::Responses;
    assert_eq!(dialect.call_arguments(&upstream.last_request(dialect)), [json!({"amount": 7})]);
}

#[tokio::test]
async fn an_edit_of_a_client_tool_counts_from_the_decision_on() {
    let upstream = RecordingUpstream::start(|dialect, body| match dialect.has_results(body) {
        true => dialect.full_answer("It is done."),
        false => dialect.full_call("work", WRITTEN),
    })
    .await;
    let tool = "\n[tools.work]\nkind = \"client\"\napproval = \"always\"\n\
        parameters = { type = \"object\", properties = { amount = { type = \"integer\" } } }\n";
    let hw = Server::with_config(&(upstream.agents("tools = [\"work\"]") + tool), "");
    for dialect in DIALECTS {
        let task = pause_for(&hw, dialect).await;
        edit(&hw, &task, 7).await;
        let path = format!("/v1/tasks/{}", task["task_id"].as_str().unwrap());
        hw.wait_until("it waits for the client", async || {
            hw.get(&path).await.json()["pending"][0]["kind"] == "client_tool"
        })
        .await;
        let waiting = hw.get(&path).await.json();
        let call = call_of(&waiting);
        assert_eq!((&call["arguments"], &call["original_arguments"]), (&json!(r#"{"amount":7}"#), &json!(WRITTEN)));
        let results = json!([{"call_id": call["call_id"], "content": "refunded"}]);
        assert_eq!(hw.post(&format!("{path}/tool_results"), results).await.status, 202);
        let (ended, _) = wait_outcome(&hw, &task).await;
        assert_eq!(ended["status"], "completed", "{ended}");
        assert_eq!(dialect.call_arguments(&upstream.last_request(dialect)), [json!({"amount": 7})]);
    }
}
