//! What is old enough to be deleted by a policy.

use super::StoreResult;
use crate::id::{ThreadId, UserId};
use crate::seq::Millis;
use async_trait::async_trait;

/// Threads and files that nobody has used for long, of all owners.
///
/// 1. A thread is idle from its last activity ([`super::ThreadRow::updated_at`]) on, if all of its runs have ended and its
///    inbox is empty. A thread with a run that is queued, runs or waits for people is not idle, however old it is.
/// 2. A file is unused from its upload on, if no thread uses it. Blobs belong to threads and are never unused.
/// 3. What is deleted is checked again by the transaction that deletes it: a thread that has got a command, or a file that a
///    thread has begun to use, stays.
/// 4. The retention time is one value of the store, replaced as a whole. It says up to when age has been counted.
#[warn(missing_docs)]
#[async_trait]
pub trait Retention: Send + Sync {
    /// Threads that have been idle since before this time, ordered by id, after this one, at most `limit`.
    async fn idle_threads(
        &self,
        since: Millis,
        after: Option<&ThreadId>,
        limit: usize,
    ) -> StoreResult<Vec<(UserId, ThreadId)>>;

    /// Files that have been unused since before this time, ordered by owner and path, after this one, at most `limit`.
    async fn unused_files(
        &self,
        since: Millis,
        after: Option<&(UserId, String)>,
        limit: usize,
    ) -> StoreResult<Vec<(UserId, String)>>;

    /// The retention time, if there is one.
    async fn retention_time(&self) -> StoreResult<Option<Millis>>;

    /// When a thread was last active; `None` when there are no threads.
    async fn newest_activity(&self) -> StoreResult<Option<Millis>>;
}

/// Deletes what is old. The law is [`Retention`]'s.
#[warn(missing_docs)]
#[async_trait]
pub trait RetentionWriter: Send + Sync {
    /// Deletes a thread that has been idle since before this time, like [`super::ThreadWriter::delete_thread`]. Returns
    /// false when there is none, or it is not idle any more.
    async fn delete_idle_thread(&self, owner: &UserId, thread: &ThreadId, since: Millis) -> StoreResult<bool>;

    /// Releases a file that has been unused since before this time: it no longer exists and is listed by
    /// [`super::Attachments::unreferenced_attachments`]. Returns false when there is none, or a thread uses it.
    async fn release_unused_file(&self, owner: &UserId, path: &str, since: Millis) -> StoreResult<bool>;

    /// Sets the retention time.
    async fn set_retention_time(&self, at: Millis) -> StoreResult<()>;
}
