//! Images and files that models, tools and hooks return: they are stored as blobs, and the events carry their URLs. A URL
//! in an output must name a file of the same user, which is then linked to the thread.
//!
//! Everything else passes unchanged. A stream waits only while a file is being stored, so the order stays.

use super::data_url::{self, DataUrlError, is_data_url};
use super::{AttachmentStore, BlobOrigin, NewBlob};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_core::Stream;
use futures_util::stream::StreamExt as _;
use model::blob::{BLOB_URL_PREFIX, blob_hash};
use model::content::{ContentPart, FileRef, TextBlock};
use model::definition::InputHook;
use model::error::ErrorInfo;
use model::history::HistoryEntry;
use model::item::Block;
use model::model_turn::{ModelDelta, ModelEvent};
use model::ports::{BoxFuture, BoxStream, HookRequest, HookResponse, HookRunner, ToolRunner};
use model::question::QuestionAnswer;
use model::tool::{ResultPiece, ToolEvent, ToolOutput, ToolRequest};
use model::{CallId, ThreadId, UserId};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use upstream::generated_image;

/// Replaces a part that could not be stored.
const NOT_STORED_NOTE: &str = "[a file could not be kept]";

pub(crate) struct OutputStoringTools {
    pub(crate) tools: Arc<dyn ToolRunner>,
    pub(crate) attachments: Arc<AttachmentStore>,
}

impl ToolRunner for OutputStoringTools {
    fn call_tool(&self, request: ToolRequest) -> BoxStream<'static, ToolEvent> {
        let writer = OutputWriter::new(&self.attachments, &request.user, &request.thread);
        OutputStoringStream::new(self.tools.call_tool(request), writer).boxed()
    }

    fn answer_question(&self, call: &CallId, question: &str, answer: QuestionAnswer) {
        self.tools.answer_question(call, question, answer);
    }
}

pub(crate) struct OutputStoringHooks {
    pub(crate) hooks: Arc<dyn HookRunner>,
    pub(crate) attachments: Arc<AttachmentStore>,
}

impl HookRunner for OutputStoringHooks {
    fn run_hook(&self, hook: &InputHook, request: HookRequest) -> BoxFuture<'static, Result<HookResponse, ErrorInfo>> {
        let writer = OutputWriter::new(&self.attachments, &request.user, &request.thread);
        let response = self.hooks.run_hook(hook, request);
        Box::pin(async move {
            let mut response = response.await?;
            for part in response.input.iter_mut().flatten() {
                writer.store_part(part).await;
            }
            for part in response.history.iter_mut().flatten().flat_map(HistoryEntry::parts_mut) {
                writer.store_part(part).await;
            }
            Ok(response)
        })
    }
}

/// Stores outputs for one user and thread.
#[derive(Clone)]
pub(super) struct OutputWriter {
    attachments: Arc<AttachmentStore>,
    user: UserId,
    thread: ThreadId,
}

impl OutputWriter {
    pub(super) fn new(attachments: &Arc<AttachmentStore>, user: &UserId, thread: &ThreadId) -> Self {
        Self { attachments: Arc::clone(attachments), user: user.clone(), thread: thread.clone() }
    }

    /// Replaces the bytes in a part by their URL.
    async fn store_part(&self, part: &mut ContentPart) {
        match part {
            ContentPart::ImageUrl { image_url, id } if is_data_or_blob_url(&image_url.url) => {
                match self.store_url(&image_url.url, None).await {
                    Some(stored_url) => image_url.url = stored_url,
                    None => *part = ContentPart::Text { text: NOT_STORED_NOTE.to_owned(), id: *id, tags: Vec::new() },
                }
            }
            ContentPart::File { file: FileRef { url: Some(url), name, .. } } if is_data_or_blob_url(url) => {
                match self.store_url(url, name.as_deref()).await {
                    Some(stored_url) => *url = stored_url,
                    None => *part = ContentPart::text(NOT_STORED_NOTE),
                }
            }
            ContentPart::File { file: FileRef { url: None, bucket: Some(bucket), path: Some(path), .. } } => {
                if !self.link_attachment(bucket, path).await {
                    *part = ContentPart::text(NOT_STORED_NOTE);
                }
            }
            ContentPart::Text { .. } | ContentPart::ImageUrl { .. } | ContentPart::File { .. } => {}
        }
    }

