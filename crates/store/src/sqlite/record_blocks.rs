//! The records of ended runs, and all but the newest of long runs, in compressed blocks by (thread, first seq).
//!
//! A run becomes one or more blocks of about [`BLOCK_BYTES`], so that reading a page decompresses one block. Once a
//! block is committed, nothing reads its rows in `records`, and `dead_rows` schedules their deletion. Packing copies
//! checksums without checking them; readers verify them. `record_tails` has most records in memory, so their rows are not read.
//! `condensed_blocks` has a short form of blocks.

use super::condensed_blocks::{BlockToCondense, RecordSource};
use super::log_size::{self, LogSizeCount};
use super::record_index::{IndexUpdate, RecordIndex};
use super::record_row;
use super::record_tails::RecordTails;
use super::thread_extents::{PackRequest, PackScope};
use crate::block_coding::{
    BlockCompressor, decode_record, decompress_block, measure_record, read_block_length, record_bytes_in_block,
};
use bytes::Bytes;
use model::condense::CondenseRecords;
use model::record::Record;
use model::seq::Seq;
use model::{TaskId, UserId};
use rusqlite::{Connection, OptionalExtension};
use std::collections::VecDeque;

/// Approximate size of a block before compression.
pub(crate) const BLOCK_BYTES: usize = 256 * 1024;
/// Approximate number of bytes per packing step while tasks may arrive.
pub(crate) const PACK_STEP_BYTES: usize = 32 * 1024;
/// Maximum number of blocks per packing step, to bound the delay of queued tasks.
pub(crate) const BLOCKS_PER_STEP_MAX: usize = 64;
/// Maximum number of records per block.
pub(crate) const BLOCK_RECORDS_MAX: u64 = 4096;

pub(crate) struct RecordBlock {
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// The number of the run of all its records.
    pub(crate) run: i64,
    data: Vec<u8>,
}

impl RecordBlock {
    /// The block that contains this record.
    pub(crate) fn find(conn: &Connection, thread: i64, seq: Seq) -> rusqlite::Result<Option<Self>> {
        let sql = "SELECT first_seq, last_seq, run, data FROM blocks WHERE thread = ?1 AND first_seq <= ?2
                   ORDER BY first_seq DESC LIMIT 1";
        let mut find = conn.prepare_cached(sql)?;
        let found = find.query_row((thread, seq.0.cast_signed()), |row| {
            let number = |at: usize| row.get::<_, i64>(at).map(i64::cast_unsigned);
            Ok(Self { first: number(0)?, last: number(1)?, run: row.get(2)?, data: row.get(3)? })
        });
        Ok(found.optional()?.filter(|block| block.last >= seq.0))
    }

    /// The last record in the thread's blocks.
    pub(crate) fn last_packed_seq(conn: &Connection, thread: i64) -> rusqlite::Result<Seq> {
        let sql = "SELECT last_seq FROM blocks WHERE thread = ?1 ORDER BY first_seq DESC LIMIT 1";
        let last = conn.prepare_cached(sql)?.query_row([thread], |row| row.get::<_, i64>(0)).optional()?;
        Ok(Seq(last.map_or(0, i64::cast_unsigned)))
    }

    /// The size of the first blocks of a thread after this record, at most `blocks_max`, as their headers say it. `None` when
    /// there are none.
    pub(crate) fn measure(
        conn: &Connection,
        thread: i64,
        after: Seq,
        blocks_max: u32,
    ) -> rusqlite::Result<Option<MeasuredBlocks>> {
        let sql = "SELECT first_seq, last_seq, substr(data, 1, 5) FROM blocks WHERE thread = ?1 AND first_seq > ?2
                   ORDER BY first_seq LIMIT ?3";
        let mut select = conn.prepare_cached(sql)?;
        let mut rows = select.query((thread, after.0.cast_signed(), blocks_max))?;
        let mut measured: Option<MeasuredBlocks> = None;
        while let Some(row) = rows.next()? {
            let number = |at: usize| row.get::<_, i64>(at).map(i64::cast_unsigned);
            let (first, last, head): (u64, u64, Vec<u8>) = (number(0)?, number(1)?, row.get(2)?);
            let length = read_block_length(&head).unwrap_or_default();
            let bytes = record_bytes_in_block(length as u64, last.saturating_add(1).saturating_sub(first));
            let (blocks, sum) = measured.map_or((0, 0), |before| (before.blocks, before.record_bytes));
            measured =
                Some(MeasuredBlocks { last: Seq(last), blocks: blocks + 1, record_bytes: bytes.saturating_add(sum) });
        }
        Ok(measured)
    }

