//! Random sequences of valid and invalid store operations, compared with a reference model.
//!
//! Operations on different threads run concurrently, so that a backend may commit them in any order or together. After
//! every few of them the whole store must equal the model. A failure names its seed.

use super::TestStore;
use super::fixtures::{
    approve, cancel_command, decide_command_as, note_event, other_user, pending_approval, read_all_records, reject,
    start_command, steer_command, test_node, test_user, with_idempotency_key,
};
use super::reference_store::{ExpectedAppend, ExpectedSubmit, ReferenceStore, submit_outcome};
use super::threads::conversation_data;
use futures_util::future::join_all;
use model::command::Command;
use model::event::{ApprovalDecision, Initiator};
use model::limits::CostMicros;
use model::ports::{
    AliasData, AliasKind, AliasRow, AliasUpdate, AppendBatch, AppendOutcome, ApprovalFilter, ApprovalRow,
    ConversationData, Day, DirectoryChange, Journal, Lease, ListPage, PageLimit, RunFilter, Spend, StoreError,
    Submission, ThreadMode,
};
use model::record::{Record, RecordDraft};
use model::seq::{Epoch, Seq};
use model::task::TaskStatus;
use model::usage::Usage;
use model::{TaskId, ThreadId, UserId};
use model_testing::Rng;

const THREADS: usize = 7;
const DAYS: u32 = 3;

/// An operation that changes the store.
#[derive(Clone, Debug)]
enum WalkStep {
    Submit(UserId, Box<Submission>),
    Claim(UserId, ThreadId),
    Append(Box<AppendBatch>),
    Delete(UserId, ThreadId),
    CreateAlias(UserId, AliasRow),
    /// Changes the conversation of this name from the row that the caller read, if any.
    UpdateConversation(UserId, AliasRow, ConversationData),
    DeleteAlias(UserId, AliasRow),
}

#[derive(Debug)]
enum StepResult {
    Submit(ExpectedSubmit),
    Claim(Result<Lease, StoreError>),
    Append(AppendOutcome),
    Delete(Result<bool, StoreError>),
    CreateAlias(Result<AliasRow, StoreError>),
    UpdateConversation(Result<AliasUpdate, StoreError>),
    DeleteAlias(Result<bool, StoreError>),
}

/// Steps that share state run alone, because their order would matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Concurrency {
    Alone,
    Concurrent,
}

/// A random walk through a store and the reference model.
pub struct RandomWalk {
    seed: u64,
    rng: Rng,
    reference: ReferenceStore,
    /// Every granted epoch, with its thread.
    epochs: Vec<(ThreadId, Epoch)>,
    newest_epoch: Epoch,
    inbox_rows_max: usize,
    runs: usize,
    now: u64,
    confirmed_records: usize,
    effective_decisions: usize,
}

impl RandomWalk {
    /// Starts with an empty store and its inbox limit.
    #[must_use]
    pub fn new(seed: u64, rows_max: usize) -> Self {
        println!("seed {seed}");
        let (rng, model, epochs) = (Rng::new(seed), ReferenceStore::default(), Vec::new());
        Self {
            seed,
            rng,
            reference: model,
            epochs,
            newest_epoch: Epoch(0),
            inbox_rows_max: rows_max,
            runs: 0,
            now: 1_000,
            confirmed_records: 0,
            effective_decisions: 0,
        }
    }

    /// Call this after reopening the store, which invalidates all leases.
    pub fn forget_leases(&mut self) {
        for thread in &mut self.reference.threads {
            thread.newest_epoch = None;
        }
    }

