//! What threads use of files, and what is released when they are gone.
//!
//! A use names its thread by its own name, for the thread may come later. Of a file that is released only its place is
//! left, until somebody has removed the bytes and forgets it.

use super::attachments::{find_attachment, find_blob, owner_and_path, set_stored_bytes, stored_bytes};
use super::directory::{get_text, get_u64};
use super::transaction::WriteTransaction;
use crate::validation;
use model::ports::{AttachmentOutcome, AttachmentRow, StoreError};
use model::{ThreadId, UserId};
use rusqlite::{Connection, OptionalExtension};

/// Which thread is to use what.
#[derive(Clone, Debug)]
pub(crate) struct AttachmentLink {
    /// Whose.
    pub(crate) owner: UserId,
    /// Which thread.
    pub(crate) thread: ThreadId,
    /// What.
    pub(crate) key: AttachmentKey,
}

/// How a file is named: by where it is, or by what it is.
#[derive(Clone, Debug)]
pub(crate) enum AttachmentKey {
    /// Its path.
    Path(String),
    /// A blob's hash.
    Hash(String),
}

impl WriteTransaction<'_> {
    /// Says that a thread uses a file that is there.
    pub(crate) fn link_attachment(
        &mut self,
        wanted: &AttachmentLink,
    ) -> rusqlite::Result<Result<Option<AttachmentRow>, StoreError>> {
        let AttachmentLink { owner, thread, key: file } = wanted;
        let found = match file {
            AttachmentKey::Path(path) => find_attachment(self.conn, owner, path)?,
            AttachmentKey::Hash(hash) => find_blob(self.conn, owner, hash)?,
        };
        if let Some(row) = &found {
            self.insert_link(owner, thread, &row.path)?;
        }
        Ok(Ok(found))
    }

    /// Says that a blob is there and that a thread uses it, unless it is too much.
    pub(crate) fn commit_blob(
        &mut self,
        (owner, thread, row): &(UserId, ThreadId, AttachmentRow),
        bytes_max: Option<u64>,
    ) -> rusqlite::Result<Result<AttachmentOutcome, StoreError>> {
        let Some(hash) = &row.hash else {
            return Ok(Err(validation::blob_without_hash_error(&row.path)));
        };
        if let Some(known) = find_blob(self.conn, owner, hash)? {
            self.insert_link(owner, thread, &known.path)?;
            return Ok(Ok(if known.path == row.path {
                AttachmentOutcome::Stored
            } else {
                AttachmentOutcome::Duplicate(known)
            }));
        }
        if find_attachment(self.conn, owner, &row.path)?.is_some() {
            return Ok(Err(validation::path_taken_error(&row.path)));
        }
        let kept = self.insert_attachment(owner, row, bytes_max)?;
        if kept == Ok(AttachmentOutcome::Stored) {
            self.insert_link(owner, thread, &row.path)?;
        }
        Ok(kept)
    }

    /// The thread uses nothing any more, and what nobody else uses is released.
    pub(crate) fn unlink_thread(&mut self, owner: &UserId, thread: &ThreadId) -> rusqlite::Result<()> {
        let sql = "DELETE FROM attachment_uses WHERE owner = ?1 AND thread = ?2 RETURNING path";
        let mut used = self.conn.prepare_cached(sql)?;
        let paths: Vec<String> = used
            .query_map((owner.as_str(), thread.as_str()), |row| get_text(row, 0))?
            .collect::<rusqlite::Result<_>>()?;
        for path in paths {
            self.has_deleted_content |= release_if_unlinked(self.conn, owner, &path)?;
        }
        Ok(())
    }

    fn insert_link(&self, owner: &UserId, thread: &ThreadId, path: &str) -> rusqlite::Result<()> {
        let mut note = self.conn.prepare_cached("INSERT OR IGNORE INTO attachment_uses VALUES (?1, ?2, ?3)")?;
        note.execute((owner.as_str(), thread.as_str(), path)).map(drop)
    }
}

/// Releases a file that is there, unless a thread uses it; false when one does.
fn release_if_unlinked(conn: &Connection, owner: &UserId, path: &str) -> rusqlite::Result<bool> {
    let sql = "SELECT bytes FROM attachments WHERE owner = ?1 AND path = ?2 AND bytes IS NOT NULL AND NOT EXISTS
               (SELECT 1 FROM attachment_uses WHERE owner = ?1 AND path = ?2)";
    let at = (owner.as_str(), path);
    let Some(bytes) = conn.prepare_cached(sql)?.query_row(at, |row| get_u64(row, 0)).optional()? else {
        return Ok(false);
    };
    let sql = "UPDATE attachments SET released = 1, name = '', content_type = '', bytes = NULL, hash = NULL
               WHERE owner = ?1 AND path = ?2";
    conn.prepare_cached(sql)?.execute(at)?;
    set_stored_bytes(conn, owner, stored_bytes(conn, owner)?.saturating_sub(bytes))?;
    Ok(true)
}

/// Nobody is there who could still make a thread that is not: such threads use nothing any more, and blobs that nobody
/// uses then are released.
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
