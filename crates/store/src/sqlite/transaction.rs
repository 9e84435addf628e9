//! A transaction of the writer: a group of operations, each with its own outcome.
//!
//! A batch is checked against the state of the transaction before any of it is written. A rejected batch therefore does
//! not affect the others; only an SQLite error rolls back the group. [`WriterState`] is a cache that is updated before
//! the commit and cleared when the commit fails.

use super::dead_rows::DeadRows;
use super::log_size::LogSizeCount;
use super::record_index::{Extent, IndexUpdate, PackRequest, RecordIndex};
use super::record_row;
use super::record_tails::RecordTails;
use super::released_threads::ReleasedThreads;
use super::{checkpoints, client_results, page, questions, spend};
use crate::block_coding::{BlockCompressor, record_bytes_in_block};
use foldhash::HashMap;
use model::condense::CondenseRecords;
use model::defects::Defect;
use model::ports::validation;
use model::ports::{AppendBatch, AppendOutcome, ApprovalAnswer, ClaimOutcome, DirectoryChange, Lease, StoreError};
use model::seq::{Epoch, Seq};
use model::task::TaskStatus;
use model::{TaskId, ThreadId, UserId};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Params};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

/// Maximum number of threads cached between commits.
const CACHED_THREADS_MAX: usize = 16_384;
/// Approximate maximum number of cached runs per thread.
const CACHED_RUNS_MAX: usize = 8;
/// A larger row is not kept for the next one.
const ROW_DATA_KEPT: usize = 64 * 1024;
/// Placeholder for the number of a run that the current batch creates.
const RUN_NOT_INSERTED: i64 = 0;

pub(super) const INSERT_QUEUED_RUN: &str = "INSERT INTO runs (id, owner, thread, agent, status, created_at)
                                            VALUES (?1, ?2, ?3, ?4, 'queued', ?5)";

/// The writer's state between commits.
#[derive(Debug, Default)]
pub(crate) struct WriterState {
    /// Number of times that the database was opened: the upper half of every epoch.
    pub(crate) boot: u64,
    /// Number of claims since then: the lower half.
    pub(crate) claims: u64,
    /// The newest epoch of every thread that was claimed since then, by the thread's number.
    pub(crate) epochs: HashMap<i64, Epoch>,
    /// Threads whose newest epoch may be over.
    pub(crate) released: Arc<ReleasedThreads>,
    pub(crate) threads: HashMap<ThreadId, CachedThread>,
    /// Position of the next row.
    pub(crate) next_pos: i64,
    /// Positions of durable rows.
    pub(crate) index: Arc<RecordIndex>,
    pub(crate) pack_queue: VecDeque<PackRequest>,
    /// Merges records for blocks; `None` writes none.
    pub(crate) condense: Option<CondenseRecords>,
    /// Whether rows of a long run arrive faster than they are packed.
    pub(crate) is_packing_overdue: bool,
    /// Records that are not packed yet, as far as there is memory for them.
    pub(crate) tails: RecordTails,
    pub(crate) compressor: BlockCompressor,
    /// The row that is being written. Kept, because every append needs it.
    pub(crate) row_data: Vec<u8>,
    pub(crate) dead_rows: DeadRows,
    /// Threads whose rows cannot be packed because they are damaged.
    pub(crate) unpackable_threads: HashSet<i64>,
    pub(crate) inbox_rows_max: usize,
    pub(crate) log_bytes_per_user_max: Option<u64>,
    pub(crate) log_count: LogSizeCount,
    /// Submissions since old idempotency keys were last deleted.
    pub(crate) submissions_since_expiry: u32,
}

/// A thread as the transaction sees it.
#[derive(Clone, Debug)]
pub(crate) struct CachedThread {
    pub(crate) num: i64,
    owner: UserId,
    head: Seq,
    damaged_at: Option<Seq>,
    runs: Vec<CachedRun>,
}

#[derive(Clone, Debug)]
struct CachedRun {
    id: TaskId,
    num: i64,
    status: TaskStatus,
}

impl CachedThread {
    fn run_num(&self, id: &TaskId) -> i64 {
        self.runs.iter().find(|run| run.id == *id).map_or(0, |run| run.num)
    }
}

