//! A tool that was running when the process died: its outcome is unknown and reported as such.

use crate::broker_fixture::{broker_server, decide, placed_orders, tool_results, wait_outcome};
use crate::harness::Server;
use serde_json::{Value, json};

/// Kills the server while the order is being placed.
async fn cut(hw: &mut Server, input: &str) -> Value {
    let task = hw.create_task(json!({"model": "broker", "input": input})).await;
    hw.wait_until("the order is placed", async || placed_orders(hw).len() == 1).await;
    hw.kill9();
    hw.restart();
    task
}

/// The task, once approval is requested.
async fn wait_for_approval(hw: &Server, task: &Value) -> Value {
    let path = format!("/v1/tasks/{}", task["task_id"].as_str().unwrap());
    hw.wait_until("it asks", async || hw.get(&path).await.json()["status"] == "paused").await;
    hw.get(&path).await.json()
}

#[tokio::test]
async fn an_unknown_outcome_is_shown_and_not_retried() {
    let mut hw = broker_server("");
    let task = cut(&mut hw, "unsure").await;
    let (ended, words) = wait_outcome(&hw, &task).await;
    let result = tool_results(&ended)[0];
    assert_eq!((&result["status"], &result["error"]["code"]), (&json!("unknown"), &json!("outcome_unknown")));
    assert!(words.contains("may or may not"), "the model is told: {words}");
    assert_eq!((&ended["status"], placed_orders(&hw).len()), (&json!("completed"), 1));
    std::fs::write(hw.path("go"), "").unwrap();
}

#[tokio::test]
async fn a_person_can_approve_a_rerun() {
    let mut hw = broker_server("");
    let task = cut(&mut hw, "asking").await;
    let task = wait_for_approval(&hw, &task).await;
    let open = hw.get("/v1/approvals?status=pending").await.json();
    assert_eq!(
        (&open["data"][0]["name"], &open["data"][0]["key"]),
        (&json!("asking_order"), &task["pending"][0]["key"])
    );
    std::fs::write(hw.path("go"), "").unwrap();
    assert_eq!(decide(&hw, &task, json!({"decision": "approve"})).await.status, 200);
    let (ended, words) = wait_outcome(&hw, &task).await;
    assert!(words.contains("bought"), "{words}");
    assert_eq!((&tool_results(&ended)[0]["status"], placed_orders(&hw).len()), (&json!("completed"), 2));
}

#[tokio::test]
async fn a_person_can_supply_the_result() {
    let mut hw = broker_server("");
    let task = cut(&mut hw, "asking").await;
    let task = wait_for_approval(&hw, &task).await;
    let said = json!({"decision": "reject", "message": "It was placed: I have looked."});
    assert_eq!(decide(&hw, &task, said).await.status, 200);
    let (_, words) = wait_outcome(&hw, &task).await;
    assert!(words.contains("It was placed: I have looked."), "{words}");
    assert_eq!(placed_orders(&hw).len(), 1);
    std::fs::write(hw.path("go"), "").unwrap();
}
