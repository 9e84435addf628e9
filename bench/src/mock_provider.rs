//! The mock provider: it answers every request with a [`StreamBody`].
//!
//! `POST /stream?count=N&interval_ms=M` (or any other path) streams N deltas. `/v1/tasks` answers like Headwater, but
//! without a log: the input says how many deltas (`story N`, `story N fast`), the task's id repeats it, and every viewer
//! gets a stream of its own. That is the baseline of the fan-out figures, and lets the client be tested without Headwater.

use crate::delta_stream::{PlantedFault, StreamBody, StreamSpec};
use crate::http_server;
use anyhow::Context;
use bytes::Bytes;
use clap::ValueEnum;
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::{Method, Request, Response, StatusCode};
use serde::Deserialize;
use std::net::SocketAddr;
use tokio::net::TcpListener;

const BODY_BYTES_MAX: usize = 64 * 1024;
const DELTAS_MAX: u32 = 1_000_000;
/// The pace of `story N` in `scenarios.toml`.
const STORY_INTERVAL_MS: u64 = 20;

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
    if let Some(id) = path.strip_prefix("/v1/tasks/").and_then(|rest| rest.strip_suffix("/events")) {
        return Ok(stream_response(stream_spec_from_task_id(id).context("no such task")?));
    }
    if path == "/v1/tasks" && request.method() == Method::POST {
        return create_task(request).await;
    }
    Ok(stream_response(stream_spec_from_query(request.uri().query().unwrap_or_default())?))
}

#[derive(Deserialize)]
struct CreateTaskRequest {
    input: String,
    #[serde(default)]
    stream: bool,
}

async fn create_task(request: Request<Incoming>) -> anyhow::Result<MockResponse> {
    let body = Limited::new(request.into_body(), BODY_BYTES_MAX).collect().await.map_err(anyhow::Error::from_boxed)?;
    let create: CreateTaskRequest = serde_json::from_slice(&body.to_bytes()).context("not a task")?;
    let spec = stream_spec_from_input(&create.input).context("the input must be `story N` or `story N fast`")?;
    if create.stream {
        return Ok(stream_response(spec));
    }
    let interval_ms = spec.interval.map_or(0, |every| every.as_millis());
    let task = format!("{{\"task_id\":\"task_{}_{interval_ms}\",\"status\":\"running\"}}", spec.deltas);
    let mut response = text_response(StatusCode::ACCEPTED, task);
    response.headers_mut().insert(CONTENT_TYPE, "application/json".parse()?);
    Ok(response)
}

fn stream_spec_from_input(input: &str) -> Option<StreamSpec> {
    let mut words = input.split_whitespace().skip_while(|word| *word != "story").skip(1);
    let deltas = words.next()?.parse().ok()?;
    Some(StreamSpec::new(deltas, if words.next() == Some("fast") { 0 } else { STORY_INTERVAL_MS }))
}

fn stream_spec_from_task_id(id: &str) -> Option<StreamSpec> {
    let (deltas, interval_ms) = id.strip_prefix("task_")?.split_once('_')?;
    Some(StreamSpec::new(deltas.parse().ok()?, interval_ms.parse().ok()?))
}

fn stream_spec_from_query(query: &str) -> anyhow::Result<StreamSpec> {
    let (mut count, mut interval_ms, mut planted) = (100, STORY_INTERVAL_MS, None);
    for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        match name {
            "count" => count = value.parse().context("count")?,
            "interval_ms" => interval_ms = value.parse().context("interval_ms")?,
            "fault" => planted = Some(PlantedFault::from_str(value, true).map_err(anyhow::Error::msg)?),
            _ => {}
        }
    }
    anyhow::ensure!(count <= DELTAS_MAX, "count is at most {DELTAS_MAX}");
    Ok(StreamSpec { fault: planted, ..StreamSpec::new(count, interval_ms) })
}

fn stream_response(spec: StreamSpec) -> MockResponse {
    let mut response = Response::new(Either::Left(StreamBody::new(spec)));
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static("text/event-stream"));
    response
}

fn text_response(status: StatusCode, text: String) -> MockResponse {
    let mut response = Response::new(Either::Right(Full::new(text.into())));
    *response.status_mut() = status;
    response
}
