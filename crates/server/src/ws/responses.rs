//! `GET /v1/responses`: responses over a WebSocket, one after the other.
//!
//! A message is the body of `POST /v1/responses`, and is answered with the events of that response. Requests that come while a
//! response is being sent wait for their turn. The socket remembers the ids of its responses, and nothing else of a
//! conversation: the log has it. `response_turn` sends a response, `response_request` parses messages and formats errors.

use super::close_reason::CloseReason;
use super::connection::{WsConnection, WsError, WsIncoming};
use super::response_request::{
    CreateMessage, PrewarmedInput, RememberedResponses, connection_limit_reached, error_envelope, parse_create_message,
    too_many_waiting,
};
use super::response_turn::{ResponseTurn, TurnError, TurnOutput};
use super::socket::{MISSED_PONGS_MAX, wait_for_shutdown};
use super::{SocketParts, upgrade};
use crate::app::App;
use crate::auth::Caller;
use crate::json_body::JsonBody;
use crate::listen::ConnectionHandle;
use crate::problem::Problem;
use crate::routes::responses::create::{PreviousResponse, read_mcp_credentials, resolve_response};
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;
use engine::{NewRun, REQUEST_BYTES_MAX, StartError};
use gateway::Rejection;
use gateway::attachments::{BlobUrlSigner, BlobUrls};
use gateway::body_budget::BodyReservation;
use gateway::responses::start_of_response;
use gateway::start_run::check_agent_for;
use gateway::storage_alarm::StorageAlarm;
use gateway::stream_start::blob_url_signer;
use model::error::ErrorCode;
use model::ports::StoreError;
use model::{TaskId, UserId};
use protocol::responses::{PendingResponse, PendingStatus, ResponsesProjection, ResponsesRequest};
use serde_json::Value;
use std::collections::VecDeque;
use std::future::pending;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};
use uuid::Uuid;

/// Requests that wait for their turn.
const WAITING_MAX: usize = 16;

pub(crate) async fn handle(State(app): State<App>, caller: Caller, request: Request) -> Result<Response, Problem> {
    upgrade(app, caller, request, |parts| async move { ResponsesSocket::new(parts).run().await })
}

struct ResponsesSocket {
    app: App,
    caller: Caller,
    connection: WsConnection,
    handle: Option<ConnectionHandle>,
    /// Of the handshake, which may have credentials of MCP servers.
    headers: HeaderMap,
    url_signer: Option<BlobUrlSigner>,
    storage_alarm: StorageAlarm,
    missed_pongs: u32,
    waiting: VecDeque<WaitingMessage>,
    turn: Option<Box<ResponseTurn>>,
    remembered: RememberedResponses,
    /// Of the last request that generated nothing.
    prewarmed: Option<PrewarmedInput>,
    expires_at: Instant,
    is_expired: bool,
}

/// A message that waits for its turn.
enum WaitingMessage {
    /// With the memory that it holds.
    Text(Bytes, BodyReservation),
    Binary,
}

enum SocketEvent {
    Incoming(Result<WsIncoming, WsError>),
    Outgoing(Result<TurnOutput, StoreError>),
    Tick,
    /// The disk is full, or has room again.
    StorageNotice(&'static str),
    Expired,
    Shutdown,
}

/// A request that was refused, and the response that it names.
struct RefusedRequest {
    problem: Problem,
    previous_id: Option<String>,
}

impl<E: Into<Problem>> From<E> for RefusedRequest {
    fn from(error: E) -> Self {
        Self { problem: error.into(), previous_id: None }
    }
}

type Step = Result<Option<CloseReason>, WsError>;

impl ResponsesSocket {
    fn new(SocketParts { app, caller, connection, handle, blob_urls, headers }: SocketParts) -> Self {
        let url_signer = (blob_urls == BlobUrls::Signed).then(|| blob_url_signer(&app.gateway, &caller.user));
        Self {
            storage_alarm: StorageAlarm::new(&app.gateway),
            expires_at: Instant::now() + app.limits.socket_lifetime,
            app,
            caller,
            connection,
            handle,
            headers,
            url_signer,
            missed_pongs: 0,
            waiting: VecDeque::new(),
            turn: None,
            remembered: RememberedResponses::default(),
            prewarmed: None,
            is_expired: false,
        }
    }

