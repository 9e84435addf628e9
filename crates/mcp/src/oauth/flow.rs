//! An authorization, from the user's wish to the stored token.
//!
//! ```text
//!   start:   probe the MCP server ─▶ discover ─▶ find or register the client ─▶ state, PKCE ─▶ URL for the user's browser
//!   finish:  state ─▶ issuer ─▶ code + verifier ─▶ token ─▶ vault
//! ```
//!
//! The state is random, belongs to one user and one server, and is used once.

use super::McpAuthorizations;
use super::discovery::{AuthorizationServer, discover};
use super::error::AuthorizationError;
use super::guarded_http::GuardedHttp;
use super::random::{pkce_challenge, random_text};
use super::registration::{KnownClient, client_metadata, configured_client, documented_client, register};
use super::token_endpoint::{IssuedToken, TokenEndpoint, clean_error_code};
use super::vault::{GrantedToken, PendingAuthorization};
use crate::token_source::TokenUser;
use model::UserId;
use model::definition::{McpAuth, OAuthClient};
use model::seq::Millis;
use std::sync::Arc;
use url::Url;

const STATE_BYTES_MAX: usize = 128;
const CODE_BYTES_MAX: usize = 8 * 1024;
const SECOND_MS: u64 = 1000;
const REGISTRATION_LIFETIME_MS: Millis = 10 * 60 * 1000;
/// The error of an authorization server that has forgotten a client.
const INVALID_CLIENT: &str = "invalid_client";

/// Where the user goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizationStart {
    pub authorization_url: String,
    pub expires_at: Millis,
}

/// What the authorization server sent through the user's browser. It has no `Debug`: it holds a code.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct AuthorizationAnswer {
    pub state: String,
    pub code: Option<String>,
    pub iss: Option<String>,
    pub error: Option<String>,
}

/// A user has authorized a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedAuthorization {
    pub user: UserId,
    pub label: String,
}

/// The addresses of this server that others must know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAddresses {
    /// Where the browser comes back to, unless the config names a page of an application.
    pub callback_url: String,
    /// Where this server describes itself, if others can read it there.
    pub document_url: Option<String>,
}

impl McpAuthorizations {
    /// Begins an authorization. Nothing is sent to an address that the guard refuses.
    ///
    /// # Errors
    /// When there is no authorization server that can be trusted, or it does not know this server.
    pub async fn start(
        &self,
        server: &TokenUser,
        addresses: &ClientAddresses,
    ) -> Result<AuthorizationStart, AuthorizationError> {
        let McpAuth::OAuth(config) = server.auth.as_ref() else { return Err(AuthorizationError::NotOAuth) };
        let (http, server_url) = self.http_for(server)?;
        let found = discover(&http, &server_url).await?;
        let redirect_uri = config.redirect_url.clone().unwrap_or_else(|| addresses.callback_url.clone());
        let configured = configured_client(config, &found);
        let known = configured.or_else(|| documented_client(&found, addresses.document_url.as_deref()));
        let client = match known {
            Some(client) => client,
            None => self.registered_client(&http, server, &found, &redirect_uri).await?,
        };
        let scopes = self.wanted_scopes(server, config, &found).await?;
        let (state, verifier) = (random_text()?, random_text()?);
        let authorization_url = authorization_url(&found, &client, &redirect_uri, &scopes, &state, &verifier);
        let pending = PendingAuthorization {
            label: server.label.clone(),
            server_url: server.url.clone(),
            server: found,
            client,
            redirect_uri,
            verifier,
            scopes,
        };
        let expires_at = self.0.vault.put_authorization(&server.user, &state, &pending).await?;
        Ok(AuthorizationStart { authorization_url, expires_at })
    }

