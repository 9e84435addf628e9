//! Why a server cannot start with these settings: one line each.

use providers::scripted::ScenarioError;
use std::io;

/// What is wrong with the settings.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// The file is not there, or not ours to read.
    #[error("{origin}: {source}")]
    Read {
        /// The file.
        origin: String,
        /// What the system says.
        source: io::Error,
    },
    /// Something in the file.
    #[error("{origin}:{line}: {key}: {message}")]
    Invalid {
        /// The file.
        origin: String,
        /// The line, from 1.
        line: usize,
        /// The key, with its table.
        key: String,
        /// What is wrong, and what would be right.
        message: String,
    },
    /// Tools cannot be called at all.
    #[error(transparent)]
    Tools(#[from] tools::ToolboxError),
    /// A scenario file that it names.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// Services cannot be asked at all.
    #[error(transparent)]
    Client(#[from] providers::http::ProviderClientError),
    /// A variable of the environment.
    #[error("`{0}` in the environment is not a URL such as https://example.com/v1")]
    EnvUrl(&'static str),
    /// An address that is none.
    #[error("`{0}` is not an address to listen on: use ip:port, such as 127.0.0.1:8787")]
    Listen(String),
    /// Everybody would be let in.
    #[error(
        "listening on {0} without authentication would let everybody in: listen on 127.0.0.1, or set [auth] mode = \"keys\""
    )]
    ExposedWithoutAuth(std::net::SocketAddr),
}

impl ConfigError {
    /// The line of the file that it is about.
    pub(super) fn line(&self) -> Option<usize> {
        match self {
            Self::Invalid { line, .. } => Some(*line),
            Self::Read { .. }
            | Self::Tools(_)
            | Self::Scenario(_)
            | Self::Client(_)
            | Self::EnvUrl(_)
            | Self::Listen(_)
            | Self::ExposedWithoutAuth(_) => None,
        }
    }
}
