//! Through PgBouncer in transaction mode, where consecutive transactions of one client run on different connections: no
//! prepared statement, no setting and no lock may outlive a transaction.

use super::options;
use super::writers::{Writers, in_time};
use model_testing::test_seeds;
use postgres_testing::{PgBouncer, TestDatabase, shared};
use std::sync::{Arc, OnceLock};
use store::{PostgresOptions, PostgresStore};
use store_conformance::append_load::{AppendLoad, run_append_load};
use store_conformance::random_walk::RandomWalk;
use store_conformance::restart;

/// The pooler of this test process; `None` where it cannot run.
fn shared_pooler(test: &str) -> Option<&'static PgBouncer> {
    static POOLER: OnceLock<Option<PgBouncer>> = OnceLock::new();
    POOLER.get_or_init(|| PgBouncer::start_or_skip(shared(), test)).as_ref()
}

fn pooled_options(pooler: &PgBouncer, database: &TestDatabase) -> PostgresOptions {
    PostgresOptions { url: pooler.url(database.name()).parse().unwrap(), ..options(database) }
}

async fn open_pooled_store() -> Option<(PostgresStore, TestDatabase)> {
    let pooler = shared_pooler("the conformance suite through a pooler")?;
    let database = TestDatabase::create();
    Some((PostgresStore::open(pooled_options(pooler, &database)).await.unwrap(), database))
}

mod conformance {
    store_conformance::conformance! { @each
        match super::open_pooled_store().await {
            Some(opened) => opened,
            None => return,
        };
        journal:
            append_stores_the_given_sequence_numbers,
            append_without_records_changes_the_directory_alone,
            records_and_directory_change_together_or_not_at_all,
            a_refused_batch_affects_no_other,
            an_old_epoch_is_fenced,
            a_page_keeps_its_limits_but_has_at_least_one_record,
            records_are_returned_byte_for_byte,
            interleaved_threads_stay_separate;
        inbox:
            concurrent_starts_with_one_key_make_one_run,
            a_run_may_start_without_having_been_queued;
        questions:
            fifty_opposite_decisions_at_once_have_one_winner;
        blobs:
            concurrent_puts_of_the_same_bytes_make_one_blob;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_there_after_a_restart() {
    let Some(pooler) = shared_pooler("everything_is_there_after_a_restart") else { return };
    let database = TestDatabase::create();
    let store = PostgresStore::open(pooled_options(pooler, &database)).await.unwrap();
    let before = restart::write_before_restart(&store, &store).await;
    store.close().await;
    let store = PostgresStore::open(pooled_options(pooler, &database)).await.unwrap();
    restart::check_after_restart(&store, &store, before).await;
}

/// The pooler closes its connections to the server in between, as it does when the server restarts.
#[tokio::test(flavor = "multi_thread")]
async fn a_load_of_appends_survives_a_pooler_that_reconnects() {
    let Some(pooler) = shared_pooler("a_load_of_appends_survives_a_pooler_that_reconnects") else { return };
    let database = TestDatabase::create();
    let store = Arc::new(PostgresStore::open(pooled_options(pooler, &database)).await.unwrap());
    let load = AppendLoad { threads: 50, batch_records: 5, records: 5_000, first_thread: 1_000 };
    assert_eq!(in_time(run_append_load(&store, load)).await.records, 5_000);
    let writers = Writers::start(&store, 10, test_seeds().next().unwrap());
    for _ in 0..5 {
        writers.wait_for_appends(2).await;
        let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                   WHERE datname = current_database() AND pid <> pg_backend_pid()";
        assert_ne!(database.execute(sql), "0", "the pooler has connections");
    }
    writers.wait_for_appends(2).await;
    writers.stop_and_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pooled_store_agrees_with_the_reference_store() {
    let Some((store, _database)) = open_pooled_store().await else { return };
    let seed = test_seeds().next().unwrap();
    let mut walk = RandomWalk::new(seed, 1_000);
    walk.check_all(&store, &store).await;
    walk.run_steps(&store, &store, 200).await;
    assert!(walk.confirmed_records() > 50, "seed {seed}: a walk that got nowhere");
}
