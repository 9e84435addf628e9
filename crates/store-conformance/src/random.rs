//! Random sequences of everything that a store can be asked, right and wrong, held against a model of lists.
//!
//! Several questions go out at once, about different threads, so that a backend may answer them in any order and commit
//! them together. After every few of them the whole store must look like the model. A failure names its seed; a backend
//! is taken up where it was left by [`Walk::new`] only when it is empty.

use super::reference::{Kind, Model, Taken, taken};
use super::words::{
    cancel, decide_as, keyed, no, node, note, question, read_all, somebody, start, steer, stranger, yes,
};
use futures_util::future::join_all;
use model::command::Command;
use model::event::{ApprovalDecision, Initiator};
use model::limits::CostMicros;
use model::ports::{
    AliasRow, AppendBatch, AppendOutcome, ApprovalRow, Checkpoint, Day, Directory, DirectoryChange, Journal, Lease,
    ListPage, PageLimit, RunFilter, Spend, StoreError, Submission,
};
use model::record::{Record, RecordDraft};
use model::seq::{Epoch, Seq};
use model::task::TaskStatus;
use model::usage::Usage;
use model::{TaskId, ThreadId, UserId};
use model_testing::Rng;

const THREADS: usize = 7;
const DAYS: u32 = 3;

/// One question that changes something.
#[derive(Clone, Debug)]
enum Step {
    Submit(UserId, Box<Submission>),
    Claim(UserId, ThreadId),
    Append(Box<AppendBatch>),
    Delete(UserId, ThreadId),
    Give(UserId, AliasRow),
    /// Notes something beside the name of this row, or frees it.
    Change(UserId, AliasRow, Option<String>),
}

/// Its answer.
#[derive(Debug)]
enum Answer {
    Submit(Taken),
    Claim(Result<Lease, StoreError>),
    Append(AppendOutcome),
    Delete(Result<bool, StoreError>),
    Give(Result<AliasRow, StoreError>),
    Change(Result<bool, StoreError>),
}

/// A random walk through a store, with the model beside it.
pub struct Walk {
    seed: u64,
    rng: Rng,
    model: Model,
    /// Every epoch that was given out, by thread.
    epochs: Vec<(ThreadId, Epoch)>,
    newest: Epoch,
    rows_max: usize,
    runs: usize,
    at: u64,
    confirmed: usize,
    decisions: usize,
}

impl Walk {
    /// Begins with an empty store whose inboxes take so many rows.
    #[must_use]
    pub fn new(seed: u64, rows_max: usize) -> Self {
        println!("seed {seed}");
        let (rng, model, epochs) = (Rng::new(seed), Model::default(), Vec::new());
        Self { seed, rng, model, epochs, newest: Epoch(0), rows_max, runs: 0, at: 1_000, confirmed: 0, decisions: 0 }
    }

    /// The store was closed and opened: whoever held a thread holds it no longer.
    pub fn restarted(&mut self) {
        for thread in &mut self.model.threads {
            thread.newest = None;
        }
    }

    /// Goes so many steps.
    pub async fn go(&mut self, journal: &dyn Journal, directory: &dyn Directory, steps: usize) {
        for number in 0..steps {
            let mut threads: Vec<usize> = (1..=THREADS).collect();
            let alone = self.rng.chance(40);
            let mut burst = Vec::new();
            for _ in 0..if alone { 1 } else { self.rng.between(2, 5) } {
                let place = self.rng.below(threads.len());
                let thread = super::words::thread(threads.swap_remove(place));
                burst.push(self.step(thread, alone));
            }
            let answers = join_all(burst.iter().map(|step| ask(journal, directory, step.clone()))).await;
            for (step, answer) in burst.iter().zip(answers) {
                self.hold(number, step, answer);
                if let Step::Submit(owner, submission) = step {
                    self.number_rows(directory, owner, &submission.thread).await;
                }
            }
            if self.rng.chance(20) {
                self.look(journal, directory, number).await;
            }
        }
        self.look_everywhere(journal, directory).await;
    }

    fn owner(&mut self) -> UserId {
        if self.rng.chance(90) { somebody() } else { stranger() }
    }

    /// The owner of a thread, most of the time.
    fn owner_of(&mut self, thread: &ThreadId) -> UserId {
        let known = self.model.threads.iter().find(|known| known.row.id == *thread).map(|known| known.owner.clone());
        let other = self.owner();
        if self.rng.chance(95) { known.unwrap_or(other) } else { other }
    }

