//! The law of [`model::ports::Journal`].

use super::TestStore;
use super::condensed::{check_condensed, read_condensed};
use super::fixtures::{
    LogWriter, claim_thread, new_thread_submission, nth_run, nth_thread, other_user, read_all_records, reseal,
    start_command, steer_command, submission, test_node, test_user,
};
use super::random_log::RandomLogWriter;
use futures_util::future::join_all;
use model::NodeId;
use model::ports::{
    AppendBatch, AppendOutcome, ClaimOutcome, DirectoryChange, Journal, OnCommit, PageLimit, StoreError, Submitted,
};
use model::record::Record;
use model::seq::{Epoch, Seq};
use model::task::TaskStatus;
use model_testing::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const RECORDS_MAX: [usize; 4] = [1, 2, 7, 4096];

fn seqs(records: &[Record]) -> Vec<u64> {
    records.iter().map(|record| record.seq.0).collect()
}

const fn is_refused(verdict: &AppendOutcome) -> bool {
    matches!(verdict, AppendOutcome::Rejected(_))
}

/// 1: records get exactly the requested seqs, from `head` on.
pub async fn append_stores_the_given_sequence_numbers(journal: &dyn Journal, directory: &dyn TestStore) {
    let mut author = LogWriter::new(journal, directory, 1).await;
    assert_eq!(author.lease.head, Seq::ZERO);
    author.start_run().must_append().await;
    for _ in 0..3 {
        author.push_notes(2).must_append().await;
    }
    assert_eq!(seqs(&author.read_all().await), [1, 2, 3, 4, 5, 6, 7, 8]);
}

pub async fn append_at_another_head_changes_nothing(journal: &dyn Journal, directory: &dyn TestStore) {
    let mut author = LogWriter::new(journal, directory, 1).await;
    author.start_run().push_notes(3).must_append().await;
    let before = author.read_all().await;
    let head = author.lease.head;
    for wrong in [0, head.0 - 1, head.0 + 1, u64::MAX - 10] {
        author.lease.head = Seq(wrong);
        let verdict = author.push_notes(1).append().await;
        assert!(is_refused(&verdict), "at {wrong}: {verdict:?}");
    }
    assert_eq!(author.read_all().await, before);
    author.lease.head = head;
    author.push_notes(1).must_append().await;
}

pub async fn append_of_invalid_records_changes_nothing(journal: &dyn Journal, directory: &dyn TestStore) {
    let mut author = LogWriter::new(journal, directory, 1).await;
    author.start_run().must_append().await;
    let before = author.read_all().await;
    let good = author.push_notes(3).batch();

    let with = |change: &dyn Fn(&mut Vec<Record>)| {
        let mut records = good.records.to_vec();
        change(&mut records);
        AppendBatch { records: records.into(), ..good.clone() }
    };
    let gap = with(&|records| drop(records.remove(1)));
    let twice = with(&|records| records.insert(1, records[0].clone()));
    let backwards = with(&|records| records.reverse());
    let foreign = with(&|records| records[2] = reseal(&nth_thread(2), good.epoch, &records[2]));
    let bent = with(&|records| records[0].public = bytes::Bytes::from_static(b"{\"type\":\"task.custom\"}"));
    let other_term = with(&|records| records[2] = reseal(&author.thread, Epoch(good.epoch.0 + 1), &records[2]));
    let other_run = with(&|records| records[2].run = nth_run(99));
    for (name, batch) in [
        ("gap", gap),
        ("twice", twice),
        ("backwards", backwards),
        ("foreign", foreign),
        ("bent", bent),
        ("other term", other_term),
        ("other run", other_run),
    ] {
        let verdict = journal.append(batch).await;
        assert!(is_refused(&verdict), "{name}: {verdict:?}");
        assert_eq!(author.read_all().await, before, "{name}");
    }
    assert_eq!(journal.append(good).await, AppendOutcome::Durable);
}

/// A batch may consist of changes only.
pub async fn append_without_records_changes_the_directory_alone(journal: &dyn Journal, directory: &dyn TestStore) {
    let mut author = LogWriter::new(journal, directory, 1).await;
    let row = directory.inbox(&author.owner, &author.thread).await.unwrap()[0].id;
    author.changes.push(DirectoryChange::ConsumeInboxRow { row });
    author.must_append().await;
    author.must_append().await;
    assert_eq!(author.read_all().await, []);
    assert_eq!(directory.inbox(&author.owner, &author.thread).await, Ok(Vec::new()));
}

