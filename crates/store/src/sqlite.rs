//! The store in one folder: SQLite, one process, one writer.
//!
//! - `folder`, `schema`: whose folder it is, what is in it, how it is brought to this version.
//! - `writer`, `ops`, `group`, `submit`: the one thread that writes, what it is asked, what a transaction does.
//! - `questions`, `names`, `attachments`, `uses`, `shares`, `spent`: tables that are written there and read here.
//! - `index`, `scan`: where live records lie; `blocks`: where those of ended runs do, and `dead`: when their rows go.
//! - `readers`, `page`, `directory`: everything that only reads; `logged`: the same from another process.
//!
//! Invariant: nobody but the writer's thread changes the database or the index, and the index follows the commit.

mod attachments;
mod blocks;
mod dead;
mod directory;
mod folder;
mod group;
mod index;
mod logged;
mod names;
mod ops;
mod page;
mod questions;
mod readers;
mod rows;
mod scan;
mod schema;
mod shares;
mod spent;
mod submit;
mod uses;
mod writer;

pub(crate) use attachments::{file_row, place};
pub(crate) use folder::Folder;
pub use folder::OpenError;
pub(crate) use index::Index;
pub use logged::{LoggedRun, Records, logged_run};
pub(crate) use page::{Ask, read};
pub(crate) use scan::{Scan, scan};
pub(crate) use schema::{MIGRATIONS, WITH_ATTACHMENTS, WITH_BLOBS, WITH_NAMES, WITH_QUESTIONS, onlooker, version};

use crate::admit;
use group::State;
use model::ports::{
    AppendBatch, AppendOutcome, BoxFuture, Journal, Lease, OnCommit, PageLimit, RecordPage, StoreError,
};
use model::seq::Seq;
use model::{NodeId, ThreadId, UserId};
use ops::{Lost, Op, Reply};
use readers::Readers;
use rusqlite::Connection;
use std::future::ready;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc::error::{SendError, TrySendError};
use tokio::sync::{mpsc, oneshot};
use writer::{Bounds, Writer};

/// How often a reader that finds a gap asks whether it is one, before it believes it.
const DOUBTS_MAX: usize = 4;
const CLOSED: &str = "the store is closed";

/// What an operator may set.
#[derive(Clone, Debug)]
pub struct Options {
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

impl Default for Options {
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
pub struct Stats {
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
struct Counters {
    commits: AtomicU64,
    records: AtomicU64,
    bytes: AtomicU64,
    blocks: AtomicU64,
    failures: AtomicU64,
}

/// The store in one folder.
#[derive(Debug)]
pub struct Sqlite {
    writer: Option<mpsc::Sender<Op>>,
    thread: Option<JoinHandle<()>>,
    index: Arc<Index>,
    readers: Arc<Readers>,
    counters: Arc<Counters>,
}

impl Sqlite {
    /// Opens a folder, or makes it. Blocks while it reads where the live records lie.
    ///
    /// # Errors
    /// When the folder is not ours to open. It is then as it was.
    pub fn open(dir: &Path, options: &Options) -> Result<Self, OpenError> {
        let folder = Folder::take(dir)?;
        let database = folder.database.clone();
        // Whoever was here before and was killed may have deleted something that is still in it.
        let scrub = schema::write_ahead_log_waits(&database);
        let (conn, boot, found) = prepare(&database)?;
        for stray in &found.strays {
            tracing::error!(?stray, "a stored record fits nowhere: `headwater verify` lists all damage");
        }
        let index = Arc::new(Index::default());
        index.replace(found.entries);
        let readers = Arc::new(Readers::new(database, options.readers_max));
        let counters = Arc::new(Counters::default());
        let state = State {
            boot,
            next_pos: found.next_pos,
            index: Arc::clone(&index),
            ended: found.ended,
            dead: found.dead,
            inbox_rows_max: options.inbox_rows_max,
            ..State::default()
        };
        let bounds = Bounds {
            ops_max: options.group_ops_max.max(1),
            bytes_max: options.group_bytes_max.max(1),
            spacing: options.commit_spacing,
        };
        let writer = Writer {
            conn: Some(conn),
            folder,
            state,
            readers: Arc::clone(&readers),
            counters: Arc::clone(&counters),
            bounds,
            company: 0,
            committed: None,
            scrub,
            wipe_again: None,
            rest: 0,
            patient_until: None,
        };
        let (sender, asked) = mpsc::channel(options.queue_ops_max.max(1));
        let thread = std::thread::Builder::new().name("store-writer".to_owned()).spawn(move || writer.run(asked));
        let thread = thread.map_err(|error| OpenError::denied(dir, &error))?;
        Ok(Self { writer: Some(sender), thread: Some(thread), index, readers, counters })
    }

