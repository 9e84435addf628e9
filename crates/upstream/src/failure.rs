//! What can go wrong with a provider, in our words.

use super::json::{self, sanitize_for_error};
use model::error::{ErrorCode, ErrorInfo};
use model::model_turn::ModelFailure;
use serde_json::{Value, json};

/// What kind of failure it is. The kind says which code programs read, and whether trying again may help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProviderErrorKind {
    /// The provider broke.
    Provider,
    /// We ask too often, or have spent what we may.
    RateLimited,
    /// The provider has too much to do.
    Overloaded,
    /// It does not accept our key.
    Auth,
    /// It will not answer this request, now or later.
    Refused,
    /// The conversation is too long for the model.
    ContextTooLong,
    /// It does not take back what it said before; a request without that may succeed.
    HistoryRefused,
    /// What it sends cannot be read.
    Protocol,
    /// Its answer ended in the middle.
    Incomplete,
}

impl ProviderErrorKind {
    /// The code that programs read.
    pub(crate) const fn code(self) -> ErrorCode {
        match self {
            Self::Provider => ErrorCode::ProviderError,
            Self::RateLimited => ErrorCode::RateLimited,
            Self::Overloaded => ErrorCode::Overloaded,
            Self::Auth => ErrorCode::ProviderAuth,
            Self::Refused => ErrorCode::ProviderRefused,
            Self::ContextTooLong => ErrorCode::ContextTooLong,
            Self::HistoryRefused => ErrorCode::HistoryRefused,
            Self::Protocol => ErrorCode::ProviderProtocolError,
            Self::Incomplete => ErrorCode::UpstreamIncomplete,
        }
    }

    /// May the same request succeed later?
    pub(crate) const fn is_retryable(self) -> bool {
        self.code().is_retryable()
    }

    /// What a status says when the body says nothing better.
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

    /// A failure of this kind. `message` is for people; what the provider itself said belongs into `details`.
    pub(crate) fn to_failure(self, message: impl Into<String>, details: Option<Value>) -> ModelFailure {
        let error = ErrorInfo { retryable: Some(self.is_retryable()), details, ..ErrorInfo::new(self.code(), message) };
        ModelFailure { error, retry_after_ms: None }
    }
}

/// An event of a stream that is no JSON.
pub(crate) fn invalid_json_failure(data: &str, error: &serde_json::Error) -> ModelFailure {
    let message = format!("The provider sent an event that is not JSON ({error}).");
    ProviderErrorKind::Protocol.to_failure(message, Some(json!({ "event": sanitize_for_error(data) })))
}

/// A stream that ended without its terminal event.
pub(crate) fn truncated_stream_failure() -> ModelFailure {
    ProviderErrorKind::Incomplete.to_failure("The provider's answer ended in the middle.", None)
}

/// What an error says of itself, in a stream or as an answer's body. Empty where it says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProviderError {
    /// Its code, or its type where it has no code.
    pub(crate) code: String,
    /// Its type.
    pub(crate) error_type: String,
    /// Its words, safe to show.
    pub(crate) message: String,
    /// Which field of the request it means.
    pub(crate) param: String,
}

impl ProviderError {
    /// Reads an error object in the shapes that services use: `{"error": {…}}`, `{"error": "…"}`, or flat; with
    /// `message` or `detail`.
    pub(crate) fn from_json(value: &Value) -> Self {
        let error = json::non_null_field(value, "error").unwrap_or(value);
        let field = |key: &str| match error.get(key) {
            Some(Value::String(text)) => sanitize_for_error(text),
            Some(Value::Number(number)) => number.to_string(),
            _ => String::new(),
        };
        let kind = field("type");
        let mut code = field("code");
        if code.is_empty() {
            code.clone_from(&kind);
        }
        let words = [error.as_str().map(sanitize_for_error).unwrap_or_default(), field("message"), field("detail")];
        let message = words.into_iter().find(|words| !words.is_empty()).unwrap_or_default();
        Self { code, error_type: kind, message, param: field("param") }
    }

