//! What one transaction does: any number of questions, each with a verdict of its own.
//!
//! A batch is judged before a byte of it is written, against the tables as the transaction has them so far. So a batch
//! that does not fit costs its neighbours nothing, and only an error of SQLite itself ends the transaction for all.
//! [`State`] runs ahead of the commit; it is a cache, and forgotten when a commit fails. `submit` has the directory's side.

use super::blocks::Ended;
use super::dead::Dead;
use super::index::{Extent, Index, News};
use super::ops::{Answer, Op, held, held_for};
use super::page;
use super::rows;
use super::spent;
use crate::admit;
use model::ports::{AppendBatch, AppendOutcome, ApprovalAnswer, DirectoryChange, Lease, StoreError};
use model::seq::{Epoch, Seq};
use model::task::TaskStatus;
use model::{TaskId, ThreadId, UserId};
use rusqlite::{Connection, OptionalExtension};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// So many threads are remembered between commits. What is forgotten is read again.
const LIVE_MAX: usize = 16_384;
/// And about so many runs of each.
const RUNS_KEPT: usize = 8;
/// The number of a run that is made by the batch at hand.
const UNMADE: i64 = 0;

/// What the writer remembers between commits.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// How often the database has been opened: the upper half of every epoch.
    pub(crate) boot: u64,
    /// How often a thread was claimed since: the lower half.
    pub(crate) claims: u64,
    /// The newest epoch of every thread that was claimed since the database was opened, by the thread's number.
    pub(crate) epochs: HashMap<i64, Epoch>,
    /// Threads as the transaction has them.
    pub(crate) live: HashMap<ThreadId, Live>,
    /// The row that comes next.
    pub(crate) next_pos: i64,
    /// Where durable rows lie.
    pub(crate) index: Arc<Index>,
    /// Runs whose rows have to move.
    pub(crate) ended: VecDeque<Ended>,
    /// Rows that nobody reads any more.
    pub(crate) dead: Dead,
    /// Threads whose rows cannot move, for they are damaged.
    pub(crate) unmovable: HashSet<i64>,
    /// The most rows that an inbox takes.
    pub(crate) inbox_rows_max: usize,
    /// Submissions since old idempotency keys were last forgotten.
    pub(crate) submissions: u32,
}

/// A thread as the transaction has it.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    pub(crate) num: i64,
    owner: UserId,
    head: Seq,
    damaged: Option<Seq>,
    /// The runs that were met.
    runs: Vec<LiveRun>,
}

#[derive(Clone, Debug)]
struct LiveRun {
    id: TaskId,
    num: i64,
    status: TaskStatus,
}

impl Live {
    /// The number of a run that was met.
    fn run_num(&self, id: &TaskId) -> i64 {
        self.runs.iter().find(|run| run.id == *id).map_or(0, |run| run.num)
    }
}

/// One transaction.
pub(crate) struct Group<'a> {
    pub(crate) conn: &'a Connection,
    pub(crate) state: &'a mut State,
    /// What is true once it is committed.
    pub(crate) news: Vec<News>,
    /// Runs that end with it.
    pub(crate) ended: Vec<Ended>,
    /// What it writes.
    pub(crate) records: u64,
    /// And how much that is.
    pub(crate) bytes: u64,
    /// Was anything deleted that somebody has said?
    pub(crate) deleted: bool,
}

impl<'a> Group<'a> {
    /// Begins with nothing.
    pub(crate) fn new(conn: &'a Connection, state: &'a mut State) -> Self {
        if state.live.len() > LIVE_MAX {
            state.live.clear();
        }
        Self { conn, state, news: Vec::new(), ended: Vec::new(), records: 0, bytes: 0, deleted: false }
    }