    pub async fn run_steps(&mut self, journal: &dyn Journal, directory: &dyn TestStore, steps: usize) {
        for number in 0..steps {
            let mut threads: Vec<usize> = (1..=THREADS).collect();
            let concurrency = if self.rng.chance(40) { Concurrency::Alone } else { Concurrency::Concurrent };
            let mut burst = Vec::new();
            let steps = if concurrency == Concurrency::Alone { 1 } else { self.rng.between(2, 5) };
            for _ in 0..steps {
                let place = self.rng.below(threads.len());
                let thread = super::fixtures::nth_thread(threads.swap_remove(place));
                burst.push(self.random_step(thread, concurrency));
            }
            let answers = join_all(burst.iter().map(|step| perform_step(journal, directory, step.clone()))).await;
            for (step, answer) in burst.iter().zip(answers) {
                self.check_result(number, step, answer);
                if let WalkStep::Submit(owner, submission) = step {
                    self.sync_inbox_ids(directory, owner, &submission.thread).await;
                }
            }
            if self.rng.chance(20) {
                self.check_random_page(journal, directory, number).await;
            }
        }
        self.check_all(journal, directory).await;
    }

    fn random_owner(&mut self) -> UserId {
        if self.rng.chance(90) { test_user() } else { other_user() }
    }

    /// The owner of a thread, most of the time.
    fn owner_of(&mut self, thread: &ThreadId) -> UserId {
        let known =
            self.reference.threads.iter().find(|known| known.row.id == *thread).map(|known| known.owner.clone());
        let other = self.random_owner();
        if self.rng.chance(95) { known.unwrap_or(other) } else { other }
    }

    fn random_step(&mut self, thread: ThreadId, concurrency: Concurrency) -> WalkStep {
        let exists = self.reference.threads.iter().any(|known| known.row.id == thread);
        let owner = self.owner_of(&thread);
        match self.rng.below(100) {
            0..35 if !exists => self.random_submission(owner, thread, ThreadMode::CreateNew, concurrency),
            0..20 => self.random_submission(owner, thread, ThreadMode::MustExist, concurrency),
            20..32 => WalkStep::Claim(owner, thread),
            32..34 => WalkStep::Delete(owner, thread),
            92.. => self.random_alias_step(owner, thread),
            _ => WalkStep::Append(Box::new(self.random_batch(owner, thread))),
        }
    }

    fn random_submission(
        &mut self,
        owner: UserId,
        thread: ThreadId,
        thread_mode: ThreadMode,
        concurrency: Concurrency,
    ) -> WalkStep {
        let alone = concurrency == Concurrency::Alone;
        let exists = thread_mode == ThreadMode::MustExist;
        self.runs += 1;
        self.now += 1;
        // Concurrent steps must not share runs.
        let known = self.pick_run(&thread).filter(|_| alone && self.rng.chance(10));
        let run = known.unwrap_or_else(|| super::fixtures::nth_run(self.runs));
        let command = match self.rng.below(10) {
            0 => cancel_command(&run),
            1 | 2 if exists => steer_command(&run, &format!("more {}", self.runs)),
            3..6 if exists => self.random_decision_command(&thread, &run),
            _ => start_command(&run),
        };
        let thread_mode = match (self.rng.chance(95), thread_mode) {
            (true, thread_mode) => thread_mode,
            (false, ThreadMode::CreateNew) => ThreadMode::MustExist,
            (false, ThreadMode::MustExist) => ThreadMode::CreateNew,
        };
        let submission =
            Submission { thread, thread_mode, at: self.now, command, idempotency_key: None, task_path: Vec::new() };
        let key = format!("key {}", self.rng.below(6));
        let digest = format!("digest {}", self.rng.below(2));
        let keyed =
            if alone && self.rng.chance(30) { with_idempotency_key(submission, &key, &digest) } else { submission };
        WalkStep::Submit(owner, Box::new(keyed))
    }