    fn step(&mut self, thread: ThreadId, alone: bool) -> Step {
        let exists = self.model.threads.iter().any(|known| known.row.id == thread);
        let owner = self.owner_of(&thread);
        match self.rng.below(100) {
            0..35 if !exists => self.submit(owner, thread, true, alone),
            0..20 => self.submit(owner, thread, false, alone),
            20..32 => Step::Claim(owner, thread),
            32..34 => Step::Delete(owner, thread),
            92.. => self.naming(owner, thread),
            _ => Step::Append(Box::new(self.batch(owner, thread))),
        }
    }

    fn submit(&mut self, owner: UserId, thread: ThreadId, fresh: bool, alone: bool) -> Step {
        self.runs += 1;
        self.at += 1;
        // What several questions share would make their order matter.
        let known = self.some_run(&thread).filter(|_| alone && self.rng.chance(10));
        let run = known.unwrap_or_else(|| super::words::run(self.runs));
        let command = match self.rng.below(10) {
            0 => cancel(&run),
            1 | 2 if !fresh => steer(&run, &format!("more {}", self.runs)),
            3..6 if !fresh => self.decision(&thread, &run),
            _ => start(&run),
        };
        let new_thread = if self.rng.chance(95) { fresh } else { !fresh };
        let submission = Submission { thread, new_thread, at: self.at, command, idempotency_key: None };
        let key = format!("key {}", self.rng.below(6));
        let digest = format!("digest {}", self.rng.below(2));
        let keyed = if alone && self.rng.chance(30) { keyed(submission, &key, &digest) } else { submission };
        Step::Submit(owner, Box::new(keyed))
    }

    /// Something about a name of this thread, or of one that never comes. No other thread has names like these: what
    /// several questions share would make their order matter.
    fn naming(&mut self, owner: UserId, thread: ThreadId) -> Step {
        let name = format!("{thread} {}", self.rng.below(2));
        let thread = if self.rng.chance(80) { thread } else { super::words::thread(THREADS + 1) };
        let protocol = self.rng.choose("p", &["q"]).to_owned();
        self.at += 1;
        let row = AliasRow { protocol, name, thread, note: format!("at {}", self.at), created_at: self.at };
        match self.rng.below(10) {
            0..6 => Step::Give(owner, row),
            6..9 => Step::Change(owner, row, Some(format!("noted at {}", self.at))),
            _ => Step::Change(owner, row, None),
        }
    }

    /// A decision of some question, which mostly is one.
    fn decision(&mut self, thread: &ThreadId, run: &TaskId) -> Command {
        let known = self.some_question(thread).filter(|_| self.rng.chance(90));
        let asked = known.unwrap_or_else(|| question(thread, run, 9));
        let by = if self.rng.chance(80) { Initiator::User } else { Initiator::Timeout };
        decide_as(by, &asked, &self.verdict())
    }

    fn verdict(&mut self) -> ApprovalDecision {
        if self.rng.chance(60) { yes() } else { no("not today") }
    }

    fn some_question(&mut self, thread: &ThreadId) -> Option<ApprovalRow> {
        let known = self.model.threads.iter().find(|known| known.row.id == *thread)?;
        self.rng.pick(&known.questions).cloned()
    }

    fn some_run(&mut self, thread: &ThreadId) -> Option<TaskId> {
        let known = self.model.threads.iter().find(|known| known.row.id == *thread)?;
        self.rng.pick(&known.runs).map(|run| run.id.clone())
    }

    fn batch(&mut self, owner: UserId, thread: ThreadId) -> AppendBatch {
        let known = self.model.threads.iter().find(|known| known.row.id == thread).cloned();
        let newest = known.as_ref().and_then(|known| known.newest).unwrap_or_default();
        let stale: Vec<Epoch> = self.epochs.iter().filter(|(of, _)| *of == thread).map(|(_, epoch)| *epoch).collect();
        let epoch =
            if self.rng.chance(92) { newest } else { self.rng.pick(&stale).copied().unwrap_or(Epoch(u64::MAX)) };
        let right = known.as_ref().map_or(0, |known| known.log.len() as u64);
        let head = if self.rng.chance(94) { right } else { self.rng.choose(right + 1, &[right.saturating_sub(1), 0]) };
        let run = self.some_run(&thread).filter(|_| self.rng.chance(97)).unwrap_or_else(|| super::words::run(99_999));
        let mut records = Vec::new();
        for place in 1..=u64::from(self.rng.between(0, 4)) {
            self.at += 1;
            let wrong = u64::from(self.rng.chance(1));
            let event = note(&run, &"word ".repeat(self.rng.below(60)));
            let draft = RecordDraft { seq: Seq(head + place + wrong), at: self.at, event, private: None };
            records.push(Record::seal(&thread, &run, epoch, draft));
        }
        let last = Seq(head + records.len() as u64);
        let changes = self.changes(&thread, known.as_ref(), last);
        AppendBatch { owner, thread, epoch, head: Seq(head), records: records.into(), changes }
    }

