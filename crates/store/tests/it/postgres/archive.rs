//! Runs in an archive: readable at the same cursors, moved without a moment at which a record is lost, and gone with their
//! thread.

mod faults;
mod memory_archive;
mod reading;

use super::options;
use memory_archive::MemoryArchive;
use model::record::Record;
use model_testing::test_seeds;
use postgres_testing::TestDatabase;
use std::sync::Arc;
use std::time::Duration;
use store::{ArchiveOptions, ArchivePlace, PostgresOpenError, PostgresOptions, PostgresStore};
use store_conformance::fixtures::{LogWriter, note_event, nth_run};
use store_conformance::random_walk::RandomWalk;

/// Archives when the test says so, in small segments.
pub(super) fn archive_options(archive: &Arc<MemoryArchive>) -> ArchiveOptions {
    let place = ArchivePlace { archive: Arc::clone(archive) as _, identity: "memory".to_owned() };
    ArchiveOptions {
        interval: Duration::from_secs(3_600),
        segment_bytes_max: 1_000,
        ..ArchiveOptions::new(place, Duration::ZERO)
    }
}

pub(super) async fn open_with(database: &TestDatabase, archive: ArchiveOptions) -> PostgresStore {
    let options = PostgresOptions { archive: Some(archive), ..options(database) };
    PostgresStore::open(options).await.unwrap()
}

pub(super) async fn open_archived() -> (PostgresStore, TestDatabase, Arc<MemoryArchive>) {
    let (database, archive) = (TestDatabase::create(), Arc::<MemoryArchive>::default());
    let store = open_with(&database, archive_options(&archive)).await;
    (store, database, archive)
}

/// Logs runs of some hundred bytes to some kilobytes in the `n`-th thread; the last of them has not ended. Returns the log.
pub(super) async fn write_runs(store: &PostgresStore, n: usize, runs: usize) -> Vec<Record> {
    let mut writer = LogWriter::new(store, store, n).await;
    for run in 1..=runs {
        writer.run = nth_run(n * 1_000 + run);
        writer.start_run().push_notes(7 * run);
        writer.push_event_with_private(note_event(&nth_run(n * 1_000 + run), "secret"), Some("private"));
        writer.complete_run().must_append().await;
    }
    writer.run = nth_run(n);
    writer.start_run().push_notes(3).must_append().await;
    writer.read_all().await
}

pub(super) fn count(database: &TestDatabase, sql: &str) -> usize {
    database.execute(&format!("SELECT count(*) FROM {sql}")).trim().parse().unwrap()
}

