//! Requests of AG-UI and CopilotKit that are refused, and the routes that do not stream.

use super::{RUN, events, of_type, refusal};
use crate::harness::{Server, parse_frames};
use reqwest::Method;
use serde_json::{Value, json};

fn body(changes: &Value) -> Value {
    let mut body = json!({"threadId": "t-1", "runId": "r-1",
        "messages": [{"id": "u1", "role": "user", "content": "story 1 fast"}]});
    body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    body
}

#[tokio::test]
async fn invalid_requests_are_refused_and_leave_nothing() {
    let hw = Server::demo();
    let before = hw.count_threads_and_records().await;
    let user = |content: Value| json!({"messages": [{"id": "u1", "role": "user", "content": content}]});
    let tools: Vec<Value> = (0..1_000).map(|n| json!({"name": format!("t{n}"), "description": ""})).collect();
    let entry = |n: usize| json!({"interruptId": format!("apr_{n}"), "status": "cancelled"});
    let table: Vec<(Value, u16, &str)> = vec![
        (json!({"protocolVersion": "2.0"}), 400, "unsupported_version"),
        (json!({"threadId": "a/b"}), 400, "invalid_body"),
        (json!({"runId": "x".repeat(65)}), 400, "invalid_body"),
        (json!({"messages": {}}), 400, "invalid_body"),
        (json!({"messages": [{"role": "user", "content": "x"}]}), 400, "invalid_body"),
        (json!({"messages": [{"id": "f", "role": "function", "content": "x"}]}), 400, "invalid_body"),
        (user(json!([{"type": "hologram"}])), 400, "invalid_body"),
        (user(json!([{"type": "video", "source": {"type": "url", "value": "https://x/y"}}])), 400, "invalid_body"),
        (json!({"messages": []}), 400, "no_input"),
        (user(json!("")), 400, "no_input"),
        (json!({"state": {"x": "x".repeat(65 * 1024)}}), 413, "request_too_large"),
        (json!({"forwardedProps": {"x": "x".repeat(17 * 1024)}}), 413, "request_too_large"),
        (json!({"context": [{"description": "x", "value": 1}]}), 400, "invalid_body"),
        (json!({"tools": tools}), 400, "invalid_body"),
        (json!({"tools": [{"name": "transfer_to_specialist", "description": ""}]}), 400, "invalid_body"),
        (json!({"resume": (0..65).map(entry).collect::<Vec<_>>()}), 400, "invalid_body"),
        (json!({"messages": [], "resume": [entry(1)]}), 400, "approval_not_found"),
        (json!({"forwardedProps": {"headwater": {"on_busy": "wait"}}}), 400, "invalid_body"),
    ];
    for (changes, status, code) in table {
        let reply = hw.post(RUN, body(&changes)).await;
        assert_eq!(refusal(&reply), (status, code.to_owned()), "{:.200}", changes.to_string());
    }
    assert_eq!(hw.post("/agui/nobody", body(&json!({}))).await.status, 404);
    assert_eq!(hw.get("/agui/demo/threads/nothing/events").await.status, 404);
    assert_eq!(refusal(&hw.post_text(RUN, b"{").await), (400, "invalid_json".to_owned()));
    assert_eq!(hw.count_threads_and_records().await, before);
}

/// A run that waits for an approval. Returns its events.
async fn wait_for_approval(hw: &Server, thread: &str) -> Vec<Value> {
    let trade = json!([{"id": format!("u-{thread}"), "role": "user", "content": "trade"}]);
    events(&hw.post(RUN, body(&json!({"threadId": thread, "messages": trade}))).await)
}

fn interrupt(events: &[Value]) -> Value {
    events.last().unwrap()["outcome"]["interrupts"][0].clone()
}

