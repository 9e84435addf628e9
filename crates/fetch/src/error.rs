//! Why an address could not be read, in words that are safe to show.

/// Why there is nothing to read. None of these ends a run: the model is told that this file could not be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FetchError {
    /// The guard said no. One sentence for every reason, so that nobody learns what is behind an address.
    #[error("this address may not be fetched")]
    NotAllowed,
    /// Nobody answered at a place that may be asked.
    #[error("nobody answers at this address")]
    Unreachable,
    /// The answer was not a success.
    #[error("the address answered with status {0}")]
    Status(u16),
    /// The answer took too long: to begin, to go on, or as a whole.
    #[error("the address took too long to answer")]
    TimedOut,
    /// The answer broke off, or is packed in a way that cannot be undone.
    #[error("the answer is damaged")]
    InvalidResponse,
    /// More bytes than allowed, on the wire or unpacked, or an image of too many pixels.
    #[error("the file is too large")]
    TooLarge,
    /// The bytes are not of a kind that can be read.
    #[error("files of this type cannot be read")]
    UnsupportedType,
    /// The kind is known, but this one cannot be read: damaged, encrypted, or without any text.
    #[error("no text could be read from this file")]
    Unreadable,
    /// The kind is known, but reading this one takes too long, or others are being read.
    #[error("the file took too long to read")]
    ReadTimedOut,
}

impl FetchError {
    /// Stable, for programs.
    #[must_use]
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

    /// May the same address work later?
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable | Self::TimedOut | Self::InvalidResponse | Self::ReadTimedOut => true,
            Self::Status(status) => matches!(status, 408 | 425 | 429 | 500..),
            Self::NotAllowed | Self::TooLarge | Self::UnsupportedType | Self::Unreadable => false,
        }
    }
}