/// 2: records and changes are one transaction.
pub async fn records_and_directory_change_together_or_not_at_all(journal: &dyn Journal, directory: &dyn TestStore) {
    let mut author = LogWriter::new(journal, directory, 1).await;
    let owner = author.owner.clone();
    let rows = directory.inbox(&owner, &author.thread).await.unwrap();
    let queued = directory.run(&owner, &author.run).await.unwrap();

    // The last change is invalid, so nothing of the batch is applied.
    author.start_run().changes.push(DirectoryChange::ConsumeInboxRow { row: rows[0].id });
    author.changes.push(DirectoryChange::ConsumeInboxRow { row: rows[0].id + 1_000 });
    assert!(is_refused(&author.append().await));
    assert_eq!(author.read_all().await, []);
    assert_eq!(directory.inbox(&owner, &author.thread).await, Ok(rows.clone()));
    assert_eq!(directory.run(&owner, &author.run).await.unwrap(), queued);

    // The records are invalid, so the directory does not change.
    author.start_run().changes.push(DirectoryChange::ConsumeInboxRow { row: rows[0].id });
    author.records.remove(0);
    assert!(is_refused(&author.append().await));
    assert_eq!(directory.inbox(&owner, &author.thread).await, Ok(rows.clone()));
    assert_eq!(directory.run(&owner, &author.run).await.unwrap(), queued);

    author.start_run().changes.push(DirectoryChange::ConsumeInboxRow { row: rows[0].id });
    author.must_append().await;
    assert_eq!(directory.inbox(&owner, &author.thread).await, Ok(Vec::new()));
    assert_eq!(directory.run(&owner, &author.run).await.unwrap().unwrap().status, TaskStatus::Running);
}

/// `start_append` calls back once, and after the records became readable.
pub async fn a_commit_callback_is_called_once(journal: &dyn Journal, directory: &dyn TestStore) {
    let mut author = LogWriter::new(journal, directory, 1).await;
    author.start_run();
    let (good, bad) = (author.batch(), AppendBatch { epoch: Epoch(u64::MAX), ..author.batch() });
    let (heard, mut hears) = tokio::sync::mpsc::unbounded_channel();
    let hear = |heard: &tokio::sync::mpsc::UnboundedSender<AppendOutcome>| {
        let heard = heard.clone();
        OnCommit::new(move |verdict| heard.send(verdict.clone()).unwrap())
    };
    journal.start_append(bad, hear(&heard));
    assert_eq!(hears.recv().await, Some(AppendOutcome::Fenced));
    journal.start_append(good, hear(&heard));
    assert_eq!(hears.recv().await, Some(AppendOutcome::Durable));
    assert!(!author.read_all().await.is_empty());
    drop(heard);
    assert_eq!(hears.recv().await, None);
}

/// Batches that are committed together have independent outcomes.
pub async fn a_refused_batch_affects_no_other(journal: &dyn Journal, directory: &dyn TestStore) {
    let mut authors = Vec::new();
    for n in 1..=40 {
        let mut author = LogWriter::new(journal, directory, n).await;
        author.start_run();
        match n % 4 {
            1 => author.lease.epoch = Epoch(author.lease.epoch.0 + 1_000_000),
            2 => author.lease.head = Seq(7),
            3 => author.changes.push(DirectoryChange::ConsumeInboxRow { row: 1_000_000 }),
            _ => {}
        }
        authors.push(author);
    }
    let verdicts = join_all(authors.iter_mut().map(LogWriter::append)).await;
    for (n, (verdict, author)) in (1..=40).zip(verdicts.iter().zip(&authors)) {
        let good = match n % 4 {
            1 => *verdict == AppendOutcome::Fenced,
            2 | 3 => is_refused(verdict),
            _ => *verdict == AppendOutcome::Durable,
        };
        assert!(good, "{n}: {verdict:?}");
        assert_eq!(author.read_all().await.len(), if n % 4 == 0 { 2 } else { 0 }, "{n}");
    }
}

