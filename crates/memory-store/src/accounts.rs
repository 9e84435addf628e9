//! Access keys and daily spending.

use crate::MemoryStore;
use async_trait::async_trait;
use model::UserId;
use model::ports::validation;
use model::ports::{AccessKeyRow, Accounts, Day, Spend, StoreResult, UsageLedger};
use model::seq::Millis;

#[async_trait]
impl Accounts for MemoryStore {
    async fn access_keys(&self) -> StoreResult<Vec<AccessKeyRow>> {
        Ok(self.lock_tables().access_keys.clone())
    }

    async fn create_access_key(&self, key: AccessKeyRow) -> StoreResult<()> {
        let mut tables = self.lock_tables();
        if tables.access_keys.iter().any(|known| known.id == key.id) {
            return Err(validation::key_exists_error(&key.id));
        }
        tables.access_keys.push(key);
        tables.access_keys.sort_by(|one, other| (one.created_at, &one.id).cmp(&(other.created_at, &other.id)));
        Ok(())
    }

    async fn revoke_access_key(&self, id: &str, at: Millis) -> StoreResult<bool> {
        let mut tables = self.lock_tables();
        let Some(key) = tables.access_keys.iter_mut().find(|key| key.id == id) else { return Ok(false) };
        key.revoked_at.get_or_insert(at);
        Ok(true)
    }
}

#[async_trait]
impl UsageLedger for MemoryStore {
    async fn daily_spend(&self, owner: &UserId, day: Day) -> StoreResult<Spend> {
        Ok(self.lock_tables().spend.get(&(owner.clone(), day)).copied().unwrap_or_default())
    }
}
