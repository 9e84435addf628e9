//! Classifies the errors of a Responses service.

use crate::provider_error::{ProviderError, ProviderErrorKind};
use model::model_turn::ModelFailure;

const CONTEXT_TOO_LONG_CODES: [&str; 1] = ["context_length_exceeded"];
/// Waiting does not help.
const QUOTA_CODES: [&str; 3] = ["insufficient_quota", "billing_hard_limit_reached", "billing_not_active"];
const RATE_LIMIT_CODES: [&str; 3] = ["rate_limit_exceeded", "rate_limit_error", "too_many_requests"];
const OVERLOADED_CODES: [&str; 8] = [
    "overloaded",
    "overloaded_error",
    "server_overloaded",
    "engine_overloaded",
    "slow_down",
    "server_is_overloaded",
    "service_unavailable",
    "service_unavailable_error",
];
const AUTH_CODES: [&str; 4] = ["invalid_api_key", "authentication_error", "account_deactivated", "permission_denied"];

/// Classifies an error response, whose `body` may be truncated. The code `history_refused` means that the service does not
/// accept its own items; the same request through `without_reasoning` may succeed and should be tried once.
pub fn classify_error(status: u16, body: &[u8], retry_after_ms: Option<u64>) -> ModelFailure {
    let error = ProviderError::from_body(body);
    let kind = kind_from_error(&error).unwrap_or_else(|| ProviderErrorKind::from_status(status));
    ModelFailure { retry_after_ms, ..to_failure(&error, kind, Some(status)) }
}

pub(super) fn classify_stream_error(error: &ProviderError) -> ModelFailure {
    let kind = kind_from_error(error).or_else(|| kind_from_code_pattern(error));
    to_failure(error, kind.unwrap_or(ProviderErrorKind::Provider), None)
}

fn to_failure(error: &ProviderError, kind: ProviderErrorKind, status: Option<u16>) -> ModelFailure {
    let mut failure = error.to_failure(kind, status);
    if error.has_code(&QUOTA_CODES) {
        failure.error.retryable = Some(false);
    }
    failure
}

/// What the error itself says, whatever the status.
fn kind_from_error(error: &ProviderError) -> Option<ProviderErrorKind> {
    let message = error.message.to_ascii_lowercase();
    let mentions_context = message.contains("context window") || message.contains("maximum context length");
    let rows = [
        (is_history_error(error, &message), ProviderErrorKind::HistoryRefused),
        (error.has_code(&CONTEXT_TOO_LONG_CODES) || mentions_context, ProviderErrorKind::ContextTooLong),
        (error.has_code(&QUOTA_CODES) || error.has_code(&RATE_LIMIT_CODES), ProviderErrorKind::RateLimited),
        (error.has_code(&OVERLOADED_CODES), ProviderErrorKind::Overloaded),
        (error.has_code(&AUTH_CODES), ProviderErrorKind::Auth),
    ];
    rows.into_iter().find(|(matches, _)| *matches).map(|(_, kind)| kind)
}

/// Whether the error is about items that the service itself had sent: it cannot decrypt them, does not store them, or one
/// of them lacks another.
fn is_history_error(error: &ProviderError, message: &str) -> bool {
    let is_about_item_id = error.param.starts_with("input[") && error.param.ends_with("].id");
    error.has_code(&["invalid_encrypted_content"])
        || is_about_item_id
        || (message.contains("encrypted content") && message.contains("could not be"))
        || (message.starts_with("item ") && message.contains("without its required"))
        || (message.starts_with("item with id") && message.contains("not found"))
        || (message.starts_with("invalid 'input[") && message.contains("].id'"))
}

