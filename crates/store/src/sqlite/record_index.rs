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

use super::lock;
use foldhash::HashMap;
use model::seq::Seq;
use model::{ThreadId, UserId};
use std::collections::VecDeque;
use std::sync::Mutex;

/// A thread with more rows than this has its oldest packed, up to the newest [`LIVE_ROWS_KEPT`].
pub(crate) const LIVE_ROWS_MAX: u64 = 2_048;
pub(crate) const LIVE_ROWS_KEPT: u64 = 512;
/// With more rows than this, packing the thread precedes other work.
const LIVE_ROWS_OVERDUE: u64 = 16_384;

/// Rows that have to be packed: those of a thread up to this record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PackRequest {
    pub(crate) thread: ThreadId,
    /// The thread's number: the id may be reused after a deletion.
    pub(crate) num: i64,
    pub(crate) last: Seq,
    pub(crate) scope: PackScope,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PackScope {
    /// All of them: their run has ended.
    EndedRun,
    /// One block: their run goes on.
    LongRun,
}

/// Consecutive records at consecutive positions. `record_row` says which rows have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) seq: u64,
    /// The position of the first record.
    pub(crate) pos: i64,
    pub(crate) count: u64,
}

impl Extent {
    /// The seq after the last record.
    pub(crate) const fn end_seq(self) -> u64 {
        self.seq.saturating_add(self.count)
    }

    /// The position after the last record.
    pub(crate) const fn end_pos(self) -> i64 {
        self.pos.saturating_add(self.count.cast_signed())
    }

    /// The part of the extent that starts at this seq.
    pub(crate) fn skip_to(self, seq: u64) -> Self {
        let skip = seq.saturating_sub(self.seq).min(self.count);
        let pos = self.pos.saturating_add(skip.cast_signed());
        Self { seq: self.seq.saturating_add(skip), pos, count: self.count - skip }
    }
}

/// A thread that has rows in `records`, or is about to.
#[derive(Clone, Debug)]
pub(crate) struct ThreadExtents {
    pub(crate) num: i64,
    pub(crate) owner: UserId,
    /// The last durable record.
    pub(crate) head: Seq,
    /// Oldest first, without gaps.
    pub(crate) extents: VecDeque<Extent>,
    /// The size of the records in these rows.
    pub(crate) bytes: u64,
    /// The first record that is damaged or missing.
    pub(crate) damaged_at: Option<Seq>,
    /// Whether its oldest rows wait to be packed although their run goes on. Rows that cannot be packed wait for ever.
    pub(crate) is_pack_requested: bool,
    /// Rows up to this record wait to be packed, or are.
    pub(crate) packable_until: Seq,
}

impl ThreadExtents {
    const fn new(num: i64, owner: UserId) -> Self {
        Self {
            num,
            owner,
            head: Seq::ZERO,
            extents: VecDeque::new(),
            bytes: 0,
            damaged_at: None,
            is_pack_requested: false,
            packable_until: Seq::ZERO,
        }
    }

    fn row_count(&self) -> u64 {
        self.rows_up_to(self.head)
    }

    fn rows_up_to(&self, last: Seq) -> u64 {
        self.extents.front().map_or(0, |first| last.next().0.saturating_sub(first.seq))
    }

    /// The number of its rows that wait to be packed.
    pub(crate) fn waiting_rows(&self) -> u64 {
        self.rows_up_to(self.packable_until.min(self.head))
    }

    /// A request to pack its oldest rows, if there are many and none was made.
    pub(crate) fn request_packing(&mut self, thread: &ThreadId) -> Option<PackRequest> {
        if self.row_count() <= LIVE_ROWS_MAX || self.damaged_at.is_some() || self.is_pack_requested {
            return None;
        }
        self.is_pack_requested = true;
        let last = Seq(self.head.0.saturating_sub(LIVE_ROWS_KEPT));
        self.packable_until = self.packable_until.max(last);
        Some(PackRequest { thread: thread.clone(), num: self.num, last, scope: PackScope::LongRun })
    }

    pub(crate) fn push_extent(&mut self, new: Extent) {
        self.head = Seq(new.end_seq().saturating_sub(1));
        match self.extents.back_mut() {
            Some(last) if last.end_pos() == new.pos => last.count = last.count.saturating_add(new.count),
            _ => self.extents.push_back(new),
        }
    }

    /// The extents that start at this seq, with at most `records_max` records.
    fn extents_from(&self, seq: u64, records_max: u64) -> Vec<Extent> {
        let begin = self.extents.partition_point(|extent| extent.end_seq() <= seq);
        let mut left = records_max;
        let mut found = Vec::new();
        for extent in self.extents.iter().skip(begin) {
            if left == 0 {
                break;
            }
            let mut extent = extent.skip_to(seq);
            extent.count = extent.count.min(left);
            left -= extent.count;
            found.push(extent);
        }
        found
    }
}

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
    Appended {
        thread: ThreadId,
        num: i64,
        owner: UserId,
        extent: Extent,
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
}

/// The oldest record of a thread that has a row and is in no block.
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
    pub(crate) pack_requests: Vec<PackRequest>,
    /// Whether rows arrive faster than they are packed.
    pub(crate) is_packing_overdue: bool,
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

    fn append(&mut self, thread: &ThreadId, new: ThreadExtents, extent: Extent, effects: &mut IndexEffects) {
        let ThreadExtents { num, owner, bytes, .. } = new;
        self.add_bytes(&owner, bytes);
        let entry = match self.entries.get_mut(thread) {
            Some(entry) => entry,
            None => self.entries.entry(thread.clone()).or_insert_with(|| ThreadExtents::new(num, owner)),
        };
        let waiting_before = entry.waiting_rows();
        entry.bytes = entry.bytes.saturating_add(bytes);
        entry.push_extent(extent);
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
        let rest = last.next().0;
        while let Some(extent) = entry.extents.front().copied().filter(|extent| extent.end_seq() <= rest) {
            effects.dead_rows.push((entry.num, extent));
            entry.extents.pop_front();
        }
        let mut is_empty = false;
        if let Some(first) = entry.extents.front_mut() {
            let moved = rest.saturating_sub(first.seq);
            if moved > 0 {
                effects.dead_rows.push((entry.num, Extent { count: moved, ..*first }));
            }
            *first = first.skip_to(rest);
        } else {
            is_empty = entry.damaged_at.is_none();
        }
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
        Some(ReadPlan {
            num: entry.num,
            owner: entry.owner.clone(),
            head: entry.head,
            damaged_at: entry.damaged_at,
            extents: entry.extents_from(after.next().0, records_max as u64),
        })
    }

    /// The oldest row of a thread; `None` when it has none.
    pub(crate) fn oldest_row(&self, thread: &ThreadId) -> Option<OldestRow> {
        let live = lock(&self.0);
        let entry = live.entries.get(thread)?;
        let seq = Seq(entry.extents.front()?.seq);
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
                    live.append(&thread, new, extent, &mut effects);
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
        let dead = index.publish(vec![appended(1, 10, 3), appended(4, 20, 3), moved]).dead_rows;
        assert_eq!(dead, [(1, Extent { seq: 1, pos: 10, count: 3 }), (1, Extent { seq: 4, pos: 20, count: 1 })]);
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
