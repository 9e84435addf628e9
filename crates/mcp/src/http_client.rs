//! The exchange of one request with a server that has a URL: the response to a POST, as JSON or as a stream of events.

use crate::http_body::{self, BodyError, EventReader};
use crate::http_session::{HttpSession, SessionError, SessionRequest, SessionResponse, media_type};
use crate::limits::{
    CONTROL_TIMEOUT, INLINE_LINE_BYTES_MAX, OUTGOING_MESSAGES_MAX, RESUME_DELAY, RESUME_DELAY_MAX, RESUMES_MAX,
};
use crate::link::{FailureSlot, RequestFailure, RequestFate, lock};
use crate::message::{self, SortedMessage, parse_message};
use crate::token_source::BearerToken;
use model::error::{ErrorCode, ErrorInfo};
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ErrorData, JsonRpcMessage, ProgressToken, ProtocolVersion, RequestId,
    ServerJsonRpcMessage, ServerResult,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tools::EndpointMethod;

#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    #[error("the connection is closed")]
    Closed,
    #[error("the message cannot be written: {0}")]
    Encode(#[from] serde_json::Error),
}

/// What the tasks of a transport share.
pub(crate) struct HttpClient {
    pub(crate) session: HttpSession,
    incoming: mpsc::Sender<ServerJsonRpcMessage>,
    /// Answers to requests of the server that are on their way.
    answers: Semaphore,
}

/// A request whose response is awaited.
pub(crate) struct PendingPost {
    pub(crate) id: RequestId,
    /// Of a call: questions in its response are its own.
    pub(crate) token: Option<ProgressToken>,
    pub(crate) kind: RequestKind,
    pub(crate) request: SessionRequest,
    pub(crate) failure: Option<FailureSlot>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Discover,
    Initialize,
    Other,
}

/// Sends the answers of people to questions of the server.
pub(crate) async fn send_answers(client: Arc<HttpClient>, mut given: mpsc::Receiver<Vec<u8>>) {
    while let Some(answer) = given.recv().await {
        // A server that does not take it does not go on with its call, which has a time limit.
        drop(timeout(CONTROL_TIMEOUT, client.post(answer)).await);
    }
}

/// Sends a request and delivers its response, or says why there is none.
pub(crate) async fn run_request(client: Arc<HttpClient>, pending: PendingPost) {
    let response = match client.exchange(&pending).await {
        Ok(response) => response,
        Err(failure) => match &pending.failure {
            Some(slot) => {
                // First, because the end of the session is an answer to the calls that wait.
                slot.set(failure.clone());
                if failure.fate == RequestFate::SessionEnded {
                    client.session.link.end_session(failure.error);
                }
                ServerJsonRpcMessage::error(ErrorData::internal_error("no response", None), Some(pending.id))
            }
            // The handshake: without it, there is no connection.
            None => return client.session.link.close(failure.error),
        },
    };
    drop(client.incoming.send(response).await);
}

impl HttpClient {
    pub(crate) fn new(session: HttpSession, incoming: mpsc::Sender<ServerJsonRpcMessage>) -> Self {
        Self { session, incoming, answers: Semaphore::new(OUTGOING_MESSAGES_MAX) }
    }

    async fn exchange(&self, pending: &PendingPost) -> Result<ServerJsonRpcMessage, RequestFailure> {
        let answered = match self.session.send(&pending.request).await {
            Ok(answered) => answered,
            Err(error) => return self.read_refusal(pending, error),
        };
        let session_id = answered.response.header("mcp-session-id").map(str::to_owned);
        let response = match media_type(&answered.response).as_str() {
            "application/json" => self.read_body(pending, answered).await?,
            "text/event-stream" => self.read_events(pending, answered).await?,
            "" => return Err(self.protocol_failure("gave no answer to a request")),
            other => {
                let other: String = other.chars().take(80).collect();
                return Err(self.protocol_failure(&format!("answered with `{other}` instead of JSON or events")));
            }
        };
        self.note_handshake(pending, &response, session_id);
        Ok(response)
    }

