//! Objects that hold a whole run as response bodies. They may be long, so they are serialised beside the async workers.

use crate::app::App;
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use gateway::attachments::inline_images::{ImageInliner, InlineImageError, has_blob_url};
use gateway::stream_start::thread_images;
use heavy_work::run_in_place;
use model::{ThreadId, UserId};
use serde::Serialize;
use serde_json::Value;

/// Like [`axum::Json`], for objects that may be long.
pub(crate) struct LongJson<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for LongJson<T> {
    fn into_response(self) -> Response {
        run_in_place(|| axum::Json(self.0).into_response())
    }
}

/// Streams an object of a thread with the bytes of its generated images.
pub(crate) fn json_response_with_images(app: &App, user: &UserId, thread: &ThreadId, object: &Value) -> Response {
    let headers = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    let bytes = run_in_place(|| Bytes::from(object.to_string()));
    if !has_blob_url(&bytes) {
        return (headers, bytes).into_response();
    }
    let inliner = ImageInliner::with_frames(thread_images(&app.gateway, user, thread), &bytes);
    let chunks = stream::try_unfold(inliner, |mut inliner| async move {
        let chunk = inliner.next().await?;
        Ok::<_, InlineImageError>(chunk.map(|bytes| (bytes, inliner)))
    });
    (headers, Body::from_stream(chunks)).into_response()
}
