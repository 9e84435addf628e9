//! `on_disconnect: "cancel"`: a run ends with the connection of the request that started it.

use crate::harness::{Server, http_client};
use serde_json::{Value, json};

/// Starts a run over a connection of its own and returns it with the task's id.
async fn start(hw: &Server, input: &str) -> (reqwest::Response, String) {
    let body = json!({"model": "demo", "input": input, "stream": true, "on_disconnect": "cancel"});
    let response = http_client().post(hw.url("/v1/tasks")).json(&body).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let id = response.headers()["location"].to_str().unwrap().rsplit('/').next().unwrap().to_owned();
    (response, id)
}

async fn status(hw: &Server, task: &str) -> Value {
    hw.get(&format!("/v1/tasks/{task}")).await.json()["status"].clone()
}

#[tokio::test]
async fn a_run_is_cancelled_when_its_client_stays_away_whoever_else_watches() {
    let hw = Server::demo();
    let (response, task) = start(&hw, "slow 60").await;
    let waiting = json!({"model": "demo", "input": "slow 60", "wait": true, "on_disconnect": "cancel"});
    let request = http_client().post(hw.url("/v1/tasks")).json(&waiting).send();
    // The other client waits for its answer, and both go away.
    assert!(tokio::time::timeout(std::time::Duration::from_secs(2), request).await.is_err());
    let mut viewer = hw.open_stream(&format!("/v1/tasks/{task}/events")).await;
    drop(response);
    hw.wait_until("both runs are cancelled", async || {
        let tasks = hw.get("/v1/tasks").await.json();
        tasks["data"].as_array().unwrap().iter().all(|task| task["status"] == "cancelled")
    })
    .await;
    assert!(viewer.read_to_end().await.unwrap().contains("event: task.cancelled"));
}

#[tokio::test]
async fn a_client_that_comes_back_keeps_its_run() {
    let hw = Server::demo();
    // Longer than the grace of ten seconds.
    let (kept, task) = start(&hw, "slow 14").await;
    let (lost, control) = start(&hw, "slow 60").await;
    let plain = json!({"model": "demo", "input": "slow 14", "stream": true});
    let other = http_client().post(hw.url("/v1/tasks")).json(&plain).send().await.unwrap();
    let by_default = other.headers()["location"].to_str().unwrap().rsplit('/').next().unwrap().to_owned();
    drop((kept, lost, other));
    hw.wait_until("the server has seen all clients go away", async || {
        hw.get("/metrics").await.text.lines().any(|line| line == "headwater_streams_open 0")
    })
    .await;
    let mut stream = hw.open_stream(&format!("/v1/tasks/{task}/events")).await;
    stream.read_until("event: task.started").await;
    drop(stream);
    assert_eq!(hw.wait_ended(&task).await["status"], "completed");
    assert_eq!(hw.wait_ended(&by_default).await["status"], "completed");
    hw.wait_until("the run without a client is cancelled", async || status(&hw, &control).await == "cancelled").await;
}

#[tokio::test]
async fn only_a_request_with_a_connection_to_lose_can_be_cancelled_by_it() {
    let hw = Server::demo();
    for (body, status) in [
        (json!({"model": "demo", "input": "story 1 fast", "on_disconnect": "cancel"}), 422),
        (json!({"model": "demo", "input": "story 1 fast", "on_disconnect": "stop", "wait": true}), 422),
        (json!({"model": "demo", "input": "story 1 fast", "on_disconnect": "continue"}), 202),
        (json!({"model": "demo", "input": "story 1 fast", "on_disconnect": "cancel", "wait": true}), 200),
    ] {
        let reply = hw.post("/v1/tasks", body.clone()).await;
        assert_eq!(reply.status, status, "{body}: {}", reply.text);
    }
}
