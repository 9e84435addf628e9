//! Consecutive records of one run in memory, encoded as in a block.
//!
//! The bytes of a batch exist once: the index has them for readers, the tails for packing.

use crate::block_coding::measure_record;
use std::collections::VecDeque;
use std::sync::Arc;

/// Consecutive records that were appended together. There is at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EncodedBatch {
    pub(crate) first: u64,
    pub(crate) count: u64,
    pub(crate) encoded: Arc<[u8]>,
}

impl EncodedBatch {
    /// The seq after the last record.
    pub(crate) const fn end_seq(&self) -> u64 {
        self.first.saturating_add(self.count)
    }

    /// Where the record with this number begins.
    fn offset_of(&self, seq: u64) -> usize {
        let mut at = 0;
        for _ in self.first..seq.min(self.end_seq()) {
            at += self.encoded.get(at..).and_then(measure_record).unwrap_or_default();
        }
        at
    }

    fn bytes_between(&self, first: u64, end: u64) -> &[u8] {
        let begin = if first <= self.first { 0 } else { self.offset_of(first) };
        let end = if end >= self.end_seq() { self.encoded.len() } else { self.offset_of(end) };
        self.encoded.get(begin..end).unwrap_or_default()
    }

    /// The records from `first` on that precede `end`. `None` if there is none.
    fn part(&self, first: u64, end: u64) -> Option<Self> {
        let (first, end) = (first.max(self.first), end.min(self.end_seq()));
        if first >= end {
            return None;
        }
        let count = end - first;
        let encoded =
            if count == self.count { Arc::clone(&self.encoded) } else { self.bytes_between(first, end).into() };
        Some(Self { first, count, encoded })
    }
}

/// Batches that follow each other.
#[derive(Clone, Debug, Default)]
pub(crate) struct EncodedRecords {
    batches: VecDeque<EncodedBatch>,
    bytes: usize,
}

