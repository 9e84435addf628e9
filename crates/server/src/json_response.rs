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
use model::json::write_json;
use model::{ThreadId, UserId};
use serde::Serialize;

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

/// Streams an object of a thread, given as JSON, with the bytes of its generated images.
pub(crate) fn json_response_with_images(app: &App, user: &UserId, thread: &ThreadId, bytes: Bytes) -> Response {
    let headers = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    if run_in_place(|| !has_blob_url(&bytes)) {
        return (headers, bytes).into_response();
    }
    let inliner = ImageInliner::with_frames(thread_images(&app.gateway, user, thread), &bytes);
    let chunks = stream::try_unfold(inliner, |mut inliner| async move {
        let chunk = inliner.next().await?;
        Ok::<_, InlineImageError>(chunk.map(|bytes| (bytes, inliner)))
    });
    (headers, Body::from_stream(chunks)).into_response()
}