    /// Decodes the records from `from` up to the first damaged one; `None` when there are none.
    pub(crate) fn unpack(&self, from: Seq, run: &TaskId) -> Option<Vec<Record>> {
        let mut raw = decompress_block(&self.data)?;
        let mut records = Vec::new();
        for seq in self.first..=self.last {
            let Some(record) = decode_record(&mut raw, Seq(seq), run) else { break };
            if seq >= from.0 {
                records.push(record);
            }
        }
        (!records.is_empty()).then_some(records)
    }
}

/// What packing needs beside the connection.
pub(crate) struct PackContext<'a> {
    pub(crate) index: &'a RecordIndex,
    pub(crate) tails: &'a mut RecordTails,
    pub(crate) compressor: &'a mut BlockCompressor,
    pub(crate) log_count: &'a LogSizeCount,
    pub(crate) condense: Option<CondenseRecords>,
}

/// Packs about `bytes_max` of the records that are requested into blocks, in the caller's transaction. The caller publishes
/// the result after the commit. Unfinished requests stay in the queue; `begun` receives all that were begun, even on an
/// error.
pub(crate) fn pack_records(
    conn: &Connection,
    mut context: PackContext<'_>,
    queue: &mut VecDeque<PackRequest>,
    begun: &mut Vec<PackRequest>,
    bytes_max: usize,
) -> rusqlite::Result<PackedBlocks> {
    let mut moved = PackedBlocks::default();
    let mut bytes_of_owners: Vec<(UserId, u64)> = Vec::new();
    while moved.bytes < bytes_max && moved.index_updates.len() < BLOCKS_PER_STEP_MAX {
        // The index still has the rows that this step packed, so a thread is packed once per step.
        if queue.front().is_some_and(|request| begun.iter().any(|begun| begun.num == request.num)) {
            break;
        }
        let Some(request) = queue.pop_front() else { break };
        begun.push(request.clone());
        let Some(block) = pack_block(conn, &mut context, &request)? else { continue };
        let (last, bytes) = (block.last, block.record_bytes);
        if log_size::add_block(conn, context.log_count, request.num, bytes)? {
            match bytes_of_owners.iter_mut().find(|(owner, _)| *owner == block.owner) {
                Some((_, sum)) => *sum = sum.saturating_add(bytes),
                None => bytes_of_owners.push((block.owner, bytes)),
            }
        }
        moved.bytes += block.raw_bytes;
        moved.index_updates.push(IndexUpdate::Packed { thread: request.thread.clone(), last, bytes });
        // A long run is requested again when it is long again.
        if last < request.last && request.scope == PackScope::EndedRun {
            queue.push_front(request);
        }
    }
    for (owner, bytes) in bytes_of_owners {
        log_size::add_to_owner(conn, &owner, bytes)?;
    }
    Ok(moved)
}

/// The result of a packing step.
#[derive(Debug, Default)]
pub(crate) struct PackedBlocks {
    /// One update per block.
    pub(crate) index_updates: Vec<IndexUpdate>,
    /// The uncompressed size.
    pub(crate) bytes: usize,
}

/// Blocks whose headers were read.
pub(crate) struct MeasuredBlocks {
    /// The last record in them.
    pub(crate) last: Seq,
    pub(crate) blocks: u32,
    pub(crate) record_bytes: u64,
}

/// A block that was written.
struct WrittenBlock {
    owner: UserId,
    last: Seq,
    /// The uncompressed size of the block.
    raw_bytes: usize,
    /// The size of its records.
    record_bytes: u64,
}

