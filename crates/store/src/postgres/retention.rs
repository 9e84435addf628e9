//! What is old enough to be deleted.

use super::PostgresStore;
use super::attachment_rows::{self, owner_and_path};
use super::connection::{OpenTransaction, Params, column, limit_param, opt_u64_column};
use super::threads::delete_thread;
use async_trait::async_trait;
use model::ports::{Retention, RetentionWriter, StoreError, StoreResult};
use model::seq::Millis;
use model::{ThreadId, UserId};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

const RETENTION_TIME: &str = "retention_time";
/// A condition on `threads t`; the parameter is the time.
const IDLE: &str = "t.updated_at < $1
    AND NOT EXISTS (SELECT 1 FROM headwater.runs r WHERE r.thread = t.num AND r.ended_at IS NULL)
    AND NOT EXISTS (SELECT 1 FROM headwater.inbox i WHERE i.thread = t.num)";

#[async_trait]
impl Retention for PostgresStore {
    async fn idle_threads(
        &self,
        since: Millis,
        after: Option<&ThreadId>,
        limit: usize,
    ) -> StoreResult<Vec<(UserId, ThreadId)>> {
        let after = after.map(ThreadId::as_str).unwrap_or_default();
        let sql =
            format!("SELECT t.owner, t.id FROM headwater.threads t WHERE {IDLE} AND t.id > $2 ORDER BY t.id LIMIT $3");
        let params: Params<'_> =
            &[(&since.cast_signed(), Type::INT8), (&after, Type::TEXT), (&limit_param(limit), Type::INT8)];
        let pair = |row: &Row| Ok((UserId::from(column::<&str>(row, 0)?), ThreadId::from(column::<&str>(row, 1)?)));
        self.pool.query(&sql, params).await?.iter().map(pair).collect()
    }

    async fn unused_files(
        &self,
        since: Millis,
        after: Option<&(UserId, String)>,
        limit: usize,
    ) -> StoreResult<Vec<(UserId, String)>> {
        let (owner, path) = after.map_or(("", ""), |(owner, path)| (owner.as_str(), path.as_str()));
        let sql = "SELECT owner, path FROM headwater.attachments a
                   WHERE created_at < $1 AND bytes IS NOT NULL AND hash IS NULL AND NOT EXISTS
                   (SELECT 1 FROM headwater.attachment_links l WHERE l.owner = a.owner AND l.path = a.path)
                   AND (owner, path) > ($2, $3) ORDER BY owner, path LIMIT $4";
        let params: Params<'_> = &[
            (&since.cast_signed(), Type::INT8),
            (&owner, Type::TEXT),
            (&path, Type::TEXT),
            (&limit_param(limit), Type::INT8),
        ];
        self.pool.query(sql, params).await?.iter().map(owner_and_path).collect()
    }

    async fn retention_time(&self) -> StoreResult<Option<Millis>> {
        let sql = "SELECT value FROM headwater.meta WHERE name = $1";
        let row = self.pool.query_opt(sql, &[(&RETENTION_TIME, Type::TEXT)]).await?;
        let parse = |row: Row| {
            let damaged = |_| StoreError::Unavailable("the retention time is damaged".to_owned());
            column::<&str>(&row, 0)?.parse().map_err(damaged)
        };
        row.map(parse).transpose()
    }

    async fn newest_activity(&self) -> StoreResult<Option<Millis>> {
        let row = self.pool.query_opt("SELECT max(updated_at) FROM headwater.threads", &[]).await?;
        row.map_or(Ok(None), |row| opt_u64_column(&row, 0))
    }
}

#[async_trait]
impl RetentionWriter for PostgresStore {
    async fn delete_idle_thread(&self, owner: &UserId, thread: &ThreadId, since: Millis) -> StoreResult<bool> {
        let tx = OpenTransaction::begin_long(&self.pool).await?;
        // In the order in which every deletion takes its locks.
        attachment_rows::lock_owner(&tx, owner).await?;
        let lock = "SELECT 1 FROM headwater.threads WHERE id = $1 AND owner = $2 FOR UPDATE";
        tx.query_opt(lock, &[(&thread.as_str(), Type::TEXT), (&owner.as_str(), Type::TEXT)]).await?;
        let sql = format!("SELECT 1 FROM headwater.threads t WHERE {IDLE} AND t.id = $2 AND t.owner = $3");
        let params: Params<'_> =
            &[(&since.cast_signed(), Type::INT8), (&thread.as_str(), Type::TEXT), (&owner.as_str(), Type::TEXT)];
        let is_idle = tx.query_opt(&sql, params).await?.is_some();
        let deleted = if is_idle { delete_thread(&tx, owner, thread).await? } else { None };
        tx.commit().await?;
        self.delete_archived(deleted).await;
        Ok(deleted.is_some())
    }

    async fn release_unused_file(&self, owner: &UserId, path: &str, since: Millis) -> StoreResult<bool> {
        let tx = OpenTransaction::begin(&self.pool).await?;
        attachment_rows::lock_owner(&tx, owner).await?;
        let sql = "SELECT 1 FROM headwater.attachments
                   WHERE owner = $1 AND path = $2 AND created_at < $3 AND hash IS NULL";
        let params: Params<'_> =
            &[(&owner.as_str(), Type::TEXT), (&path, Type::TEXT), (&since.cast_signed(), Type::INT8)];
        let is_old = tx.query_opt(sql, params).await?.is_some();
        let is_released = is_old && attachment_rows::release_if_unlinked(&tx, owner, path).await?;
        tx.commit().await?;
        Ok(is_released)
    }

    async fn set_retention_time(&self, at: Millis) -> StoreResult<()> {
        let sql = "INSERT INTO headwater.meta VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value";
        self.pool.execute(sql, &[(&RETENTION_TIME, Type::TEXT), (&at.to_string(), Type::TEXT)]).await.map(drop)
    }
}
