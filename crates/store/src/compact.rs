//! Rewrites the database of a folder that no server uses, without its free pages, for `headwater compact`.
//!
//! The copy is written beside the database, checked and synced, and then takes its name. A crash leaves either the old file
//! or the new one; the next start removes what is left of a copy. The copy can release pages by itself from then on.

use crate::sqlite::{
    AUTO_VACUUM_INCREMENTAL, COMPACTED_COPY_FILE, DataFolder, DiskSpaceProbe, StoreOpenError, checkpoint_wal,
    has_pending_wal, open_immutable, open_private_file, open_writer, read_pragma, remove_compacted_copy, sync_dir,
};
use rusqlite::Connection;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// What a copy needs beside its pages: it has a page of pointers for about 800 others, and the file system its own data.
const COPY_BYTES_EXTRA: u64 = 1024 * 1024;
const COPY_SHARE_EXTRA: u64 = 500;

/// The size of the database file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactReport {
    pub bytes_before: u64,
    pub bytes_after: u64,
}

/// Why a database was not rewritten. It is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum CompactError {
    #[error(transparent)]
    Open(#[from] StoreOpenError),
    #[error("the disk has no room for the copy: it needs {needed} bytes, and {available} are free")]
    NoRoom { needed: u64, available: u64 },
    #[error("the write-ahead log of {0} is in use: stop the process that reads the database")]
    Busy(PathBuf),
    #[error("the copy is not usable ({0}): run `headwater verify`")]
    BadCopy(String),
    #[error("cannot replace {path}: {error}")]
    Replace { path: PathBuf, error: std::io::Error },
}

/// Rewrites the database of a data folder.
pub fn compact_data_folder(dir: &Path, disk_space: &DiskSpaceProbe) -> Result<CompactReport, CompactError> {
    let folder = DataFolder::lock_with_database(dir)?;
    let database = folder.database.as_path();
    let sql_error = |error: rusqlite::Error| StoreOpenError::from_sqlite(database, &error);
    let io_error = |error: std::io::Error| CompactError::Replace { path: database.to_owned(), error };
    let copy = dir.join(COMPACTED_COPY_FILE);
    let copy_name = copy.to_str().ok_or_else(|| StoreOpenError::denied(&copy, &"its name is not UTF-8"))?;
    let conn = open_writer(database).map_err(sql_error)?;
    if !checkpoint_wal(&conn).map_err(sql_error)? {
        return Err(CompactError::Busy(database.to_owned()));
    }
    let bytes_before = file_bytes(database).map_err(io_error)?;
    check_room(&conn, dir, disk_space, sql_error)?;
    open_private_file(&copy)?;
    let copied = copy_database(&conn, copy_name).map_err(sql_error);
    // Closing removes the write-ahead log: it must not be taken for that of the copy.
    drop(conn);
    let replaced = copied.map_err(CompactError::from).and_then(|()| {
        check_copy(&copy)?;
        if has_pending_wal(database) {
            return Err(CompactError::Busy(database.to_owned()));
        }
        File::open(&copy).and_then(|file| file.sync_all()).map_err(io_error)?;
        fs::rename(&copy, database).map_err(io_error)
    });
    if replaced.is_err() {
        remove_compacted_copy(dir);
    }
    replaced?;
    sync_dir(dir);
    Ok(CompactReport { bytes_before, bytes_after: file_bytes(database).map_err(io_error)? })
}

fn check_room(
    conn: &Connection,
    dir: &Path,
    disk_space: &DiskSpaceProbe,
    sql_error: impl Fn(rusqlite::Error) -> StoreOpenError,
) -> Result<(), CompactError> {
    let pragma = |name| read_pragma(conn, name).map(u64::from).map_err(&sql_error);
    let live = pragma("page_count")?.saturating_sub(pragma("freelist_count")?) * pragma("page_size")?;
    let needed = live + live / COPY_SHARE_EXTRA + COPY_BYTES_EXTRA;
    match disk_space.read(dir) {
        Some(found) if found.available < needed => Err(CompactError::NoRoom { needed, available: found.available }),
        _ => Ok(()),
    }
}

/// Copies the live rows. The copy has the same format version.
fn copy_database(conn: &Connection, copy: &str) -> rusqlite::Result<()> {
    conn.pragma_update(None, "auto_vacuum", AUTO_VACUUM_INCREMENTAL)?;
    conn.execute("VACUUM INTO ?1", [copy]).map(drop)
}

fn check_copy(copy: &Path) -> Result<(), CompactError> {
    let bad = |error: rusqlite::Error| CompactError::BadCopy(error.to_string());
    let conn = open_immutable(copy).map_err(bad)?;
    let found: String = conn.query_row("PRAGMA quick_check(1)", (), |row| row.get(0)).map_err(bad)?;
    if found == "ok" { Ok(()) } else { Err(CompactError::BadCopy(found)) }
}

fn file_bytes(path: &Path) -> std::io::Result<u64> {
    fs::metadata(path).map(|found| found.len())
}
