//! The two baselines: the least that any proxy between a provider and a client costs.
//!
//! `pass` forwards bytes as they come. `parse` does what every gateway has to do: it splits the stream, parses each
//! event's JSON, serialises it again and sends one frame per event. Neither stores anything.

use crate::event_reader::END_MARKER;
use crate::http_server;
use crate::sse_splitter::SseSplitter;
use anyhow::Context as _;
use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{Either, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::header::{CONNECTION, HOST, TRANSFER_ENCODING};
use hyper::http::uri::{Authority, Scheme};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::net::TcpListener;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ProxyMode {
    /// Forward bytes.
    Pass,
    /// Split, parse and serialise events.
    Parse,
}

type ProxyBody = Either<Either<Incoming, ReencodedBody>, Full<Bytes>>;
type UpstreamClient = Client<HttpConnector, Incoming>;

/// Serves until the process ends.
pub(crate) async fn run(mode: ProxyMode, upstream: Authority, listen: SocketAddr) -> anyhow::Result<()> {
    serve_proxy(mode, upstream, http_server::bind_and_announce("proxy", listen).await?).await
}

pub(crate) async fn serve_proxy(mode: ProxyMode, upstream: Authority, listener: TcpListener) -> anyhow::Result<()> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: UpstreamClient = Client::builder(TokioExecutor::new()).build(connector);
    http_server::serve_connections(listener, move |request| {
        let (client, upstream) = (client.clone(), upstream.clone());
        async move {
            let response = forward_request(&client, upstream, mode, request).await;
            Ok(response.unwrap_or_else(|error| bad_gateway(format!("{error:#}\n"))))
        }
    })
    .await
}

async fn forward_request(
    client: &UpstreamClient,
    upstream: Authority,
    mode: ProxyMode,
    request: Request<Incoming>,
) -> anyhow::Result<Response<ProxyBody>> {
    let (mut head, body) = request.into_parts();
    let mut uri = head.uri.into_parts();
    uri.scheme = Some(Scheme::HTTP);
    uri.authority = Some(upstream);
    head.uri = Uri::from_parts(uri)?;
    // Hop-by-hop headers; the client library writes its own.
    for name in [HOST, CONNECTION, TRANSFER_ENCODING] {
        head.headers.remove(name);
    }
    let response = client.request(Request::from_parts(head, body)).await.context("upstream")?;
    let (mut head, body) = response.into_parts();
    for name in [CONNECTION, TRANSFER_ENCODING] {
        head.headers.remove(name);
    }
    let body = match mode {
        ProxyMode::Pass => Either::Left(body),
        ProxyMode::Parse => Either::Right(ReencodedBody { upstream: body, splitter: SseSplitter::default() }),
    };
    Ok(Response::from_parts(head, Either::Left(body)))
}

fn bad_gateway(reason: String) -> Response<ProxyBody> {
    let mut response = Response::new(Either::Right(Full::new(reason.into())));
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response
}

/// The upstream's events, each parsed and serialised again as one frame.
struct ReencodedBody {
    upstream: Incoming,
    splitter: SseSplitter,
}

impl ReencodedBody {
    fn next_frame(&mut self) -> anyhow::Result<Option<Bytes>> {
        let Some(event) = self.splitter.next().map_err(|_| anyhow::anyhow!("an event is too long"))? else {
            return Ok(None);
        };
        let mut frame = BytesMut::with_capacity(event.data.len() + 64);
        for (field, text) in [(&b"id: "[..], &event.id), (b"event: ", &event.name)] {
            if !text.is_empty() {
                frame.put_slice(field);
                frame.put_slice(text);
                frame.put_u8(b'\n');
            }
        }
        frame.put_slice(b"data: ");
        if event.data == END_MARKER {
            frame.put_slice(END_MARKER);
        } else {
            let value: serde_json::Value = serde_json::from_slice(&event.data).context("an event is not JSON")?;
            let mut writer = frame.writer();
            serde_json::to_writer(&mut writer, &value)?;
            frame = writer.into_inner();
        }
        frame.put_slice(b"\n\n");
        Ok(Some(frame.freeze()))
    }
}

impl Body for ReencodedBody {
    type Data = Bytes;
    type Error = anyhow::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<anyhow::Result<Frame<Bytes>>>> {
        loop {
            if let Some(frame) = self.next_frame().transpose() {
                return Poll::Ready(Some(frame.map(Frame::data)));
            }
            match ready!(Pin::new(&mut self.upstream).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        self.splitter.push(&bytes);
                    }
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                None => return Poll::Ready(None),
            }
        }
    }
}
