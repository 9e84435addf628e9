//! Many viewers that disconnect, resume or stop reading.

use crate::harness::Server;
use crate::viewers::{ViewerFrames, fetch_log, follow_with_drops, open_stalled_viewer};
use model_testing::{Rng, test_seeds};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A model with long output, so that a stalled reader really blocks its socket; and one that only waits.
fn long_winded() -> String {
    let words = "word ".repeat(200);
    format!(
        "[[scenario]]\nmatch = 'hold'\n[[scenario.turn]]\nsteps = [{{ pause_ms = 600000 }}, {{ text = \"\" }}]\n\
         [[scenario]]\n[[scenario.turn]]\nsteps = [{{ text = \"{words}\", repeat = 300, every_ms = 10 }}]\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_tasks_with_five_viewers_that_disconnect_and_resume() {
    let server = Server::demo();
    let seed = test_seeds().next().unwrap_or_default();
    let mut tasks = Vec::new();
    for _ in 0..200 {
        tasks.push(task_of(&server.start_run("story 100").await));
    }
    let mut viewers = Vec::new();
    for (place, task) in tasks.iter().enumerate() {
        for viewer in 0..5_u64 {
            let (url, task) = (server.url(""), task.clone());
            let rng = Rng::new(seed ^ (place as u64 * 5 + viewer));
            viewers.push(tokio::spawn(async move { (task.clone(), follow_with_drops(&url, &task, rng).await) }));
        }
    }
    let (mut drops, mut logs) = (0, BTreeMap::new());
    for viewer in viewers {
        let (task, ViewerFrames { frames, resumed }) = viewer.await.expect("a viewer ends");
        drops += resumed;
        let log = match logs.remove(&task) {
            Some(log) => log,
            None => fetch_log(&server.url(""), &task).await,
        };
        assert_eq!(frames, log, "SEED={seed}: a viewer of {task} did not see the log");
        assert!(log.len() > 100, "a story of 100 has over 100 records");
        logs.insert(task, log);
    }
    assert!(drops > 500, "only {drops} drops: this test no longer tests anything");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_stalled_viewers_cost_little_and_slow_no_other() {
    let mut server = Server::demo();
    server.kill9();
    std::fs::write(server.data_dir().with_file_name("scenarios.toml"), long_winded()).unwrap();
    server.restart();
    let alone = server.wait_ended(&task_of(&server.start_run("go").await)).await;
    // The watched run is queued behind another one until all viewers are attached.
    let hold = server.start_run("hold").await;
    let behind = json!({"model": "demo", "input": "go", "thread_id": hold["thread_id"]});
    let task = task_of(&server.create_task(behind).await);
    let before = resident_mib(server.pid());
    let mut sockets = Vec::new();
    for _ in 0..1000 {
        sockets.push(open_stalled_viewer(&server.url(""), &task).await);
    }
    let there = Instant::now();
    while !server.get("/metrics").await.text.contains("headwater_streams_open 1000") {
        assert!(there.elapsed() < Duration::from_secs(20), "they do not all come in");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.post(&format!("/v1/tasks/{}/cancel", task_of(&hold)), json!({})).await;
    let begun = Instant::now();
    let mut peak = 0;
    while object(&server, &task).await["ended_at"].is_null() {
        peak = peak.max(resident_mib(server.pid()));
        assert!(begun.elapsed() < Duration::from_secs(60), "the run does not end");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let watched = object(&server, &task).await;
    let took = |object: &Value| {
        object["ended_at"].as_f64().unwrap_or_default() - object["created_at"].as_f64().unwrap_or_default()
    };
    let (alone, watched) = (took(&alone), took(&watched));
    let added = peak.saturating_sub(before);
    eprintln!("1,000 stalled viewers: {before} + {added} MiB, run {watched} ms against {alone} ms alone");
    assert!(added < 64, "1,000 viewers that do not read added {added} MiB");
    // The promise is 5 %; a test fails on time only at five times the promise.
    assert!(watched < alone * 1.25, "the run took {watched} ms with them, {alone} ms without");
    drop(sockets);
    assert!(fetch_log(&server.url(""), &task).await.len() > 300, "who reads still gets all of it");
}

fn task_of(object: &Value) -> String {
    object["task_id"].as_str().expect("a task").to_owned()
}

async fn object(server: &Server, task: &str) -> Value {
    server.get(&format!("/v1/tasks/{task}")).await.json()
}

fn resident_mib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is there");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a process has a size");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1024
}
