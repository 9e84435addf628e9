//! Error responses: RFC 9457 bodies with stable codes.
//!
//! They are for clients, and name no path, table or stack; the log has what an operator needs. A missing resource and
//! another user's give the same bytes, so the request id is in a header and not in the body.

use crate::native_api;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::{AnswerError, StartError, WatchError};
use model::cursor::CursorError;
use model::error::{ErrorCode, truncate_text};
use model::event::{ApprovalDecisionKind, Initiator};
use model::id::IdError;
use model::ports::{ApprovalAnswer, StoreError, SubmitError};
use protocol::client_input::InvalidField;
use serde_json::{Map, Value, json};
use std::fmt::Display;

/// Details may quote what a client sent.
const DETAIL_CHARS_MAX: usize = 300;
const RETRY_AFTER_SECONDS: u64 = 2;

#[derive(Debug)]
pub(crate) struct Problem(Box<ProblemFields>);

#[derive(Debug)]
struct ProblemFields {
    code: ErrorCode,
    detail: String,
    field: Option<String>,
    extensions: Map<String, Value>,
    headers: HeaderMap,
}

impl Problem {
    pub(crate) fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        let field = code.field().map(str::to_owned);
        let (extensions, headers) = (Map::new(), HeaderMap::new());
        Self(Box::new(ProblemFields { code, detail: detail.into(), field, extensions, headers }))
    }

    /// Names the field of the request that is at fault.
    pub(crate) fn with_field(mut self, field: impl Into<String>) -> Self {
        self.0.field = Some(field.into());
        self
    }

    /// Adds a member to the body.
    pub(crate) fn with_extension(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.extensions.insert(name.to_owned(), value.into());
        self
    }

    pub(crate) fn with_header(mut self, name: HeaderName, value: impl TryInto<HeaderValue>) -> Self {
        if let Ok(value) = value.try_into() {
            self.0.headers.insert(name, value);
        }
        self
    }

    pub(crate) fn with_retry_after(self) -> Self {
        self.with_header(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS))
    }

    /// The rest of the request is not read, so the connection cannot be reused.
    pub(crate) fn closing_connection(self) -> Self {
        self.with_header(header::CONNECTION, "close")
    }

    /// The resource does not exist, or belongs to another user.
    pub(crate) fn not_found() -> Self {
        Self::new(ErrorCode::NotFound, "no such resource")
    }

    /// The body is JSON but does not have the shape that the route accepts.
    pub(crate) fn invalid_body(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidBody, truncate_text(&detail.into(), DETAIL_CHARS_MAX))
    }

    /// One field of the body is not valid.
    pub(crate) fn invalid_field(field: &str, reason: impl Display) -> Self {
        Self::invalid_body(format!("`{field}`: {reason}")).with_field(field)
    }

    pub(crate) fn invalid_query(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidQuery, truncate_text(&detail.into(), DETAIL_CHARS_MAX))
    }

    /// One query parameter is not valid.
    pub(crate) fn invalid_param(name: &str, reason: impl Display) -> Self {
        Self::invalid_query(format!("`{name}`: {reason}")).with_field(name)
    }

    /// A bug of ours. The caller logs what happened.
    pub(crate) fn internal() -> Self {
        Self::new(ErrorCode::Internal, "internal error; the server has logged it")
    }

    pub(crate) fn too_many_uploads(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::TooManyUploads, detail).with_retry_after().closing_connection()
    }

    pub(crate) fn shutting_down() -> Self {
        let problem = Self::new(ErrorCode::Stopping, "the server is stopping: try again soon");
        problem.with_retry_after()
    }
}

/// Travels with the response as an extension, because clients of other protocols expect another body.
#[derive(Clone, Debug)]
pub(crate) struct ProblemSummary {
    pub(crate) code: ErrorCode,
    pub(crate) detail: String,
    pub(crate) field: Option<String>,
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let ProblemFields { code, detail, field, extensions, headers } = *self.0;
        let status = StatusCode::from_u16(code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let summary = ProblemSummary { code, detail: detail.clone(), field };
        let mut body = Map::new();
        body.insert("type".to_owned(), json!("about:blank"));
        body.insert("title".to_owned(), json!(status.canonical_reason().unwrap_or("Error")));
        body.insert("status".to_owned(), json!(status.as_u16()));
        body.insert("code".to_owned(), json!(code.as_str()));
        body.insert("detail".to_owned(), json!(detail));
        body.extend(extensions);
        let mut response = Response::new(Body::from(Value::Object(body).to_string()));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        let media_type = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, media_type);
        response.extensions_mut().insert(summary);
        response
    }
}

