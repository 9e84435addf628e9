//! What comes along with words: pictures and files, looked at and kept before anything begins.
//!
//! Two steps. [`Luggage::unpack`] reads: what came inside a `data:` URL is looked at and taken out, and its part says from
//! then on where it will be (`/v1/blobs/…`), so that what was said can be measured and compared while nothing is kept yet.
//! [`Luggage::keep`] writes: first it asks for everything that could be somebody else's, and keeps bytes only then. So what
//! is refused leaves nothing behind.

use super::blobs::sha256_hex;
use super::data_url::{self, DataUrlError, is_data_url};
use super::{BlobOrigin, NewBlob};
use crate::app::App;
use crate::config::FilesConfig;
use crate::problem::Problem;
use engine::NewRun;
use files::{FileType, ImageHeaderScanner, ImageTooLarge, sanitize_file_name};
use model::blob::{self, BLOB_URL_PREFIX, blob_hash};
use model::command::{AnswerBody, ClientToolResult};
use model::content::{ContentPart, FileRef, IMAGE_MEDIA_TYPES};
use model::error::{ErrorCode, truncate_text};
use model::history::{HistoryEntry, PriorHistory};
use model::ports::AttachmentRow;
use model::{ThreadId, UserId};
use protocol::client_input::{ClientInput, InputKind};
use reqwest::Url;
use std::collections::HashMap;
use std::mem;
use upstream::responses::generated_image;

/// What is longer is read where nobody waits for the thread.
const DECODE_INLINE_BYTES_MAX: usize = 64 * 1024;

/// The bytes that came along, by hash.
#[derive(Debug, Default)]
pub(crate) struct Uploads {
    by_hash: HashMap<String, UploadSource>,
}

#[derive(Debug)]
enum UploadSource {
    /// It came with the request.
    Inline(NewBlob),
    /// It is somebody else's, who has shown it to the user.
    Shared(AttachmentRow),
}

/// Why something that came along is not taken.
#[derive(Debug, thiserror::Error)]
enum InlineFileError {
    #[error(transparent)]
    DataUrl(#[from] DataUrlError),
    #[error("a picture must be a PNG, JPEG, GIF or WebP, and this is {0}")]
    NotAnImage(&'static str),
    #[error("a file that comes along may have {0} bytes at most")]
    TooLarge(u64),
    #[error(transparent)]
    ImageTooLarge(#[from] ImageTooLarge),
    #[error("the reading was broken off")]
    Aborted,
}

impl InlineFileError {
    fn into_problem(&self, field: &str) -> Problem {
        let detail = format!("`{field}`: {self}");
        let problem = match self {
            Self::DataUrl(_) | Self::NotAnImage(_) => Problem::invalid_body(detail),
            Self::TooLarge(most) => Problem::new(ErrorCode::BodyTooLarge, detail).with_extension("bytes_max", *most),
            Self::ImageTooLarge(ImageTooLarge { pixels_max, .. }) => {
                let problem = Problem::new(ErrorCode::ImageTooLarge, detail);
                problem.with_extension("pixels_max", *pixels_max)
            }
            Self::Aborted => return Problem::internal(),
        };
        problem.with_field(field)
    }
}

/// What is asked of something that came along.
#[derive(Clone, Copy)]
struct InlineFileLimits {
    must_be_image: bool,
    bytes_max: u64,
    pixels_max: u64,
}

impl InlineFileLimits {
    const fn for_image(config: &FilesConfig) -> Self {
        Self { must_be_image: true, bytes_max: config.image_bytes_max, pixels_max: config.pixels_max }
    }

    const fn for_file(config: &FilesConfig) -> Self {
        Self { must_be_image: false, bytes_max: config.upload_bytes_max, pixels_max: config.pixels_max }
    }
}

impl Uploads {
    /// Takes out what came inside of parts. `field` is what a refusal names.
    pub(crate) async fn extract<'a>(
        app: &App,
        field: &str,
        parts: impl Iterator<Item = &'a mut ContentPart> + Send,
    ) -> Result<Self, Problem> {
        let mut luggage = Self::default();
        for part in parts {
            let (url, name, wanted) = match part {
                ContentPart::Text { .. } => continue,
                ContentPart::ImageUrl { image_url, .. } => {
                    (&mut image_url.url, None, InlineFileLimits::for_image(&app.files.settings))
                }
                ContentPart::File { file: FileRef { url: Some(url), name, .. } } => {
                    if !is_data_url(url) {
                        check_url(field, url)?;
                    }
                    (url, name.clone(), InlineFileLimits::for_file(&app.files.settings))
                }
                ContentPart::File { .. } => continue,
            };
            if is_data_url(url) {
                let opened = decode_inline_file(mem::take(url), name, wanted).await;
                let (hash, blob) = opened.map_err(|refused| refused.into_problem(field))?;
                *url = blob::blob_url(&hash);
                set_file_size(part, blob.bytes.len() as u64);
                luggage.by_hash.insert(hash, UploadSource::Inline(blob));
            }
        }
        Ok(luggage)
    }

    /// Puts something in that its owner has shown to the user.
    pub(crate) fn add_shared(&mut self, hash: &str, row: AttachmentRow) {
        self.by_hash.entry(hash.to_owned()).or_insert(UploadSource::Shared(row));
    }

    /// More of it.
    pub(crate) fn extend(&mut self, other: Self) {
        self.by_hash.extend(other.by_hash);
    }

    /// Is everything that these parts tell of the user's own, or was brought along?
    pub(crate) async fn check_owned<'a>(
        &self,
        app: &App,
        user: &UserId,
        parts: impl Iterator<Item = &'a mut ContentPart> + Send,
    ) -> Result<(), Problem> {
        for part in parts.filter(|part| is_stored_file(part)) {
            // No protocol that only checks has files by bucket and path.
            let hash = part.url().and_then(blob_hash).ok_or_else(Problem::not_found)?;
            if !self.by_hash.contains_key(hash) {
                app.files.directory.blob(user, None, hash).await?.ok_or_else(Problem::not_found)?;
            }
        }
        Ok(())
    }

    /// Keeps for a thread what these parts tell of: everything of it is the user's own, or was brought along.
    pub(crate) async fn store<'a>(
        &self,
        app: &App,
        whose: (&UserId, &ThreadId),
        parts: impl Iterator<Item = &'a mut ContentPart> + Send,
    ) -> Result<(), Problem> {
        self.store_as(BlobOrigin::NewThreadUpload, app, whose, parts).await
    }