    /// Does what is asked. An error is the transaction's end.
    pub(crate) fn apply(&mut self, op: Op) -> Result<Answer, (Op, rusqlite::Error)> {
        // Whoever asked must get an answer also when this fails: the question survives the error.
        macro_rules! answer {
            ($reply:ident, $value:expr, $op:expr) => {
                match $value {
                    Ok(value) => Ok(held($reply, value)),
                    Err(error) => Err(($op($reply), error)),
                }
            };
        }
        match op {
            Op::Append { batch, flaw, landed, reply } => match self.append(&batch, flaw.as_deref()) {
                Ok(verdict) => Ok(held_for(|verdict| landed.call(verdict), reply, verdict)),
                Err(error) => Err((Op::Append { batch, flaw, landed, reply }, error)),
            },
            Op::Claim { owner, thread, reply } => {
                answer!(reply, self.claim(&owner, &thread), |reply| Op::Claim { owner, thread, reply })
            }
            Op::Head { thread, reply } => {
                answer!(reply, self.head(&thread), |reply| Op::Head { thread, reply })
            }
            Op::Submit { owner, submission, reply } => {
                answer!(reply, self.submit(&owner, &submission), |reply| Op::Submit { owner, submission, reply })
            }
            Op::Delete { owner, thread, reply } => {
                answer!(reply, self.delete(&owner, &thread), |reply| Op::Delete { owner, thread, reply })
            }
            Op::CreateKey { key, reply } => {
                answer!(reply, self.create_key(&key), |reply| Op::CreateKey { key, reply })
            }
            Op::RevokeKey { id, at, reply } => {
                answer!(reply, self.revoke_key(&id, at), |reply| Op::RevokeKey { id, at, reply })
            }
            Op::KeepDefinitions { kept, reply } => {
                answer!(reply, self.keep_definitions(&kept.0, &kept.1), |reply| Op::KeepDefinitions { kept, reply })
            }
            Op::GiveName { owner, row, reply } => {
                answer!(reply, self.give_name(&owner, &row), |reply| Op::GiveName { owner, row, reply })
            }
            Op::CreateShare { share, reply } => {
                answer!(reply, self.create_share(&share), |reply| Op::CreateShare { share, reply })
            }
            Op::RevokeShare { which, at, reply } => {
                answer!(reply, self.revoke_share(&which, at), |reply| Op::RevokeShare { which, at, reply })
            }
            Op::ChangeName { place, note, reply } => {
                let changed = self.change_name(&place, note.as_deref());
                answer!(reply, changed, |reply| Op::ChangeName { place, note, reply })
            }
            Op::ExpectFile { place, at, reply } => {
                answer!(reply, self.expect_file(&place, at), |reply| Op::ExpectFile { place, at, reply })
            }
            Op::PutFile { file, bytes_max, reply } => {
                answer!(reply, self.put_file(&file, bytes_max), |reply| Op::PutFile { file, bytes_max, reply })
            }
            Op::PutBlob { blob, bytes_max, reply } => {
                answer!(reply, self.put_blob(&blob, bytes_max), |reply| Op::PutBlob { blob, bytes_max, reply })
            }
            Op::UseFile { wanted, reply } => {
                answer!(reply, self.use_file(&wanted), |reply| Op::UseFile { wanted, reply })
            }
            Op::DeleteFile { place, reply } => {
                answer!(reply, self.delete_file(&place), |reply| Op::DeleteFile { place, reply })
            }
            // The loop itself sees to that.
            Op::Close { reply } => Ok(Box::new(move |_| drop(reply))),
        }
    }

    fn claim(&mut self, owner: &UserId, thread: &ThreadId) -> rusqlite::Result<Result<Lease, StoreError>> {
        let live = match self.live(thread) {
            Ok(live) => live.filter(|live| live.owner == *owner),
            Err(error) if rows::is_damage(&error) => return Ok(Err(rows::fault(&error, thread, Seq(1)))),
            Err(error) => return Err(error),
        };
        let Some(live) = live else { return Ok(Err(StoreError::ThreadNotFound)) };
        if let Some(seq) = live.damaged {
            self.keep(thread, live);
            return Ok(Err(StoreError::Corrupt { thread: thread.clone(), seq }));
        }
        let lease = self.lease(&live);
        self.keep(thread, live);
        Ok(Ok(lease))
    }

