//! The scan of `records` when a database is opened: one pass in row order that rebuilds [`super::record_index`].
//!
//! A gap in a thread's sequence is damage: that thread's log ends before it. Other threads are not affected.

use super::dead_rows::DeadRows;
use super::log_only_records::LogOnlyRecords;
use super::page::last_seq_of_runs;
use super::record_blocks::RecordBlock;
use super::record_row;
use super::thread_extents::{Extent, PackRequest, PackScope, ThreadExtents};
use crate::block_coding::record_bytes_in_block;
use model::seq::Seq;
use model::{ThreadId, UserId};
use rusqlite::{Connection, OptionalExtension};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

#[derive(Debug, Default)]
pub(crate) struct RecordScan {
    /// Threads with live rows or damage.
    pub(crate) threads: HashMap<ThreadId, ThreadExtents>,
    /// Rows of ended and of long runs that are not packed yet.
    pub(crate) pack_requests: VecDeque<PackRequest>,
    pub(crate) dead_rows: DeadRows,
    /// The position after the last row.
    pub(crate) next_pos: i64,
    /// The first stray row of every damaged thread.
    pub(crate) stray_rows: Vec<StrayRow>,
}

/// A row that does not continue the log of any thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StrayRow {
    pub(crate) pos: i64,
    /// The thread's number according to the row.
    pub(crate) thread: i64,
    /// The seq according to the row.
    pub(crate) seq: u64,
}

struct ThreadRows {
    /// The last record in a block.
    packed_head: Seq,
    extents: VecDeque<Extent>,
    /// The size of the live records.
    bytes: u64,
    is_damaged: bool,
}

enum RowState {
    Live,
    Dead,
    /// The block that was packed last ends within the row.
    PartlyDead {
        dead: Extent,
        live: Extent,
    },
    Stray,
}

impl ThreadRows {
    /// Classifies the next row of the thread. No row after a stray one is live.
    fn push(&mut self, row: Extent) -> RowState {
        let live = if self.extents.is_empty() { row.skip_to(self.packed_head.next().0) } else { row };
        if live.count == 0 {
            return RowState::Dead;
        }
        let next = self.extents.back().map_or(self.packed_head.next().0, |last| last.end_seq());
        if self.is_damaged || live.seq != next {
            self.is_damaged = true;
            return RowState::Stray;
        }
        match self.extents.back_mut() {
            Some(last) if last.end_pos() == live.pos => last.count = last.count.saturating_add(live.count),
            Some(_) | None => self.extents.push_back(live),
        }
        let dead = Extent { count: row.count - live.count, ..row };
        if dead.count == 0 { RowState::Live } else { RowState::PartlyDead { dead, live } }
    }
}

pub(crate) fn scan_records(conn: &Connection) -> rusqlite::Result<RecordScan> {
    let mut scan = RecordScan { next_pos: 1, ..RecordScan::default() };
    let mut threads: HashMap<i64, ThreadRows> = HashMap::new();
    let mut select = conn.prepare("SELECT pos, thread, seq, count, length(data) FROM records ORDER BY pos")?;
    let mut rows = select.query(())?;
    while let Some(row) = rows.next()? {
        let (pos, thread, seq) = (row.get::<_, i64>(0)?, row.get(1)?, row.get::<_, i64>(2)?.cast_unsigned());
        let count = row.get::<_, i64>(3)?;
        let first = pos.saturating_add(1).saturating_sub(count);
        let is_sound = count > 0 && first >= scan.next_pos;
        if is_sound && first > scan.next_pos {
            scan.dead_rows.add_hole(scan.next_pos, first);
        }
        scan.next_pos = pos.saturating_add(1);
        let known = match threads.entry(thread) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let settled = RecordBlock::last_packed_seq(conn, thread)?;
                new.insert(ThreadRows { packed_head: settled, extents: VecDeque::new(), bytes: 0, is_damaged: false })
            }
        };
        let was_damaged = known.is_damaged;
        known.is_damaged |= !is_sound;
        let extent = Extent { seq, pos: first, count: count.cast_unsigned() };
        let state = if is_sound { known.push(extent) } else { RowState::Stray };
        let bytes = record_bytes_in_block(row.get::<_, i64>(4)?.cast_unsigned(), extent.count);
        match state {
            RowState::Live => known.bytes = known.bytes.saturating_add(bytes),
            RowState::Dead => {
                scan.dead_rows.add(thread, extent);
                scan.dead_rows.add_bytes(bytes);
            }
            RowState::PartlyDead { dead, live } => {
                let live_bytes = measure_last_records(conn, pos, live.count)?;
                known.bytes = known.bytes.saturating_add(live_bytes);
                scan.dead_rows.add(thread, dead);
                scan.dead_rows.add_bytes(bytes.saturating_sub(live_bytes));
            }
            RowState::Stray if was_damaged => {}
            RowState::Stray => scan.stray_rows.push(StrayRow { pos, thread, seq }),
        }
    }
    for (num, rows) in threads {
        scan.finish_thread(conn, num, rows)?;
    }
    Ok(scan)
}

