//! The store in memory, for tests, with the outcomes, order and errors of [`store::SqliteStore`]. One lock, never held across an
//! await.

mod accounts;
mod attachments;
mod definitions;
mod inbox;
mod mcp_pins;
mod questions;
mod retention;
mod shares;
mod threads;
mod user_secrets;

use async_trait::async_trait;
use model::command::Command;
use model::condense::{CondenseRecords, condense_records};
use model::ports::validation;
use model::ports::{
    AccessKeyRow, AliasKind, AliasRow, AppendBatch, AppendOutcome, ApprovalAnswer, ApprovalRow, AttachmentRow,
    BoxFuture, Checkpoint, ClaimOutcome, Day, DirectoryChange, DirectoryWriter, InboxRow, Journal, Lease, OnCommit,
    PageLimit, RecordPage, RunRow, SecretKey, ShareRow, SpaceWatch, Spend, StorageSpace, StoreError, StoreResult,
    WriteAccess,
};
use model::record::Record;
use model::seq::{Epoch, Millis, Seq};
use model::task::TaskStatus;
use model::{ApprovalKey, CallId, NodeId, TaskId, ThreadId, UserId};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use store::SpaceState;
use user_secrets::MemorySecret;

const INBOX_ROWS_MAX: usize = 1_000;

#[derive(Debug)]
pub struct MemoryStore {
    tables: Mutex<MemoryTables>,
    inbox_rows_max: usize,
    log_bytes_per_user_max: Option<u64>,
    space: SpaceState,
    condense: CondenseRecords,
}

#[derive(Debug, Default)]
struct MemoryTables {
    threads: BTreeMap<ThreadId, MemoryThread>,
    access_keys: Vec<AccessKeyRow>,
    /// (owner, key) → (digest, task, thread).
    idempotency: HashMap<(UserId, String), (String, TaskId, ThreadId)>,
    spend: HashMap<(UserId, Day), Spend>,
    /// By owner, kind and name.
    aliases: HashMap<(UserId, AliasKind, String), AliasRow>,
    /// By owner and path.
    attachments: BTreeMap<(UserId, String), AttachmentEntry>,
    /// Owner, thread and path.
    attachment_links: BTreeSet<(UserId, ThreadId, String)>,
    shares: Vec<ShareRow>,
    /// By digest.
    definitions: HashMap<String, String>,
    retention_time: Option<Millis>,
    /// By owner and server.
    mcp_pins: BTreeMap<(UserId, String), BTreeMap<String, String>>,
    secrets: BTreeMap<SecretKey, MemorySecret>,
    last_secret_version: u64,
    last_epoch: u64,
    last_inbox_row: u64,
}

#[derive(Debug)]
enum AttachmentEntry {
    Reserved,
    Committed(AttachmentRow),
    Unreferenced,
}

#[derive(Debug)]
struct MemoryThread {
    owner: UserId,
    created_at: Millis,
    updated_at: Millis,
    epoch: Option<Epoch>,
    records: Vec<Record>,
    runs: Vec<RunRow>,
    inbox: Vec<InboxRow>,
    checkpoint: Option<Checkpoint>,
    approvals: Vec<ApprovalRow>,
    /// The digest of the result of each closed call of a client tool.
    client_results: BTreeMap<CallId, String>,
    wake_at: Option<Millis>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    pub fn new() -> Self {
        Self {
            tables: Mutex::default(),
            inbox_rows_max: INBOX_ROWS_MAX,
            log_bytes_per_user_max: None,
            space: SpaceState::default(),
            condense: condense_records,
        }
    }

    #[must_use]
    pub fn with_inbox_rows_max(mut self, rows_max: usize) -> Self {
        self.inbox_rows_max = rows_max;
        self
    }

    #[must_use]
    pub const fn with_log_bytes_per_user_max(mut self, bytes_max: u64) -> Self {
        self.log_bytes_per_user_max = Some(bytes_max);
        self
    }

    /// Pretends that the disk is full, or that it has room again.
    pub fn set_space(&self, space: StorageSpace) {
        self.space.set(space);
    }

    /// Fails while new data is refused.
    fn check_space(&self) -> Result<(), StoreError> {
        if self.space.is_full() { Err(StoreError::NoSpace) } else { Ok(()) }
    }

    fn lock_tables(&self) -> MutexGuard<'_, MemoryTables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WriteAccess for MemoryStore {
    fn writer(&self, _user: &UserId) -> Result<&dyn DirectoryWriter, StoreError> {
        Ok(self)
    }
}

impl SpaceWatch for MemoryStore {
    fn space(&self) -> StorageSpace {
        self.space.get()
    }

    fn space_changed(&self, known: StorageSpace) -> BoxFuture<'static, ()> {
        self.space.changed_from(known)
    }
}

