//! Asks, and judges the head of the answer: only an event stream is read on.

use super::HttpProviderInner;
use super::failure::FailureSource;
use super::retry_after::parse_retry_after_ms;
use super::secrets::TurnSecrets;
use super::turn_timeouts::TurnTimeouts;
use ::upstream::RequestTarget;
use model::json::JsonObject;
use model::model_turn::{ModelFailure, ModelRequest};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Request, Response};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::sync::Arc;

/// So much of a refusal is read.
const ERROR_BODY_BYTES_MAX: usize = 64 * 1024;
/// What an event stream may call itself. Some services say nothing, or not much.
const STREAM_TYPES: [&str; 4] = ["text/event-stream", "", "text/plain", "application/octet-stream"];

/// A request, ready to be sent.
pub(super) struct PreparedRequest {
    pub(super) headers: HeaderMap,
    pub(super) body: Value,
    /// Where the items of the answer will be from.
    pub(super) origin: String,
}

/// Makes a request of a turn. The turn gets the provider's own wishes, and loses what the service is known to refuse.
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
    let model = turn.model.split_once('/').map_or(turn.model.as_str(), |(_, model)| model);
    let origin = item_origin(shared, key.as_deref(), model);
    turn.history =
        shared.refused_history.strip_refused(&turn.thread, &origin, &turn.history, settings.dialect.refusal_scope());
    let target = RequestTarget { model, origin: &origin, store: false };
    let body = settings.dialect.build_request(turn, &target);
    Ok(PreparedRequest { headers, body, origin })
}

/// The provider's wishes, and over them the agent's.
fn merge_options(ours: &Arc<JsonObject>, agents: &Arc<JsonObject>) -> Arc<JsonObject> {
    if ours.is_empty() {
        return Arc::clone(agents);
    }
    let mut wishes = JsonObject::clone(ours);
    wishes.extend(agents.iter().map(|(name, wish)| (name.clone(), wish.clone())));
    Arc::new(wishes)
}

async fn resolve_secret(
    shared: &HttpProviderInner,
    text: &str,
    secrets: &mut TurnSecrets,
) -> Result<String, ModelFailure> {
    let filled = (shared.resolve_secret)(text.to_owned()).await;
    let filled = filled.map_err(|why| FailureSource::from_inner(shared).missing_credentials(&why))?;
    secrets.add_values(filled.secret_values);
    Ok(filled.text)
}

/// Sets a header. Its value may be a secret, so it is in no error and hidden in what others print of the request.
fn insert_header(
    shared: &HttpProviderInner,
    headers: &mut HeaderMap,
    name: &str,
    value: &str,
) -> Result<(), ModelFailure> {
    let missing =
        || FailureSource::from_inner(shared).missing_credentials(&format!("the header `{name}` cannot be sent"));
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| missing())?;
    let mut value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| missing())?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(())
}

/// A service gives back what another key or another model cannot read, so all of it is in an item's origin. The key is
/// there by its fingerprint.
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

/// Sends it. What comes back is an event stream, or a failure.
pub(super) async fn send_request(
    shared: &HttpProviderInner,
    question: &PreparedRequest,
    pace: &TurnTimeouts,
    secrets: &TurnSecrets,
) -> Result<Response, ModelFailure> {
    let place = FailureSource::from_inner(shared);
    let mut request = Request::new(Method::POST, shared.endpoint.clone());
    *request.headers_mut() = question.headers.clone();
    *request.body_mut() = Some(question.body.to_string().into());
    let answer = pace.timeout(&place, Box::pin(shared.client.0.execute(request))).await?;
    let response = answer.map_err(|error| place.request_failed(&error))?;
    let status = response.status();
    let media_type = media_type_of(response.headers());
    if status.is_success() && STREAM_TYPES.contains(&media_type.as_str()) {
        return Ok(response);
    }
    let retry_after_ms = parse_retry_after_ms(response.headers());
    let body = read_body_prefix(response, pace, &place).await;
    // Before anything is cut off it: half a key is too much as well.
    let body = secrets.redact(&String::from_utf8_lossy(&body));
    let refused = || shared.settings.dialect.classify_error(status.as_u16(), body.as_bytes(), retry_after_ms);
    if !status.is_success() || has_error_field(&body) {
        return Err(refused());
    }
    Err(place.protocol_error(&match media_type.as_str() {
        "text/html" => "answered with a web page in place of an event stream; is this the right `base_url`?".to_owned(),
        "application/json" => {
            "answered with one JSON document in place of an event stream; it does not stream".to_owned()
        }
        other => format!("answered with `{other}` in place of an event stream"),
    }))
}

fn media_type_of(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Some gateways say `200 OK` and mean an error.
fn has_error_field(body: &str) -> bool {
    serde_json::from_str::<Value>(body).is_ok_and(|value| value.get("error").is_some_and(|error| !error.is_null()))
}

/// The beginning of a body; what does not come in time is left out.
async fn read_body_prefix(mut response: Response, pace: &TurnTimeouts, place: &FailureSource<'_>) -> Vec<u8> {
    let mut body = Vec::new();
    while body.len() < ERROR_BODY_BYTES_MAX
        && let Ok(Ok(Some(piece))) = pace.timeout(place, response.chunk()).await
    {
        body.extend_from_slice(&piece);
    }
    body.truncate(ERROR_BODY_BYTES_MAX);
    body
}
