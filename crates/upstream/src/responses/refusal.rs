//! What the service says when it will not answer.

use crate::failure::{ProviderError, ProviderErrorKind};
use model::model_turn::ModelFailure;

/// An error answer. `body` may be cut. A failure with the code `history_refused` means that the service does not take
/// its own items back; the same request `without_reasoning` may succeed, and should be tried once.
#[must_use]
pub fn classify_error(status: u16, body: &[u8], retry_after_ms: Option<u64>) -> ModelFailure {
    let said = ProviderError::from_body(body);
    let trouble = kind_from_error(&said).unwrap_or_else(|| ProviderErrorKind::from_status(status));
    ModelFailure { retry_after_ms, ..to_failure(&said, trouble, Some(status)) }
}

/// An error in the middle of a stream.
pub(super) fn classify_stream_error(said: &ProviderError) -> ModelFailure {
    let trouble = kind_from_error(said).or_else(|| kind_from_code_pattern(said)).unwrap_or(ProviderErrorKind::Provider);
    to_failure(said, trouble, None)
}

fn to_failure(said: &ProviderError, trouble: ProviderErrorKind, status: Option<u16>) -> ModelFailure {
    let mut failure = said.to_failure(trouble, status);
    // An empty purse does not fill by waiting.
    if has_code(said, &["insufficient_quota", "billing_hard_limit_reached", "billing_not_active"]) {
        failure.error.retryable = Some(false);
    }
    failure
}

/// What is plain from the error itself, whatever the status.
fn kind_from_error(said: &ProviderError) -> Option<ProviderErrorKind> {
    let message = said.message.to_ascii_lowercase();
    let trouble = if is_history_error(said, &message) {
        ProviderErrorKind::HistoryRefused
    } else if has_code(said, &["context_length_exceeded"])
        || message.contains("context window")
        || message.contains("maximum context length")
    {
        ProviderErrorKind::ContextTooLong
    } else if has_code(said, &["insufficient_quota", "billing_hard_limit_reached", "billing_not_active"])
        || has_code(said, &["rate_limit_exceeded", "rate_limit_error", "too_many_requests"])
    {
        ProviderErrorKind::RateLimited
    } else if has_code(said, &["overloaded", "overloaded_error", "server_overloaded", "engine_overloaded", "slow_down"])
        || has_code(said, &["server_is_overloaded", "service_unavailable", "service_unavailable_error"])
    {
        ProviderErrorKind::Overloaded
    } else if has_code(said, &["invalid_api_key", "authentication_error", "account_deactivated", "permission_denied"]) {
        ProviderErrorKind::Auth
    } else {
        return None;
    };
    Some(trouble)
}

/// Is it about items that the service itself had sent? Their blobs cannot be read, they are not kept, or one of them
/// misses another.
fn is_history_error(said: &ProviderError, message: &str) -> bool {
    let item_id = said.param.starts_with("input[") && said.param.ends_with("].id");
    has_code(said, &["invalid_encrypted_content"])
        || item_id
        || (message.contains("encrypted content") && message.contains("could not be"))
        || (message.starts_with("item ") && message.contains("without its required"))
        || (message.starts_with("item with id") && message.contains("not found"))
        || (message.starts_with("invalid 'input[") && message.contains("].id'"))
}

/// What the error's family says, where there is no status that says it better.
fn kind_from_code_pattern(said: &ProviderError) -> Option<ProviderErrorKind> {
    let family = |text: &str| {
        let refused = text.starts_with("invalid_")
            || text.starts_with("image_")
            || text.starts_with("unsupported_")
            || text.ends_with("_policy")
            || text.ends_with("_violation")
            || text.ends_with("not_found")
            || matches!(text, "content_filter" | "data_residency_mismatch" | "bad_request");
        refused.then_some(ProviderErrorKind::Refused)
    };
    // A status, in the place of a code.
    let status = said.code.parse::<u16>().ok().filter(|status| *status >= 400).map(ProviderErrorKind::from_status);
    status.or_else(|| family(&said.code)).or_else(|| family(&said.error_type))
}

fn has_code(said: &ProviderError, words: &[&str]) -> bool {
    words.iter().any(|word| said.code == *word || said.error_type == *word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn body(message: &str, kind: &str, code: Option<&str>, param: Option<&str>) -> Vec<u8> {
        json!({"error": {"message": message, "type": kind, "param": param, "code": code}}).to_string().into_bytes()
    }

    #[test]
    fn rule_7_what_the_service_does_not_take_back_is_told_apart() {
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
    fn every_answer_has_its_code_and_says_whether_to_try_again() {
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
    fn an_error_in_a_stream_is_judged_by_its_kind() {
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
