//! Long runs are packed while they go on, and blocks have a condensed form.

use crate::data_folder::{DATABASE_FILES, database, kill, open};
use model::ports::{Journal, PageLimit, ThreadWriter as _, Threads as _};
use model::record::Record;
use model::seq::Seq;
use rusqlite::Connection;
use std::time::{Duration, Instant};
use store::{SqliteOptions, SqliteStore, verify_data_folder};
use store_conformance::condensed::{
    check_condensed, check_ranges, push_text_delta, push_text_end, push_text_start, read_condensed,
};
use store_conformance::fixtures::{
    LogWriter, claim_thread, nth_run, nth_thread, read_all_records, test_node, test_user,
};

/// More than this many rows of a live run would make the next start slow.
const ROWS_MAX: u64 = 6_000;

fn count(conn: &Connection, table: &str) -> u64 {
    query_count(conn, &format!("SELECT count(*) FROM {table}"))
}

/// The number of records that are rows.
fn count_unpacked(conn: &Connection) -> u64 {
    query_count(conn, "SELECT ifnull(sum(count), 0) FROM records")
}

/// The number of records that are in blocks.
fn count_packed(conn: &Connection) -> u64 {
    query_count(conn, "SELECT ifnull(sum(last_seq - first_seq + 1), 0) FROM blocks")
}

fn query_count(conn: &Connection, sql: &str) -> u64 {
    conn.query_row(sql, (), |row| row.get::<_, i64>(0)).unwrap().cast_unsigned()
}

/// Waits until the writer has done its work, which it does when it has nothing else to do.
async fn wait_until(store: &SqliteStore, what: &str, is_done: impl Fn() -> bool) {
    let patience = Instant::now() + Duration::from_secs(30);
    while !is_done() {
        assert!(Instant::now() < patience, "{what}");
        let _missing = store.claim(&test_user(), &nth_thread(1_000_000), &test_node()).await;
    }
}

