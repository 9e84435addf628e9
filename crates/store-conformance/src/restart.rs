//! Durability: the rules that need a restart.
//!
//! Call [`write_before_restart`], stop the backend in any way, start it again, and call [`check_after_restart`].

use super::TestStore;
use super::attachments::nth_attachment;
use super::blobs::{nth_blob, nth_hash};
use super::fixtures::{
    LogWriter, approve, claim_thread, decide_command, nth_checkpoint, nth_run, nth_thread, read_all_records, reject,
    start_command, steer_command, submission, test_user,
};
use super::shares::nth_share;
use super::threads::{conversation_data, nth_alias, with_conversation_data};
use model::UserId;
use model::ports::{
    AliasKind, AliasRow, AppendOutcome, ApprovalFilter, ApprovalRow, AttachmentRow, Checkpoint, Day, DirectoryChange,
    InboxRow, Journal, PageLimit, RunFilter, RunRow, ScheduledWakeup, ShareRow, Spend, SubmitError, Submitted,
};
use model::record::Record;
use model::seq::{Epoch, Seq};
use model::task::TaskStatus;

/// The state that [`check_after_restart`] must find.
pub struct StoreSnapshot {
    logs: Vec<Vec<Record>>,
    inboxes: Vec<Vec<InboxRow>>,
    runs: Vec<RunRow>,
    checkpoint: Option<Checkpoint>,
    approvals: Vec<ApprovalRow>,
    wakeups: Vec<ScheduledWakeup>,
    spend: Spend,
    aliases: Vec<Option<AliasRow>>,
    shares: Vec<ShareRow>,
    /// A file and two blobs, their total size, and the paths to delete.
    files: (Vec<Option<AttachmentRow>>, u64, Vec<(UserId, String)>),
    definitions: Option<String>,
    epochs: Vec<Epoch>,
}

const THREADS: usize = 6;
const TODAY: Day = Day(20_000);

async fn take_snapshot(journal: &dyn Journal, directory: &dyn TestStore) -> StoreSnapshot {
    let owner = test_user();
    let (mut logs, mut inboxes) = (Vec::new(), Vec::new());
    for n in 1..=THREADS {
        logs.push(read_all_records(journal, (&owner, &nth_thread(n)), PageLimit::WIDE).await.unwrap());
        inboxes.push(directory.inbox(&owner, &nth_thread(n)).await.unwrap());
    }
    let page = model::ports::ListPage { before: None, limit: 1_000 };
    let mut aliases = Vec::new();
    for name in ["given", "noted", "freed"] {
        aliases.push(directory.alias(&owner, AliasKind::Conversation, name).await.unwrap());
    }
    let mut files = vec![directory.attachment(&owner, &nth_attachment(1, 0).path).await.unwrap()];
    for n in 1..=2 {
        files.push(directory.blob(&owner, Some(&nth_thread(n)), &nth_hash(n)).await.unwrap());
    }
    let held = directory.attachment_bytes_used(&owner).await.unwrap();
    let files = (files, held, directory.stale_attachments().await.unwrap());
    StoreSnapshot {
        logs,
        inboxes,
        runs: directory.runs(&owner, RunFilter::default(), page.clone()).await.unwrap(),
        checkpoint: directory.checkpoint(&owner, &nth_thread(1)).await.unwrap(),
        approvals: directory.approvals(&owner, ApprovalFilter::All, page).await.unwrap(),
        wakeups: directory.scheduled_wakeups().await.unwrap(),
        spend: directory.daily_spend(&owner, TODAY).await.unwrap(),
        aliases,
        shares: directory.shares(&owner, &nth_thread(1)).await.unwrap(),
        files,
        definitions: directory.definitions("digest").await.unwrap(),
        epochs: Vec::new(),
    }
}

/// Fills a backend with threads in every state, each confirmed.
pub async fn write_before_restart(journal: &dyn Journal, directory: &dyn TestStore) -> StoreSnapshot {
    let mut authors = Vec::new();
    for n in 1..=THREADS {
        authors.push(LogWriter::new(journal, directory, n).await);
    }
    for author in &mut authors[1..] {
        author.start_run().push_notes(3).must_append().await;
    }
    for round in 0..5 {
        for author in &mut authors[1..] {
            author.push_notes(round).must_append().await;
        }
    }
    let asked = authors[1].request_approval(1);
    authors[1].request_approval(2);
    authors[1].changes.push(DirectoryChange::ScheduleWakeup { at: Some(asked.expires_at) });
    let spent = Spend { cost: model::limits::CostMicros(17), ..Spend::default() };
    authors[1].changes.push(DirectoryChange::AddSpend { day: TODAY, spent });
    authors[1].pause_run().must_append().await;
    let decided = directory.submit(&test_user(), submission(&nth_thread(2), decide_command(&asked, &approve()))).await;
    assert_eq!(decided, Ok(Submitted::Queued));
    directory.put_definitions("digest", "{}").await.unwrap();
    for (name, n) in [("given", 99), ("noted", 1), ("freed", 2)] {
        directory.create_alias(&test_user(), nth_alias(AliasKind::Conversation, name, n)).await.unwrap();
    }
    let current = nth_alias(AliasKind::Conversation, "noted", 1);
    directory.update_conversation(&test_user(), &current, conversation_data("new")).await.unwrap();
    directory.delete_alias(&test_user(), AliasKind::Conversation, "freed").await.unwrap();
    directory.create_share(nth_share("share_1", 1)).await.unwrap();
    directory.create_share(nth_share("share_2", 1)).await.unwrap();
    directory.revoke_share(&test_user(), &nth_thread(1), "share_2", 12).await.unwrap();
    directory.commit_attachment(&test_user(), nth_attachment(1, 7), None).await.unwrap();
    directory.commit_blob(&test_user(), &nth_thread(1), nth_blob(1, 1, 10), None).await.unwrap();
    directory.commit_blob(&test_user(), &nth_thread(99), nth_blob(2, 2, 20), None).await.unwrap();
    directory.delete_thread(&test_user(), &nth_thread(99)).await.unwrap();
    directory.reserve_attachment(&test_user(), "expected", 1).await.unwrap();
    authors[2].complete_run().must_append().await;
    authors[3].complete_run().must_append().await;
    directory.submit(&test_user(), submission(&nth_thread(4), start_command(&nth_run(44)))).await.unwrap();
    authors[3].run = nth_run(44);
    authors[3].start_run().push_notes(2).must_append().await;
    let row = directory.inbox(&test_user(), &nth_thread(5)).await.unwrap()[0].id;
    authors[4].changes.push(DirectoryChange::ConsumeInboxRow { row });
    authors[4].must_append().await;
    authors[0].changes.push(DirectoryChange::Checkpoint(nth_checkpoint(0, &[0, 1])));
    authors[0].must_append().await;
    let epochs = authors.iter().map(|author| author.lease.epoch).collect();
    StoreSnapshot { epochs, ..take_snapshot(journal, directory).await }
}