impl EncodedRecords {
    /// The size of all records.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    pub(crate) fn first_seq(&self) -> Option<u64> {
        self.batches.front().map(|batch| batch.first)
    }

    /// The seq after the last record, if there is one.
    pub(crate) fn end_seq(&self) -> Option<u64> {
        self.batches.back().map(EncodedBatch::end_seq)
    }

    /// Adds records that follow these.
    pub(crate) fn push(&mut self, batch: EncodedBatch) {
        self.bytes += batch.encoded.len();
        self.batches.push_back(batch);
    }

    /// Adds those that follow these.
    pub(crate) fn append(&mut self, mut next: Self) {
        self.bytes += next.bytes;
        self.batches.append(&mut next.batches);
    }

    /// Drops the records before this one.
    pub(crate) fn skip_to(&mut self, seq: u64) {
        while let Some(batch) = self.batches.pop_front_if(|batch| batch.first < seq) {
            self.bytes -= batch.encoded.len();
            if let Some(rest) = batch.part(seq, u64::MAX) {
                self.bytes += rest.encoded.len();
                self.batches.push_front(rest);
            }
        }
    }

    /// At most `records_max` records from this one on.
    pub(crate) fn part_from(&self, seq: u64, records_max: u64) -> Self {
        let mut part = Self::default();
        let end = self.first_seq().map_or(0, |first| seq.max(first).saturating_add(records_max));
        let begin = self.batches.partition_point(|batch| batch.end_seq() <= seq);
        for batch in self.batches.range(begin..).map_while(|batch| batch.part(seq, end)) {
            part.push(batch);
        }
        part
    }

    /// The bytes of the records from this one on. Empty if the first one comes later.
    pub(crate) fn bytes_from(&self, seq: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        if self.first_seq().is_some_and(|first| first <= seq) {
            let begin = self.batches.partition_point(|batch| batch.end_seq() <= seq);
            for batch in self.batches.range(begin..) {
                bytes.extend_from_slice(batch.bytes_between(seq, u64::MAX));
            }
        }
        bytes
    }

    /// Moves records to the end of a block as long as there is room, for which `has_room` gets the number of the record and the
    /// size of the block.
    pub(crate) fn move_into(&mut self, block: &mut Vec<u8>, has_room: impl Fn(u64, usize) -> bool) {
        while let Some(batch) = self.batches.front() {
            let (mut seq, mut at) = (batch.first, 0);
            while seq < batch.end_seq() && has_room(seq, block.len().saturating_add(at)) {
                at += batch.encoded.get(at..).and_then(measure_record).unwrap_or_default();
                seq += 1;
            }
            block.extend_from_slice(batch.encoded.get(..at).unwrap_or_default());
            let is_whole = seq == batch.end_seq();
            self.skip_to(seq);
            if !is_whole {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_coding::RecordColumns;
    use model::seq::Epoch;

    const TEXTS: [&str; 6] = ["five", "", "seven", "eight", "nine", "ten"];

    fn encode(texts: &[&str]) -> Vec<u8> {
        let mut raw = Vec::new();
        for text in texts {
            let (public, private) = (text.as_bytes(), &b""[..]);
            RecordColumns { at: 1, epoch: Epoch(1), format: 1, checksum: 7, public, private }.encode(&mut raw);
        }
        raw
    }

    /// Records 5 to 10, in batches of one, three and two.
    fn records() -> EncodedRecords {
        let mut records = EncodedRecords::default();
        for (first, count) in [(5, 1), (6, 3), (9, 2)] {
            let begin = usize::try_from(first).unwrap() - 5;
            let encoded = encode(&TEXTS[begin..begin + count]).into();
            records.push(EncodedBatch { first, count: count as u64, encoded });
        }
        records
    }

    #[test]
    fn records_are_found_by_their_number() {
        let none = EncodedRecords::default();
        assert!((none.first_seq(), none.end_seq(), none.part_from(0, 9).is_empty()) == (None, None, true));
        let all = records();
        assert_eq!((all.first_seq(), all.end_seq(), all.bytes()), (Some(5), Some(11), encode(&TEXTS).len()));
        for from in 0..13_u64 {
            let skipped = usize::try_from(from).unwrap().saturating_sub(5).min(6);
            let mut rest = all.clone();
            rest.skip_to(from);
            assert_eq!(rest.bytes_from(from.max(5)), encode(&TEXTS[skipped..]), "from {from}");
            assert_eq!(rest.bytes(), encode(&TEXTS[skipped..]).len(), "from {from}");
            assert_eq!(rest.first_seq(), (from < 11).then_some(from.max(5)));
            let is_inside = (5..11).contains(&from);
            assert_eq!(all.bytes_from(from), if is_inside { encode(&TEXTS[skipped..]) } else { vec![] });
            for records_max in 0..8 {
                let part = all.part_from(from, records_max);
                let end = TEXTS.len().min(skipped + usize::try_from(records_max).unwrap());
                assert_eq!(part.bytes_from(from.max(5)), encode(&TEXTS[skipped..end]), "{records_max} from {from}");
                assert_eq!(part.bytes(), encode(&TEXTS[skipped..end]).len());
            }
        }
    }

    #[test]
    fn a_block_gets_records_until_it_is_full() {
        for last in 4..12_u64 {
            let (mut rest, mut block) = (records(), encode(&["four"]));
            rest.move_into(&mut block, |seq, bytes| {
                let before = usize::try_from(seq).unwrap() - 5;
                assert_eq!(bytes, encode(&["four"]).len() + encode(&TEXTS[..before]).len());
                seq <= last
            });
            let moved = usize::try_from(last - 4).unwrap().min(6);
            assert_eq!(block, [encode(&["four"]), encode(&TEXTS[..moved])].concat());
            assert_eq!(
                (rest.first_seq(), rest.bytes()),
                ((last < 10).then_some(last + 1), encode(&TEXTS[moved..]).len())
            );
        }
    }

    #[test]
    fn a_part_shares_the_bytes_of_whole_batches() {
        let all = records();
        let part = all.part_from(6, 4);
        assert!(Arc::ptr_eq(&part.batches[0].encoded, &all.batches[1].encoded));
        assert_eq!((part.batches.len(), part.batches[1].count), (2, 1));
    }
}
