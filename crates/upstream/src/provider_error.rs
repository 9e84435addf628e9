//! What can go wrong with a provider: the one table of error kinds, and how error objects are read.
//!
//! Which kind an error is depends on the dialect: `classify_error` in its `classify_error.rs` decides.

use crate::json::{self, sanitize_for_error};
use model::error::{ErrorCode, ErrorInfo};
use model::model_turn::ModelFailure;
use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProviderErrorKind {
    /// The provider failed.
    Provider,
    /// Too many requests, or the quota is exhausted.
    RateLimited,
    Overloaded,
    /// The provider does not accept the API key.
    Auth,
    /// The provider will never accept this request.
    Refused,
    ContextTooLong,
    /// The provider does not accept its own earlier output; the request without it may succeed.
    HistoryRefused,
    /// The response is not in the provider's protocol.
    Protocol,
    /// The response ended before its terminal event.
    Incomplete,
}

impl ProviderErrorKind {
    /// The code, and the predicate of the sentence "The provider …".
    const fn row(self) -> (ErrorCode, &'static str) {
        match self {
            Self::Provider => (ErrorCode::ProviderError, "failed"),
            Self::RateLimited => (ErrorCode::RateLimited, "limits the rate of requests"),
            Self::Overloaded => (ErrorCode::Overloaded, "is overloaded"),
            Self::Auth => (ErrorCode::ProviderAuth, "does not accept the API key"),
            Self::Refused => (ErrorCode::ProviderRefused, "refused the request"),
            Self::ContextTooLong => (ErrorCode::ContextTooLong, "says that the conversation is too long for the model"),
            Self::HistoryRefused => (ErrorCode::HistoryRefused, "does not accept its own earlier output"),
            Self::Protocol => (ErrorCode::ProviderProtocolError, "sent an invalid response"),
            Self::Incomplete => (ErrorCode::UpstreamIncomplete, "did not complete its response"),
        }
    }

    /// The kind that an HTTP status implies when the body says nothing more specific.
    pub(crate) const fn from_status(status: u16) -> Self {
        match status {
            401 | 403 => Self::Auth,
            408 | 409 | 425 => Self::Provider,
            429 => Self::RateLimited,
            503 | 529 => Self::Overloaded,
            300..=499 => Self::Refused,
            _ => Self::Provider,
        }
    }

    /// `message` is for people; the provider's own error goes into `details`.
    pub(crate) fn to_failure(self, message: impl Into<String>, details: Option<Value>) -> ModelFailure {
        let (code, _) = self.row();
        let error = ErrorInfo { retryable: Some(code.is_retryable()), details, ..ErrorInfo::new(code, message) };
        ModelFailure { error, retry_after_ms: None }
    }
}

/// An event of a stream is not JSON.
pub(crate) fn invalid_json_failure(data: &str, error: &serde_json::Error) -> ModelFailure {
    let message = format!("The provider sent an event that is not JSON ({error}).");
    ProviderErrorKind::Protocol.to_failure(message, Some(json!({ "event": sanitize_for_error(data) })))
}

/// A stream ended without its terminal event.
pub(crate) fn truncated_stream_failure() -> ModelFailure {
    ProviderErrorKind::Incomplete.to_failure("The provider's response ended before it was complete.", None)
}

/// An error object, from a stream or from the body of an error response. A member that is missing is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProviderError {
    /// The error's `code`, or its `type` where it has no code.
    pub(crate) code: String,
    pub(crate) error_type: String,
    /// Sanitized for display.
    pub(crate) message: String,
    /// The field of the request that the error is about.
    pub(crate) param: String,
}

impl ProviderError {
    /// Accepts the shapes that services use: `{"error": {…}}`, `{"error": "…"}`, or flat; with `message` or `detail`.
    pub(crate) fn from_json(value: &Value) -> Self {
        let error = json::non_null_field(value, "error").unwrap_or(value);
        let field = |key: &str| match error.get(key) {
            Some(Value::String(text)) => sanitize_for_error(text),
            Some(Value::Number(number)) => number.to_string(),
            _ => String::new(),
        };
        let error_type = field("type");
        let mut code = field("code");
        if code.is_empty() {
            code.clone_from(&error_type);
        }
        let texts = [error.as_str().map(sanitize_for_error).unwrap_or_default(), field("message"), field("detail")];
        let message = texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default();
        Self { code, error_type, message, param: field("param") }
    }

