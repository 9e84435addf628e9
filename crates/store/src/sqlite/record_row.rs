//! Access to the columns of `records`.

use bytes::Bytes;
use model::ports::StoreError;
use model::record::{Record, RecordHeader};
use model::seq::{Epoch, Millis, Seq};
use model::{TaskId, ThreadId};

/// Selects rows in order. The parameters are a half-open range of positions.
pub(crate) const SELECT_RECORDS: &str = "SELECT thread, run, seq, at, epoch, v, checksum, public, private FROM records
                                 WHERE pos >= ?1 AND pos < ?2 ORDER BY pos";

pub(crate) const INSERT_RECORD: &str =
    "INSERT INTO records (pos, thread, run, seq, at, epoch, v, checksum, public, private)
                                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";

/// A row of [`SELECT_RECORDS`].
pub(crate) struct RecordRow<'a>(pub(crate) &'a rusqlite::Row<'a>);

impl RecordRow<'_> {
    /// Whether the row is this record of this thread.
    pub(crate) fn is_record(&self, thread: i64, seq: u64) -> rusqlite::Result<bool> {
        Ok(self.0.get::<_, i64>(0)? == thread && self.get_u64(2)? == seq)
    }

    pub(crate) fn run_num(&self) -> rusqlite::Result<i64> {
        self.0.get(1)
    }

    pub(crate) fn at(&self) -> rusqlite::Result<Millis> {
        self.get_u64(3)
    }

    pub(crate) fn epoch(&self) -> rusqlite::Result<Epoch> {
        self.get_u64(4).map(Epoch)
    }

    pub(crate) fn v(&self) -> rusqlite::Result<u16> {
        self.0.get(5)
    }

    pub(crate) fn checksum(&self) -> rusqlite::Result<u32> {
        self.0.get(6)
    }

    pub(crate) fn public(&self) -> rusqlite::Result<&[u8]> {
        self.get_bytes(7)
    }

    pub(crate) fn private(&self) -> rusqlite::Result<&[u8]> {
        self.get_bytes(8)
    }

    pub(crate) fn to_record(&self, seq: Seq, run: &TaskId) -> rusqlite::Result<Record> {
        let stored = RecordHeader {
            seq,
            at: self.at()?,
            run: run.clone(),
            epoch: self.epoch()?,
            format: self.v()?,
            checksum: self.checksum()?,
        };
        let (public, private) = (self.public()?, self.private()?);
        Ok(Record::from_stored(stored, Bytes::copy_from_slice(public), Bytes::copy_from_slice(private)))
    }

    fn get_u64(&self, column: usize) -> rusqlite::Result<u64> {
        self.0.get::<_, i64>(column).map(i64::cast_unsigned)
    }

    fn get_bytes(&self, column: usize) -> rusqlite::Result<&[u8]> {
        let value = self.0.get_ref(column)?;
        Ok(value.as_blob_or_null()?.unwrap_or_default())
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
