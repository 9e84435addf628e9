//! The events of one task, over as many connections as necessary.
//!
//! If a connection ends before the task, or is silent for longer than two heartbeats, the follower reconnects after the
//! last complete frame. A permanent error is a [`TailError`], worded for the user of the command line.

use bytes::{Buf as _, Bytes};
use model::task::TaskObject;
use model::{Event, Seq, TaskId};
use protocol::task::{TaskFrame, TaskFrameError, parse_task_frame};
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Client, Response, StatusCode, Url, redirect};
use serde::Deserialize;
use sse::{self, DecodeError, DecodeLimits, Decoder};
use std::time::Duration;
use tokio::time::timeout;

/// Two heartbeats of 15 s.
const SILENCE_MAX: Duration = Duration::from_secs(40);
const CONNECT_MAX: Duration = Duration::from_secs(10);
const BACKOFF_MIN: Duration = Duration::from_millis(200);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub(super) enum TailError {
    #[error("`{0}` is not the URL of a server such as http://127.0.0.1:8787")]
    InvalidUrl(String),
    #[error("`{0}`: https is not supported yet, use an http URL")]
    HttpsUnsupported(String),
    #[error("the key has invalid characters")]
    InvalidKey,
    #[error("no such task: `{0}`")]
    TaskNotFound(String),
    #[error("the server rejects the request: pass a valid key with --key or HEADWATER_KEY")]
    Unauthorized,
    #[error("{0} does not answer: {1}")]
    Unreachable(Url, String),
    #[error("the server answered {0}: {1}")]
    Rejected(StatusCode, String),
    #[error(transparent)]
    Stream(#[from] DecodeError),
    #[error(transparent)]
    Frame(#[from] TaskFrameError),
    #[error("cannot write: {0}")]
    Output(std::io::Error),
}

pub(super) struct TaskEndpoint {
    task: TaskId,
    url: Url,
    headers: HeaderMap,
}

impl TaskEndpoint {
    pub(super) fn new(base: &str, task: &str, key: Option<&str>) -> Result<Self, TailError> {
        let address = || TailError::InvalidUrl(base.to_owned());
        let parsed = Url::parse(base).map_err(|_| address())?;
        match parsed.scheme() {
            "http" if parsed.has_host() => {}
            "https" => return Err(TailError::HttpsUnsupported(base.to_owned())),
            _ => return Err(address()),
        }
        let task = TaskId::parse(task).map_err(|_| TailError::TaskNotFound(task.to_owned()))?;
        let url = format!("{}/v1/tasks/{task}", parsed.as_str().trim_end_matches('/'));
        let mut headers = HeaderMap::new();
        if let Some(key) = key {
            let mut value = HeaderValue::try_from(format!("Bearer {key}")).map_err(|_| TailError::InvalidKey)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        Ok(Self { task, url: Url::parse(&url).map_err(|_| address())?, headers })
    }

    pub(super) fn task(&self) -> TaskId {
        self.task.clone()
    }

    fn events_url(&self, after: Option<&str>) -> Url {
        let mut url = self.url.clone();
        url.set_path(&format!("{}/events", self.url.path()));
        if let Some(after) = after {
            url.query_pairs_mut().append_pair("after", after);
        }
        url
    }
}

pub(super) enum TailEvent {
    /// `data` is the event's JSON.
    Event { data: String, event: Box<Event> },
    /// The task has ended already.
    Ended(Box<TaskObject>),
}

pub(super) struct TaskFollower {
    client: Client,
    endpoint: TaskEndpoint,
    after: Option<String>,
    /// Id and sequence number of the last complete frame.
    last_id: Option<String>,
    last_seq: Seq,
    connection: Option<Connection>,
    /// Whether the server has ever responded: a wrong URL is not retried.
    has_connected: bool,
    backoff: Duration,
}

struct Connection {
    response: Response,
    decoder: Decoder,
    buffer: Bytes,
}

enum ConnectOutcome {
    Streaming(Response),
    Ended(Box<TaskObject>),
    RetryLater(String),
}

impl TaskFollower {
    pub(super) fn new(endpoint: TaskEndpoint, after: Option<String>) -> Result<Self, TailError> {
        let builder = || Client::builder().connect_timeout(CONNECT_MAX).redirect(redirect::Policy::none()).no_proxy();
        // Plain HTTP also works on a system without root certificates.
        let client = builder().build().or_else(|_| builder().tls_certs_only([]).build());
        let client = client.map_err(|error| TailError::Unreachable(endpoint.url.clone(), error.to_string()))?;
        let (last_id, connection) = (None, None);
        Ok(Self {
            client,
            endpoint,
            after,
            last_id,
            last_seq: Seq::ZERO,
            connection,
            has_connected: false,
            backoff: BACKOFF_MIN,
        })
    }

    /// Waits for the next event and reconnects as necessary. `note` receives messages about the connection.
    pub(super) async fn next(&mut self, note: impl Fn(&str)) -> Result<TailEvent, TailError> {
        loop {
            if self.connection.is_none()
                && let Some(ended) = self.connect(&note).await?
            {
                return Ok(TailEvent::Ended(ended));
            }
            if let Some(next) = self.next_buffered_event()? {
                return Ok(next);
            }
            let Some(connection) = &mut self.connection else { continue };
            let cut = match timeout(SILENCE_MAX, connection.response.chunk()).await {
                Ok(Ok(Some(bytes))) => {
                    connection.buffer = bytes;
                    continue;
                }
                Ok(Ok(None)) => "the stream ended before the task".to_owned(),
                Ok(Err(error)) => format!("the connection failed ({})", root_cause(&error)),
                Err(_) => format!("no data for {} s", SILENCE_MAX.as_secs()),
            };
            self.connection = None;
            self.back_off(&cut, &note).await;
        }
    }

    /// Waits before the next attempt, longer each time until an event arrives.
    async fn back_off(&mut self, why: &str, note: impl Fn(&str)) {
        let wait = jittered_backoff(self.backoff, getrandom::u32().unwrap_or_default());
        self.backoff = self.backoff.saturating_mul(2).min(BACKOFF_MAX);
        note(&format!("{why}; reconnecting in {:.1} s", wait.as_secs_f64()));
        tokio::time::sleep(wait).await;
    }

    /// The next event in the received bytes.
    fn next_buffered_event(&mut self) -> Result<Option<TailEvent>, TailError> {
        let Some(Connection { decoder, buffer: waiting, .. }) = &mut self.connection else { return Ok(None) };
        loop {
            let mut rest: &[u8] = waiting;
            let frame = decoder.decode(&mut rest)?;
            let taken = waiting.len().saturating_sub(rest.len());
            waiting.advance(taken);
            if let Some(id) = decoder.last_event_id().filter(|id| self.last_id.as_deref() != Some(id)) {
                self.last_id = Some(id.to_owned());
            }
            let Some(sse::SseEvent { data, .. }) = frame else { return Ok(None) };
            let TaskFrame { seq, event, .. } = parse_task_frame(&data)?;
            self.backoff = BACKOFF_MIN;
            // The server never repeats a frame, but a proxy that replays a response might.
            if seq > self.last_seq {
                self.last_seq = seq;
                return Ok(Some(TailEvent::Event { data, event: Box::new(event) }));
            }
        }
    }

    /// Connects, or waits before the next attempt. Returns the task if it has ended.
    async fn connect(&mut self, note: impl Fn(&str)) -> Result<Option<Box<TaskObject>>, TailError> {
        match self.request_stream().await? {
            ConnectOutcome::Streaming(response) => {
                self.has_connected = true;
                let decoder = Decoder::new(DecodeLimits::default());
                self.connection = Some(Connection { response, decoder, buffer: Bytes::new() });
            }
            ConnectOutcome::Ended(object) => return Ok(Some(object)),
            ConnectOutcome::RetryLater(why) => self.back_off(&why, note).await,
        }
        Ok(None)
    }

    async fn request_stream(&mut self) -> Result<ConnectOutcome, TailError> {
        // The id of a frame is more exact than the sequence number that the user passed.
        let after = self.after.as_deref().filter(|_| self.last_id.is_none());
        let mut request = self.client.get(self.endpoint.events_url(after)).headers(self.endpoint.headers.clone());
        request = request.header(ACCEPT, "text/event-stream");
        if let Some(id) = &self.last_id {
            request = request.header("Last-Event-ID", id);
        }
        let response = match timeout(SILENCE_MAX, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return self.unreachable(root_cause(&error)),
            Err(_) => return self.unreachable(format!("no response within {} s", SILENCE_MAX.as_secs())),
        };
        match response.status() {
            StatusCode::OK => Ok(ConnectOutcome::Streaming(response)),
            StatusCode::NO_CONTENT => self.fetch_ended_task().await,
            status => self.classify_status(status, response).await,
        }
    }

    /// Before the first response the URL is wrong; later it is the network.
    fn unreachable(&self, why: String) -> Result<ConnectOutcome, TailError> {
        if self.has_connected {
            Ok(ConnectOutcome::RetryLater(why))
        } else {
            Err(TailError::Unreachable(self.endpoint.url.clone(), why))
        }
    }

    async fn classify_status(&self, status: StatusCode, response: Response) -> Result<ConnectOutcome, TailError> {
        match status {
            StatusCode::NOT_FOUND => Err(TailError::TaskNotFound(self.endpoint.task.to_string())),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(TailError::Unauthorized),
            StatusCode::TOO_MANY_REQUESTS => Ok(ConnectOutcome::RetryLater(format!("the server answered {status}"))),
            status if status.is_server_error() => {
                Ok(ConnectOutcome::RetryLater(format!("the server answered {status}")))
            }
            status => Err(TailError::Rejected(status, problem_detail(response).await)),
        }
    }

    async fn fetch_ended_task(&self) -> Result<ConnectOutcome, TailError> {
        let request = self.client.get(self.endpoint.url.clone()).headers(self.endpoint.headers.clone());
        let answer = async { request.send().await?.error_for_status()?.json::<TaskObject>().await };
        match timeout(SILENCE_MAX, answer).await {
            Ok(Ok(object)) => Ok(ConnectOutcome::Ended(Box::new(object))),
            Ok(Err(error)) => self.unreachable(root_cause(&error)),
            Err(_) => self.unreachable(format!("no response within {} s", SILENCE_MAX.as_secs())),
        }
    }
}

async fn problem_detail(response: Response) -> String {
    #[derive(Deserialize)]
    struct Problem {
        detail: Option<String>,
        title: Option<String>,
    }
    let problem = timeout(CONNECT_MAX, response.json::<Problem>()).await.ok().and_then(Result::ok);
    let said = problem.and_then(|problem| problem.detail.or(problem.title));
    said.unwrap_or_else(|| "no reason given".to_owned())
}

/// The innermost cause: "connection refused" rather than "error sending request".
fn root_cause(error: &reqwest::Error) -> String {
    let mut at: &dyn std::error::Error = error;
    while let Some(source) = at.source() {
        at = source;
    }
    at.to_string()
}

/// Between half of `backoff` and all of it, so that clients do not reconnect at once.
fn jittered_backoff(backoff: Duration, random: u32) -> Duration {
    let half = backoff / 2;
    half + half.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_between_half_and_all_of_its_backoff() {
        let wait = Duration::from_secs(4);
        assert_eq!(jittered_backoff(wait, 0), Duration::from_secs(2));
        assert_eq!(jittered_backoff(wait, u32::MAX), wait);
    }

    #[test]
    fn an_invalid_url_is_refused_with_its_reason() {
        let refusal = |base: &str| TaskEndpoint::new(base, "task_1", None).err().map(|refusal| refusal.to_string());
        let of = |base: &str| refusal(base).unwrap_or_default();
        assert_eq!(of("https://a.example"), "`https://a.example`: https is not supported yet, use an http URL");
        assert!(of("localhost:8787").contains("is not the URL of a server"));
        assert!(of("ftp://a.example/").contains("is not the URL of a server"));
        assert_eq!(refusal("http://127.0.0.1:8787"), None);
        let odd = TaskEndpoint::new("http://a.example", "../x", None).err().map(|refusal| refusal.to_string());
        assert_eq!(odd.as_deref(), Some("no such task: `../x`"));
        assert!(matches!(TaskEndpoint::new("http://a.example", "task_1", Some("a\nb")), Err(TailError::InvalidKey)));
    }

    #[test]
    fn the_server_url_may_have_a_path() {
        let events = |base: &str| TaskEndpoint::new(base, "task_1", None).unwrap().events_url(Some("a-1")).to_string();
        assert_eq!(events("http://a.example:1/x/"), "http://a.example:1/x/v1/tasks/task_1/events?after=a-1");
        assert_eq!(events("http://a.example"), "http://a.example/v1/tasks/task_1/events?after=a-1");
    }
}
