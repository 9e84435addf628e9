//! Accepts connections, bounds their time and memory, and closes them at shutdown.
//!
//! HTTP/1.1 only. A connection holds little memory: hyper's buffers are small, and the body of a stream is polled only
//! when there is space, so a reader that stops reading costs one buffer until its write time-out. When all places are
//! taken, the connection that is idle for longest makes room; if every one has a request, the new one gets a 503.

use crate::config::HttpLimits;
use crate::lingering_close::{LingeringStream, UnreadFlag};
use crate::problem::Problem;
use crate::response_body::{BodyWaits, ResponseBody, WokenConnection};
use crate::shutdown::Shutdown;
use crate::write_timeout::WriteTimeout;
use axum::Router;
use axum::http::{Request, Response, StatusCode};
use axum::response::IntoResponse as _;
use futures_core::future::BoxFuture;
use gateway::connection_slots::{ConnectionSlot, ConnectionSlots};
use gateway::poll_if_woken::PollIfWoken;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::SockRef;
use std::any::Any;
use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};
use tower::ServiceExt as _;

/// Bounds the head of a request, and about as much of the response is buffered.
const HEAD_BUFFER_BYTES: usize = 16 * 1024;
/// Wait before the next accept when the system is out of resources.
const BACKOFF_MIN: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// How many connections beyond the limit wait for a place or are refused at a time.
const OVERFLOW_CONNECTIONS_MAX: usize = 64;
/// How long an idle connection may take to make room.
const TAKE_OVER_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a connection that was asked to close may take to flush its last response.
const CLOSE_IDLE_TIMEOUT: Duration = Duration::from_millis(100);
/// How long a refused client has to send its request head.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// Size of the kernel's send buffer. Its default grows to megabytes for a reader that stops reading.
const SEND_BUFFER_BYTES: u32 = 128 * 1024;
/// After a restart all viewers reconnect at once and must not be rejected.
const BACKLOG: u32 = 4096;

pub(crate) fn bind_listener(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    // Accepted connections inherit it.
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// For a WebSocket, which outlives its HTTP task: signals the shutdown and counts the connection as open.
#[derive(Clone)]
pub(crate) struct ConnectionHandle {
    pub(crate) shutdown: Shutdown,
    _guard: Arc<dyn Any + Send + Sync>,
}

impl ConnectionHandle {
    /// `guard` is dropped when the connection is closed.
    fn new(shutdown: Shutdown, guard: impl Any + Send + Sync) -> Self {
        Self { shutdown, _guard: Arc::new(guard) }
    }
}

/// The client's address, as an extension of each request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerAddr(pub(crate) SocketAddr);

/// Accepts connections until `shutdown` becomes `true`, then waits for the open ones: idle connections end at once,
/// others after their response.
pub(crate) async fn serve_connections(
    listener: TcpListener,
    router: Router,
    limits: HttpLimits,
    shutdown: watch::Receiver<bool>,
) {
    let mut shutdown = Shutdown::new(shutdown);
    let (slots, overflow) =
        (ConnectionSlots::new(limits.connections_max), ConnectionSlots::new(OVERFLOW_CONNECTIONS_MAX));
    let (alive, mut all_closed) = mpsc::channel::<()>(1);
    let mut backoff = BACKOFF_MIN;
    loop {
        let accepted = tokio::select! {
            () = shutdown.started() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                backoff = BACKOFF_MIN;
                let (shutdown, alive) = (shutdown.clone(), alive.clone());
                let HttpLimits { header_read_timeout, write_timeout, .. } = limits;
                let connection = Connection { stream, peer, header_read_timeout, write_timeout, shutdown, alive };
                match slots.try_open() {
                    Some(slot) => drop(tokio::spawn(connection.serve(router.clone(), slot))),
                    None => {
                        let Some(waiting) = overflow.open().await else { break };
                        tokio::spawn(connection.serve_when_possible(router.clone(), Arc::clone(&slots), waiting));
                    }
                }
            }
            // The client disconnected before the accept. The listener itself is fine.
            Err(error) if is_peer_error(error.kind()) => {}
            Err(error) => {
                // Out of descriptors or memory: an immediate retry would only spin.
                tracing::warn!(%error, "cannot accept connections");
                slots.close_longest_idle();
                tokio::time::sleep(backoff).await;
                backoff = (backoff * 2).min(BACKOFF_MAX);
            }
        }
    }
    drop((listener, alive));
    let _closed = all_closed.recv().await;
}

