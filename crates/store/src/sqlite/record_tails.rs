//! The unpacked records of recent runs in memory, encoded as in a block, so that packing them reads no rows.
//!
//! A cache like the rest of the writer's state: it is filled before the commit and cleared when a transaction fails. Packing reads
//! the rows of records that are not here, and the block is the same either way. The records were checked when they were
//! appended, and readers check them again.
//!
//! It is bounded ([`TAIL_BYTES_MAX`]): beyond that, the tails of the threads that were silent for longest are dropped. Those of ended
//! runs stay until the last: they are needed next, and packing precedes other work before they take much of the space.

use super::encoded_records::{EncodedBatch, EncodedRecords};
use super::record_blocks::{BLOCK_BYTES, BlockLimit};
use foldhash::HashMap;
use model::TaskId;

/// The memory of all tails: about as much as the append log has.
const TAIL_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Beyond this size of the tails of ended runs, packing precedes other work.
const ENDED_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The tails of threads, by the thread's number.
#[derive(Debug)]
pub(crate) struct RecordTails {
    tails: HashMap<i64, RecordTail>,
    /// The memory of all of them.
    bytes: usize,
    /// The size of those whose runs have ended.
    ended_bytes: usize,
    bytes_max: usize,
}

impl Default for RecordTails {
    fn default() -> Self {
        Self { tails: HashMap::default(), bytes: 0, ended_bytes: 0, bytes_max: TAIL_BYTES_MAX }
    }
}

/// Consecutive records of a run.
#[derive(Debug)]
pub(crate) struct RecordTail {
    /// The number of the run.
    pub(crate) run: i64,
    pub(crate) run_id: TaskId,
    records: EncodedRecords,
    /// The position of its newest record.
    newest_pos: i64,
    is_ended: bool,
}

impl RecordTail {
    fn new(run: i64, run_id: TaskId) -> Self {
        Self { run, run_id, records: EncodedRecords::default(), newest_pos: 0, is_ended: false }
    }

    pub(crate) fn contains(&self, seq: u64) -> bool {
        self.records.first_seq().is_some_and(|first| first <= seq)
            && self.records.end_seq().is_some_and(|end| seq < end)
    }

    /// The first record after this one, which the tail does not contain.
    pub(crate) fn next_after(&self, seq: u64) -> Option<u64> {
        self.records.first_seq().filter(|first| seq < *first)
    }

    /// Moves the records from `next` on into a block, up to its limit. Returns the seq after the last. Records before `next` are
    /// dropped: they are in the block already.
    pub(crate) fn move_records(&mut self, next: u64, limit: BlockLimit, block: &mut Vec<u8>) -> u64 {
        let end = self.records.end_seq().unwrap_or(next);
        self.records.skip_to(next);
        block.reserve(self.records.bytes().min(BLOCK_BYTES));
        self.records.move_into(block, |seq, bytes| limit.has_room(seq, bytes));
        self.records.first_seq().unwrap_or(end)
    }
}

impl RecordTails {
    /// Adds records, whose newest is at `pos`. A run that waits to be packed precedes the next one of its thread, whose first records
    /// are then read from their rows.
    pub(crate) fn push(&mut self, (thread, run): (i64, i64), run_id: &TaskId, batch: EncodedBatch, pos: i64) {
        let tail = self.tails.entry(thread).or_insert_with(|| RecordTail::new(run, run_id.clone()));
        if tail.run != run || tail.records.end_seq().is_some_and(|end| end != batch.first) {
            if tail.is_ended {
                return;
            }
            self.bytes = self.bytes.saturating_sub(tail.records.bytes());
            *tail = RecordTail::new(run, run_id.clone());
        }
        let bytes = batch.encoded.len();
        tail.records.push(batch);
        tail.newest_pos = pos;
        self.bytes += bytes;
        if tail.is_ended {
            self.ended_bytes += bytes;
        }
        if self.bytes > self.bytes_max {
            self.drop_silent();
        }
    }

    /// The run with this number has ended: its records are about to be packed.
    pub(crate) fn end_run(&mut self, thread: i64, run: i64) {
        if let Some(tail) = self.tails.get_mut(&thread).filter(|tail| tail.run == run && !tail.is_ended) {
            tail.is_ended = true;
            self.ended_bytes += tail.records.bytes();
        }
    }

    /// Whether the records of this run from `first` up to, and without, `end` are here. Returns their size, or of more.
    pub(crate) fn measure_run(&self, thread: i64, run: i64, first: u64, end: u64) -> Option<usize> {
        let tail = self.tails.get(&thread).filter(|tail| tail.run == run && !tail.is_ended)?;
        let is_here = tail.records.first_seq()? <= first && tail.records.end_seq()? == end;
        is_here.then_some(tail.records.bytes())
    }

