//! A run that kills the server whenever it is resumed: it fails in the end, and the server stays.

use crate::harness::Server;
use serde_json::json;

const FATAL: &str = r#"
[agents.fatal]
model = "scripted/demo"
input_hook = { command = ["sh", "-c", "kill -9 $PPID"] }
"#;

const SLOW: &str = r#"
[server]
stop_grace_ms = 50
[agents.hesitant]
model = "scripted/demo"
input_hook = { command = ["sh", "-c", "cat > /dev/null; echo >> starts; until [ -e go ]; do sleep 0.02; done; echo '{}'"] }
"#;

#[tokio::test]
async fn a_run_that_is_slow_to_resume_survives_any_number_of_ordinary_restarts() {
    let mut hw = Server::demo_with(SLOW);
    let task = hw.create_task(json!({"model": "hesitant", "input": "hello"})).await;
    for start in 1..=6 {
        let starts = || std::fs::read_to_string(hw.path("starts")).unwrap_or_default().lines().count();
        hw.wait_until("the hook runs", async || starts() >= start).await;
        hw.signal("-TERM");
        assert!(hw.wait_exit().success());
        hw.restart();
    }
    std::fs::write(hw.path("go"), "").unwrap();
    let ended = hw.wait_ended(task["task_id"].as_str().unwrap()).await;
    assert_eq!(ended["status"], "completed", "{ended}");
}

#[tokio::test]
async fn a_run_that_kills_the_server_three_times_fails_and_the_server_stays() {
    let mut hw = Server::demo_with(FATAL);
    let other = hw.start_run("weather").await;
    let other = other["task_id"].as_str().unwrap().to_owned();
    hw.wait_ended(&other).await;
    // The server may die before it has answered; the run is durable when it does.
    let _answer = hw.client.post(hw.url("/v1/tasks")).json(&json!({"model": "fatal", "input": "hello"})).send().await;
    for _ in 0..3 {
        hw.wait_exit();
        hw.try_restart();
    }
    hw.wait_exit();
    hw.restart();
    hw.wait_until("the run has failed", async || {
        let tasks = hw.get("/v1/tasks").await.json();
        tasks["data"].as_array().unwrap().iter().any(|task| task["agent"] == "fatal" && task["status"] == "failed")
    })
    .await;
    let tasks = hw.get("/v1/tasks").await.json();
    let fatal = tasks["data"].as_array().unwrap().iter().find(|task| task["agent"] == "fatal").unwrap();
    let task = hw.get(&format!("/v1/tasks/{}", fatal["task_id"].as_str().unwrap())).await.json();
    assert_eq!((&task["status"], &task["error"]["code"]), (&json!("failed"), &json!("recovery_failed")), "{task}");
    assert_eq!(hw.get(&format!("/v1/tasks/{other}")).await.json()["status"], "completed");
    let next = hw.start_run("weather").await;
    assert_eq!(hw.wait_ended(next["task_id"].as_str().unwrap()).await["status"], "completed");
}
