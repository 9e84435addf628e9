//! Why there is no answer, in words that every protocol has a place for.

use model::event::ErrorInfo;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What kind of thing happened.
    pub kind: FailureKind,
    /// What happened, for people.
    pub message: String,
    /// May the same request succeed later?
    pub may_retry: bool,
}

/// What kind of thing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The provider was asked too often.
    RateLimited,
    /// The provider has too much to do.
    Overloaded,
    /// Somebody stopped the run.
    Cancelled,
    /// Anything else.
    Other,
}

impl From<&ErrorInfo> for Failure {
    fn from(error: &ErrorInfo) -> Self {
        let kind = match error.code.as_str() {
            "rate_limited" => FailureKind::RateLimited,
            "overloaded" => FailureKind::Overloaded,
            _ => FailureKind::Other,
        };
        Self { kind, message: error.message.clone(), may_retry: error.retryable == Some(true) }
    }
}
