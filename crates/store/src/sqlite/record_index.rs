//! Where the records of live threads lie.
//!
//! `records` has no index on (thread, seq), for that costs more than everything else of an append. Instead, the places
//! are kept here: a batch's rows are consecutive, so an entry is a short list of extents. Only the writer changes it,
//! and only after the commit: what is not in here is not durable, and nobody is shown it. A thread that was just made is
//! in here before its first row. Any other without rows in `records` is not; everything that it has is in `blocks`.

use super::lock;
use model::seq::Seq;
use model::{ThreadId, UserId};
use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

/// Consecutive records in consecutive rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The first record.
    pub(crate) seq: u64,
    /// Its row.
    pub(crate) pos: i64,
    /// How many.
    pub(crate) count: u64,
}

impl Extent {
    /// The place after the last record.
    pub(crate) const fn end_seq(self) -> u64 {
        self.seq.saturating_add(self.count)
    }

    /// The row after the last row.
    pub(crate) const fn end_pos(self) -> i64 {
        self.pos.saturating_add(self.count.cast_signed())
    }

    /// Without what is before this place.
    pub(crate) fn skip_to(self, seq: u64) -> Self {
        let skip = seq.saturating_sub(self.seq).min(self.count);
        let pos = self.pos.saturating_add(skip.cast_signed());
        Self { seq: self.seq.saturating_add(skip), pos, count: self.count - skip }
    }
}

/// A thread that has rows in `records`, or is about to.
#[derive(Clone, Debug)]
pub(crate) struct ThreadExtents {
    /// Its number in the tables.
    pub(crate) num: i64,
    /// Whose it is.
    pub(crate) owner: UserId,
    /// Its last durable record.
    pub(crate) head: Seq,
    /// Where its rows lie, oldest first, without a gap.
    pub(crate) extents: VecDeque<Extent>,
    /// The place at which the rows stop making sense.
    pub(crate) damaged_at: Option<Seq>,
}

impl ThreadExtents {
    /// A thread without rows.
    const fn new(num: i64, owner: UserId) -> Self {
        Self { num, owner, head: Seq::ZERO, extents: VecDeque::new(), damaged_at: None }
    }

    /// Takes in rows that follow the last ones.
    pub(crate) fn push_extent(&mut self, new: Extent) {
        self.head = Seq(new.end_seq().saturating_sub(1));
        match self.extents.back_mut() {
            Some(last) if last.end_pos() == new.pos => last.count = last.count.saturating_add(new.count),
            _ => self.extents.push_back(new),
        }
    }

    /// The extents from a place on, with at most so many records.
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

/// What a commit made true.
#[derive(Debug)]
pub(crate) enum IndexUpdate {
    /// There is a new thread, without any rows.
    ThreadCreated {
        /// Which.
        thread: ThreadId,
        /// Its number.
        num: i64,
        /// Its owner.
        owner: UserId,
    },
    /// Rows were written.
    Appended {
        /// Of which thread.
        thread: ThreadId,
        /// Its number.
        num: i64,
        /// Its owner.
        owner: UserId,
        /// Where.
        extent: Extent,
    },
    /// Rows up to this record are in `blocks` now.
    Packed {
        /// Of which thread.
        thread: ThreadId,
        /// The last of them.
        last: Seq,
    },
    /// The thread is gone.
    ThreadDeleted {
        /// Which.
        thread: ThreadId,
    },
}

/// What a reader has to know before it asks the database.
#[derive(Clone, Debug)]
pub(crate) struct ReadPlan {
    /// The thread's number.
    pub(crate) num: i64,
    /// Its owner.
    pub(crate) owner: UserId,
    /// Its last durable record.
    pub(crate) head: Seq,
    /// The place at which the rows stop making sense.
    pub(crate) damaged_at: Option<Seq>,
    /// Where the rows lie.
    pub(crate) extents: Vec<Extent>,
}

/// Where the records of live threads lie.
#[derive(Debug, Default)]
pub(crate) struct RecordIndex(Mutex<HashMap<ThreadId, ThreadExtents>>);

impl RecordIndex {
    /// Where the records after a place lie, at most so many of them.
    pub(crate) fn read_plan(&self, thread: &ThreadId, after: Seq, records_max: usize) -> Option<ReadPlan> {
        let entries = lock(&self.0);
        let entry = entries.get(thread)?;
        Some(ReadPlan {
            num: entry.num,
            owner: entry.owner.clone(),
            head: entry.head,
            damaged_at: entry.damaged_at,
            extents: entry.extents_from(after.next().0, records_max as u64),
        })
    }

