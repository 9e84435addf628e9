//! The task of one socket: executes messages, sends output, and decides when to close.

use super::SocketParts;
use super::client_message::{error_event, parse_client_message};
use super::close_reason::CloseReason;
use super::connection::{WsConnection, WsError, WsIncoming};
use crate::app::App;
use crate::auth::Caller;
use crate::json_body::JsonBody;
use crate::listen::ConnectionHandle;
use crate::problem::Problem;
use crate::viewer_routes::share_read_only;
use bytes::Bytes;
use gateway::attachments::{BlobUrlSigner, BlobUrls};
use gateway::blocks_session::{self, BlocksSession, SessionOutput};
use gateway::body_budget::BodyReservation;
use gateway::storage_alarm::StorageAlarm;
use gateway::stream_start::blob_url_signer;
use model::UserId;
use model::error::ErrorCode;
use protocol::blocks::{BlocksMessage, BlocksResume, BlocksStop};
use std::future::pending;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

pub(super) const MISSED_PONGS_MAX: u32 = 2;

const PONG: &str = r#"{"type":"pong"}"#;

pub(crate) struct BlocksSocket {
    app: App,
    caller: Caller,
    connection: WsConnection,
    handle: Option<ConnectionHandle>,
    session: Option<BlocksSession>,
    url_signer: Option<BlobUrlSigner>,
    storage_alarm: StorageAlarm,
    missed_pongs: u32,
}

enum SocketEvent {
    Incoming(Result<WsIncoming, WsError>),
    Outgoing(Result<SessionOutput, Problem>),
    Tick,
    Recheck,
    /// The disk is full, or has room again.
    StorageNotice(&'static str),
    Shutdown,
}

impl BlocksSocket {
    pub(super) fn new(SocketParts { app, caller, connection, handle, blob_urls, .. }: SocketParts) -> Self {
        let url_signer = (blob_urls == BlobUrls::Signed).then(|| blob_url_signer(&app.gateway, &caller.user));
        let storage_alarm = StorageAlarm::new(&app.gateway);
        Self { app, caller, connection, handle, session: None, url_signer, storage_alarm, missed_pongs: 0 }
    }

    /// Returns when the socket is closed.
    pub(crate) async fn run(mut self) {
        let heartbeat = self.app.limits.heartbeat_interval;
        let mut ticks = interval_at(Instant::now() + heartbeat, heartbeat);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let recheck_interval = self.caller.recheck_interval();
        let close = loop {
            let event = {
                let Self { app, caller, connection, session, handle, storage_alarm, .. } = &mut self;
                let handle = handle.as_mut().filter(|_| session.is_none());
                tokio::select! {
                    message = connection.next() => SocketEvent::Incoming(message),
                    output = next_output(app, &caller.user, session.as_mut()) => SocketEvent::Outgoing(output),
                    _ = ticks.tick() => SocketEvent::Tick,
                    () = recheck_due(recheck_interval) => SocketEvent::Recheck,
                    notice = storage_alarm.next_notice(&app.gateway) => SocketEvent::StorageNotice(notice),
                    () = wait_for_shutdown(handle) => SocketEvent::Shutdown,
                }
            };
            match self.handle_event(event).await {
                Ok(None) => {}
                Ok(Some(close)) => break Some(close),
                Err(error) => break CloseReason::of_error(&error),
            }
        };
        if let Some(CloseReason { code, reason }) = close {
            self.connection.close(code, reason).await;
        }
    }

    async fn handle_event(&mut self, event: SocketEvent) -> Result<Option<CloseReason>, WsError> {
        if !self.caller.is_still_allowed() {
            return Ok(Some(CloseReason::REVOKED));
        }
        match event {
            SocketEvent::Incoming(message) => self.handle_incoming(message?).await,
            SocketEvent::Outgoing(Ok(SessionOutput::Lines(lines))) => self.send_lines(lines).await,
            SocketEvent::Outgoing(Ok(SessionOutput::Ended)) if self.app.is_shutting_down() => {
                Ok(Some(CloseReason::RESTARTING))
            }
            // A frozen share has been sent completely.
            SocketEvent::Outgoing(Ok(SessionOutput::Ended))
                if self.caller.share().is_some_and(|share| share.frozen_at().is_some()) =>
            {
                self.session = None;
                Ok(None)
            }
            SocketEvent::Outgoing(Ok(SessionOutput::Ended)) => self.drop_session(Problem::not_found()).await,
            SocketEvent::Outgoing(Err(problem)) => self.drop_session(problem).await,
            SocketEvent::Shutdown => Ok(Some(CloseReason::GOING_AWAY)),
            SocketEvent::Recheck => Ok(None),
            SocketEvent::StorageNotice(notice) => self.connection.ping(notice).await.map(|()| None),
            SocketEvent::Tick if !self.caller.credential.is_valid() => Ok(Some(CloseReason::REVOKED)),
            SocketEvent::Tick if self.missed_pongs >= MISSED_PONGS_MAX => Ok(Some(CloseReason::PING_TIMEOUT)),
            SocketEvent::Tick => {
                self.missed_pongs += 1;
                let payload = self.storage_alarm.heartbeat().unwrap_or_default();
                self.connection.ping(payload).await.map(|()| None)
            }
        }
    }

