//! Generated images for clients of Responses, who expect base64 where the log has a blob URL.
//!
//! Frames are small and shared by all subscribers, so the bytes are inserted only when a frame is written to one client: it
//! is split at the URLs, and the chunks are sent one after the other, with one image in memory at a time. Two members hold
//! such URLs, `result` of an image generation call and `partial_image_b64` of its event; elsewhere a URL stays a URL.

use super::AttachmentStore;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use files::FileStoreError;
use memchr::memmem;
use model::blob::{self, BLOB_URL_PREFIX, blob_hash};
use model::ports::{Directory, StoreError};
use model::{ThreadId, UserId};
use std::collections::VecDeque;
use std::sync::{Arc, LazyLock};

/// The member that holds an image, and the `type` that its object must have. Members are in alphabetical order.
const IMAGE_MEMBERS: [(&[u8], &[u8]); 2] = [
    (b"\"result\":\"", b"\"type\":\"image_generation_call\""),
    (b"\"partial_image_b64\":\"", b"\"type\":\"response.image_generation_call.partial_image\""),
];
/// A multiple of three, so that only the last chunk of an image has base64 padding.
const IMAGE_CHUNK_BYTES: usize = 48 * 1024;

/// The images that one user sees in one thread.
pub struct ThreadImages {
    /// Scoped to shares: a viewer sees the images of the shared thread.
    directory: Arc<dyn Directory>,
    attachments: Arc<AttachmentStore>,
    user: UserId,
    thread: ThreadId,
}

#[derive(Debug, thiserror::Error)]
pub enum InlineImageError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Files(#[from] FileStoreError),
}

impl ThreadImages {
    pub(crate) fn new(
        directory: &Arc<dyn Directory>,
        attachments: &Arc<AttachmentStore>,
        user: &UserId,
        thread: &ThreadId,
    ) -> Self {
        let (directory, attachments) = (Arc::clone(directory), Arc::clone(attachments));
        Self { directory, attachments, user: user.clone(), thread: thread.clone() }
    }

    /// Reads an image; empty if it has been deleted.
    async fn read_image(&self, hash: &str) -> Result<Bytes, InlineImageError> {
        let row = self.directory.blob(&self.user, Some(&self.thread), hash).await?;
        let Some(row) = row else { return Ok(Bytes::new()) };
        match self.attachments.read_bytes(&row).await {
            Err(FileStoreError::NotFound) => Ok(Bytes::new()),
            read => Ok(read?),
        }
    }
}

/// Inserts images into the frames for one client.
pub struct ImageInliner {
    images: ThreadImages,
    chunks: VecDeque<InlineChunk>,
}

#[derive(Debug, PartialEq, Eq)]
enum InlineChunk {
    Frames(Bytes),
    /// The hash of an image that has not been read yet.
    Image(String),
    /// The rest of an image, to be encoded.
    ImageBytes(Bytes),
}

impl ImageInliner {
    pub const fn new(images: ThreadImages) -> Self {
        Self { images, chunks: VecDeque::new() }
    }

    /// Creates an inliner and pushes its first frames.
    pub fn with_frames(images: ThreadImages, frames: &Bytes) -> Self {
        Self { images, chunks: split_at_images(frames) }
    }

    /// Returns frames without images as they are, and of others the first chunk.
    pub async fn push_frames(&mut self, frames: Bytes) -> Result<Bytes, InlineImageError> {
        match self.split_frames(frames) {
            Some(frames) => Ok(frames),
            None => Ok(self.next().await?.unwrap_or_default()),
        }
    }

    /// Returns frames without images as they are. The chunks of others are what [`Self::next`] returns.
    pub fn split_frames(&mut self, frames: Bytes) -> Option<Bytes> {
        if !has_blob_url(&frames) {
            return Some(frames);
        }
        self.chunks = split_at_images(&frames);
        None
    }

    /// Whether [`Self::next`] has a chunk.
    pub fn has_chunks(&self) -> bool {
        !self.chunks.is_empty()
    }

    /// The next chunk of the frames that were pushed last.
    pub async fn next(&mut self) -> Result<Option<Bytes>, InlineImageError> {
        while let Some(chunk) = self.chunks.pop_front() {
            match chunk {
                InlineChunk::Frames(bytes) => return Ok(Some(bytes)),
                InlineChunk::Image(hash) => {
                    let bytes = self.images.read_image(&hash).await?;
                    self.chunks.push_front(InlineChunk::ImageBytes(bytes));
                }
                InlineChunk::ImageBytes(mut bytes) => {
                    let chunk = bytes.split_to(bytes.len().min(IMAGE_CHUNK_BYTES));
                    if chunk.is_empty() {
                        continue;
                    }
                    self.chunks.push_front(InlineChunk::ImageBytes(bytes));
                    return Ok(Some(STANDARD.encode(chunk).into()));
                }
            }
        }
        Ok(None)
    }
}

