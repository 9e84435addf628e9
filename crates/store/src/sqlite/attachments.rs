//! The rows of files. A row without a size is reserved or released (see `attachment_links`).

use super::SqliteStore;
use super::attachment_links::{self, owner_and_path, set_stored_bytes, stored_bytes};
use super::columns::{get_opt_u64, get_text, get_u64};
use super::write_task::TaskCost;
use async_trait::async_trait;
use model::ports::validation;
use model::ports::{AttachmentOutcome, AttachmentRow, AttachmentWriter, Attachments, StoreError, StoreResult};
use model::seq::Millis;
use model::{ThreadId, UserId};
use rusqlite::{Connection, OptionalExtension, Row};

#[async_trait]
impl Attachments for SqliteStore {
    async fn attachment(&self, owner: &UserId, path: &str) -> StoreResult<Option<AttachmentRow>> {
        let (owner, path) = (owner.clone(), path.to_owned());
        self.query(move |conn| find_attachment(conn, &owner, &path)).await
    }

    async fn attachment_bytes_used(&self, owner: &UserId) -> StoreResult<u64> {
        let owner = owner.clone();
        self.query(move |conn| stored_bytes(conn, &owner)).await
    }

    async fn blob(&self, owner: &UserId, thread: Option<&ThreadId>, hash: &str) -> StoreResult<Option<AttachmentRow>> {
        let (owner, thread, hash) = (owner.clone(), thread.cloned(), hash.to_owned());
        self.query(move |conn| match thread {
            None => find_blob(conn, &owner, &hash),
            Some(thread) => {
                let sql = format!(
                    "{SELECT} a WHERE owner = ?1 AND hash = ?2 AND bytes IS NOT NULL AND EXISTS
                     (SELECT 1 FROM attachment_uses u WHERE u.owner = ?1 AND u.thread = ?3 AND u.path = a.path)"
                );
                let wanted = (owner.as_str(), hash, thread.as_str());
                conn.prepare_cached(&sql)?.query_row(wanted, attachment_row).optional()
            }
        })
        .await
    }

    async fn unreferenced_attachments(&self) -> StoreResult<Vec<(UserId, String)>> {
        let sql = "SELECT owner, path FROM attachments WHERE released = 1 ORDER BY owner, path";
        self.query(move |conn| conn.prepare_cached(sql)?.query_map((), owner_and_path)?.collect()).await
    }

    async fn stale_attachments(&self) -> StoreResult<Vec<(UserId, String)>> {
        let sql = "SELECT owner, path FROM attachments WHERE bytes IS NULL ORDER BY owner, path";
        self.query(move |conn| conn.prepare_cached(sql)?.query_map((), owner_and_path)?.collect()).await
    }
}

#[async_trait]
impl AttachmentWriter for SqliteStore {
    async fn reserve_attachment(&self, owner: &UserId, path: &str, at: Millis) -> StoreResult<()> {
        let (owner, path) = (owner.clone(), path.to_owned());
        self.call_writer(TaskCost::ROW, move |tx| {
            let sql = "INSERT OR IGNORE INTO attachments VALUES (?1, ?2, '', '', NULL, ?3, NULL, 0)";
            tx.conn.prepare_cached(sql)?.execute((owner.as_str(), path, at.cast_signed()))?;
            Ok(Ok(()))
        })
        .await
    }

    async fn commit_attachment(
        &self,
        owner: &UserId,
        row: AttachmentRow,
        bytes_max: Option<u64>,
    ) -> StoreResult<AttachmentOutcome> {
        let owner = owner.clone();
        self.call_writer(TaskCost::ROW, move |tx| {
            if row.hash.is_some() {
                return Ok(Err(validation::blob_without_thread_error(&row.path)));
            }
            insert_attachment(tx.conn, &owner, &row, bytes_max)
        })
        .await
    }

    async fn delete_attachment(&self, owner: &UserId, path: &str) -> StoreResult<bool> {
        let (owner, path) = (owner.clone(), path.to_owned());
        self.call_writer_for_relief(move |tx| {
            let deleted = delete_attachment(tx.conn, &owner, &path)?;
            tx.effects.has_deleted_content |= matches!(deleted, Some(AttachmentState::Committed(_)));
            Ok(Ok(deleted.is_some()))
        })
        .await
    }

    async fn link_attachment(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        path: &str,
    ) -> StoreResult<Option<AttachmentRow>> {
        let (owner, thread, path) = (owner.clone(), thread.clone(), path.to_owned());
        self.call_writer(TaskCost::ROW, move |tx| {
            let found = find_attachment(tx.conn, &owner, &path)?;
            attachment_links::link_found(tx.conn, &owner, &thread, found).map(Ok)
        })
        .await
    }

    async fn commit_blob(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        row: AttachmentRow,
        bytes_max: Option<u64>,
    ) -> StoreResult<AttachmentOutcome> {
        let (owner, thread) = (owner.clone(), thread.clone());
        self.call_writer(TaskCost::ROW, move |tx| commit_blob(tx.conn, &owner, &thread, &row, bytes_max)).await
    }

    async fn link_blob(&self, owner: &UserId, thread: &ThreadId, hash: &str) -> StoreResult<Option<AttachmentRow>> {
        let (owner, thread, hash) = (owner.clone(), thread.clone(), hash.to_owned());
        self.call_writer(TaskCost::ROW, move |tx| {
            let found = find_blob(tx.conn, &owner, &hash)?;
            attachment_links::link_found(tx.conn, &owner, &thread, found).map(Ok)
        })
        .await
    }
}

