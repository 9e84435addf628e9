//! Decisions are made once, however often they are sent and however many approvals there are.

use super::{asks, guide, id, with};
use crate::harness::Server;
use serde_json::{Value, json};

/// Executed orders.
fn orders(hw: &Server) -> Vec<Value> {
    let text = std::fs::read_to_string(hw.path("orders")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

async fn object(hw: &Server, task: &Value) -> Value {
    hw.get(&format!("/v1/tasks/{}", id(task))).await.json()
}

fn desk(task: &Value) -> String {
    format!("/v1/tasks/{}/approvals/{}", id(task), task["pending"][0]["key"].as_str().unwrap())
}

/// A decision that is delivered many times, concurrently and after a crash, is one decision: all get its answer, and
/// the call runs once.
#[tokio::test]
async fn a_decision_that_is_delivered_many_times_is_one_decision() {
    let mut hw = guide();
    let task = hw.post("/v1/tasks", with(asks("order"), "wait", true)).await.json();
    let (desk, yes) = (desk(&task), json!({"decision": "approve"}));
    let replies = futures_util::future::join_all((0..20).map(|_| hw.post(&desk, yes.clone()))).await;
    let answers: Vec<(u16, Value)> = replies.iter().map(|reply| (reply.status, reply.json())).collect();
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    assert_eq!((answers[0].0, &answers[0].1["status"]), (200, &json!("approved")));
    assert_eq!(hw.wait_ended(id(&task)).await["status"], "completed");
    hw.kill9();
    hw.restart();
    let late = hw.post(&desk, yes).await;
    assert_eq!((late.status, late.json()), answers[0]);
    assert_eq!(orders(&hw), [json!({"n": 1})]);
}

/// Three consecutive approvals in a run that continues another succeed, each requested once.
#[tokio::test]
async fn three_approvals_in_a_row_in_a_chained_run() {
    let hw = guide();
    let before = hw.post("/v1/tasks", with(asks("hello"), "wait", true)).await.json();
    let mut task =
        hw.post("/v1/tasks", with(with(asks("order thrice"), "previous", id(&before)), "wait", true)).await.json();
    let mut keys: Vec<Value> = Vec::new();
    for n in 1..=3 {
        assert_eq!((&task["status"], &task["thread_id"]), (&json!("paused"), &before["thread_id"]), "{n}");
        let key = task["pending"][0]["key"].clone();
        assert!(!keys.contains(&key), "{n}: asked again");
        keys.push(key);
        assert_eq!(orders(&hw).len(), n - 1, "nothing is done before somebody said yes");
        assert_eq!(hw.post(&desk(&task), json!({"decision": "approve"})).await.status, 200, "{n}");
        hw.wait_until("it asks for the next one, or ends", async || {
            let now = object(&hw, &task).await;
            now["status"] == "completed" || now["status"] == "paused" && !keys.contains(&now["pending"][0]["key"])
        })
        .await;
        task = object(&hw, &task).await;
    }
    assert_eq!(task["status"], "completed", "{task}");
    assert_eq!(orders(&hw), [json!({"n": 1}), json!({"n": 2}), json!({"n": 3})]);
}
