//! What one transaction does: any number of questions, each with a verdict of its own.
//!
//! A batch is judged before a byte of it is written, against the tables as the transaction has them so far. So a batch
//! that does not fit costs its neighbours nothing, and only an error of SQLite itself ends the transaction for all.
//! [`State`] runs ahead of the commit; it is a cache, and forgotten when a commit fails. `submit` has the directory's side.

use super::dead_rows::DeadRows;
use super::page;
use super::record_blocks::EndedRun;
use super::record_index::{Extent, IndexUpdate, RecordIndex};
use super::record_row;
use super::spend;
use super::write_op::{PendingReply, WriteOp, notify_and_reply_after_commit, reply_after_commit};
use crate::validation;
use model::ports::{AppendBatch, AppendOutcome, ApprovalAnswer, DirectoryChange, Lease, StoreError};
use model::seq::{Epoch, Seq};
use model::task::TaskStatus;
use model::{TaskId, ThreadId, UserId};
use rusqlite::{Connection, OptionalExtension};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// So many threads are remembered between commits. What is forgotten is read again.
const CACHED_THREADS_MAX: usize = 16_384;
/// And about so many runs of each.
const CACHED_RUNS_MAX: usize = 8;
/// The number of a run that is made by the batch at hand.
const RUN_NOT_INSERTED: i64 = 0;

/// What the writer remembers between commits.
#[derive(Debug, Default)]
pub(crate) struct WriterState {
    /// How often the database has been opened: the upper half of every epoch.
    pub(crate) boot: u64,
    /// How often a thread was claimed since: the lower half.
    pub(crate) claims: u64,
    /// The newest epoch of every thread that was claimed since the database was opened, by the thread's number.
    pub(crate) epochs: HashMap<i64, Epoch>,
    /// Threads as the transaction has them.
    pub(crate) threads: HashMap<ThreadId, CachedThread>,
    /// The row that comes next.
    pub(crate) next_pos: i64,
    /// Where durable rows lie.
    pub(crate) index: Arc<RecordIndex>,
    /// Runs whose rows have to move.
    pub(crate) ended_runs: VecDeque<EndedRun>,
    /// Rows that nobody reads any more.
    pub(crate) dead_rows: DeadRows,
    /// Threads whose rows cannot move, for they are damaged.
    pub(crate) unpackable_threads: HashSet<i64>,
    /// The most rows that an inbox takes.
    pub(crate) inbox_rows_max: usize,
    /// Submissions since old idempotency keys were last forgotten.
    pub(crate) submissions_since_expiry: u32,
}

/// A thread as the transaction has it.
#[derive(Clone, Debug)]
pub(crate) struct CachedThread {
    pub(crate) num: i64,
    owner: UserId,
    head: Seq,
    damaged_at: Option<Seq>,
    /// The runs that were met.
    runs: Vec<CachedRun>,
}

#[derive(Clone, Debug)]
struct CachedRun {
    id: TaskId,
    num: i64,
    status: TaskStatus,
}

impl CachedThread {
    /// The number of a run that was met.
    fn run_num(&self, id: &TaskId) -> i64 {
        self.runs.iter().find(|run| run.id == *id).map_or(0, |run| run.num)
    }
}

/// One transaction.
pub(crate) struct WriteTransaction<'a> {
    pub(crate) conn: &'a Connection,
    pub(crate) state: &'a mut WriterState,
    /// What is true once it is committed.
    pub(crate) index_updates: Vec<IndexUpdate>,
    /// Runs that end with it.
    pub(crate) ended_runs: Vec<EndedRun>,
    /// What it writes.
    pub(crate) records: u64,
    /// And how much that is.
    pub(crate) bytes: u64,
    /// Was anything deleted that somebody has said?
    pub(crate) has_deleted_content: bool,
}

impl<'a> WriteTransaction<'a> {
    /// Begins with nothing.
    pub(crate) fn new(conn: &'a Connection, state: &'a mut WriterState) -> Self {
        if state.threads.len() > CACHED_THREADS_MAX {
            state.threads.clear();
        }
        Self {
            conn,
            state,
            index_updates: Vec::new(),
            ended_runs: Vec::new(),
            records: 0,
            bytes: 0,
            has_deleted_content: false,
        }
    }