    /// Returns when the socket is closed.
    async fn run(mut self) {
        let heartbeat = self.app.limits.heartbeat_interval;
        let mut ticks = interval_at(Instant::now() + heartbeat, heartbeat);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let close = loop {
            let event = {
                let Self { app, connection, turn, handle, storage_alarm, expires_at, is_expired, .. } = &mut self;
                let handle = handle.as_mut().filter(|_| turn.is_none());
                tokio::select! {
                    message = connection.next() => SocketEvent::Incoming(message),
                    output = next_output(turn.as_deref_mut()) => SocketEvent::Outgoing(output),
                    _ = ticks.tick() => SocketEvent::Tick,
                    notice = storage_alarm.next_notice(&app.gateway) => SocketEvent::StorageNotice(notice),
                    () = sleep_until(*expires_at), if !*is_expired => SocketEvent::Expired,
                    () = wait_for_shutdown(handle) => SocketEvent::Shutdown,
                }
            };
            match Box::pin(self.handle_event(event)).await {
                Ok(None) => {}
                Ok(Some(close)) => break Some(close),
                Err(error) => break CloseReason::of_error(&error),
            }
        };
        if let Some(CloseReason { code, reason }) = close {
            self.connection.close(code, reason).await;
        }
    }

    async fn handle_event(&mut self, event: SocketEvent) -> Step {
        if !self.caller.is_still_allowed() {
            return Ok(Some(CloseReason::REVOKED));
        }
        match event {
            SocketEvent::Incoming(message) => self.handle_incoming(message?).await,
            SocketEvent::Outgoing(Ok(TurnOutput::Frames(frames))) => self.send_frames(frames).await,
            SocketEvent::Outgoing(Ok(TurnOutput::Ended)) => self.finish_turn().await,
            SocketEvent::Outgoing(Ok(TurnOutput::Interrupted)) if self.app.is_shutting_down() => {
                Ok(Some(CloseReason::RESTARTING))
            }
            SocketEvent::Outgoing(Ok(TurnOutput::Interrupted) | Err(_)) => Ok(Some(CloseReason::INTERRUPTED)),
            SocketEvent::Shutdown => Ok(Some(CloseReason::GOING_AWAY)),
            SocketEvent::StorageNotice(notice) => self.connection.ping(notice).await.map(|()| None),
            SocketEvent::Expired => {
                self.is_expired = true;
                if self.turn.is_none() { self.expire().await } else { Ok(None) }
            }
            SocketEvent::Tick if !self.caller.credential.is_valid() => Ok(Some(CloseReason::REVOKED)),
            SocketEvent::Tick if self.missed_pongs >= MISSED_PONGS_MAX => Ok(Some(CloseReason::PING_TIMEOUT)),
            SocketEvent::Tick => {
                self.missed_pongs += 1;
                let payload = self.storage_alarm.heartbeat().unwrap_or_default();
                self.connection.ping(payload).await.map(|()| None)
            }
        }
    }

    async fn handle_incoming(&mut self, message: WsIncoming) -> Step {
        self.missed_pongs = 0;
        let message = match message {
            WsIncoming::Text(text, memory) => WaitingMessage::Text(text, memory),
            WsIncoming::Binary => WaitingMessage::Binary,
            WsIncoming::KeepAlive => return Ok(None),
            WsIncoming::Close => return Ok(Some(CloseReason::NORMAL)),
        };
        if let Err(error) = self.app.request_limits.count(&self.caller.user).await {
            return self.send_error(error.into()).await;
        }
        if self.waiting.len() >= WAITING_MAX {
            return self.send_error(too_many_waiting(WAITING_MAX)).await;
        }
        self.waiting.push_back(message);
        self.start_waiting().await
    }

    /// Starts the next request that waits, if no response is being sent. One that is refused has had its turn.
    async fn start_waiting(&mut self) -> Step {
        while self.turn.is_none()
            && let Some(message) = self.waiting.pop_front()
        {
            if !self.caller.credential.is_valid() {
                return Ok(Some(CloseReason::REVOKED));
            }
            let Self { app, caller, headers, remembered, prewarmed, .. } = &mut *self;
            let memory = SocketMemory { headers, remembered, prewarmed: prewarmed.as_ref() };
            match Box::pin(start_turn(app, &caller.user, memory, message)).await {
                Ok(StartedTurn::Response(turn)) => self.turn = Some(turn),
                Ok(StartedTurn::Prewarmed(input, events)) => {
                    self.prewarmed = Some(input);
                    for event in events {
                        self.connection.send_text(&event.to_string()).await?;
                    }
                }
                Err(RefusedRequest { problem, previous_id }) => {
                    if let Some(id) = previous_id {
                        self.remembered.remove(&id);
                        self.prewarmed.take_if(|prewarmed| prewarmed.id == id);
                    }
                    self.send_error(problem).await?;
                }
            }
        }
        Ok(None)
    }

    async fn send_frames(&mut self, frames: Bytes) -> Step {
        let Some(turn) = &mut self.turn else { return Ok(None) };
        match turn.send_frames(&mut self.connection, self.url_signer.as_ref(), frames).await {
            Ok(()) => Ok(None),
            Err(TurnError::Connection(error)) => Err(error),
            Err(error) => {
                tracing::warn!(%error, "a response was interrupted");
                Ok(Some(CloseReason::INTERRUPTED))
            }
        }
    }

