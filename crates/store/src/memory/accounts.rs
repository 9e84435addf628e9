//! Access keys and daily spending.

use super::MemoryStore;
use crate::validation;
use model::UserId;
use model::ports::{AccessKeyRow, Accounts, Day, Spend, StoreFuture, UsageLedger};
use model::seq::Millis;

impl Accounts for MemoryStore {
    fn access_keys(&self) -> StoreFuture<'_, Vec<AccessKeyRow>> {
        Box::pin(async move { Ok(self.lock_tables().access_keys.clone()) })
    }

    fn create_access_key(&self, key: AccessKeyRow) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let mut tables = self.lock_tables();
            if tables.access_keys.iter().any(|known| known.id == key.id) {
                return Err(validation::key_exists_error(&key.id));
            }
            tables.access_keys.push(key);
            tables.access_keys.sort_by(|one, other| (one.created_at, &one.id).cmp(&(other.created_at, &other.id)));
            Ok(())
        })
    }

    fn revoke_access_key<'a>(&'a self, id: &'a str, at: Millis) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let mut tables = self.lock_tables();
            let Some(key) = tables.access_keys.iter_mut().find(|key| key.id == id) else { return Ok(false) };
            key.revoked_at.get_or_insert(at);
            Ok(true)
        })
    }
}

impl UsageLedger for MemoryStore {
    fn daily_spend<'a>(&'a self, owner: &'a UserId, day: Day) -> StoreFuture<'a, Spend> {
        Box::pin(async move { Ok(self.lock_tables().spend.get(&(owner.clone(), day)).copied().unwrap_or_default()) })
    }
}
