//! Dead rows: rows of `records` whose records are in blocks, so that nothing reads them.
//!
//! Rows of many threads are interleaved in commit order. Deleting one run's rows would touch about one page per row, and
//! the next run's rows the same pages again, which costs more than writing them did. Rows therefore stay until contiguous
//! ranges are dead and are deleted by range. The more dead rows there are, the shorter the ranges that are deleted.
//!
//! A range may contain holes, where rows were deleted before. Otherwise short rests, which no row separates any more, would
//! accumulate with the length of the log.

use super::thread_extents::Extent;
use std::collections::BTreeMap;

/// Minimum number of rows of a range, by level.
const RANGE_ROWS_MIN: [u64; 4] = [64, 32, 8, 1];
const ROWS_PER_LEVEL: u64 = 64 * 1024;
const BYTES_PER_LEVEL: u64 = 64 * 1024 * 1024;
/// Number of newly dead rows after which a sweep looks for ranges again.
const SWEEP_AFTER_ROWS: u64 = 2_048;

/// Which ranges a sweep deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SweepScope {
    /// Ranges that are long enough for the number of dead rows.
    LongRanges,
    All,
}

#[derive(Debug, Default)]
pub(crate) struct DeadRows {
    /// First position → number of records, and the number of their thread.
    extents: BTreeMap<i64, (u64, i64)>,
    /// First position → the position after the last, where there are no rows. Adjacent holes are one.
    holes: BTreeMap<i64, i64>,
    rows: u64,
    bytes: u64,
    /// Newly dead rows since a sweep found nothing.
    rows_since_sweep: u64,
}

/// Dead rows with no other rows between them.
#[derive(Clone, Copy, Debug)]
struct DeadRange {
    first: i64,
    /// The position after the last row.
    end: i64,
    rows: u64,
}

impl DeadRows {
    pub(crate) fn add(&mut self, thread: i64, extent: Extent) {
        self.extents.insert(extent.pos, (extent.count, thread));
        self.rows += extent.count;
        self.rows_since_sweep += extent.count;
    }

    /// Adds rows of this size, with the numbers of their threads.
    pub(crate) fn add_rows(&mut self, rows: Vec<(i64, Extent)>, bytes: u64) {
        self.add_bytes(bytes);
        rows.into_iter().for_each(|(thread, extent)| self.add(thread, extent));
    }

    /// There are no rows from `first` up to, and without, `end`.
    pub(crate) fn add_hole(&mut self, first: i64, end: i64) {
        let before = self.holes.range(..first).next_back().filter(|(_, end)| **end >= first);
        let (mut first, mut end) = (first, end);
        if let Some((start, stop)) = before {
            (first, end) = (*start, end.max(*stop));
        }
        while let Some((start, stop)) = self.holes.range(first..=end).next().map(|(start, stop)| (*start, *stop)) {
            end = end.max(stop);
            self.holes.remove(&start);
        }
        self.holes.insert(first, end);
    }

