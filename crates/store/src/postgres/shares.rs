//! Shares of threads.

use super::PostgresStore;
use super::connection::{OpenTransaction, Params, column, opt_u64_column, u64_column};
use async_trait::async_trait;
use model::ports::validation;
use model::ports::{ShareRow, ShareWriter, StoreError, StoreResult, ThreadShares};
use model::seq::{Millis, Seq};
use model::{ThreadId, UserId};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

const SELECT: &str = "SELECT s.id, t.id, t.owner, s.digest, s.until_seq, s.created_at, s.expires_at, s.revoked_at
     FROM headwater.shares s JOIN headwater.threads t ON t.num = s.thread";

#[async_trait]
impl ThreadShares for PostgresStore {
    async fn shares(&self, owner: &UserId, thread: &ThreadId) -> StoreResult<Vec<ShareRow>> {
        let sql = format!("{SELECT} WHERE t.id = $1 AND t.owner = $2 ORDER BY s.created_at, s.id");
        let rows = self.pool.query(&sql, &[(&thread.as_str(), Type::TEXT), (&owner.as_str(), Type::TEXT)]).await?;
        rows.iter().map(share_row).collect()
    }

    async fn active_shares(&self, at: Millis) -> StoreResult<Vec<ShareRow>> {
        let sql = format!("{SELECT} WHERE s.revoked_at IS NULL AND s.expires_at > $1 ORDER BY s.created_at, s.id");
        self.pool.query(&sql, &[(&at.cast_signed(), Type::INT8)]).await?.iter().map(share_row).collect()
    }
}

#[async_trait]
impl ShareWriter for PostgresStore {
    async fn create_share(&self, share: ShareRow) -> StoreResult<()> {
        self.check_space()?;
        let tx = OpenTransaction::begin(&self.pool).await?;
        // The lock keeps the thread from being deleted meanwhile.
        let sql = "SELECT num FROM headwater.threads WHERE id = $1 AND owner = $2 FOR KEY SHARE";
        let key: Params<'_> = &[(&share.thread.as_str(), Type::TEXT), (&share.owner.as_str(), Type::TEXT)];
        let thread: i64 = column(&tx.query_opt(sql, key).await?.ok_or(StoreError::ThreadNotFound)?, 0)?;
        let sql = "INSERT INTO headwater.shares VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING";
        let params: Params<'_> = &[
            (&share.id, Type::TEXT),
            (&thread, Type::INT8),
            (&share.digest, Type::TEXT),
            (&share.until_seq.map(|until| until.0.cast_signed()), Type::INT8),
            (&share.created_at.cast_signed(), Type::INT8),
            (&share.expires_at.cast_signed(), Type::INT8),
            (&share.revoked_at.map(Millis::cast_signed), Type::INT8),
        ];
        if tx.execute(sql, params).await? == 0 {
            return Err(validation::share_exists_error(&share.id));
        }
        tx.commit().await
    }

    async fn revoke_share(&self, owner: &UserId, thread: &ThreadId, id: &str, at: Millis) -> StoreResult<bool> {
        let sql = "UPDATE headwater.shares SET revoked_at = coalesce(revoked_at, $4)
                   WHERE id = $1 AND thread = (SELECT num FROM headwater.threads WHERE id = $2 AND owner = $3)";
        let params: Params<'_> = &[
            (&id, Type::TEXT),
            (&thread.as_str(), Type::TEXT),
            (&owner.as_str(), Type::TEXT),
            (&at.cast_signed(), Type::INT8),
        ];
        Ok(self.pool.execute(sql, params).await? > 0)
    }
}

fn share_row(row: &Row) -> StoreResult<ShareRow> {
    Ok(ShareRow {
        id: column(row, 0)?,
        thread: ThreadId::from(column::<&str>(row, 1)?),
        owner: UserId::from(column::<&str>(row, 2)?),
        digest: column(row, 3)?,
        until_seq: opt_u64_column(row, 4)?.map(Seq),
        created_at: u64_column(row, 5)?,
        expires_at: u64_column(row, 6)?,
        revoked_at: opt_u64_column(row, 7)?,
    })
}
