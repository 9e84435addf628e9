//! Checks of the rows of files against each other and against the log, and the list of files that should exist. The
//! caller compares the list with the disk.
//!
//! Links of missing threads are not damage: a crash leaves them, and the next start removes them.

use super::data_folder::for_each_row;
use super::{FileRowProblem, VerifyReport};
use crate::sqlite::{
    ATTACHMENTS_SINCE, BLOBS_SINCE, DataFolder, MIGRATIONS, StoreOpenError, attachment_row, open_offline,
    owner_and_path, schema_version,
};
use model::ports::AttachmentRow;
use model::{ThreadId, UserId};
use rusqlite::{Connection, Row};
use std::collections::HashSet;
use std::path::Path;

/// The files in the database of a data folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredFiles {
    /// Files whose bytes must exist.
    pub committed: Vec<(UserId, AttachmentRow)>,
    /// Paths that may have leftover bytes: interrupted uploads and released files.
    pub stale: Vec<(UserId, String)>,
    /// Number of committed blobs without a link from an existing thread. The next start removes them.
    pub unlinked: usize,
}

/// Lists the files in the database of a data folder, read-only.
pub fn list_stored_files(dir: &Path) -> Result<StoredFiles, StoreOpenError> {
    let folder = DataFolder::lock_existing(dir)?;
    let sql = |error: rusqlite::Error| StoreOpenError::from_sqlite(&folder.database, &error);
    let conn = open_offline(&folder.database).map_err(sql)?;
    let found =
        schema_version(&conn, MIGRATIONS).map_err(|error| StoreOpenError::from_migration(&folder.database, &error))?;
    if found < ATTACHMENTS_SINCE {
        return Ok(StoredFiles::default());
    }
    let hash = if found < BLOBS_SINCE { "NULL" } else { "hash" };
    let mut files = query_stored_files(&conn, hash).map_err(sql)?;
    if found >= BLOBS_SINCE {
        files.unlinked = count_unlinked(&conn).map_err(sql)?;
    }
    Ok(files)
}

fn count_unlinked(conn: &Connection) -> rusqlite::Result<usize> {
    let sql = "SELECT count(*) FROM attachments a WHERE hash IS NOT NULL AND bytes IS NOT NULL AND NOT EXISTS
               (SELECT 1 FROM attachment_uses u JOIN threads t ON t.id = u.thread AND t.owner = u.owner
                WHERE u.owner = a.owner AND u.path = a.path)";
    let count: i64 = conn.query_row(sql, (), |row| row.get(0))?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

fn query_stored_files(conn: &Connection, hash: &str) -> rusqlite::Result<StoredFiles> {
    let mut files = StoredFiles::default();
    let sql = format!(
        "SELECT path, name, content_type, bytes, created_at, {hash}, owner FROM attachments
         WHERE bytes IS NOT NULL ORDER BY owner, path"
    );
    let there = |row: &Row<'_>| Ok((UserId::from(row.get::<_, String>(6)?), attachment_row(row)?));
    files.committed = conn.prepare(&sql)?.query_map((), there)?.collect::<rusqlite::Result<_>>()?;
    let sql = "SELECT owner, path FROM attachments WHERE bytes IS NULL ORDER BY owner, path";
    files.stale = conn.prepare(sql)?.query_map((), owner_and_path)?.collect::<rusqlite::Result<_>>()?;
    Ok(files)
}

/// Reports users whose stored sum differs from the size of their files.
pub(super) fn check_attachment_sums(conn: &Connection, report: &mut VerifyReport) -> rusqlite::Result<()> {
    let wrong = "SELECT owner FROM
                 (SELECT owner, total(bytes) AS held, 0 AS said FROM attachments GROUP BY owner
                  UNION ALL SELECT owner, 0, bytes FROM attachment_sums)
                 GROUP BY owner HAVING sum(held) <> sum(said) ORDER BY owner";
    report_each(conn, wrong, FileRowProblem::WrongSum, report)
}

/// Reports invalid and duplicate blobs, and links that do not match the files.
pub(super) fn check_attachment_links(conn: &Connection, report: &mut VerifyReport) -> rusqlite::Result<()> {
    for_each_row(conn, "SELECT path, hash FROM attachments WHERE hash IS NOT NULL ORDER BY path", |row| {
        report.check_blob_hash(row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_str()?);
        Ok(())
    })?;
    let twice = "SELECT min(path) FROM attachments WHERE hash IS NOT NULL
                 GROUP BY owner, hash HAVING count(*) > 1 ORDER BY 1";
    report_each(conn, twice, FileRowProblem::DuplicateBlob, report)?;
    let undead = "SELECT path FROM attachments WHERE bytes IS NULL AND hash IS NOT NULL
                  OR released <> 0 AND bytes IS NOT NULL ORDER BY path";
    report_each(conn, undead, FileRowProblem::HalfReleased, report)?;
    let unused = "SELECT path FROM attachments a WHERE hash IS NOT NULL AND NOT EXISTS
                  (SELECT 1 FROM attachment_uses u WHERE u.owner = a.owner AND u.path = a.path) ORDER BY path";
    report_each(conn, unused, FileRowProblem::UnlinkedBlob, report)?;
    let gone = "SELECT thread FROM attachment_uses u WHERE NOT EXISTS (SELECT 1 FROM attachments a
                WHERE a.owner = u.owner AND a.path = u.path AND a.bytes IS NOT NULL AND a.released = 0) ORDER BY thread";
    report_each(conn, gone, FileRowProblem::LinkWithoutFile, report)
}

/// Reports every text that the query finds.
fn report_each(
    conn: &Connection,
    sql: &str,
    problem: FileRowProblem,
    report: &mut VerifyReport,
) -> rusqlite::Result<()> {
    for_each_row(conn, sql, |row| {
        report.add_file_row_problem(problem, row.get_ref(0)?.as_str()?);
        Ok(())
    })
}

pub(super) fn linked_blob_hashes(
    conn: &Connection,
    owner: &UserId,
    thread: &ThreadId,
) -> rusqlite::Result<HashSet<String>> {
    let sql = "SELECT a.hash FROM attachment_uses u JOIN attachments a ON a.owner = u.owner AND a.path = u.path
               WHERE u.owner = ?1 AND u.thread = ?2 AND a.hash IS NOT NULL AND a.bytes IS NOT NULL";
    let mut select = conn.prepare_cached(sql)?;
    select.query_map((owner.as_str(), thread.as_str()), |row| row.get(0))?.collect()
}
