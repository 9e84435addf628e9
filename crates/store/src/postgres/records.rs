//! Reading a page of a log, in one statement and therefore one snapshot.

use super::connection::{column, limit_param, u64_column};
use super::pool::DatabasePool;
use bytes::Bytes;
use model::ports::{PageLimit, RecordPage, StoreError, StoreResult};
use model::record::{Record, RecordHeader};
use model::seq::{Epoch, Seq};
use model::{TaskId, ThreadId, UserId};
use std::ops::Range;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

/// The thread's row without records if there are none. A record belongs to the page while those before it are within the
/// limit; the sizes are known without reading large values.
pub(super) const SELECT_PAGE: &str = "
    SELECT t.head, p.seq, p.at, p.epoch, p.format, p.checksum, p.public, p.private, r.id
    FROM headwater.threads t
    LEFT JOIN LATERAL (
        SELECT *, sum(octet_length(public) + coalesce(octet_length(private), 0)) OVER (ORDER BY seq) AS bytes
        FROM (SELECT * FROM headwater.records WHERE thread = t.num AND seq > $3 AND seq <= $4 ORDER BY seq LIMIT $5) first
    ) p ON p.bytes - octet_length(p.public) - coalesce(octet_length(p.private), 0) < $6
    LEFT JOIN headwater.runs r ON r.num = p.run
    WHERE t.id = $1 AND t.owner = $2
    ORDER BY p.seq";

/// Reads the records after the start of the range, up to its end. The records before a damaged one are returned; the next
/// read returns the error.
pub(super) async fn read_page(
    pool: &DatabasePool,
    (owner, thread): (&UserId, &ThreadId),
    range: Range<Seq>,
    limit: PageLimit,
) -> StoreResult<RecordPage> {
    let query = PageQuery::new((owner, thread), &range, limit);
    decode_page(&pool.query(SELECT_PAGE, &query.params()).await?, thread, range)
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
) -> StoreResult<RecordPage> {
    let head = Seq(u64_column(rows.first().ok_or(StoreError::ThreadNotFound)?, 0)?);
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
    if is_missing { Err(StoreError::Corrupt { thread: thread.clone(), seq: next }) } else { Ok(page) }
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