/// 3: readers see every durable record and no other.
pub async fn acknowledged_records_are_readable_at_once_and_stay(journal: &dyn Journal, directory: &dyn TestStore) {
    const LAST: u64 = 302;
    let mut author = LogWriter::new(journal, directory, 1).await;
    let (asked, confirmed) = (AtomicU64::new(0), AtomicU64::new(0));
    let writing = async {
        asked.store(2, Ordering::SeqCst);
        author.start_run().must_append().await;
        confirmed.store(2, Ordering::SeqCst);
        while author.lease.head < Seq(LAST) {
            asked.store(author.lease.head.0 + 3, Ordering::SeqCst);
            author.push_notes(3).must_append().await;
            confirmed.store(author.lease.head.0, Ordering::SeqCst);
        }
    };
    let reading = async {
        let mut seen: Vec<Record> = Vec::new();
        let mut head = Seq::ZERO;
        while head < Seq(LAST) {
            let floor = confirmed.load(Ordering::SeqCst);
            let after = Seq(seen.len() as u64);
            let page = journal.read_page(&test_user(), &nth_thread(1), after, PageLimit::WIDE).await.unwrap();
            assert!(page.head >= head && page.head.0 >= floor, "{} after {head}, confirmed {floor}", page.head);
            assert!(page.head.0 <= asked.load(Ordering::SeqCst), "a record that nobody had asked for");
            head = page.head;
            seen.extend(page.records);
            assert!(seqs(&seen).into_iter().eq(1..=seen.len() as u64));
            tokio::task::yield_now().await;
        }
        seen
    };
    let ((), seen) = tokio::join!(writing, reading);
    assert_eq!(author.read_all().await, seen);
}

/// 4: an append with an epoch other than the newest is fenced.
pub async fn an_old_epoch_is_fenced(journal: &dyn Journal, directory: &dyn TestStore) {
    let mut old = LogWriter::new(journal, directory, 1).await;
    old.start_run().must_append().await;
    let mut new = old.batch();
    let lease = claim_thread(journal, &old.owner, &old.thread).await;
    new.epoch = lease.epoch;

    assert_eq!(old.push_notes(1).append().await, AppendOutcome::Fenced);
    // Also for a batch without records, and for one with a wrong head.
    old.changes.push(DirectoryChange::RunDropped { run: old.run.clone(), at: 1 });
    assert_eq!(old.append().await, AppendOutcome::Fenced);
    old.lease.head = Seq(77);
    assert_eq!(old.push_notes(1).append().await, AppendOutcome::Fenced);
    let unborn = AppendBatch { epoch: Epoch(u64::MAX), ..new.clone() };
    assert_eq!(journal.append(unborn).await, AppendOutcome::Fenced);

    assert_eq!(journal.append(new).await, AppendOutcome::Durable);
    assert_eq!(seqs(&old.read_all().await), [1, 2]);
}

/// 4: every granted claim has a new, higher epoch.
pub async fn every_claim_gives_a_newer_epoch_and_the_head(journal: &dyn Journal, directory: &dyn TestStore) {
    let mut author = LogWriter::new(journal, directory, 1).await;
    let mut newest = author.lease.epoch;
    for round in 0..5 {
        let lease = claim_thread(journal, &author.owner, &author.thread).await;
        assert!(lease.epoch > newest);
        assert_eq!(lease.head, author.lease.head);
        newest = lease.epoch;
        author.lease = lease;
        if round == 0 {
            author.start_run();
        }
        author.push_notes(round).must_append().await;
    }
}

/// 4, 5: a claim of another node either is granted and fences the first node, or names the first node as the holder,
/// which can continue to append.
pub async fn a_claim_is_granted_or_names_the_holder(journal: &dyn Journal, directory: &dyn TestStore) {
    let mut first = LogWriter::new(journal, directory, 1).await;
    first.start_run().must_append().await;
    let other = NodeId::from("another node");
    match journal.claim(&first.owner, &first.thread, &other).await.unwrap() {
        ClaimOutcome::Granted(lease) => {
            assert!(lease.epoch > first.lease.epoch);
            assert_eq!(lease.head, first.lease.head);
            assert_eq!(first.push_notes(1).append().await, AppendOutcome::Fenced);
        }
        ClaimOutcome::Held { node, until } => {
            assert_eq!(node, test_node());
            assert!(until > 0);
            first.push_notes(1).must_append().await;
            let epoch = first.lease.epoch;
            first.lease = claim_thread(journal, &first.owner, &first.thread).await;
            assert!(first.lease.epoch > epoch, "the holder may claim again");
        }
    }
}

