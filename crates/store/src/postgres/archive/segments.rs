//! Reads archived records.

use super::segment_cache::{SegmentCache, UnpackedSegment};
use crate::block_coding::{BLOCK_HEADER_BYTES, decode_record, decompress_block};
use bytes::Bytes;
use model::ports::{ArchiveError, PageLimit, RecordArchive, StoreError};
use model::record::Record;
use model::seq::Seq;
use model::{TaskId, ThreadId};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Objects that are fetched at a time, which bounds their memory. Who waits for one of them finds it in the cache.
const FETCHES_MAX: usize = 8;
/// How long a reader waits for an object.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30);

/// A row of `segments`.
#[derive(Clone, Debug)]
pub(in super::super) struct SegmentRow {
    pub(in super::super) object: String,
    /// The run of all its records.
    pub(in super::super) run: TaskId,
    pub(in super::super) first: Seq,
    pub(in super::super) last: Seq,
    pub(in super::super) raw_bytes: u64,
}

/// Why records of a segment cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum SegmentError {
    Missing,
    /// The first record that was asked for is not there, or is another one.
    Damaged,
    Unavailable(String),
    NoArchive,
}

impl SegmentError {
    /// Converts the error of reading the record with this number.
    pub(in super::super) fn into_store_error(self, thread: &ThreadId, seq: Seq) -> StoreError {
        match self {
            Self::Missing | Self::Damaged => StoreError::Corrupt { thread: thread.clone(), seq },
            Self::Unavailable(why) => StoreError::Unavailable(format!("the archive: {why}")),
            Self::NoArchive => {
                StoreError::Unavailable("the record is archived, and this node has no [database] archive".to_owned())
            }
        }
    }
}

/// Fetches segments and keeps some of them.
#[derive(Debug)]
pub(in super::super) struct SegmentReader {
    archive: Arc<dyn RecordArchive>,
    cache: Mutex<SegmentCache>,
    fetches: Semaphore,
    /// Objects that were fetched.
    pub(super) reads: AtomicU64,
}

impl SegmentReader {
    pub(in super::super) fn new(archive: Arc<dyn RecordArchive>, cache_bytes_max: usize) -> Self {
        let cache = Mutex::new(SegmentCache::new(cache_bytes_max));
        Self { archive, cache, fetches: Semaphore::new(FETCHES_MAX), reads: AtomicU64::new(0) }
    }

    pub(super) fn archive(&self) -> &Arc<dyn RecordArchive> {
        &self.archive
    }

    /// Reads records after the start of the range, up to its end, that of the segment, or the first damaged one. At least one.
    pub(in super::super) async fn read_records(
        &self,
        thread: &ThreadId,
        segment: &SegmentRow,
        range: Range<Seq>,
        limit: PageLimit,
    ) -> Result<Vec<Record>, SegmentError> {
        let unpacked = self.load(segment).await?;
        let mut records = Vec::new();
        let mut bytes = 0;
        let index = |seq: Seq| usize::try_from(seq.0.saturating_sub(segment.first.0)).unwrap_or(usize::MAX);
        let end = index(range.end.min(segment.last).next()).min(unpacked.offsets.len());
        for at in index(range.start.next())..end {
            if records.len() >= limit.records_max.max(1) || bytes >= limit.bytes_max.max(1) {
                break;
            }
            let seq = segment.first.plus(at as u64);
            let record = unpacked.decode(at, seq, &segment.run).filter(|record| record.has_valid_checksum(thread));
            let Some(record) = record else { break };
            bytes += record.size_bytes();
            records.push(record);
        }
        if records.is_empty() {
            // Somebody may restore it.
            self.lock_cache().remove(&segment.object);
            return Err(SegmentError::Damaged);
        }
        Ok(records)
    }

    async fn load(&self, segment: &SegmentRow) -> Result<Arc<UnpackedSegment>, SegmentError> {
        if let Some(known) = self.lock_cache().get(&segment.object) {
            return Ok(known);
        }
        let fetched = tokio::time::timeout(FETCH_TIMEOUT, self.fetch(segment)).await;
        fetched.unwrap_or_else(|_| Err(SegmentError::Unavailable("it does not answer in time".to_owned())))
    }

    async fn fetch(&self, segment: &SegmentRow) -> Result<Arc<UnpackedSegment>, SegmentError> {
        let permit = self.fetches.acquire().await.map_err(|error| SegmentError::Unavailable(error.to_string()))?;
        if let Some(known) = self.lock_cache().get(&segment.object) {
            return Ok(known);
        }
        let object = match self.archive.get(&segment.object, object_bytes_max(segment.raw_bytes)).await {
            Ok(object) => object,
            Err(ArchiveError::NotFound) => return Err(SegmentError::Missing),
            Err(ArchiveError::TooLarge) => return Err(SegmentError::Damaged),
            Err(ArchiveError::Unavailable(why)) => return Err(SegmentError::Unavailable(why)),
        };
        self.reads.fetch_add(1, Ordering::Relaxed);
        let (first, last, raw_bytes) = (segment.first, segment.last, segment.raw_bytes);
        let unpacking = tokio::task::spawn_blocking(move || {
            let raw = decompress_block(&object).filter(|raw| raw.len() as u64 == raw_bytes)?;
            Some(UnpackedSegment::new(raw, last.next().0.saturating_sub(first.0)))
        });
        let unpacked = unpacking.await.map_err(|error| SegmentError::Unavailable(error.to_string()))?;
        let unpacked = Arc::new(unpacked.ok_or(SegmentError::Damaged)?);
        self.lock_cache().insert(&segment.object, Arc::clone(&unpacked));
        drop(permit);
        Ok(unpacked)
    }

    /// Forgets the segments of a thread that was deleted.
    pub(super) fn forget_thread(&self, thread: i64) {
        self.lock_cache().remove_prefix(&format!("{thread}/"));
    }

    fn lock_cache(&self) -> MutexGuard<'_, SegmentCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnpackedSegment {
    /// A copy of a record: a slice would keep the whole segment in memory for as long as somebody has the record.
    fn decode(&self, at: usize, seq: Seq, run: &TaskId) -> Option<Record> {
        let mut raw = self.raw.slice(*self.offsets.get(at)? as usize..);
        let mut record = decode_record(&mut raw, seq, run)?;
        record.public = Bytes::copy_from_slice(&record.public);
        record.private = Bytes::copy_from_slice(&record.private);
        Some(record)
    }
}

/// The maximum size of an object with this much in it.
fn object_bytes_max(raw_bytes: u64) -> usize {
    let raw_bytes = usize::try_from(raw_bytes).unwrap_or(usize::MAX / 2);
    BLOCK_HEADER_BYTES.saturating_add(lz4_flex::block::get_maximum_output_size(raw_bytes))
}
