//! Durability, however the process ended.

use crate::data_folder::{LOG_FILES, kill, make_older, open};
use model::ports::{InboxWriter as _, Journal, PageLimit};
use model::seq::Seq;
use rusqlite::Connection;
use std::path::Path;
use store::{find_logged_run, verify_data_folder};
use store_conformance::fixtures::{LogWriter, nth_run, nth_thread, read_all_records, test_user};
use store_conformance::random_log::RandomLogWriter;
use store_conformance::restart::{check_after_restart, write_before_restart};

#[tokio::test(flavor = "multi_thread")]
async fn everything_survives_a_close() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let remembered = write_before_restart(&store, &store).await;
    store.close().await;
    drop(store);
    assert!(!dir.path().join("headwater.db-wal").exists(), "the write-ahead log was copied");
    let store = open(dir.path());
    check_after_restart(&store, &store, remembered).await;
    drop(store);
    assert_eq!(verify_data_folder(dir.path()).unwrap().problems, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_records_survive_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let remembered = write_before_restart(&store, &store).await;
    let crashed = kill(dir.path());
    assert_eq!(verify_data_folder(crashed.path()).unwrap().problems, Vec::<String>::new());
    let again = open(crashed.path());
    check_after_restart(&again, &again, remembered).await;
    drop(again);
    assert_eq!(verify_data_folder(crashed.path()).unwrap().problems, Vec::<String>::new());
}

/// A database that is only read is not migrated, and all who read it find the same.
#[tokio::test(flavor = "multi_thread")]
async fn records_of_an_older_version_are_read_and_migrated_without_loss() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let remembered = write_before_restart(&store, &store).await;
    let killed = kill(dir.path());
    make_older(killed.path(), 12);
    assert_eq!(verify_data_folder(killed.path()).unwrap().problems, Vec::<String>::new());
    let older = open(killed.path());
    check_after_restart(&older, &older, remembered).await;
    drop(older);
    assert_eq!(verify_data_folder(killed.path()).unwrap().problems, Vec::<String>::new());

    let mut author = LogWriter::new(&store, &store, 77).await;
    author.run = nth_run(77);
    let live = author.start_run().push_notes(7).must_append().await;
    let killed = kill(dir.path());
    make_older(killed.path(), 12);
    assert_eq!(read_stopped(killed.path()).await, live);
    drop(open(killed.path()));
    assert_eq!(read_stopped(killed.path()).await, live);
}

/// The records of the run 77, as those read them who do not open the folder.
async fn read_stopped(dir: &Path) -> Vec<model::Record> {
    assert_eq!(verify_data_folder(dir).unwrap().problems, Vec::<String>::new());
    let run = find_logged_run(dir, &nth_run(77)).unwrap().unwrap();
    let (mut records, mut log) = (Vec::new(), run.records());
    while let Some(record) = log.next().await {
        records.push(record.unwrap());
    }
    records
}

