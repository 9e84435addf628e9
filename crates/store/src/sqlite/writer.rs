//! The one thread that writes.
//!
//! It takes everything that waits, up to a bound, does it in one transaction, commits, makes the rows known and only
//! then answers: while one commit runs the next group gathers, and no timer is needed. When nothing waits it packs what
//! ended runs have logged into blocks. After any failure of SQLite the connection is dropped: what the disk really has is
//! found out anew before anything else is taken on, for a sync that failed once may "succeed" the next time.

use super::WriterCounters;
use super::data_folder::DataFolder;
use super::reader_pool::ReaderPool;
use super::record_blocks::{BLOCK_BYTES, PACK_STEP_BYTES, PackedBlocks, pack_ended_runs};
use super::transaction::{WriteTransaction, WriterState};
use super::write_op::{PendingReply, ReplySender, WriteOp};
use super::{record_row, record_scan, schema};
use rusqlite::Connection;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// So many runs may have ended without having been packed before that comes first.
const UNPACKED_RUNS_MAX: usize = 2_048;
/// Otherwise packing and deleting take one part of so many of the time, unless nobody wants anything else.
const MAINTENANCE_TIME_SHARE: u32 = 4;
/// At most so many steps of that are left to do when the store is closed; the next open does the rest.
const CLOSING_STEPS_MAX: usize = 1_024;

/// After packing or deleting failed, so many commits go by before it is tried again.
const BACKOFF_COMMITS: u32 = 1_000;

/// When deleted bytes could not be wiped out, it is tried again after so long.
const WAL_TRUNCATE_RETRY: Duration = Duration::from_secs(1);

/// Gives the answers. Whoever hears one may act on it here, and must not be able to take the writer down.
fn send_replies(answers: Vec<PendingReply>, committed: Result<(), &str>) {
    for answer in answers {
        if catch_unwind(AssertUnwindSafe(|| answer(committed))).is_err() {
            tracing::error!("somebody who heard of a commit panicked");
        }
    }
}

/// Eight commits that answer so many share their cost well enough: the next one does not wait for company.
const GROUP_SIZE_TARGET: usize = 8 * 6;

/// With how much at once what was left for later is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MaintenancePace {
    /// Somebody may be waiting behind it: small steps.
    Yielding,
    /// Nobody is, or there is more of it than small steps get done.
    Idle,
    /// Nobody will be, and nothing is left over.
    Closing,
}

/// So many rows are deleted at once, by pace.
const DELETE_ROWS_YIELDING: u64 = 512;
const DELETE_ROWS_IDLE: u64 = 4_096;

/// How much one commit takes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupLimits {
    pub(crate) ops_max: usize,
    pub(crate) bytes_max: usize,
    pub(crate) commit_spacing: Duration,
}

/// The thread's own things.
pub(crate) struct SqliteWriter {
    pub(crate) conn: Option<Connection>,
    pub(crate) folder: DataFolder,
    pub(crate) state: WriterState,
    pub(crate) readers: Arc<ReaderPool>,
    pub(crate) counters: Arc<WriterCounters>,
    pub(crate) limits: GroupLimits,
    /// How many questions the last eight commits answered: a moving average, times eight.
    pub(crate) avg_group_size: usize,
    /// When the last commit was.
    pub(crate) last_commit: Option<Instant>,
    /// Deleted bytes are still in the write-ahead log.
    pub(crate) wal_needs_truncate: bool,
    /// A reader was in the way of emptying it: until then nobody tries again.
    pub(crate) truncate_retry_at: Option<Instant>,
    /// So many commits go by before anything is packed or deleted again.
    pub(crate) backoff_commits: u32,
    /// And until then, whoever asks comes first.
    pub(crate) maintenance_not_before: Option<Instant>,
}

