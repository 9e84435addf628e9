//! The law of [`model::ports::Inbox`].

use super::TestStore;
use super::fixtures::{
    LogWriter, cancel_command, claim_thread, new_thread_submission, nth_checkpoint, nth_run, nth_thread, other_user,
    start_command, steer_command, submission, test_user, with_idempotency_key,
};
use futures_util::future::join_all;
use model::command::Command;
use model::ports::{
    AppendOutcome, Checkpoint, CheckpointRun, DirectoryChange, INBOX_PAGE_ROWS, InboxRow, Journal, ListPage, PageLimit,
    RunFilter, RunRow, ScheduledWakeup, StoreError, SubmitError, Submitted,
};
use model::seq::Seq;
use model::task::TaskStatus;
use model::{TaskId, ThreadId, UserId};

const PAGE_ROWS: usize = 1_000;

fn page_before(before: Option<&str>, limit: usize) -> ListPage {
    ListPage { before: before.map(str::to_owned), limit }
}

async fn inbox_commands(directory: &dyn TestStore, owner: &UserId, thread: &ThreadId) -> Vec<Command> {
    let rows = directory.inbox(owner, thread).await.unwrap();
    assert!(rows.is_sorted_by(|one, other| one.id < other.id));
    rows.into_iter().map(|row| row.command).collect()
}

fn assert_thread_created(submitted: &Result<Submitted, SubmitError>) {
    assert!(matches!(submitted, Ok(Submitted::Claimed { .. })), "{submitted:?}");
}

/// 1: creating a thread claims it: the lease is valid for appends until the next claim.
pub async fn creating_a_thread_claims_it(journal: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    let made = directory.submit(&owner, new_thread_submission(&nth_thread(1), start_command(&nth_run(1)))).await;
    let Ok(Submitted::Claimed { lease, row }) = made else { panic!("{made:?}") };
    assert_eq!(lease.head, Seq::ZERO);
    let page = journal.read_page(&owner, &nth_thread(1), Seq::ZERO, PageLimit::ONE).await.unwrap();
    assert_eq!((page.records.len(), page.head), (0, Seq::ZERO));
    let theirs = journal.read_page(&other_user(), &nth_thread(1), Seq::ZERO, PageLimit::ONE).await;
    assert_eq!(theirs.err(), Some(StoreError::ThreadNotFound));
    let rows = directory.inbox(&owner, &nth_thread(1)).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), [row]);
    let mut author = LogWriter::with_lease(journal, owner.clone(), 1, lease);
    author.changes.push(DirectoryChange::ConsumeInboxRow { row });
    author.start_run().must_append().await;
    assert_eq!(inbox_commands(directory, &owner, &nth_thread(1)).await, []);
    let next = claim_thread(journal, &owner, &nth_thread(1)).await;
    assert!(next.epoch > lease.epoch);
    assert_eq!(author.push_notes(1).append().await, AppendOutcome::Fenced);
}

