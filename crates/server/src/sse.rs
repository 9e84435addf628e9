//! A viewer as the body of a response.
//!
//! Each piece that the viewer gives is one frame of the body, shared with everybody who watches the same: nothing is
//! copied, and nothing waits here. A stream that ends before its own end ends with an error, so that the connection
//! breaks and no client takes it for the end.

use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::stream_limiter::StreamPermit;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::{Bytes, BytesMut};
use engine::Viewer;
use futures_util::stream;
use gateway::attachments::inline_images::{ImageInliner, InlineImageError};
use gateway::stream_start::{self, StreamStart};
use model::TaskId;
use model::error::ErrorCode;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// How long a client waits before it comes back; spread, so that a restart does not bring all of them at once.
const RETRY_MS: std::ops::Range<u64> = 1_000..3_000;

/// The response's head, without a body.
pub(crate) fn sse_head() -> Response {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-store, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// What a protocol's clients take beside their frames.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SseStyle {
    /// They know `retry`. Others take any field for an event.
    sends_retry: bool,
    /// What they are told when all has been said.
    terminator: &'static [u8],
}

impl SseStyle {
    /// For clients that follow the standard.
    pub(crate) const STANDARD: Self = Self { sends_retry: true, terminator: b"" };
    /// For clients of OpenAI's protocols.
    pub(crate) const OPENAI: Self = Self { sends_retry: false, terminator: b"data: [DONE]\n\n" };
    /// For clients that know nothing beside their frames.
    pub(crate) const PLAIN: Self = Self { sends_retry: false, terminator: b"" };
}

/// Room for one more stream, or why there is none. Whoever begins something only to stream it takes its room first: one who
/// is refused will ask again, and must not have left a run behind.
pub(crate) fn acquire_stream_permit(app: &App, caller: &Caller) -> Result<StreamPermit, Problem> {
    app.stream_limiter.try_acquire(&caller.user).ok_or_else(|| {
        let detail = format!("{} streams are open already: close some", app.limits.streams_per_user_max);
        let problem = Problem::new(ErrorCode::TooManyStreams, detail);
        problem.with_header(header::RETRY_AFTER, "1")
    })
}

/// Streams what can be seen from a place on.
pub(crate) fn sse_response(app: &App, caller: &Caller, place: StreamStart) -> Result<Response, Problem> {
    sse_response_with_style(app, caller, place, SseStyle::STANDARD)
}

/// The same, for clients with manners of their own.
pub(crate) fn sse_response_with_style(
    app: &App,
    caller: &Caller,
    place: StreamStart,
    manners: SseStyle,
) -> Result<Response, Problem> {
    if place.is_past_frozen_end(&app.gateway, &caller.user) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Ok(sse_response_with_permit(app, caller, place, manners, acquire_stream_permit(app, caller)?))
}

/// The same, for whoever has its room already.
pub(crate) fn sse_response_with_permit(
    app: &App,
    caller: &Caller,
    place: StreamStart,
    manners: SseStyle,
    slot: StreamPermit,
) -> Response {
    // On the heap: it is handed on with every piece.
    let stream = Box::new(SseStream {
        app: app.clone(),
        caller: caller.clone(),
        queued_run: place.queued_run.clone(),
        queue_cancel_frames: place.queue_cancel_frames.clone(),
        image_inliner: place.inline_images_for(&app.gateway, &caller.user).map(ImageInliner::new),
        is_ended: false,
        viewer: stream_start::open_viewer(&app.gateway, &caller.user, place),
        preamble: Some(if manners.sends_retry { sse_preamble() } else { sse::keep_alive_comment() }),
        terminator: Some(manners.terminator).filter(|farewell| !farewell.is_empty()),
        tick: Box::pin(tokio::time::sleep(Duration::ZERO)),
        last_sent: Instant::now(),
        _permit: slot,
    });
    let mut response = sse_head();
    *response.body_mut() = Body::from_stream(stream::unfold(Some(stream), |stream| async {
        let mut stream = stream?;
        match stream.next().await {
            Ok(Some(bytes)) => Some((Ok(bytes), Some(stream))),
            Ok(None) => None,
            Err(cut) => Some((Err(cut), None)),
        }
    }));
    response
}