/// 4: an unclaimed thread rejects every epoch.
pub async fn an_append_without_a_claim_is_refused(journal: &dyn Journal, directory: &dyn TestStore) {
    let other = LogWriter::new(journal, directory, 2).await;
    let submitted =
        directory.submit(&test_user(), new_thread_submission(&nth_thread(1), start_command(&nth_run(1)))).await;
    assert!(matches!(submitted, Ok(Submitted::Claimed { .. })), "{submitted:?}");
    for epoch in [Epoch(0), Epoch(1), other.lease.epoch] {
        let batch = AppendBatch { thread: nth_thread(1), epoch, ..other.batch() };
        assert_eq!(journal.append(batch).await, AppendOutcome::Fenced);
    }
}

/// 6: a page has the records after `after` without a gap and is empty only at the head: during a run, after its end,
/// and during the next run.
pub async fn a_page_has_no_gap_and_is_empty_only_at_the_head(journal: &dyn Journal, directory: &dyn TestStore) {
    let mut author = LogWriter::new(journal, directory, 1).await;
    let mut other = LogWriter::new(journal, directory, 2).await;
    let mut all = author.start_run().must_append().await;
    other.start_run().must_append().await;
    for size in [1, 3, 2, 5] {
        all.extend(author.push_notes(size).must_append().await);
        other.push_notes(1).must_append().await;
    }
    check_pages(&author, &all).await;
    all.extend(author.complete_run().must_append().await);
    check_pages(&author, &all).await;

    author.run = nth_run(3);
    let again = directory.submit(&author.owner, submission(&author.thread, start_command(&nth_run(3)))).await;
    assert_eq!(again, Ok(Submitted::Queued));
    all.extend(author.start_run().must_append().await);
    all.extend(author.push_notes(4).must_append().await);
    check_pages(&author, &all).await;
}

async fn check_pages(author: &LogWriter<'_>, all: &[Record]) {
    let (owner, thread) = (&author.owner, &author.thread);
    for records_max in RECORDS_MAX {
        let limit = PageLimit { records_max, bytes_max: usize::MAX };
        assert_eq!(read_all_records(author.journal, (owner, thread), limit).await.unwrap(), all);
        for after in 0..all.len() {
            let page = author.journal.read_page(owner, thread, Seq(after as u64), limit).await.unwrap();
            assert!(!page.records.is_empty());
            assert_eq!(page.records, all[after..after + page.records.len()]);
            assert_eq!(page.head.0, all.len() as u64);
        }
    }
    for after in [all.len() as u64, all.len() as u64 + 1, u64::MAX] {
        let page = author.journal.read_page(owner, thread, Seq(after), PageLimit::WIDE).await.unwrap();
        assert_eq!((page.records, page.head.0), (Vec::new(), all.len() as u64));
    }
}

/// `records_max` is exact, `bytes_max` approximate, and a page before the head has at least one record.
pub async fn a_page_keeps_its_limits_but_has_at_least_one_record(journal: &dyn Journal, directory: &dyn TestStore) {
    let mut author = LogWriter::new(journal, directory, 1).await;
    author.start_run();
    for _ in 0..40 {
        author.push_note(&"x".repeat(1_000));
    }
    let all = author.must_append().await;
    check_page_limits(&author, &all).await;
    author.complete_run().must_append().await;
    check_page_limits(&author, &all).await;
}

async fn check_page_limits(author: &LogWriter<'_>, all: &[Record]) {
    let read = async |after: u64, records_max: usize, bytes_max: usize| {
        let limit = PageLimit { records_max, bytes_max };
        author.journal.read_page(&author.owner, &author.thread, Seq(after), limit).await.unwrap().records
    };
    for bytes_max in [0, 1, 999, 5_000, 1_000_000] {
        let records = read(2, 30, bytes_max).await;
        let size: usize = records.iter().map(Record::size_bytes).sum();
        assert!(!records.is_empty() && records.len() <= 30);
        assert!(size <= bytes_max + 1_100, "{size} of {bytes_max}");
    }
    assert_eq!(read(7, 1, usize::MAX).await, all[7..8]);
    assert_eq!(read(7, 0, 0).await, all[7..8]);
}