    /// A step on an alias of this thread, or of one that is never created. Aliases are unique to the thread, because
    /// concurrent steps must not share any.
    fn random_alias_step(&mut self, owner: UserId, thread: ThreadId) -> WalkStep {
        let name = format!("{thread} {}", self.rng.below(2));
        let thread = if self.rng.chance(80) { thread } else { super::fixtures::nth_thread(THREADS + 1) };
        self.now += 1;
        let conversation = AliasData::Conversation(conversation_data(&format!("at {}", self.now)));
        let data = if self.rng.chance(50) { conversation } else { AliasData::AgentRun };
        let row = AliasRow { name, thread, data, created_at: self.now };
        match self.rng.below(10) {
            0..6 => WalkStep::CreateAlias(owner, row),
            6..9 => {
                // Mostly the row that is stored, sometimes one that is out of date.
                let stored = self.reference.find_alias(&owner, AliasKind::Conversation, &row.name).cloned();
                let current = stored.filter(|_| self.rng.chance(80)).unwrap_or(row);
                let data = conversation_data(&format!("changed at {}", self.now));
                WalkStep::UpdateConversation(owner, current, data)
            }
            _ => WalkStep::DeleteAlias(owner, row),
        }
    }

    /// A decision, mostly of an existing approval.
    fn random_decision_command(&mut self, thread: &ThreadId, run: &TaskId) -> Command {
        let known = self.pick_approval(thread).filter(|_| self.rng.chance(90));
        let asked = known.unwrap_or_else(|| pending_approval(thread, run, 9));
        let by = if self.rng.chance(80) { Initiator::User } else { Initiator::Timeout };
        decide_command_as(by, &asked, &self.random_decision())
    }

    fn random_decision(&mut self) -> ApprovalDecision {
        if self.rng.chance(60) { approve() } else { reject("not today") }
    }

    fn pick_approval(&mut self, thread: &ThreadId) -> Option<ApprovalRow> {
        let known = self.reference.threads.iter().find(|known| known.row.id == *thread)?;
        self.rng.pick(&known.approvals).cloned()
    }

    fn pick_run(&mut self, thread: &ThreadId) -> Option<TaskId> {
        let known = self.reference.threads.iter().find(|known| known.row.id == *thread)?;
        self.rng.pick(&known.runs).map(|run| run.id.clone())
    }

    fn random_batch(&mut self, owner: UserId, thread: ThreadId) -> AppendBatch {
        let known = self.reference.threads.iter().find(|known| known.row.id == thread).cloned();
        let newest = known.as_ref().and_then(|known| known.newest_epoch).unwrap_or_default();
        let stale: Vec<Epoch> = self.epochs.iter().filter(|(of, _)| *of == thread).map(|(_, epoch)| *epoch).collect();
        let epoch =
            if self.rng.chance(92) { newest } else { self.rng.pick(&stale).copied().unwrap_or(Epoch(u64::MAX)) };
        let right = known.as_ref().map_or(0, |known| known.records.len() as u64);
        let head = if self.rng.chance(94) { right } else { self.rng.choose(right + 1, &[right.saturating_sub(1), 0]) };
        let run =
            self.pick_run(&thread).filter(|_| self.rng.chance(97)).unwrap_or_else(|| super::fixtures::nth_run(99_999));
        let mut records = Vec::new();
        for place in 1..=u64::from(self.rng.between(0, 4)) {
            self.now += 1;
            let wrong = u64::from(self.rng.chance(1));
            let event = note_event(&run, &"word ".repeat(self.rng.below(60)));
            let draft = RecordDraft { seq: Seq(head + place + wrong), at: self.now, event, private: None };
            records.push(Record::seal(&thread, &run, epoch, draft));
        }
        let last = Seq(head + records.len() as u64);
        let changes = self.random_changes(&thread, known.as_ref(), last);
        AppendBatch { owner, thread, epoch, head: Seq(head), records: records.into(), changes: changes.into() }
    }

