//! The store without a disk: the twin that every law is also tried on.
//!
//! Same verdicts, same order, same errors as [`crate::sqlite`]; nothing outlives it. One lock, never held over an await.

mod attachments;
mod directory;

use crate::admit;
use model::command::Command;
use model::ports::{
    AccessKeyRow, AliasRow, AppendBatch, AppendOutcome, ApprovalAnswer, ApprovalRow, AttachmentRow, BoxFuture,
    Checkpoint, Day, DirectoryChange, InboxRow, Journal, Lease, OnCommit, PageLimit, RecordPage, RunRow, ShareRow,
    Spend, StoreError,
};
use model::record::Record;
use model::seq::{Epoch, Millis, Seq};
use model::task::TaskStatus;
use model::{ApprovalKey, NodeId, TaskId, ThreadId, UserId};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

const INBOX_ROWS_MAX: usize = 1_000;

/// The store without a disk.
#[derive(Debug)]
pub struct Memory {
    tables: Mutex<Tables>,
    inbox_rows_max: usize,
}

#[derive(Debug, Default)]
struct Tables {
    threads: BTreeMap<ThreadId, Thread>,
    keys: Vec<AccessKeyRow>,
    /// What was submitted with a key: (owner, key) → (digest, task, thread).
    idempotency: HashMap<(UserId, String), (String, TaskId, ThreadId)>,
    spent: HashMap<(UserId, Day), Spend>,
    /// By owner, protocol and name.
    names: HashMap<(UserId, String, String), AliasRow>,
    /// By owner and path.
    attachments: BTreeMap<(UserId, String), File>,
    /// Who uses what: owner, thread, path.
    uses: BTreeSet<(UserId, ThreadId, String)>,
    shares: Vec<ShareRow>,
    /// By digest.
    definitions: HashMap<String, String>,
    claims: u64,
    rows: u64,
}

/// What is known of a path.
#[derive(Debug)]
enum File {
    Expected,
    There(AttachmentRow),
    Released,
}

#[derive(Debug)]
struct Thread {
    owner: UserId,
    created_at: Millis,
    updated_at: Millis,
    epoch: Option<Epoch>,
    records: Vec<Record>,
    runs: Vec<RunRow>,
    inbox: Vec<InboxRow>,
    checkpoint: Option<Checkpoint>,
    questions: Vec<ApprovalRow>,
    wake_at: Option<Millis>,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Memory {
    /// Begins with nothing.
    #[must_use]
    pub fn new() -> Self {
        Self { tables: Mutex::default(), inbox_rows_max: INBOX_ROWS_MAX }
    }

    /// With inboxes of another size.
    #[must_use]
    pub const fn with_inboxes_of(mut self, rows_max: usize) -> Self {
        self.inbox_rows_max = rows_max;
        self
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Journal for Memory {
    fn claim<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
        _node: &'a NodeId,
    ) -> BoxFuture<'a, Result<Lease, StoreError>> {
        Box::pin(async move {
            let mut tables = self.tables();
            let epoch = Epoch(tables.claims + 1);
            let thread = tables.thread_mut(owner, thread).ok_or(StoreError::ThreadNotFound)?;
            thread.epoch = Some(epoch);
            let lease = Lease { epoch, head: thread.head() };
            tables.claims += 1;
            Ok(lease)
        })
    }

    fn append_with_callback(&self, batch: AppendBatch, landed: OnCommit) -> BoxFuture<'_, AppendOutcome> {
        let verdict = self.tables().append(batch).err().unwrap_or(AppendOutcome::Durable);
        landed.call(&verdict);
        Box::pin(std::future::ready(verdict))
    }

