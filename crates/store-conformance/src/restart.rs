//! What must outlive the process: the law's sentences that need a restart in the middle.
//!
//! Call [`before`], stop the backend in whatever way is to be tried, start it again, call [`after`].

use super::attachments::file;
use super::blobs::{blob, hash};
use super::names::named;
use super::shares::share;
use super::words::{Author, decide, no, node, read_all, run, somebody, start, steer, submission, thread, yes};
use model::UserId;
use model::ports::{
    AliasRow, AppendOutcome, ApprovalRow, AttachmentRow, Checkpoint, Day, Directory, DirectoryChange, InboxRow,
    Journal, PageLimit, RunFilter, RunRow, ScheduledWakeup, ShareRow, Spend, SubmitError, Submitted,
};
use model::record::Record;
use model::seq::{Epoch, Seq};
use model::task::TaskStatus;

/// What [`after`] must find.
pub struct Remembered {
    logs: Vec<Vec<Record>>,
    inboxes: Vec<Vec<InboxRow>>,
    runs: Vec<RunRow>,
    checkpoint: Option<Checkpoint>,
    questions: Vec<ApprovalRow>,
    wakes: Vec<ScheduledWakeup>,
    spent: Spend,
    names: Vec<Option<AliasRow>>,
    shares: Vec<ShareRow>,
    /// A file and two blobs, how much they are, and what has to be removed.
    files: (Vec<Option<AttachmentRow>>, u64, Vec<(UserId, String)>),
    definitions: Option<String>,
    epochs: Vec<Epoch>,
}

const THREADS: usize = 6;
const TODAY: Day = Day(20_000);

async fn everything(journal: &dyn Journal, directory: &dyn Directory) -> Remembered {
    let owner = somebody();
    let (mut logs, mut inboxes) = (Vec::new(), Vec::new());
    for n in 1..=THREADS {
        logs.push(read_all(journal, (&owner, &thread(n)), PageLimit::WIDE).await.unwrap());
        inboxes.push(directory.inbox(&owner, &thread(n)).await.unwrap());
    }
    let page = model::ports::ListPage { before: None, limit: 1_000 };
    let mut names = Vec::new();
    for name in ["given", "noted", "freed"] {
        names.push(directory.alias(&owner, "p", name).await.unwrap());
    }
    let mut files = vec![directory.attachment(&owner, &file(1, 0).path).await.unwrap()];
    for n in 1..=2 {
        files.push(directory.blob(&owner, Some(&thread(n)), &hash(n)).await.unwrap());
    }
    let held = directory.attachment_bytes_used(&owner).await.unwrap();
    let files = (files, held, directory.stale_attachments().await.unwrap());
    Remembered {
        logs,
        inboxes,
        runs: directory.runs(&owner, RunFilter::default(), page.clone()).await.unwrap(),
        checkpoint: directory.checkpoint(&owner, &thread(1)).await.unwrap(),
        questions: directory.approvals(&owner, false, page).await.unwrap(),
        wakes: directory.scheduled_wakeups().await.unwrap(),
        spent: directory.daily_spend(&owner, TODAY).await.unwrap(),
        names,
        shares: directory.shares(&owner, &thread(1)).await.unwrap(),
        files,
        definitions: directory.definitions("digest").await.unwrap(),
        epochs: Vec::new(),
    }
}

/// Fills a backend with threads in every state, each confirmed.
pub async fn before(journal: &dyn Journal, directory: &dyn Directory) -> Remembered {
    let mut authors = Vec::new();
    for n in 1..=THREADS {
        authors.push(Author::new(journal, directory, n).await);
    }
    for author in &mut authors[1..] {
        author.begin().notes(3).must_append().await;
    }
    for round in 0..5 {
        for author in &mut authors[1..] {
            author.notes(round).must_append().await;
        }
    }
    let asked = authors[1].ask(1);
    authors[1].ask(2);
    authors[1].changes.push(DirectoryChange::ScheduleWakeup { at: Some(asked.expires_at) });
    let spent = Spend { cost: model::limits::CostMicros(17), ..Spend::default() };
    authors[1].changes.push(DirectoryChange::AddSpend { day: TODAY, spent });
    authors[1].pause().must_append().await;
    let decided = directory.submit(&somebody(), submission(&thread(2), decide(&asked, &yes()))).await;
    assert_eq!(decided, Ok(Submitted::Queued));
    directory.put_definitions("digest", "{}").await.unwrap();
    for (name, n) in [("given", 99), ("noted", 1), ("freed", 2)] {
        directory.create_alias(&somebody(), named("p", name, n)).await.unwrap();
    }
    directory.update_alias(&somebody(), "p", "noted", "new".to_owned()).await.unwrap();
    directory.delete_alias(&somebody(), "p", "freed").await.unwrap();
    directory.create_share(share("share_1", 1)).await.unwrap();
    directory.create_share(share("share_2", 1)).await.unwrap();
    directory.revoke_share(&somebody(), &thread(1), "share_2", 12).await.unwrap();
    directory.commit_attachment(&somebody(), file(1, 7), None).await.unwrap();
    directory.commit_blob(&somebody(), &thread(1), blob(1, 1, 10), None).await.unwrap();
    directory.commit_blob(&somebody(), &thread(99), blob(2, 2, 20), None).await.unwrap();
    directory.delete_thread(&somebody(), &thread(99)).await.unwrap();
    directory.reserve_attachment(&somebody(), "expected", 1).await.unwrap();
    authors[2].end().must_append().await;
    authors[3].end().must_append().await;
    directory.submit(&somebody(), submission(&thread(4), start(&run(44)))).await.unwrap();
    authors[3].run = run(44);
    authors[3].begin().notes(2).must_append().await;
    let row = directory.inbox(&somebody(), &thread(5)).await.unwrap()[0].id;
    authors[4].changes.push(DirectoryChange::ConsumeInboxRow { row });
    authors[4].must_append().await;
    authors[0].changes.push(DirectoryChange::Checkpoint(Checkpoint { seq: Seq(0), body: "{}".to_owned() }));
    authors[0].must_append().await;
    let epochs = authors.iter().map(|author| author.lease.epoch).collect();
    Remembered { epochs, ..everything(journal, directory).await }
}

