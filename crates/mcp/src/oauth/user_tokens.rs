//! The tokens of users, as the transport needs them.
//!
//! A token is read from the store for each request, which costs little beside the request, so what another node has
//! refreshed or a user has revoked counts at once. One caller on all nodes refreshes a token; the others wait for it: an
//! authorization server takes two uses of one refresh token for theft.

use super::McpAuthorizations;
use super::challenge::BearerChallenge;
use super::discovery::split_scopes;
use super::error::AuthorizationError;
use super::token_endpoint::TokenEndpoint;
use super::vault::{GrantedToken, REFRESH_CLAIM_MS, Versioned};
use crate::token_source::{BearerToken, TokenRefusal, TokenSource, TokenUser};
use model::definition::McpAuth;
use model::error::{ErrorCode, ErrorInfo};
use model::ports::BoxFuture;
use model::seq::Millis;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// A token that expires sooner is refreshed first.
const EXPIRY_MARGIN_MS: Millis = 30 * 1000;
/// A server that refuses a token this soon after it was issued refuses the next one, too.
const REFUSED_AT_ONCE_MS: Millis = 60 * 1000;
/// How often those who wait look for the token of the one who refreshes.
const REFRESH_POLL: Duration = Duration::from_millis(100);
const SECOND_MS: u64 = 1000;

impl TokenSource for McpAuthorizations {
    fn bearer_token(&self, server: &TokenUser) -> BoxFuture<'static, Result<Option<BearerToken>, ErrorInfo>> {
        let (this, server) = (self.clone(), server.clone());
        Box::pin(async move {
            match server.auth.as_ref() {
                McpAuth::User => Ok(None),
                McpAuth::OAuth(_) => this.user_token(&server).await.map(Some).map_err(|error| error.describe(&server)),
                McpAuth::ClientCredentials(client) => {
                    let token = this.client_token(&server, client, None).await;
                    token.map(Some).map_err(|error| describe_client_error(&server.label, &error))
                }
            }
        })
    }

    fn replace_token(
        &self,
        server: &TokenUser,
        refusal: TokenRefusal,
    ) -> BoxFuture<'static, Result<BearerToken, ErrorInfo>> {
        let (this, server) = (self.clone(), server.clone());
        Box::pin(async move {
            match server.auth.as_ref() {
                McpAuth::User => Err(TokenError::Refused.describe(&server)),
                McpAuth::OAuth(_) => this.token_after(&server, &refusal).await.map_err(|error| error.describe(&server)),
                McpAuth::ClientCredentials(client) => {
                    let token = this.client_token(&server, client, refusal.token.as_ref()).await;
                    token.map_err(|error| describe_client_error(&server.label, &error))
                }
            }
        })
    }
}

/// Why a request has no token.
#[derive(Debug, thiserror::Error)]
enum TokenError {
    #[error("has not been authorized")]
    Missing,
    #[error("has an authorization that has expired")]
    Expired,
    #[error("refuses its authorization")]
    Refused,
    #[error("asks for more rights than it was given")]
    MissingScopes,
    /// A later attempt may succeed.
    #[error(transparent)]
    Failed(#[from] AuthorizationError),
}

impl TokenError {
    fn describe(&self, server: &TokenUser) -> ErrorInfo {
        let label = &server.label;
        match self {
            Self::Failed(error) => {
                let message = format!("The authorization of the MCP server `{label}` cannot be renewed: {error}.");
                ErrorInfo::new(ErrorCode::McpUnavailable, message)
            }
            _ => {
                let message = format!(
                    "The MCP server `{label}` {self} for this user: request `POST /v1/mcp/{label}/authorize`, open the \
                     `authorization_url` of the response in a browser, and try again."
                );
                ErrorInfo::new(ErrorCode::McpUnauthorized, message)
            }
        }
    }
}

impl McpAuthorizations {
    /// A token that has not expired.
    async fn user_token(&self, server: &TokenUser) -> Result<BearerToken, TokenError> {
        let found = self.0.vault.token(server).await?.ok_or(TokenError::Missing)?;
        if found.value.is_refused {
            return Err(TokenError::Refused);
        }
        let now = self.0.clock.now();
        let expires_within =
            |margin: Millis| found.value.expires_at.is_some_and(|expires_at| expires_at <= now.saturating_add(margin));
        match (&found.value.refresh_token, expires_within(EXPIRY_MARGIN_MS), expires_within(0)) {
            (_, false, _) | (None, true, false) => read_bearer(&found.value),
            (None, true, true) => Err(TokenError::Expired),
            (Some(_), true, _) => self.refresh(server, found).await,
        }
    }

