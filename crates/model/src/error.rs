//! Errors as clients and models see them: a stable code and a sentence.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What went wrong, for people and for programs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorInfo {
    /// Stable, for programs.
    pub code: String,
    /// For people.
    pub message: String,
    /// May the same request succeed later?
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
    /// More, by name.
    #[serde(default, deserialize_with = "crate::json::deserialize_some", skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
}

impl ErrorInfo {
    /// A code and a sentence.
    #[must_use]
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), retryable: None, details: None }
    }
}
