//! `POST /api/v1/agent/attachments`: uploads a file, as a body of its own or as the one file of a form.

use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::query_params;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use files::parse_disposition_file_name;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use gateway::attachments::{IncomingFile, file_too_large};
use gateway::{Rejection, run_to_completion};
use model::UserId;
use model::error::ErrorCode;
use model::ports::AttachmentRow;
use multer::{Constraints, Multipart, SizeLimit};
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// The deadline of an upload, as a multiple of that of a JSON body.
const UPLOAD_TIMEOUT_FACTOR: u32 = 10;
/// The overhead of a form around its file.
const FORM_BYTES_MAX: u64 = 16 * 1024;

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Attachment")]
pub(crate) struct UploadedFile {
    bucket: String,
    content_type: String,
    name: String,
    path: String,
    size: u64,
}

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let [name] = query_params::parse_query(&uri, ["name"])?;
    check_headers(&app, &headers)?;
    app.gateway.attachments.check_quota(&caller.user).await.map_err(upload_problem)?;
    let permit = app.gateway.attachments.acquire_upload_permit(&caller.user)?;
    // The sender may disconnect at any moment; a partial upload is deleted all the same.
    let bucket = app.gateway.attachments.bucket.clone();
    let row = run_to_completion(async move {
        let _permit = permit;
        Ok::<_, Rejection>(receive_file(&app, &caller.user, name, &headers, body).await)
    });
    let row = row.await??;
    let AttachmentRow { path, name, content_type, size_bytes, .. } = row;
    let object = UploadedFile { bucket, content_type, name, path, size: size_bytes };
    Ok((StatusCode::CREATED, axum::Json(object)).into_response())
}

/// The checks that need no byte of the body.
fn check_headers(app: &App, headers: &HeaderMap) -> Result<(), Problem> {
    if headers.contains_key(header::CONTENT_ENCODING) {
        let detail = "compressed bodies are not taken: send it without Content-Encoding";
        return Err(Problem::new(ErrorCode::UnsupportedEncoding, detail).closing_connection());
    }
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let bytes_max = app.gateway.attachments.settings.upload_bytes_max;
    if length.is_some_and(|length| length > bytes_max.saturating_add(FORM_BYTES_MAX)) {
        return Err(upload_problem(file_too_large(bytes_max)));
    }
    Ok(())
}

/// The body of an upload: the file's bytes, and its name and type as declared by the sender.
struct UploadBody {
    name: Option<String>,
    declared_type: Option<String>,
    chunks: BoxStream<'static, Result<Bytes, Problem>>,
    /// The form around the file, which must have no other field.
    form: Option<Multipart<'static>>,
    limits: UploadLimits,
}

#[derive(Clone, Copy)]
struct UploadLimits {
    bytes_max: u64,
    idle_timeout: Duration,
    deadline: Instant,
}

/// An error of the body or of the gateway. The rest of the body is not read after either.
struct UploadFailure(Problem);

impl From<Rejection> for UploadFailure {
    fn from(rejection: Rejection) -> Self {
        Self(upload_problem(rejection))
    }
}

/// Closes the connection where the sender may still be sending.
fn upload_problem(rejection: Rejection) -> Problem {
    let code = rejection.code;
    let problem = Problem::from(rejection);
    match code {
        ErrorCode::BodyTooLarge | ErrorCode::ImageTooLarge | ErrorCode::QuotaExceeded => problem.closing_connection(),
        _ => problem,
    }
}

async fn receive_file(
    app: &App,
    user: &UserId,
    name: Option<String>,
    headers: &HeaderMap,
    body: Body,
) -> Result<AttachmentRow, Problem> {
    let upload = open_upload(app, headers, body).await?;
    let name = name.or_else(|| upload.name.clone()).unwrap_or_default();
    let file = IncomingFile { name, declared_type: upload.declared_type.clone() };
    let chunks = stream::try_unfold(upload, |mut upload| async move {
        let chunk = upload.next_chunk().await.map_err(UploadFailure)?;
        Ok(chunk.map(|bytes| (bytes, upload)))
    });
    let received = app.gateway.attachments.receive(user, file, Box::pin(chunks)).await;
    received.map_err(|UploadFailure(problem)| problem)
}