/// While the walk goes on, everything that has ended is archived at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_archives_agrees_with_the_reference_store() {
    for seed in test_seeds().step_by(32) {
        let (database, archive) = (TestDatabase::create(), Arc::<MemoryArchive>::default());
        let mut walk = RandomWalk::new(seed, 5);
        let mut segments = 0;
        for _ in 0..3 {
            let interval = Duration::from_millis(5);
            let archiving = ArchiveOptions { segment_bytes_max: 300, interval, ..archive_options(&archive) };
            let options = PostgresOptions { inbox_rows_max: 5, archive: Some(archiving), ..options(&database) };
            let store = PostgresStore::open(options).await.unwrap();
            for _ in 0..4 {
                walk.run_steps(&store, &store, 30).await;
                store.archive_ended_runs().await.unwrap();
            }
            walk.check_all(&store, &store).await;
            let stats = store.archive_stats().unwrap();
            assert_eq!(stats.failures, 0, "seed {seed}");
            segments += stats.segments;
            store.close().await;
        }
        assert!(segments > 10 && walk.confirmed_records() > 100, "seed {seed}: a walk that got nowhere: {segments}");
        // What was stopped in the middle is left to the next sweep.
        database.execute("UPDATE headwater.archive_objects SET due_at = '-infinity';");
        open_with(&database, archive_options(&archive)).await.sweep_archive().await.unwrap();
        assert_eq!(count(&database, "headwater.archive_objects"), 0, "seed {seed}");
        assert_eq!(archive.names().len(), count(&database, "headwater.segments"), "seed {seed}: one object each");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_archive_each_run_once() {
    let (store, database, archive) = open_archived().await;
    for n in 1..=12 {
        write_runs(&store, n, 3).await;
    }
    let other = PostgresOptions {
        node: model::NodeId::from("other"),
        archive: Some(archive_options(&archive)),
        ..options(&database)
    };
    let other = PostgresStore::open(other).await.unwrap();
    let (one, two) = tokio::join!(store.archive_ended_runs(), other.archive_ended_runs());
    assert_eq!(one.unwrap() + two.unwrap(), 36);
    assert_eq!(archive.puts(), count(&database, "headwater.segments"), "no object was made in vain");
    let stats = [&store, &other].map(|store| store.archive_stats().unwrap());
    assert!(stats.iter().all(|stats| stats.runs > 0), "one node did everything: {stats:?}");
    assert_eq!(store.archive_ended_runs().await.unwrap(), 0, "nothing is archived twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_archived_by_themselves_and_not_too_early() {
    let (database, archive) = (TestDatabase::create(), Arc::<MemoryArchive>::default());
    let hour = ArchiveOptions { after: Duration::from_secs(3_600), ..archive_options(&archive) };
    let store = open_with(&database, hour).await;
    write_runs(&store, 1, 1).await;
    let ended = "UPDATE headwater.runs SET ended_at = (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    database.execute(&format!("{ended} - 3500000 WHERE ended_at IS NOT NULL;"));
    assert_eq!(store.archive_ended_runs().await.unwrap(), 0);
    database.execute(&format!("{ended} - 3700000 WHERE ended_at IS NOT NULL;"));
    store.close().await;
    let soon = ArchiveOptions { interval: Duration::from_millis(20), ..archive_options(&archive) };
    let _store = open_with(&database, soon).await;
    super::writers::poll_until("the run is archived", || count(&database, "headwater.runs WHERE is_archived") == 1)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_archived_while_a_node_could_not_read_it() {
    let (database, archive) = (TestDatabase::create(), Arc::<MemoryArchive>::default());
    let without = PostgresStore::open(options(&database)).await.unwrap();
    write_runs(&without, 1, 2).await;
    let with = PostgresOptions { node: "new".into(), archive: Some(archive_options(&archive)), ..options(&database) };
    let store = PostgresStore::open(with).await.unwrap();
    assert_eq!(store.archive_ended_runs().await.unwrap(), 0);
    without.close().await;
    assert_eq!(store.archive_ended_runs().await.unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_another_archive_or_none_does_not_start() {
    let (store, database, archive) = open_archived().await;
    let elsewhere = || {
        let mut other = archive_options(&archive);
        other.place.identity = "elsewhere".to_owned();
        PostgresOptions { node: "other".into(), archive: Some(other), ..options(&database) }
    };
    // The first node may put something there at any time.
    let refused = PostgresStore::open(elsewhere()).await.unwrap_err();
    assert!(matches!(refused, PostgresOpenError::OtherArchive { .. }), "{refused}");
    store.close().await;
    // Nothing is archived yet, so there is nothing to lose.
    PostgresStore::open(elsewhere()).await.unwrap().close().await;
    let store = open_with(&database, archive_options(&archive)).await;
    write_runs(&store, 1, 1).await;
    assert_eq!(store.archive_ended_runs().await.unwrap(), 1);
    store.close().await;
    let refused = PostgresStore::open(elsewhere()).await.unwrap_err().to_string();
    assert!(refused.contains("memory") && refused.contains("elsewhere") && !refused.contains('\n'), "{refused}");
    let refused = PostgresStore::open(options(&database)).await.unwrap_err().to_string();
    assert_eq!(refused, "the database has archived runs: set [database] archive to the place that has them (memory)");
    assert_eq!(count(&database, "headwater.nodes"), 0, "a node that did not start holds no lease");
}