    /// Reads the body of an error answer, which may be anything: JSON, a page of HTML, nothing.
    pub(crate) fn from_body(body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body);
        let Ok(value) = model::json::parse_lenient_json(&text) else {
            return Self { message: sanitize_for_error(&html_to_text(&text)), ..Self::default() };
        };
        // Some gateways wrap the error in a list.
        Self::from_json(value.as_array().and_then(|list| list.first()).unwrap_or(&value))
    }

    /// As details of a failure: what the provider said, and with which status.
    pub(crate) fn to_details(&self, status: Option<u16>) -> Value {
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

    /// Does its code, its type or its message say one of these?
    pub(crate) fn mentions_any(&self, words: &[&str]) -> bool {
        let message = self.message.to_ascii_lowercase();
        words.iter().any(|word| self.code == *word || self.error_type == *word || message.contains(word))
    }

    /// The failure that it is: an answer with `status`, or an event of a stream.
    pub(crate) fn to_failure(&self, trouble: ProviderErrorKind, status: Option<u16>) -> ModelFailure {
        let what = match trouble {
            // What a service says of a key may quote the key.
            ProviderErrorKind::Auth => "does not accept our key",
            ProviderErrorKind::RateLimited => "limits how much we may ask",
            ProviderErrorKind::Overloaded => "has too much to do",
            ProviderErrorKind::Refused => "refused the request",
            ProviderErrorKind::ContextTooLong => "says that the conversation is too long for the model",
            ProviderErrorKind::HistoryRefused => "does not take back what it said before",
            ProviderErrorKind::Protocol => "sent what cannot be read",
            ProviderErrorKind::Incomplete => "broke off",
            ProviderErrorKind::Provider => "failed",
        };
        let status_text = status.map(|status| format!(" (status {status})")).unwrap_or_default();
        let spoken = (trouble != ProviderErrorKind::Auth && !self.message.is_empty()).then_some(self.message.as_str());
        let message = match spoken {
            Some(words) => format!("The provider {what}{status_text}: {words}"),
            None => format!("The provider {what}{status_text}."),
        };
        let quiet = Self { message: spoken.unwrap_or_default().to_owned(), ..self.clone() };
        trouble.to_failure(message, Some(quiet.to_details(status)))
    }
}

/// The words of a page: its title if it has one, else everything outside its tags.
fn html_to_text(page: &str) -> String {
    let lower = page.to_ascii_lowercase();
    let title = lower.find("<title>").zip(lower.find("</title>"));
    if let Some(title) = title.and_then(|(from, to)| page.get(from + "<title>".len()..to)) {
        return title.to_owned();
    }
    let mut words = String::new();
    for piece in page.split_inclusive('>') {
        words.push_str(piece.split_once('<').map_or(piece, |(before, _)| before));
        words.push(' ');
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_read_in_every_shape() {
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
    fn a_page_of_html_is_told_by_its_title() {
        let page = b"<html><head><TITLE>502 Bad Gateway</TITLE></head><body><h1>502</h1></body></html>";
        let failure = ProviderError::from_body(page).to_failure(ProviderErrorKind::from_status(502), Some(502));
        assert_eq!(failure.error.message, "The provider failed (status 502): 502 Bad Gateway");
        assert_eq!(failure.error.retryable, Some(true));
        assert_eq!(ProviderError::from_body(b"<p>try <b>later</b></p>").message, "try later");
    }

    #[test]
    fn nothing_of_a_key_is_repeated() {
        let said = ProviderError::from_json(
            &json!({"error": {"message": "Incorrect API key provided: abc***", "code": "bad"}}),
        );
        let failure = said.to_failure(ProviderErrorKind::Auth, Some(401));
        assert!(!format!("{failure:?}").contains("abc"), "{failure:?}");
        assert_eq!(failure.error.details, Some(json!({"status": 401, "code": "bad"})));
    }
}