async fn open_upload(app: &App, headers: &HeaderMap, body: Body) -> Result<UploadBody, Problem> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let idle_timeout = app.limits.body_read_timeout;
    let bytes_max = app.gateway.attachments.settings.upload_bytes_max;
    let limits =
        UploadLimits { bytes_max, idle_timeout, deadline: Instant::now() + idle_timeout * UPLOAD_TIMEOUT_FACTOR };
    let chunks = body.into_data_stream();
    let essence = content_type.as_deref().and_then(|text| text.split(';').next()).unwrap_or_default();
    if !essence.trim().eq_ignore_ascii_case("multipart/form-data") {
        let chunks = chunks.map(|chunk| chunk.map_err(|_| body_interrupted())).boxed();
        return Ok(UploadBody { name: None, declared_type: content_type, chunks, form: None, limits });
    }
    let boundary = multer::parse_boundary(content_type.unwrap_or_default()).map_err(|_| invalid_form())?;
    let form_bytes_max = bytes_max.saturating_add(FORM_BYTES_MAX);
    let constraints = Constraints::new().size_limit(SizeLimit::new().whole_stream(form_bytes_max));
    let mut form = Multipart::with_constraints(chunks, boundary, constraints);
    let field = timeout(idle_timeout, form.next_field()).await.map_err(|_| upload_timed_out(idle_timeout))?;
    let field = field.map_err(|error| form_problem(&error, bytes_max))?.ok_or_else(invalid_form)?;
    let disposition = field.headers().get(header::CONTENT_DISPOSITION);
    let name = disposition.and_then(|disposition| parse_disposition_file_name(disposition.as_bytes()));
    if name.is_none() {
        return Err(invalid_form());
    }
    let declared_type = field.content_type().map(|media_type| media_type.essence_str().to_owned());
    let chunks = field.map(move |chunk| chunk.map_err(|error| form_problem(&error, bytes_max))).boxed();
    Ok(UploadBody { name, declared_type, chunks, form: Some(form), limits })
}

impl UploadBody {
    /// Waits for the next bytes, up to the idle time-out and the deadline.
    async fn next_chunk(&mut self) -> Result<Option<Bytes>, Problem> {
        let UploadLimits { bytes_max, idle_timeout, deadline } = self.limits;
        let deadline = deadline.min(Instant::now() + idle_timeout);
        let chunk = timeout_at(deadline, self.chunks.next()).await.map_err(|_| upload_timed_out(idle_timeout))?;
        let Some(form) = self.form.as_mut().filter(|_| chunk.is_none()) else { return chunk.transpose() };
        // Without the end of the form the file may be incomplete.
        self.chunks = stream::empty().boxed();
        match timeout_at(deadline, form.next_field()).await.map_err(|_| upload_timed_out(idle_timeout))? {
            Ok(None) => Ok(None),
            Ok(Some(_)) => Err(invalid_form()),
            Err(error) => Err(form_problem(&error, bytes_max)),
        }
    }
}

fn upload_timed_out(idle_timeout: Duration) -> Problem {
    let detail = format!("nothing came for {} ms, or the file took too long", idle_timeout.as_millis());
    Problem::new(ErrorCode::BodyTimeout, detail).closing_connection()
}

fn body_interrupted() -> Problem {
    Problem::new(ErrorCode::InvalidFraming, "the body broke off").closing_connection()
}

fn invalid_form() -> Problem {
    let detail = "a form has exactly one field, which is a file: `filename` must be there";
    Problem::new(ErrorCode::InvalidForm, detail).closing_connection()
}

fn form_problem(error: &multer::Error, bytes_max: u64) -> Problem {
    match error {
        multer::Error::StreamSizeExceeded { .. } | multer::Error::FieldSizeExceeded { .. } => {
            upload_problem(file_too_large(bytes_max))
        }
        multer::Error::StreamReadFailed(_) | multer::Error::IncompleteStream => body_interrupted(),
        multer::Error::IncompleteFieldData { .. } | multer::Error::IncompleteHeaders => body_interrupted(),
        _ => invalid_form(),
    }
}
