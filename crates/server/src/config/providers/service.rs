//! Services behind an address: what the file says of one, and those that the environment switches on.

use super::super::ConfigError;
use super::super::findings::Findings;
use super::super::table::{Item, Table};
use super::super::tools::LONGEST_MS;
use super::super::{agents, http_tool, secret};
use providers::http::{
    HttpProvider, HttpProviderSettings, HttpTimeouts, ProviderClient, ProviderClientError, ResponseLimits,
    UpstreamDialect, Url,
};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What has a place in the table of a service, beside `kind`.
pub(super) const KEYS: [&str; 11] = [
    "base_url",
    "api_key",
    "headers",
    "options",
    "connect_timeout_ms",
    "first_byte_timeout_ms",
    "idle_timeout_ms",
    "total_timeout_ms",
    "line_bytes_max",
    "event_bytes_max",
    "response_bytes_max",
];

/// Names of providers that the environment switches on, what they speak, and which variables say so.
const KNOWN: [(&str, UpstreamDialect, &str, &str); 3] = [
    ("openai", UpstreamDialect::Responses, "OPENAI_BASE_URL", "OPENAI_API_KEY"),
    ("openai-chat", UpstreamDialect::Chat, "OPENAI_BASE_URL", "OPENAI_API_KEY"),
    ("anthropic", UpstreamDialect::Messages, "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
];

/// One pool of connections for all services that wait equally long for one.
#[derive(Default)]
pub(super) struct Clients {
    pub(super) made: BTreeMap<Duration, ProviderClient>,
    /// Where exchanges are kept.
    pub(super) record: Option<PathBuf>,
}

impl Clients {
    pub(super) fn service(
        &mut self,
        settings: HttpProviderSettings,
        connect: Duration,
    ) -> Result<HttpProvider, ProviderClientError> {
        let client = match self.made.get(&connect) {
            Some(client) => client.clone(),
            None => ProviderClient::new(connect)?,
        };
        self.made.insert(connect, client.clone());
        let settings = HttpProviderSettings { cassette_dir: self.record.clone(), ..settings };
        Ok(HttpProvider::new(settings, client, Arc::new(|text| Box::pin(secret::fill(text)))))
    }
}

/// What the file says.
pub(super) fn read(name: &str, kind: UpstreamDialect, table: &Table<'_>) -> Option<(HttpProviderSettings, Duration)> {
    let base_url = match table.get("base_url") {
        Some(item) => http_tool::address(&item, item.text()?)?,
        None => kind.default_base_url().to_owned(),
    };
    let ms = |key: &str| table.number(key, 1..=LONGEST_MS).map(Duration::from_millis);
    let bytes = |key: &str| table.get(key)?.number(1..=u64::MAX).and_then(|number| usize::try_from(number).ok());
    let (mut timeouts, mut limits) = (HttpTimeouts::default(), ResponseLimits::default());
    timeouts.first_byte = ms("first_byte_timeout_ms").unwrap_or(timeouts.first_byte);
    timeouts.idle = ms("idle_timeout_ms").unwrap_or(timeouts.idle);
    timeouts.total = ms("total_timeout_ms").unwrap_or(timeouts.total);
    limits.sse.line_bytes_max = bytes("line_bytes_max").unwrap_or(limits.sse.line_bytes_max);
    limits.sse.event_bytes_max = bytes("event_bytes_max").unwrap_or(limits.sse.event_bytes_max);
    limits.response_bytes_max = table.number("response_bytes_max", 1..=u64::MAX).unwrap_or(limits.response_bytes_max);
    let settings = HttpProviderSettings {
        name: name.to_owned(),
        dialect: kind,
        base_url: Url::parse(&base_url).ok()?,
        api_key_ref: table.get("api_key").and_then(|item| key(&item)),
        headers: http_tool::headers(table),
        options: table.get("options").and_then(|item| agents::options(&item)).unwrap_or_default(),
        timeouts,
        limits,
        cassette_dir: None,
    };
    Some((settings, ms("connect_timeout_ms").unwrap_or(ProviderClient::CONNECT_TIMEOUT)))
}

/// A key is named here, never written.
fn key(item: &Item<'_>) -> Option<String> {
    let text = item.text()?;
    if !secret::is_reference(text) {
        item.refuse("a key does not belong in this file; write `env:NAME` or `file:PATH`");
        return None;
    }
    Some(secret::checked(item, text))
}

/// What the environment says, for names that the file does not use. Where only an address is said, no key is sent.
pub(super) fn told(
    environment: fn(&str) -> Option<String>,
    taken: &[&str],
    findings: &Findings<'_>,
) -> Vec<(&'static str, HttpProviderSettings)> {
    let set = |name: &str| environment(name).filter(|value| !value.is_empty());
    let mut told = Vec::new();
    for (name, kind, base_url, key) in KNOWN.iter().filter(|(name, ..)| !taken.contains(name)) {
        let (address, key_is_set) = (set(base_url), set(key).is_some());
        if address.is_none() && !key_is_set {
            continue;
        }
        let address = Url::parse(address.as_deref().unwrap_or(kind.default_base_url())).ok();
        let Some(address) = address.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host()) else {
            findings.push(ConfigError::Address(base_url));
            continue;
        };
        let settings = HttpProviderSettings {
            name: (*name).to_owned(),
            dialect: *kind,
            base_url: address,
            api_key_ref: key_is_set.then(|| format!("env:{key}")),
            headers: BTreeMap::new(),
            options: Arc::default(),
            timeouts: HttpTimeouts::default(),
            limits: ResponseLimits::default(),
            cassette_dir: None,
        };
        told.push((*name, settings));
    }
    told
}
