//! Counts the bytes of incoming messages of a socket.
//!
//! The library buffers a message until it is complete. So each message reserves memory as it arrives; while there is none,
//! or no place for a large one, the connection is not read. A message has to be complete in time, counted from its first
//! byte: also one that waits, and one of which nothing more arrives.

use crate::body_budget::{BodyBudget, BodyBudgetError, BodyReservation, LARGE_BODY_BYTES, SMALL_BODY_BYTES};
use futures_core::future::BoxFuture;
use heavy_work::UserPermit;
use model::UserId;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::futures::OwnedNotified;
use tokio::time::Sleep;

/// Header of a ping or pong from a client.
const CONTROL_HEAD_BYTES: usize = 6;
/// The most that is read at once, and what a connection may have before it reserves memory.
pub const READ_BUFFER_BYTES: usize = 4 * 1024;

pub struct MeteredIo<T> {
    io: T,
    bodies: Arc<BodyBudget>,
    user: UserId,
    message_timeout: Duration,
    /// Received since the last complete message.
    message_bytes: usize,
    /// The memory of the message that arrives.
    memory: BodyReservation,
    /// When that message has to be complete.
    deadline: Option<Pin<Box<Sleep>>>,
    waiting: Option<Waiting>,
}

/// What a message needs before more of it is read.
enum Waiting {
    Place(BoxFuture<'static, Option<UserPermit>>),
    Memory(Pin<Box<OwnedNotified>>),
}

impl<T> MeteredIo<T> {
    /// A message has to be complete within `message_timeout`.
    pub fn new(io: T, bodies: &Arc<BodyBudget>, user: &UserId, message_timeout: Duration) -> Self {
        Self {
            io,
            bodies: Arc::clone(bodies),
            user: user.clone(),
            message_timeout,
            message_bytes: 0,
            memory: bodies.reserve(user),
            deadline: None,
            waiting: None,
        }
    }

    /// Call this when a message is complete. Returns the memory that it holds.
    pub fn end_message(&mut self) -> BodyReservation {
        self.message_bytes = 0;
        self.deadline = None;
        std::mem::replace(&mut self.memory, self.bodies.reserve(&self.user))
    }

    /// A control frame may arrive in the middle of a message and does not count.
    pub fn discount_control_frame(&mut self, payload: usize) {
        self.message_bytes = self.message_bytes.saturating_sub(CONTROL_HEAD_BYTES + payload);
        if self.message_bytes == 0 {
            drop(self.end_message());
        }
    }

    /// Fails when the message should have been complete.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.message_bytes == 0 {
            return Ok(());
        }
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.message_timeout)));
        match deadline.as_mut().poll(cx) {
            Poll::Ready(()) => Err(ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(()),
        }
    }

    /// Reserves memory for the next read.
    fn poll_memory(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match &mut self.waiting {
                Some(Waiting::Place(place)) => {
                    if let Some(place) = ready!(place.as_mut().poll(cx)) {
                        self.memory.set_place(place);
                    }
                }
                Some(Waiting::Memory(released)) => ready!(released.as_mut().poll(cx)),
                None => {}
            }
            self.waiting = None;
            let needed = self.message_bytes + READ_BUFFER_BYTES;
            if self.message_bytes == 0 || needed <= self.memory.bytes() {
                return Poll::Ready(());
            }
            if needed > LARGE_BODY_BYTES && !self.memory.has_place() {
                self.waiting = Some(Waiting::Place(Box::pin(self.memory.wait_for_place())));
                continue;
            }
            // Before the attempt, so that nothing is released unnoticed.
            let released = Box::pin(self.bodies.released());
            let step = self.message_bytes.clamp(READ_BUFFER_BYTES, SMALL_BODY_BYTES);
            match self.memory.grow_to(self.message_bytes + step) {
                Ok(()) => return Poll::Ready(()),
                // The step crosses the size of large bodies.
                Err(BodyBudgetError::LargeBodies) => {
                    self.waiting = Some(Waiting::Place(Box::pin(self.memory.wait_for_place())));
                }
                Err(BodyBudgetError::User | BodyBudgetError::All) => self.waiting = Some(Waiting::Memory(released)),
            }
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for MeteredIo<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_deadline(cx)?;
        ready!(self.poll_memory(cx));
        let mut part = buf.take(READ_BUFFER_BYTES);
        let polled = Pin::new(&mut self.io).poll_read(cx, &mut part);
        let count = part.filled().len();
        buf.advance(count);
        ready!(polled)?;
        self.message_bytes += count;
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for MeteredIo<T> {
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
