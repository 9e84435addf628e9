//! A runtime whose workers gather what they read for a commit.

use std::sync::mpsc::channel;
use std::time::Duration;
use store::{SqliteOptions, SqliteStore, TickLoad};
use store_conformance::fixtures::LogWriter;

/// Longer than anything here takes, unless a worker stays away.
const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_holds_the_worker_does_not_hold_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let always = TickLoad { appends_min: 0, begin_busy_max: f64::INFINITY, go_on_busy_max: f64::INFINITY };
    let store =
        SqliteStore::open(dir.path(), &SqliteOptions { ticks: Some(always), ..SqliteOptions::default() }).unwrap();
    let mut author = LogWriter::new(&store, &store, 1).await;
    author.start_run().must_append().await;
    for _ in 0..50 {
        let ticks_before = store.stats().ticks;
        while store.stats().ticks < ticks_before + 5 {
            author.push_notes(1).must_append().await;
        }
        let (unblock, blocked) = channel::<()>();
        let held = tokio::spawn(async move { blocked.recv_timeout(PATIENCE).is_ok() });
        // The other worker is in reserve.
        tokio::spawn(async move { unblock.send(()).unwrap() });
        assert!(held.await.unwrap(), "a worker stayed in reserve");
    }
    let appended = author.read_all().await.len();
    assert!(appended > 50);
    store.close().await;
}
