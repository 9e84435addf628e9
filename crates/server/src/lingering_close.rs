//! Lingering close, for connections with an incompletely read request.
//!
//! An error response is often sent before the request has arrived completely. If the connection were closed then, the
//! kernel would answer the remaining bytes with a reset, and the client could lose the response that it has not read
//! yet. So the server shuts down its write side and discards what arrives until the client closes, within bounds.
//! Connections that end otherwise, or at shutdown, do not linger.

use crate::shutdown::Shutdown;
use axum::body::Body;
use axum::http::{HeaderMap, header};
use futures_core::future::BoxFuture;
use http_body::{Frame, SizeHint};
use hyper::body::{Body as _, Bytes, Incoming};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of bytes to discard. A client that reads while it sends stops much earlier.
const LINGER_BYTES_MAX: usize = 64 * 1024 * 1024;
const DRAIN_BUFFER_BYTES: usize = 16 * 1024;

/// Whether the last request of a connection has unread bytes. Requests of a connection do not overlap, so one flag is
/// enough for all of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnreadFlag(Arc<AtomicBool>);

impl UnreadFlag {
    /// Wraps the body of the next request.
    pub(crate) fn track_body(&self, body: Incoming) -> Body {
        self.0.store(!body.is_end_stream(), Ordering::SeqCst);
        Body::new(TrackedBody { body, unread: self.clone() })
    }

    /// A response that closes the connection leaves further requests unread.
    pub(crate) fn on_response(&self, headers: &HeaderMap) {
        if headers.get(header::CONNECTION).is_some_and(|value| value == "close") {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    fn clear(&self) {
        self.0.store(false, Ordering::SeqCst);
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// Clears the flag at its end.
struct TrackedBody {
    body: Incoming,
    unread: UnreadFlag,
}

impl http_body::Body for TrackedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        if frame.is_none() || this.body.is_end_stream() {
            this.unread.clear();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Lingers at shutdown if the last request has unread bytes.
pub(crate) struct LingeringStream<S> {
    stream: S,
    unread: UnreadFlag,
    shutdown: Shutdown,
    drain: Option<Drain>,
}

impl<S> LingeringStream<S> {
    pub(crate) const fn new(stream: S, unread: UnreadFlag, shutdown: Shutdown) -> Self {
        Self { stream, unread, shutdown, drain: None }
    }
}

struct Drain {
    deadline: BoxFuture<'static, ()>,
    bytes_left: usize,
}

impl Drain {
    fn new(mut shutdown: Shutdown) -> Self {
        let deadline = async move {
            tokio::select! {
                () = tokio::time::sleep(LINGER_TIMEOUT) => {}
                () = shutdown.started() => {}
            }
        };
        Self { deadline: Box::pin(deadline), bytes_left: LINGER_BYTES_MAX }
    }

    /// Discards incoming bytes. Ready when the client has closed or a bound is reached.
    fn poll(&mut self, stream: &mut (impl AsyncRead + Unpin), cx: &mut Context<'_>) -> Poll<()> {
        if self.deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let mut buffer = [0; DRAIN_BUFFER_BYTES];
        while self.bytes_left > 0 {
            let mut buffer = ReadBuf::new(&mut buffer);
            let read = ready!(Pin::new(&mut *stream).poll_read(cx, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                break;
            }
            self.bytes_left = self.bytes_left.saturating_sub(buffer.filled().len());
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LingeringStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for LingeringStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.drain.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
        }
        if !this.unread.get() {
            return Poll::Ready(Ok(()));
        }
        let drain = this.drain.get_or_insert_with(|| Drain::new(this.shutdown.clone()));
        drain.poll(&mut this.stream, cx).map(Ok)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
