//! Responses that wait for approval: several approvals at once, approvals of sub-agents, client tools, partial,
//! repeated, late and misdirected answers, and a server that crashes in between.

use crate::harness::Server;
use crate::responses::{create_response, get_response, output_text, parse_error, parse_events};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const CONFIG: &str = r#"
[agents.desk]
model = "mine/desk"
tools = ["buy", "sell", "brief", "quick", "clerk", "runner"]
handoffs = ["boss"]

[agents.clerk]
model = "mine/clerk"
description = "Asks before it buys."
tools = ["buy"]

[agents.runner]
model = "mine/runner"
description = "Has things fetched."
tools = ["fetch"]

[agents.boss]
model = "mine/clerk"
description = "Takes over."
tools = ["buy"]

[tools.buy]
kind = "command"
command = ["sh", "-c", "cat; echo"]
env_pass = ["PATH"]
approval = "always"
parameters = { type = "object", properties = { n = { type = "integer" } } }

[tools.sell]
kind = "command"
command = ["sh", "-c", "cat; echo"]
env_pass = ["PATH"]
approval = "always"

[tools.brief]
kind = "command"
command = ["sh", "-c", "cat; echo"]
env_pass = ["PATH"]
approval = "always"
approval_timeout_seconds = 1

[tools.quick]
kind = "command"
command = ["sh", "-c", "echo quick"]
env_pass = ["PATH"]

[tools.fetch]
kind = "client"
description = "Fetches something."

[providers.mine]
kind = "scripted"
file = "scenarios.toml"
"#;

const SCENARIOS: &str = r#"
[[scenario]]
model = "clerk"
[[scenario.turn]]
steps = [{ call = "buy", arguments = '{"n":7}' }]
[[scenario.turn]]
steps = [{ text = "I got {result}" }]

[[scenario]]
model = "runner"
[[scenario.turn]]
steps = [{ call = "fetch" }]
[[scenario.turn]]
steps = [{ text = "I got {result}" }]

[[scenario]]
match = '\btwo\b'
[[scenario.turn]]
steps = [{ call = "buy", arguments = '{"n":1}' }, { call = "sell" }, { call = "quick" }]
[[scenario.turn]]
steps = [{ text = "Both." }]

[[scenario]]
match = '\ball kinds\b'
[[scenario.turn]]
steps = [{ call = "buy", arguments = '{"n":1}' }, { call = "pick" }, { call = "runner", arguments = '{"prompt":"x"}' },
  { call = "clerk", arguments = '{"prompt":"x"}' }]
[[scenario.turn]]
steps = [{ text = "All." }]

[[scenario]]
match = '\b(?<who>clerk|runner)\b'
[[scenario.turn]]
steps = [{ call = "{who}", arguments = '{"prompt":"x"}' }]
[[scenario.turn]]
steps = [{ text = "It says: {result}" }]

[[scenario]]
match = '\bbrief\b'
[[scenario.turn]]
steps = [{ call = "brief" }]
[[scenario.turn]]
steps = [{ text = "It says: {result}" }]

[[scenario]]
match = '\bboss\b'
[[scenario.turn]]
steps = [{ call = "transfer_to_boss" }]

[[scenario]]
[[scenario.turn]]
steps = [{ text = "Hello." }]
"#;

fn approval_server() -> Server {
    Server::with_config(CONFIG, SCENARIOS)
}

fn request_body(input: &str) -> Value {
    let tools = json!([{"type": "function", "name": "pick", "parameters": {"type": "object"}}]);
    json!({"model": "desk", "input": input, "tools": tools})
}

/// The pending items of a response.
fn pending_items(response: &Value) -> Vec<Value> {
    let waits = |item: &&Value| matches!(item["type"].as_str(), Some("mcp_approval_request" | "function_call"));
    response["output"].as_array().unwrap().iter().filter(waits).cloned().collect()
}

