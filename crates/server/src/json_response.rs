//! Objects that hold a whole run as response bodies. They may be long, so they are serialised beside the async workers.

use crate::app::App;
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use gateway::attachments::inline_images::{ImageInliner, InlineImageError, has_blob_url};
use gateway::stream_start::thread_images;
use heavy_work::run_in_place;
use http_body::{Frame, SizeHint};
use model::item::Item;
use model::json::{JsonPieces, write_json};
use model::shared_text::SharedText;
use model::task::TaskObject;
use model::{ThreadId, UserId};
use serde::Serialize;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The buffer that it is written into at first.
const LONG_JSON_BYTES: usize = 16 * 1024;

/// Like [`axum::Json`], for objects that may be long.
pub(crate) struct LongJson<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for LongJson<T> {
    fn into_response(self) -> Response {
        let headers = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        let mut bytes = BytesMut::with_capacity(LONG_JSON_BYTES);
        // The keys are texts and the numbers finite, so this cannot fail.
        let _written = run_in_place(|| write_json(&mut bytes, &self.0));
        (headers, bytes.freeze()).into_response()
    }
}

/// A task with its whole output, whose long texts are not copied.
pub(crate) fn task_json(task: &TaskObject) -> Response {
    let pieces = run_in_place(|| {
        let long_texts = task.output.iter().flat_map(Item::long_texts).map(SharedText::to_json).collect();
        let mut pieces = JsonPieces::with_shared(long_texts);
        // The keys are texts and the numbers finite, so this cannot fail.
        let _written = write_json(&mut pieces, task);
        pieces.into_pieces()
    });
    pieces_response(pieces)
}

/// JSON in consecutive pieces.
fn pieces_response(pieces: Vec<Bytes>) -> Response {
    let bytes_left = pieces.iter().map(|piece| piece.len() as u64).sum();
    let body = PiecesBody { pieces: pieces.into(), bytes_left };
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], Body::new(body)).into_response()
}

struct PiecesBody {
    pieces: VecDeque<Bytes>,
    bytes_left: u64,
}

impl http_body::Body for PiecesBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.pieces.pop_front();
        self.bytes_left -= piece.as_ref().map_or(0, |piece| piece.len() as u64);
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes_left)
    }
}

/// Streams an object of a thread, given as pieces of JSON, with the bytes of its generated images.
pub(crate) fn json_response_with_images(app: &App, user: &UserId, thread: &ThreadId, pieces: Vec<Bytes>) -> Response {
    let headers = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    if run_in_place(|| !pieces.iter().any(|piece| has_blob_url(piece))) {
        return pieces_response(pieces);
    }
    let bytes = Bytes::from(pieces.concat());
    let inliner = ImageInliner::with_frames(thread_images(&app.gateway, user, thread), &bytes);
    let chunks = stream::try_unfold(inliner, |mut inliner| async move {
        let chunk = inliner.next().await?;
        Ok::<_, InlineImageError>(chunk.map(|bytes| (bytes, inliner)))
    });
    (headers, Body::from_stream(chunks)).into_response()
}
