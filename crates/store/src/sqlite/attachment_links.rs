//! Links from threads to files, and the release of files without links.
//!
//! A link refers to its thread by id, because the thread may not exist yet. The row of a released file keeps only its
//! path until the bytes are deleted, then the row is deleted, too.

use super::columns::{get_text, get_u64};
use model::ports::AttachmentRow;
use model::{ThreadId, UserId};
use rusqlite::{Connection, OptionalExtension, Row};

/// Links a file, if it was found, to a thread.
pub(super) fn link_found(
    conn: &Connection,
    owner: &UserId,
    thread: &ThreadId,
    found: Option<AttachmentRow>,
) -> rusqlite::Result<Option<AttachmentRow>> {
    if let Some(row) = &found {
        insert_link(conn, owner, thread, &row.path)?;
    }
    Ok(found)
}

pub(super) fn insert_link(conn: &Connection, owner: &UserId, thread: &ThreadId, path: &str) -> rusqlite::Result<()> {
    let mut insert = conn.prepare_cached("INSERT OR IGNORE INTO attachment_uses VALUES (?1, ?2, ?3)")?;
    insert.execute((owner.as_str(), thread.as_str(), path)).map(drop)
}

/// Removes a thread's links and releases files without further links. Returns whether any was released.
pub(super) fn unlink_thread(conn: &Connection, owner: &UserId, thread: &ThreadId) -> rusqlite::Result<bool> {
    let sql = "DELETE FROM attachment_uses WHERE owner = ?1 AND thread = ?2 RETURNING path";
    let mut delete = conn.prepare_cached(sql)?;
    let paths: Vec<String> = delete
        .query_map((owner.as_str(), thread.as_str()), |row| get_text(row, 0))?
        .collect::<rusqlite::Result<_>>()?;
    let mut released = false;
    for path in paths {
        released |= release_if_unlinked(conn, owner, &path)?;
    }
    Ok(released)
}

/// Releases a committed file unless a thread uses it. Returns whether it was released.
pub(super) fn release_if_unlinked(conn: &Connection, owner: &UserId, path: &str) -> rusqlite::Result<bool> {
    let sql = "SELECT bytes FROM attachments WHERE owner = ?1 AND path = ?2 AND bytes IS NOT NULL AND NOT EXISTS
               (SELECT 1 FROM attachment_uses WHERE owner = ?1 AND path = ?2)";
    let key = (owner.as_str(), path);
    let Some(bytes) = conn.prepare_cached(sql)?.query_row(key, |row| get_u64(row, 0)).optional()? else {
        return Ok(false);
    };
    let sql = "UPDATE attachments SET released = 1, name = '', content_type = '', bytes = NULL, hash = NULL
               WHERE owner = ?1 AND path = ?2";
    conn.prepare_cached(sql)?.execute(key)?;
    set_stored_bytes(conn, owner, stored_bytes(conn, owner)?.saturating_sub(bytes))?;
    Ok(true)
}

/// Removes links of threads that were never created, and releases blobs without links. Runs at start, when no thread is
/// being created.
pub(super) fn release_orphaned_blobs(conn: &Connection) -> rusqlite::Result<()> {
    let tx = conn.unchecked_transaction()?;
    let never_came = "DELETE FROM attachment_uses WHERE NOT EXISTS (SELECT 1 FROM threads
                      WHERE threads.id = attachment_uses.thread AND threads.owner = attachment_uses.owner)";
    tx.execute(never_came, ())?;
    let unused = "SELECT owner, path FROM attachments a WHERE hash IS NOT NULL AND NOT EXISTS
                  (SELECT 1 FROM attachment_uses u WHERE u.owner = a.owner AND u.path = a.path)";
    let unused: Vec<_> = tx.prepare(unused)?.query_map((), owner_and_path)?.collect::<rusqlite::Result<_>>()?;
    for (owner, path) in unused {
        release_if_unlinked(&tx, &owner, &path)?;
    }
    tx.commit()
}

/// The total size of a user's files.
pub(super) fn stored_bytes(conn: &Connection, owner: &UserId) -> rusqlite::Result<u64> {
    let mut select = conn.prepare_cached("SELECT bytes FROM attachment_sums WHERE owner = ?1")?;
    Ok(select.query_row([owner.as_str()], |row| get_u64(row, 0)).optional()?.unwrap_or_default())
}

pub(super) fn set_stored_bytes(conn: &Connection, owner: &UserId, bytes: u64) -> rusqlite::Result<()> {
    let mut put = conn.prepare_cached("INSERT OR REPLACE INTO attachment_sums VALUES (?1, ?2)")?;
    put.execute((owner.as_str(), bytes.cast_signed())).map(drop)
}

pub(crate) fn owner_and_path(row: &Row<'_>) -> rusqlite::Result<(UserId, String)> {
    Ok((UserId::from(get_text(row, 0)?), get_text(row, 1)?))
}