#[tokio::test]
async fn answers_that_do_not_fit_are_refused_and_the_run_goes_on_waiting() {
    let hw = Server::demo();
    let (mine, other) = (wait_for_approval(&hw, "mine").await, wait_for_approval(&hw, "other").await);
    let before = hw.count_threads_and_records().await;
    let (mine, other) = (interrupt(&mine), interrupt(&other));
    let answer = |id: &Value, payload: Value| {
        json!({"threadId": "mine", "runId": "r-2", "messages": [],
            "resume": [{"interruptId": id, "status": "resolved", "payload": payload}]})
    };
    for (request, status, code) in [
        (answer(&mine["id"], json!("yes")), 400, "invalid_body"),
        (answer(&mine["id"], json!({"approved": "yes"})), 400, "invalid_body"),
        (answer(&mine["id"], json!({"approved": true, "editedArgs": {"quantity": "many"}})), 400, "invalid_arguments"),
        (answer(&other["id"], json!(true)), 400, "approval_not_found"),
        (answer(&json!("apr_nothing"), json!(true)), 400, "approval_not_found"),
    ] {
        let reply = hw.post(RUN, body(&request)).await;
        assert_eq!(refusal(&reply), (status, code.to_owned()), "{request}");
    }
    // What a person approved must be what was asked.
    let mut altered = answer(&mine["id"], json!(true));
    altered["messages"] = json!([{"id": "m", "role": "assistant", "toolCalls": [{"id": mine["toolCallId"],
        "type": "function", "function": {"name": "execute_trade", "arguments": "{\"symbol\":\"VNM\",\"quantity\":1}"}}]}]);
    assert_eq!(refusal(&hw.post(RUN, body(&altered)).await), (409, "altered_history".to_owned()));
    assert_eq!(hw.count_threads_and_records().await, before);
    let rest = events(&hw.post(RUN, body(&answer(&mine["id"], json!(true)))).await);
    assert_eq!(of_type(&rest, "TOOL_CALL_RESULT")[0]["content"], "Order placed: VNM x100");
}

#[tokio::test]
async fn a_stop_names_its_run_and_nothing_else() {
    let hw = Server::demo();
    let start = hw.post(RUN, body(&json!({}))).await;
    assert_eq!(events(&start).last().unwrap()["type"], "RUN_FINISHED");
    let stop = async |request: Value| hw.post("/agui/demo/stop/t-1", request).await;
    assert_eq!(stop(json!({})).await.json(), json!({"stopped": false}));
    assert_eq!(refusal(&stop(json!({"runID": "r-1"})).await), (400, "invalid_body".to_owned()));
    assert_eq!(hw.request(Method::POST, "/agui/demo/stop/t-1", &[], None).await.json(), json!({"stopped": false}));
    assert_eq!(hw.post("/agui/demo/stop/nothing", json!({})).await.status, 404);
}

#[tokio::test]
async fn copilotkit_finds_its_agents_and_one_route_is_enough() {
    let hw = Server::demo();
    let info = hw.get("/copilotkit/info").await.json();
    let demo = &info["agents"]["demo"];
    assert_eq!((demo["name"].as_str(), demo["className"].as_str()), (Some("demo"), Some("Headwater")));
    assert_eq!((&info["mode"], &info["telemetryDisabled"]), (&json!("sse"), &json!(true)));
    let envelope = |method: &str, params: Value, body: Value| json!({"method": method, "params": params, "body": body});
    let one = async |request: Value| hw.post("/copilotkit", request).await;
    assert_eq!(one(json!({"method": "info"})).await.json(), info);

    let params = json!({"agentId": "demo"});
    let run = events(&one(envelope("agent/run", params.clone(), body(&json!({})))).await);
    assert_eq!(run.last().unwrap()["type"], "RUN_FINISHED");
    let joined = events(&one(envelope("agent/connect", params, body(&json!({"messages": [], "runId": "r-2"})))).await);
    let snapshot = of_type(&joined, "MESSAGES_SNAPSHOT")[0];
    let roles: Vec<&str> =
        snapshot["messages"].as_array().unwrap().iter().filter_map(|message| message["role"].as_str()).collect();
    assert_eq!(roles, ["user", "assistant"]);
    let stopped = one(envelope("agent/stop", json!({"agentId": "demo", "threadId": "t-1"}), json!({}))).await;
    assert_eq!(stopped.json()["stopped"], false);
    assert_eq!(one(json!({"method": "transcribe"})).await.status, 400);

    // The component connects before its first message.
    let empty = body(&json!({"threadId": "new", "messages": []}));
    let reply = hw.post("/copilotkit/agent/demo/connect", empty).await;
    assert_eq!((reply.status, parse_frames(&reply.text).len()), (200, 0), "{}", reply.text);
    assert_eq!(hw.get("/copilotkit/threads").await.status, 404);
}