    /// A new term.
    fn lease(&mut self, live: &Live) -> Lease {
        self.state.claims += 1;
        let epoch = Epoch((self.state.boot << 32).saturating_add(self.state.claims));
        self.state.epochs.insert(live.num, epoch);
        Lease { epoch, head: live.head }
    }

    /// A thread was made: its first term is its maker's.
    pub(crate) fn make(&mut self, thread: &ThreadId, num: i64, owner: &UserId) -> Lease {
        let live = Live { num, owner: owner.clone(), head: Seq::ZERO, damaged: None, runs: Vec::new() };
        let lease = self.lease(&live);
        self.keep(thread, live);
        self.news.push(News::Made { thread: thread.clone(), num, owner: owner.clone() });
        lease
    }

    fn head(&mut self, thread: &ThreadId) -> rusqlite::Result<Result<Seq, StoreError>> {
        let Some(live) = self.live(thread)? else { return Ok(Err(StoreError::ThreadNotFound)) };
        let (head, damaged) = (live.head, live.damaged);
        self.keep(thread, live);
        Ok(damaged.map_or(Ok(head), |seq| Err(StoreError::Corrupt { thread: thread.clone(), seq })))
    }

    fn append(&mut self, batch: &AppendBatch, flaw: Option<&str>) -> rusqlite::Result<AppendOutcome> {
        let Some(mut live) = self.live(&batch.thread)?.filter(|live| live.owner == batch.owner) else {
            return Ok(AppendOutcome::Rejected(admit::NO_THREAD.to_owned()));
        };
        let verdict = match self.judge(&mut live, batch, flaw)? {
            Ok(()) => {
                self.write(&mut live, batch)?;
                AppendOutcome::Durable
            }
            Err(verdict) => verdict,
        };
        self.keep(&batch.thread, live);
        Ok(verdict)
    }

    /// Does the batch fit? If so, the thread's runs are as they are after it.
    fn judge(
        &self,
        live: &mut Live,
        batch: &AppendBatch,
        flaw: Option<&str>,
    ) -> rusqlite::Result<Result<(), AppendOutcome>> {
        if let Err(verdict) = admit::standing(self.state.epochs.get(&live.num).copied(), live.head, batch) {
            return Ok(Err(verdict));
        }
        if let Some(flaw) = flaw {
            return Ok(Err(AppendOutcome::Rejected(flaw.to_owned())));
        }
        let mut met: Option<&TaskId> = None;
        for id in admit::named(batch).chain(batch.changes.iter().filter_map(admit::run_of)) {
            if met != Some(id) && !self.meet(live, id)? {
                return Ok(Err(admit::unknown_run(id)));
            }
            met = Some(id);
        }
        let moved = if batch.changes.is_empty() { None } else { Some(self.moved(live, batch)?) };
        let runs = match &moved {
            None => &live.runs,
            Some(Ok(runs)) => runs,
            Some(Err(verdict)) => return Ok(Err(verdict.clone())),
        };
        let mut met: Option<&TaskId> = None;
        for id in admit::named(batch) {
            if met != Some(id) && !runs.iter().any(|run| run.id == *id) {
                return Ok(Err(admit::unknown_run(id)));
            }
            met = Some(id);
        }
        if let Err(verdict) = self.judge_questions(live.num, batch)? {
            return Ok(Err(verdict));
        }
        if let Some(Ok(runs)) = moved {
            live.runs = runs;
        }
        Ok(Ok(()))
    }

