//! The rows of files. One without a number of bytes is only expected, or was released (see `uses`).

use super::SqliteStore;
use super::attachment_links::{AttachmentKey, AttachmentLink};
use super::directory::{get_opt_u64, get_text, get_u64};
use super::transaction::WriteTransaction;
use super::write_op::WriteOp;
use crate::validation;
use model::ports::{AttachmentOutcome, AttachmentRow, Attachments, BoxFuture, StoreError};
use model::seq::Millis;
use model::{ThreadId, UserId};
use rusqlite::{Connection, OptionalExtension, Row};

impl Attachments for SqliteStore {
    fn reserve_attachment<'a>(
        &'a self,
        owner: &'a UserId,
        path: &'a str,
        at: Millis,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let place = Box::new((owner.clone(), path.to_owned()));
        Box::pin(self.call_writer(move |reply| WriteOp::ReserveAttachment { key: place, at, reply }))
    }

    fn commit_attachment<'a>(
        &'a self,
        owner: &'a UserId,
        row: AttachmentRow,
        bytes_max: Option<u64>,
    ) -> BoxFuture<'a, Result<AttachmentOutcome, StoreError>> {
        let file = Box::new((owner.clone(), row));
        Box::pin(self.call_writer(move |reply| WriteOp::CommitAttachment { file, bytes_max, reply }))
    }

    fn attachment<'a>(
        &'a self,
        owner: &'a UserId,
        path: &'a str,
    ) -> BoxFuture<'a, Result<Option<AttachmentRow>, StoreError>> {
        let (owner, path) = (owner.clone(), path.to_owned());
        Box::pin(self.readers.query(move |conn| find_attachment(conn, &owner, &path)))
    }

    fn attachment_bytes_used<'a>(&'a self, owner: &'a UserId) -> BoxFuture<'a, Result<u64, StoreError>> {
        let owner = owner.clone();
        Box::pin(self.readers.query(move |conn| stored_bytes(conn, &owner)))
    }

    fn delete_attachment<'a>(&'a self, owner: &'a UserId, path: &'a str) -> BoxFuture<'a, Result<bool, StoreError>> {
        let place = Box::new((owner.clone(), path.to_owned()));
        Box::pin(self.call_writer(move |reply| WriteOp::DeleteAttachment { key: place, reply }))
    }

    fn link_attachment<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
        path: &'a str,
    ) -> BoxFuture<'a, Result<Option<AttachmentRow>, StoreError>> {
        let file = AttachmentKey::Path(path.to_owned());
        let wanted = Box::new(AttachmentLink { owner: owner.clone(), thread: thread.clone(), key: file });
        Box::pin(self.call_writer(move |reply| WriteOp::LinkAttachment { link: wanted, reply }))
    }

    fn commit_blob<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
        row: AttachmentRow,
        bytes_max: Option<u64>,
    ) -> BoxFuture<'a, Result<AttachmentOutcome, StoreError>> {
        let blob = Box::new((owner.clone(), thread.clone(), row));
        Box::pin(self.call_writer(move |reply| WriteOp::CommitBlob { blob, bytes_max, reply }))
    }

    fn link_blob<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
        hash: &'a str,
    ) -> BoxFuture<'a, Result<Option<AttachmentRow>, StoreError>> {
        let file = AttachmentKey::Hash(hash.to_owned());
        let wanted = Box::new(AttachmentLink { owner: owner.clone(), thread: thread.clone(), key: file });
        Box::pin(self.call_writer(move |reply| WriteOp::LinkAttachment { link: wanted, reply }))
    }

    fn blob<'a>(
        &'a self,
        owner: &'a UserId,
        thread: Option<&'a ThreadId>,
        hash: &'a str,
    ) -> BoxFuture<'a, Result<Option<AttachmentRow>, StoreError>> {
        let (owner, thread, hash) = (owner.clone(), thread.cloned(), hash.to_owned());
        Box::pin(self.readers.query(move |conn| match thread {
            None => find_blob(conn, &owner, &hash),
            Some(thread) => {
                let sql = format!(
                    "{SELECT} WHERE owner = ?1 AND hash = ?2 AND bytes IS NOT NULL AND EXISTS
                     (SELECT 1 FROM attachment_uses u WHERE u.owner = ?1 AND u.thread = ?3 AND u.path = attachments.path)"
                );
                let wanted = (owner.as_str(), hash, thread.as_str());
                conn.prepare_cached(&sql)?.query_row(wanted, attachment_row).optional()
            }
        }))
    }

    fn unreferenced_attachments(&self) -> BoxFuture<'_, Result<Vec<(UserId, String)>, StoreError>> {
        let sql = "SELECT owner, path FROM attachments WHERE released = 1 ORDER BY owner, path";
        Box::pin(self.readers.query(move |conn| conn.prepare_cached(sql)?.query_map((), owner_and_path)?.collect()))
    }

    fn stale_attachments(&self) -> BoxFuture<'_, Result<Vec<(UserId, String)>, StoreError>> {
        let sql = "SELECT owner, path FROM attachments WHERE bytes IS NULL ORDER BY owner, path";
        Box::pin(self.readers.query(move |conn| conn.prepare_cached(sql)?.query_map((), owner_and_path)?.collect()))
    }
}