/// 1: a start may claim a thread that its last executor has released, but only if its row is the only one and nobody has
/// claimed the thread since. Its lease is then the newest.
pub async fn a_start_claims_only_a_released_thread(journal: &dyn Journal, directory: &dyn TestStore) {
    let (owner, thread) = (test_user(), nth_thread(1));
    let made = directory.submit(&owner, new_thread_submission(&thread, start_command(&nth_run(1)))).await;
    let Ok(Submitted::Claimed { lease, row }) = made else { panic!("{made:?}") };
    let mut author = LogWriter::with_lease(journal, owner.clone(), 1, lease);
    author.changes.push(DirectoryChange::ConsumeInboxRow { row });
    author.start_run().complete_run().must_append().await;
    let start = async |n| directory.submit(&owner, submission(&thread, start_command(&nth_run(n)))).await;

    journal.release(&thread, author.lease);
    let row = match start(2).await {
        Ok(Submitted::Claimed { lease, row }) => {
            assert!(lease.epoch > author.lease.epoch);
            assert_eq!(lease.head, author.lease.head);
            assert_eq!(author.push_notes(1).append().await, AppendOutcome::Fenced, "a lease that is over");
            author = LogWriter::with_lease(journal, owner.clone(), 1, lease);
            row
        }
        Ok(Submitted::Queued) => {
            author.lease = claim_thread(journal, &owner, &thread).await;
            directory.inbox(&owner, &thread).await.unwrap()[0].id
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(inbox_commands(directory, &owner, &thread).await, [start_command(&nth_run(2))]);
    author.run = nth_run(2);
    author.changes.push(DirectoryChange::ConsumeInboxRow { row });
    author.start_run().must_append().await;

    assert_eq!(start(3).await, Ok(Submitted::Queued), "it is being executed");
    journal.release(&thread, author.lease);
    assert_eq!(start(4).await, Ok(Submitted::Queued), "another row is before it");
    for row in directory.inbox(&owner, &thread).await.unwrap() {
        author.changes.push(DirectoryChange::ConsumeInboxRow { row: row.id });
    }
    author.lease = claim_thread(journal, &owner, &thread).await;
    author.push_notes(1).must_append().await;
    journal.release(&thread, author.lease);
    author.lease = claim_thread(journal, &owner, &thread).await;
    assert_eq!(start(5).await, Ok(Submitted::Queued), "it was claimed since");
    author.push_notes(1).must_append().await;
    journal.release(&nth_thread(2), author.lease);
    let unknown = directory.submit(&owner, submission(&nth_thread(2), start_command(&nth_run(6)))).await;
    assert_eq!(unknown, Err(SubmitError::Store(StoreError::ThreadNotFound)));
}

/// 1: a thread whose only run was dropped has no records.
pub async fn a_thread_whose_only_run_was_cancelled_is_empty(journal: &dyn Journal, directory: &dyn TestStore) {
    let mut author = LogWriter::new(journal, directory, 1).await;
    author.changes.push(DirectoryChange::RunDropped { run: nth_run(1), at: 3_000 });
    author.must_append().await;
    let page = journal.read_page(&author.owner, &nth_thread(1), Seq::ZERO, PageLimit::ONE).await.unwrap();
    assert_eq!((page.records.len(), page.head), (0, Seq::ZERO));
    author.run = nth_run(2);
    let again = directory.submit(&author.owner, submission(&nth_thread(1), start_command(&nth_run(2)))).await;
    assert_eq!(again, Ok(Submitted::Queued));
    author.start_run().must_append().await;
}

/// 1: a start command creates its run (queued), and its thread if that is new.
pub async fn a_start_creates_its_thread_its_run_and_an_inbox_row(_: &dyn Journal, directory: &dyn TestStore) {
    let (owner, thread) = (test_user(), nth_thread(1));
    assert_eq!(directory.thread(&owner, &thread).await, Ok(None));
    let first = new_thread_submission(&thread, start_command(&nth_run(1)));
    assert_thread_created(&directory.submit(&owner, first.clone()).await);

    let row = directory.thread(&owner, &thread).await.unwrap().unwrap();
    assert_eq!((row.created_at, row.updated_at), (first.at, first.at));
    let queued = RunRow {
        id: nth_run(1),
        thread: thread.clone(),
        agent: "demo".to_owned(),
        status: TaskStatus::Queued,
        first_seq: None,
        last_seq: None,
        created_at: first.at,
        ended_at: None,
    };
    assert_eq!(directory.run(&owner, &nth_run(1)).await, Ok(Some(queued)));
    assert_eq!(inbox_commands(directory, &owner, &thread).await, [start_command(&nth_run(1))]);

    let second = submission(&thread, start_command(&nth_run(2)));
    assert_eq!(directory.submit(&owner, second).await, Ok(Submitted::Queued));
    assert_eq!(
        inbox_commands(directory, &owner, &thread).await,
        [start_command(&nth_run(1)), start_command(&nth_run(2))]
    );
    // Thread ids and run ids are unique.
    assert!(directory.submit(&owner, new_thread_submission(&thread, start_command(&nth_run(3)))).await.is_err());
    assert!(directory.submit(&owner, submission(&thread, start_command(&nth_run(2)))).await.is_err());
    assert_eq!(inbox_commands(directory, &owner, &thread).await.len(), 2);
}

/// A rejected command leaves no row.
pub async fn a_command_for_a_missing_thread_is_refused(_: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    let none = Err(SubmitError::Store(StoreError::ThreadNotFound));
    for command in [start_command(&nth_run(1)), cancel_command(&nth_run(1)), steer_command(&nth_run(1), "hm")] {
        assert_eq!(directory.submit(&owner, submission(&nth_thread(1), command)).await, none);
    }
    assert_eq!(
        directory.submit(&owner, new_thread_submission(&nth_thread(1), cancel_command(&nth_run(1)))).await,
        none
    );
    assert_eq!(directory.thread(&owner, &nth_thread(1)).await, Ok(None));
    assert_eq!(directory.inbox(&owner, &nth_thread(1)).await, Err(StoreError::ThreadNotFound));
}

/// Inboxes are bounded, and a rejected submission leaves nothing behind.
pub async fn a_full_inbox_refuses_commands(_: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    directory.submit(&owner, new_thread_submission(&nth_thread(1), start_command(&nth_run(1)))).await.unwrap();
    let mut taken = 1;
    loop {
        let more = with_idempotency_key(
            submission(&nth_thread(1), start_command(&nth_run(taken + 1))),
            &format!("key {taken}"),
            "d",
        );
        match directory.submit(&owner, more.clone()).await {
            Ok(Submitted::Queued) => taken += 1,
            full => {
                assert_eq!(full, Err(SubmitError::InboxFull(taken)));
                // The rejected submission's key stays unused.
                assert_eq!(directory.submit(&owner, more).await, Err(SubmitError::InboxFull(taken)));
                break;
            }
        }
        assert!(taken <= 100_000, "an inbox without a bound");
    }
    assert_eq!(directory.inbox(&owner, &nth_thread(1)).await.unwrap().len(), taken);
    assert_eq!(directory.run(&owner, &nth_run(taken + 1)).await, Ok(None));
    let elsewhere = new_thread_submission(&nth_thread(2), start_command(&nth_run(taken + 1)));
    assert_thread_created(&directory.submit(&owner, elsewhere).await);
}

/// 2: the same key with the same body returns the same run; with another body it is rejected.
pub async fn a_key_is_bound_to_one_body_and_one_run(journal: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    let made = with_idempotency_key(new_thread_submission(&nth_thread(1), start_command(&nth_run(1))), "key", "digest");
    assert_thread_created(&directory.submit(&owner, made.clone()).await);
    // A retry generates new ids.
    let again =
        with_idempotency_key(new_thread_submission(&nth_thread(2), start_command(&nth_run(2))), "key", "digest");
    let same = Ok(Submitted::Duplicate { task: nth_run(1), thread: nth_thread(1) });
    assert_eq!(directory.submit(&owner, again.clone()).await, same);
    let other =
        with_idempotency_key(new_thread_submission(&nth_thread(2), start_command(&nth_run(2))), "key", "another");
    assert_eq!(directory.submit(&owner, other).await, Err(SubmitError::KeyReused));
    assert_eq!(directory.thread(&owner, &nth_thread(2)).await, Ok(None));
    assert_eq!(directory.run(&owner, &nth_run(2)).await, Ok(None));
    assert_eq!(inbox_commands(directory, &owner, &nth_thread(1)).await.len(), 1);

    // Keys are scoped to their user.
    let theirs =
        with_idempotency_key(new_thread_submission(&nth_thread(3), start_command(&nth_run(3))), "key", "another");
    assert_thread_created(&directory.submit(&other_user(), theirs).await);
    // The key outlives the row and the run.
    let lease = claim_thread(journal, &owner, &nth_thread(1)).await;
    let mut author = LogWriter {
        journal,
        owner: owner.clone(),
        thread: nth_thread(1),
        run: nth_run(1),
        lease,
        records: Vec::new(),
        changes: Vec::new(),
        now: 5,
    };
    let row = directory.inbox(&owner, &nth_thread(1)).await.unwrap()[0].id;
    author.start_run().complete_run().changes.push(DirectoryChange::ConsumeInboxRow { row });
    author.must_append().await;
    assert_eq!(directory.submit(&owner, again).await, same);
    assert_eq!(inbox_commands(directory, &owner, &nth_thread(1)).await, []);
}

/// 2, under concurrency.
pub async fn concurrent_starts_with_one_key_make_one_run(_: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    let tries = (1..=20).map(|n| {
        let submission =
            with_idempotency_key(new_thread_submission(&nth_thread(n), start_command(&nth_run(n))), "key", "digest");
        directory.submit(&owner, submission)
    });
    let answers = join_all(tries).await;
    assert_eq!(answers.iter().filter(|answer| matches!(answer, Ok(Submitted::Claimed { .. }))).count(), 1);
    let runs = directory.runs(&owner, RunFilter::default(), page_before(None, PAGE_ROWS)).await.unwrap();
    assert_eq!(runs.len(), 1);
    let same = Ok(Submitted::Duplicate { task: runs[0].id.clone(), thread: runs[0].thread.clone() });
    assert_eq!(answers.iter().filter(|answer| **answer == same).count(), 19);
}

/// 3: rows are listed in insertion order until an append consumes them.
pub async fn inbox_rows_are_ordered_until_consumed(journal: &dyn Journal, directory: &dyn TestStore) {
    let mut author = LogWriter::new(journal, directory, 1).await;
    let owner = author.owner.clone();
    let mut expected = vec![start_command(&nth_run(1))];
    for n in 0..5 {
        let said = steer_command(&nth_run(1), &format!("{n}"));
        let at = 10_000 - n;
        let submission = model::ports::Submission { at, ..submission(&nth_thread(1), said.clone()) };
        assert_eq!(directory.submit(&owner, submission).await, Ok(Submitted::Queued));
        expected.push(said);
    }
    assert_eq!(inbox_commands(directory, &owner, &nth_thread(1)).await, expected);

    let rows = directory.inbox(&owner, &nth_thread(1)).await.unwrap();
    author.start_run();
    for place in [0, 2] {
        author.changes.push(DirectoryChange::ConsumeInboxRow { row: rows[place].id });
    }
    author.must_append().await;
    let left: Vec<InboxRow> = [1, 3, 4, 5].map(|place: usize| rows[place].clone()).to_vec();
    assert_eq!(directory.inbox(&owner, &nth_thread(1)).await, Ok(left.clone()));

    // Rows cannot be consumed twice, nor from another thread.
    let other = LogWriter::new(journal, directory, 2).await;
    let foreign = directory.inbox(&owner, &other.thread).await.unwrap()[0].id;
    for row in [rows[0].id, foreign, 1_000_000] {
        author.changes.push(DirectoryChange::ConsumeInboxRow { row });
        assert!(matches!(author.append().await, AppendOutcome::Rejected(_)), "row {row}");
    }
    author.changes = vec![
        DirectoryChange::ConsumeInboxRow { row: left[0].id },
        DirectoryChange::ConsumeInboxRow { row: left[0].id },
    ];
    assert!(matches!(author.append().await, AppendOutcome::Rejected(_)), "twice at once");
    assert_eq!(directory.inbox(&owner, &nth_thread(1)).await, Ok(left));
    assert_eq!(directory.inbox(&owner, &other.thread).await.unwrap().len(), 1);
}

/// 4: a run's row changes only together with the records that change the run.
pub async fn a_run_changes_only_with_its_records(journal: &dyn Journal, directory: &dyn TestStore) {
    let mut author = LogWriter::new(journal, directory, 1).await;
    let owner = author.owner.clone();
    let row = async || directory.run(&owner, &nth_run(1)).await.unwrap().unwrap();
    let queued = row().await;

    // A run cannot pause before it starts, nor start without a record.
    author.pause_run();
    assert!(matches!(author.append().await, AppendOutcome::Rejected(_)));
    author.start_run().records.clear();
    assert!(matches!(author.append().await, AppendOutcome::Rejected(_)));
    assert_eq!(row().await, queued);

    author.start_run().must_append().await;
    let running = RunRow { status: TaskStatus::Running, first_seq: Some(Seq(1)), last_seq: Some(Seq(1)), ..queued };
    assert_eq!(row().await, running);
    author.push_notes(3).must_append().await;
    assert_eq!(row().await, running);
    author.pause_run().must_append().await;
    assert_eq!(row().await, RunRow { status: TaskStatus::Paused, last_seq: Some(Seq(6)), ..running.clone() });
    author.resume_run().must_append().await;
    assert_eq!(row().await, RunRow { status: TaskStatus::Running, last_seq: Some(Seq(7)), ..running.clone() });
    let before = directory.thread(&owner, &nth_thread(1)).await.unwrap().unwrap();
    author.complete_run().must_append().await;
    let ended = row().await;
    let at = ended.ended_at.unwrap();
    let expected = RunRow { status: TaskStatus::Completed, last_seq: Some(Seq(8)), ended_at: Some(at), ..running };
    assert_eq!(ended, expected);
    let after = directory.thread(&owner, &nth_thread(1)).await.unwrap().unwrap();
    assert_eq!((after.created_at, after.updated_at), (before.created_at, at));
    assert!(at > before.updated_at);

    // A terminal status is final (law 9).
    author.complete_run();
    assert!(matches!(author.append().await, AppendOutcome::Rejected(_)));
    author.start_run();
    assert!(matches!(author.append().await, AppendOutcome::Rejected(_)));
    assert_eq!(row().await, ended);
}

/// 4: a queued run can be dropped, and leaves no records.
pub async fn a_queued_run_can_be_cancelled(journal: &dyn Journal, directory: &dyn TestStore) {
    let mut author = LogWriter::new(journal, directory, 1).await;
    author.changes.push(DirectoryChange::RunDropped { run: nth_run(1), at: 77 });
    author.must_append().await;
    let row = directory.run(&author.owner, &nth_run(1)).await.unwrap().unwrap();
    assert_eq!((row.status, row.first_seq, row.last_seq), (TaskStatus::Cancelled, None, None));
    assert_eq!(row.ended_at, Some(77));
    for change in [
        DirectoryChange::RunDropped { run: nth_run(1), at: 78 },
        DirectoryChange::RunDropped { run: nth_run(9), at: 78 },
    ] {
        author.changes.push(change);
        assert!(matches!(author.append().await, AppendOutcome::Rejected(_)));
    }
}

/// 4: the records that start a run may create it.
pub async fn a_run_may_start_without_having_been_queued(journal: &dyn Journal, directory: &dyn TestStore) {
    let mut author = LogWriter::new(journal, directory, 1).await;
    let mut other = LogWriter::new(journal, directory, 2).await;
    author.start_run().complete_run().must_append().await;
    author.run = nth_run(7);
    author.start_run().must_append().await;
    let row = directory.run(&author.owner, &nth_run(7)).await.unwrap().unwrap();
    assert_eq!((row.status, row.first_seq, row.thread), (TaskStatus::Running, Some(Seq(4)), nth_thread(1)));
    author.complete_run().must_append().await;
    assert!(author.read_all().await[3..].iter().all(|record| record.run == nth_run(7)));
    // A run id of another thread is rejected.
    other.run = nth_run(7);
    other.start_run();
    assert!(matches!(other.append().await, AppendOutcome::Rejected(_)));
    assert_eq!(directory.run(&author.owner, &nth_run(7)).await.unwrap().unwrap().thread, nth_thread(1));
}

pub async fn what_belongs_to_another_owner_does_not_exist(journal: &dyn Journal, directory: &dyn TestStore) {
    let mut author = LogWriter::new(journal, directory, 1).await;
    author.start_run().changes.push(DirectoryChange::Checkpoint(nth_checkpoint(2, &[0, 1])));
    author.must_append().await;
    let stranger = other_user();
    assert_eq!(directory.thread(&stranger, &nth_thread(1)).await, Ok(None));
    assert_eq!(directory.run(&stranger, &nth_run(1)).await, Ok(None));
    assert_eq!(directory.threads(&stranger, page_before(None, PAGE_ROWS)).await, Ok(Vec::new()));
    assert_eq!(directory.runs(&stranger, RunFilter::default(), page_before(None, PAGE_ROWS)).await, Ok(Vec::new()));
    let of_thread = RunFilter { thread: Some(nth_thread(1)), ..RunFilter::default() };
    assert_eq!(directory.runs(&stranger, of_thread, page_before(None, PAGE_ROWS)).await, Ok(Vec::new()));
    assert_eq!(directory.inbox(&stranger, &nth_thread(1)).await, Err(StoreError::ThreadNotFound));
    assert_eq!(directory.checkpoint(&stranger, &nth_thread(1)).await, Ok(None));
    assert_eq!(directory.delete_thread(&stranger, &nth_thread(1)).await, Ok(false));
    let none = Err(SubmitError::Store(StoreError::ThreadNotFound));
    assert_eq!(directory.submit(&stranger, submission(&nth_thread(1), cancel_command(&nth_run(1)))).await, none);
    assert!(directory.thread(&author.owner, &nth_thread(1)).await.unwrap().is_some());
    assert_eq!(inbox_commands(directory, &author.owner, &nth_thread(1)).await.len(), 1);
}

/// An unlisted thread and its runs are found by id, and by no listing.
pub async fn unlisted_threads_are_in_no_listing(_: &dyn Journal, directory: &dyn TestStore) {
    let (owner, unlisted) = (test_user(), ThreadId::from(format!("{}9", model::id::UNLISTED_THREAD_PREFIX)));
    directory.submit(&owner, new_thread_submission(&nth_thread(1), start_command(&nth_run(1)))).await.unwrap();
    directory.submit(&owner, new_thread_submission(&unlisted, start_command(&nth_run(2)))).await.unwrap();
    for before in [None, Some("thr_z"), Some(unlisted.as_str())] {
        let rows = directory.threads(&owner, page_before(before, PAGE_ROWS)).await.unwrap();
        assert_eq!(rows.into_iter().map(|row| row.id).collect::<Vec<_>>(), [nth_thread(1)]);
    }
    let runs = async |thread: Option<ThreadId>| {
        let filter = RunFilter { thread, ..RunFilter::default() };
        let rows = directory.runs(&owner, filter, page_before(None, PAGE_ROWS)).await.unwrap();
        rows.into_iter().map(|row| row.id).collect::<Vec<_>>()
    };
    assert_eq!((runs(None).await, runs(Some(unlisted.clone())).await), (vec![nth_run(1)], vec![nth_run(2)]));
    assert!(directory.thread(&owner, &unlisted).await.unwrap().is_some());
    assert!(directory.run(&owner, &nth_run(2)).await.unwrap().is_some());
}

/// Listings are newest first, and a page position stays valid when rows are deleted.
pub async fn listings_are_newest_first_and_cursors_stay_valid(_: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    // Listings sort by id, not by insertion.
    for n in [3, 1, 2, 5, 4, 6, 7] {
        directory.submit(&owner, new_thread_submission(&nth_thread(n), start_command(&nth_run(n)))).await.unwrap();
    }
    let threads = async |before: Option<ThreadId>, limit: usize| {
        let place = page_before(before.as_ref().map(ThreadId::as_str), limit);
        let rows = directory.threads(&owner, place).await.unwrap();
        rows.into_iter().map(|row| row.id).collect::<Vec<_>>()
    };
    let runs = async |before: Option<TaskId>, limit: usize| {
        let place = page_before(before.as_ref().map(TaskId::as_str), limit);
        let rows = directory.runs(&owner, RunFilter::default(), place).await.unwrap();
        rows.into_iter().map(|row| row.id).collect::<Vec<_>>()
    };
    assert_eq!(threads(None, PAGE_ROWS).await, [7, 6, 5, 4, 3, 2, 1].map(nth_thread));
    assert_eq!(threads(None, 3).await, [7, 6, 5].map(nth_thread));
    assert_eq!(runs(None, 3).await, [7, 6, 5].map(nth_run));
    assert_eq!(directory.delete_thread(&owner, &nth_thread(5)).await, Ok(true));
    assert_eq!(threads(Some(nth_thread(5)), 2).await, [4, 3].map(nth_thread));
    assert_eq!(runs(Some(nth_run(5)), 2).await, [4, 3].map(nth_run));
    assert_eq!(threads(Some(nth_thread(3)), 9).await, [2, 1].map(nth_thread));
    assert_eq!(runs(Some(nth_run(1)), 9).await, []);
    assert_eq!(threads(None, 0).await, []);
}

pub async fn runs_are_found_by_state_and_thread(journal: &dyn Journal, directory: &dyn TestStore) {
    let mut authors = Vec::new();
    for n in 1..=4 {
        authors.push(LogWriter::new(journal, directory, n).await);
    }
    authors[1].start_run().must_append().await;
    authors[2].start_run().pause_run().must_append().await;
    authors[3].start_run().complete_run().must_append().await;
    directory.submit(&test_user(), submission(&nth_thread(4), start_command(&nth_run(5)))).await.unwrap();
    let found = async |status: &[TaskStatus], of: Option<ThreadId>| {
        let filter = RunFilter { status: status.to_vec(), thread: of };
        let rows = directory.runs(&test_user(), filter, page_before(None, PAGE_ROWS)).await.unwrap();
        rows.into_iter().map(|row| row.id).collect::<Vec<_>>()
    };
    assert_eq!(found(&[], None).await, [5, 4, 3, 2, 1].map(nth_run));
    assert_eq!(found(&[TaskStatus::Queued], None).await, [5, 1].map(nth_run));
    assert_eq!(found(&[TaskStatus::Paused, TaskStatus::Running], None).await, [3, 2].map(nth_run));
    assert_eq!(found(&[TaskStatus::Completed, TaskStatus::Queued], None).await, [5, 4, 1].map(nth_run));
    assert_eq!(found(&[], Some(nth_thread(4))).await, [5, 4].map(nth_run));
    assert_eq!(found(&[TaskStatus::Completed], Some(nth_thread(4))).await, [nth_run(4)]);
    assert_eq!(found(&[TaskStatus::Failed], None).await, []);
    assert_eq!(found(&[], Some(nth_thread(9))).await, []);
}

/// A thread is claimable if it has a run that is neither ended nor paused, or a non-empty inbox.
pub async fn threads_with_work_are_claimable(journal: &dyn Journal, directory: &dyn TestStore) {
    let mut author = LogWriter::new(journal, directory, 1).await;
    let waiting = LogWriter::for_owner(journal, directory, other_user(), 2).await;
    let claimable = async || {
        let mut found = directory.claimable_threads().await.unwrap();
        found.sort();
        found
    };
    let (mine, theirs) = ((test_user(), nth_thread(1)), (waiting.owner.clone(), nth_thread(2)));
    assert_eq!(claimable().await, [mine.clone(), theirs.clone()]);

    let row = directory.inbox(&author.owner, &nth_thread(1)).await.unwrap()[0].id;
    author.start_run().changes.push(DirectoryChange::ConsumeInboxRow { row });
    author.must_append().await;
    assert_eq!(claimable().await, [mine.clone(), theirs.clone()]);
    author.pause_run().must_append().await;
    assert_eq!(claimable().await, std::slice::from_ref(&theirs));
    directory.submit(&author.owner, submission(&nth_thread(1), cancel_command(&nth_run(1)))).await.unwrap();
    assert_eq!(claimable().await, [mine, theirs.clone()]);
    let row = directory.inbox(&author.owner, &nth_thread(1)).await.unwrap()[0].id;
    author.resume_run().complete_run().changes.push(DirectoryChange::ConsumeInboxRow { row });
    author.must_append().await;
    assert_eq!(claimable().await, std::slice::from_ref(&theirs));
    assert_eq!(directory.delete_thread(&theirs.0, &theirs.1).await, Ok(true));
    assert_eq!(claimable().await, []);
}

pub async fn the_newest_checkpoint_counts(journal: &dyn Journal, directory: &dyn TestStore) {
    let mut author = LogWriter::new(journal, directory, 1).await;
    assert_eq!(directory.checkpoint(&author.owner, &nth_thread(1)).await, Ok(None));
    author.start_run();
    for seq in [2, 3, 4] {
        let new = nth_checkpoint(seq, &[]);
        author.push_notes(1).changes.push(DirectoryChange::Checkpoint(new.clone()));
        author.must_append().await;
        assert_eq!(directory.checkpoint(&author.owner, &nth_thread(1)).await, Ok(Some(new)));
    }
    author.changes.push(DirectoryChange::Checkpoint(nth_checkpoint(99, &[])));
    assert!(matches!(author.append().await, AppendOutcome::Rejected(_)));
}

/// A page begins after the given row, even if that row was deleted, and has at most the given number of rows.
pub async fn an_inbox_is_read_page_by_page(journal: &dyn Journal, directory: &dyn TestStore) {
    let mut author = LogWriter::new(journal, directory, 1).await;
    let owner = author.owner.clone();
    for n in 0..INBOX_PAGE_ROWS + 5 {
        let said = submission(&nth_thread(1), steer_command(&nth_run(1), &format!("{n}")));
        assert_eq!(directory.submit(&owner, said).await, Ok(Submitted::Queued));
    }
    let all = directory.inbox(&owner, &nth_thread(1)).await.unwrap();
    assert_eq!(all.len(), INBOX_PAGE_ROWS + 6, "with the start");
    author.start_run().changes.push(DirectoryChange::ConsumeInboxRow { row: all[3].id });
    author.must_append().await;
    let page = |after: u64, rows_max: usize| {
        let (owner, thread) = (owner.clone(), nth_thread(1));
        async move { directory.inbox_page(&owner, &thread, after, rows_max).await.unwrap() }
    };
    assert_eq!(page(0, 3).await, all[..3]);
    assert_eq!(page(all[1].id, 3).await, [all[2].clone(), all[4].clone(), all[5].clone()]);
    assert_eq!(page(all[3].id, 2).await, all[4..6], "after a row that is consumed");
    assert_eq!(page(all[4].id, 1_000).await, all[5..]);
    assert_eq!(page(all.last().unwrap().id, 10).await, []);
    assert_eq!(directory.inbox(&owner, &nth_thread(1)).await.unwrap().len(), all.len() - 1);
    let stranger = directory.inbox_page(&other_user(), &nth_thread(1), 0, 10).await;
    assert_eq!(stranger, Err(StoreError::ThreadNotFound));
}

/// A change adds its runs to those that the checkpoint has, and replaces the ones with the same index.
pub async fn a_checkpoint_gathers_runs(journal: &dyn Journal, directory: &dyn TestStore) {
    let mut author = LogWriter::new(journal, directory, 1).await;
    let mut other = LogWriter::new(journal, directory, 2).await;
    other.start_run().changes.push(DirectoryChange::Checkpoint(nth_checkpoint(1, &[0, 7])));
    other.must_append().await;
    author.start_run();
    let mut expected: Vec<CheckpointRun> = Vec::new();
    for (seq, added) in (2..).zip([vec![0, 1], vec![2], vec![], vec![1, 11]]) {
        let new = nth_checkpoint(seq, &added);
        expected.retain(|known| !added.contains(&known.index));
        expected.extend(new.runs.iter().cloned());
        expected.sort_by_key(|run| run.index);
        author.push_notes(1).changes.push(DirectoryChange::Checkpoint(new.clone()));
        author.must_append().await;
        let found = directory.checkpoint(&author.owner, &nth_thread(1)).await;
        assert_eq!(found, Ok(Some(Checkpoint { runs: expected.clone(), ..new })), "after {seq}");
    }
    let untouched = directory.checkpoint(&other.owner, &nth_thread(2)).await;
    assert_eq!(untouched, Ok(Some(nth_checkpoint(1, &[0, 7]))), "another thread's runs are its own");
}

/// 1: creating a thread again fails with `ThreadExists` for its owner, and with a plain store error for other users.
pub async fn a_thread_is_created_once_and_its_owner_is_returned(_: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    let tries =
        (1..=10).map(|n| directory.submit(&owner, new_thread_submission(&nth_thread(1), start_command(&nth_run(n)))));
    let answers = join_all(tries).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    assert_eq!(answers.iter().filter(|answer| **answer == Err(SubmitError::ThreadExists)).count(), 9);
    let theirs =
        directory.submit(&other_user(), new_thread_submission(&nth_thread(1), start_command(&nth_run(11)))).await;
    assert!(matches!(theirs, Err(SubmitError::Store(_))), "{theirs:?}");
    assert_eq!(directory.inbox(&owner, &nth_thread(1)).await.unwrap().len(), 1);
}

/// The latest scheduled wake-up of a thread replaces earlier ones, until it is cleared or the thread is deleted.
pub async fn the_latest_wake_up_time_of_a_thread_counts(journal: &dyn Journal, directory: &dyn TestStore) {
    let mut one = LogWriter::new(journal, directory, 1).await;
    let mut two = LogWriter::new(journal, directory, 2).await;
    let mut theirs = LogWriter::for_owner(journal, directory, other_user(), 3).await;
    let row =
        |author: &LogWriter<'_>, at| ScheduledWakeup { owner: author.owner.clone(), thread: author.thread.clone(), at };
    assert_eq!(directory.scheduled_wakeups().await, Ok(vec![]));
    one.changes.push(DirectoryChange::ScheduleWakeup { at: Some(900) });
    one.must_append().await;
    for (author, at) in [(&mut one, 600), (&mut two, 500), (&mut theirs, 700)] {
        author.changes.push(DirectoryChange::ScheduleWakeup { at: Some(at) });
        author.must_append().await;
    }
    // Wake-ups of all users, earliest first.
    assert_eq!(directory.scheduled_wakeups().await, Ok(vec![row(&two, 500), row(&one, 600), row(&theirs, 700)]));

    one.changes =
        vec![DirectoryChange::ScheduleWakeup { at: None }, DirectoryChange::ConsumeInboxRow { row: 1_000_000 }];
    assert!(matches!(one.append().await, AppendOutcome::Rejected(_)));
    assert_eq!(directory.scheduled_wakeups().await.unwrap().len(), 3);
    one.changes = vec![DirectoryChange::ScheduleWakeup { at: Some(1) }, DirectoryChange::ScheduleWakeup { at: None }];
    one.must_append().await;
    assert_eq!(directory.scheduled_wakeups().await, Ok(vec![row(&two, 500), row(&theirs, 700)]));
    assert_eq!(directory.delete_thread(&two.owner, &two.thread).await, Ok(true));
    assert_eq!(directory.scheduled_wakeups().await, Ok(vec![row(&theirs, 700)]));
    // A new thread with the same id has no wake-up.
    let again = LogWriter::new(journal, directory, 2).await;
    assert_eq!(again.thread, two.thread);
    assert_eq!(directory.scheduled_wakeups().await, Ok(vec![row(&theirs, 700)]));
}
