//! The size of every user's log: the bytes of all records of the user's threads, as they were written.
//!
//! Records in blocks are counted when they are packed, in the same transaction: per thread (`thread_sizes`) and per
//! owner (`log_sums`). Records in rows are counted in memory (`record_index`), because a counter on disk would double the
//! cost of a small append; the scan that finds the rows again at start counts them again, too. So the sum is exact after a
//! crash, and reading it does not depend on how much there is.
//!
//! Threads that were written before there were counters are counted in small steps while the writer is idle, the newest
//! first. Until then their blocks do not count.

use super::SqliteStore;
use super::columns::get_u64;
use super::record_blocks::RecordBlock;
use super::record_index::RecordIndex;
use super::write_task::TaskCost;
use model::UserId;
use model::ports::StoreResult;
use model::seq::Seq;
use rusqlite::{Connection, OptionalExtension};

/// Blocks and threads that one step counts.
const BLOCKS_PER_STEP: u32 = 64;
const UNCOUNTED_MAX: &str = "uncounted_max";
const ADD_TO_THREAD: &str = "INSERT INTO thread_sizes VALUES (?1, ?2)
                             ON CONFLICT (thread) DO UPDATE SET bytes = bytes + excluded.bytes";

/// How far the blocks of old threads are counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogSizeCount {
    /// Threads up to this number are not counted yet.
    uncounted_max: i64,
    /// The thread that is being counted: its blocks up to this record have this size.
    progress: Option<(i64, Seq, u64)>,
}

impl LogSizeCount {
    pub(crate) fn load(conn: &Connection) -> rusqlite::Result<Self> {
        let sql = "SELECT value FROM meta WHERE name = ?1";
        let uncounted_max = conn.query_row(sql, [UNCOUNTED_MAX], |row| row.get(0)).optional()?.unwrap_or_default();
        Ok(Self { uncounted_max, progress: None })
    }

    pub(crate) const fn is_done(&self) -> bool {
        self.uncounted_max <= 0
    }

    const fn includes(&self, thread: i64) -> bool {
        thread > self.uncounted_max
    }

    /// Counts some blocks of the newest threads that are not counted yet. The caller keeps the result after the commit.
    pub(crate) fn step(&self, conn: &Connection) -> rusqlite::Result<Self> {
        let (mut next, mut blocks_left) = (self.clone(), BLOCKS_PER_STEP);
        while blocks_left > 0 && !next.is_done() {
            blocks_left = next.count_blocks(conn, blocks_left)?;
        }
        let mut update = conn.prepare_cached("UPDATE meta SET value = ?2 WHERE name = ?1")?;
        update.execute((UNCOUNTED_MAX, next.uncounted_max))?;
        Ok(next)
    }

    /// Counts at most `blocks_max` blocks of one thread. Returns how many may follow; a thread costs as much as a block.
    fn count_blocks(&mut self, conn: &Connection, blocks_max: u32) -> rusqlite::Result<u32> {
        let sql = "SELECT num FROM threads WHERE num <= ?1 ORDER BY num DESC LIMIT 1";
        let newest =
            conn.prepare_cached(sql)?.query_row([self.uncounted_max], |row| row.get::<_, i64>(0)).optional()?;
        let Some(thread) = newest else {
            self.uncounted_max = 0;
            return Ok(0);
        };
        let known = self.progress.filter(|(num, ..)| *num == thread);
        let (_, after, bytes) = known.unwrap_or((thread, Seq::ZERO, 0));
        if let Some(measured) = RecordBlock::measure(conn, thread, after, blocks_max)? {
            self.progress = Some((thread, measured.last, bytes.saturating_add(measured.record_bytes)));
            return Ok(blocks_max.saturating_sub(measured.blocks));
        }
        add_to_thread(conn, thread, bytes)?;
        (self.uncounted_max, self.progress) = (thread - 1, None);
        Ok(blocks_max - 1)
    }
}

/// Counts the records of a new block for its thread. Returns whether [`add_to_owner`] has to count them, too.
pub(crate) fn add_block(conn: &Connection, count: &LogSizeCount, thread: i64, bytes: u64) -> rusqlite::Result<bool> {
    if !count.includes(thread) {
        return Ok(false);
    }
    conn.prepare_cached(ADD_TO_THREAD)?.execute((thread, bytes.cast_signed()))?;
    Ok(true)
}

/// Counts records of new blocks for their owner.
pub(crate) fn add_to_owner(conn: &Connection, owner: &UserId, bytes: u64) -> rusqlite::Result<()> {
    let sql = "INSERT INTO log_sums VALUES (?1, ?2) ON CONFLICT (owner) DO UPDATE SET bytes = bytes + excluded.bytes";
    conn.prepare_cached(sql)?.execute((owner.as_str(), bytes.cast_signed())).map(drop)
}

fn add_to_thread(conn: &Connection, thread: i64, bytes: u64) -> rusqlite::Result<()> {
    let bytes = bytes.cast_signed();
    conn.prepare_cached(ADD_TO_THREAD)?.execute((thread, bytes))?;
    let sql = "INSERT INTO log_sums SELECT owner, ?2 FROM threads WHERE num = ?1
               ON CONFLICT (owner) DO UPDATE SET bytes = bytes + excluded.bytes";
    conn.prepare_cached(sql)?.execute((thread, bytes)).map(drop)
}

/// Takes the blocks of a thread that is being deleted from the sum.
pub(crate) fn subtract_thread(conn: &Connection, thread: i64) -> rusqlite::Result<()> {
    let sql = "DELETE FROM thread_sizes WHERE thread = ?1 RETURNING bytes";
    let bytes: Option<i64> = conn.prepare_cached(sql)?.query_row([thread], |row| row.get(0)).optional()?;
    let Some(bytes) = bytes else { return Ok(()) };
    let sql = "UPDATE log_sums SET bytes = max(0, bytes - ?2) WHERE owner = (SELECT owner FROM threads WHERE num = ?1)";
    conn.prepare_cached(sql)?.execute((thread, bytes)).map(drop)
}

/// The size of a user's log.
pub(crate) fn log_bytes(conn: &Connection, index: &RecordIndex, owner: &UserId) -> rusqlite::Result<u64> {
    let mut select = conn.prepare_cached("SELECT bytes FROM log_sums WHERE owner = ?1")?;
    let in_blocks = select.query_row([owner.as_str()], |row| get_u64(row, 0)).optional()?.unwrap_or_default();
    Ok(in_blocks.saturating_add(index.bytes_of_owner(owner)))
}

/// What all users together hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageUse {
    /// The records of all threads.
    pub log_bytes: u64,
    pub file_bytes: u64,
}

impl SqliteStore {
    /// What all users together hold. While a run is being packed, it may count twice.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn storage_use(&self) -> StoreResult<StorageUse> {
        let in_rows = self.index.total_bytes();
        self.query(move |conn| {
            let sql = "SELECT (SELECT ifnull(sum(bytes), 0) FROM log_sums),
                       (SELECT ifnull(sum(bytes), 0) FROM attachment_sums)";
            conn.prepare_cached(sql)?.query_row((), |row| {
                Ok(StorageUse { log_bytes: get_u64(row, 0)?.saturating_add(in_rows), file_bytes: get_u64(row, 1)? })
            })
        })
        .await
    }

    /// Asks the writer: it moves records from rows to blocks, and knows when that is complete.
    pub(crate) async fn read_log_bytes(&self, owner: &UserId) -> StoreResult<u64> {
        let owner = owner.clone();
        self.call_writer(TaskCost::Query, move |tx| log_bytes(tx.conn, &tx.state.index, &owner).map(Ok)).await
    }
}
