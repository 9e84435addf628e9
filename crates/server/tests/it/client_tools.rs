//! Client tools: the run pauses for their results, and each result counts once.

use crate::broker_fixture::{broker_server, placed_orders, start_paused, tool_results, wait_outcome};
use crate::harness::{Reply, Server};
use reqwest::Method;
use serde_json::{Value, json};

fn declared(input: &str) -> Value {
    let parameters = json!({"type": "object", "properties": {"what": {"type": "string"}}});
    json!({"input": input, "tools": [{"name": "locate", "parameters": parameters}, {"name": "measure"}]})
}

/// The calls that a run waits for.
fn calls(task: &Value) -> Vec<&str> {
    let pending = task["pending"].as_array().unwrap();
    assert!(pending.iter().all(|pending| pending["kind"] == "client_tool"), "{task}");
    pending.iter().map(|pending| pending["call_id"].as_str().unwrap()).collect()
}

async fn give(hw: &Server, task: &Value, results: Value) -> Reply {
    hw.post(&format!("/v1/tasks/{}/tool_results", task["task_id"].as_str().unwrap()), results).await
}

#[tokio::test]
async fn a_run_waits_for_its_client_across_a_kill_and_uses_the_result_once() {
    let mut hw = broker_server("");
    let task = start_paused(&hw, declared("locate")).await;
    let call = calls(&task)[0];
    let shown = task["output"].as_array().unwrap().iter().find(|item| item["type"] == "tool_call").unwrap();
    assert_eq!((&shown["call_id"], &shown["kind"], &shown["name"]), (&json!(call), &json!("client"), &json!("locate")));
    hw.kill9();
    hw.restart();
    let reply = give(&hw, &task, json!([{"call_id": call, "content": "in the door"}])).await;
    assert_eq!((reply.status, &reply.json()["task_id"]), (202, &task["task_id"]), "{}", reply.text);
    let (ended, words) = wait_outcome(&hw, &task).await;
    assert_eq!((&ended["status"], &tool_results(&ended)[0]["status"]), (&json!("completed"), &json!("completed")));
    assert!(words.contains("in the door"), "{words}");
    let late = give(&hw, &task, json!([{"call_id": call, "content": "elsewhere"}])).await;
    assert_eq!((late.problem(), &late.json()["call_id"]), ((409, "nothing_pending".to_owned()), &json!(call)));
}

#[tokio::test]
async fn the_results_of_one_request_are_all_or_nothing() {
    let hw = broker_server("");
    let task = start_paused(&hw, declared("both")).await;
    let [locate, measure] = calls(&task)[..] else { panic!("{task}") };
    let stray = json!([{"call_id": locate, "content": "1"}, {"call_id": "call_1", "content": "2"}]);
    assert_eq!(give(&hw, &task, stray).await.problem(), (409, "nothing_pending".to_owned()));
    assert_eq!(hw.get(&format!("/v1/tasks/{}", task["task_id"].as_str().unwrap())).await.json(), task);
    let parts = json!([{"type": "text", "text": "two metres"}]);
    let both = json!([{"call_id": locate, "content": "here"}, {"call_id": measure, "content": parts}]);
    assert_eq!(give(&hw, &task, both).await.status, 202);
    let (ended, words) = wait_outcome(&hw, &task).await;
    assert!(words.contains("two metres"), "{words}");
    assert_eq!(tool_results(&ended).len(), 2);
}

#[tokio::test]
async fn a_run_with_one_of_two_results_waits_for_the_other() {
    let hw = broker_server("");
    let task = start_paused(&hw, declared("both")).await;
    let [locate, measure] = calls(&task)[..] else { panic!("{task}") };
    assert_eq!(give(&hw, &task, json!([{"call_id": measure, "content": "2 m"}])).await.status, 202);
    let path = format!("/v1/tasks/{}", task["task_id"].as_str().unwrap());
    hw.wait_until("it waits for the other", async || {
        let now = hw.get(&path).await.json();
        now["status"] == "paused" && now["pending"].as_array().unwrap().len() == 1
    })
    .await;
    assert_eq!(calls(&hw.get(&path).await.json()), [locate]);
    let failed = json!([{"call_id": locate, "content": "", "error": "the map is gone"}]);
    assert_eq!(give(&hw, &task, failed).await.status, 202);
    let (ended, _) = wait_outcome(&hw, &task).await;
    let result = *tool_results(&ended).iter().find(|result| result["call_id"] == locate).unwrap();
    assert_eq!((&result["status"], &result["error"]["code"]), (&json!("failed"), &json!("client_error")));
    assert_eq!(result["error"]["message"], "the map is gone");
    assert_eq!(result["block_list"][0]["text"], "the map is gone", "with no content, that is what is read");
}

