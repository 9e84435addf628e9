//! What a batch changes, in the transaction of its group.
//!
//! A batch that changes more than records is written to the database, after those records of its thread that only the append log
//! has: as rows, or as one block if a run ends. Any other batch is added to the frame that the group appends to the log.

use super::encoded_records::EncodedBatch;
use super::record_blocks::{BLOCK_BYTES, BLOCK_RECORDS_MAX, PackContext, pack_records};
use super::record_index::IndexUpdate;
use super::record_row;
use super::thread_extents::{Extent, PackRequest, PackScope};
use super::transaction::{CachedThread, INSERT_QUEUED_RUN, RUN_NOT_INSERTED, WriteTransaction, WriterState};
use super::{checkpoints, client_results, questions, spend};
use crate::block_coding::{encode_record, record_bytes_in_block};
use model::TaskId;
use model::ThreadId;
use model::ports::validation;
use model::ports::{AppendBatch, ApprovalAnswer, DirectoryChange};
use model::record::Record;
use model::seq::Seq;
use std::collections::VecDeque;
use std::sync::Arc;

/// A larger row is not kept for the next one.
const ROW_DATA_KEPT: usize = 64 * 1024;

/// Approximate size of what a transaction packs of runs that end with it: about 3 ms, for which all others wait.
const PACKED_BYTES_MAX: usize = 512 * 1024;

/// A run that becomes a block with its end.
struct RunToPack {
    num: i64,
    /// The size of its records.
    bytes: usize,
}

/// Encodes the records in one allocation. `scratch` is empty before and after.
fn encode_records(batch: &AppendBatch, scratch: &mut Vec<u8>) -> Arc<[u8]> {
    batch.records.iter().for_each(|record| encode_record(scratch, record));
    let encoded = scratch[..].into();
    scratch.clear();
    scratch.shrink_to(ROW_DATA_KEPT);
    encoded
}

/// The number of the run whose records the batch has, if it changes nothing else and the log has records of no other run of the
/// thread.
pub(super) fn run_to_log(live: &CachedThread, batch: &AppendBatch) -> Option<i64> {
    let first = batch.records.first().filter(|_| batch.changes.is_empty())?;
    let run = live.run_num(&first.run);
    let is_only_run = live.stored == live.head || live.logged_run == run;
    (is_only_run && batch.records.iter().all(|record| record.run == first.run)).then_some(run)
}

