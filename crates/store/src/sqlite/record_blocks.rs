//! The records of ended runs, and all but the newest of long runs, in compressed blocks by (thread, first seq).
//!
//! A run becomes one or more blocks of about [`BLOCK_BYTES`], so that reading a page decompresses one block. Once a
//! block is committed, nothing reads its rows in `records`, and `dead_rows` schedules their deletion. Packing copies
//! checksums without checking them; readers verify them. `condensed_blocks` has a short form of blocks.

use super::condensed_blocks::BlockToCondense;
use super::log_size::{self, LogSizeCount};
use super::record_index::{IndexUpdate, PackRequest, PackScope, RecordIndex};
use super::record_row;
use crate::block_coding::{
    RecordColumns, compress_block, decode_record, decompress_block, read_block_length, record_bytes_in_block,
};
use bytes::Bytes;
use model::TaskId;
use model::condense::CondenseRecords;
use model::record::Record;
use model::seq::Seq;
use rusqlite::{Connection, OptionalExtension};
use std::collections::VecDeque;

/// Approximate size of a block before compression.
pub(crate) const BLOCK_BYTES: usize = 256 * 1024;
/// Approximate number of bytes per packing step while tasks may arrive.
pub(crate) const PACK_STEP_BYTES: usize = 32 * 1024;
/// Maximum number of blocks per packing step, to bound the delay of queued tasks.
pub(crate) const BLOCKS_PER_STEP_MAX: usize = 64;
/// Maximum number of records per block.
const BLOCK_RECORDS_MAX: usize = 4096;

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
            let bytes = record_bytes_in_block(length, last.saturating_add(1).saturating_sub(first));
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

fn read_columns<'a>(row: &'a record_row::RecordRow<'_>) -> rusqlite::Result<RecordColumns<'a>> {
    let (at, epoch, format, checksum) = (row.at()?, row.epoch()?, row.v()?, row.checksum()?);
    Ok(RecordColumns { at, epoch, format, checksum, public: row.public()?, private: row.private()? })
}

/// What packing needs beside the connection.
#[derive(Clone, Copy)]
pub(crate) struct PackContext<'a> {
    pub(crate) index: &'a RecordIndex,
    pub(crate) log_count: &'a LogSizeCount,
    pub(crate) condense: Option<CondenseRecords>,
}

/// Packs about `bytes_max` of the records that are requested into blocks, in the caller's transaction. The caller publishes
/// the result after the commit. Unfinished requests stay in the queue; `begun` receives all that were begun, even on an
/// error.
pub(crate) fn pack_records(
    conn: &Connection,
    context: PackContext<'_>,
    queue: &mut VecDeque<PackRequest>,
    begun: &mut Vec<PackRequest>,
    bytes_max: usize,
) -> rusqlite::Result<PackedBlocks> {
    let mut moved = PackedBlocks::default();
    while moved.bytes < bytes_max && moved.index_updates.len() < BLOCKS_PER_STEP_MAX {
        // The index still has the rows that this step packed, so a thread is packed once per step.
        if queue.front().is_some_and(|request| begun.iter().any(|begun| begun.num == request.num)) {
            break;
        }
        let Some(request) = queue.pop_front() else { break };
        begun.push(request.clone());
        let Some(block) = pack_block(conn, context, &request)? else { continue };
        let (last, bytes) = (block.last, block.record_bytes);
        log_size::add_block(conn, context.log_count, request.num, bytes)?;
        moved.bytes += block.raw_bytes;
        moved.index_updates.push(IndexUpdate::Packed { thread: request.thread.clone(), last, bytes });
        // A long run is requested again when it is long again.
        if last < request.last && request.scope == PackScope::EndedRun {
            queue.push_front(request);
        }
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
    last: Seq,
    /// The uncompressed size of the block.
    raw_bytes: usize,
    /// The size of its records.
    record_bytes: u64,
}

/// Packs the oldest records of a request into a block.
fn pack_block(
    conn: &Connection,
    context: PackContext<'_>,
    request: &PackRequest,
) -> rusqlite::Result<Option<WrittenBlock>> {
    let Some(plan) = context.index.read_plan(&request.thread, Seq::ZERO, BLOCK_RECORDS_MAX) else { return Ok(None) };
    let first = plan.extents.first().filter(|_| plan.num == request.num).map(|extent| extent.seq);
    // An earlier request may have packed them.
    let Some(first) = first.filter(|first| *first <= request.last.0) else { return Ok(None) };
    let mut raw = Vec::new();
    let mut owner = None;
    let mut next = first;
    let mut select = conn.prepare_cached(record_row::SELECT_RECORDS)?;
    'extents: for extent in &plan.extents {
        let mut found = select.query((extent.pos, extent.end_pos()))?;
        while let Some(row) = found.next()? {
            let row = record_row::RecordRow(row);
            let fits = row.is_record(plan.num, next)? && next <= request.last.0;
            if !fits || raw.len() >= BLOCK_BYTES || *owner.get_or_insert(row.run_num()?) != row.run_num()? {
                break 'extents;
            }
            read_columns(&row)?.encode(&mut raw);
            next += 1;
        }
        if next != extent.end_seq() {
            break;
        }
    }
    let Some(run) = owner.filter(|_| next > first) else {
        tracing::error!(thread = %request.thread, seq = first, "records cannot be packed: damaged");
        return Ok(None);
    };
    let last = next - 1;
    let mut insert = conn.prepare_cached("INSERT INTO blocks VALUES (?1, ?2, ?3, ?4, ?5)")?;
    insert.execute((plan.num, first.cast_signed(), last.cast_signed(), run, compress_block(&raw)))?;
    let (raw_bytes, record_bytes) = (raw.len(), record_bytes_in_block(raw.len(), next - first));
    if let Some(condense) = context.condense {
        let (thread, raw) = (&request.thread, Bytes::from(raw));
        BlockToCondense { thread, thread_num: plan.num, run, first, last, raw }.write(conn, condense)?;
    }
    Ok(Some(WrittenBlock { last: Seq(last), raw_bytes, record_bytes }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_coding::BLOCK_FORMAT;

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
