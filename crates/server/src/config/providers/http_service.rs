//! Providers behind a URL, from the file and from the environment.

use super::super::ConfigError;
use super::super::diagnostics::Diagnostics;
use super::super::limits::DURATION_MS_MAX;
use super::super::secrets::is_long_enough;
use super::super::table::{ConfigTable, ConfigValue};
use super::super::{headers, secrets, urls};
use providers::http::{
    HttpProvider, HttpProviderSettings, HttpTimeouts, ProviderClient, ProviderClientError, ResponseLimits,
    UpstreamDialect, Url,
};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Keys of an HTTP service, in addition to `kind`.
pub(super) const KEYS: [&str; 12] = [
    "base_url",
    "api_key",
    "headers",
    "options",
    "image_urls",
    "connect_timeout_ms",
    "first_byte_timeout_ms",
    "idle_timeout_ms",
    "total_timeout_ms",
    "line_bytes_max",
    "event_bytes_max",
    "response_bytes_max",
];

/// Name, dialect and variables of the providers that the environment enables.
const ENV_SERVICES: [(&str, UpstreamDialect, &str, &str); 3] = [
    ("openai", UpstreamDialect::Responses, "OPENAI_BASE_URL", "OPENAI_API_KEY"),
    ("openai-chat", UpstreamDialect::Chat, "OPENAI_BASE_URL", "OPENAI_API_KEY"),
    ("anthropic", UpstreamDialect::Messages, "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
];

/// One connection pool for all services with the same connect time-out.
#[derive(Default)]
pub(super) struct HttpClients {
    pub(super) by_connect_timeout: BTreeMap<Duration, ProviderClient>,
    /// Where cassettes are recorded.
    pub(super) record_dir: Option<PathBuf>,
}

impl HttpClients {
    pub(super) fn build_upstream(
        &mut self,
        settings: HttpProviderSettings,
        connect: Duration,
    ) -> Result<HttpProvider, ProviderClientError> {
        let client = match self.by_connect_timeout.get(&connect) {
            Some(client) => client.clone(),
            None => ProviderClient::new(connect)?,
        };
        self.by_connect_timeout.insert(connect, client.clone());
        let settings = HttpProviderSettings { cassette_dir: self.record_dir.clone(), ..settings };
        Ok(HttpProvider::new(settings, client, Arc::new(|text| Box::pin(secrets::resolve_secrets(text)))))
    }
}

pub(super) fn read_service(
    name: &str,
    kind: UpstreamDialect,
    table: &ConfigTable<'_>,
) -> Option<(HttpProviderSettings, Duration)> {
    let base_url = match table.get("base_url") {
        Some(item) => urls::check_http_url(&item, item.text()?)?,
        None => kind.default_base_url().to_owned(),
    };
    let ms = |key: &str| table.number(key, 1..=DURATION_MS_MAX).map(Duration::from_millis);
    let bytes = |key: &str| table.get(key)?.number(1..=u64::MAX).and_then(|number| usize::try_from(number).ok());
    let (mut timeouts, mut limits) = (HttpTimeouts::default(), ResponseLimits::default());
    timeouts.first_byte = ms("first_byte_timeout_ms").unwrap_or(timeouts.first_byte);
    timeouts.idle = ms("idle_timeout_ms").unwrap_or(timeouts.idle);
    timeouts.total = ms("total_timeout_ms").unwrap_or(timeouts.total);
    limits.sse.line_bytes_max = bytes("line_bytes_max").unwrap_or(limits.sse.line_bytes_max);
    limits.sse.event_bytes_max = bytes("event_bytes_max").unwrap_or(limits.sse.event_bytes_max);
    limits.response_bytes_max = table.number("response_bytes_max", 1..=u64::MAX).unwrap_or(limits.response_bytes_max);
    let base_url = Url::parse(&base_url).ok()?;
    let settings = HttpProviderSettings {
        name: name.to_owned(),
        dialect: kind,
        takes_image_urls: read_image_urls(table).unwrap_or(kind.is_public_service(&base_url)),
        base_url,
        api_key_ref: table.get("api_key").and_then(|item| read_api_key(&item)),
        headers: headers::read_headers(table),
        options: table.get("options").and_then(|item| item.json_object()).map(Arc::new).unwrap_or_default(),
        timeouts,
        limits,
        cassette_dir: None,
    };
    Some((settings, ms("connect_timeout_ms").unwrap_or(ProviderClient::CONNECT_TIMEOUT)))
}

/// `pass` leaves web addresses of images to the service, `fetch` gives it the bytes.
fn read_image_urls(table: &ConfigTable<'_>) -> Option<bool> {
    let item = table.get("image_urls")?;
    match item.text()? {
        "pass" => Some(true),
        "fetch" => Some(false),
        _ => {
            item.report_error("expected `pass` or `fetch`");
            None
        }
    }
}

/// A reference to a secret, never the key itself.
fn read_api_key(item: &ConfigValue<'_>) -> Option<String> {
    let text = item.text()?;
    if !secrets::is_secret_ref(text) {
        item.report_error("do not write keys into this file; use `env:NAME` or `file:PATH`");
        return None;
    }
    Some(secrets::check_secrets(item, text))
}

pub(super) fn env_key_of_provider(provider: &str) -> Option<&'static str> {
    ENV_SERVICES.iter().find(|(name, ..)| *name == provider).map(|(.., key)| *key)
}

/// Skips names that the file uses. If only the URL is set, no key is sent.
pub(super) fn services_from_env(
    environment: fn(&str) -> Option<String>,
    taken: &[&str],
    findings: &Diagnostics<'_>,
) -> Vec<(&'static str, HttpProviderSettings)> {
    let set = |name: &str| environment(name).filter(|value| !value.is_empty());
    let mut services = Vec::new();
    for (name, kind, base_url, key) in ENV_SERVICES.iter().filter(|(name, ..)| !taken.contains(name)) {
        let (url, secret) = (set(base_url), set(key));
        let key_is_set = secret.is_some();
        if secret.is_some_and(|secret| !is_long_enough(&secret)) && findings.is_new_cause(&format!("env:{key}")) {
            findings.push(ConfigError::EnvKey(key));
        }
        if url.is_none() && !key_is_set {
            continue;
        }
        let url = Url::parse(url.as_deref().unwrap_or(kind.default_base_url())).ok();
        let Some(url) = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host()) else {
            findings.push(ConfigError::EnvUrl(base_url));
            continue;
        };
        let settings = HttpProviderSettings {
            name: (*name).to_owned(),
            dialect: *kind,
            takes_image_urls: kind.is_public_service(&url),
            base_url: url,
            api_key_ref: key_is_set.then(|| format!("env:{key}")),
            headers: BTreeMap::new(),
            options: Arc::default(),
            timeouts: HttpTimeouts::default(),
            limits: ResponseLimits::default(),
            cassette_dir: None,
        };
        services.push((*name, settings));
    }
    services
}
