//! Metadata of uploaded files, and of the blobs that threads use.

use super::StoreResult;
use crate::id::{ThreadId, UserId};
use crate::seq::Millis;
use async_trait::async_trait;

/// The rows of files. The bytes are stored outside the store's transactions; a file exists if it has a committed row.
///
/// ```text
///   reserve ──▶ bytes arrive ──▶ bytes are durable ──▶ commit
///      │                                                 │
///      └── a file that stays in between was interrupted ─┘
/// ```
///
/// 1. A file is reserved before its first byte is written, and exists once its commit returned
///    [`AttachmentOutcome::Stored`]. `stale_attachments` therefore lists all bytes without a committed row.
/// 2. A file that is only reserved does not exist: it cannot be read and does not count towards the quota.
/// 3. The sum of a user's files never exceeds the quota of a commit, even with concurrent commits.
/// 4. A file never changes.
/// 5. A file of another owner does not exist.
/// 6. A blob is a file with a hash. An owner has at most one blob per hash, even with concurrent commits, and it exists
///    once a thread uses it.
/// 7. A deleted thread uses nothing. A file that only deleted threads used no longer exists, does not count, and is listed
///    by `unreferenced_attachments` until it is deleted. A thread may use a file before the thread exists; links of threads
///    that were never created are removed when the store is opened, or an hour later where other nodes may create them.
#[warn(missing_docs)]
#[async_trait]
pub trait Attachments: Send + Sync {
    /// One file.
    async fn attachment(&self, owner: &UserId, path: &str) -> StoreResult<Option<AttachmentRow>>;

    /// The sum of a user's files in bytes.
    async fn attachment_bytes_used(&self, owner: &UserId) -> StoreResult<u64>;

    /// A blob of this owner; with a thread, only when that thread uses it.
    async fn blob(&self, owner: &UserId, thread: Option<&ThreadId>, hash: &str) -> StoreResult<Option<AttachmentRow>>;

    /// Owners and paths of files that no thread uses any longer.
    async fn unreferenced_attachments(&self) -> StoreResult<Vec<(UserId, String)>>;

    /// Owners and paths of files that are reserved but not committed, or unreferenced, for the clean-up at start.
    async fn stale_attachments(&self) -> StoreResult<Vec<(UserId, String)>>;
}

/// Changes the rows of files. The law is [`Attachments`]'.
#[warn(missing_docs)]
#[async_trait]
pub trait AttachmentWriter: Send + Sync {
    /// Reserves a path before its bytes are written.
    async fn reserve_attachment(&self, owner: &UserId, path: &str, at: Millis) -> StoreResult<()>;

    /// Commits a file whose bytes are durable, unless the user's files would then exceed `bytes_max`.
    async fn commit_attachment(
        &self,
        owner: &UserId,
        row: AttachmentRow,
        bytes_max: Option<u64>,
    ) -> StoreResult<AttachmentOutcome>;

    /// Deletes a file or its reservation. Returns false when there is neither.
    async fn delete_attachment(&self, owner: &UserId, path: &str) -> StoreResult<bool>;

    /// Links a file to a thread. Returns `None` when there is no such file.
    async fn link_attachment(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        path: &str,
    ) -> StoreResult<Option<AttachmentRow>>;

    /// Commits a blob whose bytes are durable and links it to a thread, unless the user's files would then exceed
    /// `bytes_max`. If the owner has a blob with this hash, that one is linked instead.
    async fn commit_blob(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        row: AttachmentRow,
        bytes_max: Option<u64>,
    ) -> StoreResult<AttachmentOutcome>;

    /// Links a blob to a thread. Returns `None` when the owner has none with this hash.
    async fn link_blob(&self, owner: &UserId, thread: &ThreadId, hash: &str) -> StoreResult<Option<AttachmentRow>>;
}

/// A file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachmentRow {
    /// The path of its bytes.
    pub path: String,
    /// The user's name for it, for display only: no path is derived from it.
    pub name: String,
    /// The media type, detected from its bytes.
    pub content_type: String,
    pub size_bytes: u64,
    pub created_at: Millis,
    /// The SHA-256 of its bytes in hex, for a blob.
    pub hash: Option<String>,
}

/// The result of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachmentOutcome {
    Stored,
    /// The owner has this blob already. The new file stays reserved.
    Duplicate(AttachmentRow),
    /// The file would exceed the quota. Nothing changed.
    QuotaExceeded {
        /// The sum of the user's other files.
        used: u64,
    },
}