    /// Changes that mostly fit.
    fn changes(
        &mut self,
        thread: &ThreadId,
        known: Option<&super::reference::Thread>,
        last: Seq,
    ) -> Vec<DirectoryChange> {
        let mut changes = Vec::new();
        let at = self.at;
        let rows: Vec<u64> = known.map(|known| known.inbox.iter().map(|row| row.id).collect()).unwrap_or_default();
        if self.rng.chance(30) {
            let other = self.rng.chance(5).then_some(1_000_000);
            changes.extend(other.or(self.rng.pick(&rows).copied()).map(|row| DirectoryChange::ConsumeInboxRow { row }));
        }
        if self.rng.chance(5) {
            changes.push(DirectoryChange::Checkpoint(Checkpoint { seq: last, body: format!("{{\"at\":{at}}}") }));
        }
        if self.rng.chance(50)
            && let Some(run) = self.some_run(thread)
        {
            let status = known.and_then(|known| known.runs.iter().find(|row| row.id == run)).map(|row| row.status);
            let queued = status == Some(TaskStatus::Queued);
            let (begins, drops) = (queued && self.rng.chance(80), self.rng.chance(if queued { 10 } else { 1 }));
            changes.push(if begins {
                DirectoryChange::RunStarted { run, agent: "other".to_owned(), first: last, at }
            } else if drops {
                DirectoryChange::RunDropped { run, at }
            } else {
                let next = self.rng.choose(TaskStatus::Running, &TaskStatus::ALL);
                DirectoryChange::RunStatus { run, status: next, last, at }
            });
        } else if self.rng.chance(3) {
            self.runs += 1;
            let run = super::words::run(self.runs);
            changes.push(DirectoryChange::RunStarted { run, agent: "late".to_owned(), first: last, at });
        }
        self.people(thread, &mut changes);
        changes
    }

    /// Questions, sums and wake-ups that mostly fit.
    fn people(&mut self, thread: &ThreadId, changes: &mut Vec<DirectoryChange>) {
        let at = self.at;
        if self.rng.chance(25)
            && let Some(run) = self.some_run(thread)
        {
            let asked = question(thread, &run, self.rng.between(1, 3));
            // Some are over before anybody can answer.
            let (requested_at, expires_at) = (at, at + u64::from(self.rng.between(0, 200)));
            changes.push(DirectoryChange::ApprovalRequested(Box::new(ApprovalRow {
                requested_at,
                expires_at,
                ..asked
            })));
        }
        if self.rng.chance(10) {
            let known = self.some_question(thread).filter(|_| self.rng.chance(95));
            let key = known.unwrap_or_else(|| question(thread, &super::words::run(99_999), 1)).key;
            let (decision, by) =
                (self.verdict(), self.rng.choose(Initiator::User, &[Initiator::Timeout, Initiator::System]));
            changes.push(DirectoryChange::ApprovalResolved { key, decision, by, at });
        }
        if self.rng.chance(20) {
            let tokens = if self.rng.chance(2) { u64::MAX } else { u64::from(self.rng.between(0, 500)) };
            let usage = Usage { input_tokens: tokens, output_tokens: 1, ..Usage::default() };
            let day = Day(self.rng.between(0, DAYS - 1));
            changes.push(DirectoryChange::AddSpend { day, spent: Spend { usage, cost: CostMicros(tokens) } });
        }
        if self.rng.chance(15) {
            changes.push(DirectoryChange::ScheduleWakeup { at: self.rng.chance(60).then_some(at + 10) });
        }
    }

