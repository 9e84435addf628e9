//! Files.

use super::PostgresStore;
use super::attachment_rows::{self, SELECT, attachment_row, find_attachment, find_blob, insert_link, owner_and_path};
use super::connection::{OpenTransaction, Params, u64_column};
use async_trait::async_trait;
use model::ports::validation;
use model::ports::{AttachmentOutcome, AttachmentRow, AttachmentWriter, Attachments, StoreResult};
use model::seq::Millis;
use model::{ThreadId, UserId};
use tokio_postgres::types::Type;

#[async_trait]
impl Attachments for PostgresStore {
    async fn attachment(&self, owner: &UserId, path: &str) -> StoreResult<Option<AttachmentRow>> {
        let sql = format!("{SELECT} WHERE a.owner = $1 AND a.path = $2 AND a.bytes IS NOT NULL");
        let row = self.pool.query_opt(&sql, &[(&owner.as_str(), Type::TEXT), (&path, Type::TEXT)]).await?;
        row.as_ref().map(attachment_row).transpose()
    }

    async fn attachment_bytes_used(&self, owner: &UserId) -> StoreResult<u64> {
        let sql = "SELECT bytes FROM headwater.attachment_sums WHERE owner = $1";
        let row = self.pool.query_opt(sql, &[(&owner.as_str(), Type::TEXT)]).await?;
        row.map_or(Ok(0), |row| u64_column(&row, 0))
    }

    async fn blob(&self, owner: &UserId, thread: Option<&ThreadId>, hash: &str) -> StoreResult<Option<AttachmentRow>> {
        let thread = thread.map(ThreadId::as_str);
        let sql = format!(
            "{SELECT} WHERE a.owner = $1 AND a.hash = $2 AND a.bytes IS NOT NULL AND ($3::text IS NULL OR EXISTS
             (SELECT 1 FROM headwater.attachment_links l WHERE l.owner = $1 AND l.thread = $3 AND l.path = a.path))"
        );
        let params: Params<'_> = &[(&owner.as_str(), Type::TEXT), (&hash, Type::TEXT), (&thread, Type::TEXT)];
        self.pool.query_opt(&sql, params).await?.as_ref().map(attachment_row).transpose()
    }

    async fn unreferenced_attachments(&self) -> StoreResult<Vec<(UserId, String)>> {
        let sql = "SELECT owner, path FROM headwater.attachments WHERE released ORDER BY owner, path";
        self.pool.query(sql, &[]).await?.iter().map(owner_and_path).collect()
    }

    async fn stale_attachments(&self) -> StoreResult<Vec<(UserId, String)>> {
        // What was reserved a short time ago may be on its way to another node.
        let sql = "SELECT owner, path FROM headwater.attachments WHERE bytes IS NULL AND (released OR created_at <
                   (extract(epoch FROM clock_timestamp() - interval '1 hour') * 1000)::bigint) ORDER BY owner, path";
        self.pool.query(sql, &[]).await?.iter().map(owner_and_path).collect()
    }
}

#[async_trait]
impl AttachmentWriter for PostgresStore {
    async fn reserve_attachment(&self, owner: &UserId, path: &str, at: Millis) -> StoreResult<()> {
        self.check_space()?;
        let sql = "INSERT INTO headwater.attachments VALUES ($1, $2, '', '', NULL, $3, NULL, false)
                   ON CONFLICT DO NOTHING";
        let params: Params<'_> = &[(&owner.as_str(), Type::TEXT), (&path, Type::TEXT), (&at.cast_signed(), Type::INT8)];
        self.pool.execute(sql, params).await.map(drop)
    }

    async fn commit_attachment(
        &self,
        owner: &UserId,
        row: AttachmentRow,
        bytes_max: Option<u64>,
    ) -> StoreResult<AttachmentOutcome> {
        self.check_space()?;
        if row.hash.is_some() {
            return Err(validation::blob_without_thread_error(&row.path));
        }
        let tx = OpenTransaction::begin(&self.pool).await?;
        let used = attachment_rows::lock_owner(&tx, owner).await?;
        let outcome = attachment_rows::insert_attachment(&tx, owner, &row, used, bytes_max).await?;
        tx.commit().await?;
        Ok(outcome)
    }

    async fn delete_attachment(&self, owner: &UserId, path: &str) -> StoreResult<bool> {
        let tx = OpenTransaction::begin(&self.pool).await?;
        attachment_rows::lock_owner(&tx, owner).await?;
        let is_deleted = attachment_rows::delete_attachment(&tx, owner, path).await?;
        tx.commit().await?;
        Ok(is_deleted)
    }

    async fn link_attachment(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        path: &str,
    ) -> StoreResult<Option<AttachmentRow>> {
        self.check_space()?;
        let tx = OpenTransaction::begin(&self.pool).await?;
        attachment_rows::lock_owner(&tx, owner).await?;
        let found = find_attachment(&tx, owner, path).await?;
        self.link_found(tx, owner, thread, found).await
    }

    async fn commit_blob(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        row: AttachmentRow,
        bytes_max: Option<u64>,
    ) -> StoreResult<AttachmentOutcome> {
        self.check_space()?;
        let Some(hash) = &row.hash else { return Err(validation::blob_without_hash_error(&row.path)) };
        let tx = OpenTransaction::begin(&self.pool).await?;
        let used = attachment_rows::lock_owner(&tx, owner).await?;
        let outcome = match find_blob(&tx, owner, hash).await? {
            Some(known) => {
                insert_link(&tx, owner, thread, &known.path).await?;
                let is_same = known.path == row.path;
                if is_same { AttachmentOutcome::Stored } else { AttachmentOutcome::Duplicate(known) }
            }
            None if find_attachment(&tx, owner, &row.path).await?.is_some() => {
                return Err(validation::path_taken_error(&row.path));
            }
            None => {
                let outcome = attachment_rows::insert_attachment(&tx, owner, &row, used, bytes_max).await?;
                if outcome == AttachmentOutcome::Stored {
                    insert_link(&tx, owner, thread, &row.path).await?;
                }
                outcome
            }
        };
        tx.commit().await?;
        Ok(outcome)
    }

    async fn link_blob(&self, owner: &UserId, thread: &ThreadId, hash: &str) -> StoreResult<Option<AttachmentRow>> {
        self.check_space()?;
        let tx = OpenTransaction::begin(&self.pool).await?;
        attachment_rows::lock_owner(&tx, owner).await?;
        let found = find_blob(&tx, owner, hash).await?;
        self.link_found(tx, owner, thread, found).await
    }
}

impl PostgresStore {
    /// Links a file, if it was found, to a thread.
    async fn link_found(
        &self,
        tx: OpenTransaction<'_>,
        owner: &UserId,
        thread: &ThreadId,
        found: Option<AttachmentRow>,
    ) -> StoreResult<Option<AttachmentRow>> {
        if let Some(row) = &found {
            insert_link(&tx, owner, thread, &row.path).await?;
        }
        tx.commit().await?;
        Ok(found)
    }
}