    /// Mostly valid changes.
    fn random_changes(
        &mut self,
        thread: &ThreadId,
        known: Option<&super::reference_store::ReferenceThread>,
        last: Seq,
    ) -> Vec<DirectoryChange> {
        let mut changes = Vec::new();
        let at = self.now;
        let rows: Vec<u64> = known.map(|known| known.inbox.iter().map(|row| row.id).collect()).unwrap_or_default();
        if self.rng.chance(30) {
            let other = self.rng.chance(5).then_some(1_000_000);
            changes.extend(other.or(self.rng.pick(&rows).copied()).map(|row| DirectoryChange::ConsumeInboxRow { row }));
        }
        if self.rng.chance(5) {
            let runs: Vec<u64> = [self.rng.chance(70).then_some(at % 7), self.rng.chance(30).then_some(at % 5 + 7)]
                .into_iter()
                .flatten()
                .collect();
            changes.push(DirectoryChange::Checkpoint(super::fixtures::nth_checkpoint(last.0, &runs)));
        }
        if self.rng.chance(50)
            && let Some(run) = self.pick_run(thread)
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
            let run = super::fixtures::nth_run(self.runs);
            changes.push(DirectoryChange::RunStarted { run, agent: "late".to_owned(), first: last, at });
        }
        self.push_approval_changes(thread, &mut changes);
        changes
    }

    /// Mostly valid approvals, spend and wake-ups.
    fn push_approval_changes(&mut self, thread: &ThreadId, changes: &mut Vec<DirectoryChange>) {
        let at = self.now;
        if self.rng.chance(25)
            && let Some(run) = self.pick_run(thread)
        {
            let asked = pending_approval(thread, &run, self.rng.between(1, 3));
            // Some expire at once.
            let (requested_at, expires_at) = (at, at + u64::from(self.rng.between(0, 200)));
            changes.push(DirectoryChange::ApprovalRequested(Box::new(ApprovalRow {
                requested_at,
                expires_at,
                ..asked
            })));
        }
        if self.rng.chance(10) {
            let known = self.pick_approval(thread).filter(|_| self.rng.chance(95));
            let key = known.unwrap_or_else(|| pending_approval(thread, &super::fixtures::nth_run(99_999), 1)).key;
            let (decision, by) =
                (self.random_decision(), self.rng.choose(Initiator::User, &[Initiator::Timeout, Initiator::System]));
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

    /// Compares a result with the model's.
    fn check_result(&mut self, number: usize, step: &WalkStep, answer: StepResult) {
        let place = format!("seed {}, step {number}, {step:?}", self.seed);
        match (step, answer) {
            (WalkStep::Submit(owner, submission), StepResult::Submit(answer)) => {
                assert_eq!(answer, self.reference.submit(owner, submission, self.inbox_rows_max), "{place}");
                let met = matches!(
                    answer,
                    ExpectedSubmit::Queued | ExpectedSubmit::Duplicate(..) | ExpectedSubmit::AlreadyDecided(_)
                );
                self.effective_decisions += usize::from(met && matches!(submission.command, Command::Answer(_)));
            }
            (WalkStep::Claim(owner, id), StepResult::Claim(answer)) => match self.reference.thread_mut(owner, id) {
                None => assert_eq!(answer, Err(StoreError::ThreadNotFound), "{place}"),
                Some(thread) => {
                    let lease = answer.unwrap();
                    assert_eq!(lease.head.0, thread.records.len() as u64, "{place}");
                    let before = self.epochs.iter().filter(|(of, _)| of == id).map(|(_, epoch)| *epoch).max();
                    assert!(before.is_none_or(|before| lease.epoch > before), "{place}: {lease:?}");
                    thread.newest_epoch = Some(lease.epoch);
                    self.newest_epoch = self.newest_epoch.max(lease.epoch);
                    self.epochs.push((id.clone(), lease.epoch));
                }
            },
            (WalkStep::Append(batch), StepResult::Append(verdict)) => {
                let kind = match verdict {
                    AppendOutcome::Durable => ExpectedAppend::Durable,
                    AppendOutcome::Fenced => ExpectedAppend::Fenced,
                    AppendOutcome::Rejected(_) => ExpectedAppend::Rejected,
                    AppendOutcome::Unknown(_) | AppendOutcome::NoSpace => panic!("{place}: {verdict:?}"),
                };
                assert_eq!(kind, self.reference.append(batch), "{place}: {verdict:?}");
                self.confirmed_records += if kind == ExpectedAppend::Durable { batch.records.len() } else { 0 };
            }
            (WalkStep::Delete(owner, id), StepResult::Delete(answer)) => {
                assert_eq!(answer, Ok(self.reference.delete_thread(owner, id)), "{place}");
            }
            (WalkStep::CreateAlias(owner, row), StepResult::CreateAlias(answer)) => {
                assert_eq!(answer, Ok(self.reference.create_alias(owner, row)), "{place}");
            }
            (WalkStep::UpdateConversation(owner, current, data), StepResult::UpdateConversation(answer)) => {
                assert_eq!(answer, Ok(self.reference.update_conversation(owner, current, data)), "{place}");
            }
            (WalkStep::DeleteAlias(owner, row), StepResult::DeleteAlias(answer)) => {
                assert_eq!(answer, Ok(self.reference.delete_alias(owner, row)), "{place}");
            }
            (step, answer) => panic!("{step:?} got {answer:?}"),
        }
    }

    /// Copies the backend's ids of inbox rows into the model, after checking that the rows are equal.
    async fn sync_inbox_ids(&mut self, directory: &dyn TestStore, owner: &UserId, thread: &ThreadId) {
        let rows = directory.inbox(owner, thread).await;
        let Some(known) = self.reference.thread_mut(owner, thread) else {
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

    /// Compares one random page of the store with the model.
    async fn check_random_page(&mut self, journal: &dyn Journal, directory: &dyn TestStore, number: usize) {
        let place = format!("seed {}, step {number}", self.seed);
        let thread = super::fixtures::nth_thread(1 + self.rng.below(THREADS));
        let owner = self.owner_of(&thread);
        let known = self.reference.thread(&owner, &thread);
        let head = known.map_or(0, |known| known.records.len());
        let after = self.rng.below(head + 2);
        let limit = PageLimit { records_max: self.rng.below(9), bytes_max: self.rng.below(2_000) };
        let page = journal.read_page(&owner, &thread, Seq(after as u64), limit).await;
        match self.reference.thread(&owner, &thread) {
            None => assert_eq!(page.map(|page| page.head), Err(StoreError::ThreadNotFound), "{place}"),
            Some(known) => {
                let page = page.unwrap();
                let rest = known.records.get(after..).unwrap_or_default();
                assert_eq!(page.head.0, head as u64, "{place}");
                assert_eq!(page.records.is_empty(), rest.is_empty(), "{place}");
                assert_eq!(page.records, rest[..page.records.len()], "{place}");
            }
        }
        let status =
            if self.rng.chance(50) { vec![self.rng.choose(TaskStatus::Queued, &TaskStatus::ALL)] } else { Vec::new() };
        let filter = RunFilter { status, thread: self.rng.chance(50).then_some(thread) };
        let expected = self.reference.runs_of(&owner, &filter);
        let limit = self.rng.below(20);
        let from = self.rng.below(expected.len() + 1);
        let before = from.checked_sub(1).map(|from| expected[from].id.as_str().to_owned());
        let rows = directory.runs(&owner, filter, ListPage { before, limit }).await.unwrap();
        assert!(rows.iter().eq(expected[from..].iter().take(limit)), "{place}: {rows:?} instead of {expected:?}");
        assert_eq!(directory.log_bytes_used(&owner).await, Ok(self.reference.log_bytes(&owner)), "{place}");
        let mut claimable = directory.claimable_threads().await.unwrap();
        claimable.sort();
        assert_eq!(claimable, self.reference.claimable_threads(), "{place}");
        let filter = if self.rng.chance(50) { ApprovalFilter::Pending } else { ApprovalFilter::All };
        let expected = self.reference.approvals_of(&owner, filter);
        let from = self.rng.below(expected.len() + 1);
        let before = from.checked_sub(1).map(|from| expected[from].key.as_str().to_owned());
        let rows = directory.approvals(&owner, filter, ListPage { before, limit }).await.unwrap();
        assert!(rows.iter().eq(expected[from..].iter().take(limit)), "{place}: {rows:?} instead of {expected:?}");
    }

    /// Compares the whole store with the model.
    pub async fn check_all(&self, journal: &dyn Journal, directory: &dyn TestStore) {
        let place = format!("seed {}", self.seed);
        for owner in [test_user(), other_user()] {
            let page = ListPage { before: None, limit: usize::MAX };
            let threads = directory.threads(&owner, page.clone()).await.unwrap();
            assert_eq!(threads, self.reference.threads_of(&owner), "{place}");
            let runs = directory.runs(&owner, RunFilter::default(), page.clone()).await.unwrap();
            assert_eq!(runs, self.reference.runs_of(&owner, &RunFilter::default()), "{place}");
            let questions = directory.approvals(&owner, ApprovalFilter::All, page).await.unwrap();
            assert_eq!(questions, self.reference.approvals_of(&owner, ApprovalFilter::All), "{place}");
            assert_eq!(directory.log_bytes_used(&owner).await, Ok(self.reference.log_bytes(&owner)), "{place}");
            for day in (0..DAYS).map(Day) {
                assert_eq!(
                    directory.daily_spend(&owner, day).await,
                    Ok(self.reference.daily_spend(&owner, day)),
                    "{place}"
                );
            }
        }
        assert_eq!(directory.scheduled_wakeups().await, Ok(self.reference.scheduled_wakeups()), "{place}");
        self.check_aliases(directory).await;
        for known in &self.reference.threads {
            let (owner, id) = (&known.owner, &known.row.id);
            assert_eq!(
                read_all_records(journal, (owner, id), PageLimit::WIDE).await.unwrap(),
                known.records,
                "{place}"
            );
            assert_eq!(directory.inbox(owner, id).await.unwrap(), known.inbox, "{place}");
            assert_eq!(directory.checkpoint(owner, id).await.unwrap(), known.checkpoint, "{place}");
        }
    }

    async fn check_aliases(&self, directory: &dyn TestStore) {
        for owner in [test_user(), other_user()] {
            for (n, number) in (1..=THREADS).flat_map(|n| [(n, 0), (n, 1)]) {
                let name = format!("{} {number}", super::fixtures::nth_thread(n));
                for kind in [AliasKind::Conversation, AliasKind::AgentRun] {
                    let found = directory.alias(&owner, kind, &name).await.unwrap();
                    assert_eq!(found.as_ref(), self.reference.find_alias(&owner, kind, &name), "seed {}", self.seed);
                }
            }
        }
    }

    /// Number of decisions of existing approvals.
    #[must_use]
    pub const fn effective_decisions(&self) -> usize {
        self.effective_decisions
    }

    /// Number of confirmed records: a walk whose steps are all rejected proves nothing.
    #[must_use]
    pub const fn confirmed_records(&self) -> usize {
        self.confirmed_records
    }
}

async fn perform_step(journal: &dyn Journal, directory: &dyn TestStore, step: WalkStep) -> StepResult {
    match step {
        WalkStep::Submit(owner, submission) => {
            StepResult::Submit(submit_outcome(&directory.submit(&owner, *submission).await))
        }
        WalkStep::Claim(owner, thread) => {
            let claimed = journal.claim(&owner, &thread, &test_node()).await;
            StepResult::Claim(claimed.map(|outcome| outcome.lease().unwrap()))
        }
        WalkStep::Append(batch) => StepResult::Append(journal.append(*batch).await),
        WalkStep::Delete(owner, thread) => StepResult::Delete(directory.delete_thread(&owner, &thread).await),
        WalkStep::CreateAlias(owner, row) => StepResult::CreateAlias(directory.create_alias(&owner, row).await),
        WalkStep::UpdateConversation(owner, current, data) => {
            StepResult::UpdateConversation(directory.update_conversation(&owner, &current, data).await)
        }
        WalkStep::DeleteAlias(owner, row) => {
            StepResult::DeleteAlias(directory.delete_alias(&owner, row.data.kind(), &row.name).await)
        }
    }
}
