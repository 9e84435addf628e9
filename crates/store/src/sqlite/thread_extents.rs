//! Where the records of one live thread are: in rows of the database, and the newest ones in the append log.

use super::encoded_records::EncodedBatch;
use super::log_only_records::LogOnlyRecords;
use model::seq::Seq;
use model::{ThreadId, UserId};
use std::collections::VecDeque;

/// A thread with more rows than this has its oldest packed, up to the newest [`LIVE_ROWS_KEPT`].
pub(crate) const LIVE_ROWS_MAX: u64 = 2_048;
pub(crate) const LIVE_ROWS_KEPT: u64 = 512;
/// With more rows than this, packing the thread precedes other work.
pub(crate) const LIVE_ROWS_OVERDUE: u64 = 16_384;

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

/// A thread that has records outside blocks, or is about to.
#[derive(Clone, Debug)]
pub(crate) struct ThreadExtents {
    pub(crate) num: i64,
    pub(crate) owner: UserId,
    /// The last durable record.
    pub(crate) head: Seq,
    /// Oldest first, without gaps.
    pub(crate) extents: VecDeque<Extent>,
    /// The records that follow those of the extents.
    pub(crate) logged: LogOnlyRecords,
    /// The size of the records in these rows and in the log.
    pub(crate) bytes: u64,
    /// The first record that is damaged or missing.
    pub(crate) damaged_at: Option<Seq>,
    /// Whether its oldest rows wait to be packed although their run goes on. Rows that cannot be packed wait for ever.
    pub(crate) is_pack_requested: bool,
    /// Rows up to this record wait to be packed, or are.
    pub(crate) packable_until: Seq,
}

impl ThreadExtents {
    pub(crate) fn new(num: i64, owner: UserId) -> Self {
        Self {
            num,
            owner,
            head: Seq::ZERO,
            extents: VecDeque::new(),
            logged: LogOnlyRecords::default(),
            bytes: 0,
            damaged_at: None,
            is_pack_requested: false,
            packable_until: Seq::ZERO,
        }
    }

    /// The oldest record that is in no block.
    pub(crate) fn first_seq(&self) -> Option<u64> {
        self.extents.front().map(|first| first.seq).or_else(|| self.logged.first_seq())
    }

    /// The last record that the database has.
    pub(crate) fn stored(&self) -> Seq {
        self.logged.first_seq().map_or(self.head, |first| Seq(first).prev())
    }

    pub(crate) fn row_count(&self) -> u64 {
        self.rows_up_to(self.head)
    }

    fn rows_up_to(&self, last: Seq) -> u64 {
        self.first_seq().map_or(0, |first| last.next().0.saturating_sub(first))
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

    /// Adds records that are in the log.
    pub(crate) fn push_logged(&mut self, run: i64, batch: EncodedBatch) {
        self.head = Seq(batch.end_seq().saturating_sub(1));
        self.logged.push(run, batch);
    }

    /// Adds rows, which may have records that were in the log.
    pub(crate) fn push_extent(&mut self, new: Extent) {
        self.logged.skip_to(new.end_seq());
        self.head = self.head.max(Seq(new.end_seq().saturating_sub(1)));
        match self.extents.back_mut() {
            Some(last) if last.end_pos() == new.pos => last.count = last.count.saturating_add(new.count),
            _ => self.extents.push_back(new),
        }
    }

    /// The extents that start at this seq, with at most `records_max` records, and how many more there may be.
    pub(crate) fn extents_from(&self, seq: u64, records_max: u64) -> (Vec<Extent>, u64) {
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
        (found, left)
    }
}
