//! Asks, and judges the head of the answer: only an event stream is read on.

use super::Shared;
use super::failure::Place;
use super::pace::Pace;
use super::retry_after::retry_after_ms;
use super::secrets::Secrets;
use ::upstream::Target;
use model::block::JsonObject;
use model::model_turn::{ModelFailure, ModelRequest};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Request, Response};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::sync::Arc;

/// So much of a refusal is read.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;
/// What an event stream may call itself. Some services say nothing, or not much.
const STREAM_TYPES: [&str; 4] = ["text/event-stream", "", "text/plain", "application/octet-stream"];

/// A request, ready to be sent.
pub(super) struct Question {
    pub(super) headers: HeaderMap,
    pub(super) body: Value,
    /// Where the items of the answer will be from.
    pub(super) origin: String,
}

/// Makes a request of a turn. The turn gets the provider's own wishes, and loses what the service is known to refuse.
pub(super) async fn question(
    shared: &Shared,
    turn: &mut ModelRequest,
    secrets: &mut Secrets,
) -> Result<Question, ModelFailure> {
    let settings = &shared.settings;
    turn.provider_options = wishes(&settings.options, &turn.provider_options);
    let key = match &settings.key {
        Some(reference) => Some(look_up(shared, reference, secrets).await?),
        None => None,
    };
    let mut headers = HeaderMap::new();
    for (name, value) in settings.kind.headers(key.as_deref(), &turn.provider_options) {
        put(shared, &mut headers, name, &value)?;
    }
    for (name, value) in &settings.headers {
        let value = look_up(shared, value, secrets).await?;
        put(shared, &mut headers, name, &value)?;
    }
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let model = turn.model.split_once('/').map_or(turn.model.as_str(), |(_, model)| model);
    let origin = origin(shared, key.as_deref(), model);
    turn.history = shared.refused.readable(&turn.thread, &origin, &turn.history, settings.kind.refusable());
    let target = Target { model, origin: &origin, store: false };
    let body = settings.kind.request(turn, &target);
    Ok(Question { headers, body, origin })
}

/// The provider's wishes, and over them the agent's.
fn wishes(ours: &Arc<JsonObject>, agents: &Arc<JsonObject>) -> Arc<JsonObject> {
    if ours.is_empty() {
        return Arc::clone(agents);
    }
    let mut wishes = JsonObject::clone(ours);
    wishes.extend(agents.iter().map(|(name, wish)| (name.clone(), wish.clone())));
    Arc::new(wishes)
}

async fn look_up(shared: &Shared, text: &str, secrets: &mut Secrets) -> Result<String, ModelFailure> {
    let filled = (shared.lookup)(text.to_owned()).await;
    let filled = filled.map_err(|why| Place::of(shared).missing(&why))?;
    secrets.remember(filled.values);
    Ok(filled.text)
}

/// Sets a header. Its value may be a secret, so it is in no error and hidden in what others print of the request.
fn put(shared: &Shared, headers: &mut HeaderMap, name: &str, value: &str) -> Result<(), ModelFailure> {
    let missing = || Place::of(shared).missing(&format!("the header `{name}` cannot be sent"));
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| missing())?;
    let mut value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| missing())?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(())
}

/// A service gives back what another key or another model cannot read, so all of it is in an item's origin. The key is
/// there by its fingerprint.
fn origin(shared: &Shared, key: Option<&str>, model: &str) -> String {
    let kind = shared.settings.kind.name();
    let host = Place::of(shared).host;
    let path = shared.settings.base_url.path().trim_end_matches('/');
    let key = key.map_or_else(|| "open".to_owned(), fingerprint);
    format!("{kind}:{host}{path}:{key}:{model}")
}

fn fingerprint(key: &str) -> String {
    Sha256::digest(key.as_bytes()).iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

/// Sends it. What comes back is an event stream, or a failure.
pub(super) async fn send(
    shared: &Shared,
    question: &Question,
    pace: &Pace,
    secrets: &Secrets,
) -> Result<Response, ModelFailure> {
    let place = Place::of(shared);
    let mut request = Request::new(Method::POST, shared.endpoint.clone());
    *request.headers_mut() = question.headers.clone();
    *request.body_mut() = Some(question.body.to_string().into());
    let answer = pace.within(&place, Box::pin(shared.client.0.execute(request))).await?;
    let response = answer.map_err(|error| place.unanswered(&error))?;
    let status = response.status();
    let media_type = media_type(response.headers());
    if status.is_success() && STREAM_TYPES.contains(&media_type.as_str()) {
        return Ok(response);
    }
    let retry_after_ms = retry_after_ms(response.headers());
    let body = body(response, pace, &place).await;
    // Before anything is cut off it: half a key is too much as well.
    let body = secrets.redact(&String::from_utf8_lossy(&body));
    let refused = || shared.settings.kind.refused(status.as_u16(), body.as_bytes(), retry_after_ms);
    if !status.is_success() || complains(&body) {
        return Err(refused());
    }
    Err(place.unreadable(&match media_type.as_str() {
        "text/html" => "answered with a web page in place of an event stream; is this the right `base_url`?".to_owned(),
        "application/json" => {
            "answered with one JSON document in place of an event stream; it does not stream".to_owned()
        }
        other => format!("answered with `{other}` in place of an event stream"),
    }))
}

fn media_type(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Some gateways say `200 OK` and mean an error.
fn complains(body: &str) -> bool {
    serde_json::from_str::<Value>(body).is_ok_and(|value| value.get("error").is_some_and(|error| !error.is_null()))
}

/// The beginning of a body; what does not come in time is left out.
async fn body(mut response: Response, pace: &Pace, place: &Place<'_>) -> Vec<u8> {
    let mut body = Vec::new();
    while body.len() < REFUSAL_BYTES_MAX
        && let Ok(Ok(Some(piece))) = pace.within(place, response.chunk()).await
    {
        body.extend_from_slice(&piece);
    }
    body.truncate(REFUSAL_BYTES_MAX);
    body
}