impl SqliteWriter {
    /// Works until everybody who could ask is gone, or somebody closes.
    pub(crate) fn run(mut self, mut asked: mpsc::Receiver<WriteOp>) {
        let mut closing = None;
        while let Some(op) = self.next_op(&mut asked) {
            let mut group = Vec::new();
            if self.avg_group_size < GROUP_SIZE_TARGET && op.is_write() {
                self.wait_commit_spacing();
            }
            let mut bytes = 0;
            let mut waiting = Some(op);
            while let Some(op) = waiting.take() {
                if let WriteOp::Close { reply } = op {
                    asked.close();
                    closing = Some(reply);
                } else {
                    bytes += op.estimated_bytes();
                    group.push(op);
                }
                if group.len() < self.limits.ops_max && bytes < self.limits.bytes_max {
                    waiting = asked.try_recv().ok();
                }
            }
            self.commit_group(group);
            if self.state.ended_runs.len() > UNPACKED_RUNS_MAX {
                self.run_maintenance(MaintenancePace::Idle);
            }
        }
        self.close(closing);
    }

    /// The next question. While there is none, what was left for later is done; between its steps we listen for a while,
    /// because those who ask come one after the other, and each would find us busy.
    fn next_op(&mut self, asked: &mut mpsc::Receiver<WriteOp>) -> Option<WriteOp> {
        let mut pace = MaintenancePace::Yielding;
        loop {
            match asked.try_recv() {
                Ok(op) => return Some(op),
                Err(mpsc::error::TryRecvError::Disconnected) => return None,
                Err(mpsc::error::TryRecvError::Empty) => {}
            }
            if let Some(until) = self.maintenance_not_before.take_if(|_| pace == MaintenancePace::Yielding) {
                if let Some(op) = recv_until(until, asked) {
                    self.maintenance_not_before = Some(until);
                    return op;
                }
                // Nobody asked: until somebody does, there is no one to be polite to.
                pace = MaintenancePace::Idle;
            }
            let begun = Instant::now();
            if !self.run_maintenance(pace) && !self.truncate_wal() {
                let Some(again) = self.truncate_retry_at else { return asked.blocking_recv() };
                // A reader was in the way, and perhaps nobody writes any more.
                match recv_until(again, asked) {
                    Some(op) => return op,
                    None => continue,
                }
            }
            self.maintenance_not_before =
                Instant::now().checked_add(begun.elapsed().saturating_mul(MAINTENANCE_TIME_SHARE));
        }
    }

    /// Keeps commits apart. After a pause there is nothing to wait for, nor under load, where groups are large by
    /// themselves.
    fn wait_commit_spacing(&self) {
        let since = self.last_commit.map(|last| last.elapsed());
        if let Some(left) = since.and_then(|since| self.limits.commit_spacing.checked_sub(since)) {
            #[expect(clippy::disallowed_methods, reason = "time itself is what is waited for")]
            std::thread::sleep(left);
        }
    }

    /// Does a group, commits it and answers.
    fn commit_group(&mut self, ops: Vec<WriteOp>) {
        if ops.is_empty() {
            return;
        }
        self.avg_group_size = self.avg_group_size - self.avg_group_size / 8 + ops.len();
        let Some(conn) = self.take_connection() else {
            ops.into_iter().for_each(|op| op.fail("the database could not be opened again"));
            return;
        };
        let before = conn.total_changes();
        let mut answers = Vec::with_capacity(ops.len());
        let mut ops = ops.into_iter();
        let done = in_transaction(&conn, |conn| {
            let mut group = WriteTransaction::new(conn, &mut self.state);
            for op in ops.by_ref() {
                match group.apply(op) {
                    Ok(answer) => answers.push(answer),
                    Err((op, error)) => {
                        op.fail(&error.to_string());
                        return Err(error);
                    }
                }
            }
            Ok((group.index_updates, group.ended_runs, group.records, group.bytes, group.has_deleted_content))
        });
        match done {
            Ok((news, ended, records, bytes, deleted)) => {
                // Nothing dies here: rows die when they are packed.
                let _none = self.state.index.publish(news);
                self.state.ended_runs.extend(ended);
                self.wal_needs_truncate |= deleted;
                let wrote = conn.total_changes() != before;
                self.counters.commits.fetch_add(u64::from(wrote), Relaxed);
                if wrote {
                    self.last_commit = Some(Instant::now());
                }
                self.conn = Some(conn);
                self.counters.records.fetch_add(records, Relaxed);
                self.counters.bytes.fetch_add(bytes, Relaxed);
                send_replies(answers, Ok(()));
            }
            Err(error) => {
                let why = error.to_string();
                drop(conn);
                self.handle_failure(&error);
                send_replies(answers, Err(&why));
                ops.for_each(|op| op.fail(&why));
            }
        }
        self.last_commit = Some(Instant::now());
        self.backoff_commits = self.backoff_commits.saturating_sub(1);
    }

