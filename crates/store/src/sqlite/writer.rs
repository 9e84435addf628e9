//! The one thread that writes.
//!
//! It takes everything that waits, up to a bound, does it in one transaction, commits, makes the rows known and only
//! then answers: while one commit runs the next group gathers, and no timer is needed. When nothing waits it packs what
//! ended runs have logged into blocks. After any failure of SQLite the connection is dropped: what the disk really has is
//! found out anew before anything else is taken on, for a sync that failed once may "succeed" the next time.

use super::Counters;
use super::blocks::{BLOCK_BYTES, Moved, STEP_BYTES, move_ended};
use super::folder::Folder;
use super::group::{Group, State};
use super::ops::{Answer, Op, Reply};
use super::readers::Readers;
use super::{rows, scan, schema};
use rusqlite::Connection;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// So many runs may have ended without having been packed before that comes first.
const ENDED_MAX: usize = 2_048;
/// Otherwise packing and deleting take one part of so many of the time, unless nobody wants anything else.
const PATIENCE: u32 = 4;
/// At most so many steps of that are left to do when the store is closed; the next open does the rest.
const CLOSING_STEPS_MAX: usize = 1_024;

/// After packing or deleting failed, so many commits go by before it is tried again.
const REST_COMMITS: u32 = 1_000;

/// When deleted bytes could not be wiped out, it is tried again after so long.
const WIPE_AGAIN: Duration = Duration::from_secs(1);

/// Gives the answers. Whoever hears one may act on it here, and must not be able to take the writer down.
fn tell(answers: Vec<Answer>, committed: Result<(), &str>) {
    for answer in answers {
        if catch_unwind(AssertUnwindSafe(|| answer(committed))).is_err() {
            tracing::error!("somebody who heard of a commit panicked");
        }
    }
}

/// Eight commits that answer so many share their cost well enough: the next one does not wait for company.
const COMPANY: usize = 8 * 6;

/// With how much at once what was left for later is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// Somebody may be waiting behind it: small steps.
    Polite,
    /// Nobody is, or there is more of it than small steps get done.
    Alone,
    /// Nobody will be, and nothing is left over.
    Closing,
}

/// So many rows are deleted at once, by pace.
const ROWS_POLITE: u64 = 512;
const ROWS_ALONE: u64 = 4_096;

/// How much one commit takes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) ops_max: usize,
    pub(crate) bytes_max: usize,
    pub(crate) spacing: Duration,
}

/// The thread's own things.
pub(crate) struct Writer {
    pub(crate) conn: Option<Connection>,
    pub(crate) folder: Folder,
    pub(crate) state: State,
    pub(crate) readers: Arc<Readers>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) bounds: Bounds,
    /// How many questions the last eight commits answered: a moving average, times eight.
    pub(crate) company: usize,
    /// When the last commit was.
    pub(crate) committed: Option<Instant>,
    /// Deleted bytes are still in the write-ahead log.
    pub(crate) scrub: bool,
    /// A reader was in the way of emptying it: until then nobody tries again.
    pub(crate) wipe_again: Option<Instant>,
    /// So many commits go by before anything is packed or deleted again.
    pub(crate) rest: u32,
    /// And until then, whoever asks comes first.
    pub(crate) patient_until: Option<Instant>,
}

impl Writer {
    /// Works until everybody who could ask is gone, or somebody closes.
    pub(crate) fn run(mut self, mut asked: mpsc::Receiver<Op>) {
        let mut closing = None;
        while let Some(op) = self.next(&mut asked) {
            let mut group = Vec::new();
            if self.company < COMPANY && op.writes() {
                self.wait();
            }
            let mut bytes = 0;
            let mut waiting = Some(op);
            while let Some(op) = waiting.take() {
                if let Op::Close { reply } = op {
                    asked.close();
                    closing = Some(reply);
                } else {
                    bytes += op.bytes();
                    group.push(op);
                }
                if group.len() < self.bounds.ops_max && bytes < self.bounds.bytes_max {
                    waiting = asked.try_recv().ok();
                }
            }
            self.commit(group);
            if self.state.ended.len() > ENDED_MAX {
                self.tidy(Pace::Alone);
            }
        }
        self.close(closing);
    }