    fn read_page<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
        after: Seq,
        limit: PageLimit,
    ) -> BoxFuture<'a, Result<RecordPage, StoreError>> {
        Box::pin(async move {
            let tables = self.tables();
            let thread = tables.thread(owner, thread).ok_or(StoreError::ThreadNotFound)?;
            let mut bytes = 0_usize;
            let mut page = RecordPage { records: Vec::new(), head: thread.head() };
            let skipped = usize::try_from(after.0).unwrap_or(usize::MAX);
            for record in thread.records.iter().skip(skipped) {
                let full = page.records.len() >= limit.records_max || bytes >= limit.bytes_max;
                if full && !page.records.is_empty() {
                    break;
                }
                bytes = bytes.saturating_add(record.size_bytes());
                page.records.push(record.clone());
            }
            Ok(page)
        })
    }
}

impl Tables {
    fn thread(&self, owner: &UserId, thread: &ThreadId) -> Option<&Thread> {
        self.threads.get(thread).filter(|found| found.owner == *owner)
    }

    fn thread_mut(&mut self, owner: &UserId, thread: &ThreadId) -> Option<&mut Thread> {
        self.threads.get_mut(thread).filter(|found| found.owner == *owner)
    }

    fn run(&self, owner: &UserId, run: &TaskId) -> Option<&RunRow> {
        let threads = self.threads.values().filter(|thread| thread.owner == *owner);
        threads.flat_map(|thread| &thread.runs).find(|row| row.id == *run)
    }

    fn append(&mut self, batch: AppendBatch) -> Result<(), AppendOutcome> {
        let Some(thread) = self.thread(&batch.owner, &batch.thread) else {
            return Err(AppendOutcome::Rejected(admit::NO_THREAD.to_owned()));
        };
        admit::standing(thread.epoch, thread.head(), &batch)?;
        if let Some(flaw) = admit::flaw(&batch) {
            return Err(AppendOutcome::Rejected(flaw));
        }
        let mut runs = thread.runs.clone();
        for change in &batch.changes {
            self.change(thread, &batch, change, &mut runs)?;
        }
        for id in admit::named(&batch) {
            runs.iter().find(|run| run.id == *id).ok_or_else(|| admit::unknown_run(id))?;
        }
        self.judge_questions(thread, &batch)?;
        for change in &batch.changes {
            if let DirectoryChange::AddSpend { day, spent } = change {
                let sum = self.spent.entry((batch.owner.clone(), *day)).or_default();
                *sum = admit::sum(*sum, *spent);
            }
        }
        if let Some(thread) = self.threads.get_mut(&batch.thread) {
            thread.commit(batch, runs);
        }
        Ok(())
    }

    /// What a change makes of the thread's runs, or why it does not fit.
    fn change(
        &self,
        thread: &Thread,
        batch: &AppendBatch,
        change: &DirectoryChange,
        runs: &mut Vec<RunRow>,
    ) -> Result<(), AppendOutcome> {
        if let DirectoryChange::ConsumeInboxRow { row } = change
            && !thread.inbox.iter().any(|waiting| waiting.id == *row)
        {
            return Err(admit::unknown_row(*row));
        }
        let Some(id) = admit::run_of(change) else { return Ok(()) };
        let known = runs.iter().find(|run| run.id == *id).map(|run| run.status);
        if known.is_none() && self.run(&batch.owner, id).is_some() {
            return Err(admit::unknown_run(id));
        }
        let status = admit::moved(known, id, change)?;
        if let DirectoryChange::RunStarted { at, .. } = change
            && known.is_none()
        {
            runs.push(queued(id.clone(), batch.thread.clone(), String::new(), *at));
        }
        let Some(run) = runs.iter_mut().find(|run| run.id == *id) else { return Ok(()) };
        run.status = status;
        match change {
            DirectoryChange::RunStarted { agent, first, .. } => {
                run.agent.clone_from(agent);
                (run.first_seq, run.last_seq) = (Some(*first), Some(*first));
            }
            DirectoryChange::RunStatus { last, at, .. } => {
                run.last_seq = Some(*last);
                run.ended_at = status.is_terminal().then_some(*at);
            }
            DirectoryChange::RunDropped { at, .. } => run.ended_at = Some(*at),
            // These move no run.
            DirectoryChange::ConsumeInboxRow { .. }
            | DirectoryChange::Checkpoint(_)
            | DirectoryChange::ApprovalRequested(_)
            | DirectoryChange::ApprovalResolved { .. }
            | DirectoryChange::AddSpend { .. }
            | DirectoryChange::ScheduleWakeup { .. } => {}
        }
        Ok(())
    }

