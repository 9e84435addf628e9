//! The writer thread.
//!
//! It executes all queued tasks, up to a limit, in one transaction, appends to the log what needs no more than that
//! (`append_log`), commits, publishes the records and hands the tasks to the `reply_queue`. The next group queues up during the
//! commit, so no timer is needed. When the queue is empty, it packs the records of ended and of long runs (`writer_maintenance`) and
//! gives the space of deleted ones back (`free_pages`). After an SQLite error it drops the connection and scans the database again
//! before the next task, because a sync that failed once may report success the next time. A full disk is no such error: see
//! `writer_space`.

use super::append_log::{AppendLog, remove_append_log};
use super::commit_pacer::CommitPacer;
use super::data_folder::DataFolder;
use super::disk_reserve::DiskReserve;
use super::free_pages::FreePages;
use super::log_size::LogSizeCount;
use super::log_write_out::LoggedThreads;
use super::reader_pool::ReaderPool;
use super::reply_queue::ReplyQueue;
use super::runtime_ticks::RuntimeTicks;
use super::transaction::{WriteTransaction, WriterState};
use super::wal_checkpointer::WalCheckpointer;
use super::write_task::{ReplySender, TaskCost, WriteFailure, WriteTask, WriterMessage};
use super::writer_maintenance::{GroupSize, MaintenancePace};
use super::writer_signals::WriterSignals;
use super::writer_space::is_disk_full;
use super::{WriterStats, lock, log_recovery, record_scan, schema};
use crate::space_state::SpaceState;
use rusqlite::Connection;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// After a maintenance step the writer waits this many times the step's duration for other work.
const MAINTENANCE_TIME_SHARE: u32 = 4;
/// Maximum number of maintenance steps at closing; the next open does the rest.
const CLOSING_STEPS_MAX: usize = 1_024;

/// Number of commits between a failed maintenance step and the next attempt.
const BACKOFF_COMMITS: u32 = 1_000;

/// Delay before the next attempt to truncate the write-ahead log.
const WAL_TRUNCATE_RETRY: Duration = Duration::from_secs(1);

const BEGIN_IMMEDIATE: &str = "BEGIN IMMEDIATE";

/// Number of queued tasks above which the next commit does not wait for more.
const SPACED_TASKS_MAX: usize = 256;

/// How long the writer waits for the end of a tick.
const TICK_WAIT_MAX: Duration = Duration::from_millis(4);

/// The limits of one commit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupLimits {
    pub(crate) ops_max: usize,
    pub(crate) bytes_max: usize,
}

pub(crate) struct SqliteWriter {
    pub(crate) conn: Option<Connection>,
    /// There is one when there is a connection.
    pub(crate) append_log: Option<AppendLog>,
    pub(crate) logged: LoggedThreads,
    pub(crate) replies: ReplyQueue,
    pub(crate) folder: DataFolder,
    pub(crate) state: WriterState,
    pub(crate) readers: Arc<ReaderPool>,
    pub(crate) stats: Arc<Mutex<WriterStats>>,
    pub(crate) limits: GroupLimits,
    pub(crate) unpacked_rows_max: u64,
    /// Maintenance that earlier groups made necessary, while idle moments do not suffice.
    pub(crate) owed: GroupSize,
    pub(crate) pacer: CommitPacer,
    pub(crate) signals: Arc<WriterSignals>,
    /// Whether the workers of the runtime gather what they read for a commit.
    pub(crate) ticks: Option<Arc<RuntimeTicks>>,
    pub(crate) checkpointer: WalCheckpointer,
    /// Whether the write-ahead log still has deleted content.
    pub(crate) wal_needs_truncate: bool,
    /// When to retry, after a reader prevented truncating the log.
    pub(crate) truncate_retry_at: Option<Instant>,
    /// Number of commits before the next maintenance step.
    pub(crate) backoff_commits: u32,
    pub(crate) free_pages: FreePages,
    /// Earliest time of the next maintenance step while tasks may arrive.
    pub(crate) maintenance_not_before: Option<Instant>,
    pub(crate) space: Arc<SpaceState>,
    pub(crate) reserve: DiskReserve,
    /// When to look for room again.
    pub(crate) space_probe_at: Instant,
    pub(crate) alarm_probe_interval: Duration,
    pub(crate) alarm_cleared_at: Option<Instant>,
    /// The size of the commit for which there was no room.
    pub(crate) space_needed: u64,
}

