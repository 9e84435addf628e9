//! Gives the space of deleted rows back to the disk.
//!
//! Deleted rows leave free pages in the file, which later rows use again. After a deletion the writer moves pages from the end
//! of the file into the free ones, step by step while it has nothing else to do, until only as many are free as new rows will
//! soon need. A database can do that only if it was created so (`auto_vacuum`); `headwater compact` converts one that was not.

use super::writer::{SqliteWriter, in_transaction};
use super::writer_maintenance::MaintenancePace;
use rusqlite::Connection;

/// Free pages that stay for new rows: at least this number, and at least one page in [`FREE_PAGES_KEPT_SHARE`] of the file.
const FREE_PAGES_KEPT_MIN: u32 = 1_024;
const FREE_PAGES_KEPT_SHARE: u32 = 8;
/// Maximum number of pages that one step releases, by pace.
const RELEASE_PAGES_YIELDING: u32 = 64;
const RELEASE_PAGES_IDLE: u32 = 512;
/// Free pages of a database that cannot release them from which on the log says what to do.
const UNRELEASED_PAGES_NOTED: u32 = 16_384;

/// `PRAGMA auto_vacuum`.
pub(crate) const AUTO_VACUUM_INCREMENTAL: u32 = 2;

/// Whether there may be pages to release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FreePages {
    /// Content was deleted, or nobody has looked yet.
    #[default]
    Unknown,
    /// Some were released, and there may be more.
    Releasing,
    NoneToRelease,
}

impl SqliteWriter {
    /// Releases some free pages, if there are more than new rows need. Returns whether it did anything.
    pub(crate) fn release_free_pages(&mut self, pace: MaintenancePace) -> bool {
        if self.backoff_commits > 0 || self.is_full() || self.free_pages == FreePages::NoneToRelease {
            return false;
        }
        let Some(conn) = self.conn.take() else { return false };
        let pages_max = if pace == MaintenancePace::Yielding { RELEASE_PAGES_YIELDING } else { RELEASE_PAGES_IDLE };
        let released = excess_pages(&conn).and_then(|excess| {
            let pages = excess.min(pages_max);
            // Moved pages are written to the write-ahead log first.
            let bytes = u64::from(pages) * u64::from(read_pragma(&conn, "page_size")?);
            let is_possible = pages > 0 && self.reserve.has_room_for(bytes);
            if is_possible { in_transaction(&conn, |conn| release_pages(conn, pages)) } else { Ok(()) }
                .map(|()| is_possible)
        });
        match released {
            Ok(true) => {
                self.conn = Some(conn);
                self.free_pages = FreePages::Releasing;
                true
            }
            Ok(false) => {
                self.conn = Some(conn);
                // The file is cut when the write-ahead log has been copied into it.
                let has_released = self.free_pages == FreePages::Releasing;
                self.wal_needs_truncate |= has_released;
                self.free_pages = FreePages::NoneToRelease;
                has_released
            }
            Err(error) => self.back_off(conn, &error),
        }
    }
}

/// The number of free pages beyond those that stay for new rows.
fn excess_pages(conn: &Connection) -> rusqlite::Result<u32> {
    let (all, free) = (read_pragma(conn, "page_count")?, read_pragma(conn, "freelist_count")?);
    let excess = free.saturating_sub(FREE_PAGES_KEPT_MIN.max(all / FREE_PAGES_KEPT_SHARE));
    if excess == 0 || read_pragma(conn, "auto_vacuum")? == AUTO_VACUUM_INCREMENTAL {
        return Ok(excess);
    }
    if excess >= UNRELEASED_PAGES_NOTED {
        let free_mib = u64::from(free) * u64::from(read_pragma(conn, "page_size")?) / (1024 * 1024);
        tracing::info!(
            free_mib,
            "the database of an older version does not shrink: `headwater compact` makes it do so"
        );
    }
    Ok(0)
}

fn release_pages(conn: &Connection, pages: u32) -> rusqlite::Result<()> {
    // It returns a row for each page.
    let mut release = conn.prepare(&format!("PRAGMA incremental_vacuum({pages})"))?;
    let mut rows = release.query(())?;
    while rows.next()?.is_some() {}
    Ok(())
}

/// A number that SQLite knows about the database.
pub(crate) fn read_pragma(conn: &Connection, name: &str) -> rusqlite::Result<u32> {
    conn.pragma_query_value(None, name, |row| row.get(0))
}
