//! Positions of the rows of live threads.
//!
//! The table `records` has no index on (thread, seq), which would cost more than the rest of an append. This index in
//! memory has the positions: those of a batch are consecutive, so an entry is a short list of extents. Only the writer
//! changes it, after the commit, so that only durable records are visible. A thread has an entry from its creation, or from
//! the submission that claimed it, until all of its rows are packed into `blocks`.
//!
//! It notices when a thread has many rows: those of a long run are packed before it ends, so that the rows that a start has
//! to scan depend on the number of live threads and not on the length of their runs. It counts the rows that wait to be packed,
//! so that the writer can bound them.
//!
//! All these are numbers of records: a row has one or more.
//!
//! It also knows how many bytes these rows hold, per thread and per owner: `log_size` adds what is in blocks.

use super::encoded_records::EncodedBatch;
use super::lock;
use super::log_only_records::LogOnlyRecords;
use super::thread_extents::{Extent, LIVE_ROWS_OVERDUE, PackRequest, PackScope, ThreadExtents};
use foldhash::HashMap;
use model::seq::Seq;
use model::{ThreadId, UserId};
use std::sync::Mutex;

/// A change that a commit made.
#[derive(Debug)]
pub(crate) enum IndexUpdate {
    /// A thread that was created, or is about to get its next rows.
    ThreadClaimed {
        thread: ThreadId,
        num: i64,
        owner: UserId,
        head: Seq,
    },
    /// Rows that were inserted. They may begin with records that were in the log; `bytes` is the size of the others.
    Appended {
        thread: ThreadId,
        num: i64,
        owner: UserId,
        extent: Extent,
        bytes: u64,
    },
    /// Records that were appended to the log.
    Logged {
        thread: ThreadId,
        num: i64,
        owner: UserId,
        run: i64,
        batch: EncodedBatch,
        bytes: u64,
    },
    /// A run whose last record this is has ended.
    RunEnded {
        thread: ThreadId,
        num: i64,
        last: Seq,
    },
    /// Records up to `last`, of this size, are in `blocks`.
    Packed {
        thread: ThreadId,
        last: Seq,
        bytes: u64,
    },
    ThreadDeleted {
        thread: ThreadId,
    },
}

/// The positions of the records that a reader wants.
#[derive(Clone, Debug)]
pub(crate) struct ReadPlan {
    pub(crate) num: i64,
    pub(crate) owner: UserId,
    pub(crate) head: Seq,
    /// The first record that is damaged or missing.
    pub(crate) damaged_at: Option<Seq>,
    pub(crate) extents: Vec<Extent>,
    /// The last record that the database has. The others up to the head are in the log.
    pub(crate) stored: Seq,
    /// Those of them that the reader wants.
    pub(crate) logged: LogOnlyRecords,
}

/// The oldest record of a thread that is in no block.
#[derive(Clone, Debug)]
pub(crate) struct OldestRow {
    pub(crate) num: i64,
    pub(crate) owner: UserId,
    pub(crate) seq: Seq,
}

/// What follows from changes of the index.
#[derive(Debug, Default)]
pub(crate) struct IndexEffects {
    /// Newly dead rows with the numbers of their threads.
    pub(crate) dead_rows: Vec<(i64, Extent)>,
    /// Their approximate size.
    pub(crate) dead_bytes: u64,
    pub(crate) pack_requests: Vec<PackRequest>,
    /// Threads of which the log had nothing, and now has.
    pub(crate) logged_threads: Vec<ThreadId>,
    /// Whether rows arrive faster than they are packed.
    pub(crate) is_packing_overdue: bool,
}

/// Where records were added.
enum Added {
    Rows(Extent),
    Logged { run: i64, batch: EncodedBatch },
}

#[derive(Debug, Default)]
pub(crate) struct RecordIndex(Mutex<LiveThreads>);

#[derive(Debug, Default)]
struct LiveThreads {
    entries: HashMap<ThreadId, ThreadExtents>,
    /// The sum of the entries' bytes, by owner.
    bytes_of_owner: HashMap<UserId, u64>,
    /// The sum of the entries' rows that wait to be packed.
    waiting_rows: u64,
}

impl LiveThreads {
    fn add_bytes(&mut self, owner: &UserId, bytes: u64) {
        if bytes > 0 {
            let sum = match self.bytes_of_owner.get_mut(owner) {
                Some(sum) => sum,
                None => self.bytes_of_owner.entry(owner.clone()).or_default(),
            };
            *sum = sum.saturating_add(bytes);
        }
    }

