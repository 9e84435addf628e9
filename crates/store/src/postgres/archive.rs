//! The archive: the records of runs that ended long ago, in object storage.
//!
//! - `archiver` moves runs; `objects` deletes objects that nobody refers to; `segments` and `segment_cache` read.
//! - `place` makes sure that all nodes mean the same archive. `audit` is for `headwater verify`.
//!
//! A run becomes segments: consecutive records, compressed into one object each. A row of `segments` replaces rows of
//! `records` in one transaction, so a reader finds a record in exactly one of them.
//!
//! ```text
//!   note the name · put the object · { remove the note · insert the segment · delete the records }
//! ```
//!
//! `archive_objects` has a note of every object without a segment. A note that is due is an order to delete the object: that
//! of an upload is due when the upload must have failed, that of a deleted thread at once. So no crash leaves an object for
//! ever, and none loses a record.

mod archiver;
mod audit;
mod objects;
mod place;
mod segment_cache;
mod segments;

pub(super) use archiver::Archiver;
pub(super) use place::{check_place, register_place};
pub(super) use segments::{SegmentError, SegmentReader, SegmentRow};

use super::PostgresStore;
use model::ports::{RecordArchive, StoreResult};
use std::sync::Arc;
use std::time::Duration;

/// An archive and its identity.
#[derive(Clone, Debug)]
pub struct ArchivePlace {
    pub archive: Arc<dyn RecordArchive>,
    /// Two nodes with the same identity mean the same archive.
    pub identity: String,
}

#[derive(Clone, Debug)]
pub struct ArchiveOptions {
    pub place: ArchivePlace,
    /// How long after its end a run is archived.
    pub after: Duration,
    /// How often runs are looked for.
    pub interval: Duration,
    /// The approximate maximum size of a segment before compression.
    pub segment_bytes_max: usize,
    /// The maximum size of the segments in memory for readers.
    pub cache_bytes_max: usize,
}

impl ArchiveOptions {
    pub const AFTER: Duration = Duration::from_secs(7 * 24 * 3_600);
    const SEGMENT_BYTES_MAX: usize = 4 * 1024 * 1024;
    pub const CACHE_BYTES_MAX: usize = 64 * 1024 * 1024;
    const INTERVAL_MAX: Duration = Duration::from_secs(60);
    const INTERVAL_MIN: Duration = Duration::from_secs(1);

    pub fn new(place: ArchivePlace, after: Duration) -> Self {
        Self {
            place,
            after,
            interval: (after / 10).clamp(Self::INTERVAL_MIN, Self::INTERVAL_MAX),
            segment_bytes_max: Self::SEGMENT_BYTES_MAX,
            cache_bytes_max: Self::CACHE_BYTES_MAX,
        }
    }
}

/// Counts since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArchiveStats {
    /// Runs whose last segment was archived.
    pub runs: u64,
    pub segments: u64,
    /// The size of the archived records.
    pub record_bytes: u64,
    /// The size of the objects that have them.
    pub object_bytes: u64,
    /// Objects that were deleted.
    pub deleted_objects: u64,
    /// Attempts to archive a run that failed.
    pub failures: u64,
    /// Objects that were read.
    pub reads: u64,
}

impl PostgresStore {
    /// Archives the runs that are due, and deletes the objects that are. Returns the number of runs. Happens from time to time
    /// anyway.
    ///
    /// # Errors
    /// When the database or the archive cannot be used. Nothing is lost, and what was archived so far stays so.
    pub async fn archive_ended_runs(&self) -> StoreResult<u64> {
        match &self.archiver {
            Some(archiver) => archiver.archive_ended_runs().await,
            None => Ok(0),
        }
    }

    /// Deletes the objects that are due. Returns their number.
    ///
    /// # Errors
    /// When the database or the archive cannot be used.
    pub async fn sweep_archive(&self) -> StoreResult<u64> {
        match &self.archiver {
            Some(archiver) => archiver.sweep_objects().await,
            None => Ok(0),
        }
    }

    /// `None` without an archive.
    pub fn archive_stats(&self) -> Option<ArchiveStats> {
        self.archiver.as_ref().map(|archiver| archiver.stats())
    }
}
