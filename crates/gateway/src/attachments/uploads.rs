//! Files inside a request: validated and stored before a run starts.
//!
//! Two steps. [`Uploads::extract`] reads: it takes the bytes out of `data:` URLs and leaves their future URL
//! (`/v1/blobs/…`) in the part, so that the input can be measured and compared before anything is stored.
//! [`Uploads::store`] writes: it first checks every reference to a stored file, and stores bytes only then. A rejected
//! request leaves nothing behind.

use super::data_url::{self, DataUrlError, is_data_url};
use super::signed_blobs::strip_blob_signature;
use super::{AttachmentSettings, AttachmentStore, BlobOrigin, NewBlob};
use crate::rejection::{Rejection, truncate_id};
use crate::secret_token::sha256_hex;
use engine::NewRun;
use files::{FileType, ImageHeaderScanner, ImageTooLarge, sanitize_file_name};
use model::blob::{self, BLOB_URL_PREFIX, blob_hash};
use model::command::{AnswerBody, ClientToolResult};
use model::content::{ContentPart, FileRef, IMAGE_MEDIA_TYPES};
use model::error::ErrorCode;
use model::history::{HistoryEntry, PriorHistory};
use model::ports::AttachmentRow;
use model::{ThreadId, UserId};
use protocol::client_input::{ClientInput, InputKind};
use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use upstream::generated_image;
use url::Url;

/// Longer URLs are decoded on a blocking thread.
const DECODE_INLINE_BYTES_MAX: usize = 64 * 1024;

/// The files of one request, by hash.
#[derive(Debug, Default)]
pub struct Uploads {
    by_hash: HashMap<String, UploadSource>,
}

#[derive(Debug)]
enum UploadSource {
    Inline(NewBlob),
    /// Another user's file, visible to this user through a share.
    Shared(AttachmentRow),
}