/// Updates that the writer applies after the commit.
#[derive(Default)]
pub(crate) struct CommitEffects {
    pub(crate) index_updates: Vec<IndexUpdate>,
    /// Number and size of the records written.
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    /// Whether users' content was deleted, so that the write-ahead log has to be truncated.
    pub(crate) has_deleted_content: bool,
}

pub(crate) struct WriteTransaction<'a> {
    pub(crate) conn: &'a Connection,
    pub(crate) state: &'a mut WriterState,
    pub(crate) effects: CommitEffects,
    /// Taken from the cache of statements once for all batches.
    insert_record: Option<CachedStatement<'a>>,
}

impl<'a> WriteTransaction<'a> {
    pub(crate) fn new(conn: &'a Connection, state: &'a mut WriterState) -> Self {
        if state.threads.len() > CACHED_THREADS_MAX {
            state.threads.clear();
        }
        Self { conn, state, effects: CommitEffects::default(), insert_record: None }
    }

    pub(super) fn claim(
        &mut self,
        owner: &UserId,
        thread: &ThreadId,
    ) -> rusqlite::Result<Result<ClaimOutcome, StoreError>> {
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
        // One process holds the folder, so no other node can hold the thread.
        Ok(Ok(ClaimOutcome::Granted(lease)))
    }

    fn new_lease(&mut self, live: &CachedThread) -> Lease {
        self.state.claims += 1;
        let epoch = Epoch((self.state.boot << 32).saturating_add(self.state.claims));
        self.state.epochs.insert(live.num, epoch);
        Lease { epoch, head: live.head }
    }

    /// Grants the first lease of a thread that this transaction creates.
    pub(crate) fn claim_new_thread(&mut self, thread: &ThreadId, num: i64, owner: &UserId) -> Lease {
        let live = CachedThread { num, owner: owner.clone(), head: Seq::ZERO, damaged_at: None, runs: Vec::new() };
        self.claim_for_submission(thread, live)
    }

    /// Grants a lease, and readers find the end of the log in memory: there will be more of it soon.
    fn claim_for_submission(&mut self, thread: &ThreadId, live: CachedThread) -> Lease {
        let lease = self.new_lease(&live);
        let (num, owner, head) = (live.num, live.owner.clone(), live.head);
        self.effects.index_updates.push(IndexUpdate::ThreadClaimed { thread: thread.clone(), num, owner, head });
        self.cache_thread(thread, live);
        lease
    }

