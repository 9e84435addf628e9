//! A model service over HTTP: one request per turn, whose response is read as it streams.
//!
//! ```text
//!   turn ──dialect──▶ JSON body ──request──▶ HTTP ──▶ bytes ──▶ SSE events ──dialect──▶ ModelEvents
//!                                             │ refused, unreachable, too slow, too large
//!                                             └──failure──▶ one ModelEvent::Failed
//! ```
//!
//! The crate `upstream` knows what the dialects mean; here is the transport. `transport` has the connections, `request` sends a request and checks the head
//! of the response, `response_reader` reads its body within the limits of `turn_timeouts`, `turn` puts both together,
//! `failure` describes transport failures,
//! and `secrets` keeps the API key out of everything. `refused_history` remembers what a service did not accept back.
//!
//! Invariant: a turn ends with exactly one `End` or `Failed`, whatever the service does, and within its total time-out.
//! Invariant: a request is sent once. The run loop decides about retries and records them; the one exception is a service
//! that does not accept its own earlier output (see [`HttpProvider`]).

mod client;
mod failure;
mod history_size;
mod refused_history;
mod request;
mod response_reader;
mod retry_after;
mod secrets;
mod settings;
mod transport;
mod turn;
mod turn_timeouts;

pub use crate::dialect::UpstreamDialect;
pub use client::{ProviderClient, ProviderClientError};
pub use secrets::{ResolvedText, SecretResolver};
pub use settings::{HttpProviderSettings, HttpTimeouts, ResponseLimits};
pub use url::Url;

use client::HttpProviderInner;
use model::model_turn::{ModelEvent, ModelRequest};
use model::ports::{BoxStream, ModelClient};
use refused_history::RefusedHistory;
use std::fmt;
use std::sync::Arc;

/// Streams turns from a service.
///
/// When a service refuses its own earlier output (`history_refused`), the request is sent once more without reasoning and
/// ids. The stream reports this: `Unknown({"type": "headwater.history_resent", …})` precedes the second response. Later
/// turns of the thread omit the refused items from the start.
#[derive(Clone)]
pub struct HttpProvider {
    inner: Arc<HttpProviderInner>,
}

impl HttpProvider {
    /// `resolve_secret` resolves the references in `settings`, for each turn anew.
    pub fn new(settings: HttpProviderSettings, client: ProviderClient, resolve_secret: SecretResolver) -> Self {
        let endpoint = settings.dialect.endpoint(&settings.base_url);
        // Every `Url` is a `Uri`, unless it is longer than 64 KiB; requests to such a URL fail to connect.
        let uri = http::Uri::try_from(endpoint.as_str()).unwrap_or_default();
        let host = endpoint.host_str().unwrap_or_default();
        let host = endpoint.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let refused_history = RefusedHistory::default();
        Self { inner: Arc::new(HttpProviderInner { settings, host, uri, client, resolve_secret, refused_history }) }
    }
}

impl ModelClient for HttpProvider {
    fn stream_turn(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent> {
        Box::pin(turn::HttpTurn::new(Arc::clone(&self.inner), request))
    }

    fn takes_image_urls(&self, _model: &str) -> bool {
        self.inner.settings.takes_image_urls
    }
}

/// Headers and the client may contain secrets.
impl fmt::Debug for HttpProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HttpProviderSettings { name, dialect, .. } = &self.inner.settings;
        f.debug_struct("HttpProvider").field("name", name).field("dialect", dialect).finish_non_exhaustive()
    }
}
