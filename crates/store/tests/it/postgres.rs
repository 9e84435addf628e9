//! The PostgreSQL store on a real server: the conformance suite, restarts, and agreement with the reference store.

mod archive;
mod damage;
mod full_disk;
mod leases;
mod lost_commits;
mod migrations;
mod open_errors;
mod orphaned_links;
mod outages;
mod pooler;
mod proxy;
mod statements;
mod tails;
mod tls;
mod writers;

use model::ports::{InboxWriter as _, Submitted};
use model_testing::test_seeds;
use postgres_testing::TestDatabase;
use store::{PostgresOptions, PostgresStore};
use store_conformance::fixtures::{
    LogWriter, new_thread_submission, nth_run, nth_thread, start_command, test_node, test_user,
};
use store_conformance::random_walk::RandomWalk;
use store_conformance::{log_quota, restart};

pub(crate) fn options(database: &TestDatabase) -> PostgresOptions {
    PostgresOptions { connections_max: 4, ..PostgresOptions::new(database.url().parse().unwrap(), test_node()) }
}

/// The `n`-th thread, held by the store's node.
async fn create_thread(store: &PostgresStore, n: usize) -> LogWriter<'_> {
    let start = new_thread_submission(&nth_thread(n), start_command(&nth_run(n)));
    let submitted = store.submit(&test_user(), start).await.unwrap();
    let Submitted::Claimed { lease, .. } = submitted else { panic!("{submitted:?}") };
    LogWriter::with_lease(store, test_user(), n, lease)
}

async fn open_store() -> (PostgresStore, TestDatabase) {
    let database = TestDatabase::create();
    (PostgresStore::open(options(&database)).await.unwrap(), database)
}

mod conformance {
    store_conformance::conformance!(super::open_store().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_there_after_a_restart() {
    let database = TestDatabase::create();
    let store = PostgresStore::open(options(&database)).await.unwrap();
    let before = restart::write_before_restart(&store, &store).await;
    store.close().await;
    let store = PostgresStore::open(options(&database)).await.unwrap();
    restart::check_after_restart(&store, &store, before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_log_accepts_answers_and_nothing_new() {
    let database = TestDatabase::create();
    let max = 20_000;
    let options = PostgresOptions { log_bytes_per_user_max: Some(max), ..options(&database) };
    let store = PostgresStore::open(options).await.unwrap();
    log_quota::a_full_log_accepts_answers_and_nothing_new(&store, &store, max).await;
}

const INBOX: usize = 5;
const STEPS: usize = 400;

#[tokio::test(flavor = "multi_thread")]
async fn postgres_agrees_with_the_reference_store_across_restarts() {
    for seed in test_seeds().step_by(16) {
        let database = TestDatabase::create();
        let mut walk = RandomWalk::new(seed, INBOX);
        for _ in 0..3 {
            let options = PostgresOptions { inbox_rows_max: INBOX, ..options(&database) };
            let store = PostgresStore::open(options).await.unwrap();
            // Unlike SQLite's, leases are rows, so those of this node are still valid.
            walk.check_all(&store, &store).await;
            walk.run_steps(&store, &store, STEPS / 2).await;
            assert_eq!(store.stats().failures, 0, "seed {seed}");
            store.close().await;
        }
        assert!(
            walk.confirmed_records() > 100 && walk.effective_decisions() > 0,
            "seed {seed}: a walk that got nowhere"
        );
    }
}