    /// Packs some records of runs that ended, or deletes some dead rows; false when there is nothing to do, or no way to.
    fn run_maintenance(&mut self, pace: MaintenancePace) -> bool {
        if self.backoff_commits > 0 {
            return false;
        }
        if self.state.ended_runs.is_empty() { self.delete_dead_rows(pace) } else { self.pack_ended_runs(pace) }
    }

    fn pack_ended_runs(&mut self, pace: MaintenancePace) -> bool {
        let Some(conn) = self.conn.take() else { return false };
        let WriterState { unpackable_threads: unmovable, ended_runs: ended, index, .. } = &mut self.state;
        let bytes_max = if pace == MaintenancePace::Yielding { PACK_STEP_BYTES } else { BLOCK_BYTES };
        ended.retain(|run| !unmovable.contains(&run.num));
        let mut begun = Vec::new();
        match in_transaction(&conn, |conn| pack_ended_runs(conn, index, ended, &mut begun, bytes_max)) {
            Ok(PackedBlocks { index_updates: news, bytes }) => {
                self.conn = Some(conn);
                self.counters.blocks.fetch_add(news.len() as u64, Relaxed);
                self.state.dead_rows.add_bytes(bytes as u64);
                for (thread, extent) in self.state.index.publish(news) {
                    self.state.dead_rows.add(thread, extent);
                }
                true
            }
            Err(error) => {
                if record_row::is_corruption(&error) {
                    self.state.unpackable_threads.extend(begun);
                }
                self.back_off(conn, &error)
            }
        }
    }

    fn delete_dead_rows(&mut self, pace: MaintenancePace) -> bool {
        let all = pace == MaintenancePace::Closing;
        if !all && !self.state.dead_rows.is_sweep_due() {
            return false;
        }
        let rows_max = if pace == MaintenancePace::Yielding { DELETE_ROWS_YIELDING } else { DELETE_ROWS_IDLE };
        let stretches = self.state.dead_rows.ranges_to_delete(all, rows_max);
        let Some(conn) = self.conn.take_if(|_| !stretches.is_empty()) else { return false };
        let swept = in_transaction(&conn, |conn| {
            let mut delete = conn.prepare_cached("DELETE FROM records WHERE pos >= ?1 AND pos < ?2")?;
            stretches.iter().try_for_each(|stretch| delete.execute(*stretch).map(drop))
        });
        match swept {
            Ok(()) => {
                self.conn = Some(conn);
                stretches.into_iter().for_each(|stretch| self.state.dead_rows.remove(stretch));
                true
            }
            Err(error) => self.back_off(conn, &error),
        }
    }

    /// What is not urgent failed: it rests for a while.
    fn back_off(&mut self, conn: Connection, error: &rusqlite::Error) -> bool {
        drop(conn);
        self.backoff_commits = BACKOFF_COMMITS;
        self.handle_failure(error);
        false
    }

    /// Empties the write-ahead log when deleted bytes are still in it; false when there is nothing to empty.
    fn truncate_wal(&mut self) -> bool {
        if !self.wal_needs_truncate || self.truncate_retry_at.is_some_and(|again| Instant::now() < again) {
            return false;
        }
        (self.wal_needs_truncate, self.truncate_retry_at) = (false, None);
        match self.conn.as_ref().map(schema::try_checkpoint_wal) {
            Some(Ok(true)) => true,
            // A reader is in the way: soon is soon enough.
            Some(Ok(false)) | None => {
                (self.wal_needs_truncate, self.truncate_retry_at) =
                    (true, Instant::now().checked_add(WAL_TRUNCATE_RETRY));
                false
            }
            Some(Err(error)) => {
                self.conn = None;
                self.handle_failure(&error);
                false
            }
        }
    }

