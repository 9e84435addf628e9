//! Request bodies, read strictly: one JSON value, once, bounded in bytes, time and depth.
//!
//! What two parsers could read in two ways is refused: keys that stand twice, bytes after the value, NUL characters
//! (which not every store can keep). A refusal names the field. Nothing is buffered beyond the limit, and few bodies at a
//! time may be large: [`LargeBodies`] bounds what they hold in memory together.

mod named_field;
mod strict_json;
#[cfg(test)]
mod tests;

use crate::config::HttpLimits;
use crate::problem::Problem;
use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use gateway::secret_token::encode_hex;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use model::error::ErrorCode;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use std::io::{self, Write};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A body above this is large.
pub(crate) const LARGE_BODY_BYTES: usize = 1024 * 1024;
/// So much is made ready for what is announced: it may never come.
const INITIAL_CAPACITY_BYTES_MAX: usize = 64 * 1024;

/// How many large bodies there may be at a time, from their second mebibyte until what was in them is kept.
#[derive(Clone, Debug)]
pub(crate) struct LargeBodySemaphore {
    permits: Arc<Semaphore>,
}

/// Room for one of them.
#[derive(Debug)]
pub(crate) struct BodyPermit {
    _permit: OwnedSemaphorePermit,
}

impl LargeBodySemaphore {
    pub(crate) fn new(most: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))) }
    }

    /// Waits for room; `None` when there is never any.
    pub(crate) async fn acquire(self) -> Option<BodyPermit> {
        self.permits.acquire_owned().await.ok().map(|permit| BodyPermit { _permit: permit })
    }

    fn try_acquire(&self) -> Result<BodyPermit, Problem> {
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        let full = |_| Problem::too_many_uploads("too many large bodies are coming in already: try again");
        permit.map(|permit| BodyPermit { _permit: permit }).map_err(full)
    }
}

/// A body that was read.
pub(crate) struct JsonBody {
    value: Value,
    /// Of a large one.
    digest: Option<String>,
    permit: Option<BodyPermit>,
}

impl JsonBody {
    /// Reads a body that must be there.
    pub(crate) async fn read(headers: &HeaderMap, body: Body, limits: &HttpLimits) -> Result<Self, Problem> {
        check_encoding(headers)?;
        check_content_type(headers)?;
        let (bytes, room) = collect_body(headers, body, limits).await?;
        Self::parse(bytes, room).await
    }

    /// Reads a text that is there already.
    pub(crate) async fn parse_text(text: Bytes) -> Result<Self, Problem> {
        Self::parse(text, None).await
    }

    async fn parse(bytes: Bytes, room: Option<BodyPermit>) -> Result<Self, Problem> {
        if bytes.len() <= LARGE_BODY_BYTES {
            return Ok(Self { value: strict_json::parse_strict_json(&bytes)?, digest: None, permit: room });
        }
        // That takes a while, and others wait for this thread.
        let parsed = tokio::task::spawn_blocking(move || {
            let value = strict_json::parse_strict_json(&bytes)?;
            let digest = Some(value_digest(&value));
            Ok(Self { value, digest, permit: room })
        });
        parsed.await.unwrap_or_else(|error| {
            tracing::error!(%error, "the reading of a body was broken off");
            Err(Problem::internal())
        })
    }

    /// Whoever reads a large body gives this back once what was in it is kept.
    pub(crate) fn take_permit(&mut self) -> Option<BodyPermit> {
        self.permit.take()
    }

    /// Reads a body that may be left out; nothing is `{}`.
    pub(crate) async fn read_optional(headers: &HeaderMap, body: Body, limits: &HttpLimits) -> Result<Self, Problem> {
        if body.is_end_stream() {
            return Ok(Value::Object(Map::new()).into());
        }
        Self::read(headers, body, limits).await
    }

    /// The digest of what was asked: the same for the same value, however it was written.
    pub(crate) fn digest(&self) -> String {
        self.digest.clone().unwrap_or_else(|| value_digest(&self.value))
    }

    /// One field of an object, whatever the others are.
    pub(crate) fn parse_field<T: DeserializeOwned>(&self, name: &str) -> Result<T, Problem> {
        let Value::Object(map) = &self.value else { return Err(not_an_object()) };
        named_field::deserialize_object(
            map.get(name).map(|value| (name.to_owned(), value.clone())).into_iter().collect(),
        )
    }

