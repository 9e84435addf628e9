//! Threads.

use super::connection::{OpenTransaction, Params, column, limit_param, u64_column};
use super::{PostgresStore, aliases, attachment_rows};
use async_trait::async_trait;
use model::id::UNLISTED_THREAD_PREFIX;
use model::ports::{
    AliasKind, AliasRow, AliasUpdate, ConversationData, ListPage, StoreError, StoreResult, ThreadRow, ThreadWriter,
    Threads,
};
use model::{ThreadId, UserId};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

pub(super) const LOG_BYTES: &str = "SELECT coalesce(sum(log_bytes), 0)::bigint FROM headwater.threads WHERE owner = $1";

/// Deletes the rows that belong to a thread by its number, and the thread. Returns whether the archive has objects of it,
/// which are noted for deletion.
const DELETE_ROWS: &str = "
    WITH segments AS (DELETE FROM headwater.segments WHERE thread = $1 RETURNING object),
         noted AS (INSERT INTO headwater.archive_objects (name, due_at, is_upload)
                   SELECT object, clock_timestamp(), false FROM segments RETURNING 1),
         records AS (DELETE FROM headwater.records WHERE thread = $1),
         runs AS (DELETE FROM headwater.runs WHERE thread = $1),
         inbox AS (DELETE FROM headwater.inbox WHERE thread = $1),
         checkpoints AS (DELETE FROM headwater.checkpoints WHERE thread = $1),
         checkpoint_runs AS (DELETE FROM headwater.checkpoint_runs WHERE thread = $1),
         idempotency AS (DELETE FROM headwater.idempotency WHERE thread = $1),
         approvals AS (DELETE FROM headwater.approvals WHERE thread = $1),
         recovery_attempts AS (DELETE FROM headwater.recovery_attempts WHERE thread = $1),
         client_results AS (DELETE FROM headwater.client_results WHERE thread = $1),
         shares AS (DELETE FROM headwater.shares WHERE thread = $1)
    DELETE FROM headwater.threads WHERE num = $1
    RETURNING EXISTS (SELECT 1 FROM noted) OR EXISTS
        (SELECT 1 FROM headwater.archive_objects WHERE name >= $1 || '/' AND name < $1 || '0')";

/// A thread that is deleted when the transaction is committed.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeletedThread {
    pub(super) num: i64,
    /// Whether the archive has objects of it.
    pub(super) has_objects: bool,
}

#[async_trait]
impl Threads for PostgresStore {
    async fn threads(&self, owner: &UserId, page: ListPage) -> StoreResult<Vec<ThreadRow>> {
        let sql = "SELECT id, created_at, updated_at FROM headwater.threads
                   WHERE owner = $1 AND id < $2 ORDER BY id DESC LIMIT $3";
        let before = page.before.as_deref().unwrap_or(UNLISTED_THREAD_PREFIX).min(UNLISTED_THREAD_PREFIX);
        let params: Params<'_> =
            &[(&owner.as_str(), Type::TEXT), (&before, Type::TEXT), (&limit_param(page.limit), Type::INT8)];
        self.pool.query(sql, params).await?.iter().map(thread_row).collect()
    }

    async fn thread(&self, owner: &UserId, thread: &ThreadId) -> StoreResult<Option<ThreadRow>> {
        let sql = "SELECT id, created_at, updated_at FROM headwater.threads WHERE id = $1 AND owner = $2";
        let row = self.pool.query_opt(sql, &[(&thread.as_str(), Type::TEXT), (&owner.as_str(), Type::TEXT)]).await?;
        row.as_ref().map(thread_row).transpose()
    }

    async fn alias(&self, owner: &UserId, kind: AliasKind, name: &str) -> StoreResult<Option<AliasRow>> {
        let (owner, kind_name, name_bytes) = (owner.as_str(), kind.as_str(), name.as_bytes());
        let key = aliases::key_params(&owner, &kind_name, &name_bytes);
        let row = self.pool.query_opt(aliases::SELECT, &key).await?;
        row.map(|row| aliases::alias_row(&row, kind, name)).transpose()
    }