    /// What the writer has done so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let Counters { commits, records, bytes, blocks, failures } = &*self.counters;
        Stats {
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
            && writer.send(Op::Close { reply }).await.is_ok()
        {
            // An error is a writer that is gone, which is what was wanted.
            let _ = closed.await;
        }
    }

    /// Asks the writer.
    async fn ask<T: Lost>(&self, op: impl FnOnce(Reply<T>) -> Op) -> T {
        let (reply, answer) = oneshot::channel();
        let Some(writer) = &self.writer else { return T::lost(CLOSED) };
        if writer.send(op(reply)).await.is_err() {
            return T::lost(CLOSED);
        }
        answer.await.unwrap_or_else(|_| T::lost("the writer is gone"))
    }

    async fn page(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        after: Seq,
        limit: PageLimit,
    ) -> Result<RecordPage, StoreError> {
        let mut doubts = 0;
        loop {
            let plan = self.index.plan(thread, after, limit.records_max.max(1));
            let live = plan.is_some();
            if let Some(plan) = &plan
                && after >= plan.head
                && plan.damaged.is_none()
            {
                let foreign = plan.owner != *owner;
                return if foreign {
                    Err(StoreError::ThreadNotFound)
                } else {
                    Ok(RecordPage { records: Vec::new(), head: plan.head })
                };
            }
            let ask = Ask { owner: owner.clone(), thread: thread.clone(), after, limit, plan };
            match self.readers.run(move |conn| read(conn, &ask)).await {
                // A run may have begun after the plan was taken: its rows then look like a gap. The writer knows.
                Err(StoreError::Corrupt { .. }) if !live && doubts < DOUBTS_MAX => {
                    doubts += 1;
                    self.ask(|reply| Op::Head { thread: thread.clone(), reply }).await?;
                }
                read => return read,
            }
        }
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        drop(self.writer.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the writer's thread panicked");
        }
    }
}

impl Journal for Sqlite {
    fn claim<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
        _node: &'a NodeId,
    ) -> BoxFuture<'a, Result<Lease, StoreError>> {
        Box::pin(self.ask(move |reply| Op::Claim { owner: owner.clone(), thread: thread.clone(), reply }))
    }

    fn append_with_callback(&self, batch: AppendBatch, landed: OnCommit) -> BoxFuture<'_, AppendOutcome> {
        let (reply, answer) = oneshot::channel();
        let Some(writer) = &self.writer else { return Box::pin(ready(AppendOutcome::lost(CLOSED))) };
        // Looked at here: the writer's time is everybody's.
        let flaw = admit::flaw(&batch);
        match writer.try_send(Op::Append { batch: Box::new(batch), flaw, landed, reply }) {
            Ok(()) => {}
            Err(TrySendError::Closed(op)) => op.lose(CLOSED),
            Err(TrySendError::Full(op)) => {
                let writer = writer.clone();
                tokio::spawn(async move {
                    if let Err(SendError(op)) = writer.send(op).await {
                        op.lose(CLOSED);
                    }
                });
            }
        }
        Box::pin(async { answer.await.unwrap_or_else(|_| AppendOutcome::lost("the writer is gone")) })
    }

    fn read_page<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
        after: Seq,
        limit: PageLimit,
    ) -> BoxFuture<'a, Result<RecordPage, StoreError>> {
        Box::pin(self.page(owner, thread, after, limit))
    }
}

/// Opens the database, brings it to this version, counts the boot and looks where live records lie.
fn prepare(database: &Path) -> Result<(Connection, u64, Scan), OpenError> {
    let sql = |error: rusqlite::Error| OpenError::sql(database, &error);
    let mut conn = schema::writer(database).map_err(sql)?;
    if conn.is_readonly("main").map_err(sql)? {
        return Err(OpenError::denied(database, &"it cannot be written"));
    }
    schema::migrate(&mut conn, MIGRATIONS).map_err(|error| OpenError::migrate(database, &error))?;
    if !schema::write_ahead(&conn).map_err(sql)? {
        return Err(OpenError::denied(database, &"its file system cannot have a write-ahead log"));
    }
    submit::forget_keys(&conn).map_err(sql)?;
    uses::clear_up(&conn).map_err(sql)?;
    let counted = "UPDATE meta SET value = value + 1 WHERE name = 'boot' RETURNING value";
    let boot: i64 = conn.query_row(counted, (), |row| row.get(0)).map_err(sql)?;
    let found = scan(&conn).map_err(sql)?;
    Ok((conn, boot.cast_unsigned(), found))
}

/// Locks. A holder that panicked left nothing half-done: every change behind these locks is one step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
