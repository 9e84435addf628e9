//! How much a user's log holds: exact after crashes, and for folders that are older than the counters.

use crate::data_folder::{kill, make_older, open};
use memory_store::MemoryStore;
use model::UserId;
use model::ports::Threads as _;
use rusqlite::Connection;
use std::path::Path;
use std::time::{Duration, Instant};
use store::{SqliteOptions, SqliteStore};
use store_conformance::fixtures::{LogWriter, nth_run, other_user, test_user};
use store_conformance::log_quota::a_full_log_accepts_answers_and_nothing_new;
use store_conformance::random_walk::RandomWalk;

const QUOTA: u64 = 5_000;

#[tokio::test]
async fn memory_refuses_what_exceeds_the_quota() {
    let store = MemoryStore::new().with_log_bytes_per_user_max(QUOTA);
    a_full_log_accepts_answers_and_nothing_new(&store, &store, QUOTA).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_refuses_what_exceeds_the_quota() {
    let dir = tempfile::tempdir().unwrap();
    let options = SqliteOptions { log_bytes_per_user_max: Some(QUOTA), ..SqliteOptions::default() };
    let store = SqliteStore::open(dir.path(), &options).unwrap();
    a_full_log_accepts_answers_and_nothing_new(&store, &store, QUOTA).await;
}

/// The counters are right in whatever state a crash leaves the files.
#[tokio::test(flavor = "multi_thread")]
async fn the_size_is_exact_after_every_crash() {
    for seed in model_testing::test_seeds().step_by(12) {
        let mut kept = tempfile::tempdir().unwrap();
        let mut walk = RandomWalk::new(seed, usize::MAX);
        for _ in 0..8 {
            let store = open(kept.path());
            walk.forget_leases();
            walk.check_all(&store, &store).await;
            walk.run_steps(&store, &store, 60).await;
            kept = kill(kept.path());
        }
        assert!(walk.confirmed_records() > 100, "seed {seed}: a walk that got nowhere");
    }
}

/// What an older version would have left: no counters.
fn forget_counters(dir: &Path) {
    let conn = Connection::open(dir.join("headwater.db")).unwrap();
    let sql = "DROP TABLE thread_sizes; DROP TABLE log_sums; DROP TABLE checkpoint_runs; DROP TABLE condensed;
               DROP TABLE user_secrets; DROP TABLE mcp_pins; DELETE FROM meta WHERE name = 'uncounted_max'";
    conn.execute_batch(sql).unwrap();
    make_older(dir, 7);
}

async fn wait_for_size(store: &SqliteStore, owner: &UserId, wanted: u64) {
    let started = Instant::now();
    while store.log_bytes_used(owner).await.unwrap() != wanted {
        let used = store.log_bytes_used(owner).await.unwrap();
        assert!(started.elapsed() < Duration::from_secs(60), "{used} instead of {wanted}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_folder_is_counted_after_it_was_opened() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (mut mine, mut theirs) = (Vec::new(), Vec::new());
    for n in 1..=5 {
        let mut author = LogWriter::new(&store, &store, n).await;
        mine.extend(author.start_run().push_notes(30 * n).complete_run().must_append().await);
    }
    // A thread with many blocks, and a run that is under way.
    let mut author = LogWriter::for_owner(&store, &store, other_user(), 6).await;
    for n in 7..=150 {
        theirs.extend(author.start_run().push_notes(3).complete_run().must_append().await);
        author.run = nth_run(n);
    }
    theirs.extend(author.start_run().push_notes(3).must_append().await);
    let size = |records: &[model::Record]| records.iter().map(|record| record.size_bytes() as u64).sum::<u64>();
    let (mine, theirs) = (size(&mine), size(&theirs));
    assert_eq!(store.log_bytes_used(&test_user()).await, Ok(mine));
    assert_eq!(store.log_bytes_used(&other_user()).await, Ok(theirs));
    drop(author);
    store.close().await;
    drop(store);
    forget_counters(dir.path());

    let store = open(dir.path());
    wait_for_size(&store, &test_user(), mine).await;
    wait_for_size(&store, &other_user(), theirs).await;
    store.close().await;
    drop(store);
    // Counted once, and not again.
    let store = open(dir.path());
    assert_eq!(store.log_bytes_used(&test_user()).await, Ok(mine));
    assert_eq!(store.log_bytes_used(&other_user()).await, Ok(theirs));
}