impl SqliteWriter {
    /// Runs until all senders are dropped or the store is closed.
    pub(crate) fn run(mut self, mut messages: mpsc::Receiver<WriterMessage>) {
        let mut closing = None;
        while let Some(message) = self.next_message(&mut messages) {
            let mut group = Vec::new();
            let mut bytes = 0;
            let mut next = Some(message);
            self.signals.clear();
            while let Some(message) = next.take() {
                match message {
                    WriterMessage::Close { reply } => {
                        messages.close();
                        closing = Some(reply);
                    }
                    WriterMessage::Run { task, cost } => {
                        bytes += cost.estimated_bytes();
                        group.push((task, cost));
                    }
                }
                if group.len() < self.limits.ops_max && bytes < self.limits.bytes_max {
                    next = messages.try_recv().ok();
                }
            }
            self.check_space(bytes);
            let size = GroupSize { tasks: group.len(), bytes };
            let group = self.refuse_new_data(group);
            if !group.is_empty() {
                self.with_reserve(|writer| writer.commit_group(group));
            }
            self.make_room_in_log(size.bytes);
            self.catch_up(size);
            // Before looking for the next task, not when it has come: a writer that sleeps need not be woken for each.
            if messages.len() < SPACED_TASKS_MAX && !self.is_full() && closing.is_none() {
                self.wait_for_group();
            }
        }
        self.close(closing);
    }

    /// Waits for the next message and runs maintenance meanwhile. It pauses between maintenance steps, because
    /// otherwise each of several sequential tasks would have to wait for one.
    fn next_message(&mut self, messages: &mut mpsc::Receiver<WriterMessage>) -> Option<WriterMessage> {
        let mut pace = MaintenancePace::Yielding;
        loop {
            self.probe_space_if_due();
            match messages.try_recv() {
                Ok(message) => return Some(message),
                Err(mpsc::error::TryRecvError::Disconnected) => return None,
                Err(mpsc::error::TryRecvError::Empty) => {}
            }
            if let Some(until) = self.maintenance_not_before.take_if(|_| pace == MaintenancePace::Yielding) {
                if let Some(message) = recv_until(until, messages) {
                    self.maintenance_not_before = Some(until);
                    return message;
                }
                // The queue is idle, so larger steps delay nothing.
                pace = MaintenancePace::Idle;
            }
            let begun = Instant::now();
            if !self.run_maintenance(pace) && !self.truncate_wal() && !self.release_free_pages(pace) {
                // Neither the retry of a truncation nor the end of a full disk can rely on a further write.
                let probe_at = self.space_probe_at;
                match recv_until(self.truncate_retry_at.map_or(probe_at, |again| again.min(probe_at)), messages) {
                    Some(message) => return message,
                    None => continue,
                }
            }
            self.maintenance_not_before =
                Instant::now().checked_add(begun.elapsed().saturating_mul(MAINTENANCE_TIME_SHARE));
        }
    }

    /// Lets the group grow: until the end of the tick if the runtime has ticks, else while commits follow each other too fast. A
    /// task whose caller waits for it ends the wait sooner.
    fn wait_for_group(&self) {
        let begun = Instant::now();
        self.signals.gather(|| {
            let now = Instant::now();
            if self.signals.has_urgent_tasks() {
                self.pacer.urgent_delay(now)
            } else if self.ticks.as_ref().is_none_or(|ticks| !ticks.is_on()) {
                self.pacer.delay(now)
            } else if self.signals.is_tick_over() {
                Duration::ZERO
            } else {
                TICK_WAIT_MAX.saturating_sub(now.saturating_duration_since(begun))
            }
        });
    }

    /// While the disk is full, refuses the tasks of a group that would add data, and returns the others.
    fn refuse_new_data(&self, group: Vec<(Box<dyn WriteTask>, TaskCost)>) -> Vec<Box<dyn WriteTask>> {
        if !self.is_full() {
            return group.into_iter().map(|(task, _)| task).collect();
        }
        let (allowed, refused): (Vec<_>, Vec<_>) = group.into_iter().partition(|(_, cost)| cost.is_allowed_when_full());
        self.replies.push(refused.into_iter().map(|(task, _)| task).collect(), Err(WriteFailure::NoSpace));
        allowed.into_iter().map(|(task, _)| task).collect()
    }