    /// An error of the protocol is a response. A server of 2025-11-25 refuses `server/discover` in whatever way it refuses
    /// requests outside of a session.
    fn read_refusal(&self, pending: &PendingPost, error: SessionError) -> Result<ServerJsonRpcMessage, RequestFailure> {
        let error = match error {
            SessionError::Rpc { error, .. } => error,
            SessionError::Status { status: 400..=499, .. } if pending.kind == RequestKind::Discover => {
                ErrorData::invalid_request("not a request of this protocol", None)
            }
            SessionError::Failed(failure) | SessionError::Status { failure, .. } => return Err(failure),
        };
        Ok(ServerJsonRpcMessage::error(error, Some(pending.id.clone())))
    }

    async fn read_body(
        &self,
        pending: &PendingPost,
        mut answered: SessionResponse,
    ) -> Result<ServerJsonRpcMessage, RequestFailure> {
        let body = http_body::read_json(&mut answered.response).await.map_err(|error| self.body_failure(&error))?;
        let text = String::from_utf8(body).map_err(|_| self.protocol_failure("sent something that is not UTF-8"))?;
        match self.parse(text, answered.token.as_ref()).await {
            Some(message) if answers(&message, &pending.id) => Ok(with_id(message, &pending.id)),
            Some(_) => Err(self.protocol_failure("answered another request than the one it was sent")),
            None => Err(self.protocol_failure("sent something that is not a message")),
        }
    }

    /// Reads events until the response, and resumes the stream where the server allows it.
    async fn read_events(
        &self,
        pending: &PendingPost,
        answered: SessionResponse,
    ) -> Result<ServerJsonRpcMessage, RequestFailure> {
        let mut token = answered.token;
        let mut events = EventReader::new(answered.response);
        let mut resumes = 0;
        let (mut last_event_id, mut delay) = (None, RESUME_DELAY);
        loop {
            while let Some(data) = events.next_data().await.map_err(|error| self.body_failure(&error))? {
                if let Some(response) = self.read_event(pending, data, token.as_ref()).await? {
                    return Ok(response);
                }
                resumes = 0;
            }
            last_event_id = events.last_event_id().map(str::to_owned).or(last_event_id);
            delay = events.retry_ms().map_or(delay, Duration::from_millis).min(RESUME_DELAY_MAX);
            resumes += 1;
            if last_event_id.is_none() || resumes > RESUMES_MAX {
                return Err(self.body_failure(&BodyError::CutOff));
            }
            tokio::time::sleep(delay).await;
            let resumed = self.open_events(last_event_id.as_deref()).await;
            match resumed {
                Ok(resumed) => {
                    token = resumed.token;
                    events = EventReader::new(resumed.response);
                }
                Err(failure) => return Err(RequestFailure { fate: RequestFate::Unknown, ..failure }),
            }
        }
    }

    /// One event: the response, or something else, which is handled.
    async fn read_event(
        &self,
        pending: &PendingPost,
        data: String,
        token: Option<&BearerToken>,
    ) -> Result<Option<ServerJsonRpcMessage>, RequestFailure> {
        if data.trim().is_empty() {
            return Ok(None);
        }
        let Some(message) = self.parse(data, token).await else {
            return Err(self.protocol_failure("sent an event that is not a message"));
        };
        let response = self.handle_message(message, pending.token.as_ref()).await;
        Ok(response.filter(|response| answers(response, &pending.id)).map(|response| with_id(response, &pending.id)))
    }

    /// A response is returned; everything else is handled.
    pub(crate) async fn handle_message(
        &self,
        message: ServerJsonRpcMessage,
        origin: Option<&ProgressToken>,
    ) -> Option<ServerJsonRpcMessage> {
        match message::sort_message(message, &self.session.link, origin) {
            SortedMessage::Response(response) => Some(response),
            SortedMessage::Handled => None,
            SortedMessage::Answer(answer) => {
                // One after the other: a server that asks faster than it reads the answers waits.
                drop(self.notify(&answer).await);
                None
            }
        }
    }

    /// A stream of events that the server sends on its own, or from where another one broke off.
    pub(crate) async fn open_events(&self, last_event_id: Option<&str>) -> Result<SessionResponse, RequestFailure> {
        let headers = last_event_id.map(|id| ("last-event-id".to_owned(), id.to_owned())).into_iter().collect();
        let request = SessionRequest { method: EndpointMethod::Get, body: Default::default(), version: None, headers };
        let label = &self.session.label;
        let answered = self.session.send(&request).await.map_err(|error| error.into_failure(label))?;
        match media_type(&answered.response) == "text/event-stream" {
            true => Ok(answered),
            false => Err(self.protocol_failure("has no stream of events")),
        }
    }

