//! Packing from memory: what is not in the log is not in a block.

use crate::data_folder::{database, open, waits};
use model::ports::{AppendOutcome, Journal as _, PageLimit};
use std::time::Duration;
use store::{SqliteOptions, SqliteStore, verify_data_folder};
use store_conformance::fixtures::{LogWriter, nth_thread, read_all_records, test_user};

/// A batch that ends its run is in the same group as one that fails. The caller repeats it with other records, and these are
/// packed.
#[tokio::test(flavor = "multi_thread")]
async fn records_of_a_failed_group_are_not_packed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut first = LogWriter::new(&store, &store, 1).await;
    let mut ended = LogWriter::new(&store, &store, 2).await;
    let mut failing = LogWriter::new(&store, &store, 3).await;
    let mut all = ended.start_run().must_append().await;
    let other = database(dir.path());
    other
        .execute_batch(
            "CREATE TRIGGER trouble BEFORE INSERT ON records WHEN NEW.count > 40
             BEGIN SELECT RAISE(ABORT, 'disk on fire'); END; BEGIN IMMEDIATE;",
        )
        .unwrap();
    let blocked = first.start_run().batch();
    let ended_batch = ended.push_note("withdrawn").complete_run().batch();
    let failing_batch = failing.start_run().push_notes(40).batch();
    let blocked = store.append(blocked);
    // Meanwhile the writer takes it and waits for the lock, and the others gather. Should it not, it takes all three.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut appends = [blocked, store.append(ended_batch), store.append(failing_batch)];
    for append in &mut appends {
        assert!(waits(append).await);
    }
    other.execute_batch("COMMIT").unwrap();
    let verdicts = futures_util::future::join_all(appends).await;
    assert!(verdicts[1..].iter().all(|verdict| matches!(verdict, AppendOutcome::Unknown(_))), "{verdicts:?}");
    other.execute_batch("DROP TRIGGER trouble").unwrap();

    (ended.records, ended.changes) = (Vec::new(), Vec::new());
    all.extend(ended.push_note("kept").complete_run().must_append().await);
    drop((first, ended, failing));
    drop(store);
    let rows = "SELECT ifnull(sum(count), 0) FROM records WHERE thread = (SELECT num FROM threads WHERE id = ?1)";
    let rows: i64 = other.query_row(rows, [nth_thread(2).as_str()], |row| row.get(0)).unwrap();
    assert_eq!(rows, 0, "the run is packed");
    assert_eq!(verify_data_folder(dir.path()).unwrap().problems, Vec::<String>::new());
    let place = (&test_user(), &nth_thread(2));
    assert_eq!(read_all_records(&open(dir.path()), place, PageLimit::WIDE).await.unwrap(), all);
}

/// A writer that is never idle does not wait for 131,072 rows: it packs while the records are in memory.
#[tokio::test(flavor = "multi_thread")]
async fn a_busy_writer_packs_runs_while_they_are_in_memory() {
    const RUNS: usize = 40;
    let dir = tempfile::tempdir().unwrap();
    let options = SqliteOptions { group_ops_max: 4, ..SqliteOptions::default() };
    let store = SqliteStore::open(dir.path(), &options).unwrap();
    let mut runs = Vec::new();
    for n in 0..RUNS {
        let mut author = LogWriter::new(&store, &store, n).await;
        author.start_run();
        for _ in 0..20 {
            author.push_note(&"x".repeat(20_000));
        }
        runs.push(author.complete_run().batch());
    }
    // All of them are queued before the first is durable.
    let appends: Vec<_> = runs.iter().map(|batch| store.append(batch.clone())).collect();
    let outcomes = futures_util::future::join_all(appends).await;
    let blocks = store.stats().blocks;
    assert!(outcomes.iter().all(|outcome| *outcome == AppendOutcome::Durable));
    assert!(blocks >= 10, "{blocks} blocks");
    for (n, batch) in runs.iter().enumerate() {
        let place = (&test_user(), &nth_thread(n));
        let read = read_all_records(&store, place, PageLimit::WIDE).await.unwrap();
        assert_eq!(read, batch.records[..]);
    }
}
