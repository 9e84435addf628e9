//! Damaged files: detected and reported, never served.

use crate::data_folder::{database, open};
use model::event::{Event, StateDelta, StateSnapshot};
use model::ports::{AliasKind, InboxWriter as _, Journal, PageLimit, StoreError, ThreadWriter as _};
use model::record::Record;
use model::{ThreadId, UserId};
use model_testing::{Rng, test_seeds};
use store::{SqliteOptions, SqliteStore, verify_data_folder};
use store_conformance::fixtures::{
    LogWriter, approve, decide_command, nth_run, nth_thread, read_all_records, start_command, submission, test_node,
    test_user,
};
use store_conformance::random_log::RandomLogWriter;
use store_conformance::threads::nth_alias;

type Log = (UserId, ThreadId, Vec<Record>);

/// A folder with threads in every state, closed.
async fn folder(seed: u64) -> (tempfile::TempDir, Vec<Log>) {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut logs = Vec::new();
    let mut rng = Rng::new(seed);
    for offset in 0..3 {
        let mut play = RandomLogWriter::new(&store, &store, seed.wrapping_mul(10).wrapping_add(offset)).await;
        // Some end in the middle of a run.
        let until = if offset == 0 { play.records.len() } else { 1 + rng.below(play.records.len()) };
        while play.appended_len() < until {
            play.append(rng.between(1, 20) as usize).await;
        }
        logs.push((play.owner.clone(), play.thread.clone(), play.records[..play.appended_len()].to_vec()));
    }
    drop(store);
    (dir, logs)
}