fn approve_item(item: &Value) -> Value {
    match item["type"].as_str().unwrap() {
        "function_call" => json!({"type": "function_call_output", "call_id": item["call_id"], "output": "a stick"}),
        _ => json!({"type": "mcp_approval_response", "approval_request_id": item["id"], "approve": true}),
    }
}

fn reject_item(item: &Value) -> Value {
    json!({"type": "mcp_approval_response", "approval_request_id": item["id"], "approve": false, "reason": "not today"})
}

fn follow_up_body(response: &Value, input: &[Value]) -> Value {
    json!({"model": "desk", "previous_response_id": response["id"], "input": input})
}

fn output_summary(response: &Value) -> Vec<String> {
    let items = response["output"].as_array().unwrap().iter();
    let line = |item: &Value| {
        let word = |key: &str| item[key].as_str().unwrap_or_default().to_owned();
        format!("{} {} {}", word("type"), word("name"), word("status")).trim().replace("  ", " ")
    };
    items.map(line).collect()
}

async fn input_item_types(hw: &Server, response: &Value) -> Vec<String> {
    let path = format!("/v1/responses/{}/input_items?order=asc", response["id"].as_str().unwrap());
    let list = hw.get(&path).await.json();
    list["data"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn one_of_two_approvals_is_answered_and_the_other_is_requested_again() {
    let hw = approval_server();
    let first = create_response(&hw, request_body("two")).await;
    assert_eq!(
        output_summary(&first),
        ["mcp_call quick completed", "mcp_approval_request buy", "mcp_approval_request sell"]
    );
    let second = create_response(&hw, follow_up_body(&first, &[approve_item(&pending_items(&first)[0])])).await;
    assert_eq!(output_summary(&second), ["mcp_call buy completed", "mcp_approval_request sell"]);
    let third = create_response(&hw, follow_up_body(&second, &[reject_item(&pending_items(&second)[0])])).await;
    assert_eq!(output_summary(&third), ["mcp_call sell failed", "message completed"]);
    assert_eq!(third["output"][0]["error"]["content"][0]["text"], "not today");
    for (response, kinds) in
        [(&first, ["message"]), (&second, ["mcp_approval_response"]), (&third, ["mcp_approval_response"])]
    {
        assert_eq!(get_response(&hw, &response["id"]).await, *response);
        assert_eq!(input_item_types(&hw, response).await, kinds);
    }
    assert_eq!(
        create_response(&hw, follow_up_body(&first, &[approve_item(&pending_items(&first)[0])])).await,
        second,
        "the response that it opened"
    );
}

#[tokio::test]
async fn all_requests_of_a_pause_are_answered_together_and_survive_kills() {
    let mut hw = approval_server();
    for (input, asked) in [("all kinds", 4), ("clerk", 1), ("runner", 1), ("boss", 1), ("two", 2)] {
        let first = create_response(&hw, request_body(input)).await;
        assert_eq!(pending_items(&first).len(), asked, "{input}: {first}");
        hw.kill9();
        hw.restart();
        assert_eq!(get_response(&hw, &first["id"]).await, first, "{input}");
        let mut answer = follow_up_body(&first, &pending_items(&first).iter().map(approve_item).collect::<Vec<_>>());
        answer["background"] = true.into();
        let told = create_response(&hw, answer).await;
        hw.kill9();
        hw.restart();
        let path = format!("/v1/responses/{}?stream=true", told["id"].as_str().unwrap());
        let events = parse_events(&hw.get(&path).await.text);
        let last = events.last().unwrap();
        assert_eq!(last["type"], "response.completed", "{input}: {last}");
        assert!(
            pending_items(&last["response"]).is_empty() && !output_text(&last["response"]).is_empty(),
            "{input}: {last}"
        );
        assert_eq!(get_response(&hw, &told["id"]).await, last["response"], "{input}");
    }
}

#[tokio::test]
async fn an_approval_that_times_out_opens_the_next_response() {
    let hw = approval_server();
    let first = create_response(&hw, request_body("brief")).await;
    let id = format!("{}_2", first["id"].as_str().unwrap());
    hw.wait_until("the next response", async || hw.get(&format!("/v1/responses/{id}")).await.status == 200).await;
    let events = parse_events(&hw.get(&format!("/v1/responses/{id}?stream=true")).await.text);
    let next = &events.last().unwrap()["response"];
    assert_eq!(output_summary(next), ["mcp_call brief failed", "message completed"]);
    assert_eq!(next["previous_response_id"], first["id"]);
    let question = &pending_items(&first)[0];
    let late = hw.post("/v1/responses", follow_up_body(&first, &[approve_item(question)])).await;
    assert_eq!((late.status, parse_error(&late).1.as_str()), (409, "already_decided"));
    assert_eq!(
        create_response(&hw, follow_up_body(&first, &[reject_item(question)])).await,
        *next,
        "what was decided, said again"
    );
}

#[tokio::test]
async fn arguments_edited_in_another_protocol_are_shown() {
    let hw = approval_server();
    let first = create_response(&hw, request_body("boss")).await;
    let task = first["id"].as_str().unwrap().replace("resp_", "task_");
    let key = pending_items(&first)[0]["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/tasks/{task}/approvals/{key}");
    let edit = json!({"decision": "edit", "arguments": {"n": 99}});
    assert_eq!(hw.post(&path, edit).await.status, 200);
    hw.wait_ended(&task).await;
    let next = get_response(&hw, &json!(format!("{}_2", first["id"].as_str().unwrap()))).await;
    assert_eq!((&next["output"][0]["arguments"], &next["status"]), (&json!("{\"n\":99}"), &json!("completed")));
    assert_eq!(input_item_types(&hw, &next).await, ["mcp_approval_response"]);
}

#[tokio::test]
async fn a_run_of_another_protocol_can_be_read_answered_and_cancelled() {
    let hw = approval_server();
    let task = hw.post("/v1/tasks", json!({"model": "desk", "input": "two", "wait": true})).await.json();
    let id = json!(task["task_id"].as_str().unwrap().replace("task_", "resp_"));
    let first = get_response(&hw, &id).await;
    let second = create_response(&hw, follow_up_body(&first, &[approve_item(&pending_items(&first)[0])])).await;
    assert_eq!(output_summary(&second), ["mcp_call buy completed", "mcp_approval_request sell"]);
    let path = format!("/v1/responses/{}", id.as_str().unwrap());
    let stopped = hw.post(&format!("{path}/cancel"), json!({})).await.json();
    assert_eq!(stopped, first, "a response that has ended stays as it is");
    hw.wait_ended(task["task_id"].as_str().unwrap()).await;
    let last = get_response(&hw, &json!(format!("{}_3", id.as_str().unwrap()))).await;
    assert_eq!((&last["status"], &last["incomplete_details"]["reason"]), (&json!("cancelled"), &json!("cancelled")));
    assert_eq!(get_response(&hw, &second["id"]).await, second);
    assert_eq!(hw.get(&format!("{path}_4")).await.status, 404);
}

#[tokio::test]
async fn a_repeated_key_returns_the_response_that_its_answer_opened() {
    let hw = approval_server();
    let first = create_response(&hw, request_body("two")).await;
    let mut input: Vec<Value> = pending_items(&first).iter().map(approve_item).collect();
    input.push(json!({"role": "user", "content": "and hello"}));
    let send = async |body: &Value| {
        let headers = [("content-type", "application/json"), ("idempotency-key", "k")];
        hw.request(Method::POST, "/v1/responses", &headers, Some(body.to_string().into_bytes())).await
    };
    let (one, two) = (send(&follow_up_body(&first, &input)).await, send(&follow_up_body(&first, &input)).await);
    assert_eq!(one.json()["id"], format!("{}_2", first["id"].as_str().unwrap()));
    assert_eq!(one.json(), two.json());
    let said = input_item_types(&hw, &one.json()).await;
    assert_eq!(said.iter().filter(|kind| *kind == "message").count(), 1, "the words were said once: {said:?}");
    let other = send(&follow_up_body(&first, &input[..1])).await;
    assert_eq!((other.status, parse_error(&other).1.as_str()), (409, "idempotency_key_reused"));
}

#[tokio::test]
async fn an_answer_leaves_waiting_conversation_items_to_the_next_run() {
    let hw = approval_server();
    let conversation = hw.post("/v1/conversations", json!({})).await.json();
    let path = format!("/v1/conversations/{}/items", conversation["id"].as_str().unwrap());
    let mut body = request_body("two");
    body["conversation"] = conversation["id"].clone();
    let first = create_response(&hw, body).await;
    let note = json!({"items": [{"role": "user", "content": "a note"}]});
    assert_eq!(hw.post(&path, note).await.status, 200);
    let answers: Vec<Value> = pending_items(&first).iter().map(approve_item).collect();
    let answered = json!({"model": "desk", "conversation": conversation["id"], "input": answers});
    assert_eq!(output_text(&create_response(&hw, answered).await), "Both.");
    assert!(hw.get(&path).await.text.contains("a note"), "it waits on");
    let next =
        create_response(&hw, json!({"model": "desk", "conversation": conversation["id"], "input": "hello"})).await;
    let asked = hw.get(&format!("/v1/responses/{}/input_items", next["id"].as_str().unwrap())).await.text;
    assert!(asked.contains("a note") && asked.contains("hello"), "{asked}");
    let listed = hw.get(&path).await.text;
    assert_eq!(listed.matches("a note").count(), 1, "read once: {listed}");
}

#[tokio::test]
async fn in_a_conversation_a_repeated_answer_returns_its_response() {
    let hw = approval_server();
    let conversation = hw.post("/v1/conversations", json!({})).await.json();
    let within = |input: Value| json!({"model": "desk", "conversation": conversation["id"], "input": input});
    for input in ["clerk", "runner"] {
        let first = create_response(&hw, within(json!(input))).await;
        let answer = within(json!([approve_item(&pending_items(&first)[0])]));
        let done = create_response(&hw, answer.clone()).await;
        assert_eq!(create_response(&hw, answer).await, done, "{input}");
    }
    let first = create_response(&hw, within(json!("boss"))).await;
    create_response(&hw, within(json!([approve_item(&pending_items(&first)[0])]))).await;
    let late = hw.post("/v1/responses", within(json!([reject_item(&pending_items(&first)[0])]))).await;
    assert_eq!((late.status, parse_error(&late).1.as_str()), (409, "already_decided"));
    let nobody = json!([{"type": "mcp_approval_response", "approval_request_id": "apr_1", "approve": true}]);
    let unknown = hw.post("/v1/responses", within(nobody)).await;
    assert_eq!((unknown.status, parse_error(&unknown).1.as_str()), (400, "approval_not_found"));
}

#[tokio::test]
async fn an_approval_is_answered_only_in_its_own_conversation() {
    let hw = approval_server();
    let asked = create_response(&hw, request_body("clerk")).await;
    let elsewhere = create_response(&hw, request_body("hello")).await;
    let conversation = hw.post("/v1/conversations", json!({})).await.json();
    let input = [approve_item(&pending_items(&asked)[0])];
    let within = json!({"model": "desk", "conversation": conversation["id"], "input": input});
    for body in [follow_up_body(&elsewhere, &input), within] {
        let reply = hw.post("/v1/responses", body).await;
        assert_eq!((reply.status, parse_error(&reply).1.as_str()), (400, "approval_not_found"), "{}", reply.text);
    }
    assert_eq!(hw.get("/v1/approvals?status=pending").await.json()["data"].as_array().unwrap().len(), 1);
    assert_eq!(create_response(&hw, follow_up_body(&asked, &input)).await["status"], "completed");
}

#[tokio::test]
async fn contradictory_answers_are_refused_as_a_whole() {
    let hw = approval_server();
    let asked = create_response(&hw, request_body("clerk")).await;
    let question = &pending_items(&asked)[0];
    let reply =
        hw.post("/v1/responses", follow_up_body(&asked, &[approve_item(question), reject_item(question)])).await;
    assert_eq!((reply.status, parse_error(&reply).1.as_str()), (400, "invalid_body"));
    assert_eq!(hw.get("/v1/approvals?status=pending").await.json()["data"].as_array().unwrap().len(), 1);
    let twice = create_response(&hw, follow_up_body(&asked, &[approve_item(question), approve_item(question)])).await;
    assert_eq!(twice["status"], "completed", "said twice it is said once");
}

#[tokio::test]
async fn an_item_is_in_its_conversation_once_and_paging_ends() {
    let hw = approval_server();
    let conversation = hw.post("/v1/conversations", json!({})).await.json();
    let within = |input: Value| json!({"model": "desk", "conversation": conversation["id"], "input": input});
    // A pause splits a sub-agent's call; a client that keeps its own history names nothing.
    let first = create_response(&hw, within(json!("clerk"))).await;
    create_response(&hw, within(json!([approve_item(&pending_items(&first)[0])]))).await;
    let two = create_response(&hw, within(json!("two"))).await;
    let half = create_response(&hw, within(json!([approve_item(&pending_items(&two)[0])]))).await;
    create_response(&hw, within(json!([approve_item(&pending_items(&half)[0])]))).await;
    for _ in 0..2 {
        let brought = json!([{"role": "assistant", "content": "I said"},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "o"}, {"role": "user", "content": "hello"}]);
        create_response(&hw, within(brought)).await;
    }
    let path = format!("/v1/conversations/{}/items", conversation["id"].as_str().unwrap());
    let all = hw.get(&format!("{path}?order=asc&limit=100")).await.json()["data"].as_array().unwrap().clone();
    let ids: BTreeSet<&str> = all.iter().map(|item| item["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), all.len(), "{all:#?}");
    let calls = all.iter().filter(|item| item["name"] == "clerk");
    assert_eq!(calls.map(|call| &call["status"]).collect::<Vec<_>>(), ["completed"], "as it was in the end");
    let (mut paged, mut after) = (Vec::new(), String::new());
    while paged.len() <= all.len() {
        let page = hw.get(&format!("{path}?order=asc&limit=1{after}")).await.json();
        paged.extend(page["data"].as_array().unwrap().clone());
        after = format!("&after={}", page["last_id"].as_str().unwrap());
        if page["has_more"] == false {
            break;
        }
    }
    assert_eq!(paged, all);
    for item in &all {
        assert_eq!(hw.get(&format!("{path}/{}", item["id"].as_str().unwrap())).await.json(), *item);
    }
    let lost = hw.get(&format!("{path}?after=msg_1")).await;
    assert_eq!((lost.status, parse_error(&lost).2), (400, json!("after")), "silence would look like the end");
}

#[tokio::test]
async fn a_response_is_readable_from_the_moment_it_is_announced() {
    let hw = approval_server();
    for round in 0..20 {
        let first = create_response(&hw, request_body("boss")).await;
        let mut answer = follow_up_body(&first, &[approve_item(&pending_items(&first)[0])]);
        answer["background"] = true.into();
        let told = create_response(&hw, answer).await;
        let ask = async || loop {
            let reply = hw.get(&format!("/v1/responses/{}", told["id"].as_str().unwrap())).await;
            assert_eq!(reply.status, 200, "round {round}: {}", reply.text);
            if reply.json()["status"] == "completed" {
                break;
            }
        };
        tokio::join!(ask(), ask(), ask(), ask());
    }
}
