//! What comes in over a socket, counted, so that few messages at a time are large.
//!
//! The library hands over whole messages, and holds what has come of one until then. So a message that becomes large waits
//! here for room, in the buffers of the system and the sender; and one that has room may not take for ever.

use crate::body::{LARGE_BYTES, LargeBodies, Room};
use crate::config::HttpLimits;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// The head of a ping or pong from a client.
const CONTROL_BYTES: usize = 6;

/// A connection that counts.
pub(crate) struct Meter {
    io: TokioIo<Upgraded>,
    bodies: LargeBodies,
    /// How long a large message may take from where it is one.
    most: Duration,
    /// What has come since the last whole message.
    bytes: usize,
    entering: Option<Pin<Box<dyn Future<Output = Option<Room>> + Send>>>,
    room: Option<(Room, Instant)>,
}

impl Meter {
    pub(crate) fn new(io: TokioIo<Upgraded>, limits: &HttpLimits) -> Self {
        let (bodies, most) = (limits.large_bodies.clone(), limits.body_read);
        Self { io, bodies, most, bytes: 0, entering: None, room: None }
    }

    /// A whole message has come: the room that it took, if it is large.
    pub(crate) fn message(&mut self) -> Option<Room> {
        self.bytes = 0;
        self.room.take().map(|(room, _)| room)
    }

    /// Something else has come, perhaps in the middle of a message.
    pub(crate) const fn control(&mut self, payload: usize) {
        self.bytes = self.bytes.saturating_sub(CONTROL_BYTES + payload);
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.bytes <= LARGE_BYTES {
            return Poll::Ready(Ok(()));
        }
        if let Some((_, since)) = &self.room {
            let is_late = since.elapsed() > self.most;
            return Poll::Ready(if is_late { Err(ErrorKind::TimedOut.into()) } else { Ok(()) });
        }
        let entering = self.entering.get_or_insert_with(|| Box::pin(self.bodies.clone().wait()));
        let room = ready!(entering.as_mut().poll(cx));
        self.entering = None;
        self.room = room.map(|room| (room, Instant::now()));
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Meter {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_room(cx))?;
        let before = into.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, into))?;
        self.bytes += into.filled().len() - before;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Meter {
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
