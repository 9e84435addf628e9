//! Threads and their aliases.

use super::{AliasKind, AliasRow, AliasUpdate, ConversationData, ListPage, StoreFuture};
use crate::id::{ThreadId, UserId};
use crate::seq::Millis;
use serde::{Deserialize, Serialize};

/// Threads and their aliases.
///
/// 1. A thread appears with the submission that creates it and disappears with [`ThreadWriter::delete_thread`], together
///    with everything that belongs to it: its records, runs, inbox, questions, shares and aliases.
/// 2. An alias belongs to its owner and its kind. The first `create_alias` wins; a later one returns the existing row.
/// 3. An alias may exist before its thread.
/// 4. Changing a conversation is compare-and-set: of two changes that start from the same row, one is applied and the
///    other is an [`AliasUpdate::Conflict`] that changes nothing.
#[warn(missing_docs)]
pub trait Threads: Send + Sync {
    /// A user's threads.
    fn threads<'a>(&'a self, owner: &'a UserId, page: ListPage) -> StoreFuture<'a, Vec<ThreadRow>>;

    /// One thread.
    fn thread<'a>(&'a self, owner: &'a UserId, thread: &'a ThreadId) -> StoreFuture<'a, Option<ThreadRow>>;

    /// The alias with this name.
    fn alias<'a>(&'a self, owner: &'a UserId, kind: AliasKind, name: &'a str) -> StoreFuture<'a, Option<AliasRow>>;
}

/// Changes threads and aliases. The law is [`Threads`]'.
#[warn(missing_docs)]
pub trait ThreadWriter: Send + Sync {
    /// Deletes a thread with everything that belongs to it. Returns false when there is none.
    fn delete_thread<'a>(&'a self, owner: &'a UserId, thread: &'a ThreadId) -> StoreFuture<'a, bool>;

    /// Creates an alias unless it exists. Returns the row that exists afterwards.
    fn create_alias<'a>(&'a self, owner: &'a UserId, row: AliasRow) -> StoreFuture<'a, AliasRow>;

    /// Replaces the data of a conversation if its row is still `current`.
    fn update_conversation<'a>(
        &'a self,
        owner: &'a UserId,
        current: &'a AliasRow,
        data: ConversationData,
    ) -> StoreFuture<'a, AliasUpdate>;

    /// Deletes an alias; its thread stays. Returns false when there is none.
    fn delete_alias<'a>(&'a self, owner: &'a UserId, kind: AliasKind, name: &'a str) -> StoreFuture<'a, bool>;
}

/// A thread's row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadRow {
    pub id: ThreadId,
    pub created_at: Millis,
    /// When one of its runs last started or ended.
    pub updated_at: Millis,
}
