//! Files in requests to models.
//!
//! The log refers to images and files by URL; a model needs their bytes. [`FileResolvingModels`] wraps the models of
//! runs: before a turn it replaces references by bytes, and during the turn it stores generated images (see
//! `store_outputs`), so that the log holds references only. The newest files come first; those over the limit are replaced
//! by a note.

use super::store_outputs::{OutputStoringStream, OutputWriter};
use super::{AttachmentStore, data_url};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use files::FileStoreError;
use futures_core::Stream;
use futures_util::FutureExt as _;
use futures_util::stream::{self, StreamExt as _};
use model::UserId;
use model::blob::blob_hash;
use model::content::{ContentPart, FileRef, IMAGE_MEDIA_TYPES, ImageUrl};
use model::error::{ErrorCode, ErrorInfo};
use model::history::{HistoryEntry, SharedHistory};
use model::model_turn::{ModelEvent, ModelFailure, ModelRequest};
use model::ports::{AttachmentRow, BoxStream, ModelClient, StoreError};
use model::reference;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::sync::OwnedSemaphorePermit;
use upstream::generated_image;

/// Tags text that comes from a file and not from the author of the message.
const FILE_TAG: &str = "added_by_file";

const MISSING: &str = "it is no longer there";
const TOO_LARGE: &str = "too large";
const UNREADABLE: &str = "it cannot be read";

pub(crate) struct FileResolvingModels {
    pub(crate) models: Arc<dyn ModelClient>,
    pub(crate) attachments: Arc<AttachmentStore>,
}

impl ModelClient for FileResolvingModels {
    fn stream_turn(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent> {
        let writer = OutputWriter::new(&self.attachments, &request.user, &request.thread);
        if !request.history.iter().any(has_file_refs) {
            return OutputStoringStream::new(self.models.stream_turn(request), writer).boxed();
        }
        let (models, attachments) = (Arc::clone(&self.models), Arc::clone(&self.attachments));
        let turn = async move {
            match resolve_request(&attachments, request).await {
                Ok((request, permit)) => PermitUntilFirstEvent { events: models.stream_turn(request), permit }.boxed(),
                Err(_unreadable) => stream::once(async { ModelEvent::Failed(files_unavailable_failure()) }).boxed(),
            }
        };
        OutputStoringStream::new(turn.flatten_stream().boxed(), writer).boxed()
    }
}

/// Holds the memory permit until the model's first event, when the request has been sent.
struct PermitUntilFirstEvent {
    events: BoxStream<'static, ModelEvent>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Stream for PermitUntilFirstEvent {
    type Item = ModelEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ModelEvent>> {
        let event = ready!(self.events.poll_next_unpin(cx));
        self.permit = None;
        Poll::Ready(event)
    }
}

/// The turn fails: a model that answers without the files would mislead.
struct FilesUnavailable;

impl From<StoreError> for FilesUnavailable {
    fn from(error: StoreError) -> Self {
        tracing::error!(%error, "the rows of files cannot be read");
        Self
    }
}

fn files_unavailable_failure() -> ModelFailure {
    let message = "The files of this conversation cannot be read now.";
    let error = ErrorInfo { retryable: Some(true), ..ErrorInfo::new(ErrorCode::FilesUnavailable, message) };
    ModelFailure { error, retry_after_ms: None }
}

/// Asked for every entry of a history, and nearly none has one.
fn has_file_refs(entry: &HistoryEntry) -> bool {
    let is_text = |part: &ContentPart| matches!(part, ContentPart::Text { .. });
    let is_hosted = matches!(entry, HistoryEntry::Hosted { .. });
    (is_hosted || !entry.parts().iter().all(is_text)) && stored_file_refs(entry).next().is_some()
}

/// The references to stored files in an entry, last first.
fn stored_file_refs(entry: &HistoryEntry) -> impl Iterator<Item = StoredFileRef<'_>> {
    let generated = match entry {
        HistoryEntry::Hosted { raw, .. } => {
            generated_image::generated_image(&raw.item).and_then(blob_hash).map(StoredFileRef::Blob)
        }
        _ => None,
    };
    generated.into_iter().chain(entry.parts().iter().rev().filter_map(stored_file_ref))
}

#[derive(Clone, Copy)]
enum StoredFileRef<'a> {
    Blob(&'a str),
    Attachment { bucket: &'a str, path: &'a str },
}

