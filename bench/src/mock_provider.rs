//! The mock provider: it answers every request in the protocol of its path with a [`StreamBody`].
//!
//! The input says what to stream: `story N` (every 20 ms), `story N fast`, `story N every M` (milliseconds), each with
//! `fault NAME` after it. It is searched in the text of the request, so that it does not matter where a protocol puts it;
//! the last one counts, as the newest message of a conversation does.
//!
//! Tasks and Responses can also be started without a stream and followed by viewers. There is no log: the id repeats the
//! input, and every viewer gets a stream of its own. That is the baseline of the viewers' figures.

use crate::delta_stream::{PlantedFault, StreamBody, StreamSpec};
use crate::http_server;
use crate::stream_protocol::StreamProtocol;
use crate::target::STORY_INTERVAL_MS;
use crate::websocket_stream;
use anyhow::Context;
use bytes::Bytes;
use clap::ValueEnum;
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue, UPGRADE};
use hyper::{Request, Response, StatusCode};
use memchr::memmem;
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// A conversation of a thousand turns fits.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
const DELTAS_MAX: u32 = 1_000_000;

type MockResponse = Response<Either<StreamBody, Full<Bytes>>>;

/// Serves until the process ends.
pub(crate) async fn run(listen: SocketAddr) -> anyhow::Result<()> {
    serve_mock(http_server::bind_and_announce("mock", listen).await?).await
}

pub(crate) async fn serve_mock(listener: TcpListener) -> anyhow::Result<()> {
    http_server::serve_connections(listener, |request| async {
        Ok(handle_request(request)
            .await
            .unwrap_or_else(|error| text_response(StatusCode::BAD_REQUEST, format!("{error:#}\n"))))
    })
    .await
}

async fn handle_request(request: Request<Incoming>) -> anyhow::Result<MockResponse> {
    let path = request.uri().path().to_owned();
    if path == StreamProtocol::Blocks.path() {
        return Ok(open_websocket(request));
    }
    if let Some(protocol) = StreamProtocol::from_path(&path) {
        let body = Limited::new(request.into_body(), BODY_BYTES_MAX).collect().await;
        return start_stream(protocol, &body.map_err(anyhow::Error::from_boxed)?.to_bytes());
    }
    let task = path.strip_prefix("/v1/tasks/").and_then(|rest| rest.strip_suffix("/events"));
    let response = path.strip_prefix("/v1/responses/");
    let (protocol, id) = match (task, response) {
        (Some(id), _) => (StreamProtocol::Tasks, id),
        (None, Some(id)) => (StreamProtocol::Responses, id),
        (None, None) => return Ok(text_response(StatusCode::NOT_FOUND, "no such path\n".into())),
    };
    Ok(stream_response(protocol, stream_spec_from_id(id).context("no such run")?))
}

/// The member as all clients of the mock write it. In a text its quotes would be escaped. The request is not parsed: with a
/// long history that would take as long as all that the server does.
const STREAM_MEMBER: &[u8] = br#""stream":true"#;

fn start_stream(protocol: StreamProtocol, body: &[u8]) -> anyhow::Result<MockResponse> {
    let stream = memmem::find(body, STREAM_MEMBER).is_some();
    let body = std::str::from_utf8(body)?;
    let spec =
        stream_spec_from_text(body).context("the input must be `story N`, `story N fast` or `story N every M`")?;
    anyhow::ensure!(spec.deltas <= DELTAS_MAX, "a story has at most {DELTAS_MAX} deltas");
    if stream {
        return Ok(stream_response(protocol, spec));
    }
    let interval_ms = spec.interval.map_or(0, |every| every.as_millis());
    let run = format!("{}_{interval_ms}", spec.deltas);
    let (status, body) = match protocol {
        StreamProtocol::Tasks => (StatusCode::ACCEPTED, format!("{{\"task_id\":\"task_{run}\"}}")),
        StreamProtocol::Responses => (StatusCode::OK, format!("{{\"id\":\"resp_{run}\"}}")),
        StreamProtocol::Chat | StreamProtocol::Messages | StreamProtocol::Blocks => {
            anyhow::bail!("only streams are mocked")
        }
    };
    let mut response = text_response(status, body);
    response.headers_mut().insert(CONTENT_TYPE, "application/json".parse()?);
    Ok(response)
}

/// Accepts a WebSocket. The key is not confirmed: the clients of the mock do not check it.
fn open_websocket(mut request: Request<Incoming>) -> MockResponse {
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let stream_of = |text: &str| Some(StreamBody::new(StreamProtocol::Blocks, stream_spec_from_text(text)?));
        // A client may disconnect early; the load client counts what went wrong for it.
        if let Ok(upgraded) = upgrade.await {
            let _ = websocket_stream::serve_websocket(upgraded, stream_of).await;
        }
    });
    let mut response = text_response(StatusCode::SWITCHING_PROTOCOLS, String::new());
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    response
}

fn stream_spec_from_text(text: &str) -> Option<StreamSpec> {
    let (_, story) = text.rsplit_once("story ")?;
    // It ends where its JSON string does.
    let story = story.split(['"', '\\']).next()?;
    let mut words = story.split_whitespace();
    let deltas = words.next()?.parse().ok()?;
    let (mut interval_ms, mut fault) = (STORY_INTERVAL_MS, None);
    while let Some(word) = words.next() {
        match word {
            "fast" => interval_ms = 0,
            "every" => interval_ms = words.next()?.parse().ok()?,
            "fault" => fault = Some(PlantedFault::from_str(words.next()?, true).ok()?),
            _ => break,
        }
    }
    Some(StreamSpec { fault, ..StreamSpec::new(deltas, interval_ms) })
}

fn stream_spec_from_id(id: &str) -> Option<StreamSpec> {
    let mut parts = id.split('_').skip(1);
    Some(StreamSpec::new(parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn stream_response(protocol: StreamProtocol, spec: StreamSpec) -> MockResponse {
    let mut response = Response::new(Either::Left(StreamBody::new(protocol, spec)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

fn text_response(status: StatusCode, text: String) -> MockResponse {
    let mut response = Response::new(Either::Right(Full::new(text.into())));
    *response.status_mut() = status;
    response
}
