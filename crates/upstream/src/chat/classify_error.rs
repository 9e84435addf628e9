//! Classifies the errors of Chat Completions services, in responses and in streams.
//!
//! Services agree on few codes, so phrases of the message count as well.

use crate::json;
use crate::provider_error::{ProviderError, ProviderErrorKind};
use model::model_turn::ModelFailure;
use serde_json::Value;

const CONTEXT_TOO_LONG_PHRASES: [&str; 9] = [
    "context_length_exceeded",
    "exceed_context_size_error",
    "context length",
    "context window",
    "context size",
    "maximum context",
    "prompt is too long",
    "input is too long",
    "request too large",
];
const CONTENT_POLICY_PHRASES: [&str; 6] = [
    "content_filter",
    "content_policy_violation",
    "content policy",
    "content management policy",
    "moderation",
    "flagged",
];
/// Waiting does not help.
const QUOTA_PHRASES: [&str; 4] =
    ["insufficient_quota", "insufficient balance", "insufficient credits", "insufficient_credits"];
const RATE_LIMIT_PHRASES: [&str; 4] = ["rate_limit_exceeded", "rate_limit_error", "rate limit", "too many requests"];
const OVERLOADED_PHRASES: [&str; 5] =
    ["overloaded_error", "overloaded", "engine_overloaded", "service_unavailable", "no available"];
const AUTH_PHRASES: [&str; 5] =
    ["invalid_api_key", "authentication_error", "invalid_authentication_error", "permission_error", "invalid api key"];
/// Fields of the service's own output. Together with a phrase of the next list: it does not accept them back.
const HISTORY_FIELD_PHRASES: [&str; 6] = [
    "reasoning_content",
    "reasoning_details",
    "thought_signature",
    "extra_content",
    "thinking block",
    "`thinking` block",
];
const NOT_ACCEPTED_PHRASES: [&str; 7] =
    ["unsupported", "not supported", "not permitted", "not allowed", "unexpected", "unknown", "invalid"];
const INVALID_REQUEST_CODES: [&str; 5] =
    ["invalid_request_error", "BadRequestError", "bad_request", "not_found_error", "invalid_request_message_order"];

/// Classifies an error response, whose `body` may be truncated. The code `history_refused` means that the service does not
/// accept its own earlier output; the same request through `without_reasoning` may succeed and should be tried once.
pub fn classify_error(status: u16, body: &[u8], retry_after_ms: Option<u64>) -> ModelFailure {
    ModelFailure { retry_after_ms, ..to_failure(&ProviderError::from_body(body), Some(status), Some(status)) }
}

/// Classifies an event of a stream, or one of its choices; `None` if it is not an error.
pub(super) fn classify_stream_error(value: &Value, name: Option<&str>) -> Option<ModelFailure> {
    let has_error = match json::non_null_field(value, "error") {
        Some(Value::String(text)) => !text.is_empty(),
        Some(error) => error.is_object(),
        None => false,
    };
    // vLLM and Mistral send their error objects flat.
    let is_flat = json::str_field(value, "object") == Some("error") || (name == Some("error") && value.is_object());
    if !has_error && !is_flat {
        return None;
    }
    let error = ProviderError::from_json(value);
    // OpenRouter's codes are HTTP statuses.
    let implied_status = error.code.parse().ok().filter(|status| (400..600).contains(status));
    Some(to_failure(&error, implied_status, None))
}

/// `status` is that of the response; `implied_status` may instead come from the error itself.
fn to_failure(error: &ProviderError, implied_status: Option<u16>, status: Option<u16>) -> ModelFailure {
    let mut failure = error.to_failure(kind_from_error(error, implied_status), status);
    if is_quota_exhausted(error, implied_status) {
        failure.error.retryable = Some(false);
    }
    failure
}

fn is_quota_exhausted(error: &ProviderError, status: Option<u16>) -> bool {
    status == Some(402) || error.mentions_any(&QUOTA_PHRASES)
}

