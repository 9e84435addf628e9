//! Threads and their aliases.

use crate::{MemoryStore, MemoryTables, MemoryThread};
use async_trait::async_trait;
use model::ports::{
    AliasData, AliasKind, AliasRow, AliasUpdate, ConversationData, ListPage, StoreResult, ThreadRow, ThreadWriter,
    Threads,
};
use model::{ThreadId, UserId};

#[async_trait]
impl Threads for MemoryStore {
    async fn threads(&self, owner: &UserId, page: ListPage) -> StoreResult<Vec<ThreadRow>> {
        let tables = self.lock_tables();
        let mine = tables.threads.iter().rev().filter(|(id, thread)| thread.owner == *owner && !id.is_unlisted());
        let older = mine.filter(|(id, _)| page.before.as_ref().is_none_or(|before| id.as_str() < before.as_str()));
        Ok(older.take(page.limit).map(|(id, thread)| thread.row(id)).collect())
    }

    async fn thread(&self, owner: &UserId, thread: &ThreadId) -> StoreResult<Option<ThreadRow>> {
        Ok(self.lock_tables().thread(owner, thread).map(|found| found.row(thread)))
    }

    async fn alias(&self, owner: &UserId, kind: AliasKind, name: &str) -> StoreResult<Option<AliasRow>> {
        let key = (owner.clone(), kind, name.to_owned());
        Ok(self.lock_tables().aliases.get(&key).cloned())
    }

    async fn log_bytes_used(&self, owner: &UserId) -> StoreResult<u64> {
        Ok(self.lock_tables().log_bytes(owner))
    }
}

#[async_trait]
impl ThreadWriter for MemoryStore {
    async fn delete_thread(&self, owner: &UserId, thread: &ThreadId) -> StoreResult<bool> {
        Ok(self.lock_tables().delete_thread(owner, thread))
    }

    async fn create_alias(&self, owner: &UserId, row: AliasRow) -> StoreResult<AliasRow> {
        self.check_space()?;
        let key = (owner.clone(), row.data.kind(), row.name.clone());
        Ok(self.lock_tables().aliases.entry(key).or_insert(row).clone())
    }

    async fn update_conversation(
        &self,
        owner: &UserId,
        current: &AliasRow,
        data: ConversationData,
    ) -> StoreResult<AliasUpdate> {
        self.check_space()?;
        let mut tables = self.lock_tables();
        let key = (owner.clone(), AliasKind::Conversation, current.name.clone());
        let Some(row) = tables.aliases.get_mut(&key) else { return Ok(AliasUpdate::NotFound) };
        if row != current {
            return Ok(AliasUpdate::Conflict);
        }
        row.data = AliasData::Conversation(data);
        Ok(AliasUpdate::Updated)
    }

    async fn delete_alias(&self, owner: &UserId, kind: AliasKind, name: &str) -> StoreResult<bool> {
        let key = (owner.clone(), kind, name.to_owned());
        Ok(self.lock_tables().aliases.remove(&key).is_some())
    }
}

impl MemoryTables {
    pub(super) fn delete_thread(&mut self, owner: &UserId, thread: &ThreadId) -> bool {
        self.unlink_thread(owner, thread);
        if self.thread(owner, thread).is_none() {
            return false;
        }
        self.threads.remove(thread);
        self.idempotency.retain(|_, (_, _, of)| of != thread);
        self.aliases.retain(|(of, ..), row| of != owner || row.thread != *thread);
        self.shares.retain(|share| share.thread != *thread);
        true
    }

    pub(super) fn log_bytes(&self, owner: &UserId) -> u64 {
        let threads = self.threads.values().filter(|thread| thread.owner == *owner);
        threads.flat_map(|thread| &thread.records).map(|record| record.size_bytes() as u64).sum()
    }
}

impl MemoryThread {
    fn row(&self, id: &ThreadId) -> ThreadRow {
        ThreadRow { id: id.clone(), created_at: self.created_at, updated_at: self.updated_at }
    }
}