    /// Something went wrong, and the connection is gone. What was believed is worth nothing now.
    fn handle_failure(&mut self, error: &rusqlite::Error) {
        tracing::error!(%error, "a write failed; the database is opened again");
        self.counters.failures.fetch_add(1, Relaxed);
        self.conn = self.take_connection();
    }

    /// The connection, or a new one that has been found good.
    fn take_connection(&mut self) -> Option<Connection> {
        if let Some(conn) = self.conn.take() {
            return Some(conn);
        }
        match self.reopen() {
            Ok(conn) => Some(conn),
            Err(error) => {
                tracing::error!(%error, "the database cannot be opened again");
                None
            }
        }
    }

    /// Finds out what the disk really has. The write-ahead log is copied out and begun anew, so that nothing that is
    /// written from now on rests on pages of which nobody knows whether they reached the disk.
    fn reopen(&mut self) -> Result<Connection, ReopenError> {
        let conn = schema::open_writer(&self.folder.database)?;
        if !schema::checkpoint_wal(&conn)? {
            return Err(ReopenError::Busy);
        }
        let boot: i64 = conn.query_row("SELECT value FROM meta WHERE name = 'boot'", (), |row| row.get(0))?;
        if boot.cast_unsigned() != self.state.boot {
            return Err(ReopenError::Replaced);
        }
        let found = record_scan::scan_records(&conn)?;
        self.state.threads.clear();
        self.state.next_pos = self.state.next_pos.max(found.next_pos);
        self.state.ended_runs = found.ended_runs;
        self.state.dead_rows = found.dead_rows;
        self.state.index.replace(found.threads);
        Ok(conn)
    }

    fn close(mut self, closing: Option<ReplySender<()>>) {
        for _ in 0..CLOSING_STEPS_MAX {
            if !self.run_maintenance(MaintenancePace::Closing) {
                break;
            }
        }
        self.readers.close();
        if let Some(conn) = self.conn.take() {
            let emptied = schema::checkpoint_wal(&conn);
            if !matches!(emptied, Ok(true)) {
                tracing::warn!(?emptied, "the write-ahead log stays; the next start copies it");
            }
            drop(conn);
        }
        drop(self);
        if let Some(reply) = closing {
            // Who no longer waits needs no answer.
            let _ = reply.send(());
        }
    }
}

/// Listens for a while; `None` when nobody asked.
fn recv_until(until: Instant, asked: &mut mpsc::Receiver<WriteOp>) -> Option<Option<WriteOp>> {
    let waker = Waker::from(Arc::new(UnparkWaker(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(op) = asked.poll_recv(&mut cx) {
            return Some(op);
        }
        let left = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
        std::thread::park_timeout(left);
    }
}

/// Wakes the writer's thread.
struct UnparkWaker(Thread);

impl Wake for UnparkWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Why the database could not be taken up again after a failure.
#[derive(Debug, thiserror::Error)]
enum ReopenError {
    /// Somebody holds on to the write-ahead log.
    #[error("the write-ahead log is in use")]
    Busy,
    /// It is another database than before.
    #[error("the database was replaced")]
    Replaced,
    /// SQLite refuses.
    #[error(transparent)]
    Sql(#[from] rusqlite::Error),
}

/// Does something in a transaction; an error takes everything back. The statements are kept: parsing them anew would
/// cost as much as the row of a small group.
fn in_transaction<T>(conn: &Connection, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> rusqlite::Result<T> {
    let run = |sql: &str| conn.prepare_cached(sql)?.execute(()).map(drop);
    run("BEGIN IMMEDIATE")?;
    let done = work(conn).and_then(|value| run("COMMIT").map(|()| value));
    if done.is_err() && !conn.is_autocommit() {
        // The connection is dropped after an error, and what it had begun with it; this only lets go sooner.
        let _gone = run("ROLLBACK");
    }
    done
}
