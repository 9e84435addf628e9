//! Shares.

use super::MemoryStore;
use crate::validation;
use model::ports::{ShareRow, ShareWriter, StoreError, StoreFuture, ThreadShares};
use model::seq::Millis;
use model::{ThreadId, UserId};

impl ThreadShares for MemoryStore {
    fn shares<'a>(&'a self, owner: &'a UserId, thread: &'a ThreadId) -> StoreFuture<'a, Vec<ShareRow>> {
        Box::pin(async move {
            let tables = self.lock_tables();
            let mut shares: Vec<ShareRow> = tables
                .shares
                .iter()
                .filter(|share| share.owner == *owner && share.thread == *thread)
                .cloned()
                .collect();
            shares.sort_by(|one, other| (one.created_at, &one.id).cmp(&(other.created_at, &other.id)));
            Ok(shares)
        })
    }

    fn active_shares(&self, at: Millis) -> StoreFuture<'_, Vec<ShareRow>> {
        Box::pin(async move {
            let mut open: Vec<ShareRow> =
                self.lock_tables().shares.iter().filter(|share| share.is_active(at)).cloned().collect();
            open.sort_by(|one, other| (one.created_at, &one.id).cmp(&(other.created_at, &other.id)));
            Ok(open)
        })
    }
}

impl ShareWriter for MemoryStore {
    fn create_share(&self, share: ShareRow) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let mut tables = self.lock_tables();
            tables.thread(&share.owner, &share.thread).ok_or(StoreError::ThreadNotFound)?;
            if tables.shares.iter().any(|known| known.id == share.id) {
                return Err(validation::share_exists_error(&share.id));
            }
            tables.shares.push(share);
            Ok(())
        })
    }

    fn revoke_share<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
        id: &'a str,
        at: Millis,
    ) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let mut tables = self.lock_tables();
            let mut shares = tables.shares.iter_mut();
            let share = shares.find(|share| share.id == id && share.owner == *owner && share.thread == *thread);
            let Some(share) = share else { return Ok(false) };
            share.revoked_at.get_or_insert(at);
            Ok(true)
        })
    }
}
