//! What a client is told when something is not right: RFC 9457 bodies with stable codes.
//!
//! Two texts for two readers: what stands here is for clients, and names no path, table or stack. What an operator needs
//! is logged. A missing thing and another user's are the same bytes; the request's id is in a header, never in the body.

use crate::native_api;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::{AnswerError, StartError, WatchError};
use model::cursor::CursorError;
use model::event::{ApprovalDecisionKind, Initiator};
use model::id::IdError;
use model::ports::{ApprovalAnswer, StoreError, SubmitError};
use serde_json::{Map, Value, json};

/// How long a client waits before it tries again what was not possible just now.
const RETRY_AFTER_SECONDS: u64 = 2;

/// A refusal.
#[derive(Debug)]
pub(crate) struct Problem(Box<ProblemFields>);

#[derive(Debug)]
struct ProblemFields {
    status: StatusCode,
    code: &'static str,
    detail: String,
    extensions: Map<String, Value>,
    headers: HeaderMap,
}

impl Problem {
    /// A refusal with a code that clients may rely on.
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        let (extra, headers) = (Map::new(), HeaderMap::new());
        Self(Box::new(ProblemFields { status, code, detail: detail.into(), extensions: extra, headers }))
    }

    /// Says one thing more.
    pub(crate) fn with_extension(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.extensions.insert(name.to_owned(), value.into());
        self
    }

    /// With a header.
    pub(crate) fn with_header(mut self, name: HeaderName, value: impl TryInto<HeaderValue>) -> Self {
        if let Ok(value) = value.try_into() {
            self.0.headers.insert(name, value);
        }
        self
    }

    /// It may be tried again in a moment.
    pub(crate) fn with_retry_after(self) -> Self {
        self.with_header(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS))
    }

    /// The rest of the request is not read: the connection cannot be used again.
    pub(crate) fn closing_connection(self) -> Self {
        self.with_header(header::CONNECTION, "close")
    }

    /// There is no such thing, or it is somebody else's.
    pub(crate) fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", "there is no such thing here")
    }

    /// The body is JSON, but not what this route takes.
    pub(crate) fn invalid_body(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_body", truncate_detail(&detail.into()))
    }

    /// A query that this route does not take.
    pub(crate) fn invalid_query(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_query", truncate_detail(&detail.into()))
    }

    /// A fault of ours. What it was is in the log.
    pub(crate) fn internal() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "a fault of the server, which has been logged")
    }

    /// More comes in than there is room for.
    pub(crate) fn too_many_uploads(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_uploads", detail).with_retry_after().closing_connection()
    }

    /// The server goes down.
    pub(crate) fn shutting_down() -> Self {
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", "the server is stopping: come back soon");
        problem.with_retry_after()
    }
}

/// A refusal in a few words, beside the response that carries it: clients of other protocols expect another body.
#[derive(Clone, Debug)]
pub(crate) struct ProblemSummary {
    pub(crate) code: &'static str,
    pub(crate) detail: String,
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let ProblemFields { status, code, detail, extensions: extra, headers } = *self.0;
        let refusal = ProblemSummary { code, detail: detail.clone() };
        let mut body = Map::new();
        body.insert("type".to_owned(), json!("about:blank"));
        body.insert("title".to_owned(), json!(status.canonical_reason().unwrap_or("Error")));
        body.insert("status".to_owned(), json!(status.as_u16()));
        body.insert("code".to_owned(), json!(code));
        body.insert("detail".to_owned(), json!(detail));
        body.extend(extra);
        let mut response = Response::new(Body::from(Value::Object(body).to_string()));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response.extensions_mut().insert(refusal);
        response
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
                let problem = Self::new(StatusCode::INTERNAL_SERVER_ERROR, "storage_corrupt", detail);
                problem.with_extension("thread_id", thread.as_str()).with_extension("seq", seq.0)
            }
            StoreError::Unavailable(why) => {
                tracing::error!(why, "the store is not available");
                let detail = "the store cannot answer now: try again";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "storage_unavailable", detail).with_retry_after()
            }
        }
    }
}

impl From<SubmitError> for Problem {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::KeyReused => Self::new(StatusCode::CONFLICT, "idempotency_key_reused", error.to_string()),
            // Somebody made the same thread at the same moment, twice: asked again, it is there.
            SubmitError::ThreadExists => StoreError::Unavailable(error.to_string()).into(),
            SubmitError::ApprovalNotFound => {
                let detail = "the run does not wait for this approval, and never did";
                Self::new(StatusCode::NOT_FOUND, "approval_not_found", detail)
            }
            SubmitError::AlreadyDecided(question) => {
                let (code, detail) = match &question.answer {
                    Some(answer) => ("already_decided", describe_decision(answer)),
                    None => ("expired", "the time for this decision is up".to_owned()),
                };
                Self::new(StatusCode::CONFLICT, code, detail)
                    .with_extension("approval", native_api::approval_json(&question))
            }
            SubmitError::InboxFull(_) => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "inbox_full", error.to_string()).with_retry_after()
            }
            SubmitError::Store(error) => error.into(),
        }
    }
}

impl From<StartError> for Problem {
    fn from(error: StartError) -> Self {
        let detail = error.to_string();
        match error {
            StartError::UnknownAgent(_) => {
                let detail = format!("{}; GET /v1/models lists those that there are", truncate_detail(&detail));
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "unknown_agent", detail)
            }
            StartError::UnknownPrevious(_) => Self::new(StatusCode::UNPROCESSABLE_ENTITY, "unknown_previous", detail),
            StartError::NoInput => Self::new(StatusCode::UNPROCESSABLE_ENTITY, "no_input", detail),
            StartError::TooLarge(max) => {
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", detail).with_extension("bytes_max", max)
            }
            StartError::Busy(task) => {
                Self::new(StatusCode::CONFLICT, "thread_busy", detail).with_extension("task_id", task.as_str())
            }
            StartError::Submit(error) => error.into(),
        }
    }
}

impl From<AnswerError> for Problem {
    fn from(error: AnswerError) -> Self {
        let detail = error.to_string();
        match error {
            AnswerError::NotPending(call) => {
                Self::new(StatusCode::CONFLICT, "nothing_pending", detail).with_extension("call_id", call.as_str())
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
            CursorError::Malformed(_) => Self::new(StatusCode::BAD_REQUEST, "invalid_cursor", detail),
            CursorError::Ahead { head, .. } => {
                Self::new(StatusCode::CONFLICT, "cursor_ahead", detail).with_extension("head", head.0)
            }
            CursorError::Mismatch => Self::new(StatusCode::CONFLICT, "cursor_foreign", detail),
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

/// Enough of a text to see what is meant; what a client sent may be long.
fn truncate_detail(text: &str) -> String {
    const CHARS_MAX: usize = 300;
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
