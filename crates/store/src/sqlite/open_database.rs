//! Opening a database for the writer.

use super::append_log::AppendLog;
use super::data_folder::StoreOpenError;
use super::disk_reserve::DiskReserve;
use super::record_scan::{RecordScan, scan_records};
use super::schema::{self, MIGRATIONS, open_writer, schema_version};
use super::{attachment_links, inbox, log_recovery};
use rusqlite::Connection;
use std::path::Path;

/// A database that is open for writing.
pub(crate) struct OpenedDatabase {
    pub(crate) conn: Connection,
    pub(crate) append_log: AppendLog,
    pub(crate) boot: u64,
    pub(crate) found: RecordScan,
}

/// A database that may be open for reading alone.
pub(crate) enum OpenOutcome {
    Opened(Box<OpenedDatabase>),
    /// There is no room for what opening it for writing needs.
    ReadOnly(RecordScan),
}

/// Opens the database; on a full disk with the space of the reserve, or if that is not enough, for reading alone.
pub(crate) fn open_within_reserve(database: &Path, reserve: &DiskReserve) -> Result<OpenOutcome, StoreOpenError> {
    let has_room = reserve.has_room_for(0);
    if !has_room {
        reserve.release();
    }
    let is_want_of_space = |error: &StoreOpenError| match error {
        StoreOpenError::DiskFull(_) => true,
        // SQLite does not tell why it cannot create a file.
        StoreOpenError::Denied { .. } => !reserve.has_room_for(0),
        _ => false,
    };
    let mut opened = open_database(database);
    if has_room && opened.as_ref().is_err_and(is_want_of_space) {
        reserve.release();
        opened = open_database(database);
    }
    match opened {
        Ok(opened) => Ok(OpenOutcome::Opened(Box::new(opened))),
        Err(error) if is_want_of_space(&error) => {
            let dir = database.parent().unwrap_or(database);
            let found = scan_without_writer(database).ok_or_else(|| StoreOpenError::DiskFull(dir.to_owned()))?;
            tracing::error!("the disk of the data folder is full, and so is its reserve: the database is only read");
            Ok(OpenOutcome::ReadOnly(found))
        }
        Err(error) => Err(error),
    }
}

/// The live records of a database that cannot be opened for writing; `None` if it cannot be read either.
fn scan_without_writer(database: &Path) -> Option<RecordScan> {
    let conn = log_recovery::open_offline(database).ok()?;
    let version = schema_version(&conn, MIGRATIONS).ok()?;
    (version as usize == MIGRATIONS.len()).then(|| scan_records(&conn).ok()).flatten()
}

/// Opens and migrates the database, moves what its log has into it, increments the boot counter and scans for live records.
pub(crate) fn open_database(database: &Path) -> Result<OpenedDatabase, StoreOpenError> {
    let open_error = |error: rusqlite::Error| StoreOpenError::from_sqlite(database, &error);
    let mut conn = open_writer(database).map_err(open_error)?;
    if conn.is_readonly("main").map_err(open_error)? {
        return Err(StoreOpenError::denied(database, &"it cannot be written"));
    }
    schema::migrate(&mut conn, MIGRATIONS).map_err(|error| StoreOpenError::from_migration(database, &error))?;
    if !schema::enable_wal(&conn).map_err(open_error)? {
        return Err(StoreOpenError::denied(database, &"its file system cannot have a write-ahead log"));
    }
    log_recovery::move_into_database(&conn, database).map_err(open_error)?;
    let append_log = AppendLog::create(database).map_err(|error| open_error(log_recovery::to_sql_error(&error)))?;
    inbox::expire_idempotency_keys(&conn).map_err(open_error)?;
    attachment_links::release_orphaned_blobs(&conn).map_err(open_error)?;
    let sql = "UPDATE meta SET value = value + 1 WHERE name = 'boot' RETURNING value";
    let boot: i64 = conn.query_row(sql, (), |row| row.get(0)).map_err(open_error)?;
    let found = scan_records(&conn).map_err(open_error)?;
    Ok(OpenedDatabase { conn, append_log, boot: boot.cast_unsigned(), found })
}
