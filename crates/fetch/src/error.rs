//! Errors of fetching and extracting, safe to show to clients.

/// Why a file could not be read. None of these ends a run: the model is told instead.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FetchError {
    /// The guard refused. One message for all reasons, so that nobody can probe the network with it.
    #[error("this address may not be fetched")]
    NotAllowed,
    #[error("the server at this address does not respond")]
    Unreachable,
    #[error("the server responded with status {0}")]
    Status(u16),
    /// The response took too long to start, to continue or to complete.
    #[error("the server took too long to respond")]
    TimedOut,
    /// The response is truncated, or its encoding is invalid.
    #[error("the response is damaged")]
    InvalidResponse,
    #[error("the file is too large")]
    TooLarge,
    #[error("files of this type cannot be read")]
    UnsupportedType,
    /// Damaged, encrypted, or without text.
    #[error("no text could be read from this file")]
    Unreadable,
    /// The time-out expired during extraction or while waiting for a permit.
    #[error("the file took too long to read")]
    ReadTimedOut,
}

impl FetchError {
    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotAllowed => "url_not_allowed",
            Self::Unreachable => "unreachable",
            Self::Status(_) => "http_error",
            Self::TimedOut => "timeout",
            Self::InvalidResponse => "damaged_answer",
            Self::TooLarge => "too_large",
            Self::UnsupportedType => "unsupported_type",
            Self::Unreadable => "unreadable",
            Self::ReadTimedOut => "read_timeout",
        }
    }

    /// Whether a later attempt may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable | Self::TimedOut | Self::InvalidResponse | Self::ReadTimedOut => true,
            Self::Status(status) => matches!(status, 408 | 425 | 429 | 500..),
            Self::NotAllowed | Self::TooLarge | Self::UnsupportedType | Self::Unreadable => false,
        }
    }
}