#[derive(Debug, thiserror::Error)]
enum InlineFileError {
    #[error(transparent)]
    DataUrl(#[from] DataUrlError),
    #[error("a picture must be a PNG, JPEG, GIF or WebP, and this is {0}")]
    NotAnImage(&'static str),
    #[error("the header of this {0} cannot be read, or it has no pixels")]
    NoPixels(&'static str),
    #[error("a file that comes along may have {0} bytes at most")]
    TooLarge(u64),
    #[error(transparent)]
    ImageTooLarge(#[from] ImageTooLarge),
    #[error("decoding was interrupted")]
    Aborted,
}

impl InlineFileError {
    fn into_rejection(self, field: &str) -> Rejection {
        let detail = format!("`{field}`: {self}");
        let rejection = match self {
            Self::DataUrl(_) | Self::NotAnImage(_) | Self::NoPixels(_) => Rejection::invalid_body(detail),
            Self::TooLarge(bytes_max) => {
                Rejection::new(ErrorCode::BodyTooLarge, detail).with_extension("bytes_max", bytes_max)
            }
            Self::ImageTooLarge(ImageTooLarge { pixels_max, .. }) => {
                Rejection::new(ErrorCode::ImageTooLarge, detail).with_extension("pixels_max", pixels_max)
            }
            Self::Aborted => return Rejection::internal(),
        };
        rejection.with_field(field)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ExpectedFile {
    Image,
    Any,
}

#[derive(Clone, Copy)]
struct InlineFileLimits {
    expected: ExpectedFile,
    bytes_max: u64,
    pixels_max: u64,
}

impl InlineFileLimits {
    const fn for_image(settings: &AttachmentSettings) -> Self {
        let AttachmentSettings { image_bytes_max, pixels_max, .. } = *settings;
        Self { expected: ExpectedFile::Image, bytes_max: image_bytes_max, pixels_max }
    }

    const fn for_file(settings: &AttachmentSettings) -> Self {
        let AttachmentSettings { upload_bytes_max, pixels_max, .. } = *settings;
        Self { expected: ExpectedFile::Any, bytes_max: upload_bytes_max, pixels_max }
    }
}

impl Uploads {
    /// Takes the bytes out of `data:` URLs. `field` is the field of the request that an error names.
    pub async fn extract<'a>(
        attachments: &AttachmentStore,
        field: &str,
        parts: impl Iterator<Item = &'a mut ContentPart> + Send,
    ) -> Result<Self, Rejection> {
        let mut uploads = Self::default();
        for part in parts {
            let (url, name, limits) = match part {
                ContentPart::Text { .. } => continue,
                ContentPart::ImageUrl { image_url, .. } => {
                    (&mut image_url.url, None, InlineFileLimits::for_image(&attachments.settings))
                }
                ContentPart::File { file: FileRef { url: Some(url), name, .. } } => {
                    if !is_data_url(url) {
                        check_url(field, url)?;
                    }
                    (url, name.clone(), InlineFileLimits::for_file(&attachments.settings))
                }
                ContentPart::File { .. } => continue,
            };
            strip_blob_signature(url);
            if is_data_url(url) {
                let decoded = decode_inline_file(mem::take(url), name, limits).await;
                let (hash, blob) = decoded.map_err(|error| error.into_rejection(field))?;
                *url = blob::blob_url(&hash);
                set_file_size(part, blob.bytes.len() as u64);
                uploads.by_hash.insert(hash, UploadSource::Inline(blob));
            }
        }
        Ok(uploads)
    }

    /// Adds a file of another user that a share makes visible.
    pub(crate) fn add_shared(&mut self, hash: &str, row: AttachmentRow) {
        self.by_hash.entry(hash.to_owned()).or_insert(UploadSource::Shared(row));
    }

    pub fn extend(&mut self, other: Self) {
        self.by_hash.extend(other.by_hash);
    }

    /// Checks that every file that these parts refer to is the user's own or in the request.
    pub async fn check_owned<'a>(
        &self,
        attachments: &AttachmentStore,
        user: &UserId,
        parts: impl Iterator<Item = &'a mut ContentPart> + Send,
    ) -> Result<(), Rejection> {
        for part in parts.filter(|part| is_stored_file(part)) {
            // No protocol that only checks refers to files by bucket and path.
            let hash = part.url().and_then(blob_hash).ok_or_else(Rejection::not_found)?;
            if !self.by_hash.contains_key(hash) {
                attachments.directory.blob(user, None, hash).await?.ok_or_else(Rejection::not_found)?;
            }
        }
        Ok(())
    }

    /// Like [`Self::store_as`], for an existing thread. If it has been deleted meanwhile, the files are released again.
    pub async fn store_in_thread<'a>(
        &self,
        attachments: &Arc<AttachmentStore>,
        user: &UserId,
        thread: &ThreadId,
        parts: impl Iterator<Item = &'a mut ContentPart> + Send,
    ) -> Result<(), Rejection> {
        let parts: Vec<&mut ContentPart> = parts.filter(|part| is_stored_file(part)).collect();
        if parts.is_empty() {
            return Ok(());
        }
        let stored = self.store_as(BlobOrigin::ThreadUpload, attachments, user, thread, parts.into_iter()).await;
        attachments.release_deleted_thread(user, thread).await?;
        stored
    }

    /// Stores for a thread the files that these parts refer to: each must be the user's own or in the request.
    pub(crate) async fn store_as<'a>(
        &self,
        origin: BlobOrigin,
        attachments: &Arc<AttachmentStore>,
        user: &UserId,
        thread: &ThreadId,
        parts: impl Iterator<Item = &'a mut ContentPart> + Send,
    ) -> Result<(), Rejection> {
        let mut new_files: Vec<(&str, &UploadSource)> = Vec::new();
        for part in parts.filter(|part| is_stored_file(part)) {
            match part {
                ContentPart::Text { .. } => {}
                ContentPart::File { file: FileRef { bucket: Some(bucket), path: Some(path), name, size, .. } } => {
                    let row = link_own_attachment(attachments, user, thread, FilePath { bucket, path }).await?;
                    name.get_or_insert(row.name);
                    *size = Some(row.size_bytes);
                }
                ContentPart::ImageUrl { .. } | ContentPart::File { .. } => {
                    let hash = part.url().and_then(blob_hash).ok_or_else(Rejection::not_found)?;
                    match self.by_hash.get_key_value(hash) {
                        Some((hash, _)) if new_files.iter().any(|(known, _)| known == hash) => {}
                        Some((hash, source)) => new_files.push((hash, source)),
                        None => {
                            let own = attachments.directory.writer(user)?.link_blob(user, thread, hash).await?;
                            set_file_size(part, own.ok_or_else(Rejection::not_found)?.size_bytes);
                        }
                    }
                }
            }
        }
        for (_, source) in new_files {
            let blob = NewBlob { origin, ..source.load(attachments).await? };
            attachments.store_blob(user, thread, blob).await?;
        }
        Ok(())
    }
}

impl UploadSource {
    async fn load(&self, attachments: &AttachmentStore) -> Result<NewBlob, Rejection> {
        Ok(match self {
            Self::Inline(blob) => blob.clone(),
            Self::Shared(row) => NewBlob {
                name: row.name.clone(),
                declared_type: Some(row.content_type.clone()),
                bytes: attachments.read_bytes(row).await?,
                origin: BlobOrigin::NewThreadUpload,
            },
        })
    }
}

fn set_file_size(part: &mut ContentPart, bytes: u64) {
    if let ContentPart::File { file } = part {
        file.size = Some(bytes);
    }
}

/// Whether any of these parts refers to a file that a thread must hold.
pub fn has_stored_files<'a>(mut parts: impl Iterator<Item = &'a mut ContentPart>) -> bool {
    parts.any(|part| is_stored_file(part))
}

fn is_stored_file(part: &ContentPart) -> bool {
    part.url().is_some_and(|url| url.starts_with(BLOB_URL_PREFIX))
        || matches!(part, ContentPart::File { file } if file.bucket.is_some())
}

/// Checks the syntax alone: whether a URL may be fetched is decided when it is fetched.
fn check_url(field: &str, url: &str) -> Result<(), Rejection> {
    if url.starts_with(BLOB_URL_PREFIX) {
        return Ok(());
    }
    match Url::parse(url) {
        // A spelling of `data:` that other parsers accept and this one does not.
        Ok(parsed) if parsed.scheme() == "data" => {
            Err(InlineFileError::from(DataUrlError::Malformed).into_rejection(field))
        }
        Ok(_) => Ok(()),
        Err(_) => {
            let reason = format!("`{}` is not a URL such as https://example.com/a.pdf", truncate_id(url));
            Err(Rejection::invalid_field(field, reason))
        }
    }
}

struct FilePath<'a> {
    bucket: &'a str,
    path: &'a str,
}

