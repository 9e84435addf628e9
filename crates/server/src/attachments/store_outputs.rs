//! Pictures and files that models, tools and hooks give: they are kept as blobs, and what goes on says where they are.
//! Whoever says where something is has to mean something of the same user, which the thread then uses as well.
//!
//! Everything else passes as it comes. A stream waits here only while a picture is being kept, so the order stays.

use super::data_url::{self, is_data_url};
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
use model::tool::{ToolEvent, ToolOutput, ToolRequest};
use model::{ThreadId, UserId};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use upstream::responses::generated_image;

/// What stands where something could not be kept.
const NOT_STORED_NOTE: &str = "[a file could not be kept]";

/// Tools whose pictures are kept.
pub(crate) struct OutputStoringTools {
    pub(crate) tools: Arc<dyn ToolRunner>,
    pub(crate) files: Arc<AttachmentStore>,
}

impl ToolRunner for OutputStoringTools {
    fn call_tool(&self, request: ToolRequest) -> BoxStream<'static, ToolEvent> {
        let keeper = OutputWriter::new(&self.files, &request.user, &request.thread);
        OutputStoringStream::new(self.tools.call_tool(request), keeper).boxed()
    }
}

/// Hooks whose pictures are kept.
pub(crate) struct OutputStoringHooks {
    pub(crate) hooks: Arc<dyn HookRunner>,
    pub(crate) files: Arc<AttachmentStore>,
}

impl HookRunner for OutputStoringHooks {
    fn run_hook(&self, hook: &InputHook, request: HookRequest) -> BoxFuture<'static, Result<HookResponse, ErrorInfo>> {
        let keeper = OutputWriter::new(&self.files, &request.user, &request.thread);
        let asked = self.hooks.run_hook(hook, request);
        Box::pin(async move {
            let mut answer = asked.await?;
            for part in answer.input.iter_mut().flatten() {
                keeper.store_part(part).await;
            }
            for part in answer.history.iter_mut().flatten().flat_map(HistoryEntry::parts_mut) {
                keeper.store_part(part).await;
            }
            Ok(answer)
        })
    }
}

/// For whom pictures are kept.
#[derive(Clone)]
pub(super) struct OutputWriter {
    files: Arc<AttachmentStore>,
    user: UserId,
    thread: ThreadId,
}

impl OutputWriter {
    pub(super) fn new(files: &Arc<AttachmentStore>, user: &UserId, thread: &ThreadId) -> Self {
        Self { files: Arc::clone(files), user: user.clone(), thread: thread.clone() }
    }

    /// Puts the address in the place of what a part holds.
    async fn store_part(&self, part: &mut ContentPart) {
        match part {
            ContentPart::ImageUrl { image_url, id } if is_data_or_blob_url(&image_url.url) => {
                match self.store_url(&image_url.url, None).await {
                    Some(address) => image_url.url = address,
                    None => *part = ContentPart::Text { text: NOT_STORED_NOTE.to_owned(), id: *id, tags: Vec::new() },
                }
            }
            ContentPart::File { file: FileRef { url: Some(url), name, .. } } if is_data_or_blob_url(url) => {
                match self.store_url(url, name.as_deref()).await {
                    Some(address) => *url = address,
                    None => *part = ContentPart::text(NOT_STORED_NOTE),
                }
            }
            ContentPart::File { file: FileRef { url: None, bucket: Some(bucket), path: Some(path), .. } } => {
                if !self.use_attachment(bucket, path).await {
                    *part = ContentPart::text(NOT_STORED_NOTE);
                }
            }
            ContentPart::Text { .. } | ContentPart::ImageUrl { .. } | ContentPart::File { .. } => {}
        }
    }

    /// Notes that the thread uses a file that was sent. False when there is no such file of this user.
    async fn use_attachment(&self, bucket: &str, path: &str) -> bool {
        let Ok(key) = self.files.parse_key(bucket, path) else { return false };
        let Ok(writer) = self.files.directory.writer(&self.user) else { return false };
        let used = writer.link_attachment(&self.user, &self.thread, key.as_str()).await;
        used.is_ok_and(|row| row.is_some())
    }

    /// Keeps what a `data:` URL holds and says where. `None` when it could not be kept.
    async fn store_url(&self, url: &str, name: Option<&str>) -> Option<String> {
        if url.starts_with(BLOB_URL_PREFIX) {
            let writer = self.files.directory.writer(&self.user).ok()?;
            let used = writer.link_blob(&self.user, &self.thread, blob_hash(url)?).await;
            return used.ok().flatten().map(|_| url.to_owned());
        }
        match data_url::parse_data_url(url) {
            Ok((declared, bytes)) => self.store_bytes(declared, bytes, name).await,
            Err(error) => {
                tracing::warn!(thread = %self.thread, %error, "a picture cannot be read");
                None
            }
        }
    }