/// The last resort for an error in a stream, which has no status.
fn kind_from_code_pattern(error: &ProviderError) -> Option<ProviderErrorKind> {
    let kind_of = |code: &str| {
        let is_refusal = code.starts_with("invalid_")
            || code.starts_with("image_")
            || code.starts_with("unsupported_")
            || code.ends_with("_policy")
            || code.ends_with("_violation")
            || code.ends_with("not_found")
            || matches!(code, "content_filter" | "data_residency_mismatch" | "bad_request");
        is_refusal.then_some(ProviderErrorKind::Refused)
    };
    // Some services send a status as the code.
    let status = error.code.parse::<u16>().ok().filter(|status| *status >= 400).map(ProviderErrorKind::from_status);
    status.or_else(|| kind_of(&error.code)).or_else(|| kind_of(&error.error_type))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn body(message: &str, kind: &str, code: Option<&str>, param: Option<&str>) -> Vec<u8> {
        json!({"error": {"message": message, "type": kind, "param": param, "code": code}}).to_string().into_bytes()
    }

    #[test]
    fn rule_7_a_refused_history_is_recognised() {
        let bad = "invalid_request_error";
        let answers = [
            (
                400,
                body(
                    "The encrypted content gAAA... could not be verified.",
                    bad,
                    Some("invalid_encrypted_content"),
                    None,
                ),
            ),
            (400, body("The encrypted content for item rs_1 could not be decrypted or parsed.", bad, None, None)),
            (
                404,
                body(
                    "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.",
                    bad,
                    None,
                    Some("input"),
                ),
            ),
            (
                400,
                body(
                    "Item 'msg_1' of type 'message' was provided without its required 'reasoning' item: 'rs_1'.",
                    bad,
                    None,
                    Some("input"),
                ),
            ),
            (
                400,
                body(
                    "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
                    bad,
                    None,
                    Some("input"),
                ),
            ),
            (
                400,
                body(
                    "Invalid 'input[1].id': 'x'. Expected an ID that begins with 'rs'.",
                    bad,
                    Some("invalid_value"),
                    Some("input[1].id"),
                ),
            ),
        ];
        for (status, body) in answers {
            let failure = classify_error(status, &body, None);
            assert_eq!(failure.error.code, "history_refused", "{}", failure.error.message);
            assert_eq!(failure.error.retryable, Some(false));
        }
        let other =
            classify_error(404, &body("The model `x` does not exist.", bad, Some("model_not_found"), None), None);
        assert_eq!(other.error.code, "provider_refused");
    }

    #[test]
    fn every_error_response_has_a_code_and_retryability() {
        let context = "This model's maximum context length is 128000 tokens.";
        let answers = [
            (
                401,
                body("Incorrect API key", "invalid_request_error", Some("invalid_api_key"), None),
                "provider_auth",
                false,
            ),
            (403, b"".to_vec(), "provider_auth", false),
            (429, body("Rate limit reached", "requests", Some("rate_limit_exceeded"), None), "rate_limited", true),
            (
                429,
                body("You exceeded your quota", "insufficient_quota", Some("insufficient_quota"), None),
                "rate_limited",
                false,
            ),
            (429, b"slow down".to_vec(), "rate_limited", true),
            (400, body(context, "invalid_request_error", None, None), "context_too_long", false),
            (
                400,
                body("Unknown parameter", "invalid_request_error", Some("unknown_parameter"), None),
                "provider_refused",
                false,
            ),
            (500, body("The server had an error", "server_error", None, None), "provider_error", true),
            (502, b"<html><title>502 Bad Gateway</title></html>".to_vec(), "provider_error", true),
            (503, body("Overloaded", "service_unavailable_error", None, None), "overloaded", true),
        ];
        for (status, body, code, retryable) in answers {
            let failure = classify_error(status, &body, Some(1500));
            let got = (failure.error.code.as_str(), failure.error.retryable, failure.retry_after_ms);
            assert_eq!(got, (code, Some(retryable), Some(1500)), "{status}");
        }
    }

    #[test]
    fn an_error_in_a_stream_is_classified_by_its_type() {
        let judged = |error| {
            let failure = classify_stream_error(&ProviderError::from_json(&error));
            (failure.error.code, failure.error.retryable.unwrap())
        };
        assert_eq!(judged(json!({"code": "server_error", "message": "x"})), ("provider_error".to_owned(), true));
        assert_eq!(judged(json!({"code": null, "message": "x"})), ("provider_error".to_owned(), true));
        assert_eq!(judged(json!({"code": "rate_limit_exceeded"})), ("rate_limited".to_owned(), true));
        assert_eq!(judged(json!({"code": "invalid_prompt"})), ("provider_refused".to_owned(), false));
        assert_eq!(judged(json!({"code": "bio_policy"})), ("provider_refused".to_owned(), false));
        assert_eq!(judged(json!({"error": {"type": "invalid_request_error"}})), ("provider_refused".to_owned(), false));
        assert_eq!(judged(json!({"error": {"code": 503}})), ("overloaded".to_owned(), true));
    }
}