    /// Links an uploaded file to the thread. Returns false if this user has no such file.
    async fn link_attachment(&self, bucket: &str, path: &str) -> bool {
        let Ok(key) = self.attachments.parse_key(bucket, path) else { return false };
        let Ok(writer) = self.attachments.directory.writer(&self.user) else { return false };
        loop {
            match writer.link_attachment(&self.user, &self.thread, key.as_str()).await {
                Ok(row) => return row.is_some(),
                Err(error) => {
                    if !self.attachments.waits_for_room(error.into()).await {
                        return false;
                    }
                }
            }
        }
    }

    /// Stores the bytes of a `data:` URL and returns their URL; `None` if that fails.
    async fn store_url(&self, url: &str, name: Option<&str>) -> Option<String> {
        if url.starts_with(BLOB_URL_PREFIX) {
            let writer = self.attachments.directory.writer(&self.user).ok()?;
            let hash = blob_hash(url)?;
            loop {
                match writer.link_blob(&self.user, &self.thread, hash).await {
                    Ok(row) => return row.map(|_| url.to_owned()),
                    Err(error) => {
                        if !self.attachments.waits_for_room(error.into()).await {
                            return None;
                        }
                    }
                }
            }
        }
        let decoded = data_url::parse_data_url(url);
        let warn =
            |error: &DataUrlError| tracing::warn!(thread = %self.thread, %error, "an output file cannot be decoded");
        let (declared, bytes) = decoded.inspect_err(warn).ok()?;
        self.store_bytes(declared, bytes, name).await
    }

    async fn store_bytes(&self, declared: String, bytes: Bytes, name: Option<&str>) -> Option<String> {
        let name = name.map_or_else(|| default_file_name(&declared), str::to_owned);
        let blob = NewBlob { name, declared_type: Some(declared), bytes, origin: BlobOrigin::RunOutput };
        loop {
            match self.attachments.store_blob(&self.user, &self.thread, blob.clone()).await {
                Ok(url) => return Some(url),
                Err(error) => {
                    let why = error.to_string();
                    if !self.attachments.waits_for_room(error).await {
                        tracing::warn!(thread = %self.thread, error = why, "an output file cannot be stored");
                        return None;
                    }
                }
            }
        }
    }
}

/// For example `image.png`.
fn default_file_name(declared: &str) -> String {
    let (kind, subtype) = declared.split_once('/').unwrap_or((declared, ""));
    let is_plain = !subtype.is_empty() && subtype.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match (kind, is_plain) {
        ("image", true) => format!("image.{subtype}"),
        ("image", false) => "image".to_owned(),
        _ => "file".to_owned(),
    }
}

/// An event that may carry files.
pub(super) trait MayCarryFiles: Sized + Send + 'static {
    /// Called for every event, so it must be cheap.
    fn has_files(&self) -> bool;

    fn with_stored_files(self, writer: OutputWriter) -> BoxFuture<'static, Self>;
}

/// A stream of events whose files have been stored.
pub(super) struct OutputStoringStream<E> {
    stream: BoxStream<'static, E>,
    writer: OutputWriter,
    pending: Option<BoxFuture<'static, E>>,
}

impl<E> OutputStoringStream<E> {
    pub(super) fn new(stream: BoxStream<'static, E>, writer: OutputWriter) -> Self {
        Self { stream, writer, pending: None }
    }
}

impl<E: MayCarryFiles> Stream for OutputStoringStream<E> {
    type Item = E;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<E>> {
        loop {
            if let Some(storing) = &mut self.pending {
                let stored = ready!(storing.as_mut().poll(cx));
                self.pending = None;
                return Poll::Ready(Some(stored));
            }
            match ready!(self.stream.as_mut().poll_next(cx)) {
                Some(event) if event.has_files() => self.pending = Some(event.with_stored_files(self.writer.clone())),
                event => return Poll::Ready(event),
            }
        }
    }
}

fn is_data_or_blob_url(url: &str) -> bool {
    is_data_url(url) || url.starts_with(BLOB_URL_PREFIX)
}

impl MayCarryFiles for ModelEvent {
    fn has_files(&self) -> bool {
        match self {
            Self::Delta(ModelDelta::Image { url, .. }) => is_data_or_blob_url(url),
            Self::Delta(ModelDelta::Done { raw: Some(raw), .. }) => {
                generated_image::generated_image(&raw.item).is_some()
            }
            _ => false,
        }
    }

