//! Cancelling one sub-agent: its run gets a result and continues.

use crate::broker_fixture::{broker_server, decide, placed_orders, start_paused, tool_results, wait_outcome};
use crate::harness::{Reply, Server};
use reqwest::Method;
use serde_json::{Value, json};

async fn cancel(hw: &Server, task: &str, mode: &str) -> Reply {
    hw.post(&format!("/v1/tasks/{task}/cancel"), json!({"mode": mode})).await
}

/// The run continued without the clerk, and all views agree.
async fn check(hw: &Server, task: &Value, clerk: &str, mode: &str) {
    let (ended, words) = wait_outcome(hw, task).await;
    assert_eq!((&ended["status"], placed_orders(hw).len()), (&json!("completed"), 0), "{mode}");
    let result = tool_results(&ended)[0];
    assert_eq!((&result["status"], &result["error"]["code"]), (&json!("incomplete"), &json!("cancelled")), "{mode}");
    assert!(words.contains("The agent was cancelled."), "{mode}: the model reads it: {words}");
    let stopped = hw.get(&format!("/v1/tasks/{clerk}")).await.json();
    assert_eq!((&stopped["status"], &stopped["reason"]), (&json!("cancelled"), &json!("user")), "{mode}");
    let frames = hw.frames(&format!("/v1/tasks/{}/events", task["task_id"].as_str().unwrap()), None).await;
    let place = frames.iter().position(|frame| frame.event == "task.paused").unwrap();
    let resumed = &frames[place + 1];
    assert_eq!((resumed.event.as_str(), &resumed.data["by"]), ("task.resumed", &json!("cancel")), "{mode}");
    let own = frames.iter().rfind(|frame| frame.data["task_id"] == clerk).unwrap();
    assert_eq!((own.event.as_str(), &own.data["mode"]), ("task.cancelled", &json!(mode)));
    let late = decide(hw, task, json!({"decision": "approve"})).await;
    assert_eq!(late.problem(), (409, "already_decided".to_owned()), "{mode}");
    assert_eq!(late.json()["approval"]["decided_by"], "system", "{mode}");
    let again = cancel(hw, clerk, mode).await;
    assert_eq!(
        (again.problem(), &again.json()["task_status"]),
        ((409, "already_ended".to_owned()), &json!("cancelled"))
    );
}

#[tokio::test]
async fn a_sub_agent_can_be_cancelled_by_its_id_while_its_run_waits_for_it() {
    let hw = broker_server("");
    for mode in ["immediate", "after_turn"] {
        let task = start_paused(&hw, json!({"input": "ask the clerk"})).await;
        let clerk = task["pending"][0]["task_id"].as_str().unwrap();
        let reply = cancel(&hw, clerk, mode).await;
        assert_eq!((reply.status, &reply.json()["task_id"]), (202, &json!(clerk)), "{}", reply.text);
        check(&hw, &task, clerk, mode).await;
    }
}

#[tokio::test]
async fn a_cancel_of_a_sub_agent_survives_a_kill() {
    let mut hw = broker_server("");
    let task = start_paused(&hw, json!({"input": "ask the clerk"})).await;
    let clerk = task["pending"][0]["task_id"].as_str().unwrap();
    assert_eq!(cancel(&hw, clerk, "immediate").await.status, 202);
    hw.kill9();
    hw.restart();
    check(&hw, &task, clerk, "immediate").await;
}

#[tokio::test]
async fn an_ended_or_foreign_sub_agent_is_not_cancelled() {
    let hw = broker_server("[auth]\nmode = \"keys\"");
    let key = |user: &str| String::from_utf8(hw.run_cli(&["keys", "create", "--user", user]).stdout).unwrap();
    let (ann, bob) = (key("ann").trim().to_owned(), format!("Bearer {}", key("bob").trim()));
    let hw = hw.with_key(&ann);
    let task = start_paused(&hw, json!({"input": "ask the clerk"})).await;
    let clerk = task["pending"][0]["task_id"].as_str().unwrap();
    let path = format!("/v1/tasks/{clerk}/cancel");
    let foreign = hw.request(Method::POST, &path, &[("authorization", &bob)], None).await;
    assert_eq!(foreign.problem(), (404, "not_found".to_owned()));
    // An id that this run never used, or used for something other than a task.
    for nobody in [format!("{clerk}9"), task["pending"][0]["call_id"].as_str().unwrap().to_owned()] {
        assert_eq!(cancel(&hw, &nobody, "immediate").await.problem(), (404, "not_found".to_owned()), "{nobody}");
    }
    assert_eq!(decide(&hw, &task, json!({"decision": "approve"})).await.status, 200);
    let (ended, words) = wait_outcome(&hw, &task).await;
    assert_eq!((&ended["status"], placed_orders(&hw).len()), (&json!("completed"), 1), "nothing of it was stopped");
    assert!(words.contains("bought"), "{words}");
    let late = cancel(&hw, clerk, "immediate").await;
    assert_eq!((late.problem(), &late.json()["task_status"]), ((409, "already_ended".to_owned()), &json!("completed")));
}

#[tokio::test]
async fn a_repeated_cancel_with_the_same_key_counts_once() {
    let hw = broker_server("");
    let task = start_paused(&hw, json!({"input": "ask the clerk"})).await;
    let clerk = task["pending"][0]["task_id"].as_str().unwrap();
    let post = async || {
        let headers = [("content-type", "application/json"), ("idempotency-key", "k")];
        hw.request(Method::POST, &format!("/v1/tasks/{clerk}/cancel"), &headers, Some(b"{}".to_vec())).await
    };
    assert_eq!(post().await.status, 202);
    check(&hw, &task, clerk, "immediate").await;
    let again = post().await;
    assert_eq!((again.status, &again.json()["status"]), (202, &json!("cancelled")), "{}", again.text);
}