#[async_trait]
impl Journal for MemoryStore {
    async fn claim(&self, owner: &UserId, thread: &ThreadId, _node: &NodeId) -> StoreResult<ClaimOutcome> {
        let mut tables = self.lock_tables();
        let epoch = Epoch(tables.last_epoch + 1);
        let thread = tables.thread_mut(owner, thread).ok_or(StoreError::ThreadNotFound)?;
        thread.epoch = Some(epoch);
        let lease = Lease { epoch, head: thread.head() };
        tables.last_epoch += 1;
        Ok(ClaimOutcome::Granted(lease))
    }

    fn start_append(&self, batch: AppendBatch, on_commit: OnCommit) {
        let outcome = match self.space.get() {
            StorageSpace::Full => AppendOutcome::NoSpace,
            StorageSpace::Available => self.lock_tables().append(&batch).err().unwrap_or(AppendOutcome::Durable),
        };
        on_commit.call(&outcome);
    }

    async fn read_page(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        after: Seq,
        limit: PageLimit,
    ) -> StoreResult<RecordPage> {
        let tables = self.lock_tables();
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
    }

    async fn read_condensed_page(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        after: Seq,
        until: Seq,
        limit: PageLimit,
    ) -> StoreResult<RecordPage> {
        let mut page = self.read_page(owner, thread, after, limit).await?;
        page.records.retain(|record| record.seq <= until);
        page.records = (self.condense)(page.records);
        Ok(page)
    }
}

impl MemoryTables {
    fn thread(&self, owner: &UserId, thread: &ThreadId) -> Option<&MemoryThread> {
        self.threads.get(thread).filter(|found| found.owner == *owner)
    }

    fn thread_mut(&mut self, owner: &UserId, thread: &ThreadId) -> Option<&mut MemoryThread> {
        self.threads.get_mut(thread).filter(|found| found.owner == *owner)
    }

    fn find_run(&self, owner: &UserId, run: &TaskId) -> Option<&RunRow> {
        let threads = self.threads.values().filter(|thread| thread.owner == *owner);
        threads.flat_map(|thread| &thread.runs).find(|row| row.id == *run)
    }

    fn append(&mut self, batch: &AppendBatch) -> Result<(), AppendOutcome> {
        let Some(thread) = self.thread(&batch.owner, &batch.thread) else {
            return Err(AppendOutcome::Rejected(validation::THREAD_NOT_FOUND.to_owned()));
        };
        validation::check_epoch(thread.epoch, thread.head(), batch)?;
        if let Some(reason) = validation::validate_batch(batch) {
            return Err(AppendOutcome::Rejected(reason));
        }
        let mut runs = thread.runs.clone();
        for change in batch.changes.iter() {
            self.apply_run_change(thread, batch, change, &mut runs)?;
        }
        for id in validation::runs_in_batch(batch) {
            runs.iter().find(|run| run.id == *id).ok_or_else(|| validation::unknown_run(id))?;
        }
        self.check_approvals(thread, batch)?;
        for change in batch.changes.iter() {
            if let DirectoryChange::AddSpend { day, spent } = change {
                let sum = self.spend.entry((batch.owner.clone(), *day)).or_default();
                *sum = sum.saturating_add(*spent);
            }
        }
        if let Some(thread) = self.threads.get_mut(&batch.thread) {
            thread.commit(batch, runs);
        }
        Ok(())
    }

    /// Applies a change to the thread's runs, or rejects it.
    fn apply_run_change(
        &self,
        thread: &MemoryThread,
        batch: &AppendBatch,
        change: &DirectoryChange,
        runs: &mut Vec<RunRow>,
    ) -> Result<(), AppendOutcome> {
        if let DirectoryChange::ConsumeInboxRow { row } = change
            && !thread.inbox.iter().any(|waiting| waiting.id == *row)
        {
            return Err(validation::unknown_inbox_row(*row));
        }
        let Some(id) = validation::changed_run(change) else { return Ok(()) };
        let known = runs.iter().find(|run| run.id == *id).map(|run| run.status);
        if known.is_none() && self.find_run(&batch.owner, id).is_some() {
            return Err(validation::unknown_run(id));
        }
        let status = validation::next_run_status(known, id, change)?;
        if let DirectoryChange::RunStarted { at, .. } = change
            && known.is_none()
        {
            runs.push(queued_run(id.clone(), batch.thread.clone(), String::new(), *at));
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
            DirectoryChange::ConsumeInboxRow { .. }
            | DirectoryChange::Checkpoint(_)
            | DirectoryChange::ApprovalRequested(_)
            | DirectoryChange::ApprovalResolved { .. }
            | DirectoryChange::ClientCallClosed { .. }
            | DirectoryChange::AddSpend { .. }
            | DirectoryChange::ScheduleWakeup { .. } => {}
        }
        Ok(())
    }

