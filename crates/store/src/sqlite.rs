//! The SQLite store: one folder, one process, one writer thread.
//!
//! - `data_folder`, `schema`: the folder's lock, the tables and their migrations.
//! - `writer`, `write_task`, `transaction`: the writer thread, the closures that it executes, and appends.
//! - `append_log`, `log_frame`: files in which records are durable before the database has them; `batches`: which records those are;
//!   `log_only_records`, `encoded_records`: the same records in memory; `log_write_out`, `log_recovery`: how they reach the database.
//! - `writer_maintenance`, `free_pages`: what it does besides; `writer_space`, `disk_reserve`: what it does when the disk is full.
//! - `inbox`, `threads`, `aliases`, `questions`, `shares`, `accounts`, `spend`, `definitions`, `attachments`, `attachment_links`: one
//!   module per port or table, reads and writes together; `columns` decodes.
//! - `record_index`, `record_scan`: where live records are; `record_blocks`: where those of ended runs and most of long ones
//!   are; `record_tails`: records in memory that will be in blocks; `condensed_blocks`: a short form of blocks; `dead_rows`: which
//!   rows can be deleted.
//! - `log_size`: how much each user's records hold. `retention`: what is old enough to be deleted.
//! - `reader_pool`, `page`: reading; `logged_runs`: reading from another process.
//!
//! Invariant: only the writer's thread changes the database or the index, and the index follows the commit.

mod accounts;
mod aliases;
mod append_log;
mod attachment_links;
mod attachments;
mod batches;
mod checkpoints;
mod client_results;
mod columns;
mod commit_pacer;
mod condensed_blocks;
mod data_folder;
mod dead_rows;
mod definitions;
mod disk_reserve;
mod encoded_records;
mod free_pages;
mod inbox;
mod log_frame;
mod log_only_records;
mod log_recovery;
mod log_size;
mod log_write_out;
mod logged_runs;
mod mcp_pins;
mod open_database;
mod page;
mod questions;
mod reader_pool;
mod record_blocks;
mod record_index;
mod record_row;
mod record_scan;
mod record_tails;
mod released_threads;
mod reply_queue;
mod retention;
mod runtime_ticks;
mod schema;
mod shares;
mod single_records;
mod spend;
mod task_sender;
mod thread_extents;
mod threads;
mod transaction;
mod user_secrets;
mod wal_checkpointer;
mod write_task;
mod writer;
mod writer_maintenance;
mod writer_signals;
mod writer_space;

pub(crate) use attachment_links::owner_and_path;
pub(crate) use attachments::attachment_row;
use commit_pacer::CommitPacer;
pub(crate) use condensed_blocks::CondensedBlock;
pub use data_folder::StoreOpenError;
pub use data_folder::has_sqlite_database;
pub(crate) use data_folder::{
    COMPACTED_COPY_FILE, DataFolder, lock_folder, open_private_file, remove_compacted_copy, sync_dir,
};
pub use disk_reserve::{DiskSpace, DiskSpaceProbe};
pub(crate) use free_pages::{AUTO_VACUUM_INCREMENTAL, read_pragma};
pub(crate) use log_recovery::{is_append_log_damaged, open_offline};
pub use log_size::StorageUse;
pub use logged_runs::find_logged_run;
pub(crate) use page::{PageForm, PageQuery, read_page};
pub(crate) use record_index::RecordIndex;
pub(crate) use record_scan::{RecordScan, scan_records};
pub use runtime_ticks::TickLoad;
pub(crate) use schema::{
    ALIASES_SINCE, APPROVALS_SINCE, ATTACHMENTS_SINCE, BLOBS_SINCE, CONDENSED_SINCE, MIGRATIONS, checkpoint_wal,
    has_pending_wal, open_immutable, open_writer, schema_version,
};

use crate::space_state::SpaceState;
use append_log::has_append_log;
use async_trait::async_trait;
use disk_reserve::DiskReserve;
use free_pages::FreePages;
use log_size::LogSizeCount;
use log_write_out::LoggedThreads;
use model::condense::{CondenseRecords, condense_records};
use model::ports::validation;
use model::ports::{
    AppendBatch, AppendOutcome, BoxFuture, ClaimOutcome, DirectoryChange, DirectoryWriter, Journal, Lease, OnCommit,
    PageLimit, RecordPage, SpaceWatch, StorageSpace, StoreError, StoreResult, WriteAccess,
};
use model::seq::Seq;
use model::{NodeId, ThreadId, UserId};
use open_database::{OpenOutcome, OpenedDatabase, open_within_reserve};
use reader_pool::ReaderPool;
use released_threads::ReleasedThreads;
use reply_queue::ReplyQueue;
use runtime_ticks::RuntimeTicks;
use rusqlite::Connection;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use task_sender::TaskSender;
use tokio::sync::{Semaphore, mpsc, oneshot};
use transaction::{WriteTransaction, WriterState};
use wal_checkpointer::WalCheckpointer;
use write_task::{AppendTask, ClosureTask, FromWriterError, TaskCost, WriterMessage};
use writer::{GroupLimits, SqliteWriter};
use writer_maintenance::GroupSize;
use writer_signals::WriterSignals;