    /// The next question. While there is none, what was left for later is done; between its steps we listen for a while,
    /// because those who ask come one after the other, and each would find us busy.
    fn next(&mut self, asked: &mut mpsc::Receiver<Op>) -> Option<Op> {
        let mut pace = Pace::Polite;
        loop {
            match asked.try_recv() {
                Ok(op) => return Some(op),
                Err(mpsc::error::TryRecvError::Disconnected) => return None,
                Err(mpsc::error::TryRecvError::Empty) => {}
            }
            if let Some(until) = self.patient_until.take_if(|_| pace == Pace::Polite) {
                if let Some(op) = heard_until(until, asked) {
                    self.patient_until = Some(until);
                    return op;
                }
                // Nobody asked: until somebody does, there is no one to be polite to.
                pace = Pace::Alone;
            }
            let begun = Instant::now();
            if !self.tidy(pace) && !self.wipe() {
                let Some(again) = self.wipe_again else { return asked.blocking_recv() };
                // A reader was in the way, and perhaps nobody writes any more.
                match heard_until(again, asked) {
                    Some(op) => return op,
                    None => continue,
                }
            }
            self.patient_until = Instant::now().checked_add(begun.elapsed().saturating_mul(PATIENCE));
        }
    }

    /// Keeps commits apart. After a pause there is nothing to wait for, nor under load, where groups are large by
    /// themselves.
    fn wait(&self) {
        let since = self.committed.map(|last| last.elapsed());
        if let Some(left) = since.and_then(|since| self.bounds.spacing.checked_sub(since)) {
            #[expect(clippy::disallowed_methods, reason = "time itself is what is waited for")]
            std::thread::sleep(left);
        }
    }

    /// Does a group, commits it and answers.
    fn commit(&mut self, ops: Vec<Op>) {
        if ops.is_empty() {
            return;
        }
        self.company = self.company - self.company / 8 + ops.len();
        let Some(conn) = self.connection() else {
            ops.into_iter().for_each(|op| op.lose("the database could not be opened again"));
            return;
        };
        let before = conn.total_changes();
        let mut answers = Vec::with_capacity(ops.len());
        let mut ops = ops.into_iter();
        let done = in_transaction(&conn, |conn| {
            let mut group = Group::new(conn, &mut self.state);
            for op in ops.by_ref() {
                match group.apply(op) {
                    Ok(answer) => answers.push(answer),
                    Err((op, error)) => {
                        op.lose(&error.to_string());
                        return Err(error);
                    }
                }
            }
            Ok((group.news, group.ended, group.records, group.bytes, group.deleted))
        });
        match done {
            Ok((news, ended, records, bytes, deleted)) => {
                // Nothing dies here: rows die when they are packed.
                let _none = self.state.index.publish(news);
                self.state.ended.extend(ended);
                self.scrub |= deleted;
                let wrote = conn.total_changes() != before;
                self.counters.commits.fetch_add(u64::from(wrote), Relaxed);
                if wrote {
                    self.committed = Some(Instant::now());
                }
                self.conn = Some(conn);
                self.counters.records.fetch_add(records, Relaxed);
                self.counters.bytes.fetch_add(bytes, Relaxed);
                tell(answers, Ok(()));
            }
            Err(error) => {
                let why = error.to_string();
                drop(conn);
                self.failed(&error);
                tell(answers, Err(&why));
                ops.for_each(|op| op.lose(&why));
            }
        }
        self.committed = Some(Instant::now());
        self.rest = self.rest.saturating_sub(1);
    }

    /// Packs some records of runs that ended, or deletes some dead rows; false when there is nothing to do, or no way to.
    fn tidy(&mut self, pace: Pace) -> bool {
        if self.rest > 0 {
            return false;
        }
        if self.state.ended.is_empty() { self.sweep(pace) } else { self.pack(pace) }
    }

