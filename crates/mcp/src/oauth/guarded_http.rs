//! Sends the requests of OAuth, all of them through the guard.

use super::error::AuthorizationError;
use bytes::Bytes;
use fetch::{FetchLimits, GuardedClient, GuardedMethod, GuardedRequest, GuardedResponse, UrlGuard, UrlRules};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use url::Url;

/// Documents and answers are much smaller.
const BODY_BYTES_MAX: usize = 256 * 1024;
const REDIRECTS_MAX: u32 = 3;
const TIMEOUT: Duration = Duration::from_secs(10);

/// What an MCP server is sent to learn how it refuses.
const PROBE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"ping"}"#;

/// Asks the servers that one MCP server names.
#[derive(Clone)]
pub(super) struct GuardedHttp {
    client: GuardedClient,
    permits: Arc<Semaphore>,
    /// The operator's own URL is plain HTTP.
    allows_plain_http: bool,
}

impl GuardedHttp {
    /// `server` is the URL that the operator wrote.
    pub(super) fn new(rules: &UrlRules, server: &Url, permits: Arc<Semaphore>) -> Self {
        let limits = FetchLimits {
            bytes_max: BODY_BYTES_MAX,
            redirects_max: REDIRECTS_MAX,
            total_timeout: TIMEOUT,
            ..FetchLimits::default()
        };
        let guard = UrlGuard::new(rules.clone()).with_trusted_url(server.clone());
        Self { client: GuardedClient::new(guard, limits), permits, allows_plain_http: server.scheme() == "http" }
    }

    /// An endpoint that a server names. Behind an MCP server with TLS, all have it.
    pub(super) fn parse_endpoint(&self, text: &str, what: &'static str) -> Result<Url, AuthorizationError> {
        let url = Url::parse(text).map_err(|_| AuthorizationError::Invalid(what))?;
        let is_allowed = url.scheme() == "https" || (self.allows_plain_http && url.scheme() == "http");
        let is_plain = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
        if is_allowed && is_plain && url.has_host() { Ok(url) } else { Err(AuthorizationError::Invalid(what)) }
    }

    /// A document; `None` if there is none, or it is none of this type.
    pub(super) async fn get_json<T: DeserializeOwned>(
        &self,
        url: &Url,
        what: &'static str,
    ) -> Result<Option<T>, AuthorizationError> {
        let headers = vec![("accept", "application/json".to_owned()), protocol_version()];
        let request = GuardedRequest { method: GuardedMethod::Get, url: url.to_string(), headers, body: Bytes::new() };
        let response = self.send(request, what).await?;
        match response.status {
            200 => Ok(serde_json::from_slice(&response.body).ok()),
            status @ 500.. => Err(AuthorizationError::ServerFailed(status)),
            _ => Ok(None),
        }
    }

    pub(super) async fn post_json(
        &self,
        url: &Url,
        body: Map<String, Value>,
        what: &'static str,
    ) -> Result<GuardedResponse, AuthorizationError> {
        let headers = vec![("content-type", "application/json".to_owned()), ("accept", "application/json".to_owned())];
        let body = Bytes::from(Value::from(body).to_string());
        self.send(GuardedRequest { method: GuardedMethod::Post, url: url.to_string(), headers, body }, what).await
    }

    /// `authorization` is the value of the header.
    pub(super) async fn post_form(
        &self,
        url: &Url,
        fields: &[(&str, &str)],
        authorization: Option<String>,
        what: &'static str,
    ) -> Result<GuardedResponse, AuthorizationError> {
        let form = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let mut headers = vec![
            ("content-type", "application/x-www-form-urlencoded".to_owned()),
            ("accept", "application/json".to_owned()),
        ];
        headers.extend(authorization.map(|value| ("authorization", value)));
        let body = Bytes::from(form);
        self.send(GuardedRequest { method: GuardedMethod::Post, url: url.to_string(), headers, body }, what).await
    }

    /// How the MCP server refuses a request without a token; nothing if it does not.
    pub(super) async fn probe(&self, server: &Url) -> Result<Vec<String>, AuthorizationError> {
        let headers = vec![
            ("content-type", "application/json".to_owned()),
            ("accept", "application/json, text/event-stream".to_owned()),
            protocol_version(),
        ];
        let body = Bytes::from_static(PROBE.as_bytes());
        let request = GuardedRequest { method: GuardedMethod::Post, url: server.to_string(), headers, body };
        let response = self.send(request, "the MCP server").await?;
        Ok(if response.status == 401 { response.header_values("www-authenticate") } else { Vec::new() })
    }

    async fn send(&self, request: GuardedRequest, what: &'static str) -> Result<GuardedResponse, AuthorizationError> {
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await;
        self.client.send(request).await.map_err(|error| AuthorizationError::fetching(what, error))
    }
}

fn protocol_version() -> (&'static str, String) {
    ("mcp-protocol-version", "2025-11-25".to_owned())
}
