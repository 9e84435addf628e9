//! Threads and their aliases.

use super::{AliasKind, AliasRow, AliasUpdate, ConversationData, ListPage, StoreResult};
use crate::id::{ThreadId, UserId};
use crate::seq::Millis;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// Threads and their aliases.
///
/// 1. A thread appears with the submission that creates it and disappears with [`ThreadWriter::delete_thread`], together
///    with everything that belongs to it: its records, runs, inbox, questions, shares and aliases.
/// 2. An alias belongs to its owner and its kind. The first `create_alias` wins; a later one returns the existing row.
/// 3. An alias may exist before its thread.
/// 4. Changing a conversation is compare-and-set: of two changes that start from the same row, one is applied and the
///    other is an [`AliasUpdate::Conflict`] that changes nothing.
/// 5. A user's log has the size of all records of the user's threads ([`crate::Record::size_bytes`]), those that are durable
///    and no others. A deleted thread does not count.
#[warn(missing_docs)]
#[async_trait]
pub trait Threads: Send + Sync {
    /// A user's threads, without unlisted ones ([`ThreadId::unlisted`]).
    async fn threads(&self, owner: &UserId, page: ListPage) -> StoreResult<Vec<ThreadRow>>;

    /// One thread.
    async fn thread(&self, owner: &UserId, thread: &ThreadId) -> StoreResult<Option<ThreadRow>>;

    /// The alias with this name.
    async fn alias(&self, owner: &UserId, kind: AliasKind, name: &str) -> StoreResult<Option<AliasRow>>;

    /// The size of a user's log in bytes. It does not take longer for a longer log. Threads of an older format may be counted
    /// only some time after the store was opened.
    async fn log_bytes_used(&self, owner: &UserId) -> StoreResult<u64>;
}

/// Changes threads and aliases. The law is [`Threads`]'.
#[warn(missing_docs)]
#[async_trait]
pub trait ThreadWriter: Send + Sync {
    /// Deletes a thread with everything that belongs to it. Returns false when there is none.
    async fn delete_thread(&self, owner: &UserId, thread: &ThreadId) -> StoreResult<bool>;

    /// Creates an alias unless it exists. Returns the row that exists afterwards.
    async fn create_alias(&self, owner: &UserId, row: AliasRow) -> StoreResult<AliasRow>;

    /// Replaces the data of a conversation if its row is still `current`.
    async fn update_conversation(
        &self,
        owner: &UserId,
        current: &AliasRow,
        data: ConversationData,
    ) -> StoreResult<AliasUpdate>;

    /// Deletes an alias; its thread stays. Returns false when there is none.
    async fn delete_alias(&self, owner: &UserId, kind: AliasKind, name: &str) -> StoreResult<bool>;
}

/// A thread's row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadRow {
    pub id: ThreadId,
    pub created_at: Millis,
    /// When one of its runs last started or ended.
    pub updated_at: Millis,
}
