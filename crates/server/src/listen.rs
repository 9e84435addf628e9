//! Connections: accepted, bounded in time and memory, and let go in order when the server stops.
//!
//! HTTP/1.1 only. A connection holds little: hyper's buffers are small, and the body of a stream is polled only when
//! there is room, so a reader that has stopped costs a buffer and is closed when it has taken nothing for a while.

use crate::config::HttpLimits;
use crate::lingering_close::{LingeringStream, UnreadFlag};
use crate::ws::ConnectionHandle;
use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::SockRef;
use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_io_timeout::TimeoutStream;
use tower::ServiceExt as _;

/// A request's head must fit in here, and what waits to be written to one connection is about as much.
const HEAD_BUFFER_BYTES: usize = 16 * 1024;
/// The longest wait before accepting is tried again, when the system has no more to give.
const BACKOFF_MAX: Duration = Duration::from_secs(1);
const BACKOFF_MIN: Duration = Duration::from_millis(10);

/// What the system holds of what one connection has not taken yet. Left to itself it would take megabytes for a reader
/// that has stopped.
const SEND_BUFFER_BYTES: u32 = 128 * 1024;
/// Connections that wait to be accepted. A server whose viewers all come back at once must not turn them away.
const BACKLOG: u32 = 4096;

/// Takes the address.
pub(crate) fn bind_listener(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    // Connections inherit it.
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerAddr(pub(crate) SocketAddr);

/// Accepts until it is told to stop, then waits for what is under way. `closing` turning true ends idle connections at
/// once and others after their answer.
pub(crate) async fn serve_connections(
    listener: TcpListener,
    router: Router,
    limits: HttpLimits,
    mut closing: watch::Receiver<bool>,
) {
    let room = Arc::new(Semaphore::new(limits.connections_max));
    let (alive, mut all_gone) = mpsc::channel::<()>(1);
    let mut backoff = BACKOFF_MIN;
    loop {
        let accepted = tokio::select! {
            () = wait_for_shutdown(&mut closing) => break,
            accepted = accept_connection(&listener, &room) => accepted,
        };
        match accepted {
            Ok((stream, peer, permit)) => {
                backoff = BACKOFF_MIN;
                let stay = ConnectionHandle::new(closing.clone(), (permit, alive.clone()));
                tokio::spawn(serve_connection(stream, peer, router.clone(), limits.clone(), stay));
            }
            // The other side gave up before we got there: that says nothing about the next one.
            Err(error) if is_peer_error(error.kind()) => {}
            Err(error) => {
                // Out of descriptors or memory. Trying again at once would only burn the processor.
                tracing::warn!(%error, "connections cannot be accepted");
                tokio::time::sleep(backoff).await;
                backoff = (backoff * 2).min(BACKOFF_MAX);
            }
        }
    }
    drop((listener, alive));
    let _gone = all_gone.recv().await;
}

async fn wait_for_shutdown(closing: &mut watch::Receiver<bool>) {
    // An error is a sender that is gone, and with it everybody who could want anything.
    let _gone = closing.wait_for(|closing| *closing).await.is_err();
}

async fn accept_connection(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit)> {
    let permit = Arc::clone(room).acquire_owned().await.map_err(std::io::Error::other)?;
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
    stay: ConnectionHandle,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection waits before it sends");
    }
    // A peer that vanished without a word is found by what it does not acknowledge: a heartbeat is enough.
    if let Err(error) = SockRef::from(&stream).set_tcp_user_timeout(Some(limits.write_timeout)) {
        tracing::debug!(%error, "a connection that goes silent is noticed late");
    }
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limits.write_timeout));
    let (mut closing, unread) = (stay.shutdown.clone(), UnreadFlag::default());
    let stream = LingeringStream::new(Box::pin(stream), unread.clone(), closing.clone());
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(PeerAddr(peer));
        // A connection that becomes a socket lives longer than this function.
        request.extensions_mut().insert(stay.clone());
        let unread = unread.clone();
        let answer = router.clone().oneshot(request.map(|body| unread.track_body(body)));
        async move {
            let response = answer.await?;
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
        () = wait_for_shutdown(&mut closing) => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
