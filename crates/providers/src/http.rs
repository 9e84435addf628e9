//! A provider behind an address: one request to a model's service, whose answer is read as it streams.
//!
//! ```text
//!   request ──kind──▶ JSON body ──ask──▶ HTTP ──▶ bytes ──▶ events ──kind──▶ ModelEvents
//!                                         │ refused, unreachable, too late, too much
//!                                         └──failure──▶ one ModelEvent::Failed
//! ```
//!
//! What the dialects mean is `protocol`'s business; here is what can go wrong on the way. `kind` knows where each dialect
//! is asked and how it is told who asks, `ask` sends a request and judges the head of the answer, `turn` reads the rest
//! as long as `pace` lets it, `failure` puts into words what went wrong, and `secrets` keeps the key out of them. `refused`
//! remembers what a service did not take back.
//!
//! Invariant: a turn ends with exactly one `End` or `Failed`, whatever the other side does, and never later than its
//! total time-out. Invariant: nothing is asked twice. Whether to try again is for the run loop to decide and to record;
//! the one exception is a service that does not take back its own words ([`Upstream`] says more).

mod dialect;
mod failure;
mod refused_history;
mod request;
mod retry_after;
mod secrets;
mod turn;
mod turn_timeouts;

pub use dialect::UpstreamDialect;
pub use reqwest::Url;
pub use secrets::{ResolvedText, SecretResolver};

use futures_util::stream;
use model::json::JsonObject;
use model::model_turn::{ModelEvent, ModelRequest};
use model::ports::{BoxStream, ModelClient};
use sse;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What an operator says of a service.
#[derive(Clone)]
pub struct HttpProviderSettings {
    /// The provider's name here, the first half of `provider/model`.
    pub name: String,
    /// What it speaks.
    pub dialect: UpstreamDialect,
    /// Where it is: everything before the dialect's own path, with or without `/v1`.
    pub base_url: Url,
    /// What names its key (`env:NAME`, `file:PATH`). Without one nobody is said to ask.
    pub api_key_ref: Option<String>,
    /// Headers beside ours; a value may name secrets. They win over the key's header.
    pub headers: BTreeMap<String, String>,
    /// Wishes for every turn, in the provider's own words. An agent's own win.
    pub options: Arc<JsonObject>,
    /// How long anything may take.
    pub timeouts: HttpTimeouts,
    /// How much may come.
    pub limits: ResponseLimits,
    /// The folder in which every exchange is kept as a cassette.
    pub cassette_dir: Option<PathBuf>,
}

/// How long a turn may take. The time-out for a connection is the [`Client`]'s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpTimeouts {
    /// From the request to the first event of the answer.
    pub first_byte: Duration,
    /// Between two pieces of the answer.
    pub idle: Duration,
    /// The whole turn.
    pub total: Duration,
}

impl Default for HttpTimeouts {
    fn default() -> Self {
        let (first_byte, idle) = (Duration::from_secs(180), Duration::from_secs(180));
        Self { first_byte, idle, total: Duration::from_secs(30 * 60) }
    }
}

/// How much of an answer is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseLimits {
    /// The longest line and the longest event.
    pub sse: sse::DecodeLimits,
    /// The whole answer, in bytes.
    pub response_bytes_max: u64,
}

impl Default for ResponseLimits {
    /// Pictures come as one line of several megabytes.
    fn default() -> Self {
        let most = 16 * 1024 * 1024;
        let events = sse::DecodeLimits { line_bytes_max: most, event_bytes_max: most };
        Self { sse: events, response_bytes_max: 256 * 1024 * 1024 }
    }
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
#[error("cannot set up the HTTP client: {0}")]
pub struct ProviderClientError(#[from] reqwest::Error);

/// The connections to all services. Clones share them.
#[derive(Clone, Debug)]
pub struct ProviderClient(reqwest::Client);

impl ProviderClient {
    /// How long a connection may take to be made, unless it is said.
    pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

    /// Proxies are those of the environment; whom to trust is the system's list.
    ///
    /// # Errors
    /// When the HTTP client cannot be set up.
    pub fn new(connect: Duration) -> Result<Self, ProviderClientError> {
        // A redirect would lead the key to somebody else.
        let builder = || {
            reqwest::Client::builder()
                .user_agent(concat!("headwater/", env!("CARGO_PKG_VERSION")))
                .redirect(reqwest::redirect::Policy::none())
                .connect_timeout(connect)
        };
        // A system without any list of whom to trust can still be asked over plain HTTP.
        Ok(Self(builder().build().or_else(|_| builder().tls_certs_only([]).build())?))
    }
}

/// Asks a service.
///
/// A service that refuses its own earlier words (`history_refused`) is asked once more, without its thoughts and ids.
/// The stream says so: `Unknown({"type": "headwater.history_resent", …})` comes before the second answer. Later turns of
/// the thread leave what was refused out from the start.
#[derive(Clone)]
pub struct HttpProvider {
    inner: Arc<HttpProviderInner>,
}

/// What all turns of a provider have in common.
struct HttpProviderInner {
    settings: HttpProviderSettings,
    endpoint: Url,
    client: ProviderClient,
    resolve_secret: SecretResolver,
    refused_history: refused_history::RefusedHistory,
}

impl HttpProvider {
    /// Asks through `client`; `lookup` finds what is named in `settings`, anew for each turn.
    #[must_use]
    pub fn new(settings: HttpProviderSettings, client: ProviderClient, lookup: SecretResolver) -> Self {
        let endpoint = settings.dialect.endpoint(&settings.base_url);
        Self {
            inner: Arc::new(HttpProviderInner {
                settings,
                endpoint,
                client,
                resolve_secret: lookup,
                refused_history: refused_history::RefusedHistory::default(),
            }),
        }
    }
}

impl ModelClient for HttpProvider {
    fn stream_turn(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent> {
        let turn = Box::new(turn::HttpTurn::new(Arc::clone(&self.inner), request));
        Box::pin(stream::unfold(turn, |mut turn| async move { Some((Box::pin(turn.next()).await?, turn)) }))
    }
}

/// Neither headers nor the client are shown: secrets may be in them.
impl fmt::Debug for HttpProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HttpProviderSettings { name, dialect: kind, .. } = &self.inner.settings;
        f.debug_struct("Upstream").field("name", name).field("kind", kind).finish_non_exhaustive()
    }
}
