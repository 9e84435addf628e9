//! Reading a page of a log, in one statement and therefore one snapshot.
//!
//! The statement also finds the segment that has the first record of the page, if that is archived: then the page is read
//! from the archive, and ends where the segment ends.

use super::archive::{SegmentError, SegmentReader, SegmentRow};
use super::connection::{column, limit_param, u64_column};
use super::pool::DatabasePool;
use bytes::Bytes;
use model::ports::{PageLimit, RecordPage, StoreError, StoreResult};
use model::record::{Record, RecordHeader};
use model::seq::{Epoch, Seq};
use model::{TaskId, ThreadId, UserId};
use std::ops::Range;
use std::sync::Arc;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

/// The thread's row without records if there are none. A record belongs to the page while those before it are within the
/// limit; the sizes are known without reading large values. No record is read if the first one is archived.
pub(super) const SELECT_PAGE: &str = "
    SELECT t.head, p.seq, p.at, p.epoch, p.format, p.checksum, p.public, p.private, coalesce(r.id, sr.id),
        s.object, s.first_seq, s.last_seq, s.raw_bytes
    FROM headwater.threads t
    LEFT JOIN LATERAL (
        SELECT * FROM headwater.segments WHERE thread = t.num AND first_seq <= least($3, 9223372036854775806) + 1
        ORDER BY first_seq DESC LIMIT 1
    ) s ON s.last_seq > $3 AND $3 < $4
    LEFT JOIN headwater.runs sr ON sr.num = s.run
    LEFT JOIN LATERAL (
        SELECT *, sum(octet_length(public) + coalesce(octet_length(private), 0)) OVER (ORDER BY seq) AS bytes
        FROM (SELECT * FROM headwater.records WHERE thread = t.num AND s.object IS NULL AND seq > $3 AND seq <= $4
              ORDER BY seq LIMIT $5) first
    ) p ON p.bytes - octet_length(p.public) - coalesce(octet_length(p.private), 0) < $6
    LEFT JOIN headwater.runs r ON r.num = p.run
    WHERE t.id = $1 AND t.owner = $2
    ORDER BY p.seq";

/// Where records are read.
#[derive(Clone, Debug)]
pub(super) struct LogReader {
    pub(super) pool: DatabasePool,
    /// `None` without an archive.
    pub(super) segments: Option<Arc<SegmentReader>>,
}

/// A page as the database has it.
pub(super) enum StoredPage {
    Records(RecordPage),
    /// The segment has the first record of the page.
    Archived {
        head: Seq,
        segment: SegmentRow,
    },
}

impl LogReader {
    /// Reads the records after the start of the range, up to its end. The records before a damaged one are returned; the next
    /// read returns the error.
    pub(super) async fn read_page(
        &self,
        (owner, thread): (&UserId, &ThreadId),
        range: Range<Seq>,
        limit: PageLimit,
    ) -> StoreResult<RecordPage> {
        let mut missing = None;
        loop {
            let query = PageQuery::new((owner, thread), &range, limit);
            let rows = self.pool.query(SELECT_PAGE, &query.params()).await?;
            let (head, segment) = match decode_page(&rows, thread, range.clone())? {
                StoredPage::Records(page) => return Ok(page),
                StoredPage::Archived { head, segment } => (head, segment),
            };
            match self.read_segment(thread, &segment, range.clone(), limit).await {
                Ok(records) => return Ok(RecordPage { records, head }),
                // The thread may have been deleted after the statement, which the next one tells.
                Err(SegmentError::Missing) if missing.as_ref() != Some(&segment.object) => {
                    missing = Some(segment.object);
                }
                Err(error) => return Err(error.into_store_error(thread, range.start.next())),
            }
        }
    }

    /// Reads records of a segment that has the one after the start of the range.
    pub(super) async fn read_segment(
        &self,
        thread: &ThreadId,
        segment: &SegmentRow,
        range: Range<Seq>,
        limit: PageLimit,
    ) -> Result<Vec<Record>, SegmentError> {
        let reader = self.segments.as_ref().ok_or(SegmentError::NoArchive)?;
        reader.read_records(thread, segment, range, limit).await
    }
}