/// Maximum number of times that a reader checks a gap with the writer before it reports damage.
const GAP_RECHECKS_MAX: usize = 4;
/// How often a task that makes room is tried if the disk is full.
const RELIEF_ATTEMPTS_MAX: usize = 3;
const STORE_CLOSED: &str = "the store is closed";

#[derive(Clone, Debug)]
pub struct SqliteOptions {
    /// The time between two commits of a busy server; see `commit_pacer`.
    pub commit_spacing: Duration,
    /// The maximum number of operations in one commit.
    pub group_ops_max: usize,
    /// The approximate maximum number of bytes in one commit.
    pub group_bytes_max: usize,
    /// The capacity of the writer's queue; further callers wait.
    pub queue_ops_max: usize,
    /// The maximum number of rows in an inbox.
    pub inbox_rows_max: usize,
    /// The size of a user's log beyond which no run starts.
    pub log_bytes_per_user_max: Option<u64>,
    /// The number of rows of ended runs beyond which packing them precedes other work. A start after a crash scans them.
    pub unpacked_rows_max: u64,
    /// The maximum number of concurrent readers.
    pub readers_max: usize,
    /// The size of the reserve for deletions on a full disk. By default a reserve that exists stays, and none is created.
    pub disk_reserve_bytes: Option<u64>,
    pub disk_space: DiskSpaceProbe,
    /// The load with which the workers of the runtime gather what they read for a commit; `None` if they never do. See
    /// `runtime_ticks`.
    pub ticks: Option<TickLoad>,
    /// Condenses the records of new blocks for readers of the state. `None` writes no condensed form.
    pub condense: Option<CondenseRecords>,
}

impl SqliteOptions {
    /// On average a delta of a busy server waits for half of it, or for all of it; see `commit_pacer`.
    pub const COMMIT_SPACING: Duration = Duration::from_millis(1);
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            commit_spacing: Self::COMMIT_SPACING,
            group_ops_max: 1_024,
            group_bytes_max: 4 * 1024 * 1024,
            queue_ops_max: 4_096,
            inbox_rows_max: 1_000,
            log_bytes_per_user_max: None,
            unpacked_rows_max: 128 * 1024,
            readers_max: 4,
            disk_reserve_bytes: None,
            disk_space: DiskSpaceProbe::default(),
            ticks: None,
            condense: Some(condense_records),
        }
    }
}

/// Counts since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriterStats {
    /// Commits that changed something.
    pub commits: u64,
    /// Records in these commits.
    pub records: u64,
    /// The size of these records.
    pub bytes: u64,
    /// Blocks into which ended runs were packed.
    pub blocks: u64,
    /// Transactions that failed.
    pub failures: u64,
    /// Ticks of the runtime: see [`SqliteOptions::ticks`].
    pub ticks: u64,
}

/// Maximum number of starts that are on their way to the writer. When hundreds of runs start in the same moment, the first ones have
/// their first delta before the last ones are stored; otherwise each step of all would come before the next step of any.
const STARTS_MAX: usize = 64;

/// The store in a data folder.
#[derive(Debug)]
pub struct SqliteStore {
    writer: Option<TaskSender>,
    thread: Option<JoinHandle<()>>,
    index: Arc<RecordIndex>,
    released: Arc<ReleasedThreads>,
    readers: Arc<ReaderPool>,
    stats: Arc<Mutex<WriterStats>>,
    space: Arc<SpaceState>,
    ticks: Option<Arc<RuntimeTicks>>,
    /// Permits for starts that are on their way to the writer.
    starts: Semaphore,
}