async fn append_deltas(author: &mut LogWriter<'_>, batches: usize) -> Vec<Record> {
    let mut all = Vec::new();
    for batch in 0..batches {
        for n in 0..500 {
            push_text_delta(author, &format!("{batch}.{n} "));
        }
        all.extend(author.must_append().await);
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_run_leaves_few_rows_while_it_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut author = LogWriter::new(&store, &store, 1).await;
    push_text_start(&mut author);
    let mut all = author.must_append().await;
    // More than the append log keeps.
    all.extend(append_deltas(&mut author, 250).await);
    let conn = database(dir.path());
    wait_until(&store, "the rows are packed and deleted", || count_unpacked(&conn) < ROWS_MAX).await;
    let packed = count_packed(&conn);
    assert!(
        packed > 0 && packed + 512 <= all.len() as u64,
        "the newest records stay rows, or in the append log: {packed}"
    );
    assert_eq!(author.read_all().await, all);
    let bytes: usize = all.iter().map(Record::size_bytes).sum();
    assert_eq!(store.log_bytes_used(&test_user()).await, Ok(bytes as u64));
    let lease = author.lease;
    drop(author);

    let crashed = kill(dir.path());
    assert_eq!(verify_data_folder(crashed.path()).unwrap().problems, Vec::<String>::new());
    let place = (&test_user(), &nth_thread(1));
    let again = open(crashed.path());
    assert_eq!(read_all_records(&again, place, PageLimit::WIDE).await.unwrap(), all);
    assert_eq!(again.log_bytes_used(&test_user()).await, Ok(bytes as u64));
    drop(again);

    // The run goes on after a restart, and ends.
    drop(store);
    let store = open(dir.path());
    let fresh = claim_thread(&store, &test_user(), &nth_thread(1)).await;
    assert_eq!(fresh.head, lease.head);
    let mut author = LogWriter::with_lease(&store, test_user(), 1, fresh);
    author.now = all[all.len() - 1].at;
    all.extend(append_deltas(&mut author, 8).await);
    push_text_end(&mut author);
    all.extend(author.must_append().await);
    wait_until(&store, "everything is packed", || count_unpacked(&conn) < 2_048).await;
    assert_eq!(author.read_all().await, all);
    drop(author);
    drop(store);
    assert_eq!(count_unpacked(&conn), 0);
    assert_eq!(verify_data_folder(dir.path()).unwrap().problems, Vec::<String>::new());
}

/// A folder with the records of one run, packed, and the store.
async fn folder_with_run(condense: bool) -> (tempfile::TempDir, SqliteStore, Vec<Record>) {
    let dir = tempfile::tempdir().unwrap();
    let default = SqliteOptions::default();
    let options = SqliteOptions { condense: default.condense.filter(|_| condense), ..default };
    let store = SqliteStore::open(dir.path(), &options).unwrap();
    let mut author = LogWriter::new(&store, &store, 1).await;
    push_text_start(&mut author);
    let mut all = author.must_append().await;
    all.extend(append_deltas(&mut author, 12).await);
    push_text_end(&mut author);
    all.extend(author.must_append().await);
    drop(author);
    let conn = database(dir.path());
    let is_packed = || conn.query_row("SELECT max(last_seq) FROM blocks", (), |row| row.get::<_, Option<i64>>(0));
    let head = Some(all.len() as i64);
    wait_until(&store, "the run is packed", || is_packed().unwrap() == head).await;
    (dir, store, all)
}

async fn condensed(store: &SqliteStore) -> Vec<Record> {
    let place = (&test_user(), &nth_thread(1));
    read_condensed(store, place, (Seq::ZERO, Seq::MAX), PageLimit::WIDE).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_packed_run_is_read_in_condensed_form() {
    let (dir, store, all) = folder_with_run(true).await;
    let found = condensed(&store).await;
    check_condensed(&found, &all);
    assert!(found.len() < 40, "{} of {}", found.len(), all.len());
    let lease = claim_thread(&store, &test_user(), &nth_thread(1)).await;
    check_ranges(&LogWriter::with_lease(&store, test_user(), 1, lease), &all, &[700]).await;
    drop(store);
    assert_eq!(verify_data_folder(dir.path()).unwrap().problems, Vec::<String>::new());
    assert_eq!(condensed(&open(dir.path())).await, found);
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_without_a_condensed_form_are_read_as_they_are() {
    let (dir, store, mut all) = folder_with_run(false).await;
    assert_eq!(condensed(&store).await, all);
    drop(store);
    // An older version packed the first run.
    let store = open(dir.path());
    let lease = claim_thread(&store, &test_user(), &nth_thread(1)).await;
    let mut author = LogWriter::with_lease(&store, test_user(), 1, lease);
    (author.run, author.now) = (nth_run(2), all[all.len() - 1].at);
    push_text_start(&mut author);
    all.extend(author.must_append().await);
    all.extend(append_deltas(&mut author, 2).await);
    push_text_end(&mut author);
    all.extend(author.must_append().await);
    drop(author);
    let conn = database(dir.path());
    wait_until(&store, "the second run is condensed", || count(&conn, "condensed") > 0).await;
    let found = condensed(&store).await;
    check_condensed(&found, &all);
    assert!(found.len() < all.len() - 900);
    drop(store);
    assert_eq!(verify_data_folder(dir.path()).unwrap().problems, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_condensed_block_is_not_used_and_is_reported() {
    let (dir, store, all) = folder_with_run(true).await;
    drop(store);
    let damages = [
        "UPDATE condensed SET data = zeroblob(length(data)) WHERE first_seq = 1",
        "UPDATE condensed SET data = x'' WHERE first_seq = 1",
        "UPDATE condensed SET last_seq = last_seq + 1 WHERE first_seq = 1",
        "UPDATE condensed SET run = run + 1 WHERE first_seq = 1",
        "UPDATE condensed SET data = (SELECT data FROM condensed WHERE first_seq > 1 LIMIT 1) WHERE first_seq = 1",
    ];
    for sql in damages {
        let conn = database(dir.path());
        conn.execute_batch("CREATE TABLE kept AS SELECT * FROM condensed").unwrap();
        assert!(conn.execute(sql, ()).unwrap() > 0);
        let problems = verify_data_folder(dir.path()).unwrap().problems;
        assert_eq!(problems.len(), 1, "{sql}: {problems:?}");
        assert!(problems[0].contains("condensed"), "{problems:?}");
        let store = open(dir.path());
        let found = condensed(&store).await;
        check_condensed(&found, &all);
        assert!(found.len() > 1_000, "{sql}: the records themselves are read");
        drop(store);
        conn.execute_batch("DELETE FROM condensed; INSERT INTO condensed SELECT * FROM kept; DROP TABLE kept").unwrap();
    }
    assert_eq!(verify_data_folder(dir.path()).unwrap().problems, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_thread_leaves_no_condensed_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut author = LogWriter::new(&store, &store, 1).await;
    push_text_start(&mut author);
    // Without repetitions, so that compression leaves it readable.
    let secret = "Zq7Wx-vBn3Kd_Ty5Rp8Lm2Hf9Jc4Gs6";
    push_text_delta(&mut author, secret);
    for n in 0..40 {
        push_text_delta(&mut author, &format!("{n} "));
    }
    push_text_end(&mut author);
    author.must_append().await;
    drop(author);
    let conn = database(dir.path());
    wait_until(&store, "the run is condensed", || count(&conn, "condensed") > 0).await;
    drop(conn);
    assert_eq!(store.delete_thread(&test_user(), &nth_thread(1)).await, Ok(true));
    store.close().await;
    drop(store);
    assert_eq!(count(&database(dir.path()), "condensed"), 0);
    for file in DATABASE_FILES {
        let bytes = std::fs::read(dir.path().join(file)).unwrap_or_default();
        assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()), "{file}");
    }
    assert_eq!(verify_data_folder(dir.path()).unwrap().problems, Vec::<String>::new());
}
