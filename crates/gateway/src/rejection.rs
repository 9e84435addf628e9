//! Why a request was rejected, for clients: a stable code, a sentence, and named values for programs.
//!
//! The text names no path, table or stack; details for operators are logged here. A missing object and another user's
//! give the same bytes. Transports convert a [`Rejection`]: HTTP into a status and a problem document.

use crate::native_json::ApprovalObject;
use engine::{AnswerError, StartError, WatchError};
use files::{FileKeyError, FileStoreError, ImageTooLarge};
use model::cursor::CursorError;
use model::error::{ErrorCode, truncate_text};
use model::event::{ApprovalDecisionKind, Initiator};
use model::id::IdError;
use model::json::{ExactObject, ExactValue, to_exact_value};
use model::ports::{ApprovalAnswer, StoreError, SubmitError};
use protocol::client_input::InvalidField;
use serde_json::Value;
use std::fmt::Display;

/// Details may quote client input of any length.
const DETAIL_CHARS_MAX: usize = 300;
const NAME_CHARS_MAX: usize = 100;

#[derive(Debug)]
pub struct Rejection {
    pub code: ErrorCode,
    pub detail: String,
    /// The field of the request that is at fault.
    pub field: Option<String>,
    pub extensions: ExactObject,
}

impl Rejection {
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        let field = code.field().map(str::to_owned);
        Self { code, detail: detail.into(), field, extensions: ExactObject::new() }
    }

    pub fn with_field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    pub fn with_extension(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.extensions.insert(name.to_owned(), ExactValue::from(value.into()));
        self
    }

    /// The object does not exist, or is another user's.
    pub fn not_found() -> Self {
        Self::new(
            ErrorCode::NotFound,
            "no such resource or path; GET /openapi.json lists the paths, and base URLs of OpenAI clients end with /v1",
        )
    }

    /// The body is well-formed but does not have the shape that the operation accepts.
    /// Whether the resource does not exist, as far as the user may know.
    pub(crate) fn is_missing(&self) -> bool {
        self.code == ErrorCode::NotFound
    }

    pub fn invalid_body(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidBody, truncate_text(&detail.into(), DETAIL_CHARS_MAX))
    }

    /// One field of the body is not valid.
    pub fn invalid_field(field: &str, reason: impl Display) -> Self {
        Self::invalid_body(format!("`{field}`: {reason}")).with_field(field)
    }

    pub fn invalid_query(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidQuery, truncate_text(&detail.into(), DETAIL_CHARS_MAX))
    }

    /// One query parameter is not valid.
    pub fn invalid_param(name: &str, reason: impl Display) -> Self {
        Self::invalid_query(format!("`{name}`: {reason}")).with_field(name)
    }

    /// There is no room for what the request brings. The store logs it once, not for each request.
    fn storage_full() -> Self {
        let detail =
            "the server's disk is full and nothing was stored: try again later; reading, deleting and cancelling work";
        Self::new(ErrorCode::StorageUnavailable, detail)
    }

    /// A fault of the server. The cause is in the log.
    pub fn internal() -> Self {
        Self::new(ErrorCode::Internal, "internal error; the server has logged it")
    }
}

impl From<InvalidField> for Rejection {
    fn from(InvalidField { field, reason }: InvalidField) -> Self {
        Self::invalid_field(&field, reason)
    }
}

impl From<IdError> for Rejection {
    fn from(_: IdError) -> Self {
        Self::not_found()
    }
}

impl From<StoreError> for Rejection {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::ThreadNotFound => Self::not_found(),
            StoreError::Corrupt { thread, seq } => {
                tracing::error!(%thread, %seq, "a record is damaged");
                let detail = "the stored log is damaged at this record; the server has logged it";
                let rejection = Self::new(ErrorCode::StorageCorrupt, detail);
                rejection.with_extension("thread_id", thread.as_str()).with_extension("seq", seq.0)
            }
            StoreError::NoSpace => Self::storage_full(),
            StoreError::Unavailable(why) => {
                tracing::error!(why, "the store is not available");
                Self::new(ErrorCode::StorageUnavailable, "the store is unavailable: try again")
            }
        }
    }
}

impl From<SubmitError> for Rejection {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::KeyReused => Self::new(ErrorCode::IdempotencyKeyReused, error.to_string()),
            // Another request created the same thread concurrently, twice: a retry finds it.
            SubmitError::ThreadExists => StoreError::Unavailable(error.to_string()).into(),
            SubmitError::ApprovalNotFound => {
                let detail = "the run has no such approval";
                Self::new(ErrorCode::ApprovalNotFound, detail)
            }
            SubmitError::AlreadyDecided(approval) => {
                let (code, detail) = match &approval.answer {
                    Some(answer) => (ErrorCode::AlreadyDecided, describe_decision(answer)),
                    None => (ErrorCode::Expired, "the approval has expired".to_owned()),
                };
                let mut rejection = Self::new(code, detail);
                let approval = to_exact_value(&ApprovalObject::from(&*approval));
                rejection.extensions.insert("approval".to_owned(), approval);
                rejection
            }
            SubmitError::CallClosed(call) => AnswerError::NotPending(call).into(),
            SubmitError::InboxFull(_) => Self::new(ErrorCode::InboxFull, error.to_string()),
            SubmitError::ThreadParked => Self::new(ErrorCode::ThreadParked, error.to_string()),
            SubmitError::LogQuotaExceeded { used, max } => {
                let rejection = Self::new(ErrorCode::QuotaExceeded, error.to_string());
                rejection.with_extension("bytes_max", max).with_extension("bytes_used", used)
            }
            SubmitError::Store(error) => error.into(),
        }
    }
}

