//! `POST /api/v1/agent/attachments`: takes a file in, as a body of its own or as the one file of a form.
//!
//! The bytes go to their place as they come; what they are is seen by the first of them. Whatever breaks off on the way
//! leaves neither bytes nor a row.

use super::to_its_end;
use crate::app::App;
use crate::auth::Caller;
use crate::files::BlobError;
use crate::problem::Problem;
use crate::query;
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
use model::ports::{AttachmentOutcome, AttachmentRow, Clock as _};
use multer::{Constraints, Multipart, SizeLimit};
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};
use uuid::Uuid;

/// A file may take so many times as long as a body, as long as it keeps coming.
const PATIENCE: u32 = 10;
/// What a form has beside its file.
const FORM_BYTES_MAX: u64 = 16 * 1024;

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let [name] = query::read(&uri, ["name"])?;
    check(&app, &caller.user, &headers).await?;
    let room = app.files.enter(&caller.user)?;
    // The sender may go away at any moment; what has been begun is cleared away all the same.
    let row = to_its_end(async move {
        let _room = room;
        receive(&app, &caller.user, name, &headers, body).await.map(|row| (row, app.files.bucket.clone()))
    });
    let (row, bucket) = row.await?;
    let AttachmentRow { path, name, content_type, size_bytes: bytes, .. } = row;
    let answer = json!({ "bucket": bucket, "path": path, "name": name, "contentType": content_type, "size": bytes });
    Ok((StatusCode::CREATED, axum::Json(answer)).into_response())
}

/// What can be refused before a byte is read.
async fn check(app: &App, user: &UserId, headers: &HeaderMap) -> Result<(), Problem> {
    if headers.contains_key(header::CONTENT_ENCODING) {
        let detail = "compressed bodies are not taken: send it without Content-Encoding";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_encoding", detail).closing());
    }
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > app.files.config.upload_bytes_max.saturating_add(FORM_BYTES_MAX)) {
        return Err(too_large(app));
    }
    match app.files.config.user_bytes_max {
        Some(most) => {
            let used = app.files.held(user).await?;
            if used >= most { Err(over(most, used)) } else { Ok(()) }
        }
        None => Ok(()),
    }
}

/// A file on its way.
struct Incoming {
    name: Option<String>,
    declared: Option<String>,
    pieces: BoxStream<'static, Result<Bytes, Problem>>,
    /// The form that it is in; nothing else may follow in there.
    form: Option<Multipart<'static>>,
    /// What it says of its size as a picture, once it is known what it is.
    picture: Option<ImageHeaderScanner>,
    bytes_max: u64,
    silence_max: Duration,
    until: Instant,
}

async fn receive(
    app: &App,
    user: &UserId,
    name: Option<String>,
    headers: &HeaderMap,
    body: Body,
) -> Result<AttachmentRow, Problem> {
    let mut incoming = open(app, headers, body).await?;
    let head = incoming.head().await?;
    if head.is_empty() {
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "empty_file", "the file is empty"));
    }
    let kind = FileType::sniff(&head, incoming.declared.as_deref());
    incoming.picture = Some(ImageHeaderScanner::new(kind, app.files.config.pixels_max));
    incoming.look(&head)?;
    let name = sanitize_file_name(name.as_deref().or(incoming.name.as_deref()).unwrap_or_default());
    let key = FileKey::for_attachment(user, Uuid::now_v7(), kind.extension)?;
    app.files.expect(&key).await?;
    let kept = keep(app, &key, kind, name, head, incoming).await;
    if kept.is_err()
        && let Err(error) = app.files.discard(user, &key).await
    {
        tracing::warn!(path = key.as_str(), %error, "what is left of a file waits for the next start");
    }
    kept
}

/// Brings the bytes to their place, and says that they are there once they are.
async fn keep(
    app: &App,
    key: &FileKey,
    kind: FileType,
    name: String,
    head: Bytes,
    mut incoming: Incoming,
) -> Result<AttachmentRow, Problem> {
    let disposition = content_disposition(&name, kind.content_type);
    let mut upload = app.files.depot.upload(key, kind, &disposition, app.files.config.upload_bytes_max).await?;
    let mut piece = Some(head);
    while let Some(bytes) = piece {
        let next = match upload.write(bytes).await {
            Ok(()) => incoming.next().await,
            Err(error) => Err(refused(app, error)),
        };
        match next {
            Ok(next) => piece = next,
            Err(problem) => {
                upload.abort().await;
                return Err(problem);
            }
        }
    }
    let bytes = upload.finish().await.map_err(|error| refused(app, error))?;
    let (path, created_at) = (key.as_str().to_owned(), SystemClock.now());
    let row = AttachmentRow {
        path,
        name,
        content_type: kind.content_type.to_owned(),
        size_bytes: bytes,
        created_at,
        hash: None,
    };
    match app.files.keep(key.owner(), row.clone()).await? {
        AttachmentOutcome::Stored | AttachmentOutcome::Duplicate(_) => Ok(row),
        AttachmentOutcome::QuotaExceeded { used } => {
            Err(over(app.files.config.user_bytes_max.unwrap_or_default(), used))
        }
    }
}