    /// The body of an error response may be JSON, HTML, or empty.
    pub(crate) fn from_body(body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body);
        let Ok(value) = model::json::parse_lenient_json(&text) else {
            return Self { message: sanitize_for_error(&html_to_text(&text)), ..Self::default() };
        };
        // Some gateways wrap the error in an array.
        Self::from_json(value.as_array().and_then(|list| list.first()).unwrap_or(&value))
    }

    fn to_details(&self, status: Option<u16>) -> Value {
        let mut details = model::json::JsonObject::new();
        if let Some(status) = status {
            details.insert("status".to_owned(), status.into());
        }
        let fields =
            [("code", &self.code), ("type", &self.error_type), ("message", &self.message), ("param", &self.param)];
        for (name, text) in fields.into_iter().filter(|(_, text)| !text.is_empty()) {
            details.insert(name.to_owned(), text.as_str().into());
        }
        Value::Object(details)
    }

    /// Whether the code or the type is one of these.
    pub(crate) fn has_code(&self, codes: &[&str]) -> bool {
        codes.iter().any(|code| self.code == *code || self.error_type == *code)
    }

    /// Whether the code or the type is one of these, or the message contains one.
    pub(crate) fn mentions_any(&self, phrases: &[&str]) -> bool {
        let message = self.message.to_ascii_lowercase();
        self.has_code(phrases) || phrases.iter().any(|phrase| message.contains(phrase))
    }

    /// `status` is that of an error response; an error in a stream has none.
    pub(crate) fn to_failure(&self, kind: ProviderErrorKind, status: Option<u16>) -> ModelFailure {
        let (_, predicate) = kind.row();
        let status_text = status.map(|status| format!(" (status {status})")).unwrap_or_default();
        // A message about the API key may quote it.
        let is_quotable = kind != ProviderErrorKind::Auth && !self.message.is_empty();
        let quoted = if is_quotable { self.message.as_str() } else { "" };
        let message = if is_quotable {
            format!("The provider {predicate}{status_text}: {quoted}")
        } else {
            format!("The provider {predicate}{status_text}.")
        };
        let details = Self { message: quoted.to_owned(), ..self.clone() }.to_details(status);
        kind.to_failure(message, Some(details))
    }
}

/// The title of a page if it has one, else the text outside its tags.
fn html_to_text(page: &str) -> String {
    let lower = page.to_ascii_lowercase();
    let title = lower.find("<title>").zip(lower.find("</title>"));
    if let Some(title) = title.and_then(|(from, to)| page.get(from + "<title>".len()..to)) {
        return title.to_owned();
    }
    let mut text = String::new();
    for chunk in page.split_inclusive('>') {
        text.push_str(chunk.split_once('<').map_or(chunk, |(before, _)| before));
        text.push(' ');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_parsed_in_every_shape() {
        let nested =
            ProviderError::from_json(&json!({"error": {"message": "m", "type": "t", "param": "p", "code": "c"}}));
        assert_eq!([nested.message, nested.error_type, nested.param, nested.code], ["m", "t", "p", "c"]);
        assert_eq!(ProviderError::from_json(&json!({"error": "model not found"})).message, "model not found");
        assert_eq!(ProviderError::from_json(&json!({"detail": "Not Found"})).message, "Not Found");
        assert_eq!(ProviderError::from_json(&json!({"code": 503, "message": "busy"})).code, "503");
        assert_eq!(ProviderError::from_json(&json!({"error": null, "message": "m"})).message, "m");
        assert_eq!(ProviderError::from_body(br#"[{"error": {"message": "m"}}]"#).message, "m");
        assert_eq!(ProviderError::from_body(b"\xff\xfe").message, "\u{fffd}\u{fffd}");
        assert_eq!(ProviderError::from_body(b""), ProviderError::default());
    }

    #[test]
    fn an_html_error_page_is_reduced_to_its_title() {
        let page = b"<html><head><TITLE>502 Bad Gateway</TITLE></head><body><h1>502</h1></body></html>";
        let failure = ProviderError::from_body(page).to_failure(ProviderErrorKind::from_status(502), Some(502));
        assert_eq!(failure.error.message, "The provider failed (status 502): 502 Bad Gateway");
        assert_eq!(failure.error.retryable, Some(true));
        assert_eq!(ProviderError::from_body(b"<p>try <b>later</b></p>").message, "try later");
    }

    #[test]
    fn api_keys_are_redacted_from_errors() {
        let said = ProviderError::from_json(
            &json!({"error": {"message": "Incorrect API key provided: abc***", "code": "bad"}}),
        );
        let failure = said.to_failure(ProviderErrorKind::Auth, Some(401));
        assert!(!format!("{failure:?}").contains("abc"), "{failure:?}");
        assert_eq!(failure.error.details, Some(json!({"status": 401, "code": "bad"})));
    }
}