impl SqliteStore {
    /// Opens a folder, or creates it. Blocks while it scans the live records. After an error the folder is unchanged.
    /// On a full disk the store may start with [`StorageSpace::Full`], and if there is no room at all, read-only.
    pub fn open(dir: &Path, options: &SqliteOptions) -> Result<Self, StoreOpenError> {
        let folder = DataFolder::lock_or_create(dir)?;
        let database = folder.database.clone();
        // After a crash, the logs may still hold deleted content.
        let scrub = has_pending_wal(&database) || has_append_log(&database);
        let reserve = DiskReserve::new(dir, options.disk_reserve_bytes, options.disk_space.clone());
        let (mut conn, append_log, boot, found) = match open_within_reserve(&database, &reserve)? {
            OpenOutcome::Opened(opened) => {
                let OpenedDatabase { conn, append_log, boot, found } = *opened;
                (Some(conn), Some(append_log), boot, found)
            }
            OpenOutcome::ReadOnly(found) => (None, None, 0, found),
        };
        let log_count = conn.as_ref().map(LogSizeCount::load).transpose();
        let log_count = log_count.map_err(|error| StoreOpenError::from_sqlite(&database, &error))?.unwrap_or_default();
        found.log_stray_rows();
        let (index, stats, space) = (Arc::<RecordIndex>::default(), Arc::default(), Arc::default());
        let signals = Arc::<WriterSignals>::default();
        let readers = Arc::new(ReaderPool::new(database, options.readers_max, conn.is_none()));
        let released = Arc::<ReleasedThreads>::default();
        let state = WriterState {
            boot,
            released: Arc::clone(&released),
            index: Arc::clone(&index),
            inbox_rows_max: options.inbox_rows_max,
            log_bytes_per_user_max: options.log_bytes_per_user_max,
            log_count,
            condense: options.condense,
            ..WriterState::default()
        };
        let limits = GroupLimits { ops_max: options.group_ops_max.max(1), bytes_max: options.group_bytes_max.max(1) };
        let checkpointer = WalCheckpointer::start(&folder.database);
        let checkpointer = checkpointer.map_err(|error| StoreOpenError::denied(dir, &error))?;
        let attached = conn.as_mut().map_or(Ok(()), |conn| checkpointer.attach(conn));
        attached.map_err(|error| StoreOpenError::from_sqlite(&folder.database, &error))?;
        let ticks = RuntimeTicks::start(options, &signals);
        let mut writer = SqliteWriter {
            conn,
            append_log,
            logged: LoggedThreads::default(),
            replies: ReplyQueue::start(),
            folder,
            state,
            readers: Arc::clone(&readers),
            stats: Arc::clone(&stats),
            limits,
            unpacked_rows_max: options.unpacked_rows_max,
            owed: GroupSize::default(),
            pacer: CommitPacer::new(options.commit_spacing),
            signals: Arc::clone(&signals),
            ticks: ticks.clone(),
            checkpointer,
            wal_needs_truncate: scrub,
            truncate_retry_at: None,
            backoff_commits: 0,
            free_pages: FreePages::default(),
            maintenance_not_before: None,
            space: Arc::clone(&space),
            reserve,
            space_probe_at: Instant::now(),
            alarm_probe_interval: Duration::ZERO,
            alarm_cleared_at: None,
            space_needed: 0,
        };
        writer.adopt_scan(found);
        writer.restore_reserve_at_start();
        let (sender, messages) = mpsc::channel(options.queue_ops_max.max(1));
        let thread = std::thread::Builder::new().name("store-writer".to_owned()).spawn(move || writer.run(messages));
        let thread = thread.map_err(|error| StoreOpenError::denied(dir, &error))?;
        let writer = Some(TaskSender::new(sender, signals));
        let starts = Semaphore::new(STARTS_MAX);
        Ok(Self { writer, thread: Some(thread), index, released, readers, stats, space, ticks, starts })
    }

    /// Counts since the store was opened.
    pub fn stats(&self) -> WriterStats {
        let ticks = self.ticks.as_ref().map_or(0, |ticks| ticks.count());
        WriterStats { ticks, ..*lock(&self.stats) }
    }

    /// Executes queued tasks, truncates the write-ahead log and releases the folder. Later operations fail. Dropping
    /// the store does the same, but blocks.
    pub async fn close(&self) {
        let (reply, closed) = oneshot::channel();
        if let Some(writer) = &self.writer
            && writer.send(WriterMessage::Close { reply }).await.is_ok()
        {
            // An error means that the writer has stopped already.
            let _ = closed.await;
        }
    }

