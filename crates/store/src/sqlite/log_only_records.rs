//! The newest records of a thread that only the append log has, in memory.

use crate::block_coding::measure_record;

/// Consecutive records of one run.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogOnlyRecords {
    /// The number of the run.
    pub(crate) run: i64,
    /// The first record, if there is one.
    first: u64,
    count: u64,
    /// Encoded as in a block.
    encoded: Vec<u8>,
}

impl LogOnlyRecords {
    pub(crate) const fn new(run: i64, first: u64, count: u64, encoded: Vec<u8>) -> Self {
        Self { run, first, count, encoded }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn first_seq(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.first)
    }

    /// The seq after the last record.
    pub(crate) const fn end_seq(&self) -> u64 {
        self.first.saturating_add(self.count)
    }

    /// Adds records that follow these.
    pub(crate) fn extend(&mut self, next: Self) {
        if self.is_empty() {
            *self = next;
        } else {
            self.count = self.count.saturating_add(next.count);
            self.encoded.extend_from_slice(&next.encoded);
        }
    }

    /// Drops the records before this one.
    pub(crate) fn skip_to(&mut self, seq: u64) {
        if seq <= self.first {
            return;
        }
        let skipped = seq.min(self.end_seq()) - self.first;
        if skipped == self.count {
            *self = Self::default();
            return;
        }
        self.encoded.drain(..self.offset_of(skipped));
        (self.first, self.count) = (self.first + skipped, self.count - skipped);
    }

    /// A copy of at most `records_max` records from this one on.
    pub(crate) fn copy_from(&self, seq: u64, records_max: u64) -> Self {
        let first = seq.max(self.first);
        let count = self.end_seq().saturating_sub(first).min(records_max);
        if count == 0 {
            return Self { run: self.run, ..Self::default() };
        }
        let begin = self.offset_of(first - self.first);
        let end = self.offset_of((first - self.first).saturating_add(count));
        Self { run: self.run, first, count, encoded: self.encoded.get(begin..end).unwrap_or_default().to_vec() }
    }

    /// The bytes of the records from this one on. Empty if there is none.
    pub(crate) fn encoded_from(&self, seq: u64) -> &[u8] {
        match seq.checked_sub(self.first).filter(|skipped| *skipped < self.count) {
            Some(skipped) => self.encoded.get(self.offset_of(skipped)..).unwrap_or_default(),
            None => &[],
        }
    }

    /// Where the record after these many begins.
    fn offset_of(&self, records: u64) -> usize {
        if records == self.count {
            return self.encoded.len();
        }
        let mut at = 0;
        for _ in 0..records {
            at += self.encoded.get(at..).and_then(measure_record).unwrap_or_default();
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_coding::RecordColumns;
    use model::seq::Epoch;

    fn record(text: &str) -> Vec<u8> {
        let mut raw = Vec::new();
        let (public, private) = (text.as_bytes(), &b""[..]);
        RecordColumns { at: 1, epoch: Epoch(1), format: 1, checksum: 7, public, private }.encode(&mut raw);
        raw
    }

    #[test]
    fn records_are_found_by_their_number() {
        let texts = ["five", "", "seven", "eight"];
        let mut logged = LogOnlyRecords::default();
        assert_eq!((logged.first_seq(), logged.copy_from(0, 9).is_empty()), (None, true));
        for (seq, text) in (5..).zip(texts) {
            logged.extend(LogOnlyRecords::new(3, seq, 1, record(text)));
        }
        let all = |texts: &[&str]| texts.iter().flat_map(|text| record(text)).collect::<Vec<_>>();
        assert_eq!((logged.first_seq(), logged.end_seq(), logged.run), (Some(5), 9, 3));
        for from in 0..12 {
            let skipped = usize::try_from(from).unwrap().saturating_sub(5).min(4);
            let mut rest = logged.clone();
            rest.skip_to(from);
            assert_eq!((rest.count, rest.encoded), ((4 - skipped) as u64, all(&texts[skipped..])), "from {from}");
            let inside = (5..9).contains(&from);
            assert_eq!(logged.encoded_from(from), if inside { all(&texts[skipped..]) } else { vec![] });
            for records_max in 0..6 {
                let copy = logged.copy_from(from, records_max);
                let end = texts.len().min(skipped + usize::try_from(records_max).unwrap());
                assert_eq!(copy.encoded, all(&texts[skipped..end]), "{records_max} from {from}");
            }
        }
    }
}