/// The first bytes: proxies and clients that wait for one have it, and `retry` is known before anything can break.
fn sse_preamble() -> Bytes {
    let spread = RETRY_MS.end - RETRY_MS.start;
    let jitter = getrandom::u32().map_or(0, |random| u64::from(random) % spread);
    let mut out = BytesMut::from(&sse::keep_alive_comment()[..]);
    sse::write_retry(&mut out, RETRY_MS.start + jitter);
    out.freeze()
}

/// Why a stream ended before its own end.
#[derive(Debug, thiserror::Error)]
enum StreamError {
    #[error("the thread is gone, or the server stops")]
    Interrupted,
    #[error("the key or the share was revoked")]
    Revoked,
    #[error(transparent)]
    Store(#[from] model::ports::StoreError),
    #[error(transparent)]
    Image(#[from] InlineImageError),
}

struct SseStream {
    app: App,
    caller: Caller,
    viewer: Viewer,
    /// The run that has not begun.
    queued_run: Option<TaskId>,
    /// What is said when it never begins.
    queue_cancel_frames: Option<Bytes>,
    /// Who puts pictures into the frames, where clients want them.
    image_inliner: Option<ImageInliner>,
    is_ended: bool,
    preamble: Option<Bytes>,
    terminator: Option<&'static [u8]>,
    tick: Pin<Box<Sleep>>,
    /// When something was last sent.
    last_sent: Instant,
    _permit: StreamPermit,
}

impl SseStream {
    async fn next(&mut self) -> Result<Option<Bytes>, StreamError> {
        if let Some(greeting) = self.preamble.take() {
            self.schedule_tick();
            return Ok(Some(greeting));
        }
        if self.is_ended {
            return Ok(None);
        }
        loop {
            if !self.caller.is_still_allowed() {
                return Err(StreamError::Revoked);
            }
            if let Some(inline) = &mut self.image_inliner
                && let Some(bytes) = inline.next().await?
            {
                self.last_sent = Instant::now();
                return Ok(Some(bytes));
            }
            let Self { viewer, tick, .. } = self;
            tokio::select! {
                biased;
                bytes = viewer.next() => {
                    let bytes = bytes?;
                    self.last_sent = Instant::now();
                    self.queued_run = None;
                    let cut = bytes.is_none() && self.viewer.is_interrupted();
                    return match (bytes, &mut self.image_inliner) {
                        _ if cut => Err(StreamError::Interrupted),
                        (Some(bytes), Some(inline)) => Ok(Some(inline.push_frames(bytes).await?)),
                        (Some(bytes), None) => Ok(Some(bytes)),
                        (None, _) => Ok(self.terminator.take().map(Bytes::from_static)),
                    };
                }
                () = tick.as_mut() => {}
            }
            if !self.caller.credential.is_valid() {
                return Err(StreamError::Revoked);
            }
            if stream_start::was_cancelled_in_queue(&self.app.gateway, &self.caller.user, self.queued_run.as_ref())
                .await?
            {
                self.is_ended = true;
                return Ok(self.take_queue_cancel_frames());
            }
            let idle = self.last_sent.elapsed() >= self.app.limits.heartbeat_interval;
            if idle {
                self.last_sent = Instant::now();
            }
            self.schedule_tick();
            if idle {
                return Ok(Some(sse::keep_alive_comment()));
            }
        }
    }

    /// The run never began: what there is to say of that.
    fn take_queue_cancel_frames(&mut self) -> Option<Bytes> {
        let mut out = BytesMut::from(&self.queue_cancel_frames.take()?[..]);
        out.extend_from_slice(self.terminator.take().unwrap_or_default());
        Some(out.freeze())
    }

    /// Sets the alarm: when the stream will have been silent for too long, or, while it waits for its run, soon.
    fn schedule_tick(&mut self) {
        let silent = self.last_sent + self.app.limits.heartbeat_interval;
        let look = if self.queued_run.is_some() {
            silent.min(Instant::now() + stream_start::QUEUE_POLL_INTERVAL)
        } else {
            silent
        };
        let look = self.caller.recheck_interval().map_or(look, |every| look.min(Instant::now() + every));
        self.tick.as_mut().reset(look);
    }
}