fn stored_file_ref(part: &ContentPart) -> Option<StoredFileRef<'_>> {
    match part {
        ContentPart::Text { .. } => None,
        ContentPart::ImageUrl { image_url, .. } => blob_hash(&image_url.url).map(StoredFileRef::Blob),
        ContentPart::File { file: FileRef { url: Some(url), .. } } => blob_hash(url).map(StoredFileRef::Blob),
        ContentPart::File { file: FileRef { bucket: Some(bucket), path: Some(path), .. } } => {
            Some(StoredFileRef::Attachment { bucket, path })
        }
        ContentPart::File { .. } => None,
    }
}

/// Replaces references by bytes. Looks up the rows first and reads bytes once there is memory for all of them, so that
/// a waiting request holds none.
async fn resolve_request(
    attachments: &AttachmentStore,
    mut request: ModelRequest,
) -> Result<(ModelRequest, Option<OwnedSemaphorePermit>), FilesUnavailable> {
    let resolver = FileResolver { attachments, user: request.user.clone() };
    let mut lookups = resolver.look_up_files(&request.history).await?;
    let permit = attachments.acquire_model_bytes(lookups.iter().map(FileLookup::bytes_to_read).sum()).await;
    let mut history = request.history.entries().to_vec();
    for entry in history.iter_mut().rev().filter(|entry| has_file_refs(entry)).map(Arc::make_mut) {
        if let HistoryEntry::Hosted { raw, .. } = entry
            && generated_image::generated_image(&raw.item).and_then(blob_hash).is_some()
        {
            resolver.resolve_generated_image(&mut raw.item, lookups.pop_front()).await?;
        }
        for part in entry.parts_mut().iter_mut().rev().filter(|part| stored_file_ref(part).is_some()) {
            resolver.resolve_part(part, lookups.pop_front()).await?;
        }
    }
    request.history = request.history.with_entries(history);
    Ok((request, permit))
}

enum FileLookup {
    Found(AttachmentRow),
    TooLarge(AttachmentRow),
    Missing,
}

impl FileLookup {
    const fn bytes_to_read(&self) -> u64 {
        match self {
            Self::Found(row) => row.size_bytes,
            Self::TooLarge(_) | Self::Missing => 0,
        }
    }
}

struct FileResolver<'a> {
    attachments: &'a AttachmentStore,
    user: UserId,
}

impl FileResolver<'_> {
    /// Looks up every file that a history refers to, newest first.
    async fn look_up_files(&self, history: &SharedHistory) -> Result<VecDeque<FileLookup>, FilesUnavailable> {
        let mut lookups = VecDeque::new();
        let mut bytes_left = self.attachments.settings.model_bytes_max;
        for file_ref in history.iter().rev().flat_map(stored_file_refs) {
            lookups.push_back(match self.find_row(file_ref).await? {
                None => FileLookup::Missing,
                Some(row) => match bytes_left.checked_sub(row.size_bytes) {
                    None => FileLookup::TooLarge(row),
                    Some(rest) => {
                        bytes_left = rest;
                        FileLookup::Found(row)
                    }
                },
            });
        }
        Ok(lookups)
    }

    async fn resolve_part(&self, part: &mut ContentPart, lookup: Option<FileLookup>) -> Result<(), FilesUnavailable> {
        *part = match lookup {
            None | Some(FileLookup::Missing) => omitted_file_note(part, None, MISSING),
            Some(FileLookup::TooLarge(row)) => omitted_file_note(part, Some(&row), TOO_LARGE),
            Some(FileLookup::Found(row)) => match self.read_bytes(&row).await? {
                Some(bytes) => part_with_bytes(part, &row, bytes, self.attachments.settings.text_bytes_max).await,
                None => omitted_file_note(part, Some(&row), MISSING),
            },
        };
        Ok(())
    }

    /// The same for an image that the model generated. If it is not available, its provider accepts the item without it.
    async fn resolve_generated_image(
        &self,
        item: &mut serde_json::Value,
        lookup: Option<FileLookup>,
    ) -> Result<(), FilesUnavailable> {
        let bytes = match lookup {
            Some(FileLookup::Found(row)) => self.read_bytes(&row).await?,
            Some(FileLookup::TooLarge(_) | FileLookup::Missing) | None => None,
        };
        match bytes {
            Some(bytes) => generated_image::replace_generated_image(item, STANDARD.encode(&bytes)),
            None => generated_image::omit_generated_image(item),
        }
        Ok(())
    }

    /// Finds a file of this user; another user's counts as missing.
    async fn find_row(&self, file_ref: StoredFileRef<'_>) -> Result<Option<AttachmentRow>, FilesUnavailable> {
        let directory = &self.attachments.directory;
        Ok(match file_ref {
            StoredFileRef::Blob(hash) => directory.blob(&self.user, None, hash).await?,
            StoredFileRef::Attachment { bucket, path } => match self.attachments.parse_key(bucket, path) {
                Ok(key) if *key.owner() == self.user => directory.attachment(&self.user, key.as_str()).await?,
                _ => None,
            },
        })
    }

    /// Returns `None` if the bytes have been deleted.
    async fn read_bytes(&self, row: &AttachmentRow) -> Result<Option<Bytes>, FilesUnavailable> {
        match self.attachments.read_bytes(row).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(FileStoreError::NotFound) => Ok(None),
            Err(why @ (FileStoreError::Unavailable(_) | FileStoreError::NoSpace)) => {
                tracing::error!(%why, "the file store is not available");
                Err(FilesUnavailable)
            }
        }
    }
}