    /// Executes a group in one transaction, commits it and replies.
    fn commit_group(&mut self, mut tasks: Vec<Box<dyn WriteTask>>) {
        let Some(conn) = self.take_connection() else {
            let failure =
                if self.is_full() { WriteFailure::NoSpace } else { "the database could not be opened".into() };
            self.replies.push(tasks, Err(failure));
            return;
        };
        let (changes_before, first_pos) = (conn.total_changes(), self.state.next_pos);
        let log = &mut self.append_log;
        // Most groups need no lock of the database.
        let begin = if tasks.iter().all(|task| task.only_logs()) { "BEGIN DEFERRED" } else { BEGIN_IMMEDIATE };
        let committed = run_transaction(&conn, begin, |conn| {
            let mut transaction = WriteTransaction::new(conn, &mut self.state);
            tasks.iter_mut().try_for_each(|task| task.apply(&mut transaction))?;
            let WriteTransaction { effects, state, .. } = transaction;
            // Before the commit: what the database gets may follow it.
            if let Some(log) = log.as_mut().filter(|_| !state.log_frame.is_empty()) {
                log.write(&mut state.log_frame).map_err(|error| log_recovery::to_sql_error(&error))?;
            }
            Ok(effects)
        });
        match committed {
            Ok(effects) => {
                let published = self.state.index.publish(effects.index_updates);
                self.state.pack_queue.extend(published.pack_requests);
                self.state.dead_rows.add_rows(published.dead_rows, published.dead_bytes);
                self.state.is_packing_overdue = published.is_packing_overdue;
                self.logged.extend(published.logged_threads);
                if effects.has_deleted_content {
                    (self.wal_needs_truncate, self.free_pages) = (true, FreePages::Unknown);
                }
                let has_logged = self.append_log.as_mut().is_some_and(AppendLog::confirm_write);
                let wrote = has_logged || conn.total_changes() != changes_before;
                if wrote {
                    self.pacer.on_commit(Instant::now(), tasks.len(), effects.bytes);
                }
                self.conn = Some(conn);
                let mut stats = lock(&self.stats);
                stats.commits += u64::from(wrote);
                stats.records += effects.records;
                stats.bytes += effects.bytes;
                stats.blocks += effects.blocks;
                drop(stats);
                let appends = tasks.len();
                self.replies.push(tasks, Ok(()));
                if let Some(ticks) = &self.ticks {
                    ticks.on_commit(appends);
                }
            }
            Err(error) => {
                let failure = self.undo_transaction(conn, first_pos, &error);
                self.replies.push(tasks, Err(failure));
            }
        }
        self.backoff_commits = self.backoff_commits.saturating_sub(1);
    }

    /// Postpones maintenance after a failure.
    pub(crate) fn back_off(&mut self, conn: Connection, error: &rusqlite::Error) -> bool {
        let first_pos = self.state.next_pos;
        if let WriteFailure::Failed(_) = self.undo_transaction(conn, first_pos, error) {
            self.backoff_commits = BACKOFF_COMMITS;
        }
        false
    }

    /// Truncates the write-ahead log if it has deleted content. Returns whether it did anything.
    fn truncate_wal(&mut self) -> bool {
        if !self.wal_needs_truncate || self.truncate_retry_at.is_some_and(|again| Instant::now() < again) {
            return false;
        }
        (self.wal_needs_truncate, self.truncate_retry_at) = (false, None);
        let is_log_empty = self.empty_append_log();
        match self.with_reserve(|writer| writer.try_checkpoint_wal()) {
            Some(Ok(true)) if is_log_empty => true,
            // A reader is active, or there is no room to write the append log out.
            Some(Ok(_)) | None => {
                (self.wal_needs_truncate, self.truncate_retry_at) =
                    (true, Instant::now().checked_add(WAL_TRUNCATE_RETRY));
                false
            }
            Some(Err(error)) => {
                if is_disk_full(&error) {
                    (self.wal_needs_truncate, self.truncate_retry_at) =
                        (true, Instant::now().checked_add(WAL_TRUNCATE_RETRY));
                    self.raise_alarm();
                } else {
                    self.conn = None;
                    self.handle_failure(&error);
                }
                false
            }
        }
    }

    /// Copies the write-ahead log into the database and truncates it; `false` when a reader prevents it.
    pub(crate) fn try_checkpoint_wal(&self) -> Option<rusqlite::Result<bool>> {
        let _paused = self.checkpointer.pause();
        self.conn.as_ref().map(schema::try_checkpoint_wal)
    }

