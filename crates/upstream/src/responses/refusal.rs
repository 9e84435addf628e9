//! What the service says when it will not answer.

use crate::failure::{Complaint, Trouble};
use model::model_turn::ModelFailure;

/// An error answer. `body` may be cut. A failure with the code `history_refused` means that the service does not take
/// its own items back; the same request `without_reasoning` may succeed, and should be tried once.
#[must_use]
pub fn refused(status: u16, body: &[u8], retry_after_ms: Option<u64>) -> ModelFailure {
    let said = Complaint::of_body(body);
    let trouble = named(&said).unwrap_or_else(|| Trouble::of_status(status));
    ModelFailure { retry_after_ms, ..failure(&said, trouble, Some(status)) }
}

/// An error in the middle of a stream.
pub(super) fn of_stream(said: &Complaint) -> ModelFailure {
    let trouble = named(said).or_else(|| in_general(said)).unwrap_or(Trouble::Provider);
    failure(said, trouble, None)
}

fn failure(said: &Complaint, trouble: Trouble, status: Option<u16>) -> ModelFailure {
    let mut failure = said.failure(trouble, status);
    // An empty purse does not fill by waiting.
    if is(said, &["insufficient_quota", "billing_hard_limit_reached", "billing_not_active"]) {
        failure.error.retryable = Some(false);
    }
    failure
}

/// What is plain from the error itself, whatever the status.
fn named(said: &Complaint) -> Option<Trouble> {
    let message = said.message.to_ascii_lowercase();
    let trouble = if is_of_history(said, &message) {
        Trouble::HistoryRefused
    } else if is(said, &["context_length_exceeded"])
        || message.contains("context window")
        || message.contains("maximum context length")
    {
        Trouble::ContextTooLong
    } else if is(said, &["insufficient_quota", "billing_hard_limit_reached", "billing_not_active"])
        || is(said, &["rate_limit_exceeded", "rate_limit_error", "too_many_requests"])
    {
        Trouble::RateLimited
    } else if is(said, &["overloaded", "overloaded_error", "server_overloaded", "engine_overloaded", "slow_down"])
        || is(said, &["server_is_overloaded", "service_unavailable", "service_unavailable_error"])
    {
        Trouble::Overloaded
    } else if is(said, &["invalid_api_key", "authentication_error", "account_deactivated", "permission_denied"]) {
        Trouble::Auth
    } else {
        return None;
    };
    Some(trouble)
}

/// Is it about items that the service itself had sent? Their blobs cannot be read, they are not kept, or one of them
/// misses another.
fn is_of_history(said: &Complaint, message: &str) -> bool {
    let item_id = said.param.starts_with("input[") && said.param.ends_with("].id");
    is(said, &["invalid_encrypted_content"])
        || item_id
        || (message.contains("encrypted content") && message.contains("could not be"))
        || (message.starts_with("item ") && message.contains("without its required"))
        || (message.starts_with("item with id") && message.contains("not found"))
        || (message.starts_with("invalid 'input[") && message.contains("].id'"))
}

/// What the error's family says, where there is no status that says it better.
fn in_general(said: &Complaint) -> Option<Trouble> {
    let family = |text: &str| {
        let refused = text.starts_with("invalid_")
            || text.starts_with("image_")
            || text.starts_with("unsupported_")
            || text.ends_with("_policy")
            || text.ends_with("_violation")
            || text.ends_with("not_found")
            || matches!(text, "content_filter" | "data_residency_mismatch" | "bad_request");
        refused.then_some(Trouble::Refused)
    };
    // A status, in the place of a code.
    let status = said.code.parse::<u16>().ok().filter(|status| *status >= 400).map(Trouble::of_status);
    status.or_else(|| family(&said.code)).or_else(|| family(&said.kind))
}

fn is(said: &Complaint, words: &[&str]) -> bool {
    words.iter().any(|word| said.code == *word || said.kind == *word)
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
            let failure = refused(status, &body, None);
            assert_eq!(failure.error.code, "history_refused", "{}", failure.error.message);
            assert_eq!(failure.error.retryable, Some(false));
        }
        let other = refused(404, &body("The model `x` does not exist.", bad, Some("model_not_found"), None), None);
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
            let failure = refused(status, &body, Some(1500));
            let got = (failure.error.code.as_str(), failure.error.retryable, failure.retry_after_ms);
            assert_eq!(got, (code, Some(retryable), Some(1500)), "{status}");
        }
    }

    #[test]
    fn an_error_in_a_stream_is_judged_by_its_kind() {
        let judged = |error| {
            let failure = of_stream(&Complaint::of(&error));
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