    /// The thread's runs as they are after the batch's changes.
    fn moved(&self, live: &Live, batch: &AppendBatch) -> rusqlite::Result<Result<Vec<LiveRun>, AppendOutcome>> {
        let mut runs = live.runs.clone();
        for change in &batch.changes {
            if let DirectoryChange::ConsumeInboxRow { row } = change
                && !self.waits(live.num, *row)?
            {
                return Ok(Err(admit::unknown_row(*row)));
            }
            let Some(id) = admit::run_of(change) else { continue };
            let run = runs.iter_mut().find(|run| run.id == *id);
            match (admit::moved(run.as_deref().map(|run| run.status), id, change), run) {
                (Ok(status), Some(run)) => run.status = status,
                (Ok(status), None) => runs.push(LiveRun { id: id.clone(), num: UNMADE, status }),
                (Err(verdict), _) => return Ok(Err(verdict)),
            }
        }
        Ok(Ok(runs))
    }

    fn write(&mut self, live: &mut Live, batch: &AppendBatch) -> rusqlite::Result<()> {
        self.make_runs(live, batch)?;
        let first = self.state.next_pos;
        let mut insert = self.conn.prepare_cached(rows::INSERT)?;
        for record in batch.records.iter() {
            let run = live.run_num(&record.run);
            let private = (!record.private.is_empty()).then_some(&record.private[..]);
            insert.execute((
                self.state.next_pos,
                live.num,
                run,
                record.seq.0.cast_signed(),
                record.at.cast_signed(),
                record.epoch.0.cast_signed(),
                record.format,
                record.checksum,
                &record.public[..],
                private,
            ))?;
            self.state.next_pos += 1;
            self.records += 1;
            self.bytes += record.size_bytes() as u64;
        }
        for change in &batch.changes {
            self.change(live, change)?;
            match change {
                DirectoryChange::RunStatus { status, last, .. } if status.is_terminal() => {
                    self.ended.push(Ended { thread: batch.thread.clone(), num: live.num, last: *last });
                }
                // It leaves no rows: where it was all that its thread had, there are none to remember the place of.
                DirectoryChange::RunDropped { .. } => {
                    self.news.push(News::Moved { thread: batch.thread.clone(), last: Seq::ZERO });
                }
                _ => {}
            }
        }
        let count = batch.records.len() as u64;
        if count > 0 {
            let extent = Extent { seq: live.head.next().0, pos: first, count };
            live.head = live.head.plus(count);
            let (thread, owner) = (batch.thread.clone(), live.owner.clone());
            self.news.push(News::Appended { thread, num: live.num, owner, extent });
        }
        Ok(())
    }

    /// Makes the runs that begin without having been queued.
    fn make_runs(&self, live: &mut Live, batch: &AppendBatch) -> rusqlite::Result<()> {
        for change in &batch.changes {
            let DirectoryChange::RunStarted { run, agent, at, .. } = change else { continue };
            let Some(run) = live.runs.iter_mut().find(|known| known.id == *run && known.num == UNMADE) else {
                continue;
            };
            let sql = "INSERT INTO runs (id, owner, thread, agent, status, created_at)
                       VALUES (?1, ?2, ?3, ?4, 'queued', ?5)";
            let mut insert = self.conn.prepare_cached(sql)?;
            let (id, owner) = (run.id.as_str(), live.owner.as_str());
            run.num = insert.insert((id, owner, live.num, agent, at.cast_signed()))?;
        }
        Ok(())
    }

