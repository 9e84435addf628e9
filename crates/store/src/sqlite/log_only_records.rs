//! The newest records of a thread that only the append log has, in memory.

use super::encoded_records::{EncodedBatch, EncodedRecords};

/// Consecutive records of one run.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogOnlyRecords {
    /// The number of the run.
    pub(crate) run: i64,
    pub(crate) records: EncodedRecords,
}

impl LogOnlyRecords {
    /// Adds records that follow these: of the same run if there are any.
    pub(crate) fn push(&mut self, run: i64, batch: EncodedBatch) {
        self.run = run;
        self.records.push(batch);
    }

    /// At most `records_max` records from this one on.
    pub(crate) fn part_from(&self, seq: u64, records_max: u64) -> Self {
        Self { run: self.run, records: self.records.part_from(seq, records_max) }
    }

    /// Adds those that follow these.
    pub(crate) fn append(&mut self, next: Self) {
        self.run = next.run;
        self.records.append(next.records);
    }

    /// Drops the records before this one.
    pub(crate) fn skip_to(&mut self, seq: u64) {
        self.records.skip_to(seq);
    }

    pub(crate) fn first_seq(&self) -> Option<u64> {
        self.records.first_seq()
    }

    /// The seq after the last record, or 0.
    pub(crate) fn end_seq(&self) -> u64 {
        self.records.end_seq().unwrap_or_default()
    }
}
