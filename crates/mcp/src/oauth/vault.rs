//! Tokens, registrations and authorizations in progress, in the store.

use super::discovery::AuthorizationServer;
use super::error::AuthorizationError;
use super::random::digest_text;
use super::registration::KnownClient;
use super::seal::SealingKey;
use super::url_text;
use crate::token_source::TokenUser;
use model::UserId;
use model::ports::{Clock, NewSecret, SecretKey, SecretKind, StoredSecret, UserSecrets};
use model::seq::Millis;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use url::Url;

/// Servers are as many as the config has.
const TOKENS_PER_USER_MAX: usize = 1000;
const CLIENTS_PER_USER_MAX: usize = 1000;
const AUTHORIZATIONS_PER_USER_MAX: usize = 20;
/// How long a user may take to authorize.
pub(super) const AUTHORIZATION_LIFETIME_MS: Millis = 10 * 60 * 1000;
/// How long others wait for the one that refreshes a token: longer than its request may take.
pub(super) const REFRESH_CLAIM_MS: Millis = 15 * 1000;

/// Tokens of a user for a server. It has no `Debug`.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct GrantedToken {
    /// The URL that the token is for: it is sent to no other.
    pub(super) server_url: String,
    pub(super) access_token: String,
    pub(super) refresh_token: Option<String>,
    pub(super) granted_at: Millis,
    pub(super) expires_at: Option<Millis>,
    /// The server refused it, and it cannot be refreshed.
    pub(super) is_refused: bool,
    pub(super) scopes: Vec<String>,
    /// What the server asked for when it refused for lack of scopes.
    pub(super) missing_scopes: Vec<String>,
    pub(super) issuer: String,
    #[serde(with = "url_text")]
    pub(super) token_endpoint: Url,
    pub(super) client: KnownClient,
    pub(super) resource: String,
}

/// An authorization that waits for the user.
#[derive(Serialize, Deserialize)]
pub(super) struct PendingAuthorization {
    pub(super) label: String,
    pub(super) server_url: String,
    pub(super) server: AuthorizationServer,
    pub(super) client: KnownClient,
    pub(super) redirect_uri: String,
    pub(super) verifier: String,
    pub(super) scopes: Vec<String>,
}

/// A value as it was read.
pub(super) struct Versioned<T> {
    pub(super) value: T,
    pub(super) version: u64,
}

pub(super) struct TokenVault {
    store: Arc<dyn UserSecrets>,
    key: Option<SealingKey>,
    clock: Arc<dyn Clock>,
}

impl TokenVault {
    pub(super) fn new(store: Arc<dyn UserSecrets>, key: Option<SealingKey>, clock: Arc<dyn Clock>) -> Self {
        Self { store, key, clock }
    }

    /// The tokens for this server under its present URL.
    pub(super) async fn token(
        &self,
        server: &TokenUser,
    ) -> Result<Option<Versioned<GrantedToken>>, AuthorizationError> {
        let stored = self.store.secret(&token_key(&server.user, &server.label), self.clock.now()).await?;
        let found = stored
            .and_then(|stored| Some(Versioned { value: self.open::<GrantedToken>(&stored)?, version: stored.version }));
        Ok(found.filter(|found| found.value.server_url == server.url))
    }

    pub(super) async fn put_token(
        &self,
        user: &UserId,
        label: &str,
        token: &GrantedToken,
    ) -> Result<(), AuthorizationError> {
        let secret = self.seal(token_key(user, label), token, None, TOKENS_PER_USER_MAX)?;
        self.store.put_secret(secret).await?;
        Ok(())
    }

    /// Returns false when somebody else has written the row since it was read.
    pub(super) async fn replace_token(
        &self,
        server: &TokenUser,
        version: u64,
        token: &GrantedToken,
    ) -> Result<bool, AuthorizationError> {
        let secret = self.seal(token_key(&server.user, &server.label), token, None, TOKENS_PER_USER_MAX)?;
        Ok(self.store.replace_secret(version, secret).await?)
    }

