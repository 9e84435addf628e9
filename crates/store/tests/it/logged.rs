//! Runs read beside the server that works in the folder, and without it.

use model::ports::{AttachmentOutcome, Attachments as _, Directory as _, StoreError};
use model::record::Record;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::path::Path;
use store::{LoggedRun, OpenError, Options, Sqlite, logged_run};
use store_conformance::blobs::{blob, hash};
use store_conformance::words::{Author, first_submission, run, somebody, start, stranger, thread};

fn open(dir: &Path) -> Sqlite {
    Sqlite::open(dir, &Options::default()).unwrap()
}

fn found(dir: &Path, n: usize) -> LoggedRun {
    logged_run(dir, &run(n)).unwrap().unwrap()
}

fn records(run: &LoggedRun) -> Vec<Record> {
    run.records().collect::<Result<_, _>>().unwrap()
}

/// Every file and its bytes.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.display().to_string(), std::fs::read(&path).unwrap())).collect()
}

/// A run of several pages, among others' records.
async fn long_run(store: &Sqlite) -> (Author<'_>, Vec<Record>) {
    let mut author = Author::of(store, store, stranger(), 1).await;
    let mut other = Author::new(store, store, 2).await;
    let mut all = author.begin().must_append().await;
    other.begin().must_append().await;
    for _ in 0..50 {
        all.extend(author.notes(100).must_append().await);
        other.notes(1).must_append().await;
    }
    (author, all)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_read_while_it_goes_on_and_when_it_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (mut author, mut all) = long_run(&store).await;

    let going_on = found(dir.path(), 1);
    assert_eq!((&going_on.owner, &going_on.thread, going_on.ended), (&stranger(), &thread(1), false));
    assert_eq!(records(&going_on), all);

    // Its records become blocks behind the back of whoever is reading them.
    let half = going_on.records().take(2_000).collect::<Result<Vec<_>, _>>().unwrap();
    let mut reading = going_on.records();
    assert_eq!(reading.by_ref().take(2_000).collect::<Result<Vec<_>, _>>().unwrap(), half);
    let before = all.len();
    all.extend(author.end().must_append().await);
    while store.stats().blocks == 0 {
        tokio::task::yield_now().await;
    }
    let rest = reading.collect::<Result<Vec<_>, _>>().unwrap();
    assert_eq!([half, rest].concat(), all[..before], "as far as it was when it was asked for");

    let ended = found(dir.path(), 1);
    assert!(ended.ended);
    assert_eq!(records(&ended), all);
    store.close().await;
    drop(store);
    assert_eq!(records(&ended), all, "the server may go meanwhile");
    assert_eq!(records(&found(dir.path(), 1)), all);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_knows_the_blobs_of_its_owner_and_of_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    Author::of(&store, &store, stranger(), 1).await.begin().must_append().await;
    for (owner, n) in [(stranger(), 1), (somebody(), 2)] {
        store.reserve_attachment(&owner, &blob(n, n, 7).path, 1).await.unwrap();
        assert_eq!(store.commit_blob(&owner, &thread(1), blob(n, n, 7), None).await, Ok(AttachmentOutcome::Stored));
    }
    let run = found(dir.path(), 1);
    assert_eq!(run.blob(&hash(1)), Ok(Some(blob(1, 1, 7))));
    assert_eq!(run.blob(&hash(2)), Ok(None));
    store.delete_thread(&stranger(), &thread(1)).await.unwrap();
    assert_eq!(run.blob(&hash(1)), Ok(None), "no thread uses it any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_nobody_works_in_is_read_without_a_trace() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (_, all) = long_run(&store).await;
    let crashed = tempfile::tempdir().unwrap();
    for name in ["headwater.db", "headwater.db-wal"] {
        std::fs::copy(dir.path().join(name), crashed.path().join(name)).unwrap();
    }
    store.close().await;
    drop(store);

    let before = files(dir.path());
    let run = found(dir.path(), 1);
    assert_eq!(records(&run), all);
    assert_eq!(files(dir.path()), before);
    // A server that comes meanwhile is not refused, and neither are we.
    let store = open(dir.path());
    assert_eq!(records(&run), all);
    drop(store);

    // After a crash SQLite makes an index of what waits in the write-ahead log; the data are as they were.
    let data = |dir: &Path| files(dir).into_iter().filter(|(name, _)| !name.ends_with("-shm")).collect::<Vec<_>>();
    let before = data(crashed.path());
    assert_eq!(records(&found(crashed.path(), 1)), all);
    assert_eq!(data(crashed.path()), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_waits_has_no_records_and_another_name_no_run() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.submit(&somebody(), first_submission(&thread(1), start(&run(1)))).await.unwrap();
    let waits = found(dir.path(), 1);
    assert_eq!((waits.ended, waits.span), (false, None));
    assert!(waits.records().next().is_none());
    assert!(logged_run(dir.path(), &run(2)).unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_is_said_after_what_stands_before_it_and_a_deleted_run_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (_, all) = long_run(&store).await;
    let mut author = Author::new(&store, &store, 3).await;
    author.begin().end().must_append().await;
    let deleted = found(dir.path(), 3);
    store.delete_thread(&somebody(), &thread(3)).await.unwrap();
    assert_eq!(deleted.records().next(), Some(Err(StoreError::ThreadNotFound)));
    drop(store);

    let conn = Connection::open(dir.path().join("headwater.db")).unwrap();
    let sql =
        "UPDATE records SET public = x'7b7d' WHERE seq = 4990 AND thread = (SELECT num FROM threads WHERE id = ?1)";
    assert_eq!(conn.execute(sql, [thread(1).as_str()]), Ok(1));
    drop(conn);
    let mut read: Vec<_> = found(dir.path(), 1).records().collect();
    assert!(matches!(read.pop(), Some(Err(StoreError::Corrupt { seq: model::Seq(4990), .. }))));
    assert_eq!(read.into_iter().collect::<Result<Vec<_>, _>>().unwrap(), all[..4989]);
}

#[test]
fn what_is_no_folder_of_ours_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(logged_run(dir.path(), &run(1)), Err(OpenError::Foreign(_))));
    assert!(matches!(logged_run(&dir.path().join("none"), &run(1)), Err(OpenError::Foreign(_))));
    drop(open(dir.path()));
    assert!(logged_run(dir.path(), &run(1)).unwrap().is_none());
}
