//! A transaction of the writer: a group of operations, each with its own outcome.
//!
//! A batch is checked against the state of the transaction before any of it is written. A rejected batch therefore does
//! not affect the others; only an SQLite error rolls back the group. [`WriterState`] is a cache that is updated before
//! the commit and cleared when the commit fails.

use super::dead_rows::DeadRows;
use super::log_frame::LogFrame;
use super::log_size::LogSizeCount;
use super::record_index::{IndexUpdate, ReadPlan, RecordIndex};
use super::record_row;
use super::record_tails::RecordTails;
use super::released_threads::ReleasedThreads;
use super::thread_extents::PackRequest;
use super::{batches, page, questions};
use crate::block_coding::BlockCompressor;
use foldhash::HashMap;
use model::condense::CondenseRecords;
use model::defects::Defect;
use model::ports::validation;
use model::ports::{AppendBatch, AppendOutcome, ClaimOutcome, DirectoryChange, Lease, StoreError};
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
/// Placeholder for the number of a run that the current batch creates.
pub(super) const RUN_NOT_INSERTED: i64 = 0;

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
    /// The rows that the group appends to the log.
    pub(crate) log_frame: LogFrame,
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
    pub(super) owner: UserId,
    pub(super) head: Seq,
    /// The last record that the database has. The others are in the append log.
    pub(super) stored: Seq,
    /// The number of the run of those others.
    pub(super) logged_run: i64,
    damaged_at: Option<Seq>,
    pub(super) runs: Vec<CachedRun>,
}

#[derive(Clone, Debug)]
pub(super) struct CachedRun {
    pub(super) id: TaskId,
    pub(super) num: i64,
    status: TaskStatus,
}

impl CachedThread {
    pub(super) fn run_num(&self, id: &TaskId) -> i64 {
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
    /// Number of the blocks written, and the size of the runs that became one with their end.
    pub(crate) blocks: u64,
    pub(crate) packed_bytes: usize,
    /// Whether users' content was deleted, so that the write-ahead log has to be truncated.
    pub(crate) has_deleted_content: bool,
}

pub(crate) struct WriteTransaction<'a> {
    pub(crate) conn: &'a Connection,
    pub(crate) state: &'a mut WriterState,
    pub(crate) effects: CommitEffects,
    /// Taken from the cache of statements once for all batches.
    pub(super) insert_record: Option<CachedStatement<'a>>,
}

impl<'a> WriteTransaction<'a> {
    pub(crate) fn new(conn: &'a Connection, state: &'a mut WriterState) -> Self {
        if state.threads.len() > CACHED_THREADS_MAX {
            state.threads.clear();
        }
        state.log_frame.clear();
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
        let (head, stored) = (Seq::ZERO, Seq::ZERO);
        let (owner, runs) = (owner.clone(), Vec::new());
        let live = CachedThread { num, owner, head, stored, logged_run: 0, damaged_at: None, runs };
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
                match batches::run_to_log(&live, batch) {
                    Some(run) => self.log_batch(&mut live, run, batch),
                    None => self.write_batch(&mut live, batch)?,
                }
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
        let (owner, runs) = (UserId::from(owner), Vec::new());
        Ok(Some(match published {
            Some(ReadPlan { head, stored, damaged_at, logged, .. }) => {
                CachedThread { num, owner, head, stored, logged_run: logged.run, damaged_at, runs }
            }
            None => {
                let (head, damaged_at) = page::head_from_blocks(self.conn, num)?;
                CachedThread { num, owner, head, stored: head, logged_run: 0, damaged_at, runs }
            }
        }))
    }

    pub(super) fn cache_thread(&mut self, thread: &ThreadId, mut live: CachedThread) {
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
