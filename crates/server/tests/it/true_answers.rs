//! What a client is told about its decision or its result is what the log says.

use crate::broker_fixture::{approval_path, broker_server, placed_orders, start_paused, tool_results, wait_outcome};
use crate::harness::Server;
use futures_util::future::join_all;
use serde_json::{Value, json};

/// Sends two requests on one connection without waiting for the first response, and returns both statuses.
async fn pipelined(hw: &Server, first: (&str, Value), second: (&str, Value)) -> (Vec<String>, String) {
    let request = |(path, body): (&str, Value), close: &str| {
        let body = body.to_string();
        let length = body.len();
        format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n{close}\r\n{body}"
        )
    };
    let text = hw.send_raw(request(first, "") + &request(second, "connection: close\r\n")).await;
    let status = |part: &str| part.split(' ').next().unwrap_or_default().to_owned();
    (text.split("HTTP/1.1 ").skip(1).map(status).collect(), text)
}

#[tokio::test]
async fn approving_behind_a_cancel_is_told_that_it_was_rejected() {
    let hw = broker_server("");
    for mode in ["immediate", "after_turn"].repeat(10) {
        let task = start_paused(&hw, json!({"input": "buy"})).await;
        let cancel = format!("/v1/tasks/{}/cancel", task["task_id"].as_str().unwrap());
        let approval = approval_path(&task);
        let requests = ((cancel.as_str(), json!({"mode": mode})), (approval.as_str(), json!({"decision": "approve"})));
        let (statuses, text) = pipelined(&hw, requests.0, requests.1).await;
        assert_eq!(statuses, ["202", "409"], "{mode}: {text}");
        assert!(text.contains("already_decided") && text.contains("\"decided_by\":\"system\""), "{mode}: {text}");
        wait_outcome(&hw, &task).await;
        let listed = hw.get("/v1/approvals?limit=1").await.json();
        assert_eq!(
            (&listed["data"][0]["status"], &listed["data"][0]["decided_by"]),
            (&json!("rejected"), &json!("system"))
        );
    }
    assert_eq!(placed_orders(&hw), Vec::<Value>::new());
}

fn locate() -> Value {
    json!({"input": "locate", "tools": [{"name": "locate", "description": "", "parameters": {"type": "object"}}]})
}

#[tokio::test]
async fn a_call_of_the_client_has_one_result_whoever_else_sends_one() {
    let hw = broker_server("");
    let task = start_paused(&hw, locate()).await;
    let path = format!("/v1/tasks/{}/tool_results", task["task_id"].as_str().unwrap());
    let call = task["pending"][0]["call_id"].clone();
    let result = |n: usize| json!([{"call_id": call, "content": format!("place {n}")}]);
    let replies = join_all((0..20).map(|n| hw.post(&path, result(n)))).await;
    let accepted: Vec<usize> = (0..20).filter(|n| replies[*n].status == 202).collect();
    assert_eq!(accepted.len(), 1, "{accepted:?}");
    for (n, reply) in replies.iter().enumerate().filter(|(n, _)| *n != accepted[0]) {
        assert_eq!(reply.problem(), (409, "nothing_pending".to_owned()), "{n}");
    }
    let (ended, words) = wait_outcome(&hw, &task).await;
    assert!(words.contains(&format!("place {}", accepted[0])), "{words}");
    assert_eq!(tool_results(&ended).len(), 1);
    // The same result again is no other result.
    assert_eq!(hw.post(&path, result(accepted[0])).await.status, 202);
    assert_eq!(hw.post(&path, result(20)).await.problem(), (409, "nothing_pending".to_owned()));
}

