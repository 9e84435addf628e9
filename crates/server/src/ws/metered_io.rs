//! What comes in over a socket, counted, so that few messages at a time are large.
//!
//! The library hands over whole messages, and holds what has come of one until then. So a message that becomes large waits
//! here for room, in the buffers of the system and the sender; and one that has room may not take for ever.

use crate::config::HttpLimits;
use crate::json_body::{BodyPermit, LARGE_BODY_BYTES, LargeBodySemaphore};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// The head of a ping or pong from a client.
const CONTROL_HEAD_BYTES: usize = 6;

/// A connection that counts.
pub(crate) struct MeteredIo {
    io: TokioIo<Upgraded>,
    large_bodies: LargeBodySemaphore,
    /// How long a large message may take from where it is one.
    message_timeout: Duration,
    /// What has come since the last whole message.
    message_bytes: usize,
    acquiring: Option<Pin<Box<dyn Future<Output = Option<BodyPermit>> + Send>>>,
    permit: Option<(BodyPermit, Instant)>,
}

impl MeteredIo {
    pub(crate) fn new(io: TokioIo<Upgraded>, limits: &HttpLimits) -> Self {
        let (bodies, most) = (limits.large_bodies.clone(), limits.body_read_timeout);
        Self { io, large_bodies: bodies, message_timeout: most, message_bytes: 0, acquiring: None, permit: None }
    }

    /// A whole message has come: the room that it took, if it is large.
    pub(crate) fn end_message(&mut self) -> Option<BodyPermit> {
        self.message_bytes = 0;
        self.permit.take().map(|(room, _)| room)
    }

    /// Something else has come, perhaps in the middle of a message.
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
        let entering = self.acquiring.get_or_insert_with(|| Box::pin(self.large_bodies.clone().acquire()));
        let room = ready!(entering.as_mut().poll(cx));
        self.acquiring = None;
        self.permit = room.map(|room| (room, Instant::now()));
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for MeteredIo {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_permit(cx))?;
        let before = into.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, into))?;
        self.message_bytes += into.filled().len() - before;
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
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, pieces)
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
