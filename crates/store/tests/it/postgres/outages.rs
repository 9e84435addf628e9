//! A server that crashes, restarts or is slow: appends wait for it, everything else fails in bounded time, and nothing that was
//! acknowledged is lost or applied twice.

use super::options;
use super::proxy::Proxy;
use super::writers::{Writers, in_time, poll_until};
use model::ports::{
    AppendOutcome, Inbox as _, InboxWriter as _, Journal as _, PageLimit, StoreError, SubmitError, Threads as _,
};
use model::seq::Seq;
use model_testing::{Rng, test_seeds};
use postgres_testing::{PostgresServer, TestDatabase};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{PostgresOptions, PostgresStore};
use store_conformance::fixtures::{LogWriter, new_thread_submission, nth_run, nth_thread, start_command, test_user};
use tokio::task::block_in_place;

const WRITERS: usize = 20;
const KILLS: usize = 10;
/// An operation during an outage fails earlier.
const FAILURE_MAX: Duration = Duration::from_secs(15);

async fn open(database: &TestDatabase) -> Arc<PostgresStore> {
    Arc::new(PostgresStore::open(options(database)).await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_continue_after_crashes_of_the_server() {
    let seed = test_seeds().next().unwrap();
    let mut server = PostgresServer::start();
    let database = TestDatabase::create_on(&server);
    let store = open(&database).await;
    let writers = Writers::start(&store, WRITERS, seed);
    for crash in 1..=3 {
        writers.wait_for_appends(5).await;
        block_in_place(|| server.crash());
        poll_until("an append waits", || store.stats().failures >= crash).await;
        block_in_place(|| server.start_again());
    }
    writers.wait_for_appends(5).await;
    writers.stop_and_check().await;
}

/// The process that commits the appends, in the middle of a transaction.
fn find_writing_backend(database: &TestDatabase) -> Option<i32> {
    let sql = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()
               AND (query LIKE '%ORDER BY num FOR UPDATE' OR query LIKE '%INSERT INTO headwater.records%'
                    OR query LIKE '%UPDATE headwater.threads%' OR query LIKE '%INSERT INTO headwater.spent%')";
    database.execute(sql).lines().next().map(|pid| pid.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_continue_after_their_backend_is_killed() {
    let seed = test_seeds().next().unwrap();
    let mut rng = Rng::new(seed);
    let server = PostgresServer::start();
    let database = TestDatabase::create_on(&server);
    let store = open(&database).await;
    let writers = Writers::start(&store, WRITERS, seed);
    writers.wait_for_appends(1).await;
    for kill in 1..=KILLS {
        let confirmed = writers.confirmed() + rng.below(100);
        poll_until("appends continue", || writers.confirmed() > confirmed).await;
        let mut backend = None;
        poll_until("a transaction of the writer", || {
            backend = block_in_place(|| find_writing_backend(&database));
            backend.is_some()
        })
        .await;
        let failures = store.stats().failures;
        block_in_place(|| server.kill_backend(backend.unwrap()));
        block_in_place(|| server.wait_until_ready());
        poll_until("an append was interrupted", || store.stats().failures > failures).await;
        writers.wait_for_appends(1).await;
        let restarts = server.log().matches("all server processes terminated; reinitializing").count();
        assert_eq!(restarts, kill, "seed {seed}: the server restarts after every kill");
    }
    writers.stop_and_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_server_fails_operations_and_delays_appends() {
    let mut server = PostgresServer::start();
    let database = TestDatabase::create_on(&server);
    let store = open(&database).await;
    let mut writer = LogWriter::new(&*store, &*store, 1).await;
    let mut known = writer.start_run().must_append().await;
    block_in_place(|| server.stop_fast());

    let begun = Instant::now();
    let read = store.read_page(&test_user(), &nth_thread(1), Seq::ZERO, PageLimit::WIDE).await.unwrap_err();
    assert!(matches!(read, StoreError::Unavailable(_)), "{read}");
    let start = new_thread_submission(&nth_thread(2), start_command(&nth_run(2)));
    let refused = store.submit(&test_user(), start.clone()).await.unwrap_err();
    assert!(matches!(refused, SubmitError::Store(StoreError::Unavailable(_))), "{refused}");
    assert!(begun.elapsed() < FAILURE_MAX, "{:?}", begun.elapsed());
    let mut waiting = store.append(writer.push_notes(2).batch());
    poll_until("the append waits", || store.stats().failures >= 3).await;
    assert!(futures_util::FutureExt::now_or_never(&mut waiting).is_none());

    block_in_place(|| server.start_again());
    assert_eq!(in_time(waiting).await, AppendOutcome::Durable);
    known.append(&mut writer.records);
    assert_eq!(writer.read_all().await, known);
    assert_eq!(store.thread(&test_user(), &nth_thread(2)).await.unwrap(), None, "what failed was not done");
    store.submit(&test_user(), start).await.unwrap();
    assert_eq!(store.inbox(&test_user(), &nth_thread(2)).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_does_not_wait_for_a_stopped_server() {
    let mut server = PostgresServer::start();
    let database = TestDatabase::create_on(&server);
    let store = open(&database).await;
    let mut writer = LogWriter::new(&*store, &*store, 1).await;
    writer.start_run().must_append().await;
    block_in_place(|| server.stop_fast());
    let waiting = [store.append(writer.push_notes(2).batch()), store.append(writer.push_notes(2).batch())];
    poll_until("the append waits", || store.stats().failures >= 1).await;
    tokio::time::timeout(FAILURE_MAX, store.close()).await.expect("a store closes without its database");
    for outcome in waiting {
        let outcome = outcome.await;
        assert!(matches!(outcome, AppendOutcome::Unknown(_)), "{outcome:?}");
    }
    block_in_place(|| server.start_again());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_server_loses_nothing() {
    let seed = test_seeds().next().unwrap();
    let database = TestDatabase::create();
    let proxy = Proxy::start(postgres_testing::shared().port()).await;
    let url = proxy.url(database.name()).parse().unwrap();
    let store = Arc::new(PostgresStore::open(PostgresOptions { url, ..options(&database) }).await.unwrap());
    let writers = Writers::start(&store, WRITERS, seed);
    writers.wait_for_appends(1).await;
    proxy.delay_answers(Duration::from_millis(250));
    let begun = Instant::now();
    writers.wait_for_appends(3).await;
    assert!(begun.elapsed() > Duration::from_millis(750), "the answers were delayed");
    assert_eq!(store.stats().failures, 0);
    proxy.delay_answers(Duration::ZERO);
    writers.stop_and_check().await;
}

/// Longer than a transaction waits for a lock.
#[tokio::test(flavor = "multi_thread")]
async fn appends_wait_for_a_thread_that_somebody_else_has_locked() {
    let database = TestDatabase::create();
    let store = open(&database).await;
    let mut writer = LogWriter::new(&*store, &*store, 1).await;
    let mut known = writer.start_run().must_append().await;
    let database = Arc::new(database);
    let lock = "BEGIN; SELECT num FROM headwater.threads FOR UPDATE; SELECT pg_sleep(6); COMMIT";
    let locking = tokio::task::spawn_blocking({
        let database = Arc::clone(&database);
        move || database.execute(lock)
    });
    poll_until("the thread is locked", || {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'";
        database.execute(sql) == "1"
    })
    .await;
    known.extend(in_time(writer.push_notes(2).must_append()).await);
    assert!(store.stats().failures > 0, "the lock was held for too long");
    assert_eq!(writer.read_all().await, known);
    locking.await.unwrap();
}
