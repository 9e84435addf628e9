//! Threads that their owners show to others.

use crate::id::{ThreadId, UserId};
use crate::seq::{Millis, Seq};

/// A thread that its owner shows to others. The secret that opens it is nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareRow {
    /// Its name, which is no secret.
    pub id: String,
    /// What is shown.
    pub thread: ThreadId,
    /// Whose it is.
    pub owner: UserId,
    /// The digest of the secret.
    pub digest: String,
    /// The last record that is shown; `None` shows whatever comes.
    pub until_seq: Option<Seq>,
    /// Since when.
    pub created_at: Millis,
    /// Until when.
    pub expires_at: Millis,
    /// When its owner took it back before that.
    pub revoked_at: Option<Millis>,
}

impl ShareRow {
    /// Does it let somebody in at this moment?
    #[must_use]
    pub const fn is_active(&self, at: Millis) -> bool {
        self.revoked_at.is_none() && at < self.expires_at
    }
}