fn insert_attachment(
    conn: &Connection,
    owner: &UserId,
    row: &AttachmentRow,
    bytes_max: Option<u64>,
) -> rusqlite::Result<Result<AttachmentOutcome, StoreError>> {
    match attachment_state(conn, owner, &row.path)? {
        Some(AttachmentState::Committed(_)) => return Ok(Ok(AttachmentOutcome::Stored)),
        // The pending clean-up of the path would delete the new bytes.
        Some(AttachmentState::Unreferenced) => return Ok(Err(validation::path_taken_error(&row.path))),
        Some(AttachmentState::Reserved) | None => {}
    }
    let used = stored_bytes(conn, owner)?;
    let sum = used.saturating_add(row.size_bytes);
    if bytes_max.is_some_and(|most| sum > most) {
        return Ok(Ok(AttachmentOutcome::QuotaExceeded { used }));
    }
    let sql = "INSERT OR REPLACE INTO attachments VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0)";
    let mut put = conn.prepare_cached(sql)?;
    let (bytes, at) = (row.size_bytes.cast_signed(), row.created_at.cast_signed());
    put.execute((owner.as_str(), &row.path, &row.name, &row.content_type, bytes, at, &row.hash))?;
    set_stored_bytes(conn, owner, sum)?;
    Ok(Ok(AttachmentOutcome::Stored))
}

/// Commits a blob and links it to a thread, unless the quota is exceeded.
fn commit_blob(
    conn: &Connection,
    owner: &UserId,
    thread: &ThreadId,
    row: &AttachmentRow,
    bytes_max: Option<u64>,
) -> rusqlite::Result<Result<AttachmentOutcome, StoreError>> {
    let Some(hash) = &row.hash else {
        return Ok(Err(validation::blob_without_hash_error(&row.path)));
    };
    if let Some(known) = find_blob(conn, owner, hash)? {
        attachment_links::insert_link(conn, owner, thread, &known.path)?;
        return Ok(Ok(if known.path == row.path {
            AttachmentOutcome::Stored
        } else {
            AttachmentOutcome::Duplicate(known)
        }));
    }
    if find_attachment(conn, owner, &row.path)?.is_some() {
        return Ok(Err(validation::path_taken_error(&row.path)));
    }
    let outcome = insert_attachment(conn, owner, row, bytes_max)?;
    if outcome == Ok(AttachmentOutcome::Stored) {
        attachment_links::insert_link(conn, owner, thread, &row.path)?;
    }
    Ok(outcome)
}

/// Deletes a file with its links. Returns its previous state.
fn delete_attachment(conn: &Connection, owner: &UserId, path: &str) -> rusqlite::Result<Option<AttachmentState>> {
    let Some(state) = attachment_state(conn, owner, path)? else { return Ok(None) };
    for table in ["attachments", "attachment_uses"] {
        let sql = format!("DELETE FROM {table} WHERE owner = ?1 AND path = ?2");
        conn.prepare_cached(&sql)?.execute((owner.as_str(), path))?;
    }
    if let AttachmentState::Committed(bytes) = state {
        set_stored_bytes(conn, owner, stored_bytes(conn, owner)?.saturating_sub(bytes))?;
    }
    Ok(Some(state))
}

enum AttachmentState {
    Reserved,
    /// The size in bytes.
    Committed(u64),
    Unreferenced,
}

fn attachment_state(conn: &Connection, owner: &UserId, path: &str) -> rusqlite::Result<Option<AttachmentState>> {
    let mut select = conn.prepare_cached("SELECT bytes, released FROM attachments WHERE owner = ?1 AND path = ?2")?;
    let state = |row: &Row<'_>| {
        Ok(match get_opt_u64(row, 0)? {
            Some(bytes) => AttachmentState::Committed(bytes),
            None if row.get(1)? => AttachmentState::Unreferenced,
            None => AttachmentState::Reserved,
        })
    };
    select.query_row((owner.as_str(), path), state).optional()
}

/// The columns that [`attachment_row`] reads.
const SELECT: &str = "SELECT path, name, content_type, bytes, created_at, hash FROM attachments";

fn find_attachment(conn: &Connection, owner: &UserId, path: &str) -> rusqlite::Result<Option<AttachmentRow>> {
    let sql = format!("{SELECT} WHERE owner = ?1 AND path = ?2 AND bytes IS NOT NULL");
    conn.prepare_cached(&sql)?.query_row((owner.as_str(), path), attachment_row).optional()
}

pub(super) fn find_blob(conn: &Connection, owner: &UserId, hash: &str) -> rusqlite::Result<Option<AttachmentRow>> {
    let sql = format!("{SELECT} WHERE owner = ?1 AND hash = ?2 AND bytes IS NOT NULL");
    conn.prepare_cached(&sql)?.query_row((owner.as_str(), hash), attachment_row).optional()
}

pub(crate) fn attachment_row(row: &Row<'_>) -> rusqlite::Result<AttachmentRow> {
    Ok(AttachmentRow {
        path: get_text(row, 0)?,
        name: get_text(row, 1)?,
        content_type: get_text(row, 2)?,
        size_bytes: get_u64(row, 3)?,
        created_at: get_u64(row, 4)?,
        hash: row.get(5)?,
    })
}
