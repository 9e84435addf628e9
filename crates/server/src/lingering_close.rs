//! How a connection ends whose request was not read to its end.
//!
//! A refusal often comes before all of what it refuses. Were the connection closed then, the kernel would answer the
//! bytes that still come with a reset, and a reset takes along what the client has not read yet: the refusal. So the
//! server says that it has no more to say, and throws away what comes until the client closes too, within bounds.
//! Connections that end in any other way, or because the server stops, are not waited for.

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
use tokio::sync::watch;

/// How long a client has to notice that it was answered, and to close.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
/// How much is thrown away meanwhile. A client that reads while it sends stops much earlier.
const LINGER_BYTES_MAX: usize = 64 * 1024 * 1024;
const DRAIN_BUFFER_BYTES: usize = 16 * 1024;

/// Whether more may come on a connection than was read of its last request. Requests of a connection do not overlap, so
/// one word is enough for all of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnreadFlag(Arc<AtomicBool>);

impl UnreadFlag {
    /// The body of a request that begins now.
    pub(crate) fn track_body(&self, body: Incoming) -> Body {
        self.set(!body.is_end_stream());
        Body::new(TrackedBody { body, unread: self.clone() })
    }

    /// An answer that ends the connection leaves unread whatever was sent behind its request.
    pub(crate) fn on_response(&self, headers: &HeaderMap) {
        if headers.get(header::CONNECTION).is_some_and(|value| value == "close") {
            self.set(true);
        }
    }

    fn set(&self, unread: bool) {
        self.0.store(unread, Ordering::SeqCst);
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// A body that tells when it was read to its end.
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
            this.unread.set(false);
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

/// A stream that lingers when it is shut down, if more may come.
pub(crate) struct LingeringStream<S> {
    stream: S,
    unread: UnreadFlag,
    shutdown: watch::Receiver<bool>,
    drain: Option<Drain>,
}

impl<S> LingeringStream<S> {
    /// `closing` turning true ends the waiting.
    pub(crate) const fn new(stream: S, unread: UnreadFlag, closing: watch::Receiver<bool>) -> Self {
        Self { stream, unread, shutdown: closing, drain: None }
    }
}

/// What is left of a connection on which everything was said.
struct Drain {
    /// Ready when there was time enough.
    deadline: BoxFuture<'static, ()>,
    bytes_left: usize,
}

impl Drain {
    fn new(mut closing: watch::Receiver<bool>) -> Self {
        let over = async move {
            tokio::select! {
                () = tokio::time::sleep(LINGER_TIMEOUT) => {}
                // A sender that is gone is a server that is gone.
                _ = closing.wait_for(|closing| *closing) => {}
            }
        };
        Self { deadline: Box::pin(over), bytes_left: LINGER_BYTES_MAX }
    }

    /// Throws away what comes. Ready when the other side has closed, or has had its chance.
    fn poll(&mut self, stream: &mut (impl AsyncRead + Unpin), cx: &mut Context<'_>) -> Poll<()> {
        if self.deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let mut piece = [0; DRAIN_BUFFER_BYTES];
        while self.bytes_left > 0 {
            let mut piece = ReadBuf::new(&mut piece);
            let read = ready!(Pin::new(&mut *stream).poll_read(cx, &mut piece));
            if read.is_err() || piece.filled().is_empty() {
                break;
            }
            self.bytes_left = self.bytes_left.saturating_sub(piece.filled().len());
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
        let leaving = this.drain.get_or_insert_with(|| Drain::new(this.shutdown.clone()));
        leaving.poll(&mut this.stream, cx).map(Ok)
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
