//! Shares. The owner of a share is the owner of its thread.

use super::SqliteStore;
use super::columns::{get_opt_u64, get_text, get_u64};
use super::page;
use super::write_task::TaskCost;
use async_trait::async_trait;
use model::ports::validation;
use model::ports::{ShareRow, ShareWriter, StoreError, StoreResult, ThreadShares};
use model::seq::{Millis, Seq};
use model::{ThreadId, UserId};
use rusqlite::{Connection, Row};

const SELECT: &str = "SELECT s.id, t.id, t.owner, s.digest, s.until, s.created_at, s.expires_at, s.revoked_at
                      FROM shares s JOIN threads t ON t.num = s.thread";

#[async_trait]
impl ThreadShares for SqliteStore {
    async fn shares(&self, owner: &UserId, thread: &ThreadId) -> StoreResult<Vec<ShareRow>> {
        let (owner, thread) = (owner.clone(), thread.clone());
        self.query(move |conn| {
            let sql = format!("{SELECT} WHERE t.id = ?1 AND t.owner = ?2 ORDER BY s.created_at, s.id");
            conn.prepare_cached(&sql)?.query_map((thread.as_str(), owner.as_str()), share_row)?.collect()
        })
        .await
    }

    async fn active_shares(&self, at: Millis) -> StoreResult<Vec<ShareRow>> {
        self.query(move |conn| {
            let sql = format!("{SELECT} WHERE s.revoked_at IS NULL AND s.expires_at > ?1 ORDER BY s.created_at, s.id");
            conn.prepare_cached(&sql)?.query_map([at.cast_signed()], share_row)?.collect()
        })
        .await
    }
}

#[async_trait]
impl ShareWriter for SqliteStore {
    async fn create_share(&self, share: ShareRow) -> StoreResult<()> {
        self.call_writer(TaskCost::ROW, move |tx| insert_share(tx.conn, &share)).await
    }

    async fn revoke_share(&self, owner: &UserId, thread: &ThreadId, id: &str, at: Millis) -> StoreResult<bool> {
        let (owner, thread, id) = (owner.clone(), thread.clone(), id.to_owned());
        self.call_writer_for_relief(move |tx| {
            let sql = "UPDATE shares SET revoked_at = coalesce(revoked_at, ?4)
                       WHERE id = ?1 AND thread = (SELECT num FROM threads WHERE id = ?2 AND owner = ?3)";
            let revoked =
                tx.conn.prepare_cached(sql)?.execute((id, thread.as_str(), owner.as_str(), at.cast_signed()))?;
            Ok(Ok(revoked > 0))
        })
        .await
    }
}

fn insert_share(conn: &Connection, share: &ShareRow) -> rusqlite::Result<Result<(), StoreError>> {
    let Some(thread) = page::find_owned_thread(conn, &share.owner, &share.thread)? else {
        return Ok(Err(StoreError::ThreadNotFound));
    };
    if conn.prepare_cached("SELECT 1 FROM shares WHERE id = ?1")?.exists([&share.id])? {
        return Ok(Err(validation::share_exists_error(&share.id)));
    }
    let mut insert = conn.prepare_cached("INSERT INTO shares VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?;
    let until = share.until_seq.map(|until| until.0.cast_signed());
    let (from, to) = (share.created_at.cast_signed(), share.expires_at.cast_signed());
    insert.execute((&share.id, thread, &share.digest, until, from, to, share.revoked_at.map(u64::cast_signed)))?;
    Ok(Ok(()))
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