    fn pack(&mut self, pace: Pace) -> bool {
        let Some(conn) = self.conn.take() else { return false };
        let State { unmovable, ended, index, .. } = &mut self.state;
        let bytes_max = if pace == Pace::Polite { STEP_BYTES } else { BLOCK_BYTES };
        ended.retain(|run| !unmovable.contains(&run.num));
        let mut begun = Vec::new();
        match in_transaction(&conn, |conn| move_ended(conn, index, ended, &mut begun, bytes_max)) {
            Ok(Moved { news, bytes }) => {
                self.conn = Some(conn);
                self.counters.blocks.fetch_add(news.len() as u64, Relaxed);
                self.state.dead.weigh(bytes as u64);
                for (thread, extent) in self.state.index.publish(news) {
                    self.state.dead.add(thread, extent);
                }
                true
            }
            Err(error) => {
                if rows::is_damage(&error) {
                    self.state.unmovable.extend(begun);
                }
                self.give_up(conn, &error)
            }
        }
    }

    fn sweep(&mut self, pace: Pace) -> bool {
        let all = pace == Pace::Closing;
        if !all && !self.state.dead.is_due() {
            return false;
        }
        let rows_max = if pace == Pace::Polite { ROWS_POLITE } else { ROWS_ALONE };
        let stretches = self.state.dead.stretches(all, rows_max);
        let Some(conn) = self.conn.take_if(|_| !stretches.is_empty()) else { return false };
        let swept = in_transaction(&conn, |conn| {
            let mut delete = conn.prepare_cached("DELETE FROM records WHERE pos >= ?1 AND pos < ?2")?;
            stretches.iter().try_for_each(|stretch| delete.execute(*stretch).map(drop))
        });
        match swept {
            Ok(()) => {
                self.conn = Some(conn);
                stretches.into_iter().for_each(|stretch| self.state.dead.remove(stretch));
                true
            }
            Err(error) => self.give_up(conn, &error),
        }
    }

    /// What is not urgent failed: it rests for a while.
    fn give_up(&mut self, conn: Connection, error: &rusqlite::Error) -> bool {
        drop(conn);
        self.rest = REST_COMMITS;
        self.failed(error);
        false
    }

    /// Empties the write-ahead log when deleted bytes are still in it; false when there is nothing to empty.
    fn wipe(&mut self) -> bool {
        if !self.scrub || self.wipe_again.is_some_and(|again| Instant::now() < again) {
            return false;
        }
        (self.scrub, self.wipe_again) = (false, None);
        match self.conn.as_ref().map(schema::try_checkpoint) {
            Some(Ok(true)) => true,
            // A reader is in the way: soon is soon enough.
            Some(Ok(false)) | None => {
                (self.scrub, self.wipe_again) = (true, Instant::now().checked_add(WIPE_AGAIN));
                false
            }
            Some(Err(error)) => {
                self.conn = None;
                self.failed(&error);
                false
            }
        }
    }

    /// Something went wrong, and the connection is gone. What was believed is worth nothing now.
    fn failed(&mut self, error: &rusqlite::Error) {
        tracing::error!(%error, "a write failed; the database is opened again");
        self.counters.failures.fetch_add(1, Relaxed);
        self.conn = self.connection();
    }

    /// The connection, or a new one that has been found good.
    fn connection(&mut self) -> Option<Connection> {
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
        let conn = schema::writer(&self.folder.database)?;
        if !schema::checkpoint(&conn)? {
            return Err(ReopenError::Busy);
        }
        let boot: i64 = conn.query_row("SELECT value FROM meta WHERE name = 'boot'", (), |row| row.get(0))?;
        if boot.cast_unsigned() != self.state.boot {
            return Err(ReopenError::Replaced);
        }
        let found = scan(&conn)?;
        self.state.live.clear();
        self.state.next_pos = self.state.next_pos.max(found.next_pos);
        self.state.ended = found.ended;
        self.state.dead = found.dead;
        self.state.index.replace(found.entries);
        Ok(conn)
    }

    fn close(mut self, closing: Option<Reply<()>>) {
        for _ in 0..CLOSING_STEPS_MAX {
            if !self.tidy(Pace::Closing) {
                break;
            }
        }
        self.readers.close();
        if let Some(conn) = self.conn.take() {
            let emptied = schema::checkpoint(&conn);
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
fn heard_until(until: Instant, asked: &mut mpsc::Receiver<Op>) -> Option<Option<Op>> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
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
struct Unpark(Thread);

impl Wake for Unpark {
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