    fn subtract_bytes(&mut self, owner: &UserId, bytes: u64) {
        if let Some(sum) = self.bytes_of_owner.get_mut(owner) {
            *sum = sum.saturating_sub(bytes);
            if *sum == 0 {
                self.bytes_of_owner.remove(owner);
            }
        }
    }

    fn remove(&mut self, thread: &ThreadId) {
        if let Some(entry) = self.entries.remove(thread) {
            self.subtract_bytes(&entry.owner, entry.bytes);
            self.waiting_rows = self.waiting_rows.saturating_sub(entry.waiting_rows());
        }
    }

    /// Adds an entry, unless rows of the thread wait to be packed.
    fn claim(&mut self, thread: ThreadId, num: i64, owner: UserId, head: Seq) {
        if self.entries.get(&thread).is_none_or(|entry| entry.num != num) {
            self.entries.insert(thread, ThreadExtents { head, ..ThreadExtents::new(num, owner) });
        }
    }

    fn append(&mut self, thread: &ThreadId, new: ThreadExtents, added: Added, effects: &mut IndexEffects) {
        let ThreadExtents { num, owner, bytes, .. } = new;
        self.add_bytes(&owner, bytes);
        let entry = match self.entries.get_mut(thread) {
            Some(entry) => entry,
            None => self.entries.entry(thread.clone()).or_insert_with(|| ThreadExtents::new(num, owner)),
        };
        let waiting_before = entry.waiting_rows();
        entry.bytes = entry.bytes.saturating_add(bytes);
        match added {
            Added::Rows(extent) => entry.push_extent(extent),
            Added::Logged { run, batch } => {
                if entry.logged.records.is_empty() {
                    effects.logged_threads.push(thread.clone());
                }
                entry.push_logged(run, batch);
            }
        }
        effects.pack_requests.extend(entry.request_packing(thread));
        effects.is_packing_overdue |= entry.row_count() > LIVE_ROWS_OVERDUE;
        self.waiting_rows = self.waiting_rows.saturating_sub(waiting_before).saturating_add(entry.waiting_rows());
    }

    /// Requests that the rows up to the end of a run are packed.
    fn end_run(&mut self, thread: ThreadId, num: i64, last: Seq, effects: &mut IndexEffects) {
        let Some(entry) = self.entries.get_mut(&thread).filter(|entry| entry.num == num) else { return };
        let waiting_before = entry.waiting_rows();
        entry.packable_until = entry.packable_until.max(last);
        self.waiting_rows = self.waiting_rows.saturating_sub(waiting_before).saturating_add(entry.waiting_rows());
        effects.pack_requests.push(PackRequest { thread, num, last, scope: PackScope::EndedRun });
    }

    /// Removes the rows up to `last` from the thread's entry and adds them to the dead ones.
    fn pack(&mut self, thread: &ThreadId, last: Seq, bytes: u64, effects: &mut IndexEffects) {
        let Some(entry) = self.entries.get_mut(thread) else { return };
        let waiting_before = entry.waiting_rows();
        let moved_bytes = bytes.min(entry.bytes);
        entry.bytes -= moved_bytes;
        let (rest, known_before) = (last.next().0, effects.dead_rows.len());
        let moved_records = entry.first_seq().map_or(0, |first| rest.saturating_sub(first));
        while let Some(extent) = entry.extents.front().copied().filter(|extent| extent.end_seq() <= rest) {
            effects.dead_rows.push((entry.num, extent));
            entry.extents.pop_front();
        }
        entry.logged.skip_to(rest);
        if let Some(first) = entry.extents.front_mut() {
            let moved = rest.saturating_sub(first.seq);
            if moved > 0 {
                effects.dead_rows.push((entry.num, Extent { count: moved, ..*first }));
            }
            *first = first.skip_to(rest);
        }
        // The others were only in the log.
        let dead: u64 = effects.dead_rows.iter().skip(known_before).map(|(_, extent)| extent.count).sum();
        effects.dead_bytes += (moved_bytes / moved_records.max(1)).saturating_mul(dead);
        let is_empty = entry.first_seq().is_none() && entry.damaged_at.is_none();
        if bytes > 0 {
            entry.is_pack_requested = false;
            effects.pack_requests.extend(entry.request_packing(thread));
        }
        self.waiting_rows = self.waiting_rows.saturating_sub(waiting_before).saturating_add(entry.waiting_rows());
        let owner = entry.owner.clone();
        self.subtract_bytes(&owner, moved_bytes);
        if is_empty {
            self.remove(thread);
        }
    }
}