    /// A message without a response. A server that does not take it in time is not waited for.
    pub(crate) async fn notify(&self, message: &ClientJsonRpcMessage) -> Result<(), HttpError> {
        let sending = self.post(message::encode_message(message, None)?);
        let is_initialized = matches!(message, JsonRpcMessage::Notification(notification)
            if matches!(notification.notification, ClientNotification::InitializedNotification(_)));
        match timeout(CONTROL_TIMEOUT, sending).await {
            Ok(Err(error)) if is_initialized => {
                self.session.link.close(error.into_failure(&self.session.label).error);
                Err(HttpError::Closed)
            }
            // An answer that was not taken, or a cancellation of something that has ended.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    async fn post(&self, body: Vec<u8>) -> Result<SessionResponse, SessionError> {
        let request =
            SessionRequest { method: EndpointMethod::Post, body: body.into(), version: None, headers: Vec::new() };
        let _turn = self.answers.acquire().await;
        self.session.send(&request).await
    }

    pub(crate) async fn delete_session(&self) {
        let request = SessionRequest {
            method: EndpointMethod::Delete,
            body: Default::default(),
            version: None,
            headers: Vec::new(),
        };
        // A server may refuse it; the session then ends by itself.
        drop(timeout(CONTROL_TIMEOUT, self.session.send(&request)).await);
    }

    /// A message without secrets. Long ones are parsed beside the async workers.
    pub(crate) async fn parse(&self, text: String, token: Option<&BearerToken>) -> Option<ServerJsonRpcMessage> {
        let endpoint = self.session.endpoint.clone();
        let token = token.map(|token| token.as_str().to_owned());
        let is_long = text.len() > INLINE_LINE_BYTES_MAX;
        let parse = move || parse_message(endpoint.redact_json(&text, token.as_deref()).as_bytes());
        if is_long { tokio::task::spawn_blocking(parse).await.ok().flatten() } else { parse() }
    }

    /// Keeps what the first response says about all others.
    fn note_handshake(&self, pending: &PendingPost, response: &ServerJsonRpcMessage, session_id: Option<String>) {
        let JsonRpcMessage::Response(response) = response else { return };
        let mut state = lock(&self.session.state);
        let tools = match (&response.result, pending.kind) {
            (ServerResult::InitializeResult(result), RequestKind::Initialize) => {
                state.id = session_id;
                state.version = Some(result.protocol_version.clone());
                result.capabilities.tools.as_ref()
            }
            (ServerResult::DiscoverResult(result), RequestKind::Discover) => {
                state.version = Some(ProtocolVersion::V_2026_07_28);
                result.capabilities.tools.as_ref()
            }
            _ => return,
        };
        state.announces_new_tools = tools.is_some_and(|tools| tools.list_changed == Some(true));
    }

    pub(crate) fn protocol_failure(&self, what: &str) -> RequestFailure {
        let message = format!("The MCP server `{}` {what}.", self.session.label);
        let error = ErrorInfo::new(ErrorCode::McpProtocolError, message);
        RequestFailure { error, fate: RequestFate::Unknown }
    }

    fn body_failure(&self, error: &BodyError) -> RequestFailure {
        let message = format!("The MCP server `{}` {error}.", self.session.label);
        RequestFailure { error: ErrorInfo::new(error.code(), message), fate: RequestFate::Unknown }
    }
}

/// Whether a response is the one to a request. Servers that cannot read a request do not know its id.
fn answers(response: &ServerJsonRpcMessage, id: &RequestId) -> bool {
    let found = match response {
        JsonRpcMessage::Response(response) => Some(&response.id),
        JsonRpcMessage::Error(error) => error.id.as_ref(),
        JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => return false,
    };
    found.is_none_or(|found| found.to_string() == id.to_string())
}

/// Some servers write a number as a string.
fn with_id(response: ServerJsonRpcMessage, id: &RequestId) -> ServerJsonRpcMessage {
    match response {
        JsonRpcMessage::Response(response) => ServerJsonRpcMessage::response(response.result, id.clone()),
        JsonRpcMessage::Error(error) => ServerJsonRpcMessage::error(error.error, Some(id.clone())),
        other @ (JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_)) => other,
    }
}