    /// Ends an authorization: exchanges the code and keeps the tokens. `caller` is the user who brings the answer, if that is
    /// known; a browser that comes back by itself is nobody, and may only come to `callback_url`.
    ///
    /// # Errors
    /// When the state is not that of an authorization in progress of this user, or the authorization server refuses.
    pub async fn finish(
        &self,
        answer: AuthorizationAnswer,
        caller: AnswerSource<'_>,
    ) -> Result<FinishedAuthorization, AuthorizationError> {
        if answer.state.is_empty() || answer.state.len() > STATE_BYTES_MAX {
            return Err(AuthorizationError::UnknownState);
        }
        let taken = self.0.vault.take_authorization(&answer.state).await?;
        let (user, pending) = taken.ok_or(AuthorizationError::UnknownState)?;
        let is_expected = match caller {
            AnswerSource::User(caller) => *caller == user,
            AnswerSource::Browser { callback_url } => pending.redirect_uri == callback_url,
        };
        if !is_expected {
            return Err(AuthorizationError::UnknownState);
        }
        check_issuer(&pending.server, answer.iss.as_deref())?;
        if let Some(error) = answer.error {
            return Err(AuthorizationError::Refused(clean_error_code(&error).unwrap_or_else(|| "error".to_owned())));
        }
        let code = answer.code.filter(|code| (1..=CODE_BYTES_MAX).contains(&code.len()));
        let code = code.ok_or(AuthorizationError::Invalid("the answer of the authorization server"))?;
        let label = pending.label.clone();
        let token = match self.exchange_code(&pending, &code).await {
            Err(AuthorizationError::Refused(error)) if error == INVALID_CLIENT => {
                self.0
                    .vault
                    .forget_client(&user, &client_name(&pending.label, &pending.server, &pending.redirect_uri))
                    .await?;
                return Err(AuthorizationError::Refused(error));
            }
            token => token?,
        };
        self.0.vault.put_token(&user, &label, &self.granted_token(pending, token)).await?;
        Ok(FinishedAuthorization { user, label })
    }

    /// Whether the user has a token for the server that may still work.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn is_authorized(&self, server: &TokenUser) -> Result<bool, AuthorizationError> {
        let Some(token) = self.0.vault.token(server).await? else { return Ok(false) };
        let token = token.value;
        let is_fresh = token.expires_at.is_none_or(|expires_at| self.0.clock.now() < expires_at);
        Ok(!token.is_refused && (is_fresh || token.refresh_token.is_some()))
    }

    /// Deletes the user's tokens for a server. Returns false when there are none.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn forget(&self, user: &UserId, label: &str) -> Result<bool, AuthorizationError> {
        self.0.vault.delete_token(user, label).await
    }

    /// The document that describes this server to authorization servers, at its own address.
    #[must_use]
    pub fn client_document(document_url: &str, redirect_uris: &[String]) -> serde_json::Value {
        let mut document = client_metadata(redirect_uris, "none");
        document.insert("client_id".to_owned(), document_url.into());
        document.into()
    }

    pub(super) fn http_for(&self, server: &TokenUser) -> Result<(GuardedHttp, Url), AuthorizationError> {
        let url = Url::parse(&server.url).map_err(|_| AuthorizationError::Invalid("the address of the MCP server"))?;
        Ok((GuardedHttp::new(&self.0.rules, &url, Arc::clone(&self.0.permits)), url))
    }

    /// A registration is kept for a while: an authorization server that is asked again and again would have many of them. One
    /// that has forgotten a client tells the user and not this server, so it is not kept for long; tokens have it for good.
    async fn registered_client(
        &self,
        http: &GuardedHttp,
        server: &TokenUser,
        found: &AuthorizationServer,
        redirect_uri: &str,
    ) -> Result<KnownClient, AuthorizationError> {
        let name = client_name(&server.label, found, redirect_uri);
        if let Some(client) = self.0.vault.client(&server.user, &name).await? {
            return Ok(client);
        }
        let (client, expires_at) = register(http, found, redirect_uri).await?;
        let kept_until = self.0.clock.now().saturating_add(REGISTRATION_LIFETIME_MS);
        let expires_at = expires_at.map_or(kept_until, |expires_at| expires_at.min(kept_until));
        self.0.vault.put_client(&server.user, &name, &client, expires_at).await?;
        Ok(client)
    }

    /// Those of the config or, without any, those that the server wants; and what it missed in a token that it had.
    async fn wanted_scopes(
        &self,
        server: &TokenUser,
        config: &OAuthClient,
        found: &AuthorizationServer,
    ) -> Result<Vec<String>, AuthorizationError> {
        let mut scopes = if config.scopes.is_empty() { found.scopes.clone() } else { config.scopes.clone() };
        if let Some(token) = self.0.vault.token(server).await?
            && !token.value.missing_scopes.is_empty()
        {
            scopes.extend(token.value.scopes);
            scopes.extend(token.value.missing_scopes);
        }
        if found.offers_offline_access && !scopes.is_empty() {
            scopes.push("offline_access".to_owned());
        }
        let mut unique = Vec::with_capacity(scopes.len());
        for scope in scopes {
            if !unique.contains(&scope) {
                unique.push(scope);
            }
        }
        Ok(unique)
    }

    async fn exchange_code(
        &self,
        pending: &PendingAuthorization,
        code: &str,
    ) -> Result<IssuedToken, AuthorizationError> {
        let url = Url::parse(&pending.server_url).map_err(|_| AuthorizationError::UnknownState)?;
        let http = GuardedHttp::new(&self.0.rules, &url, Arc::clone(&self.0.permits));
        let endpoint = TokenEndpoint {
            http: &http,
            url: &pending.server.token_endpoint,
            client: &pending.client,
            secrets: &self.0.secrets,
        };
        let fields = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &pending.redirect_uri),
            ("code_verifier", &pending.verifier),
            ("resource", &pending.server.resource),
        ];
        endpoint.request_token(&fields).await
    }

    fn granted_token(&self, pending: PendingAuthorization, token: IssuedToken) -> GrantedToken {
        let now = self.0.clock.now();
        let granted = token.scope.as_deref().map(super::discovery::split_scopes);
        GrantedToken {
            server_url: pending.server_url,
            access_token: token.access_token,
            refresh_token: token.refresh_token,
            granted_at: now,
            expires_at: token.expires_in.map(|seconds| now.saturating_add(seconds.saturating_mul(SECOND_MS))),
            is_refused: false,
            scopes: granted.unwrap_or(pending.scopes),
            missing_scopes: Vec::new(),
            issuer: pending.server.issuer,
            token_endpoint: pending.server.token_endpoint,
            client: pending.client,
            resource: pending.server.resource,
        }
    }
}