    /// Is this record of a live thread not known yet?
    pub(crate) fn is_behind(&self, thread: &ThreadId, seq: Seq) -> bool {
        lock(&self.0).get(thread).is_some_and(|entry| entry.head < seq)
    }

    /// Makes what was committed known, in the order in which it happened. Gives the rows that are dead from now on,
    /// each with the number of its thread.
    pub(crate) fn publish(&self, news: Vec<IndexUpdate>) -> Vec<(i64, Extent)> {
        let mut entries = lock(&self.0);
        let mut dead = Vec::new();
        for new in news {
            match new {
                IndexUpdate::ThreadCreated { thread, num, owner } => {
                    entries.insert(thread, ThreadExtents::new(num, owner));
                }
                IndexUpdate::Appended { thread, num, owner, extent } => {
                    entries.entry(thread).or_insert_with(|| ThreadExtents::new(num, owner)).push_extent(extent);
                }
                IndexUpdate::Packed { thread, last } => {
                    let Some(entry) = entries.get_mut(&thread) else { continue };
                    let rest = last.next().0;
                    while let Some(extent) = entry.extents.front().copied().filter(|extent| extent.end_seq() <= rest) {
                        dead.push((entry.num, extent));
                        entry.extents.pop_front();
                    }
                    if let Some(first) = entry.extents.front_mut() {
                        let moved = rest.saturating_sub(first.seq);
                        if moved > 0 {
                            dead.push((entry.num, Extent { count: moved, ..*first }));
                        }
                        *first = first.skip_to(rest);
                    } else if entry.damaged_at.is_none() {
                        entries.remove(&thread);
                    }
                }
                IndexUpdate::ThreadDeleted { thread } => {
                    entries.remove(&thread);
                }
            }
        }
        dead
    }

    /// Begins anew with what the database has.
    pub(crate) fn replace(&self, fresh: HashMap<ThreadId, ThreadExtents>) {
        *lock(&self.0) = fresh;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread() -> ThreadId {
        ThreadId::from("thr_1")
    }

    fn appended(seq: u64, pos: i64, count: u64) -> IndexUpdate {
        IndexUpdate::Appended { thread: thread(), num: 1, owner: UserId::from("u"), extent: Extent { seq, pos, count } }
    }

    fn extents(index: &RecordIndex, after: u64, max: usize) -> Vec<(u64, i64, u64)> {
        let plan = index.read_plan(&thread(), Seq(after), max).unwrap();
        plan.extents.iter().map(|extent| (extent.seq, extent.pos, extent.count)).collect()
    }

    #[test]
    fn neighbours_grow_together_and_others_do_not() {
        let index = RecordIndex::default();
        index.publish(vec![appended(1, 10, 3), appended(4, 13, 2), appended(6, 20, 1)]);
        assert_eq!(extents(&index, 0, 99), [(1, 10, 5), (6, 20, 1)]);
        assert_eq!(extents(&index, 2, 2), [(3, 12, 2)]);
        assert_eq!(extents(&index, 4, 99), [(5, 14, 1), (6, 20, 1)]);
        assert_eq!(extents(&index, 6, 99), []);
    }

    #[test]
    fn what_moved_is_forgotten_and_the_rest_stays() {
        let index = RecordIndex::default();
        let moved = IndexUpdate::Packed { thread: thread(), last: Seq(4) };
        let dead = index.publish(vec![appended(1, 10, 3), appended(4, 20, 3), moved]);
        assert_eq!(dead, [(1, Extent { seq: 1, pos: 10, count: 3 }), (1, Extent { seq: 4, pos: 20, count: 1 })]);
        assert_eq!(extents(&index, 0, 99), [(5, 21, 2)]);
        assert_eq!(index.read_plan(&thread(), Seq(0), 1).unwrap().head, Seq(6));
        index.publish(vec![IndexUpdate::Packed { thread: thread(), last: Seq(6) }]);
        assert!(index.read_plan(&thread(), Seq(0), 1).is_none());
    }
}
