//! The mock provider: whatever is asked, it tells a [`Story`].
//!
//! `POST /stream?count=N&interval_ms=M` (any path will do) streams one. `/v1/tasks` answers like Headwater, with a log
//! of nothing: the request names the story (`story N`, `story N fast`), the task's id repeats it, and every viewer is
//! told its own. That is the floor under the fan-out figures, and lets the kit's Headwater side be tested without one.

use crate::serve;
use crate::story::{Planted, Story, StoryBody};
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
/// Headwater's `story N` is told at this pace, so the mock's is too.
const STORY_INTERVAL_MS: u64 = 20;

type Answer = Response<Either<StoryBody, Full<Bytes>>>;

/// Runs the mock until the process ends.
pub(crate) async fn run(listen: SocketAddr) -> anyhow::Result<()> {
    serve(serve::listen("mock", listen).await?).await
}

/// Answers on a listener that is already there.
pub(crate) async fn serve(listener: TcpListener) -> anyhow::Result<()> {
    serve::serve(listener, |request| async {
        Ok(answer(request).await.unwrap_or_else(|error| text(StatusCode::BAD_REQUEST, format!("{error:#}\n"))))
    })
    .await
}

async fn answer(request: Request<Incoming>) -> anyhow::Result<Answer> {
    let path = request.uri().path().to_owned();
    if let Some(id) = path.strip_prefix("/v1/tasks/").and_then(|rest| rest.strip_suffix("/events")) {
        return Ok(tell(story_of_task(id).context("no such task")?));
    }
    if path == "/v1/tasks" && request.method() == Method::POST {
        return create(request).await;
    }
    Ok(tell(story_of_query(request.uri().query().unwrap_or_default())?))
}

#[derive(Deserialize)]
struct Create {
    input: String,
    #[serde(default)]
    stream: bool,
}

async fn create(request: Request<Incoming>) -> anyhow::Result<Answer> {
    let body = Limited::new(request.into_body(), BODY_BYTES_MAX).collect().await.map_err(anyhow::Error::from_boxed)?;
    let create: Create = serde_json::from_slice(&body.to_bytes()).context("not a task")?;
    let story = story_of_input(&create.input).context("only stories are told here")?;
    if create.stream {
        return Ok(tell(story));
    }
    let interval_ms = story.every.map_or(0, |every| every.as_millis());
    let task = format!("{{\"task_id\":\"task_{}_{interval_ms}\",\"status\":\"running\"}}", story.deltas);
    let mut answer = text(StatusCode::ACCEPTED, task);
    answer.headers_mut().insert(CONTENT_TYPE, "application/json".parse()?);
    Ok(answer)
}

fn story_of_input(input: &str) -> Option<Story> {
    let mut words = input.split_whitespace().skip_while(|word| *word != "story").skip(1);
    let deltas = words.next()?.parse().ok()?;
    Some(Story::new(deltas, if words.next() == Some("fast") { 0 } else { STORY_INTERVAL_MS }))
}

fn story_of_task(id: &str) -> Option<Story> {
    let (deltas, interval_ms) = id.strip_prefix("task_")?.split_once('_')?;
    Some(Story::new(deltas.parse().ok()?, interval_ms.parse().ok()?))
}

fn story_of_query(query: &str) -> anyhow::Result<Story> {
    let (mut count, mut interval_ms, mut planted) = (100, STORY_INTERVAL_MS, None);
    for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        match name {
            "count" => count = value.parse().context("count")?,
            "interval_ms" => interval_ms = value.parse().context("interval_ms")?,
            "fault" => planted = Some(Planted::from_str(value, true).map_err(anyhow::Error::msg)?),
            _ => {}
        }
    }
    anyhow::ensure!(count <= DELTAS_MAX, "count is at most {DELTAS_MAX}");
    Ok(Story { planted, ..Story::new(count, interval_ms) })
}

fn tell(story: Story) -> Answer {
    let mut answer = Response::new(Either::Left(StoryBody::new(story)));
    answer.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static("text/event-stream"));
    answer
}

fn text(status: StatusCode, text: String) -> Answer {
    let mut answer = Response::new(Either::Right(Full::new(text.into())));
    *answer.status_mut() = status;
    answer
}