    /// The same for a thread that is there. When it has been deleted meanwhile, nothing of this stays.
    pub(crate) async fn store_in_thread<'a>(
        &self,
        app: &App,
        (user, thread): (&UserId, &ThreadId),
        parts: impl Iterator<Item = &'a mut ContentPart> + Send,
    ) -> Result<(), Problem> {
        let parts: Vec<&mut ContentPart> = parts.filter(|part| is_stored_file(part)).collect();
        if parts.is_empty() {
            return Ok(());
        }
        let added = self.store_as(BlobOrigin::ThreadUpload, app, (user, thread), parts.into_iter()).await;
        app.files.release_deleted_thread(user, thread).await?;
        added
    }

    async fn store_as<'a>(
        &self,
        origin: BlobOrigin,
        app: &App,
        (user, thread): (&UserId, &ThreadId),
        parts: impl Iterator<Item = &'a mut ContentPart> + Send,
    ) -> Result<(), Problem> {
        let mut brought: Vec<(&str, &UploadSource)> = Vec::new();
        for part in parts.filter(|part| is_stored_file(part)) {
            match part {
                ContentPart::Text { .. } => {}
                ContentPart::File { file: FileRef { bucket: Some(bucket), path: Some(path), name, size, .. } } => {
                    let row = use_own_attachment(app, (user, thread), bucket, path).await?;
                    name.get_or_insert(row.name);
                    *size = Some(row.size_bytes);
                }
                ContentPart::ImageUrl { .. } | ContentPart::File { .. } => {
                    let hash = part.url().and_then(blob_hash).ok_or_else(Problem::not_found)?;
                    match self.by_hash.get_key_value(hash) {
                        Some((hash, _)) if brought.iter().any(|(known, _)| known == hash) => {}
                        Some((hash, thing)) => brought.push((hash, thing)),
                        None => {
                            let own = app.files.directory.writer(user)?.link_blob(user, thread, hash).await?;
                            set_file_size(part, own.ok_or_else(Problem::not_found)?.size_bytes);
                        }
                    }
                }
            }
        }
        for (_, thing) in brought {
            let blob = NewBlob { origin, ..thing.load(app).await? };
            app.files.store_blob(user, thread, blob).await?;
        }
        Ok(())
    }
}

impl UploadSource {
    async fn load(&self, app: &App) -> Result<NewBlob, Problem> {
        Ok(match self {
            Self::Inline(blob) => blob.clone(),
            Self::Shared(row) => NewBlob {
                name: row.name.clone(),
                declared_type: Some(row.content_type.clone()),
                bytes: app.files.read_bytes(row).await?,
                origin: BlobOrigin::NewThreadUpload,
            },
        })
    }
}

/// Says of a file how large it is.
fn set_file_size(part: &mut ContentPart, bytes: u64) {
    if let ContentPart::File { file } = part {
        file.size = Some(bytes);
    }
}

/// Is there anything in these parts that a thread has to hold?
pub(crate) fn has_stored_files<'a>(mut parts: impl Iterator<Item = &'a mut ContentPart>) -> bool {
    parts.any(|part| is_stored_file(part))
}

fn is_stored_file(part: &ContentPart) -> bool {
    part.url().is_some_and(|address| address.starts_with(BLOB_URL_PREFIX))
        || matches!(part, ContentPart::File { file } if file.bucket.is_some())
}

