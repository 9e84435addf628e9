//! Access to the rows of `records`.
//!
//! A row has consecutive records of one run that were appended together, encoded as in a block. It takes as many positions as
//! it has records, and its own is the position of its last one. So a record's position follows from that of any other record
//! of its extent, and the rows from a position on begin with the row that has it:
//!
//! ```text
//!   position   7   8   9  10  11  12  13
//!   row            9 = (8, 9)    12 = (10, 11, 12)   13 = (13)
//! ```

use crate::block_coding::{RECORD_HEADER_BYTES, encode_record, measure_record};
use model::ThreadId;
use model::ports::StoreError;
use model::record::Record;
use model::seq::Seq;

/// Selects rows in order, from the one that has this position on.
pub(crate) const SELECT_RECORDS: &str =
    "SELECT thread, run, seq, count, data FROM records WHERE pos >= ?1 ORDER BY pos";

pub(crate) const INSERT_RECORDS: &str =
    "INSERT INTO records (pos, thread, run, seq, count, data) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

/// Approximate maximum size of a row with more than one record: a reader of a few records reads all of their row.
const ROW_BYTES_MAX: usize = 32 * 1024;

/// Encodes the first of these records, as many as a row may have. Returns them and the others.
pub(crate) fn encode_row<'a>(records: &'a [Record], data: &mut Vec<u8>) -> (&'a [Record], &'a [Record]) {
    data.clear();
    let mut count = 0;
    for record in records {
        if count > 0 && data.len() + RECORD_HEADER_BYTES + record.size_bytes() > ROW_BYTES_MAX {
            break;
        }
        encode_record(data, record);
        count += 1;
    }
    records.split_at_checked(count).unwrap_or((records, &[]))
}

/// Splits encoded records: as many as a row may have, their number, and the others. The number is zero for what is no record.
pub(crate) fn split_row(encoded: &[u8]) -> (&[u8], u64, &[u8]) {
    let (mut end, mut count) = (0, 0);
    while let Some(bytes) = encoded.get(end..).and_then(measure_record)
        && (count == 0 || end + bytes <= ROW_BYTES_MAX)
    {
        (end, count) = (end + bytes, count + 1);
    }
    let (row, rest) = encoded.split_at_checked(end).unwrap_or((encoded, &[]));
    (row, count, rest)
}

/// A row of [`SELECT_RECORDS`].
pub(crate) struct RecordRow<'a>(pub(crate) &'a rusqlite::Row<'a>);

impl RecordRow<'_> {
    /// Whether the row has this record of this thread.
    pub(crate) fn contains(&self, thread: i64, seq: u64) -> rusqlite::Result<bool> {
        Ok(self.0.get::<_, i64>(0)? == thread && self.first_seq()? <= seq && seq < self.end_seq()?)
    }

    pub(crate) fn run_num(&self) -> rusqlite::Result<i64> {
        self.0.get(1)
    }

    fn first_seq(&self) -> rusqlite::Result<u64> {
        self.0.get::<_, i64>(2).map(i64::cast_unsigned)
    }

    /// The seq after its last record.
    pub(crate) fn end_seq(&self) -> rusqlite::Result<u64> {
        Ok(self.first_seq()?.saturating_add(self.0.get::<_, i64>(3)?.cast_unsigned()))
    }

    /// The bytes of its records from this one on. Empty if the row is damaged.
    pub(crate) fn encoded_from(&self, seq: u64) -> rusqlite::Result<&[u8]> {
        let mut encoded = self.0.get_ref(4)?.as_blob()?;
        for _ in self.first_seq()?..seq {
            let rest = measure_record(encoded).and_then(|bytes| encoded.get(bytes..));
            let Some(rest) = rest else { return Ok(&[]) };
            encoded = rest;
        }
        Ok(encoded)
    }
}

/// Whether the error means damaged data rather than a failing disk.
pub(crate) fn is_corruption(error: &rusqlite::Error) -> bool {
    use rusqlite::{Error, ErrorCode};
    match error {
        Error::SqliteFailure(failure, _) => {
            matches!(failure.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
        }
        Error::FromSqlConversionFailure(..)
        | Error::IntegralValueOutOfRange(..)
        | Error::InvalidColumnType(..)
        | Error::Utf8Error(..) => true,
        _ => false,
    }
}

/// Converts an error of reading this record.
pub(crate) fn read_error(error: &rusqlite::Error, thread: &ThreadId, seq: Seq) -> StoreError {
    if is_corruption(error) { StoreError::Corrupt { thread: thread.clone(), seq } } else { unavailable_error(error) }
}

/// Converts an error of a query that concerns no single thread.
pub(crate) fn unavailable_error(error: &rusqlite::Error) -> StoreError {
    StoreError::Unavailable(error.to_string())
}
