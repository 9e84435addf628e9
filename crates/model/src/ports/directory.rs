//! All tables other than the log as one trait object, and write access to them.

use super::{
    AttachmentWriter, Attachments, DefinitionStore, DefinitionWriter, Inbox, InboxWriter, PendingQuestions, Retention,
    RetentionWriter, ShareWriter, StoreError, ThreadShares, ThreadWriter, Threads, UsageLedger,
};
use crate::id::UserId;

/// Read access to all tables other than the log. A consumer of a single table takes that table's trait instead.
///
/// Each supertrait states its own law. Three rules hold for all of them:
///
/// 1. A row of another owner does not exist.
/// 2. A write is durable once its future has completed.
/// 3. Listings are newest first, ordered by id, which begins with a timestamp; a cursor therefore stays valid when rows
///    are deleted.
///
/// `store_conformance` contains these laws as tests, one module per trait; every backend runs them.
#[warn(missing_docs)]
pub trait Directory:
    Inbox
    + Threads
    + PendingQuestions
    + ThreadShares
    + UsageLedger
    + DefinitionStore
    + Attachments
    + Retention
    + WriteAccess
{
}

impl<T> Directory for T where
    T: Inbox
        + Threads
        + PendingQuestions
        + ThreadShares
        + UsageLedger
        + DefinitionStore
        + Attachments
        + Retention
        + WriteAccess
{
}

/// Every write to the tables other than the log, except [`super::Journal::append`].
#[warn(missing_docs)]
pub trait DirectoryWriter:
    InboxWriter + ThreadWriter + ShareWriter + DefinitionWriter + AttachmentWriter + RetentionWriter
{
}

impl<T> DirectoryWriter for T where
    T: InboxWriter + ThreadWriter + ShareWriter + DefinitionWriter + AttachmentWriter + RetentionWriter
{
}

/// Grants write access.
///
/// [`Directory`] only reads; writes go through the writer. A wrapper that restricts some users, such as the scope of a
/// share, denies access here for all operations at once, so new operations of the writer traits need no change in it.
#[warn(missing_docs)]
pub trait WriteAccess: Send + Sync {
    /// The write operations for this user.
    ///
    /// # Errors
    /// [`StoreError::ThreadNotFound`] when the user has read access only. A backend grants access to all users.
    fn writer(&self, user: &UserId) -> Result<&dyn DirectoryWriter, StoreError>;
}

/// A page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListPage {
    /// Only entries older than the one with this id.
    pub before: Option<String>,
    pub limit: usize,
}
