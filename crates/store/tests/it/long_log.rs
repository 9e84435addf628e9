//! What a start reads depends on what was live before it, not on the length of the log.

use crate::data_folder::kill;
use futures_util::future::join_all;
use model::ports::{AppendBatch, AppendOutcome, Journal};
use rusqlite::Connection;
use std::path::Path;
use store::{SqliteOptions, SqliteStore, verify_data_folder};
use store_conformance::fixtures::LogWriter;

const RUN_RECORDS: usize = 400;
const UNPACKED_ROWS_MAX: u64 = 4_096;
/// What a busy writer may leave: rows that wait to be packed, half as many dead ones, and those of the newest groups.
const ROWS_MAX: u64 = 12_000;
/// A deeper tree is a few pages.
const MORE_BYTES_MAX: u64 = 64 * 1024;

fn count_rows(dir: &Path) -> u64 {
    let conn = Connection::open(dir.join("headwater.db")).unwrap();
    conn.query_row("SELECT ifnull(sum(count), 0) FROM records", (), |row| row.get::<_, i64>(0)).unwrap().cast_unsigned()
}

/// A run as one batch.
async fn whole_run(store: &SqliteStore, n: usize) -> AppendBatch {
    let mut author = LogWriter::new(store, store, n).await;
    author.start_run().push_notes(RUN_RECORDS - 3).complete_run().batch()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_without_a_pause_leaves_few_rows_for_the_next_start() {
    const RUNS: usize = 100;
    let dir = tempfile::tempdir().unwrap();
    let unpacked_rows_max = UNPACKED_ROWS_MAX;
    let options = SqliteOptions { group_ops_max: 4, unpacked_rows_max, ..SqliteOptions::default() };
    let store = SqliteStore::open(dir.path(), &options).unwrap();
    let mut runs = Vec::new();
    for n in 0..RUNS {
        runs.push(whole_run(&store, n).await);
    }
    // All of them are queued before the first is durable, so the writer is never idle.
    let outcomes = join_all(runs.into_iter().map(|batch| store.append(batch))).await;
    assert!(outcomes.iter().all(|outcome| *outcome == AppendOutcome::Durable));
    let killed = kill(dir.path());

    let rows = count_rows(killed.path());
    assert!(rows < ROWS_MAX, "{rows} rows of {} records", RUNS * RUN_RECORDS);
    let found = verify_data_folder(killed.path()).unwrap();
    assert_eq!((found.problems, found.records), (Vec::<String>::new(), (RUNS * RUN_RECORDS) as u64));
}

/// What this thread has read so far, in bytes.
#[cfg(target_os = "linux")]
fn bytes_read() -> u64 {
    let io = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    io.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

/// The bytes that a start reads after `runs` packed runs and one that was under way. It reads the write-ahead log once, whose
/// size depends on what was last written.
#[cfg(target_os = "linux")]
async fn bytes_read_at_start(runs: usize) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path(), &SqliteOptions::default()).unwrap();
    for n in 0..runs {
        let run = whole_run(&store, n).await;
        assert_eq!(store.append(run).await, AppendOutcome::Durable);
    }
    // Packs what is left.
    drop(store);
    let store = SqliteStore::open(dir.path(), &SqliteOptions::default()).unwrap();
    let mut author = LogWriter::new(&store, &store, runs).await;
    author.start_run().push_notes(10).must_append().await;
    drop(author);
    let killed = kill(dir.path());
    let log_bytes = std::fs::metadata(killed.path().join("headwater.db-wal")).unwrap().len();
    let before = bytes_read();
    let store = SqliteStore::open(killed.path(), &SqliteOptions::default()).unwrap();
    let read = bytes_read() - before - log_bytes;
    drop(store);
    assert_eq!(count_rows(killed.path()), 12);
    read
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_start_reads_as_much_of_a_long_log_as_of_a_short_one() {
    let (short, long) = (bytes_read_at_start(20).await, bytes_read_at_start(200).await);
    assert!(short > 0 && long < short + MORE_BYTES_MAX, "{short} bytes, and {long} bytes of ten times as much");
}
