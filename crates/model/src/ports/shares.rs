//! Shares: read access to a thread for others than its owner.

use super::StoreResult;
use crate::id::{ThreadId, UserId};
use crate::seq::{Millis, Seq};
use async_trait::async_trait;

/// The shares of threads.
///
/// 1. A share belongs to an existing thread of its owner and is deleted with it. Its id is unique.
/// 2. Only the owner lists and revokes it. Revoking is final; revoking again does not change the time.
/// 3. A share that expired or was revoked is listed, but not active.
#[warn(missing_docs)]
#[async_trait]
pub trait ThreadShares: Send + Sync {
    /// A thread's shares, the oldest first, inactive ones included.
    async fn shares(&self, owner: &UserId, thread: &ThreadId) -> StoreResult<Vec<ShareRow>>;

    /// The shares of all owners that are active at `at`, for authentication.
    async fn active_shares(&self, at: Millis) -> StoreResult<Vec<ShareRow>>;
}

/// Changes shares. The law is [`ThreadShares`]'.
#[warn(missing_docs)]
#[async_trait]
pub trait ShareWriter: Send + Sync {
    /// Creates a share.
    async fn create_share(&self, share: ShareRow) -> StoreResult<()>;

    /// Revokes a share. Returns false when the thread has no share with this id.
    async fn revoke_share(&self, owner: &UserId, thread: &ThreadId, id: &str, at: Millis) -> StoreResult<bool>;
}

/// A share. The store holds the digest of its token, never the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareRow {
    /// The share's id. It is not a secret.
    pub id: String,
    pub thread: ThreadId,
    pub owner: UserId,
    pub digest: String,
    /// The last visible record; `None` includes new records.
    pub until_seq: Option<Seq>,
    pub created_at: Millis,
    pub expires_at: Millis,
    pub revoked_at: Option<Millis>,
}

impl ShareRow {
    /// Whether the share grants access at `at`.
    pub const fn is_active(&self, at: Millis) -> bool {
        self.revoked_at.is_none() && at < self.expires_at
    }
}
