//! One connection: sends a request and reads its response.

use super::connector::NetworkStream;
use super::idle_connections::IdleConnections;
use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http::{Request, Response, Uri};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Longest head of a response.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// A request that got no response.
pub(super) struct SendError {
    pub(super) error: hyper::Error,
    /// The request, if nothing of it was sent.
    pub(super) unsent: Option<Box<Request<Full<Bytes>>>>,
}

pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: Driver,
}

impl Connection {
    pub(super) async fn open(stream: NetworkStream) -> hyper::Result<Self> {
        let (sender, connection) = http1::Builder::new().max_buf_size(HEAD_BYTES_MAX).handshake(stream).await?;
        Ok(Self { sender, driver: Driver { connection: Some(Box::pin(connection)) } })
    }

    /// Whether another request can be sent. Notices that the service has closed the connection.
    pub(super) fn is_usable(&mut self) -> bool {
        self.driver.poll(&mut Context::from_waker(Waker::noop()));
        self.sender.is_ready()
    }

    /// The connection is kept when the response has been read to its end.
    pub(super) async fn send(
        mut self,
        request: Request<Full<Bytes>>,
        idle: &Arc<IdleConnections>,
        uri: &Uri,
    ) -> Result<Response<ResponseBody>, SendError> {
        let sending = self.sender.try_send_request(request);
        let mut sending = pin!(sending);
        let sent = poll_fn(|cx| {
            self.driver.poll(cx);
            sending.as_mut().poll(cx)
        });
        let response = sent.await.map_err(|mut failed| {
            let unsent = failed.take_message().map(Box::new);
            SendError { unsent, error: failed.into_error() }
        })?;
        let (idle, uri) = (Arc::clone(idle), uri.clone());
        Ok(response.map(|incoming| ResponseBody {
            incoming,
            connection: Some(self),
            wakeups: Arc::default(),
            waker: None,
            on_end: Some((idle, uri)),
        }))
    }
}

type HttpConnection = http1::Connection<NetworkStream, Full<Bytes>>;

/// The protocol of a connection, which somebody has to poll.
struct Driver {
    /// `None` when it is closed.
    connection: Option<Pin<Box<HttpConnection>>>,
}

impl Driver {
    fn poll(&mut self, cx: &mut Context<'_>) {
        // An error reaches the request or the body that it concerns.
        if let Some(connection) = &mut self.connection
            && connection.as_mut().poll(cx).is_ready()
        {
            self.connection = None;
        }
    }
}

/// The body of a response. To read it is to poll its connection.
pub(in super::super) struct ResponseBody {
    incoming: Incoming,
    connection: Option<Connection>,
    wakeups: Arc<BodyWakeups>,
    /// Of `wakeups`, once it was needed.
    waker: Option<Waker>,
    /// Where the connection goes when the body has been read.
    on_end: Option<(Arc<IdleConnections>, Uri)>,
}

impl ResponseBody {
    /// Polls body and connection in turn, until neither has woken the other.
    fn poll_both(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        loop {
            if let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) {
                return Poll::Ready(frame);
            }
            if let Some(connection) = &mut self.connection {
                connection.driver.poll(cx);
            }
            if let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) {
                return Poll::Ready(frame);
            }
            if self.wakeups.end_poll() {
                return Poll::Pending;
            }
        }
    }

    fn keep_connection(&mut self) {
        if let (Some(mut connection), Some((idle, uri))) = (self.connection.take(), self.on_end.take())
            && connection.is_usable()
        {
            idle.put(&uri, connection);
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        if !this.wakeups.begin_poll(cx.waker()) {
            return Poll::Pending;
        }
        let waker = this.waker.take().unwrap_or_else(|| Waker::from(Arc::clone(&this.wakeups)));
        let polled = this.poll_both(&mut Context::from_waker(&waker));
        this.waker = Some(waker);
        match &polled {
            Poll::Pending => {}
            // The caller polls again before it waits.
            Poll::Ready(frame) => {
                this.wakeups.stop_polling();
                if frame.is_none() {
                    this.keep_connection();
                }
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

/// Body and connection are polled together but wake each other. While they are being polled, a wake-up only repeats the poll;
/// without this, every chunk would schedule its reader once more. While no wake-up has arrived, a poll returns without polling
/// the connection: the reader is an actor, which is also woken by each of its commits.
#[derive(Default)]
struct BodyWakeups {
    state: AtomicU8,
    reader: AtomicWaker,
}

/// The reader is about to poll.
const READY: u8 = 0;
const POLLING: u8 = 1;
/// Woken since the poll began.
const WOKEN: u8 = 2;
/// There was nothing: a wake-up goes to the reader.
const WAITING: u8 = 3;

impl BodyWakeups {
    /// Returns false if there is nothing to poll for.
    fn begin_poll(&self, reader: &Waker) -> bool {
        // First this: a wake-up that comes after the look at the state finds the reader.
        self.reader.register(reader);
        if self.state.load(Ordering::SeqCst) == WAITING {
            return false;
        }
        self.state.store(POLLING, Ordering::SeqCst);
        true
    }

    /// Returns false if the poll has to be repeated.
    fn end_poll(&self) -> bool {
        let ended = self.state.compare_exchange(POLLING, WAITING, Ordering::SeqCst, Ordering::SeqCst);
        if ended.is_err() {
            self.state.store(POLLING, Ordering::SeqCst);
        }
        ended.is_ok()
    }

    /// The reader polls again by itself.
    fn stop_polling(&self) {
        self.state.store(READY, Ordering::SeqCst);
    }
}

impl Wake for BodyWakeups {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let woken = self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |state| match state {
            POLLING => Some(WOKEN),
            WAITING => Some(READY),
            _ => None,
        });
        if woken == Ok(WAITING) {
            self.reader.wake();
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    pub(in super::super) struct CountingWaker(pub(in super::super) AtomicUsize);

    impl Wake for CountingWaker {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn no_wake_up_is_lost() {
        let (wakeups, reader) = (Arc::new(BodyWakeups::default()), Arc::new(CountingWaker::default()));
        let woken = || reader.0.load(Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&wakeups));
        let begin_poll = || wakeups.begin_poll(&Waker::from(Arc::clone(&reader)));
        assert!(begin_poll());
        // Also from another thread: the socket has become readable meanwhile.
        std::thread::scope(|scope| drop(scope.spawn(|| waker.wake_by_ref())));
        waker.wake_by_ref();
        assert!(!wakeups.end_poll(), "the poll is repeated");
        assert!(wakeups.end_poll(), "once");
        assert_eq!(woken(), 0);
        assert!(!begin_poll(), "something else has woken the reader");
        waker.wake_by_ref();
        assert_eq!(woken(), 1, "nobody polls: the reader is woken");
        waker.wake_by_ref();
        assert_eq!(woken(), 1, "it has not polled yet");
        assert!(begin_poll(), "now there may be something");
        wakeups.stop_polling();
        assert!(begin_poll(), "after a frame there may be another");
    }
}