    /// Holds an answer against the model's.
    fn hold(&mut self, number: usize, step: &Step, answer: Answer) {
        let place = format!("seed {}, step {number}, {step:?}", self.seed);
        match (step, answer) {
            (Step::Submit(owner, submission), Answer::Submit(answer)) => {
                assert_eq!(answer, self.model.submit(owner, submission, self.rows_max), "{place}");
                let met = matches!(answer, Taken::New | Taken::Repeated(..) | Taken::Decided(_));
                self.decisions += usize::from(met && matches!(submission.command, Command::Answer(_)));
            }
            (Step::Claim(owner, id), Answer::Claim(answer)) => match self.model.thread_mut(owner, id) {
                None => assert_eq!(answer, Err(StoreError::ThreadNotFound), "{place}"),
                Some(thread) => {
                    let lease = answer.unwrap();
                    assert_eq!(lease.head.0, thread.log.len() as u64, "{place}");
                    let before = self.epochs.iter().filter(|(of, _)| of == id).map(|(_, epoch)| *epoch).max();
                    assert!(before.is_none_or(|before| lease.epoch > before), "{place}: {lease:?}");
                    thread.newest = Some(lease.epoch);
                    self.newest = self.newest.max(lease.epoch);
                    self.epochs.push((id.clone(), lease.epoch));
                }
            },
            (Step::Append(batch), Answer::Append(verdict)) => {
                let kind = match verdict {
                    AppendOutcome::Durable => Kind::Durable,
                    AppendOutcome::Fenced => Kind::Fenced,
                    AppendOutcome::Rejected(_) => Kind::Refused,
                    AppendOutcome::Unknown(ref why) => panic!("{place}: {why}"),
                };
                assert_eq!(kind, self.model.append(batch), "{place}: {verdict:?}");
                self.confirmed += if kind == Kind::Durable { batch.records.len() } else { 0 };
            }
            (Step::Delete(owner, id), Answer::Delete(answer)) => {
                assert_eq!(answer, Ok(self.model.delete(owner, id)), "{place}");
            }
            (Step::Give(owner, row), Answer::Give(answer)) => {
                assert_eq!(answer, Ok(self.model.give_name(owner, row)), "{place}");
            }
            (Step::Change(owner, row, note), Answer::Change(answer)) => {
                assert_eq!(answer, Ok(self.model.change_name(owner, row, note.as_deref())), "{place}");
            }
            (step, answer) => panic!("{step:?} got {answer:?}"),
        }
    }

    /// Takes over the numbers that the backend gave to inbox rows, after seeing that the rows are the same.
    async fn number_rows(&mut self, directory: &dyn Directory, owner: &UserId, thread: &ThreadId) {
        let rows = directory.inbox(owner, thread).await;
        let Some(known) = self.model.thread_mut(owner, thread) else {
            assert_eq!(rows, Err(StoreError::ThreadNotFound), "seed {}", self.seed);
            return;
        };
        let rows = rows.unwrap();
        assert!(rows.is_sorted_by(|one, other| one.id < other.id), "seed {}", self.seed);
        for row in &mut known.inbox {
            if let Some(found) = rows.iter().find(|found| found.command == row.command && found.at == row.at) {
                row.id = found.id;
            }
        }
        assert_eq!(rows, known.inbox, "seed {}", self.seed);
    }

    /// Looks at one place of the store.
    async fn look(&mut self, journal: &dyn Journal, directory: &dyn Directory, number: usize) {
        let place = format!("seed {}, step {number}", self.seed);
        let thread = super::words::thread(1 + self.rng.below(THREADS));
        let owner = self.owner_of(&thread);
        let known = self.model.thread(&owner, &thread);
        let head = known.map_or(0, |known| known.log.len());
        let after = self.rng.below(head + 2);
        let limit = PageLimit { records_max: self.rng.below(9), bytes_max: self.rng.below(2_000) };
        let page = journal.read_page(&owner, &thread, Seq(after as u64), limit).await;
        match self.model.thread(&owner, &thread) {
            None => assert_eq!(page.map(|page| page.head), Err(StoreError::ThreadNotFound), "{place}"),
            Some(known) => {
                let page = page.unwrap();
                let rest = known.log.get(after..).unwrap_or_default();
                assert_eq!(page.head.0, head as u64, "{place}");
                assert_eq!(page.records.is_empty(), rest.is_empty(), "{place}");
                assert_eq!(page.records, rest[..page.records.len()], "{place}");
            }
        }
        let status =
            if self.rng.chance(50) { vec![self.rng.choose(TaskStatus::Queued, &TaskStatus::ALL)] } else { Vec::new() };
        let filter = RunFilter { status, thread: self.rng.chance(50).then_some(thread) };
        let expected = self.model.runs_of(&owner, &filter);
        let limit = self.rng.below(20);
        let from = self.rng.below(expected.len() + 1);
        let before = from.checked_sub(1).map(|from| expected[from].id.as_str().to_owned());
        let rows = directory.runs(&owner, filter, ListPage { before, limit }).await.unwrap();
        assert!(rows.iter().eq(expected[from..].iter().take(limit)), "{place}: {rows:?} instead of {expected:?}");
        let mut claimable = directory.claimable_threads().await.unwrap();
        claimable.sort();
        assert_eq!(claimable, self.model.claimable(), "{place}");
        let pending = self.rng.chance(50);
        let expected = self.model.questions_of(&owner, pending);
        let from = self.rng.below(expected.len() + 1);
        let before = from.checked_sub(1).map(|from| expected[from].key.as_str().to_owned());
        let rows = directory.approvals(&owner, pending, ListPage { before, limit }).await.unwrap();
        assert!(rows.iter().eq(expected[from..].iter().take(limit)), "{place}: {rows:?} instead of {expected:?}");
    }

