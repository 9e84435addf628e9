//! What can go wrong with a provider, in our words.

use super::json::{self, shown};
use model::event::ErrorInfo;
use model::model_turn::ModelFailure;
use serde_json::{Value, json};

/// What kind of failure it is. The kind says which code programs read, and whether trying again may help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
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

impl Trouble {
    /// The code that programs read.
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::Provider => "provider_error",
            Self::RateLimited => "rate_limited",
            Self::Overloaded => "overloaded",
            Self::Auth => "provider_auth",
            Self::Refused => "provider_refused",
            Self::ContextTooLong => "context_too_long",
            Self::HistoryRefused => "history_refused",
            Self::Protocol => "provider_protocol_error",
            Self::Incomplete => "upstream_incomplete",
        }
    }

    /// May the same request succeed later?
    pub(crate) const fn is_retryable(self) -> bool {
        match self {
            Self::Provider | Self::RateLimited | Self::Overloaded | Self::Protocol | Self::Incomplete => true,
            Self::Auth | Self::Refused | Self::ContextTooLong | Self::HistoryRefused => false,
        }
    }

    /// What a status says when the body says nothing better.
    pub(crate) const fn of_status(status: u16) -> Self {
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
    pub(crate) fn failure(self, message: impl Into<String>, details: Option<Value>) -> ModelFailure {
        let error = ErrorInfo { retryable: Some(self.is_retryable()), details, ..ErrorInfo::new(self.code(), message) };
        ModelFailure { error, retry_after_ms: None }
    }
}

/// An event of a stream that is no JSON.
pub(crate) fn unreadable(data: &str, error: &serde_json::Error) -> ModelFailure {
    let message = format!("The provider sent an event that is not JSON ({error}).");
    Trouble::Protocol.failure(message, Some(json!({ "event": shown(data) })))
}

/// A stream that ended without its terminal event.
pub(crate) fn incomplete() -> ModelFailure {
    Trouble::Incomplete.failure("The provider's answer ended in the middle.", None)
}

/// What an error says of itself, in a stream or as an answer's body. Empty where it says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Complaint {
    /// Its code, or its type where it has no code.
    pub(crate) code: String,
    /// Its type.
    pub(crate) kind: String,
    /// Its words, safe to show.
    pub(crate) message: String,
    /// Which field of the request it means.
    pub(crate) param: String,
}

impl Complaint {
    /// Reads an error object in the shapes that services use: `{"error": {…}}`, `{"error": "…"}`, or flat; with
    /// `message` or `detail`.
    pub(crate) fn of(value: &Value) -> Self {
        let error = json::present(value, "error").unwrap_or(value);
        let field = |key: &str| match error.get(key) {
            Some(Value::String(text)) => shown(text),
            Some(Value::Number(number)) => number.to_string(),
            _ => String::new(),
        };
        let kind = field("type");
        let mut code = field("code");
        if code.is_empty() {
            code.clone_from(&kind);
        }
        let words = [error.as_str().map(shown).unwrap_or_default(), field("message"), field("detail")];
        let message = words.into_iter().find(|words| !words.is_empty()).unwrap_or_default();
        Self { code, kind, message, param: field("param") }
    }

    /// Reads the body of an error answer, which may be anything: JSON, a page of HTML, nothing.
    pub(crate) fn of_body(body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body);
        let Ok(value) = model::json::parse_lenient_json(&text) else {
            return Self { message: shown(&plain(&text)), ..Self::default() };
        };
        // Some gateways wrap the error in a list.
        Self::of(value.as_array().and_then(|list| list.first()).unwrap_or(&value))
    }

    /// As details of a failure: what the provider said, and with which status.
    pub(crate) fn details(&self, status: Option<u16>) -> Value {
        let mut details = model::block::JsonObject::new();
        if let Some(status) = status {
            details.insert("status".to_owned(), status.into());
        }
        let fields = [("code", &self.code), ("type", &self.kind), ("message", &self.message), ("param", &self.param)];
        for (name, text) in fields.into_iter().filter(|(_, text)| !text.is_empty()) {
            details.insert(name.to_owned(), text.as_str().into());
        }
        Value::Object(details)
    }

    /// Does its code, its type or its message say one of these?
    pub(crate) fn says(&self, words: &[&str]) -> bool {
        let message = self.message.to_ascii_lowercase();
        words.iter().any(|word| self.code == *word || self.kind == *word || message.contains(word))
    }

    /// The failure that it is: an answer with `status`, or an event of a stream.
    pub(crate) fn failure(&self, trouble: Trouble, status: Option<u16>) -> ModelFailure {
        let what = match trouble {
            // What a service says of a key may quote the key.
            Trouble::Auth => "does not accept our key",
            Trouble::RateLimited => "limits how much we may ask",
            Trouble::Overloaded => "has too much to do",
            Trouble::Refused => "refused the request",
            Trouble::ContextTooLong => "says that the conversation is too long for the model",
            Trouble::HistoryRefused => "does not take back what it said before",
            Trouble::Protocol => "sent what cannot be read",
            Trouble::Incomplete => "broke off",
            Trouble::Provider => "failed",
        };
        let status_text = status.map(|status| format!(" (status {status})")).unwrap_or_default();
        let spoken = (trouble != Trouble::Auth && !self.message.is_empty()).then_some(self.message.as_str());
        let message = match spoken {
            Some(words) => format!("The provider {what}{status_text}: {words}"),
            None => format!("The provider {what}{status_text}."),
        };
        let quiet = Self { message: spoken.unwrap_or_default().to_owned(), ..self.clone() };
        trouble.failure(message, Some(quiet.details(status)))
    }
}

/// The words of a page: its title if it has one, else everything outside its tags.
fn plain(page: &str) -> String {
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
        let nested = Complaint::of(&json!({"error": {"message": "m", "type": "t", "param": "p", "code": "c"}}));
        assert_eq!([nested.message, nested.kind, nested.param, nested.code], ["m", "t", "p", "c"]);
        assert_eq!(Complaint::of(&json!({"error": "model not found"})).message, "model not found");
        assert_eq!(Complaint::of(&json!({"detail": "Not Found"})).message, "Not Found");
        assert_eq!(Complaint::of(&json!({"code": 503, "message": "busy"})).code, "503");
        assert_eq!(Complaint::of(&json!({"error": null, "message": "m"})).message, "m");
        assert_eq!(Complaint::of_body(br#"[{"error": {"message": "m"}}]"#).message, "m");
        assert_eq!(Complaint::of_body(b"\xff\xfe").message, "\u{fffd}\u{fffd}");
        assert_eq!(Complaint::of_body(b""), Complaint::default());
    }

    #[test]
    fn a_page_of_html_is_told_by_its_title() {
        let page = b"<html><head><TITLE>502 Bad Gateway</TITLE></head><body><h1>502</h1></body></html>";
        let failure = Complaint::of_body(page).failure(Trouble::of_status(502), Some(502));
        assert_eq!(failure.error.message, "The provider failed (status 502): 502 Bad Gateway");
        assert_eq!(failure.error.retryable, Some(true));
        assert_eq!(Complaint::of_body(b"<p>try <b>later</b></p>").message, "try later");
    }

    #[test]
    fn nothing_of_a_key_is_repeated() {
        let said = Complaint::of(&json!({"error": {"message": "Incorrect API key provided: abc***", "code": "bad"}}));
        let failure = said.failure(Trouble::Auth, Some(401));
        assert!(!format!("{failure:?}").contains("abc"), "{failure:?}");
        assert_eq!(failure.error.details, Some(json!({"status": 401, "code": "bad"})));
    }
}