/// Who brings the answer of an authorization server.
#[derive(Clone, Copy, Debug)]
pub enum AnswerSource<'a> {
    /// A user who has shown a key.
    User(&'a UserId),
    /// A browser that was sent to this address.
    Browser { callback_url: &'a str },
}

/// An answer of another authorization server would have its code sent to this one (RFC 9207).
fn check_issuer(server: &AuthorizationServer, iss: Option<&str>) -> Result<(), AuthorizationError> {
    match iss {
        Some(iss) if iss == server.issuer => Ok(()),
        None if !server.names_issuer => Ok(()),
        Some(_) | None => Err(AuthorizationError::WrongIssuer),
    }
}

fn authorization_url(
    server: &AuthorizationServer,
    client: &KnownClient,
    redirect_uri: &str,
    scopes: &[String],
    state: &str,
    verifier: &str,
) -> String {
    let mut url = server.authorization_endpoint.clone();
    url.query_pairs_mut()
        .append_pair("response_type", "code")
        .append_pair("client_id", &client.client_id)
        .append_pair("redirect_uri", redirect_uri)
        .append_pair("state", state)
        .append_pair("code_challenge", &pkce_challenge(verifier))
        .append_pair("code_challenge_method", "S256")
        .append_pair("resource", &server.resource);
    if !scopes.is_empty() {
        url.query_pairs_mut().append_pair("scope", &scopes.join(" "));
    }
    if scopes.iter().any(|scope| scope == "offline_access") {
        url.query_pairs_mut().append_pair("prompt", "consent");
    }
    url.into()
}

/// A registration is for one authorization server: another one under the same label gets its own.
fn client_name(label: &str, server: &AuthorizationServer, redirect_uri: &str) -> String {
    format!("{label}\n{}\n{redirect_uri}", server.issuer)
}