fn kind_from_error(error: &ProviderError, status: Option<u16>) -> ProviderErrorKind {
    let mentions = |phrases: &[&str]| error.mentions_any(phrases);
    // The message of an internal failure may mention anything; the status decides.
    if let Some(status) = status.filter(|status| *status >= 500) {
        return ProviderErrorKind::from_status(status);
    }
    let rows = [
        (mentions(&CONTEXT_TOO_LONG_PHRASES), ProviderErrorKind::ContextTooLong),
        (mentions(&HISTORY_FIELD_PHRASES) && mentions(&NOT_ACCEPTED_PHRASES), ProviderErrorKind::HistoryRefused),
        (is_quota_exhausted(error, status) || mentions(&RATE_LIMIT_PHRASES), ProviderErrorKind::RateLimited),
        (mentions(&OVERLOADED_PHRASES), ProviderErrorKind::Overloaded),
        (mentions(&AUTH_PHRASES) || status == Some(401), ProviderErrorKind::Auth),
        (mentions(&CONTENT_POLICY_PHRASES), ProviderErrorKind::Refused),
    ];
    let kind = rows.into_iter().find(|(matches, _)| *matches).map(|(_, kind)| kind);
    let default =
        if mentions(&INVALID_REQUEST_CODES) { ProviderErrorKind::Refused } else { ProviderErrorKind::Provider };
    kind.or_else(|| status.map(ProviderErrorKind::from_status)).unwrap_or(default)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Status, code, type and message of the error; our code, and whether it is retryable.
    type Case = (u16, &'static str, &'static str, &'static str, &'static str, bool);

    const CASES: [Case; 18] = [
        (400, "context_length_exceeded", "invalid_request_error", "too much", "context_too_long", false),
        (
            400,
            "400",
            "BadRequestError",
            "This model's maximum context length is 8192 tokens",
            "context_too_long",
            false,
        ),
        (400, "400", "exceed_context_size_error", "the request exceeds it", "context_too_long", false),
        (413, "rate_limit_exceeded", "tokens", "Request too large for model `x`", "context_too_long", false),
        (401, "invalid_api_key", "invalid_request_error", "Incorrect API key", "provider_auth", false),
        (403, "", "", "no access to this model", "provider_auth", false),
        (403, "403", "", "Your input was flagged", "provider_refused", false),
        (400, "content_filter", "", "the content management policy", "provider_refused", false),
        (404, "", "", "model not found, try pulling it first", "provider_refused", false),
        (429, "rate_limit_exceeded", "requests", "Rate limit reached", "rate_limited", true),
        (429, "insufficient_quota", "insufficient_quota", "You exceeded your quota", "rate_limited", false),
        (402, "", "unknown_error", "Insufficient Balance", "rate_limited", false),
        (400, "", "", "'messages.1' : property 'reasoning_content' is unsupported", "history_refused", false),
        (400, "", "", "messages.1: Invalid `signature` in `thinking` block", "history_refused", false),
        (400, "", "", "The `reasoning_content` must be passed back to the API.", "provider_refused", false),
        (503, "", "", "The engine is currently overloaded", "overloaded", true),
        (500, "", "", "the prompt is too long for my taste", "provider_error", true),
        (408, "", "", "Timed out", "provider_error", true),
    ];

    #[test]
    fn error_codes_of_every_service_are_classified() {
        for (status, code, kind, message, ours, retryable) in CASES {
            let body = json!({"error": {"code": code, "type": kind, "message": message}}).to_string();
            let error = classify_error(status, body.as_bytes(), None).error;
            assert_eq!((error.code.as_str(), error.retryable), (ours, Some(retryable)), "{status} {body}");
        }
        for body in ["<html><title>Bad</title></html>", "", r#"{"message": {"detail": [{"type": "extra_forbidden"}]}}"#]
        {
            assert_eq!(classify_error(422, body.as_bytes(), None).error.code, "provider_refused", "{body}");
        }
    }

    #[test]
    fn a_failure_keeps_the_message_and_retry_after() {
        let body = br#"{"error":{"message":"Slow down","type":"requests","code":"rate_limit_exceeded"}}"#;
        let failure = classify_error(429, body, Some(1500));
        assert_eq!(failure.retry_after_ms, Some(1500));
        let said = json!({"status": 429, "code": "rate_limit_exceeded", "type": "requests", "message": "Slow down"});
        assert_eq!(failure.error.details, Some(said));
    }

    #[test]
    fn an_error_in_a_stream_is_distinguished_from_a_chunk() {
        for chunk in [json!({"choices": []}), json!({"error": null}), json!({"error": ""}), json!([]), json!(null)] {
            assert_eq!(classify_stream_error(&chunk, None), None, "{chunk}");
        }
        let cases = [
            (json!({"error": {"code": 429, "message": "Provider returned error"}}), "rate_limited"),
            (json!({"error": {"code": 502, "message": "Provider disconnected"}}), "provider_error"),
            (json!({"error": "an error was encountered while running the model"}), "provider_error"),
            (json!({"object": "error", "message": "no", "type": "BadRequestError", "code": 400}), "provider_refused"),
            (json!({"error": {"message": "no", "type": "invalid_request_error"}}), "provider_refused"),
            (json!({"error": {"message": "busy", "type": "overloaded_error"}}), "overloaded"),
        ];
        for (chunk, expected) in cases {
            assert_eq!(classify_stream_error(&chunk, None).unwrap().error.code, expected, "{chunk}");
        }
        assert!(classify_stream_error(&json!({"message": "gone"}), Some("error")).is_some());
    }
}
