//! An HTTP server for the mock and the proxies: a listener, one task per connection, and a line that says "ready".

use anyhow::Context;
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::error::Error;
use std::future::Future;
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpSocket};

const BACKLOG: u32 = 4096;

/// Listens on `listen` and prints the line that [`crate::server_process`] waits for.
pub(crate) async fn bind_and_announce(name: &str, listen: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
    println!("{name} listening on http://{}", listener.local_addr()?);
    Ok(listener)
}

/// A backlog for every stream of a plan at once. That of `TcpListener::bind` is smaller, and a refused connection is
/// retried only after a second.
fn bind(listen: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if listen.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.bind(listen)?;
    socket.listen(BACKLOG)
}

/// Answers every connection with `handler`, until the process ends.
pub(crate) async fn serve_connections<H, F, B>(listener: TcpListener, handler: H) -> anyhow::Result<()>
where
    H: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = anyhow::Result<Response<B>>> + Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    loop {
        let (socket, _) = listener.accept().await?;
        // Deltas are small writes, which would otherwise wait for the acknowledgement of the previous one.
        socket.set_nodelay(true)?;
        let service = service_fn(handler.clone());
        tokio::spawn(async move {
            // A client may disconnect early; the load client counts what went wrong for it.
            let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service);
            let _ = connection.with_upgrades().await;
        });
    }
}
