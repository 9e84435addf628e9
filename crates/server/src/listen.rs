//! Accepts connections, bounds their time and memory, and closes them at shutdown.
//!
//! HTTP/1.1 only. A connection holds little memory: hyper's buffers are small, and the body of a stream is polled only
//! when there is space, so a reader that stops reading costs one buffer until its write time-out.

use crate::config::HttpLimits;
use crate::lingering_close::{LingeringStream, UnreadFlag};
use crate::shutdown::Shutdown;
use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::SockRef;
use std::any::Any;
use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_io_timeout::TimeoutStream;
use tower::ServiceExt as _;

/// Bounds the head of a request, and about as much of the response is buffered.
const HEAD_BUFFER_BYTES: usize = 16 * 1024;
/// Wait before the next accept when the system is out of resources.
const BACKOFF_MIN: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

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
    let slots = Arc::new(Semaphore::new(limits.connections_max));
    let (alive, mut all_closed) = mpsc::channel::<()>(1);
    let mut backoff = BACKOFF_MIN;
    loop {
        let accepted = tokio::select! {
            () = shutdown.started() => break,
            accepted = accept_connection(&listener, &slots) => accepted,
        };
        match accepted {
            Ok((stream, peer, permit)) => {
                backoff = BACKOFF_MIN;
                let handle = ConnectionHandle::new(shutdown.clone(), (permit, alive.clone()));
                tokio::spawn(serve_connection(stream, peer, router.clone(), limits.clone(), handle));
            }
            // The client disconnected before the accept. The listener itself is fine.
            Err(error) if is_peer_error(error.kind()) => {}
            Err(error) => {
                // Out of descriptors or memory: an immediate retry would only spin.
                tracing::warn!(%error, "cannot accept connections");
                tokio::time::sleep(backoff).await;
                backoff = (backoff * 2).min(BACKOFF_MAX);
            }
        }
    }
    drop((listener, alive));
    let _closed = all_closed.recv().await;
}

async fn accept_connection(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit)> {
    let permit = Arc::clone(slots).acquire_owned().await.map_err(std::io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    Ok((stream, peer, permit))
}

const fn is_peer_error(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::Interrupted)
}

async fn serve_connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    limits: HttpLimits,
    handle: ConnectionHandle,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    // A client that vanished is detected by the heartbeat that it does not acknowledge.
    if let Err(error) = SockRef::from(&stream).set_tcp_user_timeout(Some(limits.write_timeout)) {
        tracing::debug!(%error, "cannot set TCP_USER_TIMEOUT");
    }
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limits.write_timeout));
    let (mut shutdown, unread) = (handle.shutdown.clone(), UnreadFlag::default());
    let stream = LingeringStream::new(Box::pin(stream), unread.clone(), shutdown.clone());
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(PeerAddr(peer));
        request.extensions_mut().insert(handle.clone());
        let unread = unread.clone();
        let response = router.clone().oneshot(request.map(|body| unread.track_body(body)));
        async move {
            let response = response.await?;
            unread.on_response(response.headers());
            Ok::<_, Infallible>(response)
        }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_read_timeout)
        .max_buf_size(HEAD_BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut serving = std::pin::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = shutdown.started() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
