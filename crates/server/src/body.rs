//! Request bodies, read strictly: one JSON value, once, bounded in bytes, time and depth.
//!
//! What two parsers could read in two ways is refused: keys that stand twice, bytes after the value, NUL characters
//! (which not every store can keep). A refusal names the field. Nothing is buffered beyond the limit.

mod field;
mod strict;
#[cfg(test)]
mod tests;

use crate::config::HttpLimits;
use crate::problem::Problem;
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::Bytes;
use http_body::Body as _;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// A body that was read.
pub(crate) struct Json {
    value: Value,
}

impl Json {
    /// Reads a body that must be there.
    pub(crate) async fn read(headers: &HeaderMap, body: Body, limits: &HttpLimits) -> Result<Self, Problem> {
        check_encoding(headers)?;
        check_type(headers)?;
        let bytes = collect(headers, body, limits).await?;
        Ok(Self { value: strict::parse(&bytes)? })
    }

    /// Reads a body that may be left out; nothing is `{}`.
    pub(crate) async fn read_optional(headers: &HeaderMap, body: Body, limits: &HttpLimits) -> Result<Self, Problem> {
        if body.is_end_stream() {
            return Ok(Self { value: Value::Object(serde_json::Map::new()) });
        }
        Self::read(headers, body, limits).await
    }

    /// The digest of what was asked: the same for the same value, however it was written.
    pub(crate) fn digest(&self) -> String {
        let mut digest = Sha256::new();
        // A map keeps its keys in order, so the text of equal values is equal.
        digest.update(self.value.to_string().as_bytes());
        digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The body as an object of this shape.
    pub(crate) fn object<T: DeserializeOwned>(self) -> Result<T, Problem> {
        match self.value {
            Value::Object(map) => field::object(map),
            // Serde would take an array for a struct.
            _ => Err(Problem::invalid_body("the body must be a JSON object")),
        }
    }

    /// The body as a list of objects of this shape.
    pub(crate) fn list<T: DeserializeOwned>(self, items_max: usize) -> Result<Vec<T>, Problem> {
        let Value::Array(list) = self.value else {
            return Err(Problem::invalid_body("the body must be a JSON array"));
        };
        if list.len() > items_max {
            return Err(Problem::invalid_body(format!(
                "the list has {} elements; {items_max} is the most",
                list.len()
            )));
        }
        list.into_iter().map(|value| Self { value }.object()).collect()
    }
}

fn check_encoding(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.contains_key(header::CONTENT_ENCODING) {
        let detail = "compressed bodies are not taken: send it without Content-Encoding";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_encoding", detail).closing());
    }
    Ok(())
}

fn check_type(headers: &HeaderMap) -> Result<(), Problem> {
    let mut kinds = headers.get_all(header::CONTENT_TYPE).iter();
    let kind = kinds.next().and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let mut parts = kind.split(';').map(str::trim);
    let is_json = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"));
    let is_utf8 = parts.all(|part| part.is_empty() || part.replace('"', "").eq_ignore_ascii_case("charset=utf-8"));
    if is_json && is_utf8 && kinds.next().is_none() {
        return Ok(());
    }
    let detail = "the body must be JSON: send it with Content-Type: application/json";
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", detail).closing())
}

async fn collect(headers: &HeaderMap, body: Body, limits: &HttpLimits) -> Result<Bytes, Problem> {
    let bytes_max = limits.body_bytes_max;
    let too_large = || {
        let detail = format!("the body is larger than {bytes_max} bytes");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail).with("bytes_max", bytes_max).closing()
    };
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| usize::try_from(length).map_or(true, |length| length > bytes_max)) {
        return Err(too_large());
    }
    let limited = Limited::new(body, bytes_max);
    match tokio::time::timeout(limits.body_read, limited.collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.downcast_ref::<LengthLimitError>().is_some() => Err(too_large()),
        Ok(Err(_)) => Err(Problem::new(StatusCode::BAD_REQUEST, "invalid_framing", "the body broke off").closing()),
        Err(_) => {
            let detail = format!("the body did not come within {} ms", limits.body_read.as_millis());
            Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", detail).closing())
        }
    }
}