/// 7: records are returned byte for byte.
pub async fn records_are_returned_byte_for_byte(journal: &dyn Journal, directory: &dyn TestStore) {
    let mut author = LogWriter::new(journal, directory, 1).await;
    let mut all = author.start_run().must_append().await;
    let long = "schön \u{10ffff}\u{0}\n".repeat(20_000);
    for (text, secret) in [("", None), ("\u{0}\r\n\"\\", Some("")), ("x", Some("\u{1f600}\u{0}")), (&long, Some(&long))]
    {
        let event = super::fixtures::note_event(&author.run, text);
        all.extend(author.push_event_with_private(event, secret).must_append().await);
    }
    assert_eq!(author.read_all().await, all);
    all.extend(author.complete_run().must_append().await);
    let back = author.read_all().await;
    assert_eq!(back, all);
    assert!(back.iter().all(|record| record.has_valid_checksum(&author.thread)));
}

/// Law 2 of the log: after every append, readers see exactly the appended prefix.
pub async fn every_prefix_of_a_log_is_a_log(journal: &dyn Journal, directory: &dyn TestStore) {
    for seed in 1..=6 {
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let mut done = 0;
        let mut play = RandomLogWriter::new(journal, directory, seed).await;
        while play.appended_len() < play.records.len() {
            play.append(rng.between(1, 60) as usize).await;
            done += 1;
            let limit = PageLimit { records_max: rng.between(1, 300) as usize, bytes_max: usize::MAX };
            let back = read_all_records(journal, (&play.owner, &play.thread), limit).await.unwrap();
            assert_eq!(back, play.records[..play.appended_len()], "seed {seed}, batch {done}");
            // 10: the same in condensed form, up to any record.
            let until = rng.below(back.len() + 1);
            let (place, range) = ((&play.owner, &play.thread), (Seq::ZERO, Seq(until as u64)));
            check_condensed(&read_condensed(journal, place, range, limit).await.unwrap(), &back[..until]);
        }
    }
}

/// 8: a thread of another owner does not exist.
pub async fn a_thread_of_another_owner_does_not_exist(journal: &dyn Journal, directory: &dyn TestStore) {
    let mut author = LogWriter::new(journal, directory, 1).await;
    let all = author.start_run().must_append().await;
    let stranger = other_user();
    let claim = journal.claim(&stranger, &author.thread, &test_node()).await;
    assert_eq!(claim, Err(StoreError::ThreadNotFound));
    for after in [Seq(0), Seq(2), Seq(9)] {
        let read = journal.read_page(&stranger, &author.thread, after, PageLimit::WIDE).await;
        assert_eq!(read.map(|page| page.records), Err(StoreError::ThreadNotFound));
        let missing = journal.read_page(&author.owner, &nth_thread(9), after, PageLimit::WIDE).await;
        assert_eq!(missing.map(|page| page.records), Err(StoreError::ThreadNotFound));
    }
    let batch = AppendBatch { owner: stranger, ..author.push_notes(1).batch() };
    assert!(is_refused(&journal.append(batch).await));
    let batch = AppendBatch { thread: nth_thread(9), records: Arc::default(), ..author.batch() };
    assert!(is_refused(&journal.append(batch).await));
    assert_eq!(journal.claim(&author.owner, &nth_thread(9), &test_node()).await, Err(StoreError::ThreadNotFound));
    assert_eq!(author.read_all().await, all);
    author.must_append().await;
}

/// Concurrent appends to many threads do not mix.
pub async fn interleaved_threads_stay_separate(journal: &dyn Journal, directory: &dyn TestStore) {
    const THREADS: usize = 500;
    let mut authors = join_all((1..=THREADS).map(|n| LogWriter::new(journal, directory, n))).await;
    for round in 0..6 {
        let writing = authors.iter_mut().enumerate().map(async |(n, author)| {
            match round {
                0 => author.start_run(),
                5 if n % 3 == 0 => author.complete_run(),
                _ => author.push_note(&format!("{n} in round {round}")).push_notes(n % 4),
            };
            assert_eq!(author.append().await, AppendOutcome::Durable);
        });
        join_all(writing).await;
    }
    for (n, author) in authors.iter().enumerate() {
        let back = author.read_all().await;
        assert!(seqs(&back).into_iter().eq(1..=author.lease.head.0), "thread {n}");
        assert!(
            back.iter().all(|record| record.run == author.run && record.has_valid_checksum(&author.thread)),
            "thread {n}"
        );
    }
    let said = directory.submit(&test_user(), submission(&nth_thread(1), steer_command(&nth_run(1), "more"))).await;
    assert_eq!(said, Ok(Submitted::Queued));
}