/// Where a block ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockLimit {
    /// The last record that it may have.
    last: u64,
}

impl BlockLimit {
    /// Whether a block of this uncompressed size may have this record, too.
    pub(crate) const fn has_room(self, seq: u64, raw_bytes: usize) -> bool {
        seq <= self.last && raw_bytes < BLOCK_BYTES
    }
}

/// Consecutive records of one run that become a block.
struct BlockDraft {
    thread: i64,
    limit: BlockLimit,
    next: u64,
    /// The number of the run, and its id if it is known.
    run: Option<i64>,
    run_id: Option<TaskId>,
    raw: Vec<u8>,
    source: RecordSource,
}

impl BlockDraft {
    const fn new(thread: i64, first: u64, limit: BlockLimit) -> Self {
        Self { thread, limit, next: first, run: None, run_id: None, raw: Vec::new(), source: RecordSource::Memory }
    }

    /// Adds the oldest records of a thread, from memory where they are there. It ends before a record of another run, or one
    /// that is missing.
    fn fill(
        &mut self,
        conn: &Connection,
        context: &mut PackContext<'_>,
        request: &PackRequest,
    ) -> rusqlite::Result<()> {
        let mut tail = context.tails.take(self.thread);
        while self.limit.has_room(self.next, self.raw.len()) {
            let before = self.next;
            if let Some(tail) = tail.as_mut().filter(|tail| tail.contains(before)) {
                if *self.run.get_or_insert(tail.run) == tail.run {
                    self.next = tail.move_records(before, self.limit, &mut self.raw);
                    self.run_id.get_or_insert_with(|| tail.run_id.clone());
                }
            } else {
                let end = tail.as_ref().and_then(|tail| tail.next_after(before)).unwrap_or(u64::MAX);
                self.add_rows(conn, context.index, request, end)?;
            }
            if self.next == before {
                break;
            }
        }
        if let Some(tail) = tail {
            context.tails.put_back(self.thread, tail);
        }
        Ok(())
    }

    /// Adds records from their rows, or from the log, up to, and without, `end`.
    fn add_rows(
        &mut self,
        conn: &Connection,
        index: &RecordIndex,
        request: &PackRequest,
        end: u64,
    ) -> rusqlite::Result<()> {
        let rows_max = end.min(self.limit.last.saturating_add(1)).saturating_sub(self.next);
        let after = Seq(self.next.saturating_sub(1));
        let plan = index.read_plan(&request.thread, after, usize::try_from(rows_max).unwrap_or(usize::MAX));
        let Some(plan) = plan.filter(|plan| plan.num == self.thread) else { return Ok(()) };
        self.source = RecordSource::Rows;
        let mut select = conn.prepare_cached(record_row::SELECT_RECORDS)?;
        for extent in &plan.extents {
            let mut found = select.query([extent.pos])?;
            while self.next < extent.end_seq()
                && let Some(row) = found.next()?
            {
                let row = record_row::RecordRow(row);
                let run = row.run_num()?;
                if !row.contains(self.thread, self.next)? || *self.run.get_or_insert(run) != run {
                    return Ok(());
                }
                let before = self.next;
                self.add_encoded(row.encoded_from(self.next)?, row.end_seq()?.min(extent.end_seq()));
                if self.next == before {
                    return Ok(());
                }
            }
        }
        if plan.logged.first_seq().is_some_and(|first| first <= self.next)
            && *self.run.get_or_insert(plan.logged.run) == plan.logged.run
        {
            self.add_encoded(&plan.logged.records.bytes_from(self.next), plan.logged.end_seq());
        }
        Ok(())
    }

    /// Adds encoded records up to, and without, `end`, as long as there is room.
    fn add_encoded(&mut self, mut encoded: &[u8], end: u64) {
        while self.next < end && self.limit.has_room(self.next, self.raw.len()) {
            let record = measure_record(encoded).and_then(|bytes| encoded.split_at_checked(bytes));
            let Some((record, rest)) = record else { return };
            self.raw.extend_from_slice(record);
            (self.next, encoded) = (self.next + 1, rest);
        }
    }
}

