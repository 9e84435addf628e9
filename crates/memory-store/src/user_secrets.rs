//! Secrets of users.

use crate::{MemoryStore, MemoryTables};
use async_trait::async_trait;
use model::UserId;
use model::ports::{NewSecret, SecretKey, SecretKind, StoreResult, StoredSecret, UserSecrets};
use model::seq::Millis;

#[derive(Debug)]
pub(crate) struct MemorySecret {
    stored: StoredSecret,
    claimed_until: Millis,
}

#[async_trait]
impl UserSecrets for MemoryStore {
    async fn secret(&self, key: &SecretKey, now: Millis) -> StoreResult<Option<StoredSecret>> {
        let tables = self.lock_tables();
        Ok(tables.secrets.get(key).map(|secret| secret.stored.clone()).filter(|secret| secret.is_current(now)))
    }

    async fn secrets(&self, owner: &UserId, now: Millis) -> StoreResult<Vec<StoredSecret>> {
        let tables = self.lock_tables();
        let all = tables.secrets.values().map(|secret| &secret.stored);
        Ok(all.filter(|secret| secret.key.owner == *owner && secret.is_current(now)).cloned().collect())
    }

    async fn put_secret(&self, secret: NewSecret) -> StoreResult<u64> {
        self.check_space()?;
        Ok(self.lock_tables().write_secret(secret))
    }

    async fn replace_secret(&self, version: u64, secret: NewSecret) -> StoreResult<bool> {
        self.check_space()?;
        let mut tables = self.lock_tables();
        let found = tables.secrets.get(&secret.key).map(|found| &found.stored);
        let is_newest = found.is_some_and(|found| found.version == version && found.is_current(secret.at));
        if is_newest {
            tables.write_secret(secret);
        }
        Ok(is_newest)
    }

    async fn claim_secret(&self, key: &SecretKey, version: u64, now: Millis, until: Millis) -> StoreResult<bool> {
        let mut tables = self.lock_tables();
        let Some(secret) = tables.secrets.get_mut(key) else { return Ok(false) };
        let is_granted =
            secret.stored.version == version && secret.claimed_until <= now && secret.stored.is_current(now);
        if is_granted {
            secret.claimed_until = until;
        }
        Ok(is_granted)
    }

    async fn take_secret(&self, kind: SecretKind, name: &str, now: Millis) -> StoreResult<Option<StoredSecret>> {
        let mut tables = self.lock_tables();
        let found = tables.secrets.keys().find(|key| key.kind == kind && key.name == name).cloned();
        let taken = found.and_then(|key| tables.secrets.remove(&key)).map(|secret| secret.stored);
        Ok(taken.filter(|secret| secret.is_current(now)))
    }

    async fn delete_secret(&self, key: &SecretKey) -> StoreResult<bool> {
        Ok(self.lock_tables().secrets.remove(key).is_some())
    }

    async fn delete_secrets(&self, owner: &UserId) -> StoreResult<u64> {
        let mut tables = self.lock_tables();
        let before = tables.secrets.len();
        tables.secrets.retain(|key, _| key.owner != *owner);
        Ok((before - tables.secrets.len()) as u64)
    }
}

impl MemoryTables {
    fn write_secret(&mut self, secret: NewSecret) -> u64 {
        let NewSecret { key, body, at, expires_at, count_max } = secret;
        self.last_secret_version += 1;
        let version = self.last_secret_version;
        let stored = StoredSecret { key: key.clone(), version, body, updated_at: at, expires_at };
        self.secrets.insert(key.clone(), MemorySecret { stored, claimed_until: 0 });
        self.secrets.retain(|_, secret| secret.stored.is_current(at));
        let of_kind = |other: &&SecretKey| other.owner == key.owner && other.kind == key.kind;
        let mut versions: Vec<u64> =
            self.secrets.iter().filter(|(key, _)| of_kind(key)).map(|(_, secret)| secret.stored.version).collect();
        versions.sort_unstable_by(|one, other| other.cmp(one));
        for surplus in versions.into_iter().skip(count_max) {
            self.secrets.retain(|_, secret| secret.stored.version != surplus);
        }
        version
    }
}
