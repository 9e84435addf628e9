//! Keys that let people in: 256 random bits, shown once; what is kept is a digest.
//!
//! The table here is what requests are held against, so that a request costs no look into the store. It is read again
//! whenever keys change, and they change only through this process (see [`crate::control`]).

use gateway::secret_token::{encode_hex, generate_secret, secret_digest};
use model::UserId;
use model::id::is_valid_id;
use model::ports::{AccessKeyRow, Clock as _, Directory, StoreError};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::Mutex;

const API_KEY_PREFIX: &str = "hw_";

/// Why keys could not be changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiKeyError {
    #[error("`{0}` is not a user's name: use 1 to 64 letters, digits, `_` or `-`")]
    InvalidUser(String),
    #[error("there is no key `{0}`")]
    UnknownKey(String),
    #[error("no randomness: {0}")]
    Random(getrandom::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A key as it is shown when it is made, and never again.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NewApiKey {
    /// Its name.
    pub(crate) id: String,
    /// Whom it lets in.
    pub(crate) user: String,
    /// The key itself.
    pub(crate) secret: String,
}

/// Makes a key.
pub(crate) async fn create_api_key(directory: &dyn Directory, user: &str) -> Result<NewApiKey, ApiKeyError> {
    if !is_valid_id(user) {
        return Err(ApiKeyError::InvalidUser(user.chars().take(64).collect()));
    }
    let mut name = [0; 8];
    getrandom::fill(&mut name).map_err(ApiKeyError::Random)?;
    let secret = generate_secret(API_KEY_PREFIX).map_err(ApiKeyError::Random)?;
    let id = format!("key_{}", encode_hex(&name));
    let created_at = engine::SystemClock.now();
    let row = AccessKeyRow {
        id: id.clone(),
        user: UserId::from(user),
        digest: secret_digest(&secret),
        created_at,
        revoked_at: None,
    };
    directory.create_access_key(row).await?;
    Ok(NewApiKey { id, user: user.to_owned(), secret })
}

/// Lets a key in no longer.
pub(crate) async fn revoke_api_key(directory: &dyn Directory, id: &str) -> Result<(), ApiKeyError> {
    let known = directory.revoke_access_key(id, engine::SystemClock.now()).await?;
    if known { Ok(()) } else { Err(ApiKeyError::UnknownKey(id.chars().take(64).collect())) }
}

/// The keys that let somebody in now.
#[derive(Debug, Default)]
pub(crate) struct ApiKeys {
    active: RwLock<HashMap<String, ApiKeyEntry>>,
    /// Held by whoever reads them again.
    refreshing: Mutex<()>,
}

#[derive(Clone, Debug)]
struct ApiKeyEntry {
    id: Arc<str>,
    user: UserId,
}

impl ApiKeys {
    /// Reads them.
    pub(crate) async fn load(directory: &dyn Directory) -> Result<Self, StoreError> {
        let keys = Self::default();
        keys.refresh(directory).await?;
        Ok(keys)
    }

    /// Reads them again. What was changed before this was called counts when it returns, and from then on.
    pub(crate) async fn refresh(&self, directory: &dyn Directory) -> Result<(), StoreError> {
        // One at a time, from the read to the write. Else whoever read first could write last, and a new key would stay
        // unknown, or a revoked one would let in again. No request waits here, and keys change rarely.
        let _turn = self.refreshing.lock().await;
        let rows = directory.access_keys().await?.into_iter().filter(|row| row.revoked_at.is_none());
        let live = rows.map(|row| (row.digest, ApiKeyEntry { id: row.id.into(), user: row.user })).collect();
        *self.active.write().unwrap_or_else(PoisonError::into_inner) = live;
        Ok(())
    }

    /// Whom a key lets in, and the key's name. Looked up by digest: how long that takes says nothing about the key.
    pub(crate) fn find(&self, secret: &str) -> Option<(UserId, Arc<str>)> {
        let live = self.active.read().unwrap_or_else(PoisonError::into_inner);
        live.get(&secret_digest(secret)).map(|entry| (entry.user.clone(), Arc::clone(&entry.id)))
    }

    /// Does any key let this user in?
    pub(crate) fn has_key_of(&self, user: &UserId) -> bool {
        let live = self.active.read().unwrap_or_else(PoisonError::into_inner);
        live.values().any(|entry| entry.user == *user)
    }

    /// Does the key of this name still let somebody in?
    pub(crate) fn is_active(&self, id: &str) -> bool {
        let live = self.active.read().unwrap_or_else(PoisonError::into_inner);
        live.values().any(|entry| *entry.id == *id)
    }
}