/// Inserts images from `read_image`. If it returns `None`, the URL stays.
pub fn inline_images_with(frames: Bytes, read_image: impl Fn(&str) -> Option<Bytes>) -> Bytes {
    if !has_blob_url(&frames) {
        return frames;
    }
    let mut out = Vec::with_capacity(frames.len());
    for chunk in split_at_images(&frames) {
        match chunk {
            InlineChunk::Frames(bytes) => out.extend_from_slice(&bytes),
            InlineChunk::Image(hash) => match read_image(&hash) {
                Some(bytes) => out.extend_from_slice(STANDARD.encode(bytes).as_bytes()),
                None => out.extend_from_slice(blob::blob_url(&hash).as_bytes()),
            },
            InlineChunk::ImageBytes(_) => {}
        }
    }
    out.into()
}

/// A fast path: most frames have no blob URL and need no splitting.
pub fn has_blob_url(frames: &[u8]) -> bool {
    // Preparing the search takes longer than searching a frame.
    static FINDER: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new(BLOB_URL_PREFIX));
    FINDER.find(frames).is_some()
}

fn split_at_images(frames: &Bytes) -> VecDeque<InlineChunk> {
    let mut chunks = VecDeque::new();
    let mut from = 0;
    for at in memmem::find_iter(frames, BLOB_URL_PREFIX.as_bytes()) {
        let Some(hash) = image_hash_at(frames, at) else { continue };
        chunks.push_back(InlineChunk::Frames(frames.slice(from..at)));
        from = at + BLOB_URL_PREFIX.len() + hash.len();
        chunks.push_back(InlineChunk::Image(hash));
    }
    chunks.push_back(InlineChunk::Frames(frames.slice(from..)));
    chunks
}

/// The hash in the blob URL at `at`, if the member there holds an image.
fn image_hash_at(frames: &[u8], at: usize) -> Option<String> {
    let (before, value) = frames.split_at_checked(at)?;
    let (_, type_of) = IMAGE_MEMBERS.iter().find(|(member, _)| before.ends_with(member))?;
    let (url, rest) = value.split_at_checked(memchr::memchr(b'"', value)?)?;
    let hash = blob_hash(std::str::from_utf8(url).ok()?)?;
    has_member(rest.get(1..)?, type_of).then(|| hash.to_owned())
}

/// Whether the rest of an object has this member at its own level.
fn has_member(rest: &[u8], member: &[u8]) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (at, byte) in rest.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' if !in_string && depth == 0 && rest.get(at..).is_some_and(|rest| rest.starts_with(member)) => {
                return true;
            }
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => return false,
            },
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn frame(data: &Value) -> String {
        format!("event: x\ndata: {data}\n\n")
    }

    fn address(letter: &str) -> String {
        format!("/v1/blobs/{}", letter.repeat(64))
    }

    /// The frames with `<letter>` where an image is inserted.
    fn inlined(frames: &str) -> String {
        let chunks = split_at_images(&Bytes::from(frames.to_owned()));
        let text = |chunk: &InlineChunk| match chunk {
            InlineChunk::Frames(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            InlineChunk::Image(hash) => format!("<{}>", &hash[..1]),
            InlineChunk::ImageBytes(_) => panic!("nothing was read"),
        };
        chunks.iter().map(text).collect()
    }

    #[test]
    fn images_are_inserted_in_place() {
        let prompt = json!(["a \"quoted\" } word \\", {"type": "x"}]);
        let drawing = |picture: &str| {
            let status = "completed";
            json!({"type": "image_generation_call", "result": picture, "revised_prompt": prompt, "status": status})
        };
        let partial = |picture: &str| {
            let kind = "response.image_generation_call.partial_image";
            json!({"type": kind, "partial_image_b64": picture, "sequence_number": 7})
        };
        let frames = |a: &str, b: &str| {
            let whole = json!({"type": "response.completed", "response": {"output": [drawing(a), drawing(b)]}});
            [frame(&partial(a)), frame(&json!({"item": drawing(b)})), frame(&whole)].concat()
        };
        let (a, b) = (address("a"), address("b"));
        assert_eq!(inlined(&frames(&a, &b)), frames("<a>", "<b>"));
    }

    #[test]
    fn a_url_elsewhere_stays_a_url() {
        let address = address("a");
        for data in [
            json!({"metadata": {"result": address}}),
            json!({"type": "mcp_call", "result": address, "items": [{"type": "image_generation_call"}]}),
            json!({"type": "image_generation_call", "other": address}),
            json!({"type": "image_generation_call", "result": "/v1/blobs/ab12"}),
            json!({"type": "image_generation_call", "result": format!("{address}0")}),
            json!({"text": json!({"type": "image_generation_call", "result": address}).to_string()}),
            json!({"result": address, "text": "\"type\":\"image_generation_call\""}),
            json!({"partial_image_b64": address, "type": "image_generation_call"}),
        ] {
            let frame = frame(&data);
            assert_eq!(inlined(&frame), frame);
        }
        assert_eq!(inlined(""), "");
        assert_eq!(inlined(r#""result":"/v1/blobs/"#), r#""result":"/v1/blobs/"#);
    }
}
