//! Requests that wait for a result: they cost nothing while they wait, and take the place of a stream.

use crate::harness::{SCENARIOS_HOLD, Server};
use serde_json::json;
use std::time::Duration;

/// Ticks of 10 ms that the process has used, in user and kernel mode.
fn cpu_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_requests_that_wait_in_a_long_thread_use_no_cpu() {
    let hw = Server::with_scenarios(SCENARIOS_HOLD);
    let first = hw.start_run("many").await;
    let thread = first["thread_id"].clone();
    let ended = hw.wait_ended(first["task_id"].as_str().unwrap()).await;
    assert!(ended["seq"].as_u64().unwrap() > 2_000, "the thread is long: {}", ended["seq"]);
    let hold = hw.create_task(json!({"model": "demo", "input": "hold", "thread_id": thread})).await;
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let (client, url) = (hw.client.clone(), hw.url("/v1/tasks"));
        let body = json!({"model": "demo", "input": "hello", "thread_id": thread, "wait": true});
        waiting.spawn(async move { client.post(url).json(&body).send().await.unwrap().status().as_u16() });
    }
    let queue = format!("/v1/tasks?thread_id={}&status=queued&limit=100", thread.as_str().unwrap());
    hw.wait_until("they are queued", async || hw.get(&queue).await.json()["data"].as_array().unwrap().len() == 100)
        .await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = cpu_ticks(hw.pid());
    tokio::time::sleep(Duration::from_secs(3)).await;
    let used = cpu_ticks(hw.pid()) - before;
    // Nothing happens in three seconds. A waiter that read the thread once a second would use a core and more.
    assert!(used < 60, "{used}0 ms of CPU time in 3 s");
    hw.post(&format!("/v1/tasks/{}/cancel", hold["task_id"].as_str().unwrap()), json!({})).await;
    while let Some(status) = waiting.join_next().await {
        assert_eq!(status.unwrap(), 200, "each is woken by its own run");
    }
}

#[tokio::test]
async fn a_request_that_waits_takes_the_place_of_a_stream_in_every_protocol() {
    let hw = Server::with_scenarios_and(SCENARIOS_HOLD, "[limits]\nstreams_per_user_max = 1");
    let task = hw.start_run("hold").await;
    let stream = hw.open_stream(&format!("/v1/tasks/{}/events", task["task_id"].as_str().unwrap())).await;
    let message = json!([{"role": "user", "content": "hello"}]);
    let requests = [
        ("/v1/tasks", json!({"model": "demo", "input": "hello", "wait": true})),
        ("/v1/responses", json!({"model": "demo", "input": "hello"})),
        ("/v1/messages", json!({"model": "demo", "max_tokens": 100, "messages": message})),
        ("/v1/chat/completions", json!({"model": "demo", "messages": message})),
    ];
    // The model holds after the first three.
    hw.wait_until("the run has begun", async || hw.count_threads_and_records().await.1 >= 3).await;
    let before = hw.count_threads_and_records().await;
    for (path, body) in &requests {
        let refused = hw.post(path, body.clone()).await;
        assert_eq!(refused.status, 429, "{path}: {}", refused.text);
        assert_eq!(refused.headers["retry-after"], "1", "{path}");
    }
    assert_eq!(hw.count_threads_and_records().await, before, "nothing was started");
    drop(stream);
    hw.wait_until("the place is free", async || hw.post(requests[0].0, requests[0].1.clone()).await.status == 200)
        .await;
    for (path, body) in requests {
        assert_eq!(hw.post(path, body).await.status, 200, "{path}: the place is given back");
    }
}
