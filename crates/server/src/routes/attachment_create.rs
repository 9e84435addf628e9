//! `POST /api/v1/agent/attachments`: takes a file in, as a body of its own or as the one file of a form.
//!
//! The bytes go to their place as they come; what they are is seen by the first of them. Whatever breaks off on the way
//! leaves neither bytes nor a row.

use super::run_to_completion;
use crate::app::App;
use crate::attachments::BlobError;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::query_params;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use bytes::{Bytes, BytesMut};
use engine::SystemClock;
use files::{
    FileKey, FileType, ImageHeaderScanner, SNIFF_BYTES, UploadError, content_disposition, parse_disposition_file_name,
    sanitize_file_name,
};
use futures_util::stream::{BoxStream, StreamExt as _};
use model::UserId;
use model::error::ErrorCode;
use model::ports::{AttachmentOutcome, AttachmentRow, Clock as _};
use multer::{Constraints, Multipart, SizeLimit};
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};
use uuid::Uuid;

/// A file may take so many times as long as a body, as long as it keeps coming.
const UPLOAD_TIMEOUT_FACTOR: u32 = 10;
/// What a form has beside its file.
const FORM_BYTES_MAX: u64 = 16 * 1024;

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let [name] = query_params::parse_query(&uri, ["name"])?;
    check_upload(&app, &caller.user, &headers).await?;
    let room = app.files.acquire_upload_permit(&caller.user)?;
    // The sender may go away at any moment; what has been begun is cleared away all the same.
    let row = run_to_completion(async move {
        let _room = room;
        receive_file(&app, &caller.user, name, &headers, body).await.map(|row| (row, app.files.bucket.clone()))
    });
    let (row, bucket) = row.await?;
    let AttachmentRow { path, name, content_type, size_bytes: bytes, .. } = row;
    let answer = json!({ "bucket": bucket, "path": path, "name": name, "contentType": content_type, "size": bytes });
    Ok((StatusCode::CREATED, axum::Json(answer)).into_response())
}

/// What can be refused before a byte is read.
async fn check_upload(app: &App, user: &UserId, headers: &HeaderMap) -> Result<(), Problem> {
    if headers.contains_key(header::CONTENT_ENCODING) {
        let detail = "compressed bodies are not taken: send it without Content-Encoding";
        return Err(Problem::new(ErrorCode::UnsupportedEncoding, detail).closing_connection());
    }
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > app.files.settings.upload_bytes_max.saturating_add(FORM_BYTES_MAX)) {
        return Err(too_large(app));
    }
    match app.files.settings.user_bytes_max {
        Some(most) => {
            let used = app.files.used_bytes(user).await?;
            if used >= most { Err(quota_exceeded(most, used)) } else { Ok(()) }
        }
        None => Ok(()),
    }
}

/// A file on its way.
struct IncomingFile {
    name: Option<String>,
    declared_type: Option<String>,
    chunks: BoxStream<'static, Result<Bytes, Problem>>,
    /// The form that it is in; nothing else may follow in there.
    form: Option<Multipart<'static>>,
    /// What it says of its size as a picture, once it is known what it is.
    image_check: Option<ImageHeaderScanner>,
    bytes_max: u64,
    idle_timeout: Duration,
    deadline: Instant,
}

async fn receive_file(
    app: &App,
    user: &UserId,
    name: Option<String>,
    headers: &HeaderMap,
    body: Body,
) -> Result<AttachmentRow, Problem> {
    let mut incoming = open_upload(app, headers, body).await?;
    let head = incoming.read_head().await?;
    if head.is_empty() {
        return Err(Problem::new(ErrorCode::EmptyFile, "the file is empty"));
    }
    let kind = FileType::sniff(&head, incoming.declared_type.as_deref());
    incoming.image_check = Some(ImageHeaderScanner::new(kind, app.files.settings.pixels_max));
    incoming.check_image(&head)?;
    let name = sanitize_file_name(name.as_deref().or(incoming.name.as_deref()).unwrap_or_default());
    let key = FileKey::for_attachment(user, Uuid::now_v7(), kind.extension)?;
    app.files.register_upload(&key).await?;
    let kept = store_file(app, &key, kind, name, head, incoming).await;
    if kept.is_err()
        && let Err(error) = app.files.delete(user, &key).await
    {
        tracing::warn!(path = key.as_str(), %error, "what is left of a file waits for the next start");
    }
    kept
}

/// Brings the bytes to their place, and says that they are there once they are.
async fn store_file(
    app: &App,
    key: &FileKey,
    kind: FileType,
    name: String,
    head: Bytes,
    mut incoming: IncomingFile,
) -> Result<AttachmentRow, Problem> {
    let disposition = content_disposition(&name, kind.content_type);
    let mut upload = app.files.file_store.upload(key, kind, &disposition, app.files.settings.upload_bytes_max).await?;
    let mut piece = Some(head);
    while let Some(bytes) = piece {
        let next = match upload.write(bytes).await {
            Ok(()) => incoming.next_chunk().await,
            Err(error) => Err(upload_problem(app, error)),
        };
        match next {
            Ok(next) => piece = next,
            Err(problem) => {
                upload.abort().await;
                return Err(problem);
            }
        }
    }
    let bytes = upload.finish().await.map_err(|error| upload_problem(app, error))?;
    let (path, created_at) = (key.as_str().to_owned(), SystemClock.now());
    let row = AttachmentRow {
        path,
        name,
        content_type: kind.content_type.to_owned(),
        size_bytes: bytes,
        created_at,
        hash: None,
    };
    match app.files.commit_upload(key.owner(), row.clone()).await? {
        AttachmentOutcome::Stored | AttachmentOutcome::Duplicate(_) => Ok(row),
        AttachmentOutcome::QuotaExceeded { used } => {
            Err(quota_exceeded(app.files.settings.user_bytes_max.unwrap_or_default(), used))
        }
    }
}

