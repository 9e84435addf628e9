//! JSON request bodies, with bounds on size, time and depth.
//!
//! Parsing is strict: duplicate keys, trailing bytes and NUL characters (which not every database can store) are
//! errors, and an error names the field. [`gateway::body_budget`] bounds the memory of all bodies together.

mod strict_json;
#[cfg(test)]
mod tests;

use crate::config::HttpLimits;
use crate::problem::Problem;
use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use gateway::body_budget::{BodyBudgetError, BodyReservation, LARGE_BODY_BYTES, SMALL_BODY_BYTES};
use gateway::secret_token::encode_hex;
use heavy_work::{run_heavy, run_in_place};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use model::UserId;
use model::error::ErrorCode;
use model::json::{ExactObject, ExactValue};
use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;
use sha2::{Digest as _, Sha256};
use std::io::{self, Write};

/// Parsing a longer body would keep the other tasks of its worker waiting: a mebibyte of short keys takes a tenth of a
/// second.
const INLINE_PARSE_BYTES_MAX: usize = 32 * 1024;

pub(crate) struct JsonBody {
    value: ExactValue,
    /// Computed while parsing if the body is large.
    digest: Option<String>,
    permit: Option<BodyReservation>,
    /// Its values are many enough to take time again when they become a request.
    is_long: bool,
}

impl JsonBody {
    pub(crate) async fn read(
        headers: &HeaderMap,
        body: Body,
        limits: &HttpLimits,
        user: &UserId,
    ) -> Result<Self, Problem> {
        check_encoding(headers)?;
        check_content_type(headers)?;
        let (bytes, permit) = collect_body(headers, body, limits, user).await?;
        Self::parse(bytes, Some(permit), user).await
    }

    pub(crate) async fn parse_text(text: Bytes, user: &UserId) -> Result<Self, Problem> {
        Self::parse(text, None, user).await
    }

    async fn parse(bytes: Bytes, permit: Option<BodyReservation>, user: &UserId) -> Result<Self, Problem> {
        if bytes.len() <= INLINE_PARSE_BYTES_MAX {
            return Ok(Self { value: strict_json::parse_strict_json(&bytes)?, digest: None, permit, is_long: false });
        }
        let parsed = run_heavy(user, move || {
            let value = strict_json::parse_strict_json(&bytes)?;
            let digest = Some(value_digest(&value));
            Ok(Self { value, digest, permit, is_long: true })
        });
        parsed.await.unwrap_or_else(|_| Err(Problem::internal()))
    }

    /// The caller drops the permit once the content is stored.
    pub(crate) fn take_permit(&mut self) -> Option<BodyReservation> {
        self.permit.take()
    }

    /// Reads an optional body; an empty one is `{}`.
    pub(crate) async fn read_optional(
        headers: &HeaderMap,
        body: Body,
        limits: &HttpLimits,
        user: &UserId,
    ) -> Result<Self, Problem> {
        if body.is_end_stream() {
            return Ok(ExactValue::Object(ExactObject::new()).into());
        }
        Self::read(headers, body, limits, user).await
    }

    /// Equal values have equal digests, whatever their formatting.
    pub(crate) fn digest(&self) -> String {
        self.digest.clone().unwrap_or_else(|| value_digest(&self.value))
    }

    /// Parses one field and ignores the others.
    pub(crate) fn parse_field<T: DeserializeOwned>(&self, name: &str) -> Result<T, Problem> {
        let ExactValue::Object(map) = &self.value else { return Err(not_an_object()) };
        deserialize_object(map.get(name).map(|value| (name.to_owned(), value.clone())).into_iter().collect())
    }

    /// The member `metadata` with its numbers as they were written; empty unless it is an object.
    pub(crate) fn metadata(&self) -> ExactObject {
        match &self.value {
            ExactValue::Object(map) => match map.get("metadata") {
                Some(ExactValue::Object(metadata)) => metadata.clone(),
                _ => ExactObject::new(),
            },
            _ => ExactObject::new(),
        }
    }

    pub(crate) fn into_object<T: DeserializeOwned>(self) -> Result<T, Problem> {
        match self.value {
            ExactValue::Object(map) if self.is_long => run_in_place(|| deserialize_object(map)),
            ExactValue::Object(map) => deserialize_object(map),
            // Serde accepts an array for a struct.
            _ => Err(not_an_object()),
        }
    }

