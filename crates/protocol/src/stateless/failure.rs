//! Why there is no answer, in words that every protocol has a place for.

use model::error::{ErrorCode, ErrorInfo};

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFailure {
    /// What kind of thing happened.
    pub kind: RunFailureKind,
    /// What happened, for people.
    pub message: String,
    /// May the same request succeed later?
    pub retryable: bool,
}

/// What kind of thing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunFailureKind {
    /// The provider was asked too often.
    RateLimited,
    /// The provider has too much to do.
    Overloaded,
    /// Somebody stopped the run.
    Cancelled,
    /// Anything else.
    Other,
}

impl From<&ErrorInfo> for RunFailure {
    fn from(error: &ErrorInfo) -> Self {
        let kind = match error.known_code() {
            Some(ErrorCode::RateLimited) => RunFailureKind::RateLimited,
            Some(ErrorCode::Overloaded) => RunFailureKind::Overloaded,
            _ => RunFailureKind::Other,
        };
        Self { kind, message: error.message.clone(), retryable: error.retryable == Some(true) }
    }
}