    /// Whether the caller is the one that asks for the next token.
    pub(super) async fn claim_refresh(&self, server: &TokenUser, version: u64) -> Result<bool, AuthorizationError> {
        let (key, now) = (token_key(&server.user, &server.label), self.clock.now());
        Ok(self.store.claim_secret(&key, version, now, now.saturating_add(REFRESH_CLAIM_MS)).await?)
    }

    pub(super) async fn delete_token(&self, user: &UserId, label: &str) -> Result<bool, AuthorizationError> {
        Ok(self.store.delete_secret(&token_key(user, label)).await?)
    }

    /// What this user's authorization server knows this server as.
    pub(super) async fn client(&self, user: &UserId, name: &str) -> Result<Option<KnownClient>, AuthorizationError> {
        let stored = self.store.secret(&client_key(user, name), self.clock.now()).await?;
        Ok(stored.and_then(|stored| self.open(&stored)))
    }

    pub(super) async fn put_client(
        &self,
        user: &UserId,
        name: &str,
        client: &KnownClient,
        expires_at: Millis,
    ) -> Result<(), AuthorizationError> {
        let secret = self.seal(client_key(user, name), client, Some(expires_at), CLIENTS_PER_USER_MAX)?;
        self.store.put_secret(secret).await?;
        Ok(())
    }

    pub(super) async fn forget_client(&self, user: &UserId, name: &str) -> Result<(), AuthorizationError> {
        self.store.delete_secret(&client_key(user, name)).await?;
        Ok(())
    }

    /// Keeps an authorization under its state, and returns when it expires.
    pub(super) async fn put_authorization(
        &self,
        user: &UserId,
        state: &str,
        pending: &PendingAuthorization,
    ) -> Result<Millis, AuthorizationError> {
        let expires_at = self.clock.now().saturating_add(AUTHORIZATION_LIFETIME_MS);
        let key = SecretKey { owner: user.clone(), kind: SecretKind::McpAuthorization, name: digest_text(state) };
        let secret = self.seal(key, pending, Some(expires_at), AUTHORIZATIONS_PER_USER_MAX)?;
        self.store.put_secret(secret).await?;
        Ok(expires_at)
    }

    /// Ends an authorization: a second request with the same state finds nothing.
    pub(super) async fn take_authorization(
        &self,
        state: &str,
    ) -> Result<Option<(UserId, PendingAuthorization)>, AuthorizationError> {
        let name = digest_text(state);
        let taken = self.store.take_secret(SecretKind::McpAuthorization, &name, self.clock.now()).await?;
        Ok(taken.and_then(|stored| Some((stored.key.owner.clone(), self.open(&stored)?))))
    }

    fn seal<T: Serialize>(
        &self,
        key: SecretKey,
        value: &T,
        expires_at: Option<Millis>,
        count_max: usize,
    ) -> Result<NewSecret, AuthorizationError> {
        // Its keys are strings, so it can be written.
        let plain = serde_json::to_vec(value).unwrap_or_default();
        let body = self.key.as_ref().ok_or(AuthorizationError::NoKey)?.seal(&key, &plain)?;
        Ok(NewSecret { key, body, at: self.clock.now(), expires_at, count_max })
    }

    /// `None` if it was sealed with another key, or by a version that this one does not understand.
    fn open<T: DeserializeOwned>(&self, stored: &StoredSecret) -> Option<T> {
        let opened = self.key.as_ref().and_then(|key| key.open(&stored.key, &stored.body));
        let value = opened.and_then(|plain| serde_json::from_slice(&plain).ok());
        if value.is_none() {
            tracing::warn!(
                kind = stored.key.kind.as_str(),
                "a stored credential cannot be opened: was it sealed with another key?"
            );
        }
        value
    }
}

fn token_key(user: &UserId, label: &str) -> SecretKey {
    SecretKey { owner: user.clone(), kind: SecretKind::McpToken, name: label.to_owned() }
}

fn client_key(user: &UserId, name: &str) -> SecretKey {
    SecretKey { owner: user.clone(), kind: SecretKind::McpClient, name: digest_text(name) }
}
