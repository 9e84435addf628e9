//! The events of one task, over as many connections as necessary.
//!
//! If a connection ends before the task, or is silent for longer than two heartbeats, the follower reconnects after the
//! last complete frame. A permanent error is a [`ApiClientError`], worded for the user of the command line.

use crate::api_client::{ApiClient, ApiClientError, SILENCE_MAX, is_transient_status, problem_detail};
use crate::backoff::{Backoff, root_cause};
use bytes::{Buf as _, Bytes};
use model::task::TaskObject;
use model::{Event, Seq, TaskId};
use protocol::task::{TaskFrame, parse_task_frame};
use reqwest::header::ACCEPT;
use reqwest::{Method, Response, StatusCode};
use sse::{self, DecodeLimits, Decoder};
use tokio::time::timeout;

pub enum TailEvent {
    /// `data` is the event's JSON.
    Event { data: String, event: Box<Event> },
    /// The task has ended already.
    Ended(Box<TaskObject>),
}

pub struct TaskFollower {
    api: ApiClient,
    task: TaskId,
    after: Option<String>,
    /// Id and sequence number of the last complete frame.
    last_id: Option<String>,
    last_seq: Seq,
    connection: Option<Connection>,
    /// Whether the server has ever responded: a wrong URL is not retried.
    has_connected: bool,
    backoff: Backoff,
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
    pub fn new(api: ApiClient, task: TaskId, after: Option<String>) -> Self {
        Self {
            api,
            task,
            after,
            last_id: None,
            last_seq: Seq::ZERO,
            connection: None,
            has_connected: false,
            backoff: Backoff::default(),
        }
    }

    /// Waits for the next event and reconnects as necessary. `note` receives messages about the connection.
    pub async fn next(&mut self, note: impl Fn(&str)) -> Result<TailEvent, ApiClientError> {
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
            self.backoff.wait(&cut, &note).await;
        }
    }

    /// The next event in the received bytes.
    fn next_buffered_event(&mut self) -> Result<Option<TailEvent>, ApiClientError> {
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
            self.backoff = Backoff::default();
            // The server never repeats a frame, but a proxy that replays a response might.
            if seq > self.last_seq {
                self.last_seq = seq;
                return Ok(Some(TailEvent::Event { data, event: Box::new(event) }));
            }
        }
    }

    /// Connects, or waits before the next attempt. Returns the task if it has ended.
    async fn connect(&mut self, note: impl Fn(&str)) -> Result<Option<Box<TaskObject>>, ApiClientError> {
        match self.request_stream().await? {
            ConnectOutcome::Streaming(response) => {
                self.has_connected = true;
                let decoder = Decoder::new(DecodeLimits::default());
                self.connection = Some(Connection { response, decoder, buffer: Bytes::new() });
            }
            ConnectOutcome::Ended(object) => return Ok(Some(object)),
            ConnectOutcome::RetryLater(why) => self.backoff.wait(&why, note).await,
        }
        Ok(None)
    }

    async fn request_stream(&mut self) -> Result<ConnectOutcome, ApiClientError> {
        // The id of a frame is more exact than the sequence number that the user passed.
        let after = self.after.as_deref().filter(|_| self.last_id.is_none());
        let mut url = self.api.url(&format!("/v1/tasks/{}/events", self.task));
        if let Some(after) = after {
            url.query_pairs_mut().append_pair("after", after);
        }
        let mut request = self.api.request(Method::GET, url).header(ACCEPT, "text/event-stream");
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
    fn unreachable(&self, why: String) -> Result<ConnectOutcome, ApiClientError> {
        if self.has_connected {
            Ok(ConnectOutcome::RetryLater(why))
        } else {
            Err(ApiClientError::Unreachable(self.api.task_url(&self.task), why))
        }
    }

    async fn classify_status(&self, status: StatusCode, response: Response) -> Result<ConnectOutcome, ApiClientError> {
        match status {
            StatusCode::NOT_FOUND => Err(ApiClientError::TaskNotFound(self.task.to_string())),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(ApiClientError::Unauthorized),
            status if is_transient_status(status) => {
                Ok(ConnectOutcome::RetryLater(format!("the server answered {status}")))
            }
            status => Err(ApiClientError::Rejected(status, problem_detail(response).await)),
        }
    }

    async fn fetch_ended_task(&self) -> Result<ConnectOutcome, ApiClientError> {
        match self.api.get::<TaskObject>(self.api.task_url(&self.task)).await {
            Ok(object) => Ok(ConnectOutcome::Ended(Box::new(object))),
            Err(ApiClientError::Unreachable(_, why)) => self.unreachable(why),
            Err(error) if error.is_transient() => Ok(ConnectOutcome::RetryLater(error.to_string())),
            Err(error) => Err(error),
        }
    }
}
