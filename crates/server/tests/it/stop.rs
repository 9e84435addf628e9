//! Shutdown: short runs finish, longer ones are interrupted without a terminal event, and nothing is lost.

use crate::harness::{Server, parse_frames};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

#[tokio::test]
async fn a_run_that_ends_within_the_grace_period_finishes() {
    let mut hw = Server::demo();
    let task = hw.start_run("story 40").await;
    let id = task["task_id"].as_str().unwrap();
    let mut watcher = hw.open_stream(&format!("/v1/tasks/{id}/events")).await;
    watcher.read_until("task.text.delta").await;
    hw.signal("-TERM");
    let seen = watcher.read_to_end().await.unwrap();
    assert!(seen.contains("event: task.completed"));
    assert!(hw.wait_exit().success());
    assert!(!hw.data_dir().join("control.sock").exists());
    assert_eq!(hw.run_cli(&["verify"]).status.code(), Some(0));
}

#[tokio::test]
async fn a_longer_run_is_interrupted_and_continues_after_the_restart() {
    let mut hw = Server::demo_with("[server]\nstop_grace_ms = 200");
    let task = hw.start_run("story 100").await;
    let path = format!("/v1/tasks/{}/events", task["task_id"].as_str().unwrap());
    let mut watcher = hw.open_stream(&path).await;
    watcher.read_until("task.text.delta").await;
    let began = Instant::now();
    hw.signal("-INT");
    assert!(watcher.read_to_end().await.is_err(), "a cut must not look like the end");
    assert!(hw.wait_exit().success());
    assert!(began.elapsed().as_secs() < 10);
    assert_eq!(hw.run_cli(&["verify"]).status.code(), Some(0));
    hw.restart();
    let all = hw.frames(&path, None).await;
    assert_eq!(all.iter().filter(|frame| frame.event == "task.recovered").count(), 1);
    assert_eq!(all.last().unwrap().event, "task.completed");
}

#[tokio::test]
async fn a_second_signal_stops_at_once() {
    let mut hw = Server::demo_with("[server]\nstop_grace_ms = 60000");
    let task = hw.start_run("story 50000").await;
    let path = format!("/v1/tasks/{}/events", task["task_id"].as_str().unwrap());
    let mut watcher = hw.open_stream(&path).await;
    watcher.read_until("task.text.delta").await;
    let began = Instant::now();
    hw.signal("-TERM");
    hw.wait_until("the first signal was handled", async || hw.get("/readyz").await.status == 503).await;
    hw.signal("-TERM");
    assert!(hw.wait_exit().success());
    assert!(began.elapsed().as_secs() < 10);
    assert!(watcher.read_to_end().await.is_err());
}

#[tokio::test]
async fn idle_connections_and_streams_do_not_delay_shutdown() {
    let mut hw = Server::demo();
    let task = hw.start_run("story 1 fast").await;
    hw.wait_ended(task["task_id"].as_str().unwrap()).await;
    let mut watcher = hw.open_stream(&format!("/v1/threads/{}/events", task["thread_id"].as_str().unwrap())).await;
    watcher.read_until("task.completed").await;
    let _idle = TcpStream::connect(&hw.address).await.unwrap();
    let began = Instant::now();
    hw.signal("-TERM");
    assert!(watcher.read_to_end().await.is_err());
    assert!(hw.wait_exit().success());
    assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
    hw.restart();
    let path = format!("/v1/tasks/{}/events", task["task_id"].as_str().unwrap());
    assert!(!parse_frames(&hw.get(&path).await.text).is_empty());
}

/// The grace is all that a stop takes: turns, connections and files.
#[tokio::test]
async fn a_stop_takes_no_longer_than_its_grace() {
    const GRACE: Duration = Duration::from_millis(300);
    let mut hw = Server::demo_with(&format!("[server]\nstop_grace_ms = {}", GRACE.as_millis()));
    let task = hw.start_run("story 50000").await;
    let mut watcher = hw.open_stream(&format!("/v1/tasks/{}/events", task["task_id"].as_str().unwrap())).await;
    watcher.read_until("task.text.delta").await;
    let mut unfinished = Vec::new();
    for start in ["POST /v1/tasks HT", "POST /v1/tasks HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{"] {
        let mut stream = TcpStream::connect(&hw.address).await.unwrap();
        stream.write_all(start.as_bytes()).await.unwrap();
        unfinished.push(stream);
    }
    // The server has read those requests by the time it answers this later one.
    hw.get("/healthz").await;
    let began = Instant::now();
    hw.signal("-TERM");
    assert!(hw.wait_exit().success());
    assert!(began.elapsed() < 5 * GRACE, "{:?}", began.elapsed());
}
