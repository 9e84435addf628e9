//! API keys: 256 random bits each, shown once and stored as a digest.
//!
//! Requests are checked against a table in memory, so that they need no query. The table is reloaded when keys change,
//! and they change only through this process (see [`crate::control_socket`]).

use gateway::secret_token::{encode_hex, generate_secret, secret_digest};
use gateway::shares::is_viewer_name;
use model::error::truncate_text;
use model::id::{USER_NAME_BYTES_MAX, is_valid_user_name};
use model::ports::{AccessKeyRow, Accounts, Clock, StoreError};
use model::{Millis, UserId};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use tokio::sync::Mutex;

const API_KEY_PREFIX: &str = "hw_";

#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiKeyError {
    #[error(
        "`{0}` is not a valid user name: use 1 to {USER_NAME_BYTES_MAX} letters, digits and `_ - . @ + | :`, most of them \
         letters or digits, and not `share:` at the start"
    )]
    InvalidUser(String),
    #[error("no such key: `{0}`")]
    UnknownKey(String),
    #[error("the system has no random numbers: {0}")]
    Random(getrandom::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NewApiKey {
    pub(crate) id: String,
    pub(crate) user: String,
    /// Not stored, so it cannot be shown again.
    pub(crate) secret: String,
}

pub(crate) fn check_user_name(user: &str) -> Result<(), ApiKeyError> {
    if is_valid_user_name(user) && !is_viewer_name(user) {
        return Ok(());
    }
    Err(ApiKeyError::InvalidUser(truncate_text(user, USER_NAME_BYTES_MAX).into_owned()))
}

pub(crate) async fn create_api_key(
    accounts: &dyn Accounts,
    clock: &dyn Clock,
    user: &str,
) -> Result<NewApiKey, ApiKeyError> {
    check_user_name(user)?;
    let mut id = [0; 8];
    getrandom::fill(&mut id).map_err(ApiKeyError::Random)?;
    let secret = generate_secret(API_KEY_PREFIX).map_err(ApiKeyError::Random)?;
    let id = format!("key_{}", encode_hex(&id));
    let row = AccessKeyRow {
        id: id.clone(),
        user: UserId::from(user),
        digest: secret_digest(&secret),
        created_at: clock.now(),
        revoked_at: None,
    };
    accounts.create_access_key(row).await?;
    Ok(NewApiKey { id, user: user.to_owned(), secret })
}

pub(crate) async fn revoke_api_key(accounts: &dyn Accounts, clock: &dyn Clock, id: &str) -> Result<(), ApiKeyError> {
    let known = accounts.revoke_access_key(id, clock.now()).await?;
    if known { Ok(()) } else { Err(ApiKeyError::UnknownKey(truncate_text(id, 64).into_owned())) }
}

#[derive(Debug, Default)]
pub(crate) struct ApiKeys {
    table: RwLock<KeyTable>,
    refreshing: Mutex<()>,
}

/// All keys by digest. Revoked keys stay in the map, so that a client with a revoked key gets that error.
#[derive(Debug, Default)]
struct KeyTable {
    active: HashMap<String, ApiKeyEntry>,
    revoked: HashMap<String, Millis>,
}

/// What a secret is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum KeyLookup {
    Active { user: UserId, id: Arc<str> },
    Revoked { at: Millis },
    Unknown,
}

#[derive(Clone, Debug)]
struct ApiKeyEntry {
    id: Arc<str>,
    user: UserId,
}

impl ApiKeys {
    pub(crate) async fn load(accounts: &dyn Accounts) -> Result<Self, StoreError> {
        let keys = Self::default();
        keys.refresh(accounts).await?;
        Ok(keys)
    }

    /// Reloads the table. Changes made before the call are in effect when it returns.
    pub(crate) async fn refresh(&self, accounts: &dyn Accounts) -> Result<(), StoreError> {
        // One refresh at a time: otherwise an older read could overwrite a newer one, so that a new key stays unknown or
        // a revoked one becomes valid again. Requests do not wait here, and keys change rarely.
        let _turn = self.refreshing.lock().await;
        let mut table = KeyTable::default();
        for row in accounts.access_keys().await? {
            match row.revoked_at {
                None => drop(table.active.insert(row.digest, ApiKeyEntry { id: row.id.into(), user: row.user })),
                Some(at) => drop(table.revoked.insert(row.digest, at)),
            }
        }
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = table;
        Ok(())
    }

    /// Looked up by digest, so that timing reveals nothing about the key.
    pub(crate) fn find(&self, secret: &str) -> KeyLookup {
        let digest = secret_digest(secret);
        let table = self.read();
        match (table.active.get(&digest), table.revoked.get(&digest)) {
            (Some(entry), _) => KeyLookup::Active { user: entry.user.clone(), id: Arc::clone(&entry.id) },
            (None, Some(at)) => KeyLookup::Revoked { at: *at },
            (None, None) => KeyLookup::Unknown,
        }
    }

    pub(crate) fn has_key_of(&self, user: &UserId) -> bool {
        self.read().active.values().any(|entry| entry.user == *user)
    }

    /// Whether the key exists and is not revoked.
    pub(crate) fn is_active(&self, id: &str) -> bool {
        self.read().active.values().any(|entry| *entry.id == *id)
    }

    fn read(&self) -> RwLockReadGuard<'_, KeyTable> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memory_store::MemoryStore;
    use model::Millis;

    struct StoppedClock(Millis);

    impl Clock for StoppedClock {
        fn now(&self) -> Millis {
            self.0
        }
    }

    #[tokio::test]
    async fn a_key_carries_the_time_of_the_clock_port() {
        let accounts = MemoryStore::default();
        let key = create_api_key(&accounts, &StoppedClock(5), "ann").await.unwrap();
        revoke_api_key(&accounts, &StoppedClock(9), &key.id).await.unwrap();
        let row = accounts.access_keys().await.unwrap().remove(0);
        assert_eq!((row.created_at, row.revoked_at), (5, Some(9)));
    }
}
