//! Errors as clients and models see them: a stable code and a message.

mod code;

pub use code::{ErrorCode, ErrorScope};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;
use std::borrow::Cow;

/// An error as records store it and clients read it.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Error")]
pub struct ErrorInfo {
    /// A string on the wire and in the log: tools and scenario files bring codes of their own.
    pub code: String,
    /// For people; programs read the code.
    pub message: String,
    /// Whether the same request may succeed later.
    pub retryable: Option<bool>,
    /// Free-form data of the provider or of the tool.
    #[serde(default, deserialize_with = "crate::json::deserialize_some")]
    pub details: Option<Value>,
}

impl ErrorInfo {
    /// An error with one of our codes.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::external(code.as_str(), message)
    }

    /// An error whose code is not ours: a tool or a scenario file chose it.
    pub fn external(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), retryable: None, details: None }
    }

    /// Whether this is an error with that code.
    pub fn has_code(&self, code: ErrorCode) -> bool {
        self.code == code.as_str()
    }

    /// `None` if the code is not ours.
    pub fn known_code(&self) -> Option<ErrorCode> {
        ErrorCode::parse(&self.code)
    }
}

/// Shortens what a client or a file says before it is quoted in an error message.
pub fn truncate_text(text: &str, chars_max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()).into(),
        None => text.into(),
    }
}
