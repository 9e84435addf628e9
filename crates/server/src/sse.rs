//! Event streams: a viewer as the body of a response.
//!
//! Each chunk of the viewer is one frame of the body and is shared by all viewers of the same stream: nothing is copied
//! or queued. A stream that is interrupted ends with an error, so that the connection breaks and the client does not
//! take it for the end.

use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::{Bytes, BytesMut};
use engine::Viewer;
use futures_core::future::BoxFuture;
use gateway::attachments::inline_images::{ImageInliner, InlineImageError};
use gateway::queue_cancel::QueueCancelFrames;
use gateway::storage_alarm::StorageAlarm;
use gateway::stream_limiter::StreamPermit;
use gateway::stream_start::{self, StreamStart, StreamUntil};
use http_body::Frame;
use model::error::ErrorCode;
use model::ports::{FrameBytes, RunRow, StoreError};
use std::collections::VecDeque;
use std::future::pending;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// Reconnection time, spread so that clients do not all reconnect at once after a restart.
const RETRY_MS: std::ops::Range<u64> = 1_000..3_000;

pub(crate) fn sse_head() -> Response {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-store, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Parts of a stream other than its frames.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SseStyle {
    /// Some clients treat any field as an event, including `retry`.
    sends_retry: bool,
    /// Follows the last frame.
    terminator: &'static [u8],
}

impl SseStyle {
    /// For clients that follow the standard.
    pub(crate) const STANDARD: Self = Self { sends_retry: true, terminator: b"" };
    /// For clients of OpenAI's protocols.
    pub(crate) const OPENAI: Self = Self { sends_retry: false, terminator: b"data: [DONE]\n\n" };
    /// For clients that accept frames only.
    pub(crate) const PLAIN: Self = Self { sends_retry: false, terminator: b"" };
}

/// A request that starts a run in order to stream it acquires the permit first: if it is rejected, the client tries
/// again, and must not have started a run.
pub(crate) fn acquire_stream_permit(app: &App, caller: &Caller) -> Result<StreamPermit, Problem> {
    app.stream_limiter.try_acquire(&caller.user).ok_or_else(|| {
        let detail = format!("{} streams are open, which is the maximum: close some", app.limits.streams_per_user_max);
        let problem = Problem::new(ErrorCode::TooManyStreams, detail);
        problem.with_header(header::RETRY_AFTER, "1")
    })
}

pub(crate) fn sse_response(app: &App, caller: &Caller, place: StreamStart) -> Result<Response, Problem> {
    sse_response_with_style(app, caller, place, SseStyle::STANDARD)
}

pub(crate) fn sse_response_with_style(
    app: &App,
    caller: &Caller,
    place: StreamStart,
    style: SseStyle,
) -> Result<Response, Problem> {
    if place.is_past_frozen_end(&app.gateway, &caller.user) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Ok(sse_response_with_permit(app, caller, place, style, acquire_stream_permit(app, caller)?))
}

pub(crate) fn sse_response_with_permit(
    app: &App,
    caller: &Caller,
    mut place: StreamStart,
    style: SseStyle,
    permit: StreamPermit,
) -> Response {
    // Boxed because it is moved with every chunk.
    let stream = Box::new(SseStream {
        app: app.clone(),
        caller: caller.clone(),
        queued: QueuedRun::watch(app, caller, &mut place),
        storage_alarm: StorageAlarm::new(&app.gateway),
        image_inliner: place.inline_images_for(&app.gateway, &caller.user).map(ImageInliner::new),
        is_ended: false,
        until: place.until,
        inserted: place.inserted.take().map(Box::new),
        preamble: Some(first_bytes(style, place.prelude.take())),
        viewer: stream_start::open_viewer(&app.gateway, &caller.user, place),
        terminator: Some(style.terminator).filter(|terminator| !terminator.is_empty()),
        tick: Box::pin(tokio::time::sleep(Duration::ZERO)),
        last_sent: Instant::now(),
        _permit: permit,
    });
    let mut response = sse_head();
    *response.body_mut() = Body::new(SseBody::Between(stream));
    response
}

/// A stream that begins with a prelude. The viewer of a frozen share who has all of its records gets the prelude alone.
pub(crate) fn sse_response_with_prelude(
    app: &App,
    caller: &Caller,
    mut place: StreamStart,
    style: SseStyle,
    permit: StreamPermit,
) -> Response {
    if !place.is_past_frozen_end(&app.gateway, &caller.user) {
        return sse_response_with_permit(app, caller, place, style, permit);
    }
    match place.prelude.take() {
        Some(prelude) => sse_response_with_frames(prelude, style, permit),
        None => StatusCode::NO_CONTENT.into_response(),
    }
}

/// A stream that ends with these frames. They have no ids. Frames take memory until the client has read them, so they need a
/// permit like any other stream.
pub(crate) fn sse_response_with_frames(frames: Bytes, style: SseStyle, permit: StreamPermit) -> Response {
    let pieces = [first_bytes(style, None), frames, Bytes::from_static(style.terminator)];
    let mut response = sse_head();
    *response.body_mut() = Body::new(SseBody::Frames(Box::new((pieces.into(), permit))));
    response
}

/// A stream without frames.
pub(crate) fn empty_sse_response(style: SseStyle) -> Response {
    let mut response = sse_head();
    *response.body_mut() = Body::from(first_bytes(style, None));
    response
}

/// A stream as the body of a response. While it is live, which is nearly always, it is polled as it is; what has to wait for
/// the store is a future.
enum SseBody {
    Between(Box<SseStream>),
    Waiting(BoxFuture<'static, (Box<SseStream>, NextBytes)>),
    /// Frames that are all there are. Boxed, as it is rare.
    Frames(Box<(VecDeque<Bytes>, StreamPermit)>),
    Ended,
}

type NextBytes = Result<Option<Bytes>, StreamError>;

impl http_body::Body for SseBody {
    type Data = Bytes;
    type Error = StreamError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, StreamError>>> {
        let this = self.get_mut();
        loop {
            let next = match std::mem::replace(this, Self::Ended) {
                Self::Ended => return Poll::Ready(None),
                Self::Frames(mut frames) => {
                    let Some(piece) = frames.0.pop_front() else { return Poll::Ready(None) };
                    *this = Self::Frames(frames);
                    return Poll::Ready(Some(Ok(Frame::data(piece))));
                }
                Self::Between(mut stream) => match stream.poll_live(cx) {
                    LivePoll::Bytes(next) => (stream, next),
                    LivePoll::Pending => {
                        *this = Self::Between(stream);
                        return Poll::Pending;
                    }
                    LivePoll::NotLive => {
                        *this = Self::Waiting(Box::pin(async move {
                            let next = stream.next().await;
                            (stream, next)
                        }));
                        continue;
                    }
                },
                Self::Waiting(mut waiting) => match waiting.as_mut().poll(cx) {
                    Poll::Ready(next) => next,
                    Poll::Pending => {
                        *this = Self::Waiting(waiting);
                        return Poll::Pending;
                    }
                },
            };
            return Poll::Ready(match next {
                (stream, Ok(Some(bytes))) => {
                    *this = Self::Between(stream);
                    Some(Ok(Frame::data(bytes)))
                }
                (_, Ok(None)) => None,
                (_, Err(error)) => Some(Err(error)),
            });
        }
    }
}

enum LivePoll {
    Bytes(NextBytes),
    Pending,
    /// [`SseStream::next`] has to be awaited.
    NotLive,
}

fn first_bytes(style: SseStyle, prelude: Option<Bytes>) -> Bytes {
    let preamble = if style.sends_retry { sse_preamble() } else { sse::keep_alive_comment() };
    prelude.map_or(preamble.clone(), |prelude| [preamble, prelude].concat().into())
}

/// The first bytes. Some proxies and clients wait for them, and `retry` is known before the connection can break.
fn sse_preamble() -> Bytes {
    let spread = RETRY_MS.end - RETRY_MS.start;
    let jitter = getrandom::u32().map_or(0, |random| u64::from(random) % spread);
    let mut out = BytesMut::from(&sse::keep_alive_comment()[..]);
    sse::write_retry(&mut out, RETRY_MS.start + jitter);
    out.freeze()
}

#[derive(Debug, thiserror::Error)]
enum StreamError {
    #[error("the thread was deleted, or the server is stopping")]
    Interrupted,
    #[error("the key or the share was revoked")]
    Revoked,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Image(#[from] InlineImageError),
}

/// A run that was queued when its stream began.
struct QueuedRun {
    cancelled: BoxFuture<'static, Result<Option<RunRow>, StoreError>>,
    /// Most runs start at once, and then nobody looks at the queue.
    is_watched: bool,
    /// Sent if the run is cancelled in the queue.
    cancel_frames: Option<QueueCancelFrames>,
}

impl QueuedRun {
    fn watch(app: &App, caller: &Caller, place: &mut StreamStart) -> Option<Box<Self>> {
        place.queued_run.as_ref()?;
        let cancelled = Box::pin(place.cancelled_in_queue(&app.gateway, &caller.user));
        Some(Box::new(Self { cancelled, is_watched: false, cancel_frames: place.queue_cancel_frames.take() }))
    }
}

struct SseStream {
    app: App,
    caller: Caller,
    viewer: Viewer,
    /// Until the run has started.
    queued: Option<Box<QueuedRun>>,
    storage_alarm: StorageAlarm,
    image_inliner: Option<ImageInliner>,
    is_ended: bool,
    until: StreamUntil,
    /// Sent after the first frame of the log.
    inserted: Option<Box<Bytes>>,
    preamble: Option<Bytes>,
    terminator: Option<&'static [u8]>,
    tick: Pin<Box<Sleep>>,
    last_sent: Instant,
    _permit: StreamPermit,
}

impl SseStream {
    /// What [`Self::next`] returns, as long as nothing has to be awaited but frames and the time.
    fn poll_live(&mut self, cx: &mut Context<'_>) -> LivePoll {
        let is_usual = self.preamble.is_none() && !self.is_ended && self.queued.is_none();
        let has_chunks = self.image_inliner.as_ref().is_some_and(ImageInliner::has_chunks);
        if !is_usual || has_chunks || !self.viewer.is_live() || !self.caller.is_still_allowed() {
            return LivePoll::NotLive;
        }
        match self.viewer.poll_live(cx) {
            Poll::Ready(bytes) if bytes.is_empty() => return LivePoll::NotLive,
            Poll::Ready(bytes) => {
                self.last_sent = Instant::now();
                let bytes = self.edit_frames(bytes);
                return match &mut self.image_inliner {
                    None => LivePoll::Bytes(Ok(Some(bytes))),
                    Some(inliner) => match inliner.split_frames(bytes) {
                        Some(bytes) => LivePoll::Bytes(Ok(Some(bytes))),
                        None => LivePoll::NotLive,
                    },
                };
            }
            Poll::Pending => {}
        }
        if let Poll::Ready(notice) = self.storage_alarm.poll_notice(&self.app.gateway, cx) {
            return LivePoll::Bytes(Ok(Some(self.send_notice(notice))));
        }
        while self.tick.as_mut().poll(cx).is_ready() {
            match self.on_tick() {
                Ok(None) => {}
                sent => return LivePoll::Bytes(sent),
            }
        }
        LivePoll::Pending
    }

    fn send_notice(&mut self, notice: &str) -> Bytes {
        self.last_sent = Instant::now();
        self.schedule_tick();
        sse_comment(notice)
    }

    /// Checks the credential and schedules the next tick. Returns a heartbeat if one is due.
    fn on_tick(&mut self) -> NextBytes {
        if !self.caller.credential.is_valid() {
            return Err(StreamError::Revoked);
        }
        let is_idle = self.last_sent.elapsed() >= self.app.limits.heartbeat_interval;
        if is_idle {
            self.last_sent = Instant::now();
        }
        self.schedule_tick();
        let heartbeat = || self.storage_alarm.heartbeat().map_or_else(sse::keep_alive_comment, sse_comment);
        Ok(is_idle.then(heartbeat))
    }

    async fn next(&mut self) -> NextBytes {
        if let Some(preamble) = self.preamble.take() {
            self.schedule_tick();
            return Ok(Some(preamble));
        }
        loop {
            if !self.caller.is_still_allowed() {
                return Err(StreamError::Revoked);
            }
            if let Some(inliner) = &mut self.image_inliner
                && let Some(bytes) = inliner.next().await?
            {
                self.last_sent = Instant::now();
                return Ok(Some(bytes));
            }
            if self.is_ended {
                return Ok(None);
            }
            let takes_pieces = self.until == StreamUntil::End && self.inserted.is_none();
            let Self { app, viewer, tick, queued, storage_alarm, .. } = self;
            let watched = queued.as_mut().filter(|queued| queued.is_watched);
            tokio::select! {
                biased;
                bytes = next_bytes(viewer, takes_pieces) => {
                    let bytes = match bytes? {
                        Some(FrameBytes::Text(text)) => return Ok(Some(text)),
                        Some(FrameBytes::Frames(frames)) => Some(frames),
                        None => None,
                    };
                    self.last_sent = Instant::now();
                    self.queued = None;
                    let is_interrupted = bytes.is_none() && self.viewer.is_interrupted();
                    let bytes = bytes.map(|bytes| self.edit_frames(bytes));
                    return match (bytes, &mut self.image_inliner) {
                        _ if is_interrupted => Err(StreamError::Interrupted),
                        (Some(bytes), Some(inliner)) => Ok(Some(inliner.push_frames(bytes).await?)),
                        (Some(bytes), None) => Ok(Some(bytes)),
                        (None, _) => Ok(self.terminator.take().map(Bytes::from_static)),
                    };
                }
                cancelled = queue_cancel(watched) => {
                    let row = cancelled?;
                    self.is_ended = true;
                    return self.take_queue_cancel_frames(row.as_ref()).ok_or(StreamError::Interrupted).map(Some);
                }
                notice = storage_alarm.next_notice(&app.gateway) => return Ok(Some(self.send_notice(notice))),
                () = tick.as_mut() => queued.iter_mut().for_each(|queued| queued.is_watched = true),
            }
            if let Some(heartbeat) = self.on_tick()? {
                return Ok(Some(heartbeat));
            }
        }
    }

    /// Inserts the frames that follow the first one, and removes those after a pause that ends the stream.
    fn edit_frames(&mut self, mut frames: Bytes) -> Bytes {
        if let Some(inserted) = self.inserted.take_if(|_| !frames.is_empty()) {
            frames = stream_start::insert_after_first_frame(&frames, &inserted);
        }
        if let Some(end) = self.until.find_end(&frames) {
            frames.truncate(end);
            self.is_ended = true;
        }
        frames
    }

    fn take_queue_cancel_frames(&mut self, row: Option<&RunRow>) -> Option<Bytes> {
        let mut out = BytesMut::from(&self.queued.take()?.cancel_frames?(row)?[..]);
        out.extend_from_slice(self.terminator.take().unwrap_or_default());
        Some(out.freeze())
    }

    /// The next tick is the heartbeat, or earlier while the run is queued or the credential has to be checked.
    fn schedule_tick(&mut self) {
        let heartbeat = self.last_sent + self.app.limits.heartbeat_interval;
        let tick = if self.queued.as_ref().is_some_and(|queued| !queued.is_watched) {
            heartbeat.min(Instant::now() + stream_start::QUEUE_GRACE)
        } else {
            heartbeat
        };
        let tick = self.caller.recheck_interval().map_or(tick, |interval| tick.min(Instant::now() + interval));
        self.tick.as_mut().reset(tick);
    }
}

fn sse_comment(text: &str) -> Bytes {
    let mut out = BytesMut::new();
    sse::write_comment(&mut out, text);
    out.freeze()
}

/// The next frames, or a piece of them if none is edited. The pieces of a frame are all there, so nothing comes between them.
async fn next_bytes(viewer: &mut Viewer, takes_pieces: bool) -> Result<Option<FrameBytes>, StoreError> {
    if takes_pieces { viewer.next_piece().await } else { Ok(viewer.next().await?.map(FrameBytes::Frames)) }
}

async fn queue_cancel(watched: Option<&mut Box<QueuedRun>>) -> Result<Option<RunRow>, StoreError> {
    match watched {
        Some(queued) => queued.cancelled.as_mut().await,
        None => pending().await,
    }
}