impl RecordIndex {
    /// Locates at most `records_max` records after `after`. `None` when the thread has no entry.
    pub(crate) fn read_plan(&self, thread: &ThreadId, after: Seq, records_max: usize) -> Option<ReadPlan> {
        let live = lock(&self.0);
        let entry = live.entries.get(thread)?;
        let (extents, rest) = entry.extents_from(after.next().0, records_max as u64);
        Some(ReadPlan {
            num: entry.num,
            owner: entry.owner.clone(),
            head: entry.head,
            damaged_at: entry.damaged_at,
            extents,
            stored: entry.stored(),
            logged: entry.logged.part_from(after.next().0, rest),
        })
    }

    /// The oldest record of a thread outside blocks; `None` when it has none.
    pub(crate) fn oldest_row(&self, thread: &ThreadId) -> Option<OldestRow> {
        let live = lock(&self.0);
        let entry = live.entries.get(thread)?;
        let seq = Seq(entry.first_seq()?);
        Some(OldestRow { num: entry.num, owner: entry.owner.clone(), seq })
    }

    /// Whether this record of a live thread is not published yet.
    pub(crate) fn is_behind(&self, thread: &ThreadId, seq: Seq) -> bool {
        lock(&self.0).entries.get(thread).is_some_and(|entry| entry.head < seq)
    }

    /// Publishes committed changes in order.
    pub(crate) fn publish(&self, updates: Vec<IndexUpdate>) -> IndexEffects {
        let mut live = lock(&self.0);
        let mut effects = IndexEffects::default();
        for update in updates {
            match update {
                IndexUpdate::ThreadClaimed { thread, num, owner, head } => live.claim(thread, num, owner, head),
                IndexUpdate::Appended { thread, num, owner, extent, bytes } => {
                    let new = ThreadExtents { bytes, ..ThreadExtents::new(num, owner) };
                    live.append(&thread, new, Added::Rows(extent), &mut effects);
                }
                IndexUpdate::Logged { thread, num, owner, run, batch, bytes } => {
                    let new = ThreadExtents { bytes, ..ThreadExtents::new(num, owner) };
                    live.append(&thread, new, Added::Logged { run, batch }, &mut effects);
                }
                IndexUpdate::RunEnded { thread, num, last } => live.end_run(thread, num, last, &mut effects),
                IndexUpdate::Packed { thread, last, bytes } => live.pack(&thread, last, bytes, &mut effects),
                IndexUpdate::ThreadDeleted { thread } => live.remove(&thread),
            }
        }
        effects
    }

    /// The size of the records of a user's live threads that are not in blocks.
    pub(crate) fn bytes_of_owner(&self, owner: &UserId) -> u64 {
        lock(&self.0).bytes_of_owner.get(owner).copied().unwrap_or_default()
    }

