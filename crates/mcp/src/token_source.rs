//! Bearer tokens for MCP servers with a URL.

use model::UserId;
use model::definition::McpAuth;
use model::error::ErrorInfo;
use model::ports::BoxFuture;
use std::fmt;
use std::sync::Arc;

/// Where the transport gets the tokens of its requests from.
pub trait TokenSource: Send + Sync {
    /// The token for the next request, if it has to carry one. Asked before every request; cheap while the token is fresh. An
    /// error ends the request before anything is sent.
    fn bearer_token(&self, server: &TokenUser) -> BoxFuture<'static, Result<Option<BearerToken>, ErrorInfo>>;

    /// The server refused a request. With a token, that request is sent once more; when it is refused again, the transport
    /// fails it with `mcp_unauthorized` and does not ask again.
    fn replace_token(
        &self,
        server: &TokenUser,
        refusal: TokenRefusal,
    ) -> BoxFuture<'static, Result<BearerToken, ErrorInfo>>;
}

/// A server with a URL, and who uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenUser {
    pub user: UserId,
    /// The server's name in the configuration.
    pub label: String,
    pub url: String,
    pub auth: Arc<McpAuth>,
}

/// How a server refused a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenRefusal {
    /// 401, or 403 with a challenge.
    pub status: u16,
    /// The values of `WWW-Authenticate`.
    pub challenges: Vec<String>,
    /// The token that the request carried.
    pub token: Option<BearerToken>,
}

/// A credential. Nothing prints it.
#[derive(Clone, PartialEq, Eq)]
pub struct BearerToken(String);

impl BearerToken {
    /// `None` if the text cannot be part of a header.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let is_valid = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_valid.then(|| Self(text.to_owned()))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken")
    }
}