    async fn log_bytes_used(&self, owner: &UserId) -> StoreResult<u64> {
        let row = self.pool.query_opt(LOG_BYTES, &[(&owner.as_str(), Type::TEXT)]).await?;
        row.map_or(Ok(0), |row| u64_column(&row, 0))
    }
}

#[async_trait]
impl ThreadWriter for PostgresStore {
    async fn delete_thread(&self, owner: &UserId, thread: &ThreadId) -> StoreResult<bool> {
        let tx = OpenTransaction::begin_long(&self.pool).await?;
        let deleted = delete_thread(&tx, owner, thread).await?;
        tx.commit().await?;
        self.delete_archived(deleted).await;
        Ok(deleted.is_some())
    }

    async fn create_alias(&self, owner: &UserId, row: AliasRow) -> StoreResult<AliasRow> {
        self.check_space()?;
        aliases::insert_alias(&self.pool, owner, row).await
    }

    async fn update_conversation(
        &self,
        owner: &UserId,
        current: &AliasRow,
        data: ConversationData,
    ) -> StoreResult<AliasUpdate> {
        self.check_space()?;
        let tx = OpenTransaction::begin(&self.pool).await?;
        let update = aliases::update_conversation(&tx, owner, current, &data).await?;
        tx.commit().await?;
        Ok(update)
    }

    async fn delete_alias(&self, owner: &UserId, kind: AliasKind, name: &str) -> StoreResult<bool> {
        let sql = "DELETE FROM headwater.aliases WHERE owner = $1 AND kind = $2 AND name = $3";
        let (owner, kind, name) = (owner.as_str(), kind.as_str(), name.as_bytes());
        Ok(self.pool.execute(sql, &aliases::key_params(&owner, &kind, &name)).await? > 0)
    }
}

impl PostgresStore {
    /// Deletes the archived records of a thread whose deletion is committed. What fails now is tried again by the sweep.
    pub(super) async fn delete_archived(&self, deleted: Option<DeletedThread>) {
        if let (Some(archiver), Some(DeletedThread { num, has_objects: true })) = (&self.archiver, deleted) {
            archiver.delete_thread_objects(&self.pool, num).await;
        }
    }

    /// Fails while new data is refused.
    pub(super) fn check_space(&self) -> StoreResult<()> {
        if self.space.is_full() { Err(StoreError::NoSpace) } else { Ok(()) }
    }
}

/// Deletes a thread with all its rows. Links may exist even if the thread does not.
pub(super) async fn delete_thread(
    tx: &OpenTransaction<'_>,
    owner: &UserId,
    thread: &ThreadId,
) -> StoreResult<Option<DeletedThread>> {
    attachment_rows::unlink_thread(tx, owner, thread).await?;
    let key: Params<'_> = &[(&thread.as_str(), Type::TEXT), (&owner.as_str(), Type::TEXT)];
    let sql = "SELECT num FROM headwater.threads WHERE id = $1 AND owner = $2 FOR UPDATE";
    let Some(row) = tx.query_opt(sql, key).await? else { return Ok(None) };
    let num: i64 = column(&row, 0)?;
    let has_objects = column(&tx.query_one(DELETE_ROWS, &[(&num, Type::INT8)]).await?, 0)?;
    tx.execute("DELETE FROM headwater.aliases WHERE thread = $1 AND owner = $2", key).await?;
    Ok(Some(DeletedThread { num, has_objects }))
}

fn thread_row(row: &Row) -> StoreResult<ThreadRow> {
    Ok(ThreadRow {
        id: ThreadId::from(column::<&str>(row, 0)?),
        created_at: u64_column(row, 1)?,
        updated_at: u64_column(row, 2)?,
    })
}