    /// Does what is asked. An error is the transaction's end.
    pub(crate) fn apply(&mut self, op: WriteOp) -> Result<PendingReply, (WriteOp, rusqlite::Error)> {
        // Whoever asked must get an answer also when this fails: the question survives the error.
        macro_rules! answer {
            ($reply:ident, $value:expr, $op:expr) => {
                match $value {
                    Ok(value) => Ok(reply_after_commit($reply, value)),
                    Err(error) => Err(($op($reply), error)),
                }
            };
        }
        match op {
            WriteOp::Append { batch, invalid_reason: flaw, on_commit: landed, reply } => match self
                .append(&batch, flaw.as_deref())
            {
                Ok(verdict) => Ok(notify_and_reply_after_commit(|verdict| landed.call(verdict), reply, verdict)),
                Err(error) => Err((WriteOp::Append { batch, invalid_reason: flaw, on_commit: landed, reply }, error)),
            },
            WriteOp::Claim { owner, thread, reply } => {
                answer!(reply, self.claim(&owner, &thread), |reply| WriteOp::Claim { owner, thread, reply })
            }
            WriteOp::CheckHead { thread, reply } => {
                answer!(reply, self.checked_head(&thread), |reply| WriteOp::CheckHead { thread, reply })
            }
            WriteOp::Submit { owner, submission, reply } => {
                answer!(reply, self.submit(&owner, &submission), |reply| WriteOp::Submit { owner, submission, reply })
            }
            WriteOp::DeleteThread { owner, thread, reply } => {
                answer!(reply, self.delete_thread(&owner, &thread), |reply| WriteOp::DeleteThread {
                    owner,
                    thread,
                    reply
                })
            }
            WriteOp::CreateAccessKey { key, reply } => {
                answer!(reply, self.create_access_key(&key), |reply| WriteOp::CreateAccessKey { key, reply })
            }
            WriteOp::RevokeAccessKey { id, at, reply } => {
                answer!(reply, self.revoke_access_key(&id, at), |reply| WriteOp::RevokeAccessKey { id, at, reply })
            }
            WriteOp::StoreDefinitions { definitions: kept, reply } => {
                answer!(reply, self.store_definitions(&kept.0, &kept.1), |reply| WriteOp::StoreDefinitions {
                    definitions: kept,
                    reply
                })
            }
            WriteOp::CreateAlias { owner, row, reply } => {
                answer!(reply, self.create_alias(&owner, &row), |reply| WriteOp::CreateAlias { owner, row, reply })
            }
            WriteOp::CreateShare { share, reply } => {
                answer!(reply, self.create_share(&share), |reply| WriteOp::CreateShare { share, reply })
            }
            WriteOp::RevokeShare { key: which, at, reply } => {
                answer!(reply, self.revoke_share(&which, at), |reply| WriteOp::RevokeShare { key: which, at, reply })
            }
            WriteOp::ChangeAlias { key: place, note, reply } => {
                let changed = self.change_alias(&place, note.as_deref());
                answer!(reply, changed, |reply| WriteOp::ChangeAlias { key: place, note, reply })
            }
            WriteOp::ReserveAttachment { key: place, at, reply } => {
                answer!(reply, self.reserve_attachment(&place, at), |reply| WriteOp::ReserveAttachment {
                    key: place,
                    at,
                    reply
                })
            }
            WriteOp::CommitAttachment { file, bytes_max, reply } => {
                answer!(reply, self.commit_attachment(&file, bytes_max), |reply| WriteOp::CommitAttachment {
                    file,
                    bytes_max,
                    reply
                })
            }
            WriteOp::CommitBlob { blob, bytes_max, reply } => {
                answer!(reply, self.commit_blob(&blob, bytes_max), |reply| WriteOp::CommitBlob {
                    blob,
                    bytes_max,
                    reply
                })
            }
            WriteOp::LinkAttachment { link: wanted, reply } => {
                answer!(reply, self.link_attachment(&wanted), |reply| WriteOp::LinkAttachment { link: wanted, reply })
            }
            WriteOp::DeleteAttachment { key: place, reply } => {
                answer!(reply, self.delete_attachment(&place), |reply| WriteOp::DeleteAttachment { key: place, reply })
            }
            // The loop itself sees to that.
            WriteOp::Close { reply } => Ok(Box::new(move |_| drop(reply))),
        }
    }

    fn claim(&mut self, owner: &UserId, thread: &ThreadId) -> rusqlite::Result<Result<Lease, StoreError>> {
        let live = match self.take_thread(thread) {
            Ok(live) => live.filter(|live| live.owner == *owner),
            Err(error) if record_row::is_corruption(&error) => {
                return Ok(Err(record_row::read_error(&error, thread, Seq(1))));
            }
            Err(error) => return Err(error),
        };
        let Some(live) = live else { return Ok(Err(StoreError::ThreadNotFound)) };
        if let Some(seq) = live.damaged_at {
            self.cache_thread(thread, live);
            return Ok(Err(StoreError::Corrupt { thread: thread.clone(), seq }));
        }
        let lease = self.new_lease(&live);
        self.cache_thread(thread, live);
        Ok(Ok(lease))
    }

