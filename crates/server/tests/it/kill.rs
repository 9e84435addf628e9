//! `kill -9` at any moment: what was seen is stored, and every interrupted run ends by itself.

use crate::harness::Server;
use crate::viewers::{fetch_log, follow_until_cut, frame_id, is_terminal_frame};
use model_testing::{Rng, test_seeds};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub(crate) type ViewedFrames = Vec<(String, Arc<Mutex<Vec<String>>>)>;

/// Starts runs, each with a viewer that keeps its frames.
pub(crate) async fn start_viewed_runs(server: &Server, runs: usize) -> ViewedFrames {
    let mut seen = Vec::new();
    for _ in 0..runs {
        let task = server.start_run("story 60").await["task_id"].as_str().expect("a task").to_owned();
        let frames = Arc::new(Mutex::new(Vec::new()));
        tokio::spawn(follow_until_cut(server.url(""), task.clone(), Arc::clone(&frames)));
        seen.push((task, frames));
    }
    seen
}

/// After a restart: nothing that was seen is lost, there is no gap, and the run continues to exactly one end.
pub(crate) async fn check_recovered_logs(server: &Server, seen: &ViewedFrames, context: &str) -> usize {
    let mut witnessed = 0;
    for (task, frames) in seen {
        let frames = frames.lock().expect("not poisoned").clone();
        let log = fetch_log(&server.url(""), task).await;
        assert!(log.len() >= frames.len(), "{context}: {task} has {} records, {} were seen", log.len(), frames.len());
        assert_eq!(log[..frames.len()], frames[..], "{context}: what was seen of {task} is not in its log");
        let seqs: Vec<u64> = log.iter().filter_map(|frame| frame_id(frame).split_once('-')?.1.parse().ok()).collect();
        assert_eq!(seqs, (1..=log.len() as u64).collect::<Vec<_>>(), "{context}: gap in {task}");
        assert_eq!(log.iter().filter(|frame| is_terminal_frame(frame)).count(), 1, "{context}: ends of {task}");
        let last = log.last().expect("a log");
        assert!(is_terminal_frame(last), "{context}: {task} ends with {last}");
        assert!(last.contains("task.completed"), "{context}: {last}");
        witnessed += frames.len();
    }
    witnessed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_nine_at_random_moments_loses_nothing_that_was_seen() {
    let seed = test_seeds().next().unwrap_or_default();
    let mut rng = Rng::new(seed);
    let mut server = Server::demo();
    let (mut slowest, mut witnessed) = (Duration::ZERO, 0);
    for round in 0..25 {
        let seen = start_viewed_runs(&server, 8).await;
        tokio::time::sleep(Duration::from_millis(u64::from(rng.between(50, 800)))).await;
        server.kill9();
        let begun = Instant::now();
        server.restart();
        slowest = slowest.max(begun.elapsed());
        witnessed += check_recovered_logs(&server, &seen, &format!("SEED={seed} round {round}")).await;
    }
    eprintln!("25 kills: {witnessed} frames were seen, all are there; ready again within {slowest:?}");
    assert!(witnessed > 1000, "only {witnessed} frames were seen: this test no longer tests anything");
    // The promise is 2 s; a test fails on time only at five times the promise.
    assert!(slowest < Duration::from_secs(10), "ready after {slowest:?}");
    stop_and_verify(&mut server);
}

/// Stops cleanly and verifies the folder.
pub(crate) fn stop_and_verify(server: &mut Server) {
    server.signal("-TERM");
    assert!(server.wait_exit().success(), "{}", server.log());
    let verified = server.run_cli(&["verify"]);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}
