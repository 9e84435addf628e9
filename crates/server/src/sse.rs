//! A viewer as the body of a response.
//!
//! Each piece that the viewer gives is one frame of the body, shared with everybody who watches the same: nothing is
//! copied, and nothing waits here. A stream that ends before its own end ends with an error, so that the connection
//! breaks and no client takes it for the end.

use crate::app::App;
use crate::auth::Caller;
use crate::files::{Inline, PictureError};
use crate::problem::Problem;
use crate::streams::Slot;
use crate::watch::{self, Place};
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::{Bytes, BytesMut};
use engine::Viewer;
use futures_util::stream;
use model::TaskId;
use sse;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// How long a client waits before it comes back; spread, so that a restart does not bring all of them at once.
const RETRY_MS: std::ops::Range<u64> = 1_000..3_000;

/// The response's head, without a body.
pub(crate) fn head() -> Response {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-store, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// What a protocol's clients take beside their frames.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Manners {
    /// They know `retry`. Others take any field for an event.
    retry: bool,
    /// What they are told when all has been said.
    farewell: &'static [u8],
}

impl Manners {
    /// For clients that follow the standard.
    pub(crate) const STANDARD: Self = Self { retry: true, farewell: b"" };
    /// For clients of OpenAI's protocols.
    pub(crate) const OPENAI: Self = Self { retry: false, farewell: b"data: [DONE]\n\n" };
    /// For clients that know nothing beside their frames.
    pub(crate) const PLAIN: Self = Self { retry: false, farewell: b"" };
}

/// Room for one more stream, or why there is none. Whoever begins something only to stream it takes its room first: one who
/// is refused will ask again, and must not have left a run behind.
pub(crate) fn room(app: &App, caller: &Caller) -> Result<Slot, Problem> {
    app.streams.enter(&caller.user).ok_or_else(|| {
        let detail = format!("{} streams are open already: close some", app.limits.streams_per_user_max);
        let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_streams", detail);
        problem.header(header::RETRY_AFTER, "1")
    })
}

/// Streams what can be seen from a place on.
pub(crate) fn response(app: &App, caller: &Caller, place: Place) -> Result<Response, Problem> {
    response_with(app, caller, place, Manners::STANDARD)
}

/// The same, for clients with manners of their own.
pub(crate) fn response_with(app: &App, caller: &Caller, place: Place, manners: Manners) -> Result<Response, Problem> {
    if place.is_at_the_end(app, &caller.user) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Ok(response_in(app, caller, place, manners, room(app, caller)?))
}

/// The same, for whoever has its room already.
pub(crate) fn response_in(app: &App, caller: &Caller, place: Place, manners: Manners, slot: Slot) -> Response {
    // On the heap: it is handed on with every piece.
    let stream = Box::new(Stream {
        app: app.clone(),
        caller: caller.clone(),
        queued: place.queued.clone(),
        parting: place.parting.clone(),
        inline: place.pictures(app, &caller.user).map(Inline::new),
        over: false,
        viewer: watch::open(app, &caller.user, place),
        greeting: Some(if manners.retry { greeting() } else { sse::comment() }),
        farewell: Some(manners.farewell).filter(|farewell| !farewell.is_empty()),
        tick: Box::pin(tokio::time::sleep(Duration::ZERO)),
        last: Instant::now(),
        _slot: slot,
    });
    let mut response = head();
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
fn greeting() -> Bytes {
    let spread = RETRY_MS.end - RETRY_MS.start;
    let jitter = getrandom::u32().map_or(0, |random| u64::from(random) % spread);
    let mut out = BytesMut::from(&sse::comment()[..]);
    sse::retry(&mut out, RETRY_MS.start + jitter);
    out.freeze()
}

/// Why a stream ended before its own end.
#[derive(Debug, thiserror::Error)]
enum Cut {
    #[error("the thread is gone, or the server stops")]
    BrokenOff,
    #[error("the key or the share was revoked")]
    Revoked,
    #[error(transparent)]
    Store(#[from] model::ports::StoreError),
    #[error(transparent)]
    Picture(#[from] PictureError),
}

struct Stream {
    app: App,
    caller: Caller,
    viewer: Viewer,
    /// The run that has not begun.
    queued: Option<TaskId>,
    /// What is said when it never begins.
    parting: Option<Bytes>,
    /// Who puts pictures into the frames, where clients want them.
    inline: Option<Inline>,
    over: bool,
    greeting: Option<Bytes>,
    farewell: Option<&'static [u8]>,
    tick: Pin<Box<Sleep>>,
    /// When something was last sent.
    last: Instant,
    _slot: Slot,
}

impl Stream {
    async fn next(&mut self) -> Result<Option<Bytes>, Cut> {
        if let Some(greeting) = self.greeting.take() {
            self.wind_up();
            return Ok(Some(greeting));
        }
        if self.over {
            return Ok(None);
        }
        loop {
            if !self.caller.may_go_on() {
                return Err(Cut::Revoked);
            }
            if let Some(inline) = &mut self.inline
                && let Some(bytes) = inline.next().await?
            {
                self.last = Instant::now();
                return Ok(Some(bytes));
            }
            let Self { viewer, tick, .. } = self;
            tokio::select! {
                biased;
                bytes = viewer.next() => {
                    let bytes = bytes?;
                    self.last = Instant::now();
                    self.queued = None;
                    let cut = bytes.is_none() && self.viewer.is_interrupted();
                    return match (bytes, &mut self.inline) {
                        _ if cut => Err(Cut::BrokenOff),
                        (Some(bytes), Some(inline)) => Ok(Some(inline.frames(bytes).await?)),
                        (Some(bytes), None) => Ok(Some(bytes)),
                        (None, _) => Ok(self.farewell.take().map(Bytes::from_static)),
                    };
                }
                () = tick.as_mut() => {}
            }
            if !self.caller.pass.is_good() {
                return Err(Cut::Revoked);
            }
            if watch::was_given_up(&self.app, &self.caller.user, self.queued.as_ref()).await? {
                self.over = true;
                return Ok(self.part());
            }
            let idle = self.last.elapsed() >= self.app.limits.heartbeat;
            if idle {
                self.last = Instant::now();
            }
            self.wind_up();
            if idle {
                return Ok(Some(sse::comment()));
            }
        }
    }

    /// The run never began: what there is to say of that.
    fn part(&mut self) -> Option<Bytes> {
        let mut out = BytesMut::from(&self.parting.take()?[..]);
        out.extend_from_slice(self.farewell.take().unwrap_or_default());
        Some(out.freeze())
    }

    /// Sets the alarm: when the stream will have been silent for too long, or, while it waits for its run, soon.
    fn wind_up(&mut self) {
        let silent = self.last + self.app.limits.heartbeat;
        let look = if self.queued.is_some() { silent.min(Instant::now() + watch::QUEUED_LOOK) } else { silent };
        let look = self.caller.looks_every().map_or(look, |every| look.min(Instant::now() + every));
        self.tick.as_mut().reset(look);
    }
}
