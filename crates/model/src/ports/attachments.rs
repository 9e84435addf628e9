//! What is known of the files that users have sent, and of the blobs that their threads hold.

use super::{BoxFuture, StoreError};
use crate::id::{ThreadId, UserId};
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
/// 6. A blob is a file with a hash. An owner has at most one of each hash, whoever brings it how often at once, and it
///    is there from the moment that a thread uses it.
/// 7. A thread that is deleted uses nothing any more. What it used and no other thread uses is then not there, does not
///    count, and is named by `unfinished_attachments` until it is forgotten. A thread need not be there yet to use
///    something; when the store is opened, those that never came use nothing.
///
/// `store::conformance` is this contract as tests; every backend runs it.
pub trait Attachments: Send + Sync {
    /// Says that bytes are about to be stored under this path.
    fn reserve_attachment<'a>(
        &'a self,
        owner: &'a UserId,
        path: &'a str,
        at: Millis,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Says that they are there, unless the user's files would then hold more than `bytes_max`.
    fn commit_attachment<'a>(
        &'a self,
        owner: &'a UserId,
        row: AttachmentRow,
        bytes_max: Option<u64>,
    ) -> BoxFuture<'a, Result<AttachmentOutcome, StoreError>>;

    /// A file that is there.
    fn attachment<'a>(
        &'a self,
        owner: &'a UserId,
        path: &'a str,
    ) -> BoxFuture<'a, Result<Option<AttachmentRow>, StoreError>>;

    /// How much a user's files hold together.
    fn attachment_bytes_used<'a>(&'a self, owner: &'a UserId) -> BoxFuture<'a, Result<u64, StoreError>>;

    /// Forgets a file, or that it was expected. False when neither was so.
    fn delete_attachment<'a>(&'a self, owner: &'a UserId, path: &'a str) -> BoxFuture<'a, Result<bool, StoreError>>;

    /// Says that a thread uses a file. `None` when it is not there.
    fn link_attachment<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
        path: &'a str,
    ) -> BoxFuture<'a, Result<Option<AttachmentRow>, StoreError>>;

    /// Says that the bytes of a blob are there and that a thread uses it, unless the user's files would then hold more
    /// than `bytes_max`. When the owner has these bytes already, the thread uses those.
    fn commit_blob<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
        row: AttachmentRow,
        bytes_max: Option<u64>,
    ) -> BoxFuture<'a, Result<AttachmentOutcome, StoreError>>;

    /// Says that a thread uses a blob. `None` when the owner has none with this hash.
    fn link_blob<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
        hash: &'a str,
    ) -> BoxFuture<'a, Result<Option<AttachmentRow>, StoreError>>;

    /// A blob of this owner: of any thread, or only when this one uses it.
    fn blob<'a>(
        &'a self,
        owner: &'a UserId,
        thread: Option<&'a ThreadId>,
        hash: &'a str,
    ) -> BoxFuture<'a, Result<Option<AttachmentRow>, StoreError>>;

    /// What no thread uses any more, of all owners: for whoever has deleted one.
    fn unreferenced_attachments(&self) -> BoxFuture<'_, Result<Vec<(UserId, String)>, StoreError>>;

    /// What was expected and has not come, and what no thread uses any more, of all owners: for whoever clears up at the
    /// start.
    fn stale_attachments(&self) -> BoxFuture<'_, Result<Vec<(UserId, String)>, StoreError>>;
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
    pub size_bytes: u64,
    /// When it came.
    pub created_at: Millis,
    /// The SHA-256 of its bytes in hex, when it is a blob.
    pub hash: Option<String>,
}

/// What became of a file that was put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachmentOutcome {
    /// It is there.
    Stored,
    /// The owner has these bytes already, here. What was put is not needed: it is still only expected.
    Duplicate(AttachmentRow),
    /// It would have been too much; nothing has changed.
    QuotaExceeded {
        /// What the user's other files hold.
        used: u64,
    },
}
