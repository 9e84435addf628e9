//! Pictures that were drawn, for clients of Responses: they are told the picture itself where the log says where it is.
//!
//! Frames are small and everybody's, so the bytes are put in only when they are written to one client: what is said is cut
//! at the places, and the pieces are sent one after the other, with one picture in memory at a time. Two members are such
//! places, `result` of a drawing and `partial_image_b64` of its event; an address anywhere else is an address.

use crate::app::App;
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use files::FileStoreError;
use futures_util::stream;
use memchr::memmem;
use model::blob::{self, BLOB_URL_PREFIX, blob_hash};
use model::ports::StoreError;
use model::{ThreadId, UserId};
use serde_json::Value;
use std::collections::VecDeque;

/// What stands before a picture, and what tells its object from others. Members are in the order of their names.
const IMAGE_MEMBERS: [(&[u8], &[u8]); 2] = [
    (b"\"result\":\"", b"\"type\":\"image_generation_call\""),
    (b"\"partial_image_b64\":\"", b"\"type\":\"response.image_generation_call.partial_image\""),
];
/// So much of a picture is written at once. Three bytes are four letters: no piece but the last has padding.
const IMAGE_CHUNK_BYTES: usize = 48 * 1024;

/// Whose pictures are put in, and of which thread.
pub(crate) struct ThreadImages {
    app: App,
    user: UserId,
    thread: ThreadId,
}

/// Why a picture could not be put in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InlineImageError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Files(#[from] FileStoreError),
}

impl ThreadImages {
    pub(crate) fn new(app: &App, user: &UserId, thread: &ThreadId) -> Self {
        Self { app: app.clone(), user: user.clone(), thread: thread.clone() }
    }

    /// The bytes of a picture that this user sees in this thread; none when it is gone.
    async fn read_image(&self, hash: &str) -> Result<Bytes, InlineImageError> {
        let row = self.app.engine.ports().directory.blob(&self.user, Some(&self.thread), hash).await?;
        let Some(row) = row else { return Ok(Bytes::new()) };
        match self.app.files.read_bytes(&row).await {
            Err(FileStoreError::NotFound) => Ok(Bytes::new()),
            read => Ok(read?),
        }
    }
}

/// An object of a thread, with the pictures in it, as the body of an answer.
pub(crate) fn json_response_with_images(app: &App, user: &UserId, thread: &ThreadId, object: &Value) -> Response {
    let json = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    let bytes = Bytes::from(object.to_string());
    if !has_blob_url(&bytes) {
        return (json, bytes).into_response();
    }
    let inline = ImageInliner { images: ThreadImages::new(app, user, thread), chunks: split_at_images(&bytes) };
    let pieces = stream::try_unfold(inline, |mut inline| async move {
        let piece = inline.next().await?;
        Ok::<_, InlineImageError>(piece.map(|bytes| (bytes, inline)))
    });
    (json, Body::from_stream(pieces)).into_response()
}

/// Frames on their way to one client.
pub(crate) struct ImageInliner {
    images: ThreadImages,
    chunks: VecDeque<InlineChunk>,
}

/// A piece of what is written.
#[derive(Debug, PartialEq, Eq)]
enum InlineChunk {
    /// As it is.
    Frames(Bytes),
    /// The picture with this hash.
    Image(String),
    /// The rest of a picture, which is written in base64.
    ImageBytes(Bytes),
}

impl ImageInliner {
    pub(crate) fn new(pictures: ThreadImages) -> Self {
        Self { images: pictures, chunks: VecDeque::new() }
    }

    /// Takes frames in. Those without pictures go on at once; of others the first piece does.
    pub(crate) async fn push_frames(&mut self, frames: Bytes) -> Result<Bytes, InlineImageError> {
        if !has_blob_url(&frames) {
            return Ok(frames);
        }
        self.chunks = split_at_images(&frames);
        Ok(self.next().await?.unwrap_or(frames))
    }

