//! The HTTP client, and what all turns of a provider share.

use super::refused_history::RefusedHistory;
use super::secrets::SecretResolver;
use super::settings::HttpProviderSettings;
use super::transport::Transport;
use http::Uri;
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
#[error("cannot set up the HTTP client: {0}")]
pub struct ProviderClientError(#[from] tokio_rustls::rustls::Error);

/// The connections to all services. Clones share them.
#[derive(Clone, Debug)]
pub struct ProviderClient(pub(super) Transport);

impl ProviderClient {
    pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

    /// Uses the proxies of the environment and the system's trust store.
    pub fn new(connect_timeout: Duration) -> Result<Self, ProviderClientError> {
        Ok(Self(Transport::new(connect_timeout)?))
    }
}

/// Shared by all turns of a provider.
pub(super) struct HttpProviderInner {
    pub(super) settings: HttpProviderSettings,
    /// The service in error messages, with the port unless it is the default.
    pub(super) host: String,
    /// Where requests are sent.
    pub(super) uri: Uri,
    pub(super) client: ProviderClient,
    pub(super) resolve_secret: SecretResolver,
    pub(super) refused_history: RefusedHistory,
}