#[tokio::test]
async fn a_second_result_and_one_behind_a_cancel_are_refused() {
    let hw = broker_server("");
    for _ in 0..10 {
        for first_is_cancel in [true, false] {
            let task = start_paused(&hw, locate()).await;
            let base = format!("/v1/tasks/{}", task["task_id"].as_str().unwrap());
            let (cancel, results) = (format!("{base}/cancel"), format!("{base}/tool_results"));
            let result = |text: &str| json!([{"call_id": task["pending"][0]["call_id"], "content": text}]);
            let first = if first_is_cancel { (cancel.as_str(), json!({})) } else { (results.as_str(), result("one")) };
            let (statuses, text) = pipelined(&hw, first, (&results, result("two"))).await;
            assert_eq!(statuses, ["202", "409"], "{first_is_cancel}: {text}");
            assert!(text.contains("nothing_pending"), "{text}");
        }
    }
}

#[tokio::test]
async fn an_approval_is_not_found_under_the_id_of_another_agent() {
    let hw = broker_server("");
    let task = start_paused(&hw, json!({"input": "two clerks"})).await;
    let pending = task["pending"].as_array().unwrap();
    assert_eq!(pending.len(), 2, "{task}");
    let decide = async |of: &Value, key: &Value| {
        let path = format!("/v1/tasks/{}/approvals/{}", of.as_str().unwrap(), key.as_str().unwrap());
        hw.post(&path, json!({"decision": "approve"})).await
    };
    let other = decide(&pending[1]["task_id"], &pending[0]["key"]).await;
    assert_eq!(other.problem(), (404, "approval_not_found".to_owned()));
    assert_eq!(placed_orders(&hw), Vec::<Value>::new());
    assert_eq!(decide(&pending[0]["task_id"], &pending[0]["key"]).await.status, 200);
    assert_eq!(decide(&task["task_id"], &pending[1]["key"]).await.status, 200);
    wait_outcome(&hw, &task).await;
    assert_eq!(placed_orders(&hw).len(), 2);
}

const TWO_SCOUTS: &str = r#"
[agents.lead]
model = "mine/lead"
tools = ["scout"]

[agents.scout]
model = "mine/scout"
description = "Finds places."
tools = ["locate"]

[tools.locate]
kind = "client"
description = "Where it is."

[providers.mine]
kind = "scripted"
file = "scenarios.toml"
"#;

const TWO_SCOUTS_SCENARIOS: &str = r#"
[[scenario]]
model = "scout"
[[scenario.turn]]
steps = [{ call = "locate" }]
[[scenario.turn]]
steps = [{ text = "The scout: {result}" }]

[[scenario]]
[[scenario.turn]]
steps = [{ call = "scout", arguments = '{"prompt":"one"}' }, { call = "scout", arguments = '{"prompt":"two"}' }]
[[scenario.turn]]
steps = [{ text = "It says: {result}" }]
"#;

#[tokio::test]
async fn a_result_is_refused_under_the_id_of_another_agent() {
    let hw = Server::with_config(TWO_SCOUTS, TWO_SCOUTS_SCENARIOS);
    let task = start_paused(&hw, json!({"model": "lead", "input": "look"})).await;
    let pending = task["pending"].as_array().unwrap();
    assert_eq!(pending.len(), 2, "{task}");
    let answer = async |of: &Value, n: usize| {
        let path = format!("/v1/tasks/{}/tool_results", of.as_str().unwrap());
        hw.post(&path, json!([{"call_id": pending[n]["call_id"], "content": format!("place {n}")}])).await
    };
    assert_eq!(answer(&pending[1]["task_id"], 0).await.problem(), (409, "nothing_pending".to_owned()));
    assert_eq!(answer(&pending[0]["task_id"], 0).await.status, 202);
    // Also the same result again.
    assert_eq!(answer(&pending[1]["task_id"], 0).await.problem(), (409, "nothing_pending".to_owned()));
    assert_eq!(answer(&pending[0]["task_id"], 0).await.status, 202);
    assert_eq!(answer(&task["task_id"], 1).await.status, 202, "the id of the run is right for all");
    wait_outcome(&hw, &task).await;
}
