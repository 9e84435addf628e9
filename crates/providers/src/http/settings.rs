//! What an operator configures for a service.

use crate::dialect::UpstreamDialect;
use model::json::JsonObject;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

#[derive(Clone)]
pub struct HttpProviderSettings {
    /// The provider's name, the first half of `provider/model`.
    pub name: String,
    pub dialect: UpstreamDialect,
    /// Everything before the dialect's own path, with or without `/v1`.
    pub base_url: Url,
    /// Reference to the API key (`env:NAME`, `file:PATH`). Without one, requests have no credentials.
    pub api_key_ref: Option<String>,
    /// Additional headers, whose values may have secret references. They replace the header of the API key.
    pub headers: BTreeMap<String, String>,
    /// Options for every turn, in the provider's own field names. An agent's options replace them.
    pub options: Arc<JsonObject>,
    /// Whether it may be given web addresses of images, which it then fetches itself.
    pub takes_image_urls: bool,
    pub timeouts: HttpTimeouts,
    pub limits: ResponseLimits,
    /// The folder in which every exchange is recorded as a cassette.
    pub cassette_dir: Option<PathBuf>,
}

/// Time-outs of a turn. The one for connecting belongs to the [`super::ProviderClient`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpTimeouts {
    /// From the request to the first event of the response.
    pub first_byte: Duration,
    /// Between two chunks of the response.
    pub idle: Duration,
    pub total: Duration,
}

impl Default for HttpTimeouts {
    fn default() -> Self {
        let (first_byte, idle) = (Duration::from_secs(180), Duration::from_secs(180));
        Self { first_byte, idle, total: Duration::from_secs(30 * 60) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseLimits {
    /// The longest line and the longest event.
    pub sse: sse::DecodeLimits,
    pub response_bytes_max: u64,
}

impl Default for ResponseLimits {
    /// Images come as one line of several megabytes.
    fn default() -> Self {
        let bytes_max = 16 * 1024 * 1024;
        let sse = sse::DecodeLimits { line_bytes_max: bytes_max, event_bytes_max: bytes_max };
        Self { sse, response_bytes_max: 256 * 1024 * 1024 }
    }
}