impl From<InvalidField> for Problem {
    fn from(InvalidField { field, reason }: InvalidField) -> Self {
        Self::invalid_field(&field, reason)
    }
}

impl From<IdError> for Problem {
    fn from(_: IdError) -> Self {
        Self::not_found()
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::ThreadNotFound => Self::not_found(),
            StoreError::Corrupt { thread, seq } => {
                tracing::error!(%thread, %seq, "a record is damaged");
                let detail = "the stored log is damaged at this place; the operator has been told";
                let problem = Self::new(ErrorCode::StorageCorrupt, detail);
                problem.with_extension("thread_id", thread.as_str()).with_extension("seq", seq.0)
            }
            StoreError::Unavailable(why) => {
                tracing::error!(why, "the store is not available");
                let detail = "the store cannot answer now: try again";
                Self::new(ErrorCode::StorageUnavailable, detail).with_retry_after()
            }
        }
    }
}

impl From<SubmitError> for Problem {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::KeyReused => Self::new(ErrorCode::IdempotencyKeyReused, error.to_string()),
            // Somebody made the same thread at the same moment, twice: asked again, it is there.
            SubmitError::ThreadExists => StoreError::Unavailable(error.to_string()).into(),
            SubmitError::ApprovalNotFound => {
                let detail = "the run does not wait for this approval, and never did";
                Self::new(ErrorCode::ApprovalNotFound, detail)
            }
            SubmitError::AlreadyDecided(question) => {
                let (code, detail) = match &question.answer {
                    Some(answer) => (ErrorCode::AlreadyDecided, describe_decision(answer)),
                    None => (ErrorCode::Expired, "the time for this decision is up".to_owned()),
                };
                Self::new(code, detail).with_extension("approval", native_api::approval_json(&question))
            }
            SubmitError::InboxFull(_) => Self::new(ErrorCode::InboxFull, error.to_string()).with_retry_after(),
            SubmitError::Store(error) => error.into(),
        }
    }
}

impl From<StartError> for Problem {
    fn from(error: StartError) -> Self {
        let detail = error.to_string();
        match error {
            StartError::UnknownAgent(_) => {
                let detail =
                    format!("{}; GET /v1/models lists those that there are", truncate_text(&detail, DETAIL_CHARS_MAX));
                Self::new(ErrorCode::UnknownAgent, detail)
            }
            StartError::UnknownPrevious(_) => Self::new(ErrorCode::UnknownPrevious, detail),
            StartError::NoInput => Self::new(ErrorCode::NoInput, detail),
            StartError::TooLarge(max) => Self::new(ErrorCode::RequestTooLarge, detail).with_extension("bytes_max", max),
            StartError::Busy(task) => Self::new(ErrorCode::ThreadBusy, detail).with_extension("task_id", task.as_str()),
            StartError::Submit(error) => error.into(),
        }
    }
}

impl From<AnswerError> for Problem {
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

impl From<CursorError> for Problem {
    fn from(error: CursorError) -> Self {
        let detail = error.to_string();
        match error {
            CursorError::Malformed(_) => Self::new(ErrorCode::InvalidCursor, detail),
            CursorError::Ahead { head, .. } => Self::new(ErrorCode::CursorAhead, detail).with_extension("head", head.0),
            CursorError::Mismatch => Self::new(ErrorCode::CursorForeign, detail),
        }
    }
}

impl From<WatchError> for Problem {
    fn from(error: WatchError) -> Self {
        match error {
            WatchError::Cursor(error) => error.into(),
            WatchError::Store(error) => error.into(),
        }
    }
}

/// What was decided, and by whom.
fn describe_decision(answer: &ApprovalAnswer) -> String {
    let what = match answer.decision.kind {
        ApprovalDecisionKind::Approve => "yes",
        ApprovalDecisionKind::Edit => "yes, with other arguments",
        ApprovalDecisionKind::Reject => "no",
    };
    let who = match answer.by {
        Initiator::User => "a person",
        Initiator::Timeout => "the clock",
        Initiator::System | Initiator::Cancel => "the end of its run",
    };
    format!("this was decided before: {what}, by {who}")
}