/// Bytes as a model accepts them: an image, a text, or a file that its provider may read.
async fn part_with_bytes(part: &ContentPart, row: &AttachmentRow, bytes: Bytes, text_bytes_max: usize) -> ContentPart {
    let (id, detail) = match part {
        ContentPart::Text { id, .. } => (*id, None),
        ContentPart::ImageUrl { id, image_url } => (*id, image_url.detail),
        ContentPart::File { .. } => (None, None),
    };
    let content_type = row.content_type.as_str();
    if IMAGE_MEDIA_TYPES.contains(&content_type) {
        return ContentPart::ImageUrl {
            image_url: ImageUrl { url: data_url::format_data_url(content_type, &bytes), detail },
            id,
        };
    }
    if content_type.starts_with("text/") || content_type == "application/json" {
        let name = file_name(part, row).to_owned();
        // Extracting the text of a large page would block the executor.
        let text = tokio::task::spawn_blocking(move || file_text(&name, &bytes, text_bytes_max)).await;
        let tags = vec![FILE_TAG.to_owned()];
        return text.map_or_else(
            |_| omitted_file_note(part, Some(row), UNREADABLE),
            |text| ContentPart::Text { text, id, tags },
        );
    }
    let url = Some(data_url::format_data_url(content_type, &bytes));
    ContentPart::File { file: FileRef { url, name: Some(file_name(part, row).to_owned()), ..FileRef::default() } }
}

/// The text of a file under its name: truncated, and with citation markers escaped.
fn file_text(name: &str, bytes: &[u8], bytes_max: usize) -> String {
    let fetch::ExtractedText { text, truncated } = fetch::document_text::text_of_attachment(bytes, name, bytes_max);
    let note = if truncated { " (it is longer than what follows)" } else { "" };
    reference::escape_markers(format!("File {name}{note}:\n\n{text}"))
}

fn omitted_file_note(part: &ContentPart, row: Option<&AttachmentRow>, why: &str) -> ContentPart {
    let name = match (row, part) {
        (Some(row), _) => file_name(part, row),
        (None, ContentPart::File { file }) => file.name.as_deref().unwrap_or_default(),
        (None, _) => "",
    };
    let space = if name.is_empty() { "" } else { " " };
    let text = format!("[file{space}{name} left out: {why}]");
    ContentPart::Text { text, id: None, tags: vec![FILE_TAG.to_owned()] }
}

/// The name in this message, else the name at the upload.
fn file_name<'a>(part: &'a ContentPart, row: &'a AttachmentRow) -> &'a str {
    match part {
        ContentPart::File { file: FileRef { name: Some(name), .. } } if !name.is_empty() => name,
        _ => &row.name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_between_characters_and_forges_no_markers() {
        assert_eq!(file_text("a.txt", "\u{feff}née".as_bytes(), 100), "File a.txt:\n\nnée");
        assert_eq!(file_text("a.txt", "née".as_bytes(), 2), "File a.txt (it is longer than what follows):\n\nn");
        assert_eq!(file_text("a.txt", b"\xff!", 100), "File a.txt:\n\n\u{fffd}!");
        let forged = file_text("a.txt", b"</referencable-item>", 100);
        assert!(!forged.contains("</referencable-item>"), "{forged}");
    }
}
