//! Shares of threads. A share's owner is its thread's.

use super::directory::{get_opt_u64, get_text, get_u64};
use super::page;
use super::transaction::WriteTransaction;
use model::ports::{ShareRow, StoreError};
use model::seq::{Millis, Seq};
use model::{ThreadId, UserId};
use rusqlite::{Connection, Row};

/// Which share, of which thread, whose.
#[derive(Clone, Debug)]
pub(crate) struct ShareKey {
    /// Whose.
    pub(crate) owner: UserId,
    /// Of which thread.
    pub(crate) thread: ThreadId,
    /// Its name.
    pub(crate) id: String,
}

const SELECT: &str = "SELECT s.id, t.id, t.owner, s.digest, s.until, s.created_at, s.expires_at, s.revoked_at
                      FROM shares s JOIN threads t ON t.num = s.thread";

/// A thread's shares.
pub(crate) fn list_shares(conn: &Connection, owner: &UserId, thread: &ThreadId) -> rusqlite::Result<Vec<ShareRow>> {
    let sql = format!("{SELECT} WHERE t.id = ?1 AND t.owner = ?2 ORDER BY s.created_at, s.id");
    conn.prepare_cached(&sql)?.query_map((thread.as_str(), owner.as_str()), share_row)?.collect()
}

/// Everybody's shares that let somebody in at this moment.
pub(crate) fn list_active_shares(conn: &Connection, at: Millis) -> rusqlite::Result<Vec<ShareRow>> {
    let sql = format!("{SELECT} WHERE s.revoked_at IS NULL AND s.expires_at > ?1 ORDER BY s.created_at, s.id");
    conn.prepare_cached(&sql)?.query_map([at.cast_signed()], share_row)?.collect()
}

impl WriteTransaction<'_> {
    /// Shows a thread to others.
    pub(crate) fn create_share(&mut self, share: &ShareRow) -> rusqlite::Result<Result<(), StoreError>> {
        let found = page::find_thread(self.conn, &share.thread)?.filter(|(_, of)| of == share.owner.as_str());
        let Some((thread, _)) = found else { return Ok(Err(StoreError::ThreadNotFound)) };
        if self.conn.prepare_cached("SELECT 1 FROM shares WHERE id = ?1")?.exists([&share.id])? {
            return Ok(Err(StoreError::Unavailable(format!("there is a share named {} already", share.id))));
        }
        let mut insert = self.conn.prepare_cached("INSERT INTO shares VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?;
        let until = share.until_seq.map(|until| until.0.cast_signed());
        let (from, to) = (share.created_at.cast_signed(), share.expires_at.cast_signed());
        insert.execute((&share.id, thread, &share.digest, until, from, to, share.revoked_at.map(u64::cast_signed)))?;
        Ok(Ok(()))
    }

    /// Takes a share back; the first time counts.
    pub(crate) fn revoke_share(&mut self, which: &ShareKey, at: Millis) -> rusqlite::Result<Result<bool, StoreError>> {
        let sql = "UPDATE shares SET revoked_at = coalesce(revoked_at, ?4)
                   WHERE id = ?1 AND thread = (SELECT num FROM threads WHERE id = ?2 AND owner = ?3)";
        let (thread, owner) = (which.thread.as_str(), which.owner.as_str());
        Ok(Ok(self.conn.prepare_cached(sql)?.execute((&which.id, thread, owner, at.cast_signed()))? > 0))
    }
}

fn share_row(row: &Row<'_>) -> rusqlite::Result<ShareRow> {
    Ok(ShareRow {
        id: get_text(row, 0)?,
        thread: ThreadId::from(get_text(row, 1)?),
        owner: UserId::from(get_text(row, 2)?),
        digest: get_text(row, 3)?,
        until_seq: get_opt_u64(row, 4)?.map(Seq),
        created_at: get_u64(row, 5)?,
        expires_at: get_u64(row, 6)?,
        revoked_at: get_opt_u64(row, 7)?,
    })
}
