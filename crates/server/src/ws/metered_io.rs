//! Counts the bytes of incoming WebSocket messages, to bound how many are large at a time.
//!
//! The library buffers a message until it is complete. So the connection is not read while a message that becomes large
//! waits for a permit, and a message with a permit has to arrive in time.

use crate::body_permits::{BodyPermit, LARGE_BODY_BYTES, LargeBodySemaphore};
use crate::config::HttpLimits;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// Header of a ping or pong from a client.
const CONTROL_HEAD_BYTES: usize = 6;

pub(crate) struct MeteredIo {
    io: TokioIo<Upgraded>,
    large_bodies: LargeBodySemaphore,
    /// Starts when the message gets its permit.
    message_timeout: Duration,
    /// Received since the last complete message.
    message_bytes: usize,
    acquiring: Option<Pin<Box<dyn Future<Output = Option<BodyPermit>> + Send>>>,
    permit: Option<(BodyPermit, Instant)>,
}

impl MeteredIo {
    pub(crate) fn new(io: TokioIo<Upgraded>, limits: &HttpLimits) -> Self {
        let (large_bodies, message_timeout) = (limits.large_bodies.clone(), limits.body_read_timeout);
        Self { io, large_bodies, message_timeout, message_bytes: 0, acquiring: None, permit: None }
    }

    /// Call this when a message is complete. Returns its permit if it is large.
    pub(crate) fn end_message(&mut self) -> Option<BodyPermit> {
        self.message_bytes = 0;
        self.permit.take().map(|(permit, _)| permit)
    }

    /// A control frame may arrive in the middle of a message and does not count.
    pub(crate) const fn discount_control_frame(&mut self, payload: usize) {
        self.message_bytes = self.message_bytes.saturating_sub(CONTROL_HEAD_BYTES + payload);
    }

    fn poll_permit(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.message_bytes <= LARGE_BODY_BYTES {
            return Poll::Ready(Ok(()));
        }
        if let Some((_, since)) = &self.permit {
            let is_late = since.elapsed() > self.message_timeout;
            return Poll::Ready(if is_late { Err(ErrorKind::TimedOut.into()) } else { Ok(()) });
        }
        let acquiring = self.acquiring.get_or_insert_with(|| Box::pin(self.large_bodies.clone().acquire()));
        let permit = ready!(acquiring.as_mut().poll(cx));
        self.acquiring = None;
        self.permit = permit.map(|permit| (permit, Instant::now()));
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for MeteredIo {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_permit(cx))?;
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        self.message_bytes += buf.filled().len() - before;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for MeteredIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
