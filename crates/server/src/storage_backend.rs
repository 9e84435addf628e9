//! What a server needs of a store, whichever it is.

use async_trait::async_trait;
use model::ports::{Accounts, Directory, DirectoryWriter, Journal, McpPins, StoreResult, UserSecrets};
use store::{ArchiveStats, PostgresStore, SqliteStore, StorageUse, WriterStats};

/// A store with all its ports.
#[async_trait]
pub(crate) trait StorageBackend:
    Journal + Directory + DirectoryWriter + Accounts + UserSecrets + McpPins
{
    /// Counts since the store was opened.
    fn stats(&self) -> WriterStats;

    /// Counts of the archive since the store was opened; `None` without one.
    fn archive_stats(&self) -> Option<ArchiveStats> {
        None
    }

    /// What all users together hold.
    async fn storage_use(&self) -> StoreResult<StorageUse>;

    /// Completes queued writes and releases the folder or the database. Later operations fail.
    async fn close(&self);
}

#[async_trait]
impl StorageBackend for SqliteStore {
    fn stats(&self) -> WriterStats {
        Self::stats(self)
    }

    async fn storage_use(&self) -> StoreResult<StorageUse> {
        Self::storage_use(self).await
    }

    async fn close(&self) {
        Self::close(self).await;
    }
}

#[async_trait]
impl StorageBackend for PostgresStore {
    fn stats(&self) -> WriterStats {
        Self::stats(self)
    }

    fn archive_stats(&self) -> Option<ArchiveStats> {
        Self::archive_stats(self)
    }

    async fn storage_use(&self) -> StoreResult<StorageUse> {
        Self::storage_use(self).await
    }

    async fn close(&self) {
        Self::close(self).await;
    }
}
