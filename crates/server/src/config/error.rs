//! Errors of the configuration, one line each.

use model::limits::SECRET_CHARS_MIN;
use providers::scripted::ScenarioError;
use std::io;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("{origin}: {source}")]
    Read { origin: String, source: io::Error },
    #[error("{origin}:{line}: {key}: {message}")]
    Invalid {
        origin: String,
        /// Starts at 1.
        line: usize,
        /// With its tables.
        key: String,
        message: String,
    },
    #[error(transparent)]
    Tools(#[from] tools::ToolboxError),
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    #[error(transparent)]
    Client(#[from] providers::http::ProviderClientError),
    #[error("`{0}` in the environment is not a URL such as https://example.com/v1")]
    EnvUrl(&'static str),
    #[error(
        "`{0}` in the environment has fewer than {SECRET_CHARS_MIN} characters, so it cannot be redacted; unset it if the service needs no key"
    )]
    EnvKey(&'static str),
    #[error(transparent)]
    Database(store::PostgresOpenError),
    #[error("`{0}` is not an address to listen on: use ip:port, such as 127.0.0.1:8787")]
    Listen(String),
    #[error(
        "listening on {0} without authentication would let everybody in: listen on 127.0.0.1, or set [auth] mode = \"keys\""
    )]
    ExposedWithoutAuth(std::net::SocketAddr),
}

impl ConfigError {
    pub(super) fn line(&self) -> Option<usize> {
        match self {
            Self::Invalid { line, .. } => Some(*line),
            Self::Read { .. }
            | Self::Tools(_)
            | Self::Scenario(_)
            | Self::Client(_)
            | Self::EnvUrl(_)
            | Self::EnvKey(_)
            | Self::Database(_)
            | Self::Listen(_)
            | Self::ExposedWithoutAuth(_) => None,
        }
    }
}