/// Links a file that the user has uploaded before. Another user's file and a missing one are the same error.
async fn link_own_attachment(
    attachments: &AttachmentStore,
    user: &UserId,
    thread: &ThreadId,
    FilePath { bucket, path }: FilePath<'_>,
) -> Result<AttachmentRow, Rejection> {
    let key = attachments.parse_key(bucket, path).ok().filter(|key| key.owner() == user);
    let key = key.ok_or_else(Rejection::not_found)?;
    let row = attachments.directory.writer(user)?.link_attachment(user, thread, key.as_str()).await?;
    row.ok_or_else(Rejection::not_found)
}

async fn decode_inline_file(
    url: String,
    name: Option<String>,
    limits: InlineFileLimits,
) -> Result<(String, NewBlob), InlineFileError> {
    if url.len() <= DECODE_INLINE_BYTES_MAX {
        return decode_inline_file_blocking(&url, name, limits);
    }
    let decoded = tokio::task::spawn_blocking(move || decode_inline_file_blocking(&url, name, limits)).await;
    decoded.unwrap_or(Err(InlineFileError::Aborted))
}

/// Detects the type from the bytes and ignores the one that the URL declares.
fn decode_inline_file_blocking(
    url: &str,
    name: Option<String>,
    limits: InlineFileLimits,
) -> Result<(String, NewBlob), InlineFileError> {
    let (declared, bytes) = data_url::parse_data_url(url)?;
    if bytes.len() as u64 > limits.bytes_max {
        return Err(InlineFileError::TooLarge(limits.bytes_max));
    }
    let file_type = FileType::sniff(&bytes, Some(&declared));
    if limits.expected == ExpectedFile::Image && !IMAGE_MEDIA_TYPES.contains(&file_type.content_type) {
        return Err(InlineFileError::NotAnImage(file_type.content_type));
    }
    let size = ImageHeaderScanner::scan(&bytes, limits.pixels_max)?;
    if limits.expected == ExpectedFile::Image && size.is_none() {
        return Err(InlineFileError::NoPixels(file_type.content_type));
    }
    let default_name = || {
        let stem = match limits.expected {
            ExpectedFile::Image => "image",
            ExpectedFile::Any => "file",
        };
        file_type.extension.map_or_else(|| stem.to_owned(), |extension| format!("{stem}.{extension}"))
    };
    let name = name.map_or_else(default_name, |name| sanitize_file_name(&name));
    Ok((
        sha256_hex(&bytes),
        NewBlob { name, declared_type: Some(declared), bytes, origin: BlobOrigin::NewThreadUpload },
    ))
}