/// Looks whether all of it is there, and whether the backend goes on from it.
pub async fn after(journal: &dyn Journal, directory: &dyn Directory, remembered: Remembered) {
    let found = everything(journal, directory).await;
    assert_eq!(found.logs, remembered.logs);
    assert_eq!(found.inboxes, remembered.inboxes);
    assert_eq!(found.runs, remembered.runs);
    assert_eq!(found.checkpoint, remembered.checkpoint);
    assert_eq!(found.questions, remembered.questions);
    assert_eq!((found.questions.len(), found.wakes.len(), found.spent.cost.0), (2, 1, 17));
    assert_eq!(found.wakes, remembered.wakes);
    assert_eq!(found.spent, remembered.spent);
    let noted = AliasRow { note: "new".to_owned(), ..named("p", "noted", 1) };
    assert_eq!(found.names, [Some(named("p", "given", 99)), Some(noted), None]);
    assert_eq!(found.names, remembered.names);
    let revoked = ShareRow { revoked_at: Some(12), ..share("share_2", 1) };
    assert_eq!(found.shares, [share("share_1", 1), revoked]);
    assert_eq!(found.shares, remembered.shares);
    let unfinished = [blob(2, 2, 20).path, "expected".to_owned()].map(|path| (somebody(), path));
    let there = vec![Some(file(1, 7)), Some(blob(1, 1, 10)), None];
    assert_eq!(found.files, (there, 17, unfinished.to_vec()));
    assert_eq!(found.files, remembered.files);
    assert_eq!(found.definitions.as_deref(), Some("{}"));
    assert_eq!(found.definitions, remembered.definitions);
    still_decided(directory, &found.questions).await;
    let newest = remembered.epochs.iter().copied().max().unwrap();
    for n in 1..=THREADS {
        let head = Seq(remembered.logs[n - 1].len() as u64);
        let (owner, thread) = (somebody(), thread(n));
        let (lease, run) = (model::ports::Lease { epoch: remembered.epochs[n - 1], head }, run(n));
        let mut author =
            Author { journal, owner, thread, run, lease, records: Vec::new(), changes: Vec::new(), at: 1_000_000 };
        // The executor of before is gone; should it still live, it is fenced.
        let lease = journal.claim(&author.owner, &author.thread, &node()).await.unwrap();
        assert_eq!(author.notes(1).append().await, AppendOutcome::Fenced);
        assert!(lease.epoch > newest, "law 4 across restarts");
        assert_eq!(lease.head, head);
        author.lease = lease;
        if n == 4 {
            author.run = run_of(4);
        }
        let row = directory.run(&author.owner, &author.run).await.unwrap().unwrap();
        match row.status {
            TaskStatus::Queued => author.begin(),
            TaskStatus::Paused => author.resume(),
            TaskStatus::Running => author.notes(2),
            _ => {
                author.run = run_of(3);
                author.begin()
            }
        };
        let more = author.must_append().await;
        let log = author.read().await;
        let (old, new) = log.split_at(remembered.logs[n - 1].len());
        assert_eq!(old, remembered.logs[n - 1]);
        assert_eq!(new, more);
    }
    let said = directory.submit(&somebody(), submission(&thread(1), steer(&run(1), "more"))).await;
    assert_eq!(said, Ok(Submitted::Queued));
}

/// A decision is one after a restart too, and what was open is open.
async fn still_decided(directory: &dyn Directory, questions: &[ApprovalRow]) {
    let [open, decided] = questions else { panic!("{questions:?}") };
    let ask = async |question: &ApprovalRow, decision| {
        directory.submit(&somebody(), submission(&thread(2), decide(question, &decision))).await
    };
    assert_eq!(ask(decided, yes()).await, Ok(Submitted::Duplicate { task: run(2), thread: thread(2) }));
    assert_eq!(ask(decided, no("no")).await, Err(SubmitError::AlreadyDecided(Box::new(decided.clone()))));
    assert_eq!(ask(open, no("no")).await, Ok(Submitted::Queued));
}

fn run_of(n: usize) -> model::TaskId {
    run(n * 11)
}