    /// What is still to be written of the frames that came last.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, InlineImageError> {
        while let Some(piece) = self.chunks.pop_front() {
            match piece {
                InlineChunk::Frames(bytes) => return Ok(Some(bytes)),
                InlineChunk::Image(hash) => {
                    let bytes = self.images.read_image(&hash).await?;
                    self.chunks.push_front(InlineChunk::ImageBytes(bytes));
                }
                InlineChunk::ImageBytes(mut bytes) => {
                    let piece = bytes.split_to(bytes.len().min(IMAGE_CHUNK_BYTES));
                    if piece.is_empty() {
                        continue;
                    }
                    self.chunks.push_front(InlineChunk::ImageBytes(bytes));
                    return Ok(Some(STANDARD.encode(piece).into()));
                }
            }
        }
        Ok(None)
    }
}

/// Frames with the pictures in them, for whoever has these at hand. Where there is none, the address stays.
pub(crate) fn inline_images_with(frames: Bytes, picture: impl Fn(&str) -> Option<Bytes>) -> Bytes {
    if !has_blob_url(&frames) {
        return frames;
    }
    let mut out = Vec::with_capacity(frames.len());
    for piece in split_at_images(&frames) {
        match piece {
            InlineChunk::Frames(bytes) => out.extend_from_slice(&bytes),
            InlineChunk::Image(hash) => match picture(&hash) {
                Some(bytes) => out.extend_from_slice(STANDARD.encode(bytes).as_bytes()),
                None => out.extend_from_slice(blob::blob_url(&hash).as_bytes()),
            },
            InlineChunk::ImageBytes(_) => {}
        }
    }
    out.into()
}

/// Most frames have none, and go on as they are.
fn has_blob_url(frames: &[u8]) -> bool {
    memmem::find(frames, BLOB_URL_PREFIX.as_bytes()).is_some()
}

/// Cuts frames where pictures stand.
fn split_at_images(frames: &Bytes) -> VecDeque<InlineChunk> {
    let mut pieces = VecDeque::new();
    let mut from = 0;
    for at in memmem::find_iter(frames, BLOB_URL_PREFIX.as_bytes()) {
        let Some(hash) = image_hash_at(frames, at) else { continue };
        pieces.push_back(InlineChunk::Frames(frames.slice(from..at)));
        from = at + BLOB_URL_PREFIX.len() + hash.len();
        pieces.push_back(InlineChunk::Image(hash));
    }
    pieces.push_back(InlineChunk::Frames(frames.slice(from..)));
    pieces
}

/// The hash of the picture whose address begins here, if a picture stands here and not an address.
fn image_hash_at(frames: &[u8], at: usize) -> Option<String> {
    let (before, value) = frames.split_at_checked(at)?;
    let (_, type_of) = IMAGE_MEMBERS.iter().find(|(member, _)| before.ends_with(member))?;
    let (address, rest) = value.split_at_checked(memchr::memchr(b'"', value)?)?;
    let hash = blob_hash(std::str::from_utf8(address).ok()?)?;
    has_member(rest.get(1..)?, type_of).then(|| hash.to_owned())
}

/// Does the object whose rest this is have this member?
fn has_member(rest: &[u8], member: &[u8]) -> bool {
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    for (at, byte) in rest.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' if !in_text && depth == 0 && rest.get(at..).is_some_and(|rest| rest.starts_with(member)) => {
                return true;
            }
            b'"' => in_text = !in_text,
            _ if in_text => {}
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
    use serde_json::json;

    fn frame(data: &Value) -> String {
        format!("event: x\ndata: {data}\n\n")
    }

    fn address(letter: &str) -> String {
        format!("/v1/blobs/{}", letter.repeat(64))
    }

    /// The frames with `<letter>` where a picture is put in.
    fn told(frames: &str) -> String {
        let pieces = split_at_images(&Bytes::from(frames.to_owned()));
        let shown = |piece: &InlineChunk| match piece {
            InlineChunk::Frames(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            InlineChunk::Image(hash) => format!("<{}>", &hash[..1]),
            InlineChunk::ImageBytes(_) => panic!("nothing was read"),
        };
        pieces.iter().map(shown).collect()
    }

    #[test]
    fn pictures_are_put_in_where_they_stand() {
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
        assert_eq!(told(&frames(&a, &b)), frames("<a>", "<b>"));
    }

    #[test]
    fn an_address_elsewhere_is_an_address() {
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
            assert_eq!(told(&frame), frame);
        }
        assert_eq!(told(""), "");
        assert_eq!(told(r#""result":"/v1/blobs/"#), r#""result":"/v1/blobs/"#);
    }
}