    fn with_stored_files(self, writer: OutputWriter) -> BoxFuture<'static, Self> {
        Box::pin(async move {
            let delta = match self {
                Self::Delta(ModelDelta::Image { slot, part, partial, url }) => {
                    // An empty URL ends the image: the previous partial image stays.
                    ModelDelta::Image {
                        slot,
                        part,
                        partial,
                        url: writer.store_url(&url, None).await.unwrap_or_default(),
                    }
                }
                Self::Delta(ModelDelta::Done { slot, raw: Some(mut raw) }) => {
                    // The preceding image event has stored the same bytes: only their URL is looked up.
                    let bytes =
                        generated_image::generated_image(&raw.item).and_then(|image| STANDARD.decode(image).ok());
                    let url = match bytes.map(Bytes::from) {
                        Some(bytes) => writer.store_bytes("image/png".to_owned(), bytes, None).await,
                        None => None,
                    };
                    match url {
                        Some(url) => generated_image::replace_generated_image(&mut raw.item, url),
                        None => generated_image::omit_generated_image(&mut raw.item),
                    }
                    ModelDelta::Done { slot, raw: Some(raw) }
                }
                other => return other,
            };
            Self::Delta(delta)
        })
    }
}

impl MayCarryFiles for ToolEvent {
    fn has_files(&self) -> bool {
        let output = match self {
            Self::End(output) => output,
            Self::Piece { piece: ResultPiece::Image { url, .. }, .. } => return is_data_or_blob_url(url),
            _ => return false,
        };
        let in_content = output.message_content.iter().any(|part| match part {
            ContentPart::Text { .. } => false,
            ContentPart::ImageUrl { image_url, .. } => is_data_or_blob_url(&image_url.url),
            ContentPart::File { file } => file.url.as_deref().is_none_or(is_data_or_blob_url),
        });
        let is_image =
            |block: &Block| matches!(block, Block::Image(image) if is_data_or_blob_url(&image.image_url.url));
        in_content || output.block_list.iter().any(is_image)
    }

    fn with_stored_files(self, writer: OutputWriter) -> BoxFuture<'static, Self> {
        Box::pin(async move {
            match self {
                Self::End(mut output) => {
                    store_tool_output(&writer, &mut output).await;
                    Self::End(output)
                }
                Self::Piece { piece: ResultPiece::Image { url, partial }, place } => {
                    let piece = match writer.store_url(&url, None).await {
                        Some(url) => ResultPiece::Image { url, partial },
                        // A preview that is missing is not missed.
                        None if partial.is_some() => ResultPiece::Text(String::new()),
                        None => ResultPiece::Text(NOT_STORED_NOTE.to_owned()),
                    };
                    Self::Piece { piece, place }
                }
                other => other,
            }
        })
    }
}

async fn store_tool_output(writer: &OutputWriter, output: &mut ToolOutput) {
    for part in &mut output.message_content {
        writer.store_part(part).await;
    }
    for block in &mut output.block_list {
        let Block::Image(image) = block else { continue };
        if !is_data_or_blob_url(&image.image_url.url) {
            continue;
        }
        match writer.store_url(&image.image_url.url, None).await {
            Some(url) => image.image_url.url = url,
            None => *block = Block::Text(TextBlock { id: image.id, ..TextBlock::new(NOT_STORED_NOTE) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attachments::AttachmentSettings;
    use engine::SystemClock;
    use memory_store::MemoryStore;
    use model::ports::{SpaceWatch, StorageSpace};
    use std::time::Duration;

    #[tokio::test]
    async fn a_file_that_a_tool_returns_waits_for_room() {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(MemoryStore::new());
        let space = Arc::clone(&store) as Arc<dyn SpaceWatch>;
        let (settings, directory) = (AttachmentSettings::default(), Arc::clone(&store));
        let signer = files::UrlSigner::from_key(&[7; 32]).unwrap();
        let files =
            AttachmentStore::open(settings, dir.path(), signer, directory, Arc::new(SystemClock), space).unwrap();
        let writer = OutputWriter::new(&Arc::new(files), &UserId::from("ann"), &ThreadId::from("thr_1"));
        store.set_space(StorageSpace::Full);
        let mut storing = Box::pin(writer.store_url("data:text/plain;base64,aGVsbG8=", None));
        let early = tokio::time::timeout(Duration::from_millis(100), &mut storing).await;
        assert!(early.is_err(), "it was given up: {early:?}");
        store.set_space(StorageSpace::Available);
        assert!(storing.await.unwrap().starts_with(BLOB_URL_PREFIX));
    }
}
