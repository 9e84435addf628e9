//! The tables beside the log as one trait object, and the single way to change them.

use super::{
    AttachmentWriter, Attachments, DefinitionStore, DefinitionWriter, Inbox, InboxWriter, PendingQuestions,
    ShareWriter, StoreError, ThreadShares, ThreadWriter, Threads, UsageLedger,
};
use crate::id::UserId;

/// Everything that can be read beside the log, for consumers that need several of the tables. A consumer that needs one
/// takes that trait alone.
///
/// Each supertrait states its own law. Three rules hold for all of them:
///
/// 1. A row of another owner does not exist.
/// 2. An operation that changes something survives a power cut once its future has completed.
/// 3. Listings are newest first, in the order of their ids, which begin with a timestamp; a position in a listing
///    therefore stays valid whatever is deleted meanwhile.
///
/// `store_conformance` contains these laws as tests, one module per trait; every backend runs them.
pub trait Directory:
    Inbox + Threads + PendingQuestions + ThreadShares + UsageLedger + DefinitionStore + Attachments + WriteAccess
{
}

impl<T> Directory for T where
    T: Inbox + Threads + PendingQuestions + ThreadShares + UsageLedger + DefinitionStore + Attachments + WriteAccess
{
}

/// Every operation that changes the tables beside the log, other than [`super::Journal::append`].
pub trait DirectoryWriter: InboxWriter + ThreadWriter + ShareWriter + DefinitionWriter + AttachmentWriter {}

impl<T> DirectoryWriter for T where T: InboxWriter + ThreadWriter + ShareWriter + DefinitionWriter + AttachmentWriter {}

/// Grants write access.
///
/// [`Directory`] only reads; whoever wants to change something asks for the writer first. A wrapper that limits what some
/// users may do, such as the scope of a share, refuses here, once for every operation: an operation that is added to one
/// of the writer traits is implemented by the backends and needs no change in the wrapper.
pub trait WriteAccess: Send + Sync {
    /// The operations that change rows in this user's name.
    ///
    /// # Errors
    /// [`StoreError::ThreadNotFound`] when the user may only read. A backend grants access to everybody.
    fn writer(&self, user: &UserId) -> Result<&dyn DirectoryWriter, StoreError>;
}

/// A page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListPage {
    /// Only entries older than the one with this id.
    pub before: Option<String>,
    /// The maximum number of entries.
    pub limit: usize,
}