    pub(crate) fn into_list<T: DeserializeOwned>(self, items_max: usize) -> Result<Vec<T>, Problem> {
        let ExactValue::Array(list) = self.value else {
            return Err(Problem::invalid_body("the body must be a JSON array"));
        };
        if list.len() > items_max {
            return Err(Problem::invalid_body(format!(
                "the list has {} elements; the maximum is {items_max}",
                list.len()
            )));
        }
        list.into_iter().map(|value| Self::from(value).into_object()).collect()
    }
}

impl From<ExactValue> for JsonBody {
    fn from(value: ExactValue) -> Self {
        Self { value, digest: None, permit: None, is_long: false }
    }
}

/// Deserializes a struct. An error names the field at fault; an unknown or missing field is the fault of the object itself.
fn deserialize_object<T: DeserializeOwned>(map: ExactObject) -> Result<T, Problem> {
    serde_path_to_error::deserialize(ExactValue::Object(map)).map_err(|error| {
        let reason = error.inner().to_string();
        match error.path().iter().next() {
            Some(Segment::Map { key }) if !reason.starts_with(&format!("unknown field `{key}`")) => {
                Problem::invalid_field(key, reason)
            }
            _ => Problem::invalid_body(reason),
        }
    })
}

fn not_an_object() -> Problem {
    Problem::invalid_body("the body must be a JSON object")
}

/// Hashes what is written, so that no second copy of a large body is allocated.
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

fn value_digest(value: &ExactValue) -> String {
    let mut hash = HashWriter(Sha256::new());
    // Maps are sorted, so equal values serialize to equal text. Writing to a hash cannot fail.
    let _ok = serde_json::to_writer(&mut hash, value);
    encode_hex(&hash.0.finalize())
}

fn check_encoding(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.contains_key(header::CONTENT_ENCODING) {
        let detail = "compressed bodies are not supported: send the body without Content-Encoding";
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

/// The body, and the memory that it holds.
async fn collect_body(
    headers: &HeaderMap,
    body: Body,
    limits: &HttpLimits,
    user: &UserId,
) -> Result<(Bytes, BodyReservation), Problem> {
    let bytes_max = limits.body_bytes_max;
    let too_large = || {
        let detail = format!("the body exceeds {bytes_max} bytes");
        Problem::new(ErrorCode::BodyTooLarge, detail).with_extension("bytes_max", bytes_max).closing_connection()
    };
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| usize::try_from(length).map_or(true, |length| length > bytes_max)) {
        return Err(too_large());
    }
    let announced = announced.and_then(|length| usize::try_from(length).ok());
    let mut memory = limits.bodies.reserve(user);
    // A large body is rejected before it arrives if its length is announced.
    if announced.is_some_and(|length| length > LARGE_BODY_BYTES) {
        memory.try_take_place().map_err(no_memory)?;
    }
    let reading = async {
        let (mut body, mut bytes) = (body, Vec::new());
        while let Some(frame) = body.frame().await {
            let broken = |_| Problem::new(ErrorCode::InvalidFraming, "the body ended early").closing_connection();
            let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
            let length = bytes.len() + data.len();
            if length > bytes_max {
                return Err(too_large());
            }
            if length > bytes.capacity() {
                // Never by the announced length alone: the client may not send the bytes.
                let capacity =
                    (bytes.capacity() * 2).max(SMALL_BODY_BYTES).min(announced.unwrap_or(bytes_max)).max(length);
                memory.grow_to(capacity).map_err(no_memory)?;
                bytes.reserve_exact(capacity - bytes.len());
            }
            bytes.extend_from_slice(&data);
        }
        Ok((Bytes::from(bytes), memory))
    };
    let read = tokio::time::timeout(limits.body_read_timeout, reading).await;
    read.map_err(|_| {
        let detail = format!("the body did not arrive within {} ms", limits.body_read_timeout.as_millis());
        Problem::new(ErrorCode::BodyTimeout, detail).closing_connection()
    })?
}

fn no_memory(error: BodyBudgetError) -> Problem {
    match error {
        BodyBudgetError::User | BodyBudgetError::LargeBodies => Problem::too_many_uploads(error.to_string()),
        BodyBudgetError::All => Problem::server_busy(error.to_string()),
    }
}
