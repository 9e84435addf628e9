//! OAuth for MCP servers with a URL: users authorize this server to act for them.
//!
//! - [`McpAuthorizations`] is the whole of it: it starts and finishes authorizations (`flow`), keeps the tokens and is the
//!   [`crate::TokenSource`] of the transport (`user_tokens`).
//! - `challenge` reads why a server refused a request; `discovery` finds its authorization server; `registration` makes this
//!   server known there; `token_endpoint` asks it for tokens.
//! - `vault` keeps all of that in the store, sealed by `seal`.
//! - `guarded_http` sends every request of these modules. The operator wrote one URL; all others were named by strangers.
//!
//! Invariant: a token goes to the URL that it was issued for and to the authorization server that issued it. Neither tokens,
//! codes, verifiers nor secrets are in a message, a log line or a `Debug`.

mod challenge;
mod client_credentials;
mod discovery;
mod error;
mod flow;
mod guarded_http;
mod random;
mod registration;
mod seal;
mod token_endpoint;
mod url_text;
mod user_tokens;
mod vault;

pub use error::AuthorizationError;
pub use flow::{AnswerSource, AuthorizationAnswer, AuthorizationStart, ClientAddresses, FinishedAuthorization};
pub use seal::SealingKey;

use client_credentials::ClientTokens;
use fetch::UrlRules;
use model::ports::{BoxFuture, Clock, UserSecrets};
use std::fmt;
use std::sync::Arc;
use tokio::sync::Semaphore;
use vault::TokenVault;

/// Requests to authorization servers that are sent at the same time.
const REQUESTS_MAX: usize = 32;

/// Resolves the reference to a secret of the operator.
pub type SecretLookup = Arc<dyn Fn(String) -> BoxFuture<'static, Result<String, String>> + Send + Sync>;

/// What authorizations need of the server.
pub struct AuthorizationParts {
    pub store: Arc<dyn UserSecrets>,
    /// `None`: nobody can authorize anything.
    pub key: Option<SealingKey>,
    /// Which of the URLs that strangers name may be requested.
    pub rules: UrlRules,
    pub clock: Arc<dyn Clock>,
    pub secrets: SecretLookup,
}

/// Users' authorizations of MCP servers. Clones share their state.
#[derive(Clone)]
pub struct McpAuthorizations(Arc<AuthorizationState>);

struct AuthorizationState {
    vault: TokenVault,
    rules: UrlRules,
    clock: Arc<dyn Clock>,
    secrets: SecretLookup,
    permits: Arc<Semaphore>,
    client_tokens: ClientTokens,
}

impl McpAuthorizations {
    #[must_use]
    pub fn new(parts: AuthorizationParts) -> Self {
        let AuthorizationParts { store, key, rules, clock, secrets } = parts;
        Self(Arc::new(AuthorizationState {
            vault: TokenVault::new(store, key, Arc::clone(&clock)),
            rules,
            clock,
            secrets,
            permits: Arc::new(Semaphore::new(REQUESTS_MAX)),
            client_tokens: ClientTokens::default(),
        }))
    }
}

impl fmt::Debug for McpAuthorizations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpAuthorizations").finish_non_exhaustive()
    }
}
