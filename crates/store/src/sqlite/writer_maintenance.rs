//! What the writer does besides its tasks: it packs the records of ended and of long runs, deletes dead rows, and counts the
//! logs of older versions.
//!
//! It does so while it has nothing else to do, in small steps. A writer that always has something to do would leave more and
//! more rows, and a start after a crash has to scan them all: beyond a number of rows, each commit is followed by as many steps
//! as its group made necessary. So what a start scans depends on what was live, not on the length of the log or on the load.

use super::dead_rows::SweepScope;
use super::record_blocks::{
    BLOCK_BYTES, BLOCKS_PER_STEP_MAX, PACK_STEP_BYTES, PackContext, PackedBlocks, pack_records,
};
use super::transaction::WriterState;
use super::writer::{SqliteWriter, in_transaction};
use super::{lock, record_row};

/// Maximum number of runs that wait to be packed; beyond it, packing precedes other work.
const UNPACKED_RUNS_MAX: usize = 2_048;

/// The size of maintenance steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MaintenancePace {
    /// Tasks may arrive: small steps.
    Yielding,
    /// Idle moments do not suffice: steps of this size.
    CatchingUp { bytes: usize },
    /// No tasks arrive, or small steps fall behind.
    Idle,
    /// The queue is closed: finish all maintenance.
    Closing,
}

impl MaintenancePace {
    /// Approximate number of bytes that one step packs.
    const fn pack_bytes(self) -> usize {
        match self {
            Self::Yielding => PACK_STEP_BYTES,
            Self::CatchingUp { bytes } => bytes,
            Self::Idle | Self::Closing => BLOCK_BYTES,
        }
    }

    /// Maximum number of rows that one step deletes: about as many as it packs, if they are small.
    const fn delete_rows(self) -> u64 {
        self.pack_bytes() as u64 / DELETED_ROW_BYTES
    }
}

/// What a deleted row counts of the size of a step: far less than a packed one, because nothing is read.
const DELETED_ROW_BYTES: u64 = 64;

/// What a commit had to do.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GroupSize {
    pub(crate) tasks: usize,
    pub(crate) bytes: usize,
}

impl SqliteWriter {
    /// Packs some records of ended or long runs or deletes some dead rows. Returns whether it did anything.
    pub(crate) fn run_maintenance(&mut self, pace: MaintenancePace) -> bool {
        if self.backoff_commits > 0 || self.is_full() {
            return false;
        }
        // Otherwise a queue that is never empty would keep all dead rows.
        if self.is_sweep_overdue() && self.delete_dead_rows(pace) {
            return true;
        }
        if !self.state.pack_queue.is_empty() {
            return self.pack_records(pace);
        }
        self.delete_dead_rows(pace) || (pace != MaintenancePace::Closing && self.count_log_size())
    }

    /// After a commit: does what idle moments leave undone, as much as the groups since then made necessary and half as much
    /// again. Small groups save up for a step, because each step costs a sync of the disk, however little it packs.
    pub(crate) fn catch_up(&mut self, group: GroupSize) {
        let mut is_behind = std::mem::take(&mut self.state.is_packing_overdue) || self.is_behind();
        if !is_behind {
            self.owed = GroupSize::default();
            return;
        }
        self.owed.tasks += group.tasks;
        self.owed.bytes += group.bytes + group.bytes / 2;
        while is_behind && (self.owed.bytes >= PACK_STEP_BYTES || self.owed.tasks >= BLOCKS_PER_STEP_MAX) {
            let bytes = self.owed.bytes.clamp(PACK_STEP_BYTES, BLOCK_BYTES);
            self.owed.bytes = self.owed.bytes.saturating_sub(bytes);
            self.owed.tasks = self.owed.tasks.saturating_sub(BLOCKS_PER_STEP_MAX);
            if !self.run_maintenance(MaintenancePace::CatchingUp { bytes }) {
                break;
            }
            self.delete_dead_rows(MaintenancePace::CatchingUp { bytes });
            is_behind = self.is_behind();
        }
    }

    fn is_behind(&self) -> bool {
        let WriterState { pack_queue, index, tails, .. } = &self.state;
        // Rows that wait although nobody asks for them are damaged.
        let has_many_rows =
            || !pack_queue.is_empty() && (tails.is_crowded() || index.waiting_rows() > self.unpacked_rows_max);
        pack_queue.len() > UNPACKED_RUNS_MAX || has_many_rows() || self.is_sweep_overdue()
    }

    /// Whether rows die faster than idle moments delete them.
    fn is_sweep_overdue(&self) -> bool {
        self.state.dead_rows.is_sweep_overdue(self.unpacked_rows_max / 2)
    }

    /// Counts some records of threads that are older than the counters. The next start continues.
    fn count_log_size(&mut self) -> bool {
        let Some(conn) = self.conn.take_if(|_| !self.state.log_count.is_done()) else { return false };
        match in_transaction(&conn, |conn| self.state.log_count.step(conn)) {
            Ok(next) => {
                self.conn = Some(conn);
                self.state.log_count = next;
                true
            }
            Err(error) => self.back_off(conn, &error),
        }
    }

    fn pack_records(&mut self, pace: MaintenancePace) -> bool {
        let Some(conn) = self.conn.take() else { return false };
        let WriterState { unpackable_threads, pack_queue, index, tails, compressor, log_count, condense, .. } =
            &mut self.state;
        if !unpackable_threads.is_empty() {
            pack_queue.retain(|request| !unpackable_threads.contains(&request.num));
            for thread in &*unpackable_threads {
                tails.take(*thread);
            }
        }
        let context = PackContext { index, tails, compressor, log_count, condense: *condense };
        let mut begun = Vec::new();
        match in_transaction(&conn, |conn| pack_records(conn, context, pack_queue, &mut begun, pace.pack_bytes())) {
            Ok(PackedBlocks { index_updates, .. }) => {
                self.conn = Some(conn);
                lock(&self.stats).blocks += index_updates.len() as u64;
                let published = self.state.index.publish(index_updates);
                self.state.pack_queue.extend(published.pack_requests);
                self.state.dead_rows.add_rows(published.dead_rows, published.dead_bytes);
                true
            }
            Err(error) => {
                if record_row::is_corruption(&error) {
                    self.state.unpackable_threads.extend(begun.iter().map(|request| request.num));
                }
                // A full disk leaves everything as it was; after any other failure a scan finds the rows again.
                begun.into_iter().rev().for_each(|request| self.state.pack_queue.push_front(request));
                self.back_off(conn, &error)
            }
        }
    }

    fn delete_dead_rows(&mut self, pace: MaintenancePace) -> bool {
        let scope = if pace == MaintenancePace::Closing { SweepScope::All } else { SweepScope::LongRanges };
        if scope != SweepScope::All && !self.state.dead_rows.is_sweep_due() {
            return false;
        }
        let ranges = self.state.dead_rows.ranges_to_delete(scope, pace.delete_rows());
        let Some(conn) = self.conn.take_if(|_| !ranges.is_empty()) else { return false };
        let swept = in_transaction(&conn, |conn| {
            let mut delete = conn.prepare_cached("DELETE FROM records WHERE pos >= ?1 AND pos < ?2")?;
            ranges.iter().try_for_each(|range| delete.execute(*range).map(drop))
        });
        match swept {
            Ok(()) => {
                self.conn = Some(conn);
                ranges.into_iter().for_each(|range| self.state.dead_rows.remove(range));
                true
            }
            Err(error) => self.back_off(conn, &error),
        }
    }
}