/// Reads a thread to its end or to the first error.
async fn read(store: &SqliteStore, (owner, thread, log): &Log) -> (usize, Option<StoreError>) {
    let mut after = model::Seq::ZERO;
    loop {
        let limit = PageLimit { records_max: 16, bytes_max: usize::MAX };
        let page = match store.read_page(owner, thread, after, limit).await {
            Ok(page) => page,
            Err(error) => return (usize::try_from(after.0).unwrap(), Some(error)),
        };
        for record in &page.records {
            let place = usize::try_from(after.0).unwrap();
            assert_eq!(Some(record), log.get(place), "a wrong record");
            after = record.seq;
        }
        if page.records.is_empty() {
            return (usize::try_from(after.0).unwrap(), None);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_is_detected_and_no_wrong_record_is_returned() {
    for seed in test_seeds().step_by(24) {
        println!("seed {seed}");
        let (dir, logs) = folder(seed).await;
        let whole = std::fs::read(dir.path().join("headwater.db")).unwrap();
        let mut rng = Rng::new(seed);
        let mut noticed = 0;
        for _ in 0..60 {
            let place = rng.below(whole.len());
            let mut bytes = whole.clone();
            bytes[place] ^= 1 << rng.below(8);
            let bent = tempfile::tempdir().unwrap();
            std::fs::write(bent.path().join("headwater.db"), bytes).unwrap();
            let clean = verify_data_folder(bent.path()).is_ok_and(|report| report.is_clean());
            let Ok(store) = SqliteStore::open(bent.path(), &SqliteOptions::default()) else {
                assert!(!clean, "seed {seed} at {place}: does not open, but is clean");
                noticed += 1;
                continue;
            };
            for log in &logs {
                let (found, error) = read(&store, log).await;
                let short = found < log.2.len();
                assert!(!short || error.is_some(), "seed {seed} at {place}: {found} of {} and no word", log.2.len());
                assert!(!clean || error.is_none(), "seed {seed} at {place}: {error:?}, but clean");
                noticed += usize::from(error.is_some());
            }
        }
        assert!(noticed > 0, "seed {seed}: nothing was hit");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_is_reported_and_other_threads_keep_working() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut all = Vec::new();
    for n in 1..=3 {
        let mut author = LogWriter::new(&store, &store, n).await;
        let mut log = author.start_run().push_notes(2).must_append().await;
        // A row each.
        log.extend(author.push_note("lost").push_change().must_append().await);
        log.extend(author.push_notes(7).push_change().must_append().await);
        all.push(log);
    }
    drop(store);
    let damaged = |sql: &str| assert_eq!(database(dir.path()).execute(sql, ()).unwrap(), 1);
    // The second record of its row.
    damaged(
        "UPDATE records SET data = CAST(replace(CAST(data AS TEXT), 'note 1', 'note 5') AS BLOB) WHERE thread = 1 AND seq = 6",
    );
    damaged("DELETE FROM records WHERE thread = 2 AND seq = 5");

    let report = verify_data_folder(dir.path()).unwrap();
    assert_eq!(report.problems.len(), 3, "{report}");
    assert!(
        report
            .problems
            .iter()
            .any(|line| line.contains(&format!("the log of {} is damaged at record 7", nth_thread(1))))
    );
    assert!(
        report
            .problems
            .iter()
            .any(|line| line.contains(&format!("the log of {} is damaged at record 5", nth_thread(2))))
    );

    let store = open(dir.path());
    for (n, seq) in [(1, 7), (2, 5)] {
        let log = (test_user(), nth_thread(n), all[n - 1].clone());
        let corrupt = StoreError::Corrupt { thread: nth_thread(n), seq: model::Seq(seq) };
        let before = usize::try_from(seq - 1).unwrap();
        assert_eq!(read(&store, &log).await, (before, Some(corrupt.clone())));
        if n == 2 {
            assert_eq!(store.claim(&test_user(), &nth_thread(n), &test_node()).await, Err(corrupt));
        }
    }
    assert_eq!(read_all_records(&store, (&test_user(), &nth_thread(3)), PageLimit::WIDE).await.unwrap(), all[2]);
    store_conformance::fixtures::claim_thread(&store, &test_user(), &nth_thread(3)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_or_changed_block_is_damage_too() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut all = Vec::new();
    for n in 1..=3 {
        let mut author = LogWriter::new(&store, &store, n).await;
        let mut log = author.start_run().push_notes(10).complete_run().must_append().await;
        author.run = nth_run(10 + n);
        log.extend(author.start_run().push_notes(5).complete_run().must_append().await);
        all.push(log);
    }
    drop(store);
    let damaged = |sql: &str| assert_eq!(database(dir.path()).execute(sql, ()).unwrap(), 1);
    damaged("DELETE FROM blocks WHERE thread = 1 AND first_seq = 14");
    damaged("DELETE FROM blocks WHERE thread = 2 AND first_seq = 1");
    damaged(
        "UPDATE blocks SET data = CAST(substr(data, 1, length(data) - 9) || X'010203040506070809' AS BLOB) WHERE thread = 3 AND first_seq = 14",
    );
    let store = open(dir.path());
    for (n, seq) in [(1, 14), (2, 1), (3, 14)] {
        let (found, error) = read(&store, &(test_user(), nth_thread(n), all[n - 1].clone())).await;
        assert!(found >= seq - 1, "thread {n}: {found}");
        let corrupt = StoreError::Corrupt { thread: nth_thread(n), seq: model::Seq(found as u64 + 1) };
        assert_eq!(error, Some(corrupt), "thread {n}");
    }
    drop(store);
    let report = verify_data_folder(dir.path()).unwrap();
    assert_eq!(report.problems.len(), 3, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_compares_the_rows_with_the_log() {
    let lies = [
        "UPDATE runs SET status = 'failed' WHERE status = 'completed'",
        "UPDATE runs SET status = 'running', ended_at = NULL WHERE status = 'completed'",
        "UPDATE runs SET ended_at = NULL WHERE status = 'completed'",
        "UPDATE runs SET first = first + 1 WHERE status = 'completed'",
        "UPDATE runs SET status = 'paused' WHERE status = 'running'",
        "UPDATE runs SET status = 'completed', ended_at = 1 WHERE status = 'running'",
        "UPDATE runs SET status = 'queued' WHERE status = 'running'",
        "UPDATE runs SET status = 'asleep' WHERE status = 'running'",
        "UPDATE inbox SET thread = 99 WHERE id = 1",
        "UPDATE inbox SET command = '{}' WHERE id = 1",
        "UPDATE records SET thread = 99 WHERE pos = (SELECT max(pos) FROM records)",
        "UPDATE records SET seq = seq + 1 WHERE pos = (SELECT max(pos) FROM records)",
        "INSERT INTO checkpoints VALUES (99, 1, '{}')",
        "INSERT INTO checkpoint_runs VALUES (99, 0, '{}')",
        "UPDATE approvals SET thread = 99 WHERE answer IS NULL",
        "UPDATE approvals SET thread = 1 WHERE answer IS NULL",
        "UPDATE approvals SET owner = 'stranger' WHERE answer IS NULL",
        "UPDATE approvals SET run = 'task_other' WHERE answer IS NULL",
        "UPDATE approvals SET action = '{}' WHERE answer IS NULL",
        "UPDATE approvals SET answer = '{}' WHERE answer IS NOT NULL",
        "UPDATE names SET thread = 'nothing' WHERE name = 'older than its thread'",
        "INSERT INTO attachment_sums VALUES ('somebody', 7)",
        "INSERT INTO shares VALUES ('share_1', 99, '', NULL, 1, 2, NULL)",
    ];
    for lie in lies {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        for n in 1..=2 {
            let mut author = LogWriter::new(&store, &store, n).await;
            author.start_run().push_notes(3).must_append().await;
            if n == 1 {
                author.complete_run().must_append().await;
            } else {
                let asked = author.request_approval(1);
                author.request_approval(2);
                author.must_append().await;
                store
                    .submit(&test_user(), submission(&nth_thread(2), decide_command(&asked, &approve())))
                    .await
                    .unwrap();
            }
        }
        store.create_alias(&test_user(), nth_alias(AliasKind::Conversation, "older than its thread", 9)).await.unwrap();
        drop(store);
        let report = verify_data_folder(dir.path()).unwrap();
        assert_eq!(report.to_string(), "2 threads, 2 runs, 13 records\nno damage found");
        assert_eq!(database(dir.path()).execute(lie, ()).unwrap(), 1, "{lie}");
        let report = verify_data_folder(dir.path()).unwrap();
        assert!(!report.is_clean(), "{lie}");
        assert!(report.to_string().lines().nth(1).unwrap().starts_with("problem: "), "{report}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_detects_a_task_that_ends_twice_or_never() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut author = LogWriter::new(&store, &store, 1).await;
    author.start_run().complete_run().must_append().await;
    // The directory knows that the run has ended, so only the log can repeat it.
    let again = store_conformance::fixtures::completed_event(&author.run);
    author.push_event(again).must_append().await;
    drop(store);
    let report = verify_data_folder(dir.path()).unwrap();
    assert_eq!(report.problems, [format!("{}: record 4 is of a task, but no run goes on", nth_thread(1))]);
}

/// Runs of earlier versions do not repeat the state of their thread.
#[tokio::test(flavor = "multi_thread")]
async fn verify_accepts_a_patch_of_the_state_that_an_earlier_run_set() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut author = LogWriter::new(&store, &store, 1).await;
    author.start_run();
    let (task_id, state) = (author.run.clone(), serde_json::json!({"a": 1}));
    author.push_event(Event::StateSnapshot(StateSnapshot { task_id, state })).complete_run().must_append().await;
    author.run = nth_run(2);
    let again = submission(&author.thread, start_command(&author.run));
    store.submit(&test_user(), again).await.unwrap();
    author.start_run();
    let delta = vec![serde_json::json!({"op": "replace", "path": "/a", "value": 2})];
    let delta = StateDelta { task_id: author.run.clone(), delta };
    author.push_event(Event::StateDelta(delta)).complete_run().must_append().await;
    drop(store);
    assert_eq!(verify_data_folder(dir.path()).unwrap().problems, [""; 0]);
}
