//! Classifies the errors of Anthropic Messages.

use crate::provider_error::{ProviderError, ProviderErrorKind};
use model::model_turn::ModelFailure;
use serde_json::Value;

const CONTEXT_TOO_LONG_PHRASES: [&str; 3] =
    ["prompt is too long", "exceed context limit", "exceeds the context window"];
/// A monthly limit: retrying does not help.
const SPEND_LIMIT_CODE: &str = "enforced_spend_limit_reached";

/// Classifies an error response, whose `body` may be truncated.
pub fn classify_error(status: u16, body: &[u8], retry_after_ms: Option<u64>) -> ModelFailure {
    let error = ProviderError::from_body(body);
    let kind = kind_from_error(&error).unwrap_or(match status {
        402 => ProviderErrorKind::Auth,
        413 => ProviderErrorKind::ContextTooLong,
        status => ProviderErrorKind::from_status(status),
    });
    let mut failure = ModelFailure { retry_after_ms, ..error.to_failure(kind, Some(status)) };
    if model::json::parse_lenient_json(&String::from_utf8_lossy(body)).is_ok_and(|body| is_spend_limit_reached(&body)) {
        failure.error.retryable = Some(false);
    }
    failure
}

/// Classifies an `error` event.
pub(super) fn classify_stream_error(event: &Value) -> ModelFailure {
    let error = ProviderError::from_json(event);
    let mut failure = error.to_failure(kind_from_error(&error).unwrap_or(ProviderErrorKind::Provider), None);
    if is_spend_limit_reached(event) {
        failure.error.retryable = Some(false);
    }
    failure
}

fn kind_from_error(error: &ProviderError) -> Option<ProviderErrorKind> {
    Some(match error.error_type.as_str() {
        "overloaded_error" => ProviderErrorKind::Overloaded,
        "rate_limit_error" => ProviderErrorKind::RateLimited,
        "api_error" | "timeout_error" | "gateway_timeout_error" | "conflict_error" => ProviderErrorKind::Provider,
        "authentication_error" | "permission_error" | "billing_error" => ProviderErrorKind::Auth,
        "request_too_large" => ProviderErrorKind::ContextTooLong,
        "invalid_request_error" if error.mentions_any(&CONTEXT_TOO_LONG_PHRASES) => ProviderErrorKind::ContextTooLong,
        "invalid_request_error" if is_thinking_error(error) => ProviderErrorKind::HistoryRefused,
        "invalid_request_error" | "not_found_error" => ProviderErrorKind::Refused,
        _ => return None,
    })
}

/// Whether the error is about thinking in an earlier message: a foreign signature, or a missing block. The provider
/// accepts the same request without thinking blocks.
fn is_thinking_error(error: &ProviderError) -> bool {
    error.message.starts_with("messages.") && error.message.contains("thinking")
}

fn is_spend_limit_reached(error: &Value) -> bool {
    error.pointer("/error/details/error_code").and_then(Value::as_str) == Some(SPEND_LIMIT_CODE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn body(kind: &str, message: &str) -> Vec<u8> {
        let error = json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"});
        error.to_string().into_bytes()
    }

    /// Code and whether a retry may help.
    fn code_and_retryable(failure: &ModelFailure) -> (&str, bool) {
        (failure.error.code.as_str(), failure.error.retryable.unwrap())
    }

    #[test]
    fn every_error_type_has_its_code() {
        let rows = [
            (529, "overloaded_error", "Overloaded", ("overloaded", true)),
            (429, "rate_limit_error", "slow down", ("rate_limited", true)),
            (500, "api_error", "oops", ("provider_error", true)),
            (504, "timeout_error", "too slow", ("provider_error", true)),
            (400, "invalid_request_error", "max_tokens: required", ("provider_refused", false)),
            (400, "invalid_request_error", "prompt is too long: 213 > 200", ("context_too_long", false)),
            (413, "request_too_large", "Request exceeds the maximum size", ("context_too_long", false)),
            (401, "authentication_error", "invalid x-api-key", ("provider_auth", false)),
            (403, "permission_error", "no", ("provider_auth", false)),
            (404, "not_found_error", "model: claude-0", ("provider_refused", false)),
            (500, "brand_new_error", "?", ("provider_error", true)),
        ];
        for (status, kind, message, expected) in rows {
            assert_eq!(code_and_retryable(&classify_error(status, &body(kind, message), None)), expected, "{kind}");
        }
    }

    #[test]
    fn without_a_readable_body_the_status_decides() {
        let rows = [
            (402, ("provider_auth", false)),
            (413, ("context_too_long", false)),
            (429, ("rate_limited", true)),
            (502, ("provider_error", true)),
            (529, ("overloaded", true)),
        ];
        for (status, expected) in rows {
            let failure = classify_error(status, b"<html><title>Bad Gateway</title></html>", Some(7));
            assert_eq!(code_and_retryable(&failure), expected, "{status}");
            assert_eq!(failure.retry_after_ms, Some(7));
            assert!(failure.error.message.contains("Bad Gateway") || status == 402, "{failure:?}");
        }
    }

    #[test]
    fn refused_reasoning_has_its_own_error_code() {
        for message in [
            "messages.1.content.0: Invalid `signature` in `thinking` block",
            "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`.",
        ] {
            assert_eq!(
                code_and_retryable(&classify_error(400, &body("invalid_request_error", message), None)),
                ("history_refused", false)
            );
        }
        let settings = body("invalid_request_error", "thinking.enabled.budget_tokens: at least 1024");
        assert_eq!(code_and_retryable(&classify_error(400, &settings, None)), ("provider_refused", false));
    }

    #[test]
    fn a_reached_spend_limit_is_not_retryable() {
        let error =
            json!({"type": "rate_limit_error", "message": "limit", "details": {"error_code": SPEND_LIMIT_CODE}});
        let answer = json!({"type": "error", "error": error});
        assert_eq!(
            code_and_retryable(&classify_error(429, answer.to_string().as_bytes(), None)),
            ("rate_limited", false)
        );
        assert_eq!(code_and_retryable(&classify_stream_error(&answer)), ("rate_limited", false));
    }
}