#[tokio::test(flavor = "multi_thread")]
async fn every_prefix_survives_a_crash() {
    for seed in model_testing::test_seeds().step_by(12) {
        println!("seed {seed}");
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let mut play = RandomLogWriter::new(&store, &store, seed).await;
        let mut rng = model_testing::Rng::new(seed);
        while play.appended_len() < play.records.len() {
            // Short batches change nothing but records, most of the time.
            let records_max = if rng.chance(70) { 3 } else { 120 };
            play.append(rng.between(1, records_max) as usize).await;
            let crashed = kill(dir.path());
            let report = verify_data_folder(crashed.path()).unwrap();
            assert!(report.is_clean(), "seed {seed} at {}: {report}", play.appended_len());
            assert_eq!(report.records, play.appended_len() as u64);
            let again = open(crashed.path());
            let back = read_all_records(&again, (&play.owner, &play.thread), PageLimit::WIDE).await.unwrap();
            assert_eq!(back, play.records[..play.appended_len()], "seed {seed}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_write_ahead_log_is_a_shorter_log() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut play = RandomLogWriter::new(&store, &store, 3).await;
    while play.appended_len() < play.records.len().min(400) {
        play.append(3).await;
    }
    let mut rng = model_testing::Rng::new(7);
    let whole = std::fs::metadata(dir.path().join("headwater.db-wal")).unwrap().len();
    let mut longest = 0;
    for round in 0..24 {
        let crashed = kill(dir.path());
        // It would tell what is missing.
        for name in LOG_FILES {
            std::fs::remove_file(crashed.path().join(name)).unwrap();
        }
        let wal = crashed.path().join("headwater.db-wal");
        let place = rng.next_u64() % whole;
        if round % 2 == 0 {
            std::fs::OpenOptions::new().write(true).open(&wal).unwrap().set_len(place).unwrap();
        } else {
            let mut bytes = std::fs::read(&wal).unwrap();
            bytes[usize::try_from(place).unwrap()] ^= 1 << rng.below(8);
            std::fs::write(&wal, bytes).unwrap();
        }
        let report = verify_data_folder(crashed.path()).unwrap();
        assert!(report.is_clean(), "round {round} at {place}: {report}");
        let again = open(crashed.path());
        match read_all_records(&again, (&play.owner, &play.thread), PageLimit::WIDE).await {
            Ok(back) => {
                longest = longest.max(back.len());
                assert_eq!(back, play.records[..back.len()], "round {round} at {place}");
            }
            Err(error) => assert_eq!(error, model::ports::StoreError::ThreadNotFound, "round {round} at {place}"),
        }
    }
    assert!(longest > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_before_packing_a_run_is_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let count = |sql: &str| -> i64 {
        let conn = Connection::open(dir.path().join("headwater.db")).unwrap();
        conn.query_row(sql, (), |row| row.get(0)).unwrap()
    };
    let conn = Connection::open(dir.path().join("headwater.db")).unwrap();
    conn.execute_batch("CREATE TRIGGER late BEFORE INSERT ON blocks BEGIN SELECT RAISE(ABORT, 'not now'); END")
        .unwrap();
    let mut author = LogWriter::new(&store, &store, 1).await;
    let mut all = author.start_run().push_notes(20).complete_run().must_append().await;
    author.run = nth_run(2);
    all.extend(author.start_run().push_notes(3).must_append().await);
    assert_eq!(author.read_all().await, all);
    drop(author);
    store.close().await;
    drop(store);
    assert_eq!(count("SELECT ifnull(sum(count), 0) FROM records"), 28);
    conn.execute_batch("DROP TRIGGER late").unwrap();
    drop(conn);

    let store = open(dir.path());
    store.close().await;
    drop(store);
    assert_eq!((count("SELECT ifnull(sum(count), 0) FROM records"), count("SELECT count(*) FROM blocks")), (5, 1));
    let store = open(dir.path());
    let back = read_all_records(&store, (&test_user(), &nth_thread(1)), PageLimit::WIDE).await.unwrap();
    assert_eq!(back, all);
}

#[tokio::test(flavor = "multi_thread")]
async fn old_idempotency_keys_expire_and_recent_ones_stay() {
    use store_conformance::fixtures::{new_thread_submission, start_command, submission, with_idempotency_key};
    const DAY: u64 = 24 * 60 * 60 * 1000;
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut first = with_idempotency_key(new_thread_submission(&nth_thread(1), start_command(&nth_run(1))), "old", "d");
    first.at = 100 * DAY;
    store.submit(&test_user(), first.clone()).await.unwrap();
    let mut second = with_idempotency_key(submission(&nth_thread(1), start_command(&nth_run(2))), "young", "d");
    second.at = 107 * DAY;
    store.submit(&test_user(), second.clone()).await.unwrap();
    let mut third = with_idempotency_key(submission(&nth_thread(1), start_command(&nth_run(3))), "new", "d");
    third.at = 108 * DAY;
    store.submit(&test_user(), third).await.unwrap();
    drop(store);
    let store = open(dir.path());
    let repeated = model::ports::Submitted::Duplicate { task: nth_run(2), thread: nth_thread(1) };
    assert_eq!(store.submit(&test_user(), second).await, Ok(repeated));
    first = with_idempotency_key(submission(&nth_thread(1), start_command(&nth_run(4))), "old", "another body");
    assert_eq!(store.submit(&test_user(), first).await, Ok(model::ports::Submitted::Queued));
    assert_eq!(store.read_page(&test_user(), &nth_thread(1), Seq(0), PageLimit::ONE).await.unwrap().head, Seq(0));
}