pub(crate) fn parts_of_run(new: &mut NewRun) -> impl Iterator<Item = &mut ContentPart> + Send {
    new.input.iter_mut().chain(new.prior_history.iter_mut().flat_map(parts_of_history))
}

pub(crate) fn parts_of_history(before: &mut PriorHistory) -> impl Iterator<Item = &mut ContentPart> + Send {
    before.entries.iter_mut().flat_map(HistoryEntry::parts_mut)
}

/// The generated images in a run's prior history, which are in provider items, not in parts.
pub(crate) fn generated_images_of_run(new: &NewRun) -> Vec<ContentPart> {
    let entries = new.prior_history.iter().flat_map(|before| &before.entries);
    let images = entries.filter_map(|entry| match entry {
        HistoryEntry::Hosted { raw, .. } => {
            generated_image::generated_image(&raw.item).filter(|url| blob_hash(url).is_some())
        }
        _ => None,
    });
    images.map(ContentPart::image).collect()
}

pub fn parts_of_client_input(inputs: &mut [ClientInput]) -> impl Iterator<Item = &mut ContentPart> + Send {
    inputs.iter_mut().flat_map(|input| match &mut input.kind {
        InputKind::User(content) | InputKind::GeneratedImages(content) | InputKind::ToolResult { content, .. } => {
            content.iter_mut()
        }
        InputKind::System(_)
        | InputKind::Assistant(_)
        | InputKind::ToolCall { .. }
        | InputKind::ApprovalDecision { .. }
        | InputKind::SealedSummary { .. }
        | InputKind::Summary { .. }
        | InputKind::ItemReference => Default::default(),
    })
}

pub fn parts_of_results(results: &mut [ClientToolResult]) -> impl Iterator<Item = &mut ContentPart> + Send {
    results.iter_mut().flat_map(|result| result.content.iter_mut())
}

pub(crate) fn parts_of_answers(answers: &mut [AnswerBody]) -> impl Iterator<Item = &mut ContentPart> + Send {
    let results = answers.iter_mut().flat_map(|answer| match answer {
        AnswerBody::ClientTools { results } => results.as_mut_slice(),
        AnswerBody::Approval { .. } => &mut [],
    });
    results.flat_map(|result| result.content.iter_mut())
}