    /// What a request is repeated with that the server has refused.
    async fn token_after(&self, server: &TokenUser, refusal: &TokenRefusal) -> Result<BearerToken, TokenError> {
        let found = self.0.vault.token(server).await?.ok_or(TokenError::Missing)?;
        if found.value.is_refused {
            return Err(TokenError::Refused);
        }
        let used = refusal.token.as_ref().map(BearerToken::as_str);
        let challenge = BearerChallenge::find(&refusal.challenges);
        if refusal.status == 403 {
            let scopes = challenge.scope.as_deref().map(split_scopes).unwrap_or_default();
            let token = GrantedToken { missing_scopes: scopes, ..found.value };
            self.0.vault.replace_token(server, found.version, &token).await?;
            return Err(TokenError::MissingScopes);
        }
        if used != Some(found.value.access_token.as_str()) {
            // Somebody else has refreshed it meanwhile.
            return self.user_token(server).await;
        }
        let is_new = self.0.clock.now() < found.value.granted_at.saturating_add(REFUSED_AT_ONCE_MS);
        if is_new || found.value.refresh_token.is_none() {
            let token = GrantedToken { is_refused: true, ..found.value };
            self.0.vault.replace_token(server, found.version, &token).await?;
            return Err(TokenError::Refused);
        }
        self.refresh(server, found).await
    }

    /// Refreshes a token, or waits for the caller who does.
    async fn refresh(&self, server: &TokenUser, found: Versioned<GrantedToken>) -> Result<BearerToken, TokenError> {
        if self.0.vault.claim_refresh(server, found.version).await? {
            return self.refresh_claimed(server, found).await;
        }
        let deadline = Instant::now() + Duration::from_millis(REFRESH_CLAIM_MS);
        loop {
            let newest = self.0.vault.token(server).await?.ok_or(TokenError::Missing)?;
            if newest.version != found.version {
                return match newest.value {
                    token if token.is_refused => Err(TokenError::Refused),
                    // That attempt has failed, and may be repeated later.
                    token if token.access_token == found.value.access_token => {
                        Err(AuthorizationError::ServerFailed(503).into())
                    }
                    token => read_bearer(&token),
                };
            }
            if Instant::now() >= deadline {
                // The caller that was refreshing it has crashed; the next request may try.
                return Err(AuthorizationError::ServerFailed(504).into());
            }
            sleep(REFRESH_POLL).await;
        }
    }

    /// Every way out writes the row, which ends the claim.
    async fn refresh_claimed(
        &self,
        server: &TokenUser,
        found: Versioned<GrantedToken>,
    ) -> Result<BearerToken, TokenError> {
        let Versioned { value: old, version } = found;
        let outcome = self.request_refresh(server, &old).await;
        let (token, error) = match outcome {
            Ok(token) => (token, None),
            Err(error) if error.is_final() => {
                (GrantedToken { is_refused: true, refresh_token: None, ..old }, Some(TokenError::Expired))
            }
            Err(error) => (old, Some(error.into())),
        };
        let is_written = self.0.vault.replace_token(server, version, &token).await?;
        match error {
            Some(error) => Err(error),
            None if is_written => read_bearer(&token),
            // The user has authorized anew, or has revoked, in the meantime.
            None => Box::pin(self.user_token(server)).await,
        }
    }

    async fn request_refresh(
        &self,
        server: &TokenUser,
        old: &GrantedToken,
    ) -> Result<GrantedToken, AuthorizationError> {
        let refresh_token = old.refresh_token.as_deref().unwrap_or_default();
        let (http, _) = self.http_for(server)?;
        let endpoint =
            TokenEndpoint { http: &http, url: &old.token_endpoint, client: &old.client, secrets: &self.0.secrets };
        let fields =
            [("grant_type", "refresh_token"), ("refresh_token", refresh_token), ("resource", old.resource.as_str())];
        let issued = endpoint.request_token(&fields).await?;
        let now = self.0.clock.now();
        Ok(GrantedToken {
            access_token: issued.access_token,
            // A server that does not rotate them keeps the old one.
            refresh_token: issued.refresh_token.or_else(|| old.refresh_token.clone()),
            granted_at: now,
            expires_at: issued.expires_in.map(|seconds| now.saturating_add(seconds.saturating_mul(SECOND_MS))),
            is_refused: false,
            scopes: issued.scope.as_deref().map_or_else(|| old.scopes.clone(), split_scopes),
            missing_scopes: Vec::new(),
            ..old.clone()
        })
    }
}

/// No user can do anything about it.
fn describe_client_error(label: &str, error: &AuthorizationError) -> ErrorInfo {
    let code = if error.is_final() { ErrorCode::McpUnauthorized } else { ErrorCode::McpUnavailable };
    ErrorInfo::new(code, format!("There is no token for the MCP server `{label}`: {error}."))
}

fn read_bearer(token: &GrantedToken) -> Result<BearerToken, TokenError> {
    BearerToken::new(&token.access_token).ok_or(TokenError::Missing)
}
