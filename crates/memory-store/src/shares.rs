//! Shares.

use crate::MemoryStore;
use async_trait::async_trait;
use model::ports::validation;
use model::ports::{ShareRow, ShareWriter, StoreError, StoreResult, ThreadShares};
use model::seq::Millis;
use model::{ThreadId, UserId};

#[async_trait]
impl ThreadShares for MemoryStore {
    async fn shares(&self, owner: &UserId, thread: &ThreadId) -> StoreResult<Vec<ShareRow>> {
        let tables = self.lock_tables();
        let mut shares: Vec<ShareRow> =
            tables.shares.iter().filter(|share| share.owner == *owner && share.thread == *thread).cloned().collect();
        shares.sort_by(|one, other| (one.created_at, &one.id).cmp(&(other.created_at, &other.id)));
        Ok(shares)
    }

    async fn active_shares(&self, at: Millis) -> StoreResult<Vec<ShareRow>> {
        let mut open: Vec<ShareRow> =
            self.lock_tables().shares.iter().filter(|share| share.is_active(at)).cloned().collect();
        open.sort_by(|one, other| (one.created_at, &one.id).cmp(&(other.created_at, &other.id)));
        Ok(open)
    }
}

#[async_trait]
impl ShareWriter for MemoryStore {
    async fn create_share(&self, share: ShareRow) -> StoreResult<()> {
        self.check_space()?;
        let mut tables = self.lock_tables();
        tables.thread(&share.owner, &share.thread).ok_or(StoreError::ThreadNotFound)?;
        if tables.shares.iter().any(|known| known.id == share.id) {
            return Err(validation::share_exists_error(&share.id));
        }
        tables.shares.push(share);
        Ok(())
    }

    async fn revoke_share(&self, owner: &UserId, thread: &ThreadId, id: &str, at: Millis) -> StoreResult<bool> {
        let mut tables = self.lock_tables();
        let mut shares = tables.shares.iter_mut();
        let share = shares.find(|share| share.id == id && share.owner == *owner && share.thread == *thread);
        let Some(share) = share else { return Ok(false) };
        share.revoked_at.get_or_insert(at);
        Ok(true)
    }
}
