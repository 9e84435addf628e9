//! Error responses: RFC 9457 bodies with stable codes.
//!
//! They are for clients, and name no path, table or stack; the log has what an operator needs. A missing resource and
//! another user's give the same bytes, so the request id is in a header and not in the body.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use files::{FileKeyError, FileStoreError};
use gateway::Rejection;
use gateway::native_json::ApprovalObject;
use model::cursor::CursorError;
use model::error::{ErrorCode, ErrorScope, truncate_text};
use model::id::IdError;
use model::json::{ExactObject, ExactValue};
use model::ports::{StoreError, SubmitError};
use model::task::TaskStatus;
use model::{CallId, Seq, TaskId, ThreadId};
use protocol::client_input::InvalidField;
use schemars::generate::SchemaGenerator;
use schemars::{JsonSchema, Schema, json_schema};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Display;

/// Details may quote client input of any length.
const DETAIL_CHARS_MAX: usize = 300;
const RETRY_AFTER_SECONDS: u64 = 2;

#[derive(Debug)]
pub(crate) struct Problem(Box<ProblemFields>);

#[derive(Debug)]
struct ProblemFields {
    summary: ProblemSummary,
    extensions: ExactObject,
    headers: HeaderMap,
}

impl Problem {
    pub(crate) fn code(&self) -> ErrorCode {
        self.0.summary.code
    }

    pub(crate) fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        let summary = ProblemSummary { code, detail: detail.into(), field: code.field().map(str::to_owned) };
        Self(Box::new(ProblemFields { summary, extensions: ExactObject::new(), headers: HeaderMap::new() }))
    }

    /// Names the field of the request that is at fault.
    pub(crate) fn with_field(mut self, field: impl Into<String>) -> Self {
        self.0.summary.field = Some(field.into());
        self
    }

    /// Adds a member to the body.
    pub(crate) fn with_extension(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.extensions.insert(name.to_owned(), ExactValue::from(value.into()));
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

    /// For protocols without HTTP responses: the error, and the extension members of the body.
    pub(crate) fn into_parts(self) -> (ProblemSummary, ExactObject) {
        (self.0.summary, self.0.extensions)
    }

    /// The resource does not exist, or belongs to another user.
    pub(crate) fn not_found() -> Self {
        Self::new(
            ErrorCode::NotFound,
            "no such resource or path; GET /openapi.json lists the paths, and base URLs of OpenAI clients end with /v1",
        )
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

    /// A server bug. The caller logs the cause.
    pub(crate) fn internal() -> Self {
        Self::new(ErrorCode::Internal, "internal error; the server has logged it")
    }

    pub(crate) fn too_many_uploads(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::TooManyUploads, detail).with_retry_after().closing_connection()
    }

    /// The server has no connection or memory left for the request.
    pub(crate) fn server_busy(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::ServerBusy, detail).with_retry_after().closing_connection()
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

/// The members of the body that are not in every problem; they travel with the summary.
#[derive(Clone, Debug)]
pub(crate) struct ProblemMembers(pub(crate) ExactObject);

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let ProblemFields { summary, extensions, headers } = *self.0;
        let status = StatusCode::from_u16(summary.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let members = [
            ("type", json!("about:blank")),
            ("title", json!(status.canonical_reason().unwrap_or("Error"))),
            ("status", json!(status.as_u16())),
            ("code", json!(summary.code.as_str())),
            ("detail", json!(summary.detail)),
        ];
        let mut body: ExactObject = members.map(|(name, value)| (name.to_owned(), value.into())).into();
        let members = ProblemMembers(extensions.clone());
        body.extend(extensions);
        let mut response = Response::new(Body::from(ExactValue::Object(body).to_string()));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        let media_type = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, media_type);
        response.extensions_mut().insert(summary);
        response.extensions_mut().insert(members);
        response
    }
}

/// By hand, because extensions are members of the body beside those that every problem has.
impl JsonSchema for Problem {
    fn schema_name() -> Cow<'static, str> {
        "Problem".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        // Arguments of an edited call are checked like those of a model's call.
        let is_answered =
            |code: &&ErrorCode| code.scope() == ErrorScope::Request || **code == ErrorCode::InvalidArguments;
        let codes: BTreeSet<&str> = ErrorCode::ALL.iter().filter(is_answered).map(|code| code.as_str()).collect();
        json_schema!({
            "type": "object",
            "description": "RFC 9457. Programs rely on `status` and `code`; docs/errors.md describes every code.",
            "required": ["type", "title", "status", "code", "detail"],
            "properties": {
                "type": { "const": "about:blank" },
                "title": { "type": "string", "description": "The status in words." },
                "status": { "type": "integer" },
                "code": { "type": "string", "enum": codes },
                "detail": { "type": "string", "description": "For people." },
                "agents": { "type": "array", "items": { "type": "string" }, "description": "With `unknown_agent`." },
                "approval": generator.subschema_for::<ApprovalObject<'_>>(),
                "call_id": generator.subschema_for::<CallId>(),
                "bytes_max": { "type": "integer", "description": "The limit, with `body_too_large`." },
                "pixels_max": { "type": "integer", "description": "The limit, with `image_too_large`." },
                "head": generator.subschema_for::<Seq>(),
                "task_id": generator.subschema_for::<TaskId>(),
                "task_status": generator.subschema_for::<TaskStatus>(),
                "thread_id": generator.subschema_for::<ThreadId>(),
                "seq": generator.subschema_for::<Seq>(),
            },
        })
    }
}

impl From<Rejection> for Problem {
    fn from(Rejection { code, detail, field, extensions }: Rejection) -> Self {
        let summary = ProblemSummary { code, detail, field };
        let problem = Self(Box::new(ProblemFields { summary, extensions, headers: HeaderMap::new() }));
        match code {
            ErrorCode::StorageUnavailable
            | ErrorCode::FilesUnavailable
            | ErrorCode::InboxFull
            | ErrorCode::TooManyRuns => problem.with_retry_after(),
            ErrorCode::TooManyUploads | ErrorCode::TooManyRequests => problem.with_retry_after().closing_connection(),
            _ => problem,
        }
    }
}

/// The errors of lower crates, by way of [`Rejection`].
macro_rules! from_via_rejection {
    ($($error:ty),* $(,)?) => {
        $(impl From<$error> for Problem {
            fn from(error: $error) -> Self {
                Rejection::from(error).into()
            }
        })*
    };
}

from_via_rejection!(InvalidField, IdError, StoreError, SubmitError, CursorError, FileKeyError, FileStoreError);
