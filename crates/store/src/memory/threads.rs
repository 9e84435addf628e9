//! Threads and their aliases.

use super::{MemoryStore, MemoryThread};
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
        let mine = tables.threads.iter().rev().filter(|(_, thread)| thread.owner == *owner);
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
}

#[async_trait]
impl ThreadWriter for MemoryStore {
    async fn delete_thread(&self, owner: &UserId, thread: &ThreadId) -> StoreResult<bool> {
        let mut tables = self.lock_tables();
        tables.unlink_thread(owner, thread);
        if tables.thread(owner, thread).is_none() {
            return Ok(false);
        }
        tables.threads.remove(thread);
        tables.idempotency.retain(|_, (_, _, of)| of != thread);
        tables.aliases.retain(|(of, ..), row| of != owner || row.thread != *thread);
        tables.shares.retain(|share| share.thread != *thread);
        Ok(true)
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

impl MemoryThread {
    fn row(&self, id: &ThreadId) -> ThreadRow {
        ThreadRow { id: id.clone(), created_at: self.created_at, updated_at: self.updated_at }
    }
}