    /// A new term.
    fn new_lease(&mut self, live: &CachedThread) -> Lease {
        self.state.claims += 1;
        let epoch = Epoch((self.state.boot << 32).saturating_add(self.state.claims));
        self.state.epochs.insert(live.num, epoch);
        Lease { epoch, head: live.head }
    }

    /// A thread was made: its first term is its maker's.
    pub(crate) fn claim_new_thread(&mut self, thread: &ThreadId, num: i64, owner: &UserId) -> Lease {
        let live = CachedThread { num, owner: owner.clone(), head: Seq::ZERO, damaged_at: None, runs: Vec::new() };
        let lease = self.new_lease(&live);
        self.cache_thread(thread, live);
        self.index_updates.push(IndexUpdate::ThreadCreated { thread: thread.clone(), num, owner: owner.clone() });
        lease
    }

    fn checked_head(&mut self, thread: &ThreadId) -> rusqlite::Result<Result<Seq, StoreError>> {
        let Some(live) = self.take_thread(thread)? else { return Ok(Err(StoreError::ThreadNotFound)) };
        let (head, damaged) = (live.head, live.damaged_at);
        self.cache_thread(thread, live);
        Ok(damaged.map_or(Ok(head), |seq| Err(StoreError::Corrupt { thread: thread.clone(), seq })))
    }

    fn append(&mut self, batch: &AppendBatch, flaw: Option<&str>) -> rusqlite::Result<AppendOutcome> {
        let Some(mut live) = self.take_thread(&batch.thread)?.filter(|live| live.owner == batch.owner) else {
            return Ok(AppendOutcome::Rejected(validation::THREAD_NOT_FOUND.to_owned()));
        };
        let verdict = match self.check_batch(&mut live, batch, flaw)? {
            Ok(()) => {
                self.write_batch(&mut live, batch)?;
                AppendOutcome::Durable
            }
            Err(verdict) => verdict,
        };
        self.cache_thread(&batch.thread, live);
        Ok(verdict)
    }

    /// Does the batch fit? If so, the thread's runs are as they are after it.
    fn check_batch(
        &self,
        live: &mut CachedThread,
        batch: &AppendBatch,
        flaw: Option<&str>,
    ) -> rusqlite::Result<Result<(), AppendOutcome>> {
        if let Err(verdict) = validation::check_epoch(self.state.epochs.get(&live.num).copied(), live.head, batch) {
            return Ok(Err(verdict));
        }
        if let Some(flaw) = flaw {
            return Ok(Err(AppendOutcome::Rejected(flaw.to_owned())));
        }
        let mut met: Option<&TaskId> = None;
        for id in validation::runs_in_batch(batch).chain(batch.changes.iter().filter_map(validation::changed_run)) {
            if met != Some(id) && !self.load_run(live, id)? {
                return Ok(Err(validation::unknown_run(id)));
            }
            met = Some(id);
        }
        let moved = if batch.changes.is_empty() { None } else { Some(self.runs_after_batch(live, batch)?) };
        let runs = match &moved {
            None => &live.runs,
            Some(Ok(runs)) => runs,
            Some(Err(verdict)) => return Ok(Err(verdict.clone())),
        };
        let mut met: Option<&TaskId> = None;
        for id in validation::runs_in_batch(batch) {
            if met != Some(id) && !runs.iter().any(|run| run.id == *id) {
                return Ok(Err(validation::unknown_run(id)));
            }
            met = Some(id);
        }
        if let Err(verdict) = self.check_approvals(live.num, batch)? {
            return Ok(Err(verdict));
        }
        if let Some(Ok(runs)) = moved {
            live.runs = runs;
        }
        Ok(Ok(()))
    }

    /// The thread's runs as they are after the batch's changes.
    fn runs_after_batch(
        &self,
        live: &CachedThread,
        batch: &AppendBatch,
    ) -> rusqlite::Result<Result<Vec<CachedRun>, AppendOutcome>> {
        let mut runs = live.runs.clone();
        for change in &batch.changes {
            if let DirectoryChange::ConsumeInboxRow { row } = change
                && !self.is_in_inbox(live.num, *row)?
            {
                return Ok(Err(validation::unknown_inbox_row(*row)));
            }
            let Some(id) = validation::changed_run(change) else { continue };
            let run = runs.iter_mut().find(|run| run.id == *id);
            match (validation::next_run_status(run.as_deref().map(|run| run.status), id, change), run) {
                (Ok(status), Some(run)) => run.status = status,
                (Ok(status), None) => runs.push(CachedRun { id: id.clone(), num: RUN_NOT_INSERTED, status }),
                (Err(verdict), _) => return Ok(Err(verdict)),
            }
        }
        Ok(Ok(runs))
    }

