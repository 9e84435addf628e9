//! Threads and their aliases.

use super::{MemoryStore, MemoryThread};
use model::ports::{
    AliasData, AliasKind, AliasRow, AliasUpdate, ConversationData, ListPage, StoreFuture, ThreadRow, ThreadWriter,
    Threads,
};
use model::{ThreadId, UserId};

impl Threads for MemoryStore {
    fn threads<'a>(&'a self, owner: &'a UserId, page: ListPage) -> StoreFuture<'a, Vec<ThreadRow>> {
        Box::pin(async move {
            let tables = self.lock_tables();
            let mine = tables.threads.iter().rev().filter(|(_, thread)| thread.owner == *owner);
            let older = mine.filter(|(id, _)| page.before.as_ref().is_none_or(|before| id.as_str() < before.as_str()));
            Ok(older.take(page.limit).map(|(id, thread)| thread.row(id)).collect())
        })
    }

    fn thread<'a>(&'a self, owner: &'a UserId, thread: &'a ThreadId) -> StoreFuture<'a, Option<ThreadRow>> {
        Box::pin(async move { Ok(self.lock_tables().thread(owner, thread).map(|found| found.row(thread))) })
    }

    fn alias<'a>(&'a self, owner: &'a UserId, kind: AliasKind, name: &'a str) -> StoreFuture<'a, Option<AliasRow>> {
        let key = (owner.clone(), kind, name.to_owned());
        Box::pin(async move { Ok(self.lock_tables().aliases.get(&key).cloned()) })
    }
}

impl ThreadWriter for MemoryStore {
    fn delete_thread<'a>(&'a self, owner: &'a UserId, thread: &'a ThreadId) -> StoreFuture<'a, bool> {
        Box::pin(async move {
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
        })
    }

    fn create_alias<'a>(&'a self, owner: &'a UserId, row: AliasRow) -> StoreFuture<'a, AliasRow> {
        Box::pin(async move {
            let key = (owner.clone(), row.data.kind(), row.name.clone());
            Ok(self.lock_tables().aliases.entry(key).or_insert(row).clone())
        })
    }

    fn update_conversation<'a>(
        &'a self,
        owner: &'a UserId,
        current: &'a AliasRow,
        data: ConversationData,
    ) -> StoreFuture<'a, AliasUpdate> {
        Box::pin(async move {
            let mut tables = self.lock_tables();
            let key = (owner.clone(), AliasKind::Conversation, current.name.clone());
            let Some(row) = tables.aliases.get_mut(&key) else { return Ok(AliasUpdate::NotFound) };
            if row != current {
                return Ok(AliasUpdate::Conflict);
            }
            row.data = AliasData::Conversation(data);
            Ok(AliasUpdate::Updated)
        })
    }

    fn delete_alias<'a>(&'a self, owner: &'a UserId, kind: AliasKind, name: &'a str) -> StoreFuture<'a, bool> {
        let key = (owner.clone(), kind, name.to_owned());
        Box::pin(async move { Ok(self.lock_tables().aliases.remove(&key).is_some()) })
    }
}

impl MemoryThread {
    fn row(&self, id: &ThreadId) -> ThreadRow {
        ThreadRow { id: id.clone(), created_at: self.created_at, updated_at: self.updated_at }
    }
}