#[tokio::test]
async fn repeated_results_with_the_same_key_count_once() {
    let hw = broker_server("");
    let task = start_paused(&hw, declared("locate")).await;
    let call = calls(&task)[0];
    let path = format!("/v1/tasks/{}/tool_results", task["task_id"].as_str().unwrap());
    let post = async |content: &str| {
        let headers = [("content-type", "application/json"), ("idempotency-key", "k")];
        let body = json!([{"call_id": call, "content": content}]).to_string();
        hw.request(Method::POST, &path, &headers, Some(body.into_bytes())).await
    };
    assert_eq!(post("here").await.status, 202);
    let (ended, _) = wait_outcome(&hw, &task).await;
    assert_eq!(post("here").await.status, 202, "asked again, answered again");
    assert_eq!(post("there").await.problem(), (409, "idempotency_key_reused".to_owned()));
    assert_eq!(wait_outcome(&hw, &task).await.0, ended);
}

#[tokio::test]
async fn invalid_results_are_refused() {
    let hw = broker_server("");
    let task = start_paused(&hw, declared("locate")).await;
    let call = calls(&task)[0];
    for bad in [
        json!([]),
        json!([{"call_id": call}]),
        json!([{"call_id": call, "content": "a"}, {"call_id": call, "content": "b"}]),
        json!([{"call_id": call, "content": "a", "error": {"code": "x"}}]),
        json!([{"call_id": call, "content": "a", "status": "completed"}]),
        json!([{"call_id": call, "content": [{"type": "audio"}]}]),
    ] {
        assert_eq!(give(&hw, &task, bad.clone()).await.problem(), (422, "invalid_body".to_owned()), "{bad}");
    }
    let large = json!([{"call_id": call, "content": "x".repeat(300_000)}]);
    assert_eq!(give(&hw, &task, large).await.problem(), (413, "request_too_large".to_owned()));
    assert_eq!(hw.get(&format!("/v1/tasks/{}", task["task_id"].as_str().unwrap())).await.json(), task);
}

#[tokio::test]
async fn invalid_tool_declarations_are_refused() {
    let hw = broker_server("");
    let before = hw.count_threads_and_records().await;
    for tools in [
        json!([{"name": "a b"}]),
        json!([{"name": ""}]),
        json!([{"name": "a"}, {"name": "a"}]),
        json!([{"name": "clerk"}]),
        json!([{"name": "a", "parameters": true}]),
        json!([{"name": "a", "parameters": {"type": "string"}}]),
        json!([{"name": "a", "parameters": {"type": "object", "properties": {"b": {"type": "nothing"}}}}]),
        json!([{"name": "a", "parameters": {"$ref": "https://example.org/schema.json"}}]),
    ] {
        let reply = hw.post("/v1/tasks", json!({"model": "broker", "input": "hi", "tools": tools})).await;
        assert_eq!(reply.problem(), (422, "invalid_body".to_owned()), "{tools}");
        assert!(reply.json()["detail"].as_str().unwrap().contains("`tools`"), "{}", reply.text);
    }
    assert_eq!(hw.count_threads_and_records().await, before);
}

#[tokio::test]
async fn a_result_is_accepted_while_another_tool_of_the_run_is_active() {
    let hw = broker_server("");
    let mut body = declared("locate beside an order");
    body["model"] = json!("broker");
    let task = hw.post("/v1/tasks", body).await.json();
    let path = format!("/v1/tasks/{}", task["task_id"].as_str().unwrap());
    hw.wait_until("the order is being placed", async || !placed_orders(&hw).is_empty()).await;
    let now = hw.get(&path).await.json();
    assert_eq!((&now["status"], &now["pending"]), (&json!("running"), &json!([])));
    let shown = now["output"].as_array().unwrap().iter().find(|item| item["kind"] == "client").unwrap();
    let call = shown["call_id"].as_str().unwrap();
    let reply = give(&hw, &task, json!([{"call_id": call, "content": "in the door"}])).await;
    assert_eq!(reply.status, 202, "{}", reply.text);
    hw.wait_until("it has the result", async || tool_results(&hw.get(&path).await.json()).len() == 1).await;
    assert_eq!(hw.get(&path).await.json()["status"], "running");
    let again = give(&hw, &task, json!([{"call_id": call, "content": "elsewhere"}])).await;
    assert_eq!(again.problem(), (409, "nothing_pending".to_owned()));
    std::fs::write(hw.path("go"), "").unwrap();
    let (ended, _) = wait_outcome(&hw, &task).await;
    assert_eq!((&ended["status"], tool_results(&ended).len()), (&json!("completed"), 2));
    let given = *tool_results(&ended).iter().find(|result| result["call_id"] == call).unwrap();
    assert_eq!(given["block_list"][0]["text"], "in the door");
}
