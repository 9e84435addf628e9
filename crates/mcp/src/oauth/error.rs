//! What can go wrong between a user's wish to authorize and the token.

use fetch::FetchError;
use model::error::{ErrorCode, ErrorInfo};
use model::ports::StoreError;

/// Error codes of OAuth that say nothing about what was sent.
const TRANSIENT_CODES: [&str; 3] = ["temporarily_unavailable", "server_error", "slow_down"];

/// Why there is no token. The texts are for users; none of them repeats what a server sent, except error codes of OAuth.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AuthorizationError {
    #[error("it does not use OAuth")]
    NotOAuth,
    /// The guard refused. Nothing was sent.
    #[error("the address of {0} may not be requested")]
    NotAllowed(&'static str),
    #[error("{what} cannot be read: {error}")]
    Unreadable { what: &'static str, error: FetchError },
    #[error("{0} is not valid")]
    Invalid(&'static str),
    #[error("it names no authorization server, and has none itself")]
    NoServer,
    #[error("the metadata is of another {0} than the one that was asked for")]
    Mismatch(&'static str),
    #[error("the authorization server does not support PKCE with S256")]
    NoPkce,
    #[error("the authorization server registers no clients: set `client_id` in the config")]
    NoRegistration,
    /// An error code of OAuth, such as `access_denied`.
    #[error("the authorization server answered `{0}`")]
    Refused(String),
    #[error("the authorization server has a problem of its own (status {0})")]
    ServerFailed(u16),
    #[error("this authorization is unknown: it was finished, has expired, or belongs to another user; start again")]
    UnknownState,
    #[error("the answer comes from another authorization server")]
    WrongIssuer,
    #[error("{0}")]
    MissingSecret(String),
    #[error("the server was started without a server that uses OAuth, and has to be started again")]
    NoKey,
    #[error("the system has no random numbers")]
    NoRandomness,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl AuthorizationError {
    pub(crate) fn fetching(what: &'static str, error: FetchError) -> Self {
        match error {
            FetchError::NotAllowed => Self::NotAllowed(what),
            error => Self::Unreadable { what, error },
        }
    }

    /// Whether what was sent to the authorization server is of no use any more.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Refused(code) if !TRANSIENT_CODES.contains(&code.as_str()))
    }

    /// The error of a request that starts or finishes an authorization.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::NotOAuth => ErrorCode::NotFound,
            Self::Refused(_) | Self::UnknownState | Self::WrongIssuer => ErrorCode::InvalidAuthorization,
            Self::MissingSecret(_) => ErrorCode::MissingSecret,
            Self::NoKey | Self::NoRandomness => ErrorCode::Internal,
            Self::Store(_) => ErrorCode::StorageUnavailable,
            Self::NotAllowed(_)
            | Self::Unreadable { .. }
            | Self::Invalid(_)
            | Self::NoServer
            | Self::Mismatch(_)
            | Self::NoPkce
            | Self::NoRegistration
            | Self::ServerFailed(_) => ErrorCode::AuthorizationUnavailable,
        }
    }

    /// With the name of the server.
    #[must_use]
    pub fn describe(&self, label: &str) -> ErrorInfo {
        ErrorInfo::new(self.code(), format!("The MCP server `{label}` cannot be authorized: {self}."))
    }
}