impl WriteTransaction<'_> {
    /// Adds a batch to the log's frame.
    pub(super) fn log_batch(&mut self, live: &mut CachedThread, run: i64, batch: &AppendBatch) {
        let encoded = encode_records(batch, &mut self.state.row_data);
        self.state.log_frame.add_row((live.num, run), live.head.next().0, batch.records.len() as u64, &encoded);
        self.add_records(live, run, batch, encoded);
    }

    /// Adds the records of a batch that the database does not get as rows.
    fn add_records(&mut self, live: &mut CachedThread, run: i64, batch: &AppendBatch, encoded: Arc<[u8]>) {
        let (first, count) = (live.head.next().0, batch.records.len() as u64);
        let bytes = record_bytes_in_block(encoded.len() as u64, count);
        let encoded = EncodedBatch { first, count, encoded };
        if let Some(record) = batch.records.first() {
            self.state.tails.push((live.num, run), &record.run, encoded.clone(), self.state.next_pos);
        }
        self.effects.records += count;
        self.effects.bytes += bytes;
        live.head = live.head.plus(count);
        live.logged_run = run;
        let (thread, owner) = (batch.thread.clone(), live.owner.clone());
        let update = IndexUpdate::Logged { thread, num: live.num, owner, run, batch: encoded, bytes };
        self.effects.index_updates.push(update);
    }

    /// Inserts those records of a thread that only the log has. Returns their size.
    pub(super) fn store_logged(&mut self, thread: &ThreadId, live: &mut CachedThread) -> rusqlite::Result<usize> {
        if live.stored == live.head {
            return Ok(0);
        }
        let published = self.state.index.read_plan(thread, live.stored, usize::MAX);
        let mut logged = published.filter(|plan| plan.num == live.num).map(|plan| plan.logged).unwrap_or_default();
        // Others were appended in this transaction.
        for update in &self.effects.index_updates {
            if let IndexUpdate::Logged { num, run, batch, .. } = update
                && *num == live.num
                && batch.first > live.stored.0
            {
                logged.push(*run, batch.clone());
            }
        }
        live.stored = live.head;
        // None if all of them were packed.
        let Some(first_seq) = logged.first_seq() else { return Ok(0) };
        let all = logged.records.bytes_from(first_seq);
        let (mut seq, mut encoded) = (first_seq, &all[..]);
        let bytes = encoded.len();
        let first_pos = self.state.next_pos;
        while seq < logged.end_seq()
            && let (row, count, rest) = record_row::split_row(encoded)
            && count > 0
        {
            self.insert_row(live.num, logged.run, seq, count, row)?;
            (seq, encoded) = (seq + count, rest);
        }
        let extent = Extent { seq: first_seq, pos: first_pos, count: seq - first_seq };
        let (thread, owner) = (thread.clone(), live.owner.clone());
        self.effects.index_updates.push(IndexUpdate::Appended { thread, num: live.num, owner, extent, bytes: 0 });
        Ok(bytes)
    }

    /// Inserts a row and returns its position.
    fn insert_row(&mut self, thread: i64, run: i64, seq: u64, count: u64, data: &[u8]) -> rusqlite::Result<i64> {
        let insert = match &mut self.insert_record {
            Some(insert) => insert,
            unprepared => unprepared.insert(self.conn.prepare_cached(record_row::INSERT_RECORDS)?),
        };
        let pos = self.state.next_pos.saturating_add(count.cast_signed()) - 1;
        insert.execute((pos, thread, run, seq.cast_signed(), count.cast_signed(), data))?;
        self.state.next_pos = pos + 1;
        Ok(pos)
    }

    /// Writes a batch to the database.
    pub(super) fn write_batch(&mut self, live: &mut CachedThread, batch: &AppendBatch) -> rusqlite::Result<()> {
        self.insert_started_runs(live, batch)?;
        match self.run_to_pack(live, batch) {
            Some(run) => self.write_ended_run(live, &run, batch)?,
            None => self.write_rows(live, batch)?,
        }
        for change in batch.changes.iter() {
            self.apply_change(live, change)?;
            let thread = batch.thread.clone();
            match change {
                // A dropped run has no rows: if the thread has no others, the index can remove its entry.
                DirectoryChange::RunDropped { .. } => {
                    self.effects.index_updates.push(IndexUpdate::Packed { thread, last: Seq::ZERO, bytes: 0 });
                }
                DirectoryChange::RunStatus { run, status, last, .. } if status.is_terminal() => {
                    self.state.tails.end_run(live.num, live.run_num(run));
                    self.effects.index_updates.push(IndexUpdate::RunEnded { thread, num: live.num, last: *last });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes the records of a batch as rows, after those of its thread that only the log has.
    fn write_rows(&mut self, live: &mut CachedThread, batch: &AppendBatch) -> rusqlite::Result<()> {
        self.store_logged(&batch.thread, live)?;
        let (first, mut bytes) = (self.state.next_pos, 0);
        let mut data = std::mem::take(&mut self.state.row_data);
        for records in batch.records.chunk_by(|one, next| one.run == next.run) {
            let run = records.first().map_or(0, |record| live.run_num(&record.run));
            let mut rest = records;
            while !rest.is_empty() {
                let row;
                (row, rest) = record_row::encode_row(rest, &mut data);
                let Some(Record { seq, run: run_id, .. }) = row.first() else { break };
                let (first, count) = (seq.0, row.len() as u64);
                let pos = self.insert_row(live.num, run, first, count, &data)?;
                let encoded = EncodedBatch { first, count, encoded: data[..].into() };
                self.state.tails.push((live.num, run), run_id, encoded, pos);
                bytes += record_bytes_in_block(data.len() as u64, count);
            }
        }
        data.clear();
        data.shrink_to(ROW_DATA_KEPT);
        self.state.row_data = data;
        self.effects.records += batch.records.len() as u64;
        self.effects.bytes += bytes;
        let count = batch.records.len() as u64;
        if count > 0 {
            let extent = Extent { seq: live.head.next().0, pos: first, count };
            live.head = live.head.plus(count);
            live.stored = live.head;
            let (thread, owner) = (batch.thread.clone(), live.owner.clone());
            self.effects.index_updates.push(IndexUpdate::Appended { thread, num: live.num, owner, extent, bytes });
        }
        Ok(())
    }

    /// The run that ends with this batch, if all records of the thread that are in no block are its own and in memory, and fit into
    /// one.
    fn run_to_pack(&self, live: &CachedThread, batch: &AppendBatch) -> Option<RunToPack> {
        let ended = batch.changes.iter().find_map(|change| match change {
            DirectoryChange::RunStatus { run, status, .. } if status.is_terminal() => Some(run),
            _ => None,
        })?;
        let (index, num) = (&self.state.index, live.run_num(ended));
        let oldest = index.oldest_row(&batch.thread).filter(|oldest| oldest.num == live.num)?;
        // Else this transaction has appended some that the index does not know yet.
        let is_published = index.read_plan(&batch.thread, Seq::ZERO, 0)?.head == live.head;
        let logged_bytes = self.state.tails.measure_run(live.num, num, oldest.seq.0, live.head.next().0)?;
        let bytes = logged_bytes + batch.records.iter().map(Record::size_bytes).sum::<usize>();
        let count = live.head.0.saturating_sub(oldest.seq.0) + batch.records.len() as u64;
        let fits = bytes < BLOCK_BYTES && count < BLOCK_RECORDS_MAX;
        let can_pack = is_published && fits && self.effects.packed_bytes < PACKED_BYTES_MAX;
        (can_pack && batch.records.iter().all(|record| record.run == *ended)).then_some(RunToPack { num, bytes })
    }

    /// Writes the records of a run that ends as a block. So they are never rows, which would be deleted soon.
    fn write_ended_run(
        &mut self,
        live: &mut CachedThread,
        run: &RunToPack,
        batch: &AppendBatch,
    ) -> rusqlite::Result<()> {
        if !batch.records.is_empty() {
            let encoded = encode_records(batch, &mut self.state.row_data);
            self.add_records(live, run.num, batch, encoded);
        }
        let request =
            PackRequest { thread: batch.thread.clone(), num: live.num, last: live.head, scope: PackScope::EndedRun };
        let WriterState { index, tails, compressor, log_count, condense, .. } = &mut *self.state;
        let context = PackContext { index, tails, compressor, log_count, condense: *condense };
        let packed = pack_records(self.conn, context, &mut VecDeque::from([request]), &mut Vec::new(), 1)?;
        let is_last = |update: &IndexUpdate| matches!(update, IndexUpdate::Packed { last, .. } if *last == live.head);
        if packed.index_updates.iter().any(is_last) {
            live.stored = live.head;
        } else {
            self.store_logged(&batch.thread, live)?;
        }
        self.effects.blocks += packed.index_updates.len() as u64;
        self.effects.packed_bytes += run.bytes;
        self.effects.index_updates.extend(packed.index_updates);
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
}
