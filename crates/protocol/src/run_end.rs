//! The ends of runs, and their names in each protocol.
//!
//! Two tables: [`RunEnd::names`] has the names of every end, [`RunFailureKind::names`] the error codes of failures. A
//! new terminal event, limit or kind of failure gets a row here with its name in every protocol.

use model::error::{ErrorCode, ErrorInfo};
use model::event::LimitReason;

/// The text of a cancellation, where a protocol reports an error.
pub(crate) const CANCELLED_MESSAGE: &str = "The run was cancelled.";

/// How a run, or a segment of it, ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RunEnd {
    Completed,
    /// The model declined to answer.
    Refused,
    /// The client's tools are to be run next.
    ToolCalls,
    Limit,
    ContentFilter,
    /// The run failed or was cancelled.
    Failed(RunFailure),
}

/// The names of an end in each protocol. `None` if a protocol reports an error instead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndNames {
    pub(crate) responses_event: &'static str,
    pub(crate) responses_status: &'static str,
    /// The reason in `incomplete_details`.
    pub(crate) responses_reason: Option<&'static str>,
    pub(crate) blocks_stop_reason: &'static str,
    pub(crate) messages_stop_reason: Option<&'static str>,
    pub(crate) chat_finish_reason: Option<&'static str>,
    pub(crate) ui_finish_reason: Option<&'static str>,
}

impl RunEnd {
    pub(crate) fn failed(error: &ErrorInfo) -> Self {
        Self::Failed(RunFailure::from(error))
    }

    pub(crate) fn cancelled() -> Self {
        let message = CANCELLED_MESSAGE.to_owned();
        Self::Failed(RunFailure { kind: RunFailureKind::Cancelled, message, retryable: false })
    }

    pub(crate) const fn failure(&self) -> Option<&RunFailure> {
        match self {
            Self::Failed(failure) => Some(failure),
            Self::Completed | Self::Refused | Self::ToolCalls | Self::Limit | Self::ContentFilter => None,
        }
    }

    pub(crate) const fn names(&self) -> EndNames {
        let completed = EndNames {
            responses_event: "response.completed",
            responses_status: "completed",
            responses_reason: None,
            blocks_stop_reason: "end_turn",
            messages_stop_reason: Some("end_turn"),
            chat_finish_reason: Some("stop"),
            ui_finish_reason: Some("stop"),
        };
        let limit = EndNames {
            responses_event: "response.incomplete",
            responses_status: "incomplete",
            responses_reason: Some("max_output_tokens"),
            blocks_stop_reason: "max_tokens",
            messages_stop_reason: Some("max_tokens"),
            chat_finish_reason: Some("length"),
            ui_finish_reason: Some("length"),
        };
        match self {
            Self::Completed => completed,
            Self::Refused => EndNames { messages_stop_reason: Some("refusal"), ..completed },
            Self::ToolCalls => EndNames {
                messages_stop_reason: Some("tool_use"),
                chat_finish_reason: Some("tool_calls"),
                ui_finish_reason: Some("tool-calls"),
                ..completed
            },
            Self::Limit => limit,
            Self::ContentFilter => EndNames {
                responses_reason: Some("content_filter"),
                messages_stop_reason: Some("refusal"),
                chat_finish_reason: Some("content_filter"),
                ui_finish_reason: Some("content-filter"),
                ..limit
            },
            // Responses has the status `cancelled` and no event of that name.
            Self::Failed(RunFailure { kind: RunFailureKind::Cancelled, .. }) => EndNames {
                responses_event: "response.incomplete",
                responses_status: "cancelled",
                responses_reason: Some("cancelled"),
                blocks_stop_reason: "user_stopped",
                messages_stop_reason: None,
                chat_finish_reason: None,
                ui_finish_reason: None,
            },
            Self::Failed(_) => EndNames {
                responses_event: "response.failed",
                responses_status: "failed",
                responses_reason: None,
                blocks_stop_reason: "error",
                messages_stop_reason: None,
                chat_finish_reason: None,
                ui_finish_reason: None,
            },
        }
    }
}

impl From<LimitReason> for RunEnd {
    fn from(reason: LimitReason) -> Self {
        match reason {
            LimitReason::ContentFilter => Self::ContentFilter,
            LimitReason::MaxSteps | LimitReason::MaxTokens | LimitReason::Budget | LimitReason::Deadline => Self::Limit,
        }
    }
}

/// Why a run has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFailure {
    pub kind: RunFailureKind,
    pub message: String,
    /// Whether the same request may succeed later.
    pub retryable: bool,
}

/// The kinds of failure that some protocol has an error code for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunFailureKind {
    /// The provider's rate limit was exceeded.
    RateLimited,
    /// The provider is overloaded.
    Overloaded,
    Cancelled,
    Other,
}

/// The names of a failure in each protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailureNames {
    pub(crate) responses_code: &'static str,
    pub(crate) messages_type: &'static str,
    pub(crate) chat_type: &'static str,
    pub(crate) chat_code: &'static str,
}

impl RunFailureKind {
    pub(crate) const fn names(self) -> FailureNames {
        let other = FailureNames {
            responses_code: "server_error",
            messages_type: "api_error",
            chat_type: "server_error",
            chat_code: "run_failed",
        };
        match self {
            Self::RateLimited => FailureNames {
                responses_code: "rate_limit_exceeded",
                messages_type: "rate_limit_error",
                chat_type: "rate_limit_error",
                chat_code: "rate_limited",
            },
            Self::Overloaded => FailureNames { messages_type: "overloaded_error", chat_code: "overloaded", ..other },
            Self::Cancelled => FailureNames { chat_code: "cancelled", ..other },
            Self::Other => other,
        }
    }
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