    pub(crate) const fn add_bytes(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    pub(crate) const fn is_sweep_due(&self) -> bool {
        self.rows_since_sweep >= SWEEP_AFTER_ROWS
    }

    /// Whether a sweep is due and more rows than these are newly dead.
    pub(crate) const fn is_sweep_overdue(&self, rows_max: u64) -> bool {
        self.is_sweep_due() && self.rows_since_sweep > rows_max
    }

    /// The ranges to delete now, about `rows_max` rows. An empty result postpones the next sweep.
    pub(crate) fn ranges_to_delete(&mut self, scope: SweepScope, rows_max: u64) -> Vec<(i64, i64)> {
        let level = (self.rows / ROWS_PER_LEVEL).max(self.bytes / BYTES_PER_LEVEL);
        let level = usize::try_from(level).unwrap_or(usize::MAX);
        let rows_min = match scope {
            SweepScope::All => 1,
            SweepScope::LongRanges => RANGE_ROWS_MIN.get(level).map_or(1, |rows_min| *rows_min),
        };
        let mut found = Vec::new();
        let mut rows = 0;
        let mut open: Option<DeadRange> = None;
        for (pos, (count, _)) in &self.extents {
            let end = pos.saturating_add(count.cast_signed());
            let continued = open.filter(|open| open.end == *pos || self.holes.get(&open.end) == Some(pos));
            let grown = match continued {
                Some(open) => DeadRange { end, rows: open.rows + count, ..open },
                None => {
                    let complete = open.filter(|range| range.rows >= rows_min);
                    rows += complete.map_or(0, |range| range.rows);
                    found.extend(complete);
                    DeadRange { first: *pos, end, rows: *count }
                }
            };
            open = Some(grown);
            if rows + grown.rows >= rows_max {
                break;
            }
        }
        found.extend(open.filter(|range| range.rows >= rows_min));
        if found.is_empty() {
            self.rows_since_sweep = 0;
        }
        found.into_iter().map(|range| (range.first, range.end)).collect()
    }

    pub(crate) fn remove(&mut self, (first, end): (i64, i64)) {
        let removed = self.extents.extract_if(first..end, |_, _| true).map(|(_, (count, _))| count).sum();
        self.bytes = self.bytes.saturating_sub((self.bytes / self.rows.max(1)).saturating_mul(removed));
        self.rows = self.rows.saturating_sub(removed);
        self.add_hole(first, end);
    }

    /// The dead rows of one thread as half-open ranges.
    pub(crate) fn ranges_of_thread(&self, thread: i64) -> impl Iterator<Item = (i64, i64)> {
        let own = self.extents.iter().filter(move |(_, (_, owner))| *owner == thread);
        own.map(|(pos, (count, _))| (*pos, pos.saturating_add(count.cast_signed())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(extents: &[(i64, u64)]) -> DeadRows {
        let mut dead = DeadRows::default();
        for (pos, count) in extents {
            dead.add(1, Extent { seq: 1, pos: *pos, count: *count });
        }
        dead
    }

    #[test]
    fn ranges_are_deleted_and_small_rests_stay_until_there_are_many() {
        let mut few = dead(&[(1, 3), (10, 200), (210, 100), (500, 9)]);
        assert_eq!(few.ranges_to_delete(SweepScope::LongRanges, 512), [(10, 310)]);
        few.remove((10, 310));
        assert_eq!(few.ranges_to_delete(SweepScope::LongRanges, 512), []);
        assert!(!few.is_sweep_due());
        assert_eq!(few.ranges_to_delete(SweepScope::All, 512), [(1, 4), (500, 509)]);

        let crumbs: Vec<_> = (0..60_000).map(|n| (n * 10, 5)).collect();
        let mut many = dead(&crumbs);
        let stretches = many.ranges_to_delete(SweepScope::LongRanges, 512);
        assert!(stretches.len() > 100 && stretches.len() < 1_000, "{}", stretches.len());
        for stretch in stretches {
            many.remove(stretch);
        }
    }

    #[test]
    fn rests_that_no_row_separates_are_one_range() {
        // The rows from 31 to 40 and from 141 to 150 live.
        let mut rows = dead(&[(1, 30), (41, 100), (151, 40)]);
        assert_eq!(rows.ranges_to_delete(SweepScope::LongRanges, 512), [(41, 141)]);
        rows.remove((41, 141));
        assert_eq!(rows.ranges_to_delete(SweepScope::LongRanges, 512), []);
        rows.add(1, Extent { seq: 1, pos: 141, count: 10 });
        assert_eq!(rows.ranges_to_delete(SweepScope::LongRanges, 512), [], "fifty rows");
        rows.add(1, Extent { seq: 1, pos: 31, count: 10 });
        assert_eq!(rows.ranges_to_delete(SweepScope::LongRanges, 512), [(1, 191)]);
        rows.remove((1, 191));
        assert_eq!((rows.rows, rows.extents.len()), (0, 0));
        // Holes that touch are one; a row between two is none.
        rows.add_hole(300, 310);
        rows.add_hole(191, 200);
        rows.add_hole(305, 320);
        assert_eq!(rows.holes, BTreeMap::from([(1, 200), (300, 320)]));
        for extent in [(200, 40), (320, 40)] {
            rows.add(1, Extent { seq: 1, pos: extent.0, count: extent.1 });
        }
        assert_eq!(rows.ranges_to_delete(SweepScope::LongRanges, 512), []);
    }

    #[test]
    fn a_thread_finds_its_own_dead_rows() {
        let mut both = dead(&[(1, 3), (10, 2)]);
        both.add(2, Extent { seq: 1, pos: 4, count: 6 });
        assert_eq!(both.ranges_of_thread(1).collect::<Vec<_>>(), [(1, 4), (10, 12)]);
        assert_eq!(both.ranges_of_thread(2).collect::<Vec<_>>(), [(4, 10)]);
    }
}