    async fn send_lines(&mut self, lines: Bytes) -> Result<Option<CloseReason>, WsError> {
        let lines = match &self.url_signer {
            Some(signer) => signer.sign_urls(lines).await,
            None => Ok(lines),
        };
        match lines {
            Ok(lines) => self.connection.send_lines(lines).await.map(|()| None),
            Err(error) => self.drop_session(error.into()).await,
        }
    }

    async fn handle_incoming(&mut self, message: WsIncoming) -> Result<Option<CloseReason>, WsError> {
        self.missed_pongs = 0;
        match message {
            WsIncoming::Text(text, memory) => {
                if !self.caller.credential.is_valid() {
                    return Ok(Some(CloseReason::REVOKED));
                }
                match self.execute(text, memory).await {
                    Ok(None) => {}
                    Ok(Some(reply)) => self.connection.send_text(reply).await?,
                    Err(problem) => self.send_error(problem).await?,
                }
            }
            WsIncoming::Binary => {
                let problem = Problem::new(ErrorCode::InvalidMessage, "messages must be text");
                self.send_error(problem).await?;
            }
            WsIncoming::KeepAlive => {}
            WsIncoming::Close => return Ok(Some(CloseReason::NORMAL)),
        }
        Ok(None)
    }

    /// Most messages are answered by the output that follows; the result is an immediate reply.
    async fn execute(&mut self, text: Bytes, _memory: BodyReservation) -> Result<Option<&'static str>, Problem> {
        let Self { app, caller, session, .. } = self;
        let (gateway, user) = (&app.gateway, &caller.user);
        app.request_limits.count(user).await?;
        let message = parse_client_message(JsonBody::parse_text(text, user).await?)?;
        if caller.share().is_some() && !message.is_read_only() {
            return Err(share_read_only());
        }
        match message {
            BlocksMessage::Chat(_) if app.is_shutting_down() => return Err(Problem::shutting_down()),
            BlocksMessage::Chat(chat) => {
                Box::pin(blocks_session::send_chat(gateway, user, session, chat)).await?;
            }
            BlocksMessage::Resume(BlocksResume { session_id, after }) => {
                blocks_session::resume_session(gateway, user, session, session_id, after).await?;
            }
            BlocksMessage::Stop(BlocksStop { session_id }) => {
                blocks_session::stop_session(gateway, user, session.as_mut(), session_id).await?;
            }
            BlocksMessage::ApprovalResponse(response) => {
                let current = session.as_ref().map(|session| session.thread.clone());
                blocks_session::decide_session_approval(gateway, user, current, response).await?;
            }
            BlocksMessage::Ping => return Ok(Some(PONG)),
        }
        Ok(None)
    }

    /// Ends the session and keeps the socket open.
    async fn drop_session(&mut self, problem: Problem) -> Result<Option<CloseReason>, WsError> {
        self.send_error(problem).await?;
        self.session = None;
        Ok(None)
    }

    async fn send_error(&mut self, problem: Problem) -> Result<(), WsError> {
        let session = self.session.as_ref().map(|session| session.name.as_str());
        let error = error_event(problem, session);
        self.connection.send_text(&error).await
    }
}

/// Returns when the credential has to be checked again.
async fn recheck_due(every: Option<Duration>) {
    match every {
        Some(every) => tokio::time::sleep(every).await,
        None => pending().await,
    }
}

async fn next_output(app: &App, user: &UserId, session: Option<&mut BlocksSession>) -> Result<SessionOutput, Problem> {
    match session {
        Some(session) => Ok(session.next(&app.gateway, user).await?),
        None => pending().await,
    }
}

/// Never returns for a socket with a session, which follows its run through the shutdown grace period.
pub(super) async fn wait_for_shutdown(handle: Option<&mut ConnectionHandle>) {
    match handle {
        Some(handle) => handle.shutdown.started().await,
        None => pending().await,
    }
}