    fn write_batch(&mut self, live: &mut CachedThread, batch: &AppendBatch) -> rusqlite::Result<()> {
        self.insert_started_runs(live, batch)?;
        let first = self.state.next_pos;
        let mut insert = self.conn.prepare_cached(record_row::INSERT_RECORD)?;
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
            self.apply_change(live, change)?;
            match change {
                DirectoryChange::RunStatus { status, last, .. } if status.is_terminal() => {
                    self.ended_runs.push(EndedRun { thread: batch.thread.clone(), num: live.num, last: *last });
                }
                // It leaves no rows: where it was all that its thread had, there are none to remember the place of.
                DirectoryChange::RunDropped { .. } => {
                    self.index_updates.push(IndexUpdate::Packed { thread: batch.thread.clone(), last: Seq::ZERO });
                }
                _ => {}
            }
        }
        let count = batch.records.len() as u64;
        if count > 0 {
            let extent = Extent { seq: live.head.next().0, pos: first, count };
            live.head = live.head.plus(count);
            let (thread, owner) = (batch.thread.clone(), live.owner.clone());
            self.index_updates.push(IndexUpdate::Appended { thread, num: live.num, owner, extent });
        }
        Ok(())
    }

    /// Makes the runs that begin without having been queued.
    fn insert_started_runs(&self, live: &mut CachedThread, batch: &AppendBatch) -> rusqlite::Result<()> {
        for change in &batch.changes {
            let DirectoryChange::RunStarted { run, agent, at, .. } = change else { continue };
            let Some(run) = live.runs.iter_mut().find(|known| known.id == *run && known.num == RUN_NOT_INSERTED) else {
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

    fn apply_change(&self, live: &CachedThread, change: &DirectoryChange) -> rusqlite::Result<()> {
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
            DirectoryChange::ApprovalRequested(question) => self.open_approval(&live.owner, thread, question),
            DirectoryChange::ApprovalResolved { key, decision, by, at } => {
                self.close_approval(&live.owner, key, &ApprovalAnswer { decision: decision.clone(), by: *by, at: *at })
            }
            DirectoryChange::AddSpend { day, spent } => spend::add_spend(self.conn, &live.owner, *day, *spent),
            DirectoryChange::ScheduleWakeup { at } => {
                let mut wake = self.conn.prepare_cached("UPDATE threads SET wake_at = ?2 WHERE num = ?1")?;
                wake.execute((thread, at.map(u64::cast_signed))).map(drop)
            }
        }
    }

    /// Takes a thread out of the cache, or out of the tables. [`Self::keep`] puts it back.
    pub(crate) fn take_thread(&mut self, thread: &ThreadId) -> rusqlite::Result<Option<CachedThread>> {
        if let Some(live) = self.state.threads.remove(thread) {
            return Ok(Some(live));
        }
        let Some((num, owner)) = page::find_thread(self.conn, thread)? else { return Ok(None) };
        let published = self.state.index.read_plan(thread, Seq::ZERO, 0).filter(|plan| plan.num == num);
        let (head, damaged) = match published {
            Some(plan) => (plan.head, plan.damaged_at),
            None => page::head_from_blocks(self.conn, num)?,
        };
        Ok(Some(CachedThread { num, owner: UserId::from(owner), head, damaged_at: damaged, runs: Vec::new() }))
    }

    fn cache_thread(&mut self, thread: &ThreadId, mut live: CachedThread) {
        if live.runs.len() > CACHED_RUNS_MAX {
            // Runs that ended are rarely met again.
            live.runs.retain(|run| !run.status.is_terminal());
        }
        self.state.threads.insert(thread.clone(), live);
    }

    /// Remembers a run of the thread, if there is one of that name; false when another thread has it.
    fn load_run(&self, live: &mut CachedThread, id: &TaskId) -> rusqlite::Result<bool> {
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
        live.runs.push(CachedRun { id: id.clone(), num, status });
        Ok(true)
    }

    fn is_in_inbox(&self, thread: i64, row: u64) -> rusqlite::Result<bool> {
        self.conn
            .prepare_cached("SELECT 1 FROM inbox WHERE id = ?1 AND thread = ?2")?
            .exists((row.cast_signed(), thread))
    }
}