/// Variables that enable a provider without a table of its own.
const PROVIDER_KEYS: [(&str, &str); 3] =
    [("openai", "OPENAI_API_KEY"), ("openai-chat", "OPENAI_API_KEY"), ("anthropic", "ANTHROPIC_API_KEY")];

/// What to do about a `model` that is neither an agent nor a model of a provider.
pub(crate) fn unknown_agent_detail(name: &str) -> String {
    let quoted = truncate_text(name, NAME_CHARS_MAX);
    match name.split_once('/').filter(|(_, model)| !model.is_empty()) {
        Some((provider, _)) => {
            let key = PROVIDER_KEYS.iter().find(|(name, _)| *name == provider).map(|(_, key)| *key);
            let provider = truncate_text(provider, NAME_CHARS_MAX);
            let action = key.map_or_else(
                || format!("define [providers.{provider}] in the config file"),
                |key| format!("set {key} and restart the server, or define [providers.{provider}]"),
            );
            format!("there is no provider `{provider}` for the model `{quoted}`: {action}")
        }
        None => format!("there is no agent `{quoted}`; GET /v1/models lists the agents"),
    }
}

impl From<StartError> for Rejection {
    fn from(error: StartError) -> Self {
        let detail = error.to_string();
        match error {
            StartError::UnknownAgent(name) => Self::new(ErrorCode::UnknownAgent, unknown_agent_detail(&name)),
            StartError::UnknownPrevious(_) => Self::new(ErrorCode::UnknownPrevious, detail),
            StartError::NoInput => Self::new(ErrorCode::NoInput, detail),
            StartError::TooLarge(max) => Self::new(ErrorCode::RequestTooLarge, detail).with_extension("bytes_max", max),
            StartError::Busy(task) => Self::new(ErrorCode::ThreadBusy, detail).with_extension("task_id", task.as_str()),
            StartError::Submit(error) => error.into(),
        }
    }
}

impl From<AnswerError> for Rejection {
    fn from(error: AnswerError) -> Self {
        let detail = error.to_string();
        match error {
            AnswerError::NotPending(call) => {
                Self::new(ErrorCode::NothingPending, detail).with_extension("call_id", call.as_str())
            }
            AnswerError::Submit(error) => error.into(),
            AnswerError::Store(error) => error.into(),
        }
    }
}

impl From<CursorError> for Rejection {
    fn from(error: CursorError) -> Self {
        let detail = error.to_string();
        match error {
            CursorError::Malformed(_) => Self::new(ErrorCode::InvalidCursor, detail),
            CursorError::Ahead { head, .. } => Self::new(ErrorCode::CursorAhead, detail).with_extension("head", head.0),
            CursorError::Mismatch => Self::new(ErrorCode::CursorForeign, detail),
        }
    }
}

impl From<WatchError> for Rejection {
    fn from(error: WatchError) -> Self {
        match error {
            WatchError::Cursor(error) => error.into(),
            WatchError::Store(error) => error.into(),
        }
    }
}

impl From<FileKeyError> for Rejection {
    fn from(error: FileKeyError) -> Self {
        match error {
            FileKeyError::Malformed => Self::new(ErrorCode::InvalidPath, error.to_string()),
            FileKeyError::Unknown => Self::not_found(),
            FileKeyError::InvalidOwner => Self::new(ErrorCode::Unsupported, error.to_string()),
        }
    }
}

impl From<FileStoreError> for Rejection {
    fn from(error: FileStoreError) -> Self {
        match error {
            FileStoreError::NotFound => Self::not_found(),
            FileStoreError::NoSpace => Self::storage_full(),
            FileStoreError::Unavailable(why) => {
                tracing::error!(why, "the file store is not available");
                Self::new(ErrorCode::FilesUnavailable, "the file storage is unavailable: try again")
            }
        }
    }
}

impl From<ImageTooLarge> for Rejection {
    fn from(error: ImageTooLarge) -> Self {
        Self::new(ErrorCode::ImageTooLarge, error.to_string()).with_extension("pixels_max", error.pixels_max)
    }
}

fn describe_decision(answer: &ApprovalAnswer) -> String {
    let what = match answer.decision.kind {
        ApprovalDecisionKind::Approve => "approved",
        ApprovalDecisionKind::Edit => "edited",
        ApprovalDecisionKind::Reject => "rejected",
    };
    let who = match answer.by {
        Initiator::User => "a user",
        Initiator::Timeout => "its time-out",
        Initiator::System | Initiator::Cancel => "the end of the run",
    };
    format!("already decided: {what} by {who}")
}

/// The beginning of an id that a client sent, for an error message.
pub fn truncate_id(id: &str) -> String {
    const ID_CHARS_MAX: usize = 80;
    id.chars().take(ID_CHARS_MAX).collect()
}
