//! Records of databases before version 13, which had a row for each, with a column for each of its fields.

use crate::block_coding::RecordColumns;
use model::seq::Epoch;
use rusqlite::Connection;
use rusqlite::functions::{Context, FunctionFlags};

/// Shows the records of such a database as the newest version has them, to those who read through this connection: a database
/// that is only read is not migrated.
pub(crate) fn show_as_record_rows(conn: &Connection) -> rusqlite::Result<()> {
    register_encode_record(conn)?;
    conn.execute_batch(
        "CREATE TEMP VIEW records AS
             SELECT pos, thread, run, seq, 1 AS count, encode_record(at, epoch, v, checksum, public, private) AS data
             FROM main.records",
    )
}

/// Adds the SQL function that encodes a record as in a block.
pub(crate) fn register_encode_record(conn: &Connection) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC | FunctionFlags::SQLITE_INNOCUOUS;
    conn.create_scalar_function("encode_record", 6, flags, encode_columns)
}

fn encode_columns(columns: &Context<'_>) -> rusqlite::Result<Vec<u8>> {
    let columns = RecordColumns {
        at: columns.get::<i64>(0)?.cast_unsigned(),
        epoch: Epoch(columns.get::<i64>(1)?.cast_unsigned()),
        format: columns.get(2)?,
        checksum: columns.get(3)?,
        public: columns.get_raw(4).as_blob()?,
        private: columns.get_raw(5).as_blob_or_null()?.unwrap_or_default(),
    };
    let mut encoded = Vec::new();
    columns.encode(&mut encoded);
    Ok(encoded)
}