/// The size of the last records of a row.
fn measure_last_records(conn: &Connection, pos: i64, count: u64) -> rusqlite::Result<u64> {
    let mut select = conn.prepare_cached(record_row::SELECT_RECORDS)?;
    let mut rows = select.query([pos])?;
    let Some(row) = rows.next()?.map(record_row::RecordRow) else { return Ok(0) };
    let encoded = row.encoded_from(row.end_seq()?.saturating_sub(count))?;
    Ok(record_bytes_in_block(encoded.len() as u64, count))
}

impl RecordScan {
    /// Says what fits nowhere.
    pub(crate) fn log_stray_rows(&self) {
        for row in &self.stray_rows {
            tracing::error!(?row, "a stored record fits nowhere: `headwater verify` lists all damage");
        }
    }

    fn finish_thread(&mut self, conn: &Connection, num: i64, rows: ThreadRows) -> rusqlite::Result<()> {
        let mut select = conn.prepare_cached("SELECT id, owner FROM threads WHERE num = ?1")?;
        let named = select.query_row([num], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)));
        let Some((id, owner)) = named.optional()? else {
            let first = rows.extents.front().map_or((0, 0), |first| (first.pos, first.seq));
            self.stray_rows.push(StrayRow { pos: first.0, thread: num, seq: first.1 });
            return Ok(());
        };
        let thread = ThreadId::from(id);
        let head = rows.extents.back().map_or(rows.packed_head, |last| Seq(last.end_seq().saturating_sub(1)));
        let damaged = rows.is_damaged || last_seq_of_runs(conn, num)? > head;
        if rows.extents.is_empty() && !damaged {
            return Ok(());
        }
        let first = rows.extents.front().map_or(u64::MAX, |first| first.seq);
        let ended = last_ended_seq(conn, num)?.filter(|last| last.0 >= first && !damaged);
        if let Some(last) = ended {
            let scope = PackScope::EndedRun;
            self.pack_requests.push_back(PackRequest { thread: thread.clone(), num, last, scope });
        }
        let owner = UserId::from(owner);
        let damaged = damaged.then(|| head.next());
        let ThreadRows { extents, bytes, .. } = rows;
        let mut entry = ThreadExtents {
            num,
            owner,
            head,
            extents,
            logged: LogOnlyRecords::default(),
            bytes,
            damaged_at: damaged,
            is_pack_requested: false,
            packable_until: ended.unwrap_or_default(),
        };
        self.pack_requests.extend(entry.request_packing(&thread));
        self.threads.insert(thread, entry);
        Ok(())
    }
}

/// The last record of the last ended run.
fn last_ended_seq(conn: &Connection, num: i64) -> rusqlite::Result<Option<Seq>> {
    let sql = "SELECT last FROM runs WHERE thread = ?1 AND last IS NOT NULL AND ended_at IS NOT NULL
               ORDER BY last DESC LIMIT 1";
    let last = conn.prepare_cached(sql)?.query_row([num], |row| row.get::<_, i64>(0)).optional()?;
    Ok(last.map(|last| Seq(last.cast_unsigned())))
}
