//! The HTTP client, and what all turns of a provider share.

use super::refused_history::RefusedHistory;
use super::secrets::SecretResolver;
use super::settings::HttpProviderSettings;
use reqwest::Url;
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
#[error("cannot set up the HTTP client: {0}")]
pub struct ProviderClientError(#[from] reqwest::Error);

/// The connections to all services. Clones share them.
#[derive(Clone, Debug)]
pub struct ProviderClient(pub(super) reqwest::Client);

impl ProviderClient {
    pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

    /// Uses the proxies of the environment and the system's trust store.
    pub fn new(connect_timeout: Duration) -> Result<Self, ProviderClientError> {
        // A redirect would take the API key to another host.
        let builder = || {
            reqwest::Client::builder()
                .user_agent(concat!("headwater/", env!("CARGO_PKG_VERSION")))
                .redirect(reqwest::redirect::Policy::none())
                .connect_timeout(connect_timeout)
        };
        // Without a system trust store, plain HTTP still works.
        Ok(Self(builder().build().or_else(|_| builder().tls_certs_only([]).build())?))
    }
}

/// Shared by all turns of a provider.
pub(super) struct HttpProviderInner {
    pub(super) settings: HttpProviderSettings,
    pub(super) endpoint: Url,
    pub(super) client: ProviderClient,
    pub(super) resolve_secret: SecretResolver,
    pub(super) refused_history: RefusedHistory,
}