    pub(crate) fn take(&mut self, thread: i64) -> Option<RecordTail> {
        let tail = self.tails.remove(&thread)?;
        self.bytes = self.bytes.saturating_sub(tail.records.bytes());
        if tail.is_ended {
            self.ended_bytes = self.ended_bytes.saturating_sub(tail.records.bytes());
        }
        Some(tail)
    }

    /// Puts back what is left of a tail.
    pub(crate) fn put_back(&mut self, thread: i64, tail: RecordTail) {
        if tail.records.is_empty() {
            return;
        }
        self.bytes += tail.records.bytes();
        if tail.is_ended {
            self.ended_bytes += tail.records.bytes();
        }
        self.tails.insert(thread, tail);
    }

    pub(crate) fn clear(&mut self) {
        (self.tails, self.bytes, self.ended_bytes) = (HashMap::default(), 0, 0);
    }

    /// Whether ended runs take much of the space.
    pub(crate) const fn is_crowded(&self) -> bool {
        self.ended_bytes > ENDED_BYTES_MAX
    }

    /// Drops tails until a quarter of the space is free, so that this is rarely necessary.
    fn drop_silent(&mut self) {
        let mut order: Vec<_> = self.tails.iter().map(|(num, tail)| (tail.is_ended, tail.newest_pos, *num)).collect();
        order.sort_unstable();
        for (_, _, thread) in order {
            if self.bytes <= self.bytes_max / 4 * 3 {
                break;
            }
            self.take(thread);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_coding::BlockCompressor;
    use crate::sqlite::log_size::LogSizeCount;
    use crate::sqlite::record_blocks::{PackContext, pack_records};
    use crate::sqlite::record_index::{IndexUpdate, RecordIndex};
    use crate::sqlite::thread_extents::{Extent, PackRequest};
    use crate::sqlite::transaction::{WriteTransaction, WriterState};
    use crate::sqlite::{record_row, schema};
    use model::condense::condense_records;
    use model::event::{CustomEvent, Event, TaskStarted, TextDelta};
    use model::ports::{AppendBatch, AppendOutcome, DirectoryChange};
    use model::record::{PrivatePayload, Record, RecordDraft};
    use model::seq::{Epoch, Seq};
    use model::{ItemId, ThreadId, UserId};
    use model_testing::{Rng, test_seeds};
    use rusqlite::Connection;
    use rusqlite::types::Value;
    use std::collections::VecDeque;

    fn thread_id(num: i64) -> ThreadId {
        ThreadId::from(format!("thr_{num}"))
    }

    fn run_id(run: i64) -> TaskId {
        TaskId::from(format!("task_{run}"))
    }

    /// A store without a writer.
    struct PackedLog {
        conn: Connection,
        index: RecordIndex,
        tails: RecordTails,
        queue: VecDeque<PackRequest>,
        has_rows: bool,
    }

    impl PackedLog {
        fn new(bytes_max: usize, has_rows: bool) -> Self {
            let mut conn = Connection::open_in_memory().unwrap();
            schema::migrate(&mut conn, schema::MIGRATIONS).unwrap();
            for num in 1..=3 {
                let sql = "INSERT INTO threads (num, id, owner, created_at, updated_at) VALUES (?1, ?2, ?3, 1, 1)";
                conn.execute(sql, (num, thread_id(num).as_str(), format!("user_{}", num % 2))).unwrap();
            }
            let tails = RecordTails { bytes_max, ..RecordTails::default() };
            Self { conn, index: RecordIndex::default(), tails, queue: VecDeque::new(), has_rows }
        }

        fn append(&mut self, thread: i64, run: i64, records: &[Record], pos: i64) {
            let (mut rest, mut end_pos, mut data) = (records, pos, Vec::new());
            while !rest.is_empty() {
                let row;
                (row, rest) = record_row::encode_row(rest, &mut data);
                let (seq, count) = (row[0].seq.0.cast_signed(), row.len() as i64);
                end_pos += count;
                if self.has_rows {
                    let columns = (end_pos - 1, thread, run, seq, count, &data[..]);
                    self.conn.execute(record_row::INSERT_RECORDS, columns).unwrap();
                }
                let (first, count) = (row[0].seq.0, row.len() as u64);
                let batch = EncodedBatch { first, count, encoded: data[..].into() };
                self.tails.push((thread, run), &run_id(run), batch, end_pos - 1);
            }
            let sql = "INSERT OR IGNORE INTO runs (num, id, owner, thread, agent, status, created_at)
                       VALUES (?1, ?2, 'u', ?3, 'a', 'running', 1)";
            self.conn.execute(sql, (run, run_id(run).as_str(), thread)).unwrap();
            let extent = Extent { seq: records[0].seq.0, pos, count: records.len() as u64 };
            let (owner, bytes) = (UserId::from(format!("user_{}", thread % 2)), records.iter().map(Record::size_bytes));
            let bytes = bytes.sum::<usize>() as u64;
            self.publish(vec![IndexUpdate::Appended { thread: thread_id(thread), num: thread, owner, extent, bytes }]);
        }

        fn publish(&mut self, updates: Vec<IndexUpdate>) {
            self.queue.extend(self.index.publish(updates).pack_requests);
        }

        fn pack(&mut self, bytes_max: usize) {
            let Self { conn, index, tails, queue, .. } = self;
            let compressor = &mut BlockCompressor::default();
            let (log_count, condense) = (&LogSizeCount::default(), Some(condense_records as _));
            let context = PackContext { index, tails, compressor, log_count, condense };
            let packed = pack_records(conn, context, queue, &mut Vec::new(), bytes_max).unwrap();
            self.publish(packed.index_updates);
        }

        /// All that packing has written.
        fn dump(&self) -> Vec<Vec<Value>> {
            let mut rows = Vec::new();
            for table in ["blocks", "condensed", "thread_sizes", "log_sums"] {
                let mut select = self.conn.prepare(&format!("SELECT * FROM {table} ORDER BY 1, 2")).unwrap();
                let columns = select.column_count();
                let found = select.query_map((), |row| (0..columns).map(|column| row.get(column)).collect());
                rows.extend(found.unwrap().map(Result::unwrap));
            }
            rows
        }
    }

    fn random_record(rng: &mut Rng, (thread, run, seq): (i64, i64, u64)) -> Record {
        let task_id = run_id(run);
        let event = if rng.chance(85) {
            let (item_id, delta) = (ItemId::from("msg_1"), format!("word {seq} "));
            Event::TextDelta(TextDelta { task_id, item_id, output_index: 0, block_index: 0, delta, logprobs: None })
        } else {
            let text = "x".repeat(if rng.chance(5) { 90_000 } else { rng.below(300) });
            Event::Custom(CustomEvent { task_id, name: "note".to_owned(), value: text.into() })
        };
        let private =
            rng.chance(5).then(|| Box::new(PrivatePayload { deadline: Some(seq), ..PrivatePayload::default() }));
        Record::seal(&thread_id(thread), &run_id(run), Epoch(7), RecordDraft { seq: Seq(seq), at: seq, event, private })
    }

    #[test]
    fn blocks_from_memory_are_those_from_rows() {
        for seed in test_seeds() {
            let rng = &mut Rng::new(seed);
            // All from rows, some from both, and all from memory: there it has no rows.
            let mut logs = [PackedLog::new(0, true), PackedLog::new(20_000, true), PackedLog::new(usize::MAX, false)];
            let (mut pos, mut heads, mut runs) = (1, [0_u64; 3], [1_i64, 2, 3]);
            for _ in 0..50 {
                let n = rng.below(3);
                let (thread, run) = (n as i64 + 1, runs[n]);
                let count = if rng.chance(1) { 3_000 } else { rng.between(1, 12) };
                let seqs = heads[n] + 1..=heads[n] + u64::from(count);
                let records: Vec<_> = seqs.map(|seq| random_record(rng, (thread, run, seq))).collect();
                logs.iter_mut().for_each(|log| log.append(thread, run, &records, pos));
                (pos, heads[n]) = (pos + i64::from(count), heads[n] + u64::from(count));
                if rng.chance(15) {
                    runs[n] += 3;
                    for log in &mut logs {
                        log.tails.end_run(thread, run);
                        let (thread_id, last) = (thread_id(thread), Seq(heads[n]));
                        log.publish(vec![IndexUpdate::RunEnded { thread: thread_id, num: thread, last }]);
                    }
                    // The next run of a thread is in memory from its start if the one before is packed.
                    logs.iter_mut().for_each(|log| {
                        while !log.queue.is_empty() {
                            log.pack(usize::MAX);
                        }
                    });
                } else if rng.chance(20) {
                    let bytes_max = rng.below(400_000);
                    logs.iter_mut().for_each(|log| log.pack(bytes_max));
                }
                if rng.chance(5) {
                    logs[1].tails.clear();
                }
            }
            let [rows, both, memory] = logs;
            assert!(!rows.dump().is_empty(), "SEED={seed}");
            assert!(both.dump() == rows.dump(), "SEED={seed}: from rows and memory");
            assert!(memory.dump() == rows.dump(), "SEED={seed}: from memory");
        }
    }

    #[test]
    fn a_deleted_thread_leaves_nothing_in_memory() {
        let (log, mut state) = (PackedLog::new(0, false), WriterState::default());
        let (owner, thread) = (UserId::from("user_1"), thread_id(1));
        let mut transaction = WriteTransaction::new(&log.conn, &mut state);
        let epoch = transaction.claim_new_thread(&thread, 1, &owner).epoch;
        let event = Event::Started(TaskStarted { task_id: run_id(1) });
        let draft = RecordDraft { seq: Seq(1), at: 1, event, private: None };
        let records = [Record::seal(&thread, &run_id(1), epoch, draft)].into();
        let changes =
            [DirectoryChange::RunStarted { run: run_id(1), agent: "a".to_owned(), first: Seq(1), at: 1 }].into();
        let batch =
            AppendBatch { owner: owner.clone(), thread: thread.clone(), epoch, head: Seq::ZERO, records, changes };
        assert_eq!(transaction.append(&batch, None), Ok(AppendOutcome::Durable));
        assert_eq!(transaction.state.tails.tails.len(), 1);
        assert_eq!(transaction.delete_thread(&owner, &thread), Ok(true));
        let RecordTails { tails, bytes, .. } = &transaction.state.tails;
        assert_eq!((tails.len(), *bytes), (0, 0));
    }

    fn push_record(tails: &mut RecordTails, (thread, run): (i64, i64), record: &Record, pos: i64) {
        let mut data = Vec::new();
        record_row::encode_row(std::slice::from_ref(record), &mut data);
        let batch = EncodedBatch { first: record.seq.0, count: 1, encoded: data.into() };
        tails.push((thread, run), &run_id(run), batch, pos);
    }

    fn tails_of(threads: &[(i64, u64)], bytes_max: usize) -> RecordTails {
        let mut tails = RecordTails { bytes_max, ..RecordTails::default() };
        let rng = &mut Rng::new(1);
        for (at, (thread, seq)) in threads.iter().enumerate() {
            push_record(&mut tails, (*thread, *thread), &random_record(rng, (*thread, *thread, *seq)), at as i64);
        }
        tails
    }

    #[test]
    fn the_threads_that_were_silent_for_longest_are_dropped_and_ended_runs_last() {
        let mut tails = tails_of(&[(1, 1), (2, 1), (3, 1), (1, 2)], usize::MAX);
        tails.end_run(2, 2);
        tails.bytes_max = tails.bytes;
        push_record(&mut tails, (1, 1), &random_record(&mut Rng::new(2), (1, 1, 3)), 9);
        let mut left: Vec<_> = tails.tails.keys().copied().collect();
        left.sort_unstable();
        assert!(left == [1, 2] || left == [2], "{left:?}");
        assert!(tails.bytes <= tails.bytes_max);
        assert_eq!(tails.bytes, tails.tails.values().map(|tail| tail.records.bytes()).sum::<usize>());
    }

    #[test]
    fn a_gap_or_another_run_starts_a_tail_again_and_an_ended_run_stays() {
        let mut tails = tails_of(&[(1, 1), (1, 2), (1, 7), (1, 8)], usize::MAX);
        let tail = tails.take(1).unwrap();
        assert_eq!((tail.records.first_seq(), tail.records.end_seq(), tails.bytes), (Some(7), Some(9), 0));
        tails.put_back(1, tail);
        let next = |seq: u64| random_record(&mut Rng::new(3), (1, 4, seq));
        push_record(&mut tails, (1, 4), &next(9), 9);
        assert_eq!(tails.tails.get(&1).map(|tail| (tail.run, tail.records.first_seq())), Some((4, Some(9))));
        tails.end_run(1, 4);
        let ended = tails.ended_bytes;
        assert_eq!(ended, tails.tails.get(&1).unwrap().records.bytes());
        push_record(&mut tails, (1, 5), &next(10), 10);
        assert_eq!((tails.tails.get(&1).unwrap().run, tails.ended_bytes), (4, ended));
        push_record(&mut tails, (1, 4), &next(10), 10);
        assert!(tails.ended_bytes > ended, "a record after the end of the run");
        tails.take(1);
        assert_eq!((tails.bytes, tails.ended_bytes), (0, 0));
    }
}