    /// Does the thread have, or get, the questions that a batch is about?
    fn judge_questions(&self, thread: &Thread, batch: &AppendBatch) -> Result<(), AppendOutcome> {
        let mut known: Vec<&ApprovalKey> = thread.questions.iter().map(|question| &question.key).collect();
        for change in &batch.changes {
            match change {
                DirectoryChange::ApprovalRequested(question) if known.contains(&&question.key) => {}
                DirectoryChange::ApprovalRequested(question)
                    if self.question(&batch.owner, &question.key).is_none() =>
                {
                    known.push(&question.key);
                }
                DirectoryChange::ApprovalRequested(question) => return Err(admit::unknown_question(&question.key)),
                DirectoryChange::ApprovalResolved { key, .. } if !known.contains(&key) => {
                    return Err(admit::unknown_question(key));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn question(&self, owner: &UserId, key: &ApprovalKey) -> Option<&ApprovalRow> {
        let threads = self.threads.values().filter(|thread| thread.owner == *owner);
        threads.flat_map(|thread| &thread.questions).find(|question| question.key == *key)
    }
}

impl Thread {
    fn head(&self) -> Seq {
        self.records.last().map_or(Seq::ZERO, |record| record.seq)
    }

    /// Takes in a batch that fits.
    fn commit(&mut self, batch: AppendBatch, runs: Vec<RunRow>) {
        self.records.extend(batch.records.iter().cloned());
        self.runs = runs;
        for change in batch.changes {
            match change {
                DirectoryChange::ConsumeInboxRow { row } => self.inbox.retain(|waiting| waiting.id != row),
                DirectoryChange::Checkpoint(checkpoint) => self.checkpoint = Some(checkpoint),
                DirectoryChange::RunStarted { at, .. } | DirectoryChange::RunDropped { at, .. } => self.updated_at = at,
                DirectoryChange::RunStatus { status, at, .. } if status.is_terminal() => self.updated_at = at,
                DirectoryChange::ApprovalRequested(question) => self.ask(*question),
                DirectoryChange::ApprovalResolved { key, decision, by, at } => {
                    self.answer(&key, ApprovalAnswer { decision, by, at })
                }
                DirectoryChange::ScheduleWakeup { at } => self.wake_at = at,
                DirectoryChange::RunStatus { .. } | DirectoryChange::AddSpend { .. } => {}
            }
        }
    }

    /// Opens a question, again if need be.
    fn ask(&mut self, question: ApprovalRow) {
        self.questions.retain(|known| known.key != question.key);
        self.questions.push(ApprovalRow { answer: None, ..question });
    }

    /// Closes a question. Where that repeats how it was closed before, it stays as it is.
    fn answer(&mut self, key: &ApprovalKey, answer: ApprovalAnswer) {
        if let Some(question) = self.questions.iter_mut().find(|question| question.key == *key) {
            question.answer.take_if(|known| !admit::repeats(known, &answer));
            question.answer.get_or_insert(answer);
        }
    }
}

fn queued(id: TaskId, thread: ThreadId, agent: String, created_at: Millis) -> RunRow {
    let status = TaskStatus::Queued;
    RunRow { id, thread, agent, status, first_seq: None, last_seq: None, created_at, ended_at: None }
}

/// The run that a command makes.
fn run_of(command: &Command, thread: &ThreadId, at: Millis) -> Option<RunRow> {
    match command {
        Command::Start(start) => Some(queued(start.task_id.clone(), thread.clone(), start.agent.clone(), at)),
        Command::Cancel(_) | Command::Steer(_) | Command::Answer(_) => None,
    }
}
