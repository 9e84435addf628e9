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
    /// Whether the share grants access at `at`. Long before its creation it does not: the clock was set back, and the share
    /// must not live longer by more than its own length.
    pub const fn is_active(&self, at: Millis) -> bool {
        let length = self.expires_at.saturating_sub(self.created_at);
        self.revoked_at.is_none() && at < self.expires_at && self.created_at <= at.saturating_add(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_back_prolongs_a_share_by_its_own_length_at_most() {
        let share = ShareRow {
            id: "s".to_owned(),
            thread: ThreadId::from("thr_1"),
            owner: UserId::from("ann"),
            digest: String::new(),
            until_seq: None,
            created_at: 100_000,
            expires_at: 110_000,
            revoked_at: None,
        };
        let active = [90_000, 99_999, 100_000, 109_999].map(|at| share.is_active(at));
        let inactive = [0, 89_999, 110_000, u64::MAX].map(|at| share.is_active(at));
        assert_eq!((active, inactive), ([true; 4], [false; 4]));
    }
}