impl WriteTransaction<'_> {
    /// Expects a file, unless it is expected or there.
    pub(crate) fn reserve_attachment(
        &mut self,
        (owner, path): &(UserId, String),
        at: Millis,
    ) -> rusqlite::Result<Result<(), StoreError>> {
        let sql = "INSERT OR IGNORE INTO attachments VALUES (?1, ?2, '', '', NULL, ?3, NULL, 0)";
        self.conn.prepare_cached(sql)?.execute((owner.as_str(), path, at.cast_signed()))?;
        Ok(Ok(()))
    }

    /// Says that a file is there, unless it is too much.
    pub(crate) fn commit_attachment(
        &mut self,
        (owner, row): &(UserId, AttachmentRow),
        bytes_max: Option<u64>,
    ) -> rusqlite::Result<Result<AttachmentOutcome, StoreError>> {
        if row.hash.is_some() {
            return Ok(Err(validation::blob_without_thread_error(&row.path)));
        }
        self.insert_attachment(owner, row, bytes_max)
    }

    /// The same for a file of any kind.
    pub(super) fn insert_attachment(
        &mut self,
        owner: &UserId,
        row: &AttachmentRow,
        bytes_max: Option<u64>,
    ) -> rusqlite::Result<Result<AttachmentOutcome, StoreError>> {
        match attachment_state(self.conn, owner, &row.path)? {
            Some(AttachmentState::Committed(_)) => return Ok(Ok(AttachmentOutcome::Stored)),
            // Whoever removes its bytes would remove the new ones.
            Some(AttachmentState::Unreferenced) => return Ok(Err(validation::path_taken_error(&row.path))),
            Some(AttachmentState::Reserved) | None => {}
        }
        let used = stored_bytes(self.conn, owner)?;
        let sum = used.saturating_add(row.size_bytes);
        if bytes_max.is_some_and(|most| sum > most) {
            return Ok(Ok(AttachmentOutcome::QuotaExceeded { used }));
        }
        let sql = "INSERT OR REPLACE INTO attachments VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0)";
        let mut put = self.conn.prepare_cached(sql)?;
        let (bytes, at) = (row.size_bytes.cast_signed(), row.created_at.cast_signed());
        put.execute((owner.as_str(), &row.path, &row.name, &row.content_type, bytes, at, &row.hash))?;
        set_stored_bytes(self.conn, owner, sum)?;
        Ok(Ok(AttachmentOutcome::Stored))
    }

    /// Forgets a file. Nobody uses it any more.
    pub(crate) fn delete_attachment(
        &mut self,
        (owner, path): &(UserId, String),
    ) -> rusqlite::Result<Result<bool, StoreError>> {
        let Some(state) = attachment_state(self.conn, owner, path)? else { return Ok(Ok(false)) };
        for table in ["attachments", "attachment_uses"] {
            let sql = format!("DELETE FROM {table} WHERE owner = ?1 AND path = ?2");
            self.conn.prepare_cached(&sql)?.execute((owner.as_str(), path))?;
        }
        if let AttachmentState::Committed(bytes) = state {
            set_stored_bytes(self.conn, owner, stored_bytes(self.conn, owner)?.saturating_sub(bytes))?;
            self.has_deleted_content = true;
        }
        Ok(Ok(true))
    }
}

/// What is known of a path.
enum AttachmentState {
    Reserved,
    /// With so many bytes.
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

/// What [`file_row`] reads.
const SELECT: &str = "SELECT path, name, content_type, bytes, created_at, hash FROM attachments";

/// A file that is there.
pub(super) fn find_attachment(
    conn: &Connection,
    owner: &UserId,
    path: &str,
) -> rusqlite::Result<Option<AttachmentRow>> {
    let sql = format!("{SELECT} WHERE owner = ?1 AND path = ?2 AND bytes IS NOT NULL");
    conn.prepare_cached(&sql)?.query_row((owner.as_str(), path), attachment_row).optional()
}

/// A blob that is there.
pub(super) fn find_blob(conn: &Connection, owner: &UserId, hash: &str) -> rusqlite::Result<Option<AttachmentRow>> {
    let sql = format!("{SELECT} WHERE owner = ?1 AND hash = ?2 AND bytes IS NOT NULL");
    conn.prepare_cached(&sql)?.query_row((owner.as_str(), hash), attachment_row).optional()
}

/// What a user's files hold together.
pub(super) fn stored_bytes(conn: &Connection, owner: &UserId) -> rusqlite::Result<u64> {
    let mut select = conn.prepare_cached("SELECT bytes FROM attachment_sums WHERE owner = ?1")?;
    Ok(select.query_row([owner.as_str()], |row| get_u64(row, 0)).optional()?.unwrap_or_default())
}

pub(super) fn set_stored_bytes(conn: &Connection, owner: &UserId, bytes: u64) -> rusqlite::Result<()> {
    let mut put = conn.prepare_cached("INSERT OR REPLACE INTO attachment_sums VALUES (?1, ?2)")?;
    put.execute((owner.as_str(), bytes.cast_signed())).map(drop)
}

/// A row that begins with owner and path.
pub(crate) fn owner_and_path(row: &Row<'_>) -> rusqlite::Result<(UserId, String)> {
    Ok((UserId::from(get_text(row, 0)?), get_text(row, 1)?))
}

/// A row that begins with path, name, type, bytes, time and hash.
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
