//! The store in one folder: SQLite, one process, one writer.
//!
//! - `folder`, `schema`: whose folder it is, what is in it, how it is brought to this version.
//! - `writer`, `ops`, `group`, `submit`: the one thread that writes, what it is asked, what a transaction does.
//! - `questions`, `names`, `attachments`, `uses`, `shares`, `spent`: tables that are written there and read here.
//! - `index`, `scan`: where live records lie; `blocks`: where those of ended runs do, and `dead`: when their rows go.
//! - `readers`, `page`, `directory`: everything that only reads; `logged`: the same from another process.
//!
//! Invariant: nobody but the writer's thread changes the database or the index, and the index follows the commit.

mod aliases;
mod approvals;
mod attachment_links;
mod attachments;
mod data_folder;
mod dead_rows;
mod directory;
mod logged_runs;
mod page;
mod reader_pool;
mod record_blocks;
mod record_index;
mod record_row;
mod record_scan;
mod schema;
mod shares;
mod spend;
mod submit;
mod transaction;
mod write_op;
mod writer;

pub(crate) use attachments::{attachment_row, owner_and_path};
pub(crate) use data_folder::DataFolder;
pub use data_folder::StoreOpenError;
pub use logged_runs::{LoggedRecords, LoggedRun, find_logged_run};
pub(crate) use page::{PageQuery, read_page};
pub(crate) use record_index::RecordIndex;
pub(crate) use record_scan::{RecordScan, scan_records};
pub(crate) use schema::{
    ALIASES_SINCE, APPROVALS_SINCE, ATTACHMENTS_SINCE, BLOBS_SINCE, MIGRATIONS, open_offline, schema_version,
};

use crate::validation;
use model::ports::{
    AppendBatch, AppendOutcome, BoxFuture, Journal, Lease, OnCommit, PageLimit, RecordPage, StoreError,
};
use model::seq::Seq;
use model::{NodeId, ThreadId, UserId};
use reader_pool::ReaderPool;
use rusqlite::Connection;
use std::future::ready;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc::error::{SendError, TrySendError};
use tokio::sync::{mpsc, oneshot};
use transaction::WriterState;
use write_op::{FromWriterError, ReplySender, WriteOp};
use writer::{GroupLimits, SqliteWriter};

/// How often a reader that finds a gap asks whether it is one, before it believes it.
const GAP_RECHECKS_MAX: usize = 4;
const STORE_CLOSED: &str = "the store is closed";

/// What an operator may set.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    /// The least time between two commits. The first record after a pause never waits.
    pub commit_spacing: Duration,
    /// The most questions that one commit takes on.
    pub group_ops_max: usize,
    /// And about the most bytes.
    pub group_bytes_max: usize,
    /// The most questions that wait for the writer; who comes then waits before asking.
    pub queue_ops_max: usize,
    /// The most rows that an inbox takes.
    pub inbox_rows_max: usize,
    /// The most readers at once.
    pub readers_max: usize,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            commit_spacing: Duration::ZERO,
            group_ops_max: 1_024,
            group_bytes_max: 4 * 1024 * 1024,
            queue_ops_max: 4_096,
            inbox_rows_max: 1_000,
            readers_max: 4,
        }
    }
}

/// What the writer has done since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriterStats {
    /// Commits that changed something.
    pub commits: u64,
    /// Records in them.
    pub records: u64,
    /// And how many bytes those have.
    pub bytes: u64,
    /// Blocks into which ended runs were packed.
    pub blocks: u64,
    /// Transactions that failed.
    pub failures: u64,
}

#[derive(Debug, Default)]
struct WriterCounters {
    commits: AtomicU64,
    records: AtomicU64,
    bytes: AtomicU64,
    blocks: AtomicU64,
    failures: AtomicU64,
}