    /// Looks at all of it.
    pub async fn look_everywhere(&self, journal: &dyn Journal, directory: &dyn Directory) {
        let place = format!("seed {}", self.seed);
        for owner in [somebody(), stranger()] {
            let page = ListPage { before: None, limit: usize::MAX };
            let threads = directory.threads(&owner, page.clone()).await.unwrap();
            assert_eq!(threads, self.model.threads_of(&owner), "{place}");
            let runs = directory.runs(&owner, RunFilter::default(), page.clone()).await.unwrap();
            assert_eq!(runs, self.model.runs_of(&owner, &RunFilter::default()), "{place}");
            let questions = directory.approvals(&owner, false, page).await.unwrap();
            assert_eq!(questions, self.model.questions_of(&owner, false), "{place}");
            for day in (0..DAYS).map(Day) {
                assert_eq!(directory.daily_spend(&owner, day).await, Ok(self.model.spent(&owner, day)), "{place}");
            }
        }
        assert_eq!(directory.scheduled_wakeups().await, Ok(self.model.wakes()), "{place}");
        self.look_at_names(directory).await;
        for known in &self.model.threads {
            let (owner, id) = (&known.owner, &known.row.id);
            assert_eq!(read_all(journal, (owner, id), PageLimit::WIDE).await.unwrap(), known.log, "{place}");
            assert_eq!(directory.inbox(owner, id).await.unwrap(), known.inbox, "{place}");
            assert_eq!(directory.checkpoint(owner, id).await.unwrap(), known.checkpoint, "{place}");
        }
    }

    async fn look_at_names(&self, directory: &dyn Directory) {
        for owner in [somebody(), stranger()] {
            for (n, number, protocol) in
                (1..=THREADS).flat_map(|n| [(n, 0, "p"), (n, 0, "q"), (n, 1, "p"), (n, 1, "q")])
            {
                let thread = super::words::thread(n);
                let (protocol, name) = (protocol.to_owned(), format!("{thread} {number}"));
                let like = AliasRow { protocol, name, thread, note: String::new(), created_at: 0 };
                let found = directory.alias(&owner, &like.protocol, &like.name).await.unwrap();
                assert_eq!(found.as_ref(), self.model.name(&owner, &like), "seed {}, {like:?}", self.seed);
            }
        }
    }

    /// How many decisions met their question.
    #[must_use]
    pub const fn decisions(&self) -> usize {
        self.decisions
    }

    /// How many records were confirmed: a walk on which everything is refused proves nothing.
    #[must_use]
    pub const fn records(&self) -> usize {
        self.confirmed
    }
}

async fn ask(journal: &dyn Journal, directory: &dyn Directory, step: Step) -> Answer {
    match step {
        Step::Submit(owner, submission) => Answer::Submit(taken(&directory.submit(&owner, *submission).await)),
        Step::Claim(owner, thread) => Answer::Claim(journal.claim(&owner, &thread, &node()).await),
        Step::Append(batch) => Answer::Append(journal.append(*batch).await),
        Step::Delete(owner, thread) => Answer::Delete(directory.delete_thread(&owner, &thread).await),
        Step::Give(owner, row) => Answer::Give(directory.create_alias(&owner, row).await),
        Step::Change(owner, AliasRow { protocol, name, .. }, Some(note)) => {
            Answer::Change(directory.update_alias(&owner, &protocol, &name, note).await)
        }
        Step::Change(owner, AliasRow { protocol, name, .. }, None) => {
            Answer::Change(directory.delete_alias(&owner, &protocol, &name).await)
        }
    }
}
