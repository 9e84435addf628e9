//! The `Idempotency-Key` header.

use crate::problem::Problem;
use axum::http::HeaderMap;
use model::error::ErrorCode;
use model::ports::IdempotencyKey;

const IDEMPOTENCY_KEY_HEADER: &str = "idempotency-key";
const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;

/// The key of a request, bound to the route and to the body's digest, which is computed only if there is a key.
pub(crate) fn parse_idempotency_key(
    headers: &HeaderMap,
    route: &str,
    digest: impl FnOnce() -> String,
) -> Result<Option<IdempotencyKey>, Problem> {
    let mut keys = headers.get_all(IDEMPOTENCY_KEY_HEADER).iter();
    let Some(key) = keys.next() else { return Ok(None) };
    let bytes = key.as_bytes();
    let printable = bytes.iter().all(|byte| (b' '..=b'~').contains(byte));
    if keys.next().is_some() || !printable || !(1..=IDEMPOTENCY_KEY_BYTES_MAX).contains(&bytes.len()) {
        let detail = format!("an Idempotency-Key has 1 to {IDEMPOTENCY_KEY_BYTES_MAX} printable ASCII characters");
        return Err(Problem::new(ErrorCode::InvalidIdempotencyKey, detail));
    }
    let key = format!("{route} {}", String::from_utf8_lossy(bytes));
    Ok(Some(IdempotencyKey { key, request_digest: digest() }))
}
