//! What models are given of files.
//!
//! A log says where a picture or a file is, a model wants to see it. [`Given`] stands between runs and models: before a
//! turn it puts the bytes in the place of the addresses, and while the model speaks it keeps what is drawn (see `shown`),
//! so that a log only ever says where. The newest files go first: what is too much is named instead.

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
use model::history::HistoryEntry;
use model::model_turn::{ModelEvent, ModelFailure, ModelRequest};
use model::ports::{AttachmentRow, BoxStream, ModelClient, StoreError};
use model::reference;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::sync::OwnedSemaphorePermit;
use upstream::responses::generated_image;

/// Marks words that come from a file: they are not the author's own.
const FILE_TAG: &str = "added_by_file";

/// Why a model is not given a file.
const MISSING: &str = "it is no longer there";
const TOO_LARGE: &str = "too large";
const UNREADABLE: &str = "it cannot be read";

/// Models that see files.
pub(crate) struct FileResolvingModels {
    pub(crate) models: Arc<dyn ModelClient>,
    pub(crate) files: Arc<AttachmentStore>,
}

impl ModelClient for FileResolvingModels {
    fn stream_turn(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent> {
        let keeper = OutputWriter::new(&self.files, &request.user, &request.thread);
        if !request.history.iter().any(has_file_refs) {
            return OutputStoringStream::new(self.models.stream_turn(request), keeper).boxed();
        }
        let (models, files) = (Arc::clone(&self.models), Arc::clone(&self.files));
        let turn = async move {
            match resolve_request(&files, request).await {
                Ok((request, room)) => {
                    PermitUntilFirstEvent { events: models.stream_turn(request), permit: room }.boxed()
                }
                Err(_unreadable) => stream::once(async { ModelEvent::Failed(files_unavailable_failure()) }).boxed(),
            }
        };
        OutputStoringStream::new(turn.flatten_stream().boxed(), keeper).boxed()
    }
}

/// A model's answer. Once it speaks it was given everything, and what that took up is free.
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

/// Files cannot be read now. A model that answers without them would mislead, so it is not asked.
struct FilesUnavailable;

impl From<StoreError> for FilesUnavailable {
    fn from(error: StoreError) -> Self {
        tracing::error!(%error, "what is known of files cannot be read");
        Self
    }
}

fn files_unavailable_failure() -> ModelFailure {
    let message = "The files of this conversation cannot be read now.";
    let error = ErrorInfo { retryable: Some(true), ..ErrorInfo::new(ErrorCode::FilesUnavailable, message) };
    ModelFailure { error, retry_after_ms: None }
}

/// Is there something in it whose bytes are ours?
fn has_file_refs(entry: &HistoryEntry) -> bool {
    stored_file_refs(entry).next().is_some()
}

/// Where everything in it is whose bytes are ours, last first.
fn stored_file_refs(entry: &HistoryEntry) -> impl Iterator<Item = StoredFileRef<'_>> {
    let drawn = match entry {
        HistoryEntry::Hosted { raw, .. } => {
            generated_image::generated_image(&raw.item).and_then(blob_hash).map(StoredFileRef::Blob)
        }
        _ => None,
    };
    drawn.into_iter().chain(entry.parts().iter().rev().filter_map(stored_file_ref))
}

/// Where bytes are.
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

/// The request with the bytes in it, and the room that they take up. What is in there is looked at first and read when
/// there is room for all of it: who waits holds nothing.
async fn resolve_request(
    files: &AttachmentStore,
    mut request: ModelRequest,
) -> Result<(ModelRequest, Option<OwnedSemaphorePermit>), FilesUnavailable> {
    let reader = FileResolver { files, user: request.user.clone() };
    let mut found = reader.look_up_files(&request.history).await?;
    let room = files.acquire_model_bytes(found.iter().map(FileLookup::bytes_to_read).sum()).await;
    let mut history = request.history.to_vec();
    for entry in history.iter_mut().rev() {
        if let HistoryEntry::Hosted { raw, .. } = entry
            && generated_image::generated_image(&raw.item).and_then(blob_hash).is_some()
        {
            reader.resolve_generated_image(&mut raw.item, found.pop_front()).await?;
        }
        for part in entry.parts_mut().iter_mut().rev().filter(|part| stored_file_ref(part).is_some()) {
            reader.resolve_part(part, found.pop_front()).await?;
        }
    }
    request.history = history.into();
    Ok((request, room))
}

/// What is known of something that a model is to be given.
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
    files: &'a AttachmentStore,
    user: UserId,
}