async fn open_upload(app: &App, headers: &HeaderMap, body: Body) -> Result<IncomingFile, Problem> {
    let declared = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).map(str::to_owned);
    let (bytes_max, silence_max) = (app.files.settings.upload_bytes_max, app.limits.body_read_timeout);
    let until = Instant::now() + silence_max * UPLOAD_TIMEOUT_FACTOR;
    let pieces = body.into_data_stream();
    let essence = declared.as_deref().and_then(|kind| kind.split(';').next()).unwrap_or_default();
    let is_form = essence.trim().eq_ignore_ascii_case("multipart/form-data");
    if !is_form {
        let pieces = pieces.map(|piece| piece.map_err(|_| body_interrupted())).boxed();
        return Ok(IncomingFile {
            name: None,
            declared_type: declared,
            chunks: pieces,
            form: None,
            image_check: None,
            bytes_max,
            idle_timeout: silence_max,
            deadline: until,
        });
    }
    let boundary = multer::parse_boundary(declared.unwrap_or_default()).map_err(|_| invalid_form())?;
    let form_bytes_max = bytes_max.saturating_add(FORM_BYTES_MAX);
    let constraints = Constraints::new().size_limit(SizeLimit::new().whole_stream(form_bytes_max));
    let mut form = Multipart::with_constraints(pieces, boundary, constraints);
    let field = timeout(silence_max, form.next_field()).await.map_err(|_| upload_timed_out(silence_max))?;
    let field = field.map_err(|error| form_problem(&error, bytes_max))?.ok_or_else(invalid_form)?;
    let disposition = field.headers().get(header::CONTENT_DISPOSITION);
    let name = disposition.and_then(|disposition| parse_disposition_file_name(disposition.as_bytes()));
    if name.is_none() {
        return Err(invalid_form());
    }
    let declared = field.content_type().map(|kind| kind.essence_str().to_owned());
    let pieces = field.map(move |piece| piece.map_err(|error| form_problem(&error, bytes_max))).boxed();
    Ok(IncomingFile {
        name,
        declared_type: declared,
        chunks: pieces,
        form: Some(form),
        image_check: None,
        bytes_max,
        idle_timeout: silence_max,
        deadline: until,
    })
}

impl IncomingFile {
    /// The next bytes, if they come in time.
    async fn next_chunk(&mut self) -> Result<Option<Bytes>, Problem> {
        let by = self.deadline.min(Instant::now() + self.idle_timeout);
        let next = timeout_at(by, self.chunks.next()).await.map_err(|_| upload_timed_out(self.idle_timeout))?;
        if let Some(Ok(piece)) = &next {
            self.check_image(piece)?;
        }
        let Some(form) = self.form.as_mut().filter(|_| next.is_none()) else { return next.transpose() };
        // A form must end as it should, or nobody knows whether the file is whole.
        self.chunks = futures_util::stream::empty().boxed();
        match timeout_at(by, form.next_field()).await.map_err(|_| upload_timed_out(self.idle_timeout))? {
            Ok(None) => Ok(None),
            Ok(Some(_)) => Err(invalid_form()),
            Err(error) => Err(form_problem(&error, self.bytes_max)),
        }
    }

    /// A picture that says it is too large is not waited for.
    fn check_image(&mut self, piece: &[u8]) -> Result<(), Problem> {
        let Some(picture) = &mut self.image_check else { return Ok(()) };
        picture.feed(piece).map_err(|error| Problem::from(error).closing_connection())
    }

    /// The first bytes: enough of them to see what they are.
    async fn read_head(&mut self) -> Result<Bytes, Problem> {
        let mut head = BytesMut::new();
        while head.len() < SNIFF_BYTES {
            let Some(piece) = self.next_chunk().await? else { break };
            head.extend_from_slice(&piece);
        }
        Ok(head.freeze())
    }
}

fn upload_problem(app: &App, error: UploadError) -> Problem {
    match error {
        UploadError::TooLarge(_) => too_large(app),
        UploadError::Store(error) => error.into(),
    }
}

fn too_large(app: &App) -> Problem {
    larger_than_problem(app.files.settings.upload_bytes_max)
}

fn larger_than_problem(bytes_max: u64) -> Problem {
    let detail = format!("the file is larger than {bytes_max} bytes");
    Problem::new(ErrorCode::BodyTooLarge, detail).with_extension("bytes_max", bytes_max).closing_connection()
}

fn quota_exceeded(most: u64, used: u64) -> Problem {
    Problem::from(BlobError::QuotaExceeded { most, used }).closing_connection()
}

fn upload_timed_out(silence_max: Duration) -> Problem {
    let detail = format!("nothing came for {} ms, or the file took too long", silence_max.as_millis());
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
            larger_than_problem(bytes_max)
        }
        multer::Error::StreamReadFailed(_) | multer::Error::IncompleteStream => body_interrupted(),
        multer::Error::IncompleteFieldData { .. } | multer::Error::IncompleteHeaders => body_interrupted(),
        _ => invalid_form(),
    }
}