    async fn store_bytes(&self, declared: String, bytes: Bytes, name: Option<&str>) -> Option<String> {
        let name = name.map_or_else(|| default_file_name(&declared), str::to_owned);
        let blob = NewBlob { name, declared_type: Some(declared), bytes, origin: BlobOrigin::RunOutput };
        match self.files.store_blob(&self.user, &self.thread, blob).await {
            Ok(address) => Some(address),
            Err(error) => {
                tracing::warn!(thread = %self.thread, %error, "a picture cannot be kept");
                None
            }
        }
    }
}

/// What a picture is called that has no name: `image.png`.
fn default_file_name(declared: &str) -> String {
    let (kind, form) = declared.split_once('/').unwrap_or((declared, ""));
    let is_plain = !form.is_empty() && form.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match (kind, is_plain) {
        ("image", true) => format!("image.{form}"),
        ("image", false) => "image".to_owned(),
        _ => "file".to_owned(),
    }
}

/// Something that may carry pictures.
pub(super) trait MayCarryFiles: Sized + Send + 'static {
    /// Does it? Asked of everything that comes by.
    fn has_files(&self) -> bool;

    /// The same with addresses in their place.
    fn with_stored_files(self, keeper: OutputWriter) -> BoxFuture<'static, Self>;
}

/// A stream without pictures.
pub(super) struct OutputStoringStream<E> {
    stream: BoxStream<'static, E>,
    writer: OutputWriter,
    pending: Option<BoxFuture<'static, E>>,
}

impl<E> OutputStoringStream<E> {
    pub(super) fn new(stream: BoxStream<'static, E>, keeper: OutputWriter) -> Self {
        Self { stream, writer: keeper, pending: None }
    }
}

impl<E: MayCarryFiles> Stream for OutputStoringStream<E> {
    type Item = E;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<E>> {
        loop {
            if let Some(keeping) = &mut self.pending {
                let kept = ready!(keeping.as_mut().poll(cx));
                self.pending = None;
                return Poll::Ready(Some(kept));
            }
            match ready!(self.stream.as_mut().poll_next(cx)) {
                Some(event) if event.has_files() => self.pending = Some(event.with_stored_files(self.writer.clone())),
                event => return Poll::Ready(event),
            }
        }
    }
}

/// Does an address hold bytes, or name bytes that are here?
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

    fn with_stored_files(self, keeper: OutputWriter) -> BoxFuture<'static, Self> {
        Box::pin(async move {
            let delta = match self {
                Self::Delta(ModelDelta::Image { slot, part, partial, url }) => {
                    // An empty address closes the picture: the one before it stays.
                    ModelDelta::Image {
                        slot,
                        part,
                        partial,
                        url: keeper.store_url(&url, None).await.unwrap_or_default(),
                    }
                }
                Self::Delta(ModelDelta::Done { slot, raw: Some(mut raw) }) => {
                    // It was shown a moment ago: these bytes are kept already.
                    let bytes =
                        generated_image::generated_image(&raw.item).and_then(|picture| STANDARD.decode(picture).ok());
                    let address = match bytes.map(Bytes::from) {
                        Some(bytes) => keeper.store_bytes("image/png".to_owned(), bytes, None).await,
                        None => None,
                    };
                    match address {
                        Some(address) => generated_image::replace_generated_image(&mut raw.item, address),
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
        let Self::End(output) = self else { return false };
        let in_content = output.message_content.iter().any(|part| match part {
            ContentPart::Text { .. } => false,
            ContentPart::ImageUrl { image_url, .. } => is_data_or_blob_url(&image_url.url),
            ContentPart::File { file } => file.url.as_deref().is_none_or(is_data_or_blob_url),
        });
        let is_picture =
            |block: &Block| matches!(block, Block::Image(image) if is_data_or_blob_url(&image.image_url.url));
        in_content || output.block_list.iter().any(is_picture)
    }

    fn with_stored_files(self, keeper: OutputWriter) -> BoxFuture<'static, Self> {
        Box::pin(async move {
            let Self::End(mut output) = self else { return self };
            store_tool_output(&keeper, &mut output).await;
            Self::End(output)
        })
    }
}

async fn store_tool_output(keeper: &OutputWriter, output: &mut ToolOutput) {
    for part in &mut output.message_content {
        keeper.store_part(part).await;
    }
    for block in &mut output.block_list {
        let Block::Image(image) = block else { continue };
        if !is_data_or_blob_url(&image.image_url.url) {
            continue;
        }
        match keeper.store_url(&image.image_url.url, None).await {
            Some(address) => image.image_url.url = address,
            None => *block = Block::Text(TextBlock { id: image.id, ..TextBlock::new(NOT_STORED_NOTE) }),
        }
    }
}
