//! Reading runs while a server uses the folder, and without one.

use crate::data_folder::{kill, open};
use model::ports::{
    AttachmentOutcome, AttachmentWriter as _, InboxWriter as _, Journal, StoreError, ThreadWriter as _,
};
use model::record::Record;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::path::Path;
use store::{LoggedRecords, LoggedRun, StoreOpenError, find_logged_run};
use store_conformance::TestStore;
use store_conformance::blobs::{nth_blob, nth_hash};
use store_conformance::fixtures::{
    LogWriter, new_thread_submission, nth_run, nth_thread, other_user, start_command, test_user,
};

fn found(dir: &Path, n: usize) -> LoggedRun {
    find_logged_run(dir, &nth_run(n)).unwrap().unwrap()
}

async fn records(run: &LoggedRun) -> Vec<Record> {
    let mut reading = run.records();
    let all = read_some(&mut reading, usize::MAX).await;
    assert!(reading.next().await.is_none());
    all
}

/// The next records, at most `limit`.
pub(crate) async fn read_some(reading: &mut LoggedRecords<'_>, limit: usize) -> Vec<Record> {
    let mut records = Vec::new();
    while records.len() < limit
        && let Some(record) = reading.next().await
    {
        records.push(record.unwrap());
    }
    records
}

/// Records up to an error, and the error.
pub(crate) async fn read_to_error(run: &LoggedRun) -> (Vec<Record>, StoreError) {
    let (mut reading, mut records) = (run.records(), Vec::new());
    loop {
        match reading.next().await.expect("an error") {
            Ok(record) => records.push(record),
            Err(error) => {
                assert!(reading.next().await.is_none(), "nothing follows");
                return (records, error);
            }
        }
    }
}

/// Every file and its bytes.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.display().to_string(), std::fs::read(&path).unwrap())).collect()
}

/// A run of several pages, among records of others.
pub(crate) async fn long_run<S: Journal + TestStore>(store: &S) -> (LogWriter<'_>, Vec<Record>) {
    let mut author = LogWriter::for_owner(store, store, other_user(), 1).await;
    let mut other = LogWriter::new(store, store, 2).await;
    let mut all = author.start_run().must_append().await;
    other.start_run().must_append().await;
    for _ in 0..50 {
        all.extend(author.push_notes(100).must_append().await);
        other.push_notes(1).must_append().await;
    }
    (author, all)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_readable_while_active_and_after_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (mut author, mut all) = long_run(&store).await;

    let going_on = found(dir.path(), 1);
    assert_eq!((&going_on.owner, &going_on.thread, going_on.has_ended), (&other_user(), &nth_thread(1), false));
    assert_eq!(records(&going_on).await, all);

    // Its records move into blocks during the read.
    let half = read_some(&mut going_on.records(), 2_000).await;
    let mut reading = going_on.records();
    assert_eq!(read_some(&mut reading, 2_000).await, half);
    let before = all.len();
    all.extend(author.complete_run().must_append().await);
    while store.stats().blocks == 0 {
        tokio::task::yield_now().await;
    }
    let rest = read_some(&mut reading, usize::MAX).await;
    assert_eq!([half, rest].concat(), all[..before], "as far as it was when it was asked for");

    let ended = found(dir.path(), 1);
    assert!(ended.has_ended);
    assert_eq!(records(&ended).await, all);
    store.close().await;
    drop(store);
    assert_eq!(records(&ended).await, all, "the server may go meanwhile");
    assert_eq!(records(&found(dir.path(), 1)).await, all);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_sees_the_blobs_of_its_owner_only() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    LogWriter::for_owner(&store, &store, other_user(), 1).await.start_run().must_append().await;
    for (owner, n) in [(other_user(), 1), (test_user(), 2)] {
        store.reserve_attachment(&owner, &nth_blob(n, n, 7).path, 1).await.unwrap();
        assert_eq!(
            store.commit_blob(&owner, &nth_thread(1), nth_blob(n, n, 7), None).await,
            Ok(AttachmentOutcome::Stored)
        );
    }
    let run = found(dir.path(), 1);
    assert_eq!(run.find_blob(&nth_hash(1)).await, Ok(Some(nth_blob(1, 1, 7))));
    assert_eq!(run.find_blob(&nth_hash(2)).await, Ok(None));
    store.delete_thread(&other_user(), &nth_thread(1)).await.unwrap();
    assert_eq!(run.find_blob(&nth_hash(1)).await, Ok(None), "no thread uses it any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_an_unused_folder_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (_, all) = long_run(&store).await;
    let crashed = kill(dir.path());
    store.close().await;
    drop(store);

    let before = files(dir.path());
    let run = found(dir.path(), 1);
    assert_eq!(records(&run).await, all);
    assert_eq!(files(dir.path()), before);
    // A server that starts meanwhile is not refused, and neither are we.
    let store = open(dir.path());
    assert_eq!(records(&run).await, all);
    drop(store);

    // After a crash SQLite indexes the write-ahead log; the data stay unchanged.
    let data = |dir: &Path| files(dir).into_iter().filter(|(name, _)| !name.ends_with("-shm")).collect::<Vec<_>>();
    let before = data(crashed.path());
    assert_eq!(records(&found(crashed.path(), 1)).await, all);
    assert_eq!(data(crashed.path()), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_run_has_no_records_and_an_unknown_id_no_run() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.submit(&test_user(), new_thread_submission(&nth_thread(1), start_command(&nth_run(1)))).await.unwrap();
    let waits = found(dir.path(), 1);
    assert_eq!((waits.has_ended, waits.seq_range), (false, None));
    assert!(waits.records().next().await.is_none());
    assert!(find_logged_run(dir.path(), &nth_run(2)).unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_is_reported_after_the_records_before_it_and_a_deleted_run_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (mut author, mut all) = long_run(&store).await;
    all.extend(author.push_note("the last one").must_append().await);
    let mut author = LogWriter::new(&store, &store, 3).await;
    author.start_run().complete_run().must_append().await;
    let deleted = found(dir.path(), 3);
    store.delete_thread(&test_user(), &nth_thread(3)).await.unwrap();
    assert_eq!(deleted.records().next().await, Some(Err(StoreError::ThreadNotFound)));
    drop(store);

    let conn = Connection::open(dir.path().join("headwater.db")).unwrap();
    let sql = "UPDATE records SET data = CAST(replace(CAST(data AS TEXT), 'the last one', 'the lost one') AS BLOB)
               WHERE seq <= 5003 AND 5003 < seq + count AND thread = (SELECT num FROM threads WHERE id = ?1)";
    assert_eq!(conn.execute(sql, [nth_thread(1).as_str()]), Ok(1));
    drop(conn);
    let (read, error) = read_to_error(&found(dir.path(), 1)).await;
    assert!(matches!(error, StoreError::Corrupt { seq: model::Seq(5003), .. }), "{error}");
    assert_eq!(read, all[..5002]);
}

#[test]
fn reading_a_foreign_folder_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(find_logged_run(dir.path(), &nth_run(1)), Err(StoreOpenError::Foreign(_))));
    assert!(matches!(find_logged_run(&dir.path().join("none"), &nth_run(1)), Err(StoreOpenError::Foreign(_))));
    drop(open(dir.path()));
    assert!(find_logged_run(dir.path(), &nth_run(1)).unwrap().is_none());
}