    fn change(&self, live: &Live, change: &DirectoryChange) -> rusqlite::Result<()> {
        let (thread, num) = (live.num, |id: &TaskId| live.run_num(id));
        let touched = |at: i64| {
            let mut touch = self.conn.prepare_cached("UPDATE threads SET updated_at = ?2 WHERE num = ?1")?;
            touch.execute((thread, at)).map(drop)
        };
        match change {
            DirectoryChange::RunStarted { run, agent, first, at } => {
                let sql = "UPDATE runs SET status = 'running', agent = ?2, first = ?3, last = ?3 WHERE num = ?1";
                self.conn.prepare_cached(sql)?.execute((num(run), agent, first.0.cast_signed()))?;
                touched(at.cast_signed())
            }
            DirectoryChange::RunStatus { run, status, last, at } => {
                let ended = status.is_terminal().then_some(at.cast_signed());
                let sql = "UPDATE runs SET status = ?2, last = ?3, ended_at = ?4 WHERE num = ?1";
                let mut update = self.conn.prepare_cached(sql)?;
                update.execute((num(run), status.as_str(), last.0.cast_signed(), ended))?;
                ended.map_or(Ok(()), touched)
            }
            DirectoryChange::RunDropped { run, at } => {
                let sql = "UPDATE runs SET status = 'cancelled', ended_at = ?2 WHERE num = ?1";
                self.conn.prepare_cached(sql)?.execute((num(run), at.cast_signed()))?;
                touched(at.cast_signed())
            }
            DirectoryChange::ConsumeInboxRow { row } => {
                let mut consume = self.conn.prepare_cached("DELETE FROM inbox WHERE id = ?1")?;
                consume.execute([row.cast_signed()]).map(drop)
            }
            DirectoryChange::Checkpoint(new) => {
                let sql = "INSERT INTO checkpoints VALUES (?1, ?2, ?3)
                           ON CONFLICT (thread) DO UPDATE SET seq = excluded.seq, body = excluded.body";
                self.conn.prepare_cached(sql)?.execute((thread, new.seq.0.cast_signed(), &new.body)).map(drop)
            }
            DirectoryChange::ApprovalRequested(question) => self.ask(&live.owner, thread, question),
            DirectoryChange::ApprovalResolved { key, decision, by, at } => {
                self.answer(&live.owner, key, &ApprovalAnswer { decision: decision.clone(), by: *by, at: *at })
            }
            DirectoryChange::AddSpend { day, spent } => spent::add(self.conn, &live.owner, *day, *spent),
            DirectoryChange::ScheduleWakeup { at } => {
                let mut wake = self.conn.prepare_cached("UPDATE threads SET wake_at = ?2 WHERE num = ?1")?;
                wake.execute((thread, at.map(u64::cast_signed))).map(drop)
            }
        }
    }

    /// Takes a thread out of the cache, or out of the tables. [`Self::keep`] puts it back.
    pub(crate) fn live(&mut self, thread: &ThreadId) -> rusqlite::Result<Option<Live>> {
        if let Some(live) = self.state.live.remove(thread) {
            return Ok(Some(live));
        }
        let Some((num, owner)) = page::thread(self.conn, thread)? else { return Ok(None) };
        let published = self.state.index.plan(thread, Seq::ZERO, 0).filter(|plan| plan.num == num);
        let (head, damaged) = match published {
            Some(plan) => (plan.head, plan.damaged),
            None => page::settled_head(self.conn, num)?,
        };
        Ok(Some(Live { num, owner: UserId::from(owner), head, damaged, runs: Vec::new() }))
    }

    fn keep(&mut self, thread: &ThreadId, mut live: Live) {
        if live.runs.len() > RUNS_KEPT {
            // Runs that ended are rarely met again.
            live.runs.retain(|run| !run.status.is_terminal());
        }
        self.state.live.insert(thread.clone(), live);
    }

    /// Remembers a run of the thread, if there is one of that name; false when another thread has it.
    fn meet(&self, live: &mut Live, id: &TaskId) -> rusqlite::Result<bool> {
        if live.runs.iter().any(|run| run.id == *id) {
            return Ok(true);
        }
        let mut select =
            self.conn.prepare_cached("SELECT num, status, thread FROM runs WHERE owner = ?1 AND id = ?2")?;
        let found = select.query_row((live.owner.as_str(), id.as_str()), |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)?))
        });
        let Some((num, status, thread)) = found.optional()? else { return Ok(true) };
        let Some(status) = TaskStatus::parse(&status).filter(|_| thread == live.num) else { return Ok(false) };
        live.runs.push(LiveRun { id: id.clone(), num, status });
        Ok(true)
    }

    fn waits(&self, thread: i64, row: u64) -> rusqlite::Result<bool> {
        self.conn
            .prepare_cached("SELECT 1 FROM inbox WHERE id = ?1 AND thread = ?2")?
            .exists((row.cast_signed(), thread))
    }
}