    /// The body as an object of this shape.
    pub(crate) fn into_object<T: DeserializeOwned>(self) -> Result<T, Problem> {
        match self.value {
            Value::Object(map) => named_field::deserialize_object(map),
            // Serde would take an array for a struct.
            _ => Err(not_an_object()),
        }
    }

    /// The body as a list of objects of this shape.
    pub(crate) fn into_list<T: DeserializeOwned>(self, items_max: usize) -> Result<Vec<T>, Problem> {
        let Value::Array(list) = self.value else {
            return Err(Problem::invalid_body("the body must be a JSON array"));
        };
        if list.len() > items_max {
            return Err(Problem::invalid_body(format!(
                "the list has {} elements; {items_max} is the most",
                list.len()
            )));
        }
        list.into_iter().map(|value| Self::from(value).into_object()).collect()
    }
}

impl From<Value> for JsonBody {
    fn from(value: Value) -> Self {
        Self { value, digest: None, permit: None }
    }
}

fn not_an_object() -> Problem {
    Problem::invalid_body("the body must be a JSON object")
}

/// A hash that is written to, so that no second text of a large body is made.
struct HashWriter(Sha256);

impl Write for HashWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn value_digest(value: &Value) -> String {
    let mut hash = HashWriter(Sha256::new());
    // A map keeps its keys in order, so the text of equal values is equal. A hash takes whatever it is given.
    let _taken = serde_json::to_writer(&mut hash, value);
    encode_hex(&hash.0.finalize())
}

fn check_encoding(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.contains_key(header::CONTENT_ENCODING) {
        let detail = "compressed bodies are not taken: send it without Content-Encoding";
        return Err(Problem::new(ErrorCode::UnsupportedEncoding, detail).closing_connection());
    }
    Ok(())
}

fn check_content_type(headers: &HeaderMap) -> Result<(), Problem> {
    let mut kinds = headers.get_all(header::CONTENT_TYPE).iter();
    let kind = kinds.next().and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let mut parts = kind.split(';').map(str::trim);
    let is_json = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"));
    let is_utf8 = parts.all(|part| part.is_empty() || part.replace('"', "").eq_ignore_ascii_case("charset=utf-8"));
    if is_json && is_utf8 && kinds.next().is_none() {
        return Ok(());
    }
    let detail = "the body must be JSON: send it with Content-Type: application/json";
    Err(Problem::new(ErrorCode::UnsupportedMediaType, detail).closing_connection())
}

async fn collect_body(
    headers: &HeaderMap,
    body: Body,
    limits: &HttpLimits,
) -> Result<(Bytes, Option<BodyPermit>), Problem> {
    let bytes_max = limits.body_bytes_max;
    let too_large = || {
        let detail = format!("the body is larger than {bytes_max} bytes");
        Problem::new(ErrorCode::BodyTooLarge, detail).with_extension("bytes_max", bytes_max).closing_connection()
    };
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| usize::try_from(length).map_or(true, |length| length > bytes_max)) {
        return Err(too_large());
    }
    // Whoever announces much is refused before it comes.
    let mut room = None;
    let mut enter = |bytes: usize| {
        if bytes > LARGE_BODY_BYTES && room.is_none() {
            room = Some(limits.large_bodies.try_acquire()?);
        }
        Ok::<(), Problem>(())
    };
    let announced = announced.and_then(|length| usize::try_from(length).ok()).unwrap_or_default();
    enter(announced)?;
    let reading = async {
        let (mut body, mut bytes) = (body, BytesMut::with_capacity(announced.min(INITIAL_CAPACITY_BYTES_MAX)));
        while let Some(frame) = body.frame().await {
            let broken = |_| Problem::new(ErrorCode::InvalidFraming, "the body broke off").closing_connection();
            let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
            if bytes.len() + data.len() > bytes_max {
                return Err(too_large());
            }
            enter(bytes.len() + data.len())?;
            bytes.extend_from_slice(&data);
        }
        Ok(bytes.freeze())
    };
    let read = tokio::time::timeout(limits.body_read_timeout, reading).await;
    let bytes = read.map_err(|_| {
        let detail = format!("the body did not come within {} ms", limits.body_read_timeout.as_millis());
        Problem::new(ErrorCode::BodyTimeout, detail).closing_connection()
    })??;
    Ok((bytes, room))
}
