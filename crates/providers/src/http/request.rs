//! Sends the request and checks the head of the response: only an event stream is read further.

use super::client::HttpProviderInner;
use super::failure::FailureSource;
use super::history_size::is_long_history;
use super::retry_after::parse_retry_after_ms;
use super::secrets::TurnSecrets;
use super::transport::ResponseBody;
use super::turn_timeouts::TurnTimeouts;
use bytes::Bytes;
use heavy_work::run_in_place_if;
use http::Response;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http_body_util::BodyExt as _;
use model::json::JsonObject;
use model::model_turn::{ModelFailure, ModelRequest};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::sync::Arc;
use upstream::RequestTarget;

/// How much of an error response is read.
const ERROR_BODY_BYTES_MAX: usize = 64 * 1024;
/// Accepted types of an event stream. Some services send none, or a generic one.
const STREAM_TYPES: [&str; 4] = ["text/event-stream", "", "text/plain", "application/octet-stream"];

pub(super) struct PreparedRequest {
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// Recorded in the raw items of the response.
    pub(super) origin: String,
}

/// Builds the request of a turn. Adds the provider's options to the turn, and omits what the service is known to refuse.
pub(super) async fn prepare_request(
    shared: &HttpProviderInner,
    turn: &mut ModelRequest,
    secrets: &mut TurnSecrets,
) -> Result<PreparedRequest, ModelFailure> {
    let settings = &shared.settings;
    turn.provider_options = merge_options(&settings.options, &turn.provider_options);
    let key = match &settings.api_key_ref {
        Some(reference) => Some(resolve_secret(shared, reference, secrets).await?),
        None => None,
    };
    let mut headers = HeaderMap::new();
    for (name, value) in settings.dialect.headers(key.as_deref(), &turn.provider_options) {
        insert_header(shared, &mut headers, name, &value)?;
    }
    for (name, value) in &settings.headers {
        let value = resolve_secret(shared, value, secrets).await?;
        insert_header(shared, &mut headers, name, &value)?;
    }
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let origin = item_origin(shared, key.as_deref(), model_name(turn));
    turn.history =
        shared.refused_history.strip_refused(&turn.thread, &origin, &turn.history, settings.dialect.refusal_scope());
    let (dialect, target) = (settings.dialect, request_target(turn, &origin));
    let is_long = is_long_history(dialect.unwritten_entries(turn, &target));
    let body = run_in_place_if(is_long, || dialect.write_request(turn, &target));
    Ok(PreparedRequest { headers, body: body.into(), origin })
}

/// What the request of a turn is built for.
pub(super) fn request_target<'a>(turn: &'a ModelRequest, origin: &'a str) -> RequestTarget<'a> {
    RequestTarget { model: model_name(turn), origin, store: false }
}

/// Without the provider.
fn model_name(turn: &ModelRequest) -> &str {
    turn.model.split_once('/').map_or(turn.model.as_str(), |(_, model)| model)
}

/// The agent's options replace the provider's.
fn merge_options(provider: &Arc<JsonObject>, agent: &Arc<JsonObject>) -> Arc<JsonObject> {
    if provider.is_empty() {
        return Arc::clone(agent);
    }
    let mut options = JsonObject::clone(provider);
    options.extend(agent.iter().map(|(name, value)| (name.clone(), value.clone())));
    Arc::new(options)
}

async fn resolve_secret(
    shared: &HttpProviderInner,
    text: &str,
    secrets: &mut TurnSecrets,
) -> Result<String, ModelFailure> {
    let resolved = (shared.resolve_secret)(text.to_owned()).await;
    let resolved = resolved.map_err(|why| FailureSource::from_inner(shared).missing_credentials(&why))?;
    secrets.add_values(resolved.secret_values);
    Ok(resolved.text)
}

/// The value may be a secret: no error quotes it, and `Debug` of the request hides it.
fn insert_header(
    shared: &HttpProviderInner,
    headers: &mut HeaderMap,
    name: &str,
    value: &str,
) -> Result<(), ModelFailure> {
    let invalid = || {
        let why = format!("the header `{name}` has an invalid name or value");
        FailureSource::from_inner(shared).missing_credentials(&why)
    };
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
    let mut value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| invalid())?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(())
}

/// Raw items may be readable only with the same API key and model, so an origin has both; the key as a fingerprint.
fn item_origin(shared: &HttpProviderInner, key: Option<&str>, model: &str) -> String {
    let kind = shared.settings.dialect.config_name();
    let host = FailureSource::from_inner(shared).host;
    let path = shared.settings.base_url.path().trim_end_matches('/');
    let key = key.map_or_else(|| "open".to_owned(), key_fingerprint);
    format!("{kind}:{host}{path}:{key}:{model}")
}

fn key_fingerprint(key: &str) -> String {
    Sha256::digest(key.as_bytes()).iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the response if it is an event stream.
pub(super) async fn send_request(
    shared: &HttpProviderInner,
    prepared: &PreparedRequest,
    timeouts: &TurnTimeouts,
    secrets: &TurnSecrets,
) -> Result<Response<ResponseBody>, ModelFailure> {
    let source = FailureSource::from_inner(shared);
    let posting = shared.client.0.post(&shared.uri, &prepared.headers, prepared.body.clone());
    let response = timeouts.timeout(&source, posting).await?;
    let response = response.map_err(|error| source.request_failed(&error))?;
    let status = response.status();
    let media_type = media_type_of(response.headers());
    if status.is_success() && STREAM_TYPES.contains(&media_type.as_str()) {
        return Ok(response);
    }
    let retry_after_ms = parse_retry_after_ms(response.headers());
    let body = read_body_prefix(response, timeouts, &source).await;
    // Redact before truncating: half a key is too much as well.
    let body = secrets.redact(&String::from_utf8_lossy(&body));
    if !status.is_success() || has_error_field(&body) {
        return Err(shared.settings.dialect.classify_error(status.as_u16(), body.as_bytes(), retry_after_ms));
    }
    Err(source.protocol_error(&match media_type.as_str() {
        "text/html" => "returned a web page instead of an event stream; is this the right `base_url`?".to_owned(),
        "application/json" => "returned one JSON document instead of an event stream; it does not stream".to_owned(),
        other => format!("returned `{other}` instead of an event stream"),
    }))
}

fn media_type_of(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Some gateways send errors with the status 200.
fn has_error_field(body: &str) -> bool {
    serde_json::from_str::<Value>(body).is_ok_and(|value| value.get("error").is_some_and(|error| !error.is_null()))
}

/// Stops without an error at a time-out.
async fn read_body_prefix(
    mut response: Response<ResponseBody>,
    timeouts: &TurnTimeouts,
    source: &FailureSource<'_>,
) -> Vec<u8> {
    let mut body = Vec::new();
    while body.len() < ERROR_BODY_BYTES_MAX
        && let Ok(Some(Ok(frame))) = timeouts.timeout(source, response.body_mut().frame()).await
    {
        body.extend_from_slice(frame.data_ref().map_or(&[], |chunk| chunk));
    }
    body.truncate(ERROR_BODY_BYTES_MAX);
    body
}
