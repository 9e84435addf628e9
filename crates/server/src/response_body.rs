//! The body of a response as hyper polls it.
//!
//! hyper polls a body after each of its frames and, if it has nothing, once more before the connection waits. What has said
//! that it waits has registered its waker, so until the connection is woken it need not be asked again: that poll costs as
//! much as the one before.

use axum::body::Body;
use bytes::Bytes;
use gateway::connection_slots::RequestInFlight;
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

/// Whether the body of a connection's response waits, as of the last time that the connection was woken. A connection has one
/// task and one response at a time, so nobody else reads or writes it.
#[derive(Clone, Debug, Default)]
pub(crate) struct BodyWaits(Arc<AtomicBool>);

impl BodyWaits {
    /// The connection was woken: something may have changed.
    fn on_wake(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// A connection, which marks each of its wake-ups.
pub(crate) struct WokenConnection<C> {
    pub(crate) connection: C,
    pub(crate) body_waits: BodyWaits,
}

impl<C: Future + Unpin> Future for WokenConnection<C> {
    type Output = C::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<C::Output> {
        self.body_waits.on_wake();
        Pin::new(&mut self.connection).poll(cx)
    }
}

/// The body of a response, which ends its request.
pub(crate) struct ResponseBody {
    body: Body,
    waits: BodyWaits,
    _in_flight: Option<RequestInFlight>,
}

impl ResponseBody {
    pub(crate) fn new(body: Body, waits: BodyWaits, in_flight: Option<RequestInFlight>) -> Self {
        waits.on_wake();
        Self { body, waits, _in_flight: in_flight }
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.waits.0.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if frame.is_pending() {
            self.waits.0.store(true, Ordering::Relaxed);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{poll, stream};
    use http_body::Body as _;
    use std::sync::atomic::AtomicUsize;
    use tokio::sync::mpsc;

    /// A body of what is sent to it, and the number of its polls.
    fn counted_body() -> (mpsc::UnboundedSender<Bytes>, Arc<AtomicUsize>, Body) {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let polls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&polls);
        let frames = stream::poll_fn(move |cx| {
            counted.fetch_add(1, Ordering::Relaxed);
            receiver.poll_recv(cx).map(|bytes: Option<Bytes>| bytes.map(Ok::<_, axum::Error>))
        });
        (sender, polls, Body::from_stream(frames))
    }

    #[tokio::test]
    async fn a_body_that_waits_is_not_polled_before_the_connection_is_woken() {
        let (sender, polls, body) = counted_body();
        let body_waits = BodyWaits::default();
        let mut body = ResponseBody::new(body, body_waits.clone(), None);
        let frames = Arc::new(AtomicUsize::new(0));
        let taken = Arc::clone(&frames);
        // As hyper does it: until there is nothing, and once more.
        let connection = std::future::poll_fn(move |cx| {
            for _ in 0..2 {
                while let Poll::Ready(frame) = Pin::new(&mut body).poll_frame(cx) {
                    let Some(frame) = frame else { return Poll::Ready(()) };
                    taken.fetch_add(frame.unwrap().into_data().unwrap().len(), Ordering::Relaxed);
                }
            }
            Poll::Pending
        });
        let mut connection = WokenConnection { connection, body_waits };
        assert!(poll!(&mut connection).is_pending());
        assert_eq!(polls.load(Ordering::Relaxed), 1);
        for bytes in ["one", "two"] {
            sender.send(Bytes::from_static(bytes.as_bytes())).unwrap();
            assert!(poll!(&mut connection).is_pending());
        }
        assert_eq!((frames.load(Ordering::Relaxed), polls.load(Ordering::Relaxed)), (6, 5));
        drop(sender);
        connection.await;
    }
}