    /// Runs a query whose errors name no thread on a reader's connection.
    async fn query<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.readers.with_connection(|conn| work(conn).map_err(|error| record_row::unavailable_error(&error))).await
    }

    /// Runs a closure in a transaction on the writer thread and returns its result after the commit.
    async fn call_writer<T, W>(&self, cost: TaskCost, work: W) -> T
    where
        T: FromWriterError + Send + 'static,
        W: FnOnce(&mut WriteTransaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        let (reply, result) = oneshot::channel();
        let Some(writer) = &self.writer else { return T::from_writer_error(STORE_CLOSED) };
        let task = Box::new(ClosureTask { work: Some(work), result: None, reply });
        if writer.send(WriterMessage::Run { task, cost }).await.is_err() {
            return T::from_writer_error(STORE_CLOSED);
        }
        result.await.unwrap_or_else(|_| T::from_writer_error("the writer is gone"))
    }

    /// Executes a task that the reserve is kept for. The commit that finds the disk full takes all tasks of its group with
    /// it; from then on the reserve is free for this one.
    async fn call_writer_for_relief<T, W>(&self, work: W) -> StoreResult<T>
    where
        T: Send + 'static,
        W: FnOnce(&mut WriteTransaction<'_>) -> rusqlite::Result<StoreResult<T>> + Clone + Send + 'static,
    {
        for _ in 1..RELIEF_ATTEMPTS_MAX {
            let result = self.call_writer(TaskCost::Relief, work.clone()).await;
            if !matches!(result, Err(StoreError::NoSpace)) {
                return result;
            }
        }
        self.call_writer(TaskCost::Relief, work).await
    }

    /// The head of a thread according to the writer, or the damage.
    async fn check_head(&self, thread: &ThreadId) -> Result<Seq, StoreError> {
        let thread = thread.clone();
        self.call_writer(TaskCost::Query, move |tx| tx.checked_head(&thread)).await
    }

    /// Reads the records after the start of the range, up to its end.
    async fn load_page(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        Range { start: after, end: until }: Range<Seq>,
        limit: PageLimit,
        form: PageForm,
    ) -> Result<RecordPage, StoreError> {
        let mut rechecks = 0;
        loop {
            let plan = self.index.read_plan(thread, after, limit.records_max.max(1));
            let is_live = plan.is_some();
            if let Some(plan) = &plan
                && after >= plan.head
                && plan.damaged_at.is_none()
            {
                let page = RecordPage { records: Vec::new(), head: plan.head };
                return if plan.owner == *owner { Ok(page) } else { Err(StoreError::ThreadNotFound) };
            }
            let (owner, thread_id) = (owner.clone(), thread.clone());
            let query = PageQuery { owner, thread: thread_id, after, until, limit, plan };
            match self.readers.with_connection(move |conn| read_page(conn, &query, form)).await {
                // The rows of a run that started after the plan look like a gap: check with the writer.
                Err(StoreError::Corrupt { .. }) if !is_live && rechecks < GAP_RECHECKS_MAX => {
                    rechecks += 1;
                    self.check_head(thread).await?;
                }
                result => return result,
            }
        }
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        drop(self.writer.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the writer's thread panicked");
        }
    }
}

impl WriteAccess for SqliteStore {
    fn writer(&self, _user: &UserId) -> Result<&dyn DirectoryWriter, StoreError> {
        Ok(self)
    }
}

impl SpaceWatch for SqliteStore {
    fn space(&self) -> StorageSpace {
        self.space.get()
    }

    fn space_changed(&self, known: StorageSpace) -> BoxFuture<'static, ()> {
        self.space.changed_from(known)
    }
}

#[async_trait]
impl Journal for SqliteStore {
    async fn claim(&self, owner: &UserId, thread: &ThreadId, _node: &NodeId) -> StoreResult<ClaimOutcome> {
        let (owner, thread) = (owner.clone(), thread.clone());
        self.call_writer(TaskCost::Query, move |tx| tx.claim(&owner, &thread)).await
    }

    fn release(&self, thread: &ThreadId, lease: Lease) {
        self.released.put(thread, lease);
    }

    fn start_append(&self, batch: AppendBatch, on_commit: OnCommit) {
        let Some(writer) = &self.writer else { return on_commit.call(&AppendOutcome::from_writer_error(STORE_CLOSED)) };
        let records: usize = batch.records.iter().map(|record| record.size_bytes() + 64).sum();
        let cost = TaskCost::Bytes(records + batch.changes.iter().map(checkpoint_bytes).sum::<usize>());
        // Validated here, because time on the writer thread delays all callers.
        let invalid_reason = validation::validate_batch(&batch);
        // A run starts, pauses or ends.
        let is_urgent = !batch.changes.is_empty();
        writer.start(Box::new(AppendTask { batch, invalid_reason, outcome: None, on_commit }), cost, is_urgent);
    }

    async fn read_page(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        after: Seq,
        limit: PageLimit,
    ) -> StoreResult<RecordPage> {
        self.load_page(owner, thread, after..Seq::MAX, limit, PageForm::Records).await
    }

    async fn read_condensed_page(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        after: Seq,
        until: Seq,
        limit: PageLimit,
    ) -> StoreResult<RecordPage> {
        self.load_page(owner, thread, after..until, limit, PageForm::Condensed).await
    }
}

/// The size of a change that may be large.
fn checkpoint_bytes(change: &DirectoryChange) -> usize {
    let DirectoryChange::Checkpoint(new) = change else { return 0 };
    new.body.len() + new.runs.iter().map(|run| run.body.len() + 64).sum::<usize>()
}

/// Ignores poisoning: every update under these locks is a single step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