/// The parameters of [`SELECT_PAGE`].
pub(super) struct PageQuery<'a> {
    thread: &'a str,
    owner: &'a str,
    after: i64,
    until: i64,
    records_max: i64,
    bytes_max: i64,
}

impl<'a> PageQuery<'a> {
    pub(super) fn new((owner, thread): (&'a UserId, &'a ThreadId), range: &Range<Seq>, limit: PageLimit) -> Self {
        Self {
            thread: thread.as_str(),
            owner: owner.as_str(),
            after: seq_param(range.start),
            until: seq_param(range.end),
            records_max: limit_param(limit.records_max.max(1)),
            bytes_max: limit_param(limit.bytes_max.max(1)),
        }
    }

    pub(super) fn params(&self) -> [(&(dyn ToSql + Sync), Type); 6] {
        [
            (&self.thread, Type::TEXT),
            (&self.owner, Type::TEXT),
            (&self.after, Type::INT8),
            (&self.until, Type::INT8),
            (&self.records_max, Type::INT8),
            (&self.bytes_max, Type::INT8),
        ]
    }
}

/// The page that [`SELECT_PAGE`] returned.
pub(super) fn decode_page(
    rows: &[Row],
    thread: &ThreadId,
    Range { start: after, end: until }: Range<Seq>,
) -> StoreResult<StoredPage> {
    let first = rows.first().ok_or(StoreError::ThreadNotFound)?;
    let head = Seq(u64_column(first, 0)?);
    if let Some(segment) = decode_segment(first)? {
        return Ok(StoredPage::Archived { head, segment });
    }
    let mut page = RecordPage { records: Vec::with_capacity(rows.len()), head };
    let mut next = after.next();
    for row in rows {
        match decode_record(row, next)? {
            Some(record) if record.has_valid_checksum(thread) => page.records.push(record),
            Some(_) | None => break,
        }
        next = next.next();
    }
    let is_missing = page.records.is_empty() && next <= head.min(until);
    if is_missing {
        Err(StoreError::Corrupt { thread: thread.clone(), seq: next })
    } else {
        Ok(StoredPage::Records(page))
    }
}

/// The segment of a row, if it has one.
fn decode_segment(row: &Row) -> StoreResult<Option<SegmentRow>> {
    let Some(object) = column::<Option<&str>>(row, 9)? else { return Ok(None) };
    Ok(Some(SegmentRow {
        object: object.to_owned(),
        // Without its run a segment is damaged, which the checksums tell.
        run: TaskId::from(column::<Option<&str>>(row, 8)?.unwrap_or_default()),
        first: Seq(u64_column(row, 10)?),
        last: Seq(u64_column(row, 11)?),
        raw_bytes: u64_column(row, 12)?,
    }))
}

/// Positions beyond those of PostgreSQL do not occur.
fn seq_param(seq: Seq) -> i64 {
    i64::try_from(seq.0).unwrap_or(i64::MAX)
}

/// The record of a row; `None` when it is not the expected one.
fn decode_record(row: &Row, expected: Seq) -> StoreResult<Option<Record>> {
    Ok(decode_any_record(row)?.filter(|record| record.seq == expected))
}

/// The record of a row, if it has one.
pub(super) fn decode_any_record(row: &Row) -> StoreResult<Option<Record>> {
    let (seq, run) = (column::<Option<i64>>(row, 1)?, column::<Option<&str>>(row, 8)?);
    let (Some(seq), Some(run)) = (seq, run) else { return Ok(None) };
    let header = RecordHeader {
        seq: Seq(seq.cast_unsigned()),
        at: u64_column(row, 2)?,
        run: TaskId::from(run),
        epoch: Epoch(u64_column(row, 3)?),
        format: column::<i16>(row, 4)?.cast_unsigned(),
        checksum: column::<i32>(row, 5)?.cast_unsigned(),
    };
    let (public, private): (&[u8], Option<&[u8]>) = (column(row, 6)?, column(row, 7)?);
    let private = Bytes::copy_from_slice(private.unwrap_or_default());
    Ok(Some(Record::from_stored(header, Bytes::copy_from_slice(public), private)))
}