/// Packs the oldest records of a request into a block.
fn pack_block(
    conn: &Connection,
    context: &mut PackContext<'_>,
    request: &PackRequest,
) -> rusqlite::Result<Option<WrittenBlock>> {
    let oldest = context.index.oldest_row(&request.thread).filter(|oldest| oldest.num == request.num);
    // An earlier request may have packed them.
    let Some(oldest) = oldest.filter(|oldest| oldest.seq <= request.last) else { return Ok(None) };
    let (thread, first) = (oldest.num, oldest.seq.0);
    let limit = BlockLimit { last: request.last.0.min(first.saturating_add(BLOCK_RECORDS_MAX - 1)) };
    let mut draft = BlockDraft::new(thread, first, limit);
    draft.fill(conn, context, request)?;
    let BlockDraft { next, run, run_id, raw, source, .. } = draft;
    let Some(run) = run.filter(|_| next > first) else {
        tracing::error!(thread = %request.thread, seq = first, "records cannot be packed: damaged");
        return Ok(None);
    };
    let last = next - 1;
    let mut insert = conn.prepare_cached("INSERT INTO blocks VALUES (?1, ?2, ?3, ?4, ?5)")?;
    let data = context.compressor.compress_block(&raw);
    insert.execute((thread, first.cast_signed(), last.cast_signed(), run, data))?;
    let (raw_bytes, record_bytes) = (raw.len(), record_bytes_in_block(raw.len() as u64, next - first));
    if let Some(condense) = context.condense {
        let (id, raw) = (&request.thread, Bytes::from(raw));
        let block = BlockToCondense { thread: id, thread_num: thread, run, run_id, first, last, raw, source };
        block.write(conn, context.compressor, condense)?;
    }
    Ok(Some(WrittenBlock { owner: oldest.owner, last: Seq(last), raw_bytes, record_bytes }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_coding::{BLOCK_FORMAT, compress_block};

    fn block(raw: &[u8], last: u64) -> RecordBlock {
        RecordBlock { first: 1, last, run: 1, data: compress_block(raw) }
    }

    fn raw(payloads: &[&[u8]]) -> Vec<u8> {
        let mut raw = Vec::new();
        for payload in payloads {
            raw.extend_from_slice(&[7; 22]);
            raw.extend_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
            raw.extend_from_slice(&0_u32.to_le_bytes());
            raw.extend_from_slice(payload);
        }
        raw
    }

    #[test]
    fn a_block_is_decoded_from_any_position() {
        let raw = raw(&[b"one", b"", b"three"]);
        let run = TaskId::from("task_1");
        for from in 1..=3_u64 {
            let records = block(&raw, 3).unpack(Seq(from), &run).unwrap();
            let found: Vec<_> = records.iter().map(|record| (record.seq.0, &record.public[..])).collect();
            let all: [(u64, &[u8]); 3] = [(1, b"one"), (2, b""), (3, b"three")];
            assert_eq!(found, &all[usize::try_from(from).unwrap() - 1..]);
        }
    }

    #[test]
    fn garbage_is_no_record_and_no_panic() {
        let run = TaskId::from("task_1");
        let good = block(&raw(&[b"one", b"two"]), 2).data;
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut data = good.clone();
                data[at] ^= 1 << bit;
                // Must not panic; damaged records are caught later, by their checksums.
                let _ = RecordBlock { first: 1, last: 2, run: 1, data }.unpack(Seq(1), &run);
            }
            let _ = RecordBlock { first: 1, last: 2, run: 1, data: good[..at].to_vec() }.unpack(Seq(1), &run);
        }
        let huge = [&[BLOCK_FORMAT][..], &u32::MAX.to_le_bytes(), b"xx"].concat();
        assert!(RecordBlock { first: 1, last: 2, run: 1, data: huge }.unpack(Seq(1), &run).is_none());
    }
}