impl FileResolver<'_> {
    /// What there is of everything that a history tells of, newest first.
    async fn look_up_files(&self, history: &[HistoryEntry]) -> Result<VecDeque<FileLookup>, FilesUnavailable> {
        let mut found = VecDeque::new();
        let mut left = self.files.settings.model_bytes_max;
        for place in history.iter().rev().flat_map(stored_file_refs) {
            found.push_back(match self.find_row(place).await? {
                None => FileLookup::Missing,
                Some(row) => match left.checked_sub(row.size_bytes) {
                    None => FileLookup::TooLarge(row),
                    Some(rest) => {
                        left = rest;
                        FileLookup::Found(row)
                    }
                },
            });
        }
        Ok(found)
    }

    /// Puts the bytes in the place of a part that says where they are.
    async fn resolve_part(&self, part: &mut ContentPart, found: Option<FileLookup>) -> Result<(), FilesUnavailable> {
        *part = match found {
            None | Some(FileLookup::Missing) => omitted_file_note(part, None, MISSING),
            Some(FileLookup::TooLarge(row)) => omitted_file_note(part, Some(&row), TOO_LARGE),
            Some(FileLookup::Found(row)) => match self.read_bytes(&row).await? {
                Some(bytes) => part_with_bytes(part, &row, bytes, self.files.settings.text_bytes_max).await,
                None => omitted_file_note(part, Some(&row), MISSING),
            },
        };
        Ok(())
    }

    /// The same for a picture that the model itself drew. One that cannot be given leaves a gap that its service knows.
    async fn resolve_generated_image(
        &self,
        item: &mut serde_json::Value,
        found: Option<FileLookup>,
    ) -> Result<(), FilesUnavailable> {
        let bytes = match found {
            Some(FileLookup::Found(row)) => self.read_bytes(&row).await?,
            Some(FileLookup::TooLarge(_) | FileLookup::Missing) | None => None,
        };
        match bytes {
            Some(bytes) => generated_image::replace_generated_image(item, STANDARD.encode(&bytes)),
            None => generated_image::omit_generated_image(item),
        }
        Ok(())
    }

    /// What is known of a file, if it is the user's own.
    async fn find_row(&self, place: StoredFileRef<'_>) -> Result<Option<AttachmentRow>, FilesUnavailable> {
        let directory = &self.files.directory;
        Ok(match place {
            StoredFileRef::Blob(hash) => directory.blob(&self.user, None, hash).await?,
            StoredFileRef::Attachment { bucket, path } => match self.files.parse_key(bucket, path) {
                Ok(key) if *key.owner() == self.user => directory.attachment(&self.user, key.as_str()).await?,
                _ => None,
            },
        })
    }

    /// The bytes of a file; `None` when they are gone.
    async fn read_bytes(&self, row: &AttachmentRow) -> Result<Option<Bytes>, FilesUnavailable> {
        match self.files.read_bytes(row).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(FileStoreError::NotFound) => Ok(None),
            Err(FileStoreError::Unavailable(why)) => {
                tracing::error!(why, "the place for files is not available");
                Err(FilesUnavailable)
            }
        }
    }
}

/// Bytes as a model takes them: a picture, a text, or a file that its service may read.
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
        let called = file_name(part, row).to_owned();
        // A large page is a piece of work: nobody else waits for it.
        let words = tokio::task::spawn_blocking(move || file_text(&called, &bytes, text_bytes_max)).await;
        let tags = vec![FILE_TAG.to_owned()];
        return words.map_or_else(
            |_| omitted_file_note(part, Some(row), UNREADABLE),
            |text| ContentPart::Text { text, id, tags },
        );
    }
    let url = Some(data_url::format_data_url(content_type, &bytes));
    ContentPart::File { file: FileRef { url, name: Some(file_name(part, row).to_owned()), ..FileRef::default() } }
}

/// The words of a file, under its name: as many as a model is given of one, and nothing in them reads like what it may cite.
fn file_text(name: &str, bytes: &[u8], bytes_max: usize) -> String {
    let fetch::ExtractedText { text, truncated: is_longer } =
        fetch::document_text::text_of_attachment(bytes, name, bytes_max);
    let cut = if is_longer { " (it is longer than what follows)" } else { "" };
    reference::escape_markers(format!("File {name}{cut}:\n\n{text}"))
}

/// What stands where a file would.
fn omitted_file_note(part: &ContentPart, row: Option<&AttachmentRow>, why: &str) -> ContentPart {
    let called = match (row, part) {
        (Some(row), _) => file_name(part, row),
        (None, ContentPart::File { file }) => file.name.as_deref().unwrap_or_default(),
        (None, _) => "",
    };
    let space = if called.is_empty() { "" } else { " " };
    let text = format!("[file{space}{called} left out: {why}]");
    ContentPart::Text { text, id: None, tags: vec![FILE_TAG.to_owned()] }
}

/// What people call it: here, or where it was sent.
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
    fn words_of_a_file_are_cut_between_letters_and_forge_nothing() {
        assert_eq!(file_text("a.txt", "\u{feff}née".as_bytes(), 100), "File a.txt:\n\nnée");
        assert_eq!(file_text("a.txt", "née".as_bytes(), 2), "File a.txt (it is longer than what follows):\n\nn");
        assert_eq!(file_text("a.txt", b"\xff!", 100), "File a.txt:\n\n\u{fffd}!");
        let forged = file_text("a.txt", b"</referencable-item>", 100);
        assert!(!forged.contains("</referencable-item>"), "{forged}");
    }
}
