//! Rows of `records` whose records are in blocks: still there, no longer read.
//!
//! Rows of many threads lie mixed, as they were committed. Deleting one run's rows would touch about one page for each
//! of them, and the next run's the same pages again; that costs more than logging them did. So rows stay until whole
//! stretches are dead, and go as stretches. The more there are, the shorter the stretches that are worth it.

use super::record_index::Extent;
use std::collections::BTreeMap;

/// Stretches that are worth deleting: shorter ones, the more rows or bytes there are.
const RANGE_ROWS_MIN: [u64; 4] = [64, 32, 8, 1];
const ROWS_PER_LEVEL: u64 = 64 * 1024;
const BYTES_PER_LEVEL: u64 = 64 * 1024 * 1024;
/// It is looked for stretches again when so many more rows have died.
const SWEEP_AFTER_ROWS: u64 = 2_048;

/// Dead rows.
#[derive(Debug, Default)]
pub(crate) struct DeadRows {
    /// First row → how many, and the number of their thread.
    extents: BTreeMap<i64, (u64, i64)>,
    rows: u64,
    bytes: u64,
    /// Rows that died since there was nothing worth deleting.
    rows_since_sweep: u64,
}

impl DeadRows {
    /// Rows died.
    pub(crate) fn add(&mut self, thread: i64, extent: Extent) {
        self.extents.insert(extent.pos, (extent.count, thread));
        self.rows += extent.count;
        self.rows_since_sweep += extent.count;
    }

    /// They had so many bytes.
    pub(crate) const fn add_bytes(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Is it worth looking?
    pub(crate) const fn is_sweep_due(&self) -> bool {
        self.rows_since_sweep >= SWEEP_AFTER_ROWS
    }

    /// The stretches to delete now, about `rows_max` rows, each from its first row to the row after its last; with `all`, however short.
    /// When there are none it is not worth looking again for a while.
    pub(crate) fn ranges_to_delete(&mut self, all: bool, rows_max: u64) -> Vec<(i64, i64)> {
        let full = (self.rows / ROWS_PER_LEVEL).max(self.bytes / BYTES_PER_LEVEL);
        let place = usize::try_from(full).unwrap_or(usize::MAX);
        let least = RANGE_ROWS_MIN.get(place).filter(|_| !all).map_or(1, |least| *least);
        let length = |stretch: &(i64, i64)| stretch.0.abs_diff(stretch.1);
        let mut found = Vec::new();
        let mut rows = 0;
        let mut open: Option<(i64, i64)> = None;
        for (pos, (count, _)) in &self.extents {
            let end = pos.saturating_add(count.cast_signed());
            let grown = match open.filter(|(_, last)| last == pos) {
                Some((first, _)) => (first, end),
                None => {
                    let whole = open.filter(|stretch| length(stretch) >= least);
                    rows += whole.as_ref().map_or(0, length);
                    found.extend(whole);
                    (*pos, end)
                }
            };
            open = Some(grown);
            if rows + length(&grown) >= rows_max {
                break;
            }
        }
        found.extend(open.filter(|stretch| length(stretch) >= least));
        if found.is_empty() {
            self.rows_since_sweep = 0;
        }
        found
    }

    /// A stretch was deleted.
    pub(crate) fn remove(&mut self, (first, end): (i64, i64)) {
        while let Some((pos, (count, _))) = self.extents.range(first..end).next() {
            let (pos, count) = (*pos, *count);
            self.extents.remove(&pos);
            self.bytes = self.bytes.saturating_sub((self.bytes / self.rows.max(1)).saturating_mul(count));
            self.rows = self.rows.saturating_sub(count);
        }
    }

    /// The dead rows of one thread, which is going to be deleted: first row and row after the last of each.
    pub(crate) fn ranges_of_thread(&self, thread: i64) -> impl Iterator<Item = (i64, i64)> {
        let mine = self.extents.iter().filter(move |(_, (_, of))| *of == thread);
        mine.map(|(pos, (count, _))| (*pos, pos.saturating_add(count.cast_signed())))
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
    fn stretches_go_and_crumbs_stay_until_there_are_many() {
        let mut few = dead(&[(1, 3), (10, 200), (210, 100), (500, 9)]);
        assert_eq!(few.ranges_to_delete(false, 512), [(10, 310)]);
        few.remove((10, 310));
        assert_eq!(few.ranges_to_delete(false, 512), []);
        assert!(!few.is_sweep_due());
        assert_eq!(few.ranges_to_delete(true, 512), [(1, 4), (500, 509)]);

        let crumbs: Vec<_> = (0..60_000).map(|n| (n * 10, 5)).collect();
        let mut many = dead(&crumbs);
        let stretches = many.ranges_to_delete(false, 512);
        assert!(stretches.len() > 100 && stretches.len() < 1_000, "{}", stretches.len());
        for stretch in stretches {
            many.remove(stretch);
        }
    }

    #[test]
    fn a_thread_finds_its_own() {
        let mut both = dead(&[(1, 3), (10, 2)]);
        both.add(2, Extent { seq: 1, pos: 4, count: 6 });
        assert_eq!(both.ranges_of_thread(1).collect::<Vec<_>>(), [(1, 4), (10, 12)]);
        assert_eq!(both.ranges_of_thread(2).collect::<Vec<_>>(), [(4, 10)]);
    }
}
