//! What is old enough to be deleted.

use crate::{AttachmentEntry, MemoryStore, MemoryTables, MemoryThread};
use async_trait::async_trait;
use model::ports::{Retention, RetentionWriter, StoreResult};
use model::seq::Millis;
use model::{ThreadId, UserId};

#[async_trait]
impl Retention for MemoryStore {
    async fn idle_threads(
        &self,
        since: Millis,
        after: Option<&ThreadId>,
        limit: usize,
    ) -> StoreResult<Vec<(UserId, ThreadId)>> {
        let tables = self.lock_tables();
        let later = tables.threads.iter().filter(|(id, _)| after.is_none_or(|after| *id > after));
        let idle = later.filter(|(_, thread)| thread.is_idle(since));
        Ok(idle.take(limit).map(|(id, thread)| (thread.owner.clone(), id.clone())).collect())
    }

    async fn unused_files(
        &self,
        since: Millis,
        after: Option<&(UserId, String)>,
        limit: usize,
    ) -> StoreResult<Vec<(UserId, String)>> {
        let tables = self.lock_tables();
        let later = tables.attachments.keys().filter(|key| after.is_none_or(|after| *key > after));
        let unused = later.filter(|(owner, path)| tables.is_unused(owner, path, since));
        Ok(unused.take(limit).cloned().collect())
    }

    async fn retention_time(&self) -> StoreResult<Option<Millis>> {
        Ok(self.lock_tables().retention_time)
    }

    async fn newest_activity(&self) -> StoreResult<Option<Millis>> {
        Ok(self.lock_tables().threads.values().map(|thread| thread.updated_at).max())
    }
}

#[async_trait]
impl RetentionWriter for MemoryStore {
    async fn delete_idle_thread(&self, owner: &UserId, thread: &ThreadId, since: Millis) -> StoreResult<bool> {
        let mut tables = self.lock_tables();
        let is_idle = tables.thread(owner, thread).is_some_and(|found| found.is_idle(since));
        Ok(is_idle && tables.delete_thread(owner, thread))
    }

    async fn release_unused_file(&self, owner: &UserId, path: &str, since: Millis) -> StoreResult<bool> {
        let mut tables = self.lock_tables();
        let is_unused = tables.is_unused(owner, path, since);
        if is_unused {
            tables.attachments.insert((owner.clone(), path.to_owned()), AttachmentEntry::Unreferenced);
        }
        Ok(is_unused)
    }

    async fn set_retention_time(&self, at: Millis) -> StoreResult<()> {
        self.lock_tables().retention_time = Some(at);
        Ok(())
    }
}

impl MemoryTables {
    fn is_unused(&self, owner: &UserId, path: &str, since: Millis) -> bool {
        let found = self.find_attachment(owner, path);
        found.is_some_and(|file| file.created_at < since && file.hash.is_none())
            && !self.attachment_links.iter().any(|(of, _, used)| of == owner && used == path)
    }
}

impl MemoryThread {
    fn is_idle(&self, since: Millis) -> bool {
        self.updated_at < since && self.inbox.is_empty() && self.runs.iter().all(|run| run.status.is_terminal())
    }
}
