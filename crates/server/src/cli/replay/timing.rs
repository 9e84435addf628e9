//! The time between frames, as in the log.

use model::{Millis, Record, Seq};
use std::time::Duration;
use tokio::time::Instant;

/// A longer gap is a run that waits for a person.
const GAP_MAX: Duration = Duration::from_secs(60);
/// Replaces a longer gap.
const CAPPED_GAP: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct ReplayTiming {
    mode: TimingMode,
    /// The last record. A run of several responses is read several times, but its gaps count once.
    last: Option<(Seq, Millis)>,
}

#[derive(Debug)]
enum TimingMode {
    Fast,
    /// The first frame is due at once.
    NotStarted,
    Due(Instant),
}

impl ReplayTiming {
    pub(super) const fn fast() -> Self {
        Self { mode: TimingMode::Fast, last: None }
    }

    pub(super) const fn original() -> Self {
        Self { mode: TimingMode::NotStarted, last: None }
    }

    /// Call this for every record, also for those without frames.
    pub(super) fn on_record(&mut self, record: &Record) {
        if self.last.is_some_and(|(seq, _)| record.seq <= seq) {
            return;
        }
        let gap = self.last.map_or(0, |(_, at)| record.at.saturating_sub(at));
        self.last = Some((record.seq, record.at));
        if let TimingMode::Due(due) = &mut self.mode {
            *due += capped_gap(Duration::from_millis(gap));
        }
    }

    /// When the frames of the last record are due; `None` means at once.
    pub(super) fn due(&mut self) -> Option<Instant> {
        match self.mode {
            TimingMode::Fast => None,
            TimingMode::NotStarted => {
                self.mode = TimingMode::Due(Instant::now());
                None
            }
            TimingMode::Due(due) => Some(due),
        }
    }
}

fn capped_gap(gap: Duration) -> Duration {
    if gap <= GAP_MAX {
        return gap;
    }
    eprintln!("headwater: a pause of {} s is shortened to {} s", gap.as_secs(), CAPPED_GAP.as_secs());
    CAPPED_GAP
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use model::record::RecordHeader;
    use model::{Epoch, TaskId};

    fn record(seq: u64, at: Millis) -> Record {
        let place =
            RecordHeader { seq: Seq(seq), at, run: TaskId::from("task_1"), epoch: Epoch(1), format: 1, checksum: 0 };
        Record::from_stored(place, Bytes::new(), Bytes::new())
    }

    /// Passes records with or without frames, and returns the time after the first frame at which each is due.
    fn due(pace: &mut ReplayTiming, records: &[(u64, Millis, bool)]) -> Vec<u128> {
        let mut begun = None;
        let mut times = Vec::new();
        for (seq, at, has_frames) in records {
            pace.on_record(&record(*seq, *at));
            if *has_frames {
                let due = pace.due().or_else(|| pace.due()).unwrap();
                times.push(due.duration_since(*begun.get_or_insert(due)).as_millis());
            }
        }
        times
    }

    #[test]
    fn gaps_are_kept_and_the_first_frame_is_immediate() {
        let records = [(1, 1_000, false), (2, 9_000, true), (3, 9_020, true), (4, 9_030, false), (5, 9_100, true)];
        assert_eq!(due(&mut ReplayTiming::original(), &records), [0, 20, 100]);
    }

    #[test]
    fn a_long_pause_is_shortened_and_many_short_ones_are_not() {
        let minute = 60_000;
        assert_eq!(due(&mut ReplayTiming::original(), &[(1, 0, true), (2, minute, true)]), [0, u128::from(minute)]);
        assert_eq!(
            due(&mut ReplayTiming::original(), &[(1, 0, true), (2, minute + 1, true), (3, minute + 2, true)]),
            [0, 2_000, 2_001]
        );
        let steps = [(1, 0, true), (2, 50_000, false), (3, 100_000, true)];
        assert_eq!(due(&mut ReplayTiming::original(), &steps), [0, 100_000]);
    }

    #[test]
    fn records_read_again_cause_no_second_delay() {
        let again = [(1, 0, true), (2, 10, true), (1, 0, false), (2, 10, false), (3, 40, true)];
        assert_eq!(due(&mut ReplayTiming::original(), &again), [0, 10, 40]);
    }

    #[test]
    fn fast_replay_has_no_delays() {
        let mut pace = ReplayTiming::fast();
        for at in [0, 1_000, 1_000_000] {
            pace.on_record(&record(at + 1, at));
            assert_eq!(pace.due(), None);
        }
    }
}