    /// Reopens the database after an error; the connection was dropped.
    pub(crate) fn handle_failure(&mut self, error: &rusqlite::Error) {
        tracing::error!(%error, "a write failed; the database is opened again");
        lock(&self.stats).failures += 1;
        self.conn = self.take_connection();
    }

    fn take_connection(&mut self) -> Option<Connection> {
        if let Some(conn) = self.conn.take() {
            return Some(conn);
        }
        // A database that was never opened is opened when there is room.
        if self.state.boot == 0 {
            return None;
        }
        match self.reopen() {
            Ok(conn) => Some(conn),
            Err(ReopenError::Sql(error)) if is_disk_full(&error) => {
                self.raise_alarm();
                None
            }
            Err(error) => {
                tracing::error!(%error, "the database cannot be opened again");
                None
            }
        }
    }

    /// Opens and scans the database. Checkpoints and restarts the write-ahead log, so that later writes do not depend
    /// on pages that may not have reached the disk.
    fn reopen(&mut self) -> Result<Connection, ReopenError> {
        let mut conn = schema::open_writer(&self.folder.database)?;
        let paused = self.checkpointer.pause();
        if !schema::checkpoint_wal(&conn)? {
            return Err(ReopenError::Busy);
        }
        drop(paused);
        self.checkpointer.attach(&mut conn)?;
        let boot: i64 = conn.query_row("SELECT value FROM meta WHERE name = 'boot'", (), |row| row.get(0))?;
        if boot.cast_unsigned() != self.state.boot {
            return Err(ReopenError::Replaced);
        }
        // What the failed group has appended may be there or not; from here on the database says so.
        log_recovery::move_into_database(&conn, &self.folder.database)?;
        let log = AppendLog::create(&self.folder.database).map_err(|error| log_recovery::to_sql_error(&error))?;
        let found = record_scan::scan_records(&conn)?;
        self.state.log_count = LogSizeCount::load(&conn)?;
        self.append_log = Some(log);
        self.adopt_scan(found);
        Ok(conn)
    }

    fn close(mut self, closing: Option<ReplySender<()>>) {
        for _ in 0..CLOSING_STEPS_MAX {
            if !self.run_maintenance(MaintenancePace::Closing) {
                break;
            }
        }
        let is_log_empty = self.empty_append_log();
        if let Some(ticks) = &self.ticks {
            ticks.close();
        }
        self.readers.close();
        self.checkpointer.stop();
        if let Some(conn) = self.conn.take() {
            let emptied = self.with_reserve(|_| schema::checkpoint_wal(&conn));
            if !matches!(emptied, Ok(true)) {
                tracing::warn!(?emptied, "the write-ahead log stays; the next start copies it");
            }
            drop(conn);
        }
        if is_log_empty {
            remove_append_log(&self.folder.database);
        }
        drop(self);
        if let Some(reply) = closing {
            // The caller may have stopped waiting.
            let _ = reply.send(());
        }
    }
}

/// Waits for a message; `None` on a time-out.
fn recv_until(until: Instant, messages: &mut mpsc::Receiver<WriterMessage>) -> Option<Option<WriterMessage>> {
    let waker = Waker::from(Arc::new(UnparkWaker(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(message) = messages.poll_recv(&mut cx) {
            return Some(message);
        }
        let left = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
        std::thread::park_timeout(left);
    }
}

struct UnparkWaker(Thread);

impl Wake for UnparkWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Why the database could not be reopened after a failure.
#[derive(Debug, thiserror::Error)]
enum ReopenError {
    #[error("the write-ahead log is in use")]
    Busy,
    #[error("the database was replaced")]
    Replaced,
    #[error(transparent)]
    Sql(#[from] rusqlite::Error),
}

/// Runs `work` in a transaction and rolls back on an error. Statements are cached: parsing costs as much as writing a
/// small group.
pub(crate) fn in_transaction<T>(
    conn: &Connection,
    work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    run_transaction(conn, BEGIN_IMMEDIATE, work)
}

fn run_transaction<T>(
    conn: &Connection,
    begin: &str,
    work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let run = |sql: &str| conn.prepare_cached(sql)?.execute(()).map(drop);
    run(begin)?;
    let done = work(conn).and_then(|value| run("COMMIT").map(|()| value));
    if done.is_err() && !conn.is_autocommit() {
        // Dropping the connection rolls back, too; this releases the lock sooner.
        let _gone = run("ROLLBACK");
    }
    done
}