    /// The same of all users.
    pub(crate) fn total_bytes(&self) -> u64 {
        lock(&self.0).bytes_of_owner.values().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// The number of rows that wait to be packed.
    pub(crate) fn waiting_rows(&self) -> u64 {
        lock(&self.0).waiting_rows
    }

    /// Replaces all entries, after a scan of the database.
    pub(crate) fn replace(&self, fresh: impl IntoIterator<Item = (ThreadId, ThreadExtents)>) {
        let mut live = LiveThreads::default();
        for (thread, entry) in fresh {
            live.add_bytes(&entry.owner, entry.bytes);
            live.waiting_rows = live.waiting_rows.saturating_add(entry.waiting_rows());
            live.entries.insert(thread, entry);
        }
        *lock(&self.0) = live;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::thread_extents::{LIVE_ROWS_KEPT, LIVE_ROWS_MAX};

    fn thread() -> ThreadId {
        ThreadId::from("thr_1")
    }

    fn appended(seq: u64, pos: i64, count: u64) -> IndexUpdate {
        let extent = Extent { seq, pos, count };
        IndexUpdate::Appended { thread: thread(), num: 1, owner: UserId::from("u"), extent, bytes: 10 * count }
    }

    fn extents(index: &RecordIndex, after: u64, max: usize) -> Vec<(u64, i64, u64)> {
        let plan = index.read_plan(&thread(), Seq(after), max).unwrap();
        plan.extents.iter().map(|extent| (extent.seq, extent.pos, extent.count)).collect()
    }

    #[test]
    fn adjacent_ranges_merge_and_others_do_not() {
        let index = RecordIndex::default();
        index.publish(vec![appended(1, 10, 3), appended(4, 13, 2), appended(6, 20, 1)]);
        assert_eq!(extents(&index, 0, 99), [(1, 10, 5), (6, 20, 1)]);
        assert_eq!(extents(&index, 2, 2), [(3, 12, 2)]);
        assert_eq!(extents(&index, 4, 99), [(5, 14, 1), (6, 20, 1)]);
        assert_eq!(extents(&index, 6, 99), []);
    }

    #[test]
    fn moved_rows_are_forgotten_and_the_rest_stays() {
        let index = RecordIndex::default();
        let moved = IndexUpdate::Packed { thread: thread(), last: Seq(4), bytes: 40 };
        let published = index.publish(vec![appended(1, 10, 3), appended(4, 20, 3), moved]);
        let (dead, dead_bytes) = (published.dead_rows, published.dead_bytes);
        assert_eq!(dead, [(1, Extent { seq: 1, pos: 10, count: 3 }), (1, Extent { seq: 4, pos: 20, count: 1 })]);
        assert_eq!(dead_bytes, 40);
        assert_eq!(extents(&index, 0, 99), [(5, 21, 2)]);
        assert_eq!(index.read_plan(&thread(), Seq(0), 1).unwrap().head, Seq(6));
        assert_eq!(index.bytes_of_owner(&UserId::from("u")), 20);
        index.publish(vec![IndexUpdate::Packed { thread: thread(), last: Seq(6), bytes: 20 }]);
        assert!(index.read_plan(&thread(), Seq(0), 1).is_none());
        assert_eq!(index.bytes_of_owner(&UserId::from("u")), 0);
        index.publish(vec![appended(7, 30, 2), IndexUpdate::ThreadDeleted { thread: thread() }]);
        assert_eq!(index.bytes_of_owner(&UserId::from("u")), 0);
    }

    #[test]
    fn rows_wait_from_the_end_of_their_run_until_they_are_packed() {
        let index = RecordIndex::default();
        let ended = |num: i64, last: u64| IndexUpdate::RunEnded { thread: thread(), num, last: Seq(last) };
        index.publish(vec![appended(1, 10, 30)]);
        assert_eq!(index.waiting_rows(), 0, "the run goes on");
        let request = PackRequest { thread: thread(), num: 1, last: Seq(20), scope: PackScope::EndedRun };
        assert_eq!(index.publish(vec![ended(1, 20)]).pack_requests, [request]);
        assert_eq!(index.waiting_rows(), 20);
        // The second run of a thread does not count the first again, nor does a thread of the same id that was deleted.
        index.publish(vec![ended(1, 25), ended(2, 30)]);
        assert_eq!(index.waiting_rows(), 25);
        index.publish(vec![IndexUpdate::Packed { thread: thread(), last: Seq(15), bytes: 150 }]);
        assert_eq!(index.waiting_rows(), 10);
        let entry = lock(&index.0).entries.get(&thread()).cloned().unwrap();
        index.publish(vec![IndexUpdate::ThreadDeleted { thread: thread() }]);
        assert_eq!(index.waiting_rows(), 0);
        index.replace([(thread(), entry)]);
        assert_eq!(index.waiting_rows(), 10);
        index.publish(vec![IndexUpdate::Packed { thread: thread(), last: Seq(30), bytes: 150 }]);
        assert_eq!(index.waiting_rows(), 0);
    }

    #[test]
    fn the_oldest_rows_of_a_long_run_are_packed_block_by_block() {
        let index = RecordIndex::default();
        let request =
            |last: u64| vec![PackRequest { thread: thread(), num: 1, last: Seq(last), scope: PackScope::LongRun }];
        assert_eq!(index.publish(vec![appended(1, 1, LIVE_ROWS_MAX)]).pack_requests, []);
        let head = LIVE_ROWS_MAX + 1;
        let first = index.publish(vec![appended(head, head.cast_signed(), 1)]);
        assert_eq!(first.pack_requests, request(head - LIVE_ROWS_KEPT));
        assert_eq!(index.waiting_rows(), head - LIVE_ROWS_KEPT);
        // Once is enough, until a block is packed.
        let more = index.publish(vec![appended(head + 1, head.cast_signed() + 1, LIVE_ROWS_OVERDUE)]);
        assert_eq!((more.pack_requests, more.is_packing_overdue), (vec![], true));
        let head = head + LIVE_ROWS_OVERDUE;
        let packed = index.publish(vec![IndexUpdate::Packed { thread: thread(), last: Seq(100), bytes: 1 }]);
        assert_eq!(packed.pack_requests, request(head - LIVE_ROWS_KEPT));
        let last = Seq(head - LIVE_ROWS_KEPT);
        let packed = index.publish(vec![IndexUpdate::Packed { thread: thread(), last, bytes: 1 }]);
        assert_eq!(packed.pack_requests, []);
        assert_eq!(extents(&index, 0, 9), [(last.0 + 1, last.0.cast_signed() + 1, 9)]);
    }
}
