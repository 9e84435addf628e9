//! The rows of files that users uploaded, and of the blobs that their threads use.

use super::StoreFuture;
use crate::id::{ThreadId, UserId};
use crate::seq::Millis;

/// The rows of files. The bytes are stored elsewhere, outside the store's transactions; these rows say which bytes count.
///
/// ```text
///   reserve ──▶ bytes arrive ──▶ bytes are durable ──▶ commit
///      │                                                 │
///      └── a file that stays in between was interrupted ─┘
/// ```
///
/// 1. A file is reserved before its first byte is written, and exists once its commit returned
///    [`AttachmentOutcome::Stored`]. Bytes without a committed row are therefore always found: `stale_attachments` lists
///    them.
/// 2. A file that is only reserved does not exist: it cannot be read and does not count.
/// 3. The sum of a user's files never exceeds the quota that a commit is given, however many commit at the same time.
/// 4. A file never changes.
/// 5. A file of another owner does not exist.
/// 6. A blob is a file with a hash. An owner has at most one blob per hash, however often and however concurrently it is
///    committed, and it exists from the moment that a thread uses it.
/// 7. A deleted thread uses nothing. A file that only deleted threads used no longer exists, does not count, and is listed
///    by `unreferenced_attachments` until it is deleted. A thread may use a file before the thread exists; links of threads
///    that were never created are removed when the store is opened.
pub trait Attachments: Send + Sync {
    /// One file.
    fn attachment<'a>(&'a self, owner: &'a UserId, path: &'a str) -> StoreFuture<'a, Option<AttachmentRow>>;

    /// The sum of a user's files in bytes.
    fn attachment_bytes_used<'a>(&'a self, owner: &'a UserId) -> StoreFuture<'a, u64>;

    /// A blob of this owner; with a thread, only when that thread uses it.
    fn blob<'a>(
        &'a self,
        owner: &'a UserId,
        thread: Option<&'a ThreadId>,
        hash: &'a str,
    ) -> StoreFuture<'a, Option<AttachmentRow>>;

    /// Owners and paths of files that no thread uses any more.
    fn unreferenced_attachments(&self) -> StoreFuture<'_, Vec<(UserId, String)>>;

    /// Owners and paths of files that were reserved and not committed, and of those that no thread uses any more. For the
    /// clean-up at start.
    fn stale_attachments(&self) -> StoreFuture<'_, Vec<(UserId, String)>>;
}

/// Changes the rows of files. The law is [`Attachments`]'.
pub trait AttachmentWriter: Send + Sync {
    /// Announces that bytes will be written to this path.
    fn reserve_attachment<'a>(&'a self, owner: &'a UserId, path: &'a str, at: Millis) -> StoreFuture<'a, ()>;

    /// Announces that the bytes are durable, unless the user's files would then exceed `bytes_max`.
    fn commit_attachment<'a>(
        &'a self,
        owner: &'a UserId,
        row: AttachmentRow,
        bytes_max: Option<u64>,
    ) -> StoreFuture<'a, AttachmentOutcome>;

    /// Deletes a file or its reservation. Returns false when there is neither.
    fn delete_attachment<'a>(&'a self, owner: &'a UserId, path: &'a str) -> StoreFuture<'a, bool>;

    /// Records that a thread uses a file. Returns `None` when there is no such file.
    fn link_attachment<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
        path: &'a str,
    ) -> StoreFuture<'a, Option<AttachmentRow>>;

    /// Announces that the bytes of a blob are durable and that a thread uses it, unless the user's files would then exceed
    /// `bytes_max`. When the owner has a blob with this hash, the thread uses that one.
    fn commit_blob<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
        row: AttachmentRow,
        bytes_max: Option<u64>,
    ) -> StoreFuture<'a, AttachmentOutcome>;

    /// Records that a thread uses a blob. Returns `None` when the owner has none with this hash.
    fn link_blob<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
        hash: &'a str,
    ) -> StoreFuture<'a, Option<AttachmentRow>>;
}

/// A file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachmentRow {
    /// Where its bytes are.
    pub path: String,
    /// The user's name for it, for display only: no path is derived from it.
    pub name: String,
    /// The media type, detected from its bytes.
    pub content_type: String,
    /// Its size.
    pub size_bytes: u64,
    /// When it was uploaded.
    pub created_at: Millis,
    /// The SHA-256 of its bytes in hex, for a blob.
    pub hash: Option<String>,
}

/// The result of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachmentOutcome {
    /// The file exists.
    Stored,
    /// The owner has these bytes in this file. The new one stays reserved.
    Duplicate(AttachmentRow),
    /// The file would exceed the quota. Nothing changed.
    QuotaExceeded {
        /// The sum of the user's other files.
        used: u64,
    },
}