/// Checks that all of the state exists and that the backend continues from it.
pub async fn check_after_restart(journal: &dyn Journal, directory: &dyn TestStore, remembered: StoreSnapshot) {
    let found = take_snapshot(journal, directory).await;
    assert_eq!(found.logs, remembered.logs);
    assert_eq!(found.inboxes, remembered.inboxes);
    assert_eq!(found.runs, remembered.runs);
    assert_eq!(found.checkpoint, remembered.checkpoint);
    assert_eq!(found.approvals, remembered.approvals);
    assert_eq!((found.approvals.len(), found.wakeups.len(), found.spend.cost.0), (2, 1, 17));
    assert_eq!(found.wakeups, remembered.wakeups);
    assert_eq!(found.spend, remembered.spend);
    let noted = with_conversation_data(nth_alias(AliasKind::Conversation, "noted", 1), "new");
    assert_eq!(found.aliases, [Some(nth_alias(AliasKind::Conversation, "given", 99)), Some(noted), None]);
    assert_eq!(found.aliases, remembered.aliases);
    let revoked = ShareRow { revoked_at: Some(12), ..nth_share("share_2", 1) };
    assert_eq!(found.shares, [nth_share("share_1", 1), revoked]);
    assert_eq!(found.shares, remembered.shares);
    let unfinished = [nth_blob(2, 2, 20).path, "expected".to_owned()].map(|path| (test_user(), path));
    let there = vec![Some(nth_attachment(1, 7)), Some(nth_blob(1, 1, 10)), None];
    assert_eq!(found.files, (there, 17, unfinished.to_vec()));
    assert_eq!(found.files, remembered.files);
    assert_eq!(found.definitions.as_deref(), Some("{}"));
    assert_eq!(found.definitions, remembered.definitions);
    check_decisions(directory, &found.approvals).await;
    let newest = remembered.epochs.iter().copied().max().unwrap();
    for n in 1..=THREADS {
        let head = Seq(remembered.logs[n - 1].len() as u64);
        let (owner, thread) = (test_user(), nth_thread(n));
        let (lease, run) = (model::ports::Lease { epoch: remembered.epochs[n - 1], head }, nth_run(n));
        let mut author =
            LogWriter { journal, owner, thread, run, lease, records: Vec::new(), changes: Vec::new(), now: 1_000_000 };
        // The previous executor is fenced, in case it is still alive.
        let lease = claim_thread(journal, &author.owner, &author.thread).await;
        assert_eq!(author.push_notes(1).append().await, AppendOutcome::Fenced);
        assert!(lease.epoch > newest, "law 4 across restarts");
        assert_eq!(lease.head, head);
        author.lease = lease;
        if n == 4 {
            author.run = second_run(4);
        }
        let row = directory.run(&author.owner, &author.run).await.unwrap().unwrap();
        match row.status {
            TaskStatus::Queued => author.start_run(),
            TaskStatus::Paused => author.resume_run(),
            TaskStatus::Running => author.push_notes(2),
            _ => {
                author.run = second_run(3);
                author.start_run()
            }
        };
        let more = author.must_append().await;
        let log = author.read_all().await;
        let (old, new) = log.split_at(remembered.logs[n - 1].len());
        assert_eq!(old, remembered.logs[n - 1]);
        assert_eq!(new, more);
    }
    let said = directory.submit(&test_user(), submission(&nth_thread(1), steer_command(&nth_run(1), "more"))).await;
    assert_eq!(said, Ok(Submitted::Queued));
}

/// Decided approvals stay decided, and pending ones stay pending.
async fn check_decisions(directory: &dyn TestStore, questions: &[ApprovalRow]) {
    let [open, decided] = questions else { panic!("{questions:?}") };
    let ask = async |question: &ApprovalRow, decision| {
        directory.submit(&test_user(), submission(&nth_thread(2), decide_command(question, &decision))).await
    };
    assert_eq!(ask(decided, approve()).await, Ok(Submitted::Duplicate { task: nth_run(2), thread: nth_thread(2) }));
    assert_eq!(ask(decided, reject("no")).await, Err(SubmitError::AlreadyDecided(Box::new(decided.clone()))));
    assert_eq!(ask(open, reject("no")).await, Ok(Submitted::Queued));
}

fn second_run(n: usize) -> model::TaskId {
    nth_run(n * 11)
}
