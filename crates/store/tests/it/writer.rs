//! The single writer: group commit, spacing, failures, and concurrent readers.

use crate::data_folder::{DATABASE_FILES, database, open, waits};
use futures_util::future::join_all;
use model::ports::{
    AliasKind, AppendOutcome, DirectoryChange, Inbox as _, InboxWriter as _, Journal, PageLimit, StoreError,
    SubmitError, Submitted, ThreadWriter as _, Threads as _,
};
use model::seq::Seq;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};
use store::{SqliteOptions, SqliteStore, verify_data_folder};
use store_conformance::fixtures::{
    LogWriter, cancel_command, decide_command, new_thread_submission, nth_run, nth_thread, reject, start_command,
    submission, test_node, test_user,
};
use store_conformance::threads::{nth_alias, with_conversation_data};

/// Waits until the writer is idle: it answers in order.
async fn settle(store: &SqliteStore) {
    let missing = store.claim(&test_user(), &nth_thread(1_000_000), &test_node()).await;
    assert_eq!(missing, Err(StoreError::ThreadNotFound));
}

/// Otherwise every turn of a conversation would cost two further visits to the store before it starts.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_claims_the_thread_that_its_last_executor_released() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (owner, thread) = (test_user(), nth_thread(1));
    let made = store.submit(&owner, new_thread_submission(&thread, start_command(&nth_run(1)))).await;
    let Ok(Submitted::Claimed { mut lease, mut row }) = made else { panic!("{made:?}") };
    for n in 1..=3 {
        let mut author = LogWriter { run: nth_run(n), ..LogWriter::with_lease(&store, owner.clone(), 1, lease) };
        author.changes.push(DirectoryChange::ConsumeInboxRow { row });
        author.start_run().complete_run().must_append().await;
        let head = author.lease.head;
        store.release(&thread, author.lease);
        let next = store.submit(&owner, submission(&thread, start_command(&nth_run(n + 1)))).await;
        let Ok(Submitted::Claimed { lease: next, row: next_row }) = next else { panic!("{next:?}") };
        assert!(next.epoch > lease.epoch && next.head == head && next_row > row, "{next:?} {next_row}");
        (lease, row) = (next, next_row);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_group_gathers_during_a_commit() {
    const THREADS: usize = 200;
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut authors = join_all((1..=THREADS).map(|n| LogWriter::new(&store, &store, n))).await;
    let before = store.stats();

    let other = database(dir.path());
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut appends: Vec<_> = authors.iter_mut().map(|author| Box::pin(author.start_run().append())).collect();
    // Every request is sent on its first poll; none can be answered while the other connection holds the lock.
    for append in &mut appends {
        assert!(waits(append).await);
    }
    other.execute_batch("COMMIT").unwrap();
    assert!(join_all(appends).await.into_iter().all(|verdict| verdict == AppendOutcome::Durable));

    let after = store.stats();
    assert_eq!(after.records - before.records, 2 * THREADS as u64);
    // The writer may have taken some before the rest arrived, but never one by one.
    assert!(after.commits - before.commits <= 3, "{} commits", after.commits - before.commits);
}

/// Otherwise each step of all runs would come before the next step of any.
#[tokio::test(flavor = "multi_thread")]
async fn many_starts_take_turns_and_a_cancel_passes_them() {
    const STARTS: usize = 400;
    const AT_ONCE: usize = 64;
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let running = LogWriter::new(&store, &store, STARTS).await;
    let before = store.stats();
    let (owner, finished) = (test_user(), AtomicUsize::new(0));
    let submit = |submission| {
        let submitted = store.submit(&owner, submission);
        Box::pin(async { (submitted.await, finished.fetch_add(1, SeqCst)) })
    };
    let other = database(dir.path());
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let starts = (0..STARTS).map(|n| submit(new_thread_submission(&nth_thread(n), start_command(&nth_run(n)))));
    let cancel = submit(submission(&running.thread, cancel_command(&running.run)));
    let mut submitted: Vec<_> = starts.chain([cancel]).collect();
    for submitted in &mut submitted {
        assert!(waits(submitted).await);
    }
    other.execute_batch("COMMIT").unwrap();
    let submitted = join_all(submitted).await;
    assert!(submitted.iter().all(|(submitted, _)| submitted.is_ok()));
    let place_of_cancel = submitted.last().unwrap().1;
    assert!(place_of_cancel < 2 * AT_ONCE, "{place_of_cancel} were answered before the cancel");
    let commits = store.stats().commits - before.commits;
    assert!(commits >= (STARTS / AT_ONCE) as u64, "{commits} commits");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_sees_only_what_is_durable() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut author = LogWriter::new(&store, &store, 1).await;
    let known = author.start_run().must_append().await;

    let other = database(dir.path());
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let batch = author.push_notes(3).push_change().batch();
    let mut append = store.append(batch.clone());
    assert!(waits(&mut append).await);
    for _ in 0..20 {
        let page = store.read_page(&author.owner, &author.thread, Seq(0), PageLimit::WIDE).await.unwrap();
        assert_eq!((&page.records, page.head), (&known, Seq(2)));
    }
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(append.await, AppendOutcome::Durable);
    let page = store.read_page(&author.owner, &author.thread, Seq(2), PageLimit::WIDE).await.unwrap();
    assert_eq!((page.records, page.head), (batch.records.to_vec(), Seq(5)));
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_and_the_writer_do_not_block_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut author = LogWriter::new(&store, &store, 1).await;
    author.start_run().push_notes(50).must_append().await;
    // An open snapshot does not block commits, and the writer's lock does not block snapshots.
    let slow = database(dir.path());
    slow.execute_batch("BEGIN; SELECT count(*) FROM records;").unwrap();
    author.push_notes(50).must_append().await;
    assert_eq!(author.read_all().await.len(), 102);
    slow.execute_batch("COMMIT; BEGIN IMMEDIATE;").unwrap();
    assert_eq!(author.read_all().await.len(), 102);
    assert_eq!(store.claimable_threads().await.unwrap().len(), 1);
    slow.execute_batch("COMMIT").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_of_a_busy_store_are_spaced_and_those_after_a_pause_are_immediate() {
    let spacing = Duration::from_millis(200);
    let dir = tempfile::tempdir().unwrap();
    let options = SqliteOptions { commit_spacing: spacing, ..SqliteOptions::default() };
    let store = SqliteStore::open(dir.path(), &options).unwrap();
    let mut author = LogWriter::new(&store, &store, 1).await;
    author.start_run().must_append().await;
    let (began, before) = (Instant::now(), store.stats().commits);
    for _ in 0..12 {
        author.push_notes(1).must_append().await;
    }
    assert_eq!(store.stats().commits - before, 12);
    assert!(began.elapsed() >= spacing * 3, "only the first eight do not wait: {:?}", began.elapsed());
    // A disk may be slow once; a store that waited for its spacing would be so every time.
    let mut after_pauses = Vec::new();
    while after_pauses.len() < 10 && after_pauses.iter().all(|took| *took >= spacing) {
        tokio::time::sleep(spacing * 2).await;
        let began = Instant::now();
        author.push_notes(1).must_append().await;
        after_pauses.push(began.elapsed());
    }
    assert!(after_pauses.last().is_some_and(|took| *took < spacing), "{after_pauses:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submission_does_not_wait_for_the_deltas_of_other_runs() {
    let spacing = Duration::from_millis(100);
    let dir = tempfile::tempdir().unwrap();
    let options = SqliteOptions { commit_spacing: spacing, ..SqliteOptions::default() };
    let store = SqliteStore::open(dir.path(), &options).unwrap();
    let mut authors = join_all((1..=2).map(|n| LogWriter::new(&store, &store, n))).await;
    for author in &mut authors {
        author.start_run().must_append().await;
    }
    // Commits with the deltas of two runs are two spacings apart. A disk may be slow once; a store that lets everybody wait
    // would do so every time.
    let mut took = Vec::new();
    for n in 10..20 {
        for _ in 0..12 {
            join_all(authors.iter_mut().map(async |author| author.push_notes(1).must_append().await)).await;
        }
        let began = Instant::now();
        let submission = new_thread_submission(&nth_thread(n), start_command(&nth_run(n)));
        store.submit(&test_user(), submission).await.unwrap();
        took.push(began.elapsed());
        if began.elapsed() < spacing {
            return;
        }
    }
    panic!("{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_write_stores_nothing_and_the_store_continues() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut authors = join_all((1..=4).map(|n| LogWriter::new(&store, &store, n))).await;
    for author in &mut authors {
        author.start_run().must_append().await;
    }
    let other = database(dir.path());
    other
        .execute_batch(
            "CREATE TRIGGER trouble BEFORE INSERT ON records WHEN NEW.count = 3
             BEGIN SELECT RAISE(ABORT, 'disk on fire'); END; BEGIN IMMEDIATE;",
        )
        .unwrap();
    // The first is committed alone, the others gather behind it; one of them fails.
    let batches: Vec<_> = [1, 1, 3, 1]
        .into_iter()
        .zip(&mut authors)
        .map(|(n, author)| author.push_notes(n).push_change().batch())
        .collect();
    let mut appends: Vec<_> = batches.iter().map(|batch| store.append(batch.clone())).collect();
    let owner = test_user();
    let mut submit = store.submit(&owner, new_thread_submission(&nth_thread(9), start_command(&nth_run(9))));
    for append in &mut appends {
        assert!(waits(append).await);
    }
    assert!(waits(&mut submit).await);
    other.execute_batch("COMMIT").unwrap();
    let verdicts = join_all(appends).await;
    let submitted = submit.await;
    assert!(matches!(&verdicts[2], AppendOutcome::Unknown(why) if why.contains("disk on fire")), "{verdicts:?}");
    assert!(matches!(submitted, Ok(_) | Err(SubmitError::Store(StoreError::Unavailable(_)))));
    assert_eq!(store.stats().failures, 1);

    // After an unknown outcome the caller reads back; here nothing was stored. No reader sees half a group.
    for (author, (batch, verdict)) in authors.iter().zip(batches.iter().zip(&verdicts)) {
        let expected = if *verdict == AppendOutcome::Durable { 2 + batch.records.len() } else { 2 };
        assert_eq!(author.read_all().await.len(), expected, "{verdict:?}");
    }
    other.execute_batch("DROP TRIGGER trouble").unwrap();
    for (author, (batch, verdict)) in authors.iter().zip(batches.iter().zip(&verdicts)) {
        if *verdict != AppendOutcome::Durable {
            assert_eq!(store.append(batch.clone()).await, AppendOutcome::Durable, "the term has survived");
        }
        assert_eq!(author.read_all().await[2..], batch.records[..]);
    }
    assert_eq!(store.thread(&test_user(), &nth_thread(9)).await.unwrap().is_some(), submitted.is_ok());
    drop(store);
    assert_eq!(verify_data_folder(dir.path()).unwrap().problems, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_database_is_unwritable_reads_continue() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut author = LogWriter::new(&store, &store, 1).await;
    let known = author.start_run().must_append().await;
    assert_eq!(author.read_all().await, known);
    let other = database(dir.path());
    other
        .execute_batch("CREATE TRIGGER trouble BEFORE INSERT ON records BEGIN SELECT RAISE(ABORT, 'no space'); END;")
        .unwrap();
    let batch = author.push_notes(1).push_change().batch();
    for _ in 0..3 {
        assert!(matches!(store.append(batch.clone()).await, AppendOutcome::Unknown(_)));
        assert_eq!(author.read_all().await, known);
    }
    other.execute_batch("DROP TRIGGER trouble").unwrap();
    assert_eq!(store.append(batch).await, AppendOutcome::Durable);
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_runs_move_into_blocks_and_read_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut author = LogWriter::new(&store, &store, 1).await;
    let mut other = LogWriter::new(&store, &store, 2).await;
    let mut all = author.start_run().must_append().await;
    other.start_run();
    // More than one block's worth.
    for round in 0..40 {
        for _ in 0..10 {
            author.push_note(&format!("{round} {}", "some words ".repeat(300)));
        }
        all.extend(author.must_append().await);
        other.push_notes(1).must_append().await;
    }
    all.extend(author.complete_run().must_append().await);
    settle(&store).await;
    while store.stats().blocks < 5 {
        settle(&store).await;
    }
    assert_eq!(author.read_all().await, all);
    for after in (0..all.len()).step_by(37) {
        let page = store.read_page(&author.owner, &author.thread, Seq(after as u64), PageLimit::ONE).await.unwrap();
        assert_eq!(page.records, all[after..=after]);
    }
    assert_eq!(other.read_all().await.len(), 42);
    drop((author, other));
    drop(store);
    let conn = database(dir.path());
    let rows: i64 = conn.query_row("SELECT ifnull(sum(count), 0) FROM records", (), |row| row.get(0)).unwrap();
    assert_eq!(rows, 42, "only the run that goes on");
    let (blocks, bytes): (i64, i64) = conn
        .query_row("SELECT count(*), sum(length(data)) FROM blocks", (), |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    assert!(blocks >= 5 && bytes < 200_000, "{blocks} blocks, {bytes} bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_packed_runs_are_deleted_while_other_runs_are_active() {
    const RUNS: usize = 30;
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut paused = LogWriter::new(&store, &store, 1).await;
    let mut author = LogWriter::new(&store, &store, 2).await;
    paused.start_run();
    let mut all = Vec::new();
    for n in 0..RUNS {
        author.run = nth_run(100 + n);
        all.extend(author.start_run().push_notes(250).must_append().await);
        paused.push_notes(1).must_append().await;
        all.extend(author.complete_run().must_append().await);
    }
    let conn = database(dir.path());
    let rows = || conn.query_row("SELECT ifnull(sum(count), 0) FROM records", (), |row| row.get::<_, i64>(0)).unwrap();
    let patience = Instant::now() + Duration::from_secs(20);
    // Rows between two live rows are deleted; small rests may stay.
    while rows() > 2_500 {
        assert!(Instant::now() < patience, "{} rows of {}", rows(), all.len());
        settle(&store).await;
    }
    assert_eq!(author.read_all().await, all);
    assert_eq!(paused.read_all().await.len(), RUNS + 2);
    drop((author, paused));
    drop(store);
    assert_eq!(rows(), RUNS as i64 + 2, "when it is closed, only what lives stays");
    assert_eq!(verify_data_folder(dir.path()).unwrap().problems, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_follow_a_run_into_its_blocks_without_a_gap() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(open(dir.path()));
    for n in 1..=40 {
        let mut author = LogWriter::new(&*store, &*store, n).await;
        author.start_run().push_notes(30).must_append().await;
        // Pages are read while the rows move.
        let reading = {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let mut after = Seq::ZERO;
                while after < Seq(33) {
                    let limit = PageLimit { records_max: 5, bytes_max: usize::MAX };
                    let page = store.read_page(&test_user(), &nth_thread(n), after, limit).await.unwrap();
                    for record in page.records {
                        assert_eq!(record.seq, after.next());
                        after = record.seq;
                    }
                }
            })
        };
        author.complete_run().must_append().await;
        reading.await.unwrap();
    }
    // Runs that start on a thread whose rows have all moved are never mistaken for a gap.
    for n in 1..=40 {
        let mut author = LogWriter {
            lease: store_conformance::fixtures::claim_thread(&*store, &test_user(), &nth_thread(n)).await,
            ..LogWriter::new(&*store, &*store, 1_000 + n).await
        };
        (author.thread, author.run) = (nth_thread(n), nth_run(2_000 + n));
        let reading = {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let mut head = Seq(33);
                while head < Seq(36) {
                    head = store.read_page(&test_user(), &nth_thread(n), head, PageLimit::WIDE).await.unwrap().head;
                }
            })
        };
        author.start_run().must_append().await;
        author.complete_run().must_append().await;
        reading.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_bytes_are_gone_from_the_disk() {
    const SECRET: &[u8] = b"the very secret word";
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut author = LogWriter::new(&store, &store, 1).await;
    author.start_run();
    for _ in 0..50 {
        author.push_note(std::str::from_utf8(SECRET).unwrap());
    }
    author.must_append().await;
    author.complete_run().must_append().await;
    settle(&store).await;
    author.run = nth_run(2);
    author.start_run().push_note(std::str::from_utf8(SECRET).unwrap()).must_append().await;
    let asked = author.request_approval(1);
    author.must_append().await;
    let told = reject(std::str::from_utf8(SECRET).unwrap());
    store.submit(&test_user(), submission(&nth_thread(1), decide_command(&asked, &told))).await.unwrap();
    assert!(is_in(dir.path(), SECRET));
    assert_eq!(store.delete_thread(&test_user(), &nth_thread(1)).await, Ok(true));
    // The write-ahead log is truncated as soon as the writer is idle.
    must_go(dir.path(), SECRET).await;

    let name = nth_alias(AliasKind::Conversation, "forgotten", 2);
    let name = with_conversation_data(name, std::str::from_utf8(SECRET).unwrap());
    store.create_alias(&test_user(), name).await.unwrap();
    assert!(is_in(dir.path(), SECRET));
    assert_eq!(store.delete_alias(&test_user(), AliasKind::Conversation, "forgotten").await, Ok(true));
    must_go(dir.path(), SECRET).await;
}

/// Whether any file here contains this text.
fn is_in(dir: &Path, words: &[u8]) -> bool {
    let files = std::fs::read_dir(dir).unwrap().map(|file| std::fs::read(file.unwrap().path()).unwrap());
    files.into_iter().any(|bytes| bytes.windows(words.len()).any(|window| window == words))
}

async fn must_go(dir: &Path, words: &[u8]) {
    let patience = Instant::now() + Duration::from_secs(10);
    while is_in(dir, words) {
        assert!(Instant::now() < patience, "still there");
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_bytes_are_removed_even_after_a_blocking_reader_or_a_crash() {
    const SECRET: &[u8] = b"the very secret word";
    let (dir, left) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = open(dir.path());
    let mut author = LogWriter::new(&store, &store, 1).await;
    author.start_run().push_note(std::str::from_utf8(SECRET).unwrap()).must_append().await;
    let other = database(dir.path());
    other.execute_batch("BEGIN; SELECT count(*) FROM threads").unwrap();
    assert_eq!(store.delete_thread(&test_user(), &nth_thread(1)).await, Ok(true));
    settle(&store).await;
    // The state after a kill at this moment.
    for name in DATABASE_FILES {
        std::fs::copy(dir.path().join(name), left.path().join(name)).unwrap();
    }
    assert!(is_in(dir.path(), SECRET) && is_in(left.path(), SECRET));

    // No process writes to either folder any more.
    other.execute_batch("COMMIT").unwrap();
    must_go(dir.path(), SECRET).await;
    let _again = open(left.path());
    must_go(left.path(), SECRET).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_store_refuses_calls_and_keeps_its_data() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut author = LogWriter::new(&store, &store, 1).await;
    let known = author.start_run().must_append().await;
    // Earlier requests are completed.
    let batch = author.push_notes(3).batch();
    let mut last = store.append(batch);
    assert!(waits(&mut last).await);
    store.close().await;
    assert_eq!(last.await, AppendOutcome::Durable);
    assert!(matches!(author.append().await, AppendOutcome::Unknown(_)));
    assert!(matches!(store.claimable_threads().await, Err(StoreError::Unavailable(_))));
    store.close().await;

    let again = open(dir.path());
    let page = again.read_page(&test_user(), &nth_thread(1), Seq(0), PageLimit::WIDE).await.unwrap();
    assert_eq!(page.records[..2], known);
    assert_eq!(page.head, Seq(5));
}