/// Whether an address may be asked is found out when it is. That it is one is seen here.
fn check_url(field: &str, url: &str) -> Result<(), Problem> {
    if url.starts_with(BLOB_URL_PREFIX) {
        return Ok(());
    }
    let shown = truncate_text(url, 80);
    match Url::parse(url) {
        // Written in a way that others would read, and we would not.
        Ok(parsed) if parsed.scheme() == "data" => {
            Err(InlineFileError::from(DataUrlError::Malformed).into_problem(field))
        }
        Ok(_) => Ok(()),
        Err(_) => {
            let detail = format!("`{shown}` is not a URL such as https://example.com/a.pdf");
            Err(Problem::invalid_field(field, detail))
        }
    }
}

/// A file that the user has sent before. One of somebody else's and one that never was are the same.
async fn use_own_attachment(
    app: &App,
    (user, thread): (&UserId, &ThreadId),
    bucket: &str,
    path: &str,
) -> Result<AttachmentRow, Problem> {
    let key =
        app.files.parse_key(bucket, path).ok().filter(|key| key.owner() == user).ok_or_else(Problem::not_found)?;
    let row = app.files.directory.writer(user)?.link_attachment(user, thread, key.as_str()).await?;
    row.ok_or_else(Problem::not_found)
}

async fn decode_inline_file(
    url: String,
    name: Option<String>,
    wanted: InlineFileLimits,
) -> Result<(String, NewBlob), InlineFileError> {
    if url.len() <= DECODE_INLINE_BYTES_MAX {
        return decode_inline_file_blocking(&url, name, wanted);
    }
    let opened = tokio::task::spawn_blocking(move || decode_inline_file_blocking(&url, name, wanted)).await;
    opened.unwrap_or(Err(InlineFileError::Aborted))
}

/// What is in a `data:` URL, by what the bytes are and not by what is said of them.
fn decode_inline_file_blocking(
    url: &str,
    name: Option<String>,
    wanted: InlineFileLimits,
) -> Result<(String, NewBlob), InlineFileError> {
    let (declared, bytes) = data_url::parse_data_url(url)?;
    if bytes.len() as u64 > wanted.bytes_max {
        return Err(InlineFileError::TooLarge(wanted.bytes_max));
    }
    let kind = FileType::sniff(&bytes, Some(&declared));
    if wanted.must_be_image && !IMAGE_MEDIA_TYPES.contains(&kind.content_type) {
        return Err(InlineFileError::NotAnImage(kind.content_type));
    }
    ImageHeaderScanner::scan(&bytes, wanted.pixels_max)?;
    let plain = || {
        let stem = if wanted.must_be_image { "image" } else { "file" };
        kind.extension.map_or_else(|| stem.to_owned(), |extension| format!("{stem}.{extension}"))
    };
    let name = name.map_or_else(plain, |name| sanitize_file_name(&name));
    Ok((
        sha256_hex(&bytes),
        NewBlob { name, declared_type: Some(declared), bytes, origin: BlobOrigin::NewThreadUpload },
    ))
}

/// The parts of what a run begins with.
pub(crate) fn parts_of_run(new: &mut NewRun) -> impl Iterator<Item = &mut ContentPart> + Send {
    new.input.iter_mut().chain(new.prior_history.iter_mut().flat_map(parts_of_history))
}

/// The parts of what was said before a run.
pub(crate) fn parts_of_history(before: &mut PriorHistory) -> impl Iterator<Item = &mut ContentPart> + Send {
    before.entries.iter_mut().flat_map(HistoryEntry::parts_mut)
}

/// The pictures in what was said before a run that a model drew. They stand in its own items, so they are no parts there.
pub(crate) fn generated_images_of_run(new: &NewRun) -> Vec<ContentPart> {
    let entries = new.prior_history.iter().flat_map(|before| &before.entries);
    let drawn = entries.filter_map(|entry| match entry {
        HistoryEntry::Hosted { raw, .. } => {
            generated_image::generated_image(&raw.item).filter(|address| blob_hash(address).is_some())
        }
        _ => None,
    });
    drawn.map(ContentPart::image).collect()
}

/// The parts of what a client said.
pub(crate) fn parts_of_client_input(said: &mut [ClientInput]) -> impl Iterator<Item = &mut ContentPart> + Send {
    said.iter_mut().flat_map(|said| match &mut said.kind {
        InputKind::User(content) | InputKind::GeneratedImages(content) | InputKind::ToolResult { content, .. } => {
            content.iter_mut()
        }
        InputKind::System(_)
        | InputKind::Assistant(_)
        | InputKind::ToolCall { .. }
        | InputKind::ApprovalDecision { .. }
        | InputKind::ItemReference => Default::default(),
    })
}

/// The parts of what a client's tools gave.
pub(crate) fn parts_of_results(results: &mut [ClientToolResult]) -> impl Iterator<Item = &mut ContentPart> + Send {
    results.iter_mut().flat_map(|result| result.content.iter_mut())
}

/// The parts of what a run waited for.
pub(crate) fn parts_of_answers(answers: &mut [AnswerBody]) -> impl Iterator<Item = &mut ContentPart> + Send {
    let results = answers.iter_mut().flat_map(|answer| match answer {
        AnswerBody::ClientTools { results } => results.as_mut_slice(),
        AnswerBody::Approval { .. } => &mut [],
    });
    results.flat_map(|result| result.content.iter_mut())
}
