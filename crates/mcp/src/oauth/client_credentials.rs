//! Tokens of this server itself, for servers that know no users. They are kept in memory; each process asks for its own.

use super::McpAuthorizations;
use super::discovery::discover;
use super::error::AuthorizationError;
use super::registration::configured_client;
use super::token_endpoint::TokenEndpoint;
use crate::token_source::{BearerToken, TokenUser};
use model::definition::OAuthClient;
use model::seq::Millis;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::Mutex;

/// A token that expires sooner is not used.
const EXPIRY_MARGIN_MS: Millis = 30 * 1000;
/// How long a token without an expiry is used.
const LIFETIME_MS: Millis = 60 * 60 * 1000;
const SECOND_MS: u64 = 1000;
/// Servers are as many as the config has; runs of older configs may have others.
const SERVERS_MAX: usize = 256;

/// By URL and client. The lock of a token is held while it is asked for, so that one caller does.
#[derive(Default)]
pub(super) struct ClientTokens(std::sync::Mutex<HashMap<ClientKey, Arc<Mutex<Option<ClientToken>>>>>);

#[derive(Clone, PartialEq, Eq, Hash)]
struct ClientKey {
    url: String,
    client_id: String,
    scopes: Vec<String>,
}

#[derive(Clone)]
struct ClientToken {
    token: BearerToken,
    granted_at: Millis,
    expires_at: Millis,
}

impl ClientTokens {
    fn slot(&self, key: ClientKey) -> Arc<Mutex<Option<ClientToken>>> {
        let mut slots = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if slots.len() >= SERVERS_MAX && !slots.contains_key(&key) {
            slots.clear();
        }
        Arc::clone(slots.entry(key).or_default())
    }
}

impl McpAuthorizations {
    /// A token that is not the one that was refused.
    pub(super) async fn client_token(
        &self,
        server: &TokenUser,
        config: &OAuthClient,
        refused: Option<&BearerToken>,
    ) -> Result<BearerToken, AuthorizationError> {
        let client_id = config.client_id.clone().ok_or(AuthorizationError::NoRegistration)?;
        let key = ClientKey { url: server.url.clone(), client_id, scopes: config.scopes.clone() };
        let slot = self.0.client_tokens.slot(key);
        let mut current = slot.lock().await;
        let now = self.0.clock.now();
        if let Some(known) = current.as_ref().filter(|known| now.saturating_add(EXPIRY_MARGIN_MS) < known.expires_at) {
            if refused != Some(&known.token) {
                return Ok(known.token.clone());
            }
            if now < known.granted_at.saturating_add(EXPIRY_MARGIN_MS) {
                return Err(AuthorizationError::Refused("invalid_token".to_owned()));
            }
        }
        let (http, url) = self.http_for(server)?;
        let found = discover(&http, &url).await?;
        let client = configured_client(config, &found).ok_or(AuthorizationError::NoRegistration)?;
        let endpoint =
            TokenEndpoint { http: &http, url: &found.token_endpoint, client: &client, secrets: &self.0.secrets };
        let scopes = if config.scopes.is_empty() { found.scopes.join(" ") } else { config.scopes.join(" ") };
        let mut fields = vec![("grant_type", "client_credentials"), ("resource", found.resource.as_str())];
        if !scopes.is_empty() {
            fields.push(("scope", &scopes));
        }
        let issued = endpoint.request_token(&fields).await?;
        let lifetime = issued.expires_in.map_or(LIFETIME_MS, |seconds| seconds.saturating_mul(SECOND_MS));
        let token = BearerToken::new(&issued.access_token).ok_or(AuthorizationError::Invalid("the token"))?;
        let expires_at = now.saturating_add(lifetime);
        *current = Some(ClientToken { token: token.clone(), granted_at: now, expires_at });
        Ok(token)
    }
}