    /// The response has been sent: the next request has its turn.
    async fn finish_turn(&mut self) -> Step {
        if let Some(turn) = self.turn.take() {
            match (turn.has_failed(), &turn.previous_id) {
                (false, _) => self.remembered.insert(turn.response_id),
                (true, Some(previous_id)) => self.remembered.remove(previous_id),
                (true, None) => {}
            }
        }
        if self.app.is_shutting_down() {
            return Ok(Some(CloseReason::RESTARTING));
        }
        if self.is_expired { self.expire().await } else { self.start_waiting().await }
    }

    async fn expire(&mut self) -> Step {
        self.send_error(connection_limit_reached()).await?;
        Ok(Some(CloseReason::EXPIRED))
    }

    async fn send_error(&mut self, problem: Problem) -> Step {
        self.connection.send_text(&error_envelope(problem)).await.map(|()| None)
    }
}

/// What a request may refer to.
struct SocketMemory<'a> {
    headers: &'a HeaderMap,
    remembered: &'a RememberedResponses,
    prewarmed: Option<&'a PrewarmedInput>,
}

enum StartedTurn {
    Response(Box<ResponseTurn>),
    /// Nothing was started: these are all events.
    Prewarmed(PrewarmedInput, [Value; 2]),
}

/// Starts the response to a message.
async fn start_turn(
    app: &App,
    user: &UserId,
    socket: SocketMemory<'_>,
    message: WaitingMessage,
) -> Result<StartedTurn, RefusedRequest> {
    let WaitingMessage::Text(text, memory) = message else {
        return Err(Problem::new(ErrorCode::InvalidMessage, "messages must be text").into());
    };
    let bytes = text.len();
    let message = parse_create_message(JsonBody::parse_text(text, user).await?)?;
    if app.is_shutting_down() {
        return Err(Problem::shutting_down().into());
    }
    let request = match message {
        CreateMessage::Prewarm(request) => return Ok(prewarm(app, user, request, bytes).await?),
        CreateMessage::Generate(request) => request,
    };
    let previous_id = request.previous_response_id.clone();
    let request = match socket.prewarmed.filter(|prewarmed| previous_id.as_ref() == Some(&prewarmed.id)) {
        Some(prewarmed) => prewarmed.prepend_to(request),
        None => request,
    };
    let previous = match &request.previous_response_id {
        Some(id) if socket.remembered.contains(id) => PreviousResponse::OfConnection,
        Some(_) | None => PreviousResponse::Stored,
    };
    let started = async {
        let mcp_credentials = read_mcp_credentials(app, socket.headers, &request)?;
        let base = NewRun { mcp_credentials, ..NewRun::default() };
        let (resolved, _echo) = resolve_response(app, user, request, previous, base).await?;
        let start = start_of_response(&app.gateway, user, &resolved, 0).await?;
        let response_id = ResponsesProjection::response_id(&resolved.run, resolved.segment);
        Ok::<_, Problem>((start, response_id))
    };
    match started.await {
        Ok((start, response_id)) => {
            drop(memory);
            let turn = ResponseTurn::new(app, user, start, response_id, previous_id);
            Ok(StartedTurn::Response(Box::new(turn)))
        }
        Err(problem) => Err(RefusedRequest { problem, previous_id }),
    }
}

/// Checks a request that generates nothing, and keeps its input. The socket holds it, so it must be as small as one that is
/// logged.
async fn prewarm(
    app: &App,
    user: &UserId,
    request: ResponsesRequest,
    message_bytes: usize,
) -> Result<StartedTurn, Problem> {
    if message_bytes > REQUEST_BYTES_MAX {
        return Err(Rejection::from(StartError::TooLarge(REQUEST_BYTES_MAX)).into());
    }
    let agent =
        request.model.clone().ok_or_else(|| Problem::invalid_field("model", "the name of an agent is required"))?;
    check_agent_for(&app.gateway, user, &agent).await?;
    let id = TaskId::from_uuid(Uuid::now_v7());
    let echo = Value::Object(request.request_echo.clone());
    let pending = PendingResponse {
        agent: &agent,
        requested_at: app.gateway.engine.ports().clock.now(),
        status: PendingStatus::InProgress,
        request_echo: Some(&echo),
    };
    let events = ResponsesProjection::empty_events(&id, pending);
    Ok(StartedTurn::Prewarmed(PrewarmedInput::new(ResponsesProjection::response_id(&id, 1), request), events))
}

async fn next_output(turn: Option<&mut ResponseTurn>) -> Result<TurnOutput, StoreError> {
    match turn {
        Some(turn) => turn.next().await,
        None => pending().await,
    }
}