/// The store in one folder.
#[derive(Debug)]
pub struct SqliteStore {
    writer: Option<mpsc::Sender<WriteOp>>,
    thread: Option<JoinHandle<()>>,
    index: Arc<RecordIndex>,
    readers: Arc<ReaderPool>,
    counters: Arc<WriterCounters>,
}

impl SqliteStore {
    /// Opens a folder, or makes it. Blocks while it reads where the live records lie.
    ///
    /// # Errors
    /// When the folder is not ours to open. It is then as it was.
    pub fn open(dir: &Path, options: &SqliteOptions) -> Result<Self, StoreOpenError> {
        let folder = DataFolder::lock_or_create(dir)?;
        let database = folder.database.clone();
        // Whoever was here before and was killed may have deleted something that is still in it.
        let scrub = schema::has_pending_wal(&database);
        let (conn, boot, found) = open_database(&database)?;
        for stray in &found.stray_rows {
            tracing::error!(?stray, "a stored record fits nowhere: `headwater verify` lists all damage");
        }
        let index = Arc::new(RecordIndex::default());
        index.replace(found.threads);
        let readers = Arc::new(ReaderPool::new(database, options.readers_max));
        let counters = Arc::new(WriterCounters::default());
        let state = WriterState {
            boot,
            next_pos: found.next_pos,
            index: Arc::clone(&index),
            ended_runs: found.ended_runs,
            dead_rows: found.dead_rows,
            inbox_rows_max: options.inbox_rows_max,
            ..WriterState::default()
        };
        let bounds = GroupLimits {
            ops_max: options.group_ops_max.max(1),
            bytes_max: options.group_bytes_max.max(1),
            commit_spacing: options.commit_spacing,
        };
        let writer = SqliteWriter {
            conn: Some(conn),
            folder,
            state,
            readers: Arc::clone(&readers),
            counters: Arc::clone(&counters),
            limits: bounds,
            avg_group_size: 0,
            last_commit: None,
            wal_needs_truncate: scrub,
            truncate_retry_at: None,
            backoff_commits: 0,
            maintenance_not_before: None,
        };
        let (sender, asked) = mpsc::channel(options.queue_ops_max.max(1));
        let thread = std::thread::Builder::new().name("store-writer".to_owned()).spawn(move || writer.run(asked));
        let thread = thread.map_err(|error| StoreOpenError::denied(dir, &error))?;
        Ok(Self { writer: Some(sender), thread: Some(thread), index, readers, counters })
    }

    /// What the writer has done so far.
    #[must_use]
    pub fn stats(&self) -> WriterStats {
        let WriterCounters { commits, records, bytes, blocks, failures } = &*self.counters;
        WriterStats {
            commits: commits.load(Relaxed),
            records: records.load(Relaxed),
            bytes: bytes.load(Relaxed),
            blocks: blocks.load(Relaxed),
            failures: failures.load(Relaxed),
        }
    }

    /// Does what was asked before, empties the write-ahead log and lets the folder go. Later questions are not
    /// answered. Dropping the store does the same, and blocks meanwhile.
    pub async fn close(&self) {
        let (reply, closed) = oneshot::channel();
        if let Some(writer) = &self.writer
            && writer.send(WriteOp::Close { reply }).await.is_ok()
        {
            // An error is a writer that is gone, which is what was wanted.
            let _ = closed.await;
        }
    }

    /// Asks the writer.
    async fn call_writer<T: FromWriterError>(&self, op: impl FnOnce(ReplySender<T>) -> WriteOp) -> T {
        let (reply, answer) = oneshot::channel();
        let Some(writer) = &self.writer else { return T::from_writer_error(STORE_CLOSED) };
        if writer.send(op(reply)).await.is_err() {
            return T::from_writer_error(STORE_CLOSED);
        }
        answer.await.unwrap_or_else(|_| T::from_writer_error("the writer is gone"))
    }