const fn is_peer_error(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::Interrupted)
}

/// Answers every request of a connection for which there is no place.
fn refusing_router() -> Router {
    Router::new().fallback(async || Problem::server_busy("the server has too many connections: try again"))
}

/// An accepted connection.
struct Connection {
    stream: TcpStream,
    peer: SocketAddr,
    header_read_timeout: Duration,
    write_timeout: Duration,
    shutdown: Shutdown,
    alive: mpsc::Sender<()>,
}

impl Connection {
    /// Takes the place of an idle connection, or refuses the request.
    async fn serve_when_possible(mut self, router: Router, slots: Arc<ConnectionSlots>, waiting: Arc<ConnectionSlot>) {
        match slots.take_over(TAKE_OVER_TIMEOUT).await {
            Some(slot) => {
                drop(waiting);
                Box::pin(self.serve(router, slot)).await;
            }
            None => {
                metrics::counter!("headwater_connections_refused_total").increment(1);
                self.header_read_timeout = REFUSAL_TIMEOUT;
                Box::pin(self.serve(refusing_router(), waiting)).await;
            }
        }
    }

    /// Not an `async fn`, whose future would keep these arguments beside what is made of them, for each idle connection.
    fn serve(self, router: Router, slot: Arc<ConnectionSlot>) -> impl Future<Output = ()> + Send {
        let Self { stream, peer, header_read_timeout, write_timeout, mut shutdown, alive } = self;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        // A client that vanished is detected by the heartbeat that it does not acknowledge.
        if let Err(error) = SockRef::from(&stream).set_tcp_user_timeout(Some(write_timeout)) {
            tracing::debug!(%error, "cannot set TCP_USER_TIMEOUT");
        }
        let (unread, body_waits) = (UnreadFlag::default(), BodyWaits::default());
        let stream = WriteTimeout::new(stream, write_timeout);
        let stream = LingeringStream::new(stream, unread.clone(), shutdown.clone());
        let handle = ConnectionHandle::new(shutdown.clone(), (Arc::clone(&slot), alive));
        let service = service_fn({
            let (slot, body_waits) = (Arc::clone(&slot), body_waits.clone());
            move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(PeerAddr(peer));
                request.extensions_mut().insert(handle.clone());
                respond(request, router.clone(), &slot, unread.clone(), body_waits.clone())
            }
        });
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(header_read_timeout)
            .max_buf_size(HEAD_BUFFER_BYTES)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        let mut serving = WokenConnection { connection: serving, body_waits };
        let stop = async move {
            tokio::select! {
                () = shutdown.started() => None,
                // What has not become a request by then is cut.
                () = slot.asked_to_close() => Some(CLOSE_IDLE_TIMEOUT),
            }
        };
        let mut stop = PollIfWoken::new(Box::pin(stop));
        async move {
            let stopped = tokio::select! {
                biased;
                ended = &mut serving => ControlFlow::Break(ended),
                time_left = &mut stop => ControlFlow::Continue(time_left),
            };
            let ended = match stopped {
                ControlFlow::Break(ended) => ended,
                ControlFlow::Continue(time_left) => {
                    Pin::new(&mut serving.connection).graceful_shutdown();
                    match time_left {
                        None => (&mut serving).await,
                        Some(time_left) => tokio::time::timeout(time_left, &mut serving).await.unwrap_or(Ok(())),
                    }
                }
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection ended early");
            }
        }
    }
}

/// The connection is busy until the last byte of the response has been taken from its body. Boxed: hyper keeps the room of
/// this future until the connection ends.
fn respond(
    request: Request<Incoming>,
    router: Router,
    slot: &Arc<ConnectionSlot>,
    unread: UnreadFlag,
    body_waits: BodyWaits,
) -> BoxFuture<'static, Result<Response<ResponseBody>, Infallible>> {
    let in_flight = slot.begin_request();
    let request = request.map(|body| unread.track_body(body));
    Box::pin(async move {
        let Some(mut in_flight) = in_flight else {
            let refused = Problem::server_busy("the connection was idle for too long: try again").into_response();
            return Ok(refused.map(|body| ResponseBody::new(body, body_waits, None)));
        };
        let response = router.oneshot(request).await?;
        unread.on_response(response.headers());
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            in_flight.mark_upgraded();
        }
        Ok(response.map(|body| ResponseBody::new(body, body_waits, Some(in_flight))))
    })
}