    /// Checks that every question that the batch opens or closes belongs to the thread.
    fn check_approvals(&self, thread: &MemoryThread, batch: &AppendBatch) -> Result<(), AppendOutcome> {
        let mut known: Vec<&ApprovalKey> = thread.approvals.iter().map(|question| &question.key).collect();
        for change in batch.changes.iter() {
            match change {
                DirectoryChange::ApprovalRequested(question) if known.contains(&&question.key) => {}
                DirectoryChange::ApprovalRequested(question)
                    if self.find_approval(&batch.owner, &question.key).is_none() =>
                {
                    known.push(&question.key);
                }
                DirectoryChange::ApprovalRequested(question) => {
                    return Err(validation::unknown_approval(&question.key));
                }
                DirectoryChange::ApprovalResolved { key, .. } if !known.contains(&key) => {
                    return Err(validation::unknown_approval(key));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn find_approval(&self, owner: &UserId, key: &ApprovalKey) -> Option<&ApprovalRow> {
        let threads = self.threads.values().filter(|thread| thread.owner == *owner);
        threads.flat_map(|thread| &thread.approvals).find(|question| question.key == *key)
    }
}

impl MemoryThread {
    fn new(owner: UserId, at: Millis) -> Self {
        Self {
            owner,
            created_at: at,
            updated_at: at,
            epoch: None,
            records: Vec::new(),
            runs: Vec::new(),
            inbox: Vec::new(),
            checkpoint: None,
            approvals: Vec::new(),
            client_results: BTreeMap::new(),
            wake_at: None,
        }
    }

    fn head(&self) -> Seq {
        self.records.last().map_or(Seq::ZERO, |record| record.seq)
    }

    /// Applies a batch that passed all checks.
    fn commit(&mut self, batch: &AppendBatch, runs: Vec<RunRow>) {
        self.records.extend(batch.records.iter().cloned());
        self.runs = runs;
        for change in batch.changes.iter().cloned() {
            match change {
                DirectoryChange::ConsumeInboxRow { row } => self.inbox.retain(|waiting| waiting.id != row),
                DirectoryChange::Checkpoint(checkpoint) => self.put_checkpoint(checkpoint),
                DirectoryChange::RunStarted { at, .. } | DirectoryChange::RunDropped { at, .. } => self.updated_at = at,
                DirectoryChange::RunStatus { status, at, .. } if status.is_terminal() => self.updated_at = at,
                DirectoryChange::ApprovalRequested(question) => self.open_approval(*question),
                DirectoryChange::ApprovalResolved { key, decision, by, at } => {
                    self.close_approval(&key, ApprovalAnswer { decision, by, at });
                }
                DirectoryChange::ClientCallClosed { call } => {
                    self.client_results.entry(call).or_insert_with(|| validation::CLOSED_BY_RECORDS.to_owned());
                }
                DirectoryChange::ScheduleWakeup { at } => self.wake_at = at,
                DirectoryChange::RunStatus { .. } | DirectoryChange::AddSpend { .. } => {}
            }
        }
    }

    /// Replaces the body of the checkpoint and adds runs to it.
    fn put_checkpoint(&mut self, new: Checkpoint) {
        let mut runs = self.checkpoint.take().map(|known| known.runs).unwrap_or_default();
        for run in new.runs {
            match runs.binary_search_by_key(&run.index, |known| known.index) {
                Ok(place) => runs.splice(place..=place, [run]).for_each(drop),
                Err(place) => runs.insert(place, run),
            }
        }
        self.checkpoint = Some(Checkpoint { runs, ..new });
    }

    /// Opens a question, or reopens it.
    fn open_approval(&mut self, question: ApprovalRow) {
        self.approvals.retain(|known| known.key != question.key);
        self.approvals.push(ApprovalRow { answer: None, ..question });
    }

    /// Closes a question. A stored answer that this repeats stays unchanged.
    fn close_approval(&mut self, key: &ApprovalKey, answer: ApprovalAnswer) {
        if let Some(question) = self.approvals.iter_mut().find(|question| question.key == *key) {
            question.answer.take_if(|known| !validation::is_same_answer(known, &answer));
            question.answer.get_or_insert(answer);
        }
    }
}

fn queued_run(id: TaskId, thread: ThreadId, agent: String, created_at: Millis) -> RunRow {
    let status = TaskStatus::Queued;
    RunRow { id, thread, agent, status, first_seq: None, last_seq: None, created_at, ended_at: None }
}

fn run_of_start(command: &Command, thread: &ThreadId, at: Millis) -> Option<RunRow> {
    match command {
        Command::Start(start) => Some(queued_run(start.task_id.clone(), thread.clone(), start.agent.clone(), at)),
        Command::Cancel(_) | Command::Steer(_) | Command::Answer(_) => None,
    }
}