    async fn load_page(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        after: Seq,
        limit: PageLimit,
    ) -> Result<RecordPage, StoreError> {
        let mut doubts = 0;
        loop {
            let plan = self.index.read_plan(thread, after, limit.records_max.max(1));
            let live = plan.is_some();
            if let Some(plan) = &plan
                && after >= plan.head
                && plan.damaged_at.is_none()
            {
                let foreign = plan.owner != *owner;
                return if foreign {
                    Err(StoreError::ThreadNotFound)
                } else {
                    Ok(RecordPage { records: Vec::new(), head: plan.head })
                };
            }
            let ask = PageQuery { owner: owner.clone(), thread: thread.clone(), after, limit, plan };
            match self.readers.with_connection(move |conn| read_page(conn, &ask)).await {
                // A run may have begun after the plan was taken: its rows then look like a gap. The writer knows.
                Err(StoreError::Corrupt { .. }) if !live && doubts < GAP_RECHECKS_MAX => {
                    doubts += 1;
                    self.call_writer(|reply| WriteOp::CheckHead { thread: thread.clone(), reply }).await?;
                }
                read => return read,
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

impl Journal for SqliteStore {
    fn claim<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
        _node: &'a NodeId,
    ) -> BoxFuture<'a, Result<Lease, StoreError>> {
        Box::pin(self.call_writer(move |reply| WriteOp::Claim { owner: owner.clone(), thread: thread.clone(), reply }))
    }

    fn append_with_callback(&self, batch: AppendBatch, landed: OnCommit) -> BoxFuture<'_, AppendOutcome> {
        let (reply, answer) = oneshot::channel();
        let Some(writer) = &self.writer else { return Box::pin(ready(AppendOutcome::from_writer_error(STORE_CLOSED))) };
        // Looked at here: the writer's time is everybody's.
        let flaw = validation::validate_batch(&batch);
        match writer.try_send(WriteOp::Append {
            batch: Box::new(batch),
            invalid_reason: flaw,
            on_commit: landed,
            reply,
        }) {
            Ok(()) => {}
            Err(TrySendError::Closed(op)) => op.fail(STORE_CLOSED),
            Err(TrySendError::Full(op)) => {
                let writer = writer.clone();
                tokio::spawn(async move {
                    if let Err(SendError(op)) = writer.send(op).await {
                        op.fail(STORE_CLOSED);
                    }
                });
            }
        }
        Box::pin(async { answer.await.unwrap_or_else(|_| AppendOutcome::from_writer_error("the writer is gone")) })
    }

    fn read_page<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
        after: Seq,
        limit: PageLimit,
    ) -> BoxFuture<'a, Result<RecordPage, StoreError>> {
        Box::pin(self.load_page(owner, thread, after, limit))
    }
}

/// Opens the database, brings it to this version, counts the boot and looks where live records lie.
fn open_database(database: &Path) -> Result<(Connection, u64, RecordScan), StoreOpenError> {
    let sql = |error: rusqlite::Error| StoreOpenError::from_sqlite(database, &error);
    let mut conn = schema::open_writer(database).map_err(sql)?;
    if conn.is_readonly("main").map_err(sql)? {
        return Err(StoreOpenError::denied(database, &"it cannot be written"));
    }
    schema::migrate(&mut conn, MIGRATIONS).map_err(|error| StoreOpenError::from_migration(database, &error))?;
    if !schema::enable_wal(&conn).map_err(sql)? {
        return Err(StoreOpenError::denied(database, &"its file system cannot have a write-ahead log"));
    }
    submit::expire_idempotency_keys(&conn).map_err(sql)?;
    attachment_links::release_orphaned_blobs(&conn).map_err(sql)?;
    let counted = "UPDATE meta SET value = value + 1 WHERE name = 'boot' RETURNING value";
    let boot: i64 = conn.query_row(counted, (), |row| row.get(0)).map_err(sql)?;
    let found = scan_records(&conn).map_err(sql)?;
    Ok((conn, boot.cast_unsigned(), found))
}

/// Locks. A holder that panicked left nothing half-done: every change behind these locks is one step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