async fn open(app: &App, headers: &HeaderMap, body: Body) -> Result<Incoming, Problem> {
    let declared = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).map(str::to_owned);
    let (bytes_max, silence_max) = (app.files.config.upload_bytes_max, app.limits.body_read);
    let until = Instant::now() + silence_max * PATIENCE;
    let pieces = body.into_data_stream();
    let essence = declared.as_deref().and_then(|kind| kind.split(';').next()).unwrap_or_default();
    let is_form = essence.trim().eq_ignore_ascii_case("multipart/form-data");
    if !is_form {
        let pieces = pieces.map(|piece| piece.map_err(|_| broke_off())).boxed();
        return Ok(Incoming { name: None, declared, pieces, form: None, picture: None, bytes_max, silence_max, until });
    }
    let boundary = multer::parse_boundary(declared.unwrap_or_default()).map_err(|_| not_a_form())?;
    let form_bytes_max = bytes_max.saturating_add(FORM_BYTES_MAX);
    let constraints = Constraints::new().size_limit(SizeLimit::new().whole_stream(form_bytes_max));
    let mut form = Multipart::with_constraints(pieces, boundary, constraints);
    let field = timeout(silence_max, form.next_field()).await.map_err(|_| late(silence_max))?;
    let field = field.map_err(|error| form_fault(&error, bytes_max))?.ok_or_else(not_a_form)?;
    let disposition = field.headers().get(header::CONTENT_DISPOSITION);
    let name = disposition.and_then(|disposition| parse_disposition_file_name(disposition.as_bytes()));
    if name.is_none() {
        return Err(not_a_form());
    }
    let declared = field.content_type().map(|kind| kind.essence_str().to_owned());
    let pieces = field.map(move |piece| piece.map_err(|error| form_fault(&error, bytes_max))).boxed();
    Ok(Incoming { name, declared, pieces, form: Some(form), picture: None, bytes_max, silence_max, until })
}

impl Incoming {
    /// The next bytes, if they come in time.
    async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        let by = self.until.min(Instant::now() + self.silence_max);
        let next = timeout_at(by, self.pieces.next()).await.map_err(|_| late(self.silence_max))?;
        if let Some(Ok(piece)) = &next {
            self.look(piece)?;
        }
        let Some(form) = self.form.as_mut().filter(|_| next.is_none()) else { return next.transpose() };
        // A form must end as it should, or nobody knows whether the file is whole.
        self.pieces = futures_util::stream::empty().boxed();
        match timeout_at(by, form.next_field()).await.map_err(|_| late(self.silence_max))? {
            Ok(None) => Ok(None),
            Ok(Some(_)) => Err(not_a_form()),
            Err(error) => Err(form_fault(&error, self.bytes_max)),
        }
    }

    /// A picture that says it is too large is not waited for.
    fn look(&mut self, piece: &[u8]) -> Result<(), Problem> {
        let Some(picture) = &mut self.picture else { return Ok(()) };
        picture.feed(piece).map_err(|error| Problem::from(error).closing())
    }

    /// The first bytes: enough of them to see what they are.
    async fn head(&mut self) -> Result<Bytes, Problem> {
        let mut head = BytesMut::new();
        while head.len() < SNIFF_BYTES {
            let Some(piece) = self.next().await? else { break };
            head.extend_from_slice(&piece);
        }
        Ok(head.freeze())
    }
}

fn refused(app: &App, error: UploadError) -> Problem {
    match error {
        UploadError::TooLarge(_) => too_large(app),
        UploadError::Store(error) => error.into(),
    }
}

fn too_large(app: &App) -> Problem {
    larger_than(app.files.config.upload_bytes_max)
}

fn larger_than(bytes_max: u64) -> Problem {
    let detail = format!("the file is larger than {bytes_max} bytes");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail).with("bytes_max", bytes_max).closing()
}

fn over(most: u64, used: u64) -> Problem {
    Problem::from(BlobError::Over { most, used }).closing()
}

fn late(silence_max: Duration) -> Problem {
    let detail = format!("nothing came for {} ms, or the file took too long", silence_max.as_millis());
    Problem::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", detail).closing()
}

fn broke_off() -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "invalid_framing", "the body broke off").closing()
}

fn not_a_form() -> Problem {
    let detail = "a form has exactly one field, which is a file: `filename` must be there";
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_form", detail).closing()
}

fn form_fault(error: &multer::Error, bytes_max: u64) -> Problem {
    match error {
        multer::Error::StreamSizeExceeded { .. } | multer::Error::FieldSizeExceeded { .. } => larger_than(bytes_max),
        multer::Error::StreamReadFailed(_) | multer::Error::IncompleteStream => broke_off(),
        multer::Error::IncompleteFieldData { .. } | multer::Error::IncompleteHeaders => broke_off(),
        _ => not_a_form(),
    }
}