    /// Grants a lease if the thread's last executor has released it and nobody has claimed it since.
    pub(super) fn claim_released(&mut self, thread: &ThreadId, num: i64) -> rusqlite::Result<Option<Lease>> {
        let Some(epoch) = self.state.released.take(thread) else { return Ok(None) };
        if self.state.epochs.get(&num) != Some(&epoch) && !Defect::ReleaseOutlivesClaim.is_planted() {
            return Ok(None);
        }
        let live = match self.take_thread(thread) {
            Ok(Some(live)) => live,
            Ok(None) => return Ok(None),
            // The executor that claims it reports the damage.
            Err(error) if record_row::is_corruption(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        if live.damaged_at.is_some() {
            self.cache_thread(thread, live);
            return Ok(None);
        }
        Ok(Some(self.claim_for_submission(thread, live)))
    }

    pub(super) fn checked_head(&mut self, thread: &ThreadId) -> rusqlite::Result<Result<Seq, StoreError>> {
        let Some(live) = self.take_thread(thread)? else { return Ok(Err(StoreError::ThreadNotFound)) };
        let (head, damaged) = (live.head, live.damaged_at);
        self.cache_thread(thread, live);
        Ok(damaged.map_or(Ok(head), |seq| Err(StoreError::Corrupt { thread: thread.clone(), seq })))
    }

    pub(super) fn append(
        &mut self,
        batch: &AppendBatch,
        invalid_reason: Option<&str>,
    ) -> rusqlite::Result<AppendOutcome> {
        let Some(mut live) = self.take_thread(&batch.thread)?.filter(|live| live.owner == batch.owner) else {
            return Ok(AppendOutcome::Rejected(validation::THREAD_NOT_FOUND.to_owned()));
        };
        let verdict = match self.check_batch(&mut live, batch, invalid_reason)? {
            Ok(()) => {
                self.write_batch(&mut live, batch)?;
                AppendOutcome::Durable
            }
            Err(verdict) => verdict,
        };
        self.cache_thread(&batch.thread, live);
        Ok(verdict)
    }

    /// Checks the batch. On success, `live.runs` has the state after it.
    fn check_batch(
        &self,
        live: &mut CachedThread,
        batch: &AppendBatch,
        invalid_reason: Option<&str>,
    ) -> rusqlite::Result<Result<(), AppendOutcome>> {
        if let Err(verdict) = validation::check_epoch(self.state.epochs.get(&live.num).copied(), live.head, batch) {
            return Ok(Err(verdict));
        }
        if let Some(reason) = invalid_reason {
            return Ok(Err(AppendOutcome::Rejected(reason.to_owned())));
        }
        let mut last: Option<&TaskId> = None;
        for id in validation::runs_in_batch(batch).chain(batch.changes.iter().filter_map(validation::changed_run)) {
            if last != Some(id) && !self.load_run(live, id)? {
                return Ok(Err(validation::unknown_run(id)));
            }
            last = Some(id);
        }
        let runs_after = if batch.changes.is_empty() { None } else { Some(self.runs_after_batch(live, batch)?) };
        let runs = match &runs_after {
            None => &live.runs,
            Some(Ok(runs)) => runs,
            Some(Err(verdict)) => return Ok(Err(verdict.clone())),
        };
        let mut last: Option<&TaskId> = None;
        for id in validation::runs_in_batch(batch) {
            if last != Some(id) && !runs.iter().any(|run| run.id == *id) {
                return Ok(Err(validation::unknown_run(id)));
            }
            last = Some(id);
        }
        if let Err(verdict) = questions::check_approvals(self.conn, live.num, batch)? {
            return Ok(Err(verdict));
        }
        if let Some(Ok(runs)) = runs_after {
            live.runs = runs;
        }
        Ok(Ok(()))
    }

    /// The thread's runs after the batch's changes.
    fn runs_after_batch(
        &self,
        live: &CachedThread,
        batch: &AppendBatch,
    ) -> rusqlite::Result<Result<Vec<CachedRun>, AppendOutcome>> {
        let mut runs = live.runs.clone();
        for change in batch.changes.iter() {
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
        let (first, mut bytes) = (self.state.next_pos, 0);
        let insert = match &mut self.insert_record {
            Some(insert) => insert,
            unprepared => unprepared.insert(self.conn.prepare_cached(record_row::INSERT_RECORDS)?),
        };
        for records in batch.records.chunk_by(|one, next| one.run == next.run) {
            let run = records.first().map_or(0, |record| live.run_num(&record.run));
            let mut rest = records;
            while !rest.is_empty() {
                let row;
                (row, rest) = record_row::encode_row(rest, &mut self.state.row_data);
                let (seq, count) = (row.first().map_or(0, |first| first.seq.0.cast_signed()), row.len() as u64);
                self.state.next_pos = self.state.next_pos.saturating_add(count.cast_signed());
                let pos = self.state.next_pos - 1;
                insert.execute((pos, live.num, run, seq, count.cast_signed(), &self.state.row_data[..]))?;
                self.state.tails.push(live.num, run, row, &self.state.row_data, pos);
                bytes += record_bytes_in_block(self.state.row_data.len() as u64, count);
            }
        }
        self.state.row_data.shrink_to(ROW_DATA_KEPT);
        self.effects.records += batch.records.len() as u64;
        self.effects.bytes += bytes;
        for change in batch.changes.iter() {
            self.apply_change(live, change)?;
            // A dropped run has no rows: if the thread has no others, the index can remove its entry.
            if let DirectoryChange::RunDropped { .. } = change {
                let (thread, last) = (batch.thread.clone(), Seq::ZERO);
                self.effects.index_updates.push(IndexUpdate::Packed { thread, last, bytes: 0 });
            }
        }
        let count = batch.records.len() as u64;
        if count > 0 {
            let extent = Extent { seq: live.head.next().0, pos: first, count };
            live.head = live.head.plus(count);
            let (thread, owner) = (batch.thread.clone(), live.owner.clone());
            self.effects.index_updates.push(IndexUpdate::Appended { thread, num: live.num, owner, extent, bytes });
        }
        for change in batch.changes.iter() {
            if let DirectoryChange::RunStatus { run, status, last, .. } = change
                && status.is_terminal()
            {
                self.state.tails.end_run(live.num, live.run_num(run));
                let (thread, num, last) = (batch.thread.clone(), live.num, *last);
                self.effects.index_updates.push(IndexUpdate::RunEnded { thread, num, last });
            }
        }
        Ok(())
    }

    /// Inserts the runs that start without having been queued.
    fn insert_started_runs(&self, live: &mut CachedThread, batch: &AppendBatch) -> rusqlite::Result<()> {
        for change in batch.changes.iter() {
            let DirectoryChange::RunStarted { run, agent, at, .. } = change else { continue };
            let Some(run) = live.runs.iter_mut().find(|known| known.id == *run && known.num == RUN_NOT_INSERTED) else {
                continue;
            };
            let mut insert = self.conn.prepare_cached(INSERT_QUEUED_RUN)?;
            let (id, owner) = (run.id.as_str(), live.owner.as_str());
            run.num = insert.insert((id, owner, live.num, agent, at.cast_signed()))?;
        }
        Ok(())
    }

    fn apply_change(&self, live: &CachedThread, change: &DirectoryChange) -> rusqlite::Result<()> {
        let (thread, num) = (live.num, |id: &TaskId| live.run_num(id));
        let touched = |at: i64| self.execute("UPDATE threads SET updated_at = ?2 WHERE num = ?1", (thread, at));
        match change {
            DirectoryChange::RunStarted { run, agent, first, at } => {
                let sql = "UPDATE runs SET status = 'running', agent = ?2, first = ?3, last = ?3 WHERE num = ?1";
                self.execute(sql, (num(run), agent, first.0.cast_signed()))?;
                touched(at.cast_signed())
            }
            DirectoryChange::RunStatus { run, status, last, at } => {
                let ended = status.is_terminal().then_some(at.cast_signed());
                let sql = "UPDATE runs SET status = ?2, last = ?3, ended_at = ?4 WHERE num = ?1";
                self.execute(sql, (num(run), status.as_str(), last.0.cast_signed(), ended))?;
                ended.map_or(Ok(()), touched)
            }
            DirectoryChange::RunDropped { run, at } => {
                let sql = "UPDATE runs SET status = 'cancelled', ended_at = ?2 WHERE num = ?1";
                self.execute(sql, (num(run), at.cast_signed()))?;
                touched(at.cast_signed())
            }
            DirectoryChange::ConsumeInboxRow { row } => {
                self.execute("DELETE FROM inbox WHERE id = ?1", [row.cast_signed()])
            }
            DirectoryChange::Checkpoint(new) => checkpoints::put_checkpoint(self.conn, thread, new),
            DirectoryChange::ApprovalRequested(question) => {
                questions::open_approval(self.conn, &live.owner, thread, question)
            }
            DirectoryChange::ApprovalResolved { key, decision, by, at } => {
                let answer = ApprovalAnswer { decision: decision.clone(), by: *by, at: *at };
                questions::close_approval(self.conn, &live.owner, key, &answer)
            }
            DirectoryChange::ClientCallClosed { call } => {
                client_results::close_call(self.conn, thread, call, validation::CLOSED_BY_RECORDS)
            }
            DirectoryChange::AddSpend { day, spent } => spend::add_spend(self.conn, &live.owner, *day, *spent),
            DirectoryChange::ScheduleWakeup { at } => {
                self.execute("UPDATE threads SET wake_at = ?2 WHERE num = ?1", (thread, at.map(u64::cast_signed)))
            }
        }
    }

    pub(crate) fn execute(&self, sql: &str, params: impl Params) -> rusqlite::Result<()> {
        self.conn.prepare_cached(sql)?.execute(params).map(drop)
    }

    /// Takes a thread from the cache or loads it. [`Self::cache_thread`] puts it back.
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
            // Runs that ended are rarely needed again.
            live.runs.retain(|run| !run.status.is_terminal());
        }
        self.state.threads.insert(thread.clone(), live);
    }

    /// Caches a run of the thread, if it exists. Returns false when the run belongs to another thread.
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
        let sql = "SELECT 1 FROM inbox WHERE id = ?1 AND thread = ?2";
        self.conn.prepare_cached(sql)?.exists((row.cast_signed(), thread))
    }
}
