//! What the mock and the proxies share: a listener, one task per connection, and the line that says "ready".

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

/// Listens on `listen` and says so on stdout, in the words that the kit waits for.
pub(crate) async fn bind_and_announce(name: &str, listen: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
    println!("{name} listening on http://{}", listener.local_addr()?);
    Ok(listener)
}

/// With room for every stream of a cell to connect at once. `TcpListener::bind` leaves less, and a connection that
/// finds none tries again only after a second.
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
        // A delta is a small write: without this it may wait for the acknowledgement of the one before.
        socket.set_nodelay(true)?;
        let service = service_fn(handler.clone());
        tokio::spawn(async move {
            // A client that leaves early is its own affair; what went wrong for it, the load client counts.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service).await;
        });
    }
}
