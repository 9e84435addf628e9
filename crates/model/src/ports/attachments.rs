//! What is known of the files that users have sent.

use super::{BoxFuture, StoreError};
use crate::id::UserId;
use crate::seq::Millis;

/// The rows of files. The bytes are elsewhere, where a commit cannot reach them; these rows say which of them count.
///
/// ```text
///   expect ──▶ bytes come ──▶ bytes are durable ──▶ put
///      │                                             │
///      └── whatever is left here was broken off ─────┘
/// ```
///
/// 1. A file is expected before its first byte is stored, and there once `put_attachment` has said [`Kept::Now`]. Both
///    survive a power cut when the call returns. So bytes without a row are always found: `unfinished_attachments` names
///    them.
/// 2. A file that is only expected is not there: nobody reads it, and it does not count.
/// 3. What a user's files hold together never passes the bound that `put_attachment` is given, however many come at once.
/// 4. A file never changes: one that is there stays as it was first put.
/// 5. What belongs to another owner does not exist.
///
/// `store::conformance` is this contract as tests; every backend runs it.
pub trait Attachments: Send + Sync {
    /// Says that bytes are about to be stored under this path.
    fn expect_attachment<'a>(
        &'a self,
        owner: &'a UserId,
        path: &'a str,
        at: Millis,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Says that they are there, unless the user's files would then hold more than `bytes_max`.
    fn put_attachment<'a>(
        &'a self,
        owner: &'a UserId,
        row: AttachmentRow,
        bytes_max: Option<u64>,
    ) -> BoxFuture<'a, Result<Kept, StoreError>>;

    /// A file that is there.
    fn attachment<'a>(
        &'a self,
        owner: &'a UserId,
        path: &'a str,
    ) -> BoxFuture<'a, Result<Option<AttachmentRow>, StoreError>>;

    /// How much a user's files hold together.
    fn attachment_bytes<'a>(&'a self, owner: &'a UserId) -> BoxFuture<'a, Result<u64, StoreError>>;

    /// Forgets a file, or that it was expected. False when neither was so.
    fn delete_attachment<'a>(&'a self, owner: &'a UserId, path: &'a str) -> BoxFuture<'a, Result<bool, StoreError>>;

    /// What was expected and has not come, of all owners: for whoever clears up at the start.
    fn unfinished_attachments(&self) -> BoxFuture<'_, Result<Vec<(UserId, String)>, StoreError>>;
}

/// A file that a user sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachmentRow {
    /// Where its bytes are.
    pub path: String,
    /// Its user's name for it. For people: no path is ever made of it.
    pub name: String,
    /// What its bytes say it is.
    pub content_type: String,
    /// How many there are.
    pub bytes: u64,
    /// When it came.
    pub created_at: Millis,
}

/// What became of a file that was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is there.
    Now,
    /// It would have been too much; nothing has changed.
    Over {
        /// What the user's other files hold.
        used: u64,
    },
}
