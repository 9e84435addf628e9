//! One socket: what a client says, what it is shown, and when it is let go.

use super::Stay;
use super::line::{Broken, Heard, Line};
use super::message::{self, Said};
use super::session::{self, Next, Session};
use crate::app::App;
use crate::auth::Caller;
use crate::body::{Json, Room};
use crate::problem::Problem;
use crate::shares;
use axum::http::StatusCode;
use bytes::Bytes;
use std::future::pending;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

/// So many pings in a row may go unanswered.
const MISSED_MAX: u32 = 2;

const PONG: &str = r#"{"type":"pong"}"#;

/// Why a socket is closed, in the words of the protocol.
struct Close {
    code: CloseCode,
    reason: &'static str,
}

const NORMAL: Close = Close { code: CloseCode::Normal, reason: "" };
const GOING_AWAY: Close = Close { code: CloseCode::Away, reason: "the server stops" };
const RESTARTS: Close = Close { code: CloseCode::Restart, reason: "the server stops: come back and resume" };
const REVOKED: Close = Close { code: CloseCode::Library(4401), reason: "the key or the share was revoked" };
const SLOW: Close = Close { code: CloseCode::Library(4408), reason: "too slow: come back and resume" };
const SILENT: Close = Close { code: CloseCode::Library(4408), reason: "pings were not answered" };

pub(crate) struct Socket {
    app: App,
    caller: Caller,
    line: Line,
    stay: Option<Stay>,
    session: Option<Session>,
    /// Pings in a row that were not answered.
    missed: u32,
}

/// What happens next.
enum Happens {
    Said(Result<Heard, Broken>),
    Shown(Result<Next, Problem>),
    Tick,
    Look,
    Stop,
}

impl Socket {
    pub(crate) fn new(app: App, caller: Caller, line: Line, stay: Option<Stay>) -> Self {
        Self { app, caller, line, stay, session: None, missed: 0 }
    }

    /// Goes on until one side has had enough.
    pub(crate) async fn run(mut self) {
        let heartbeat = self.app.limits.heartbeat;
        let mut ticks = interval_at(Instant::now() + heartbeat, heartbeat);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let looks_every = self.caller.looks_every();
        let close = loop {
            let happens = {
                let Self { line, session, stay, .. } = &mut self;
                let stay = stay.as_mut().filter(|_| session.is_none());
                tokio::select! {
                    said = line.next() => Happens::Said(said),
                    shown = shown(session.as_mut()) => Happens::Shown(shown),
                    _ = ticks.tick() => Happens::Tick,
                    () = look(looks_every) => Happens::Look,
                    () = stopping(stay) => Happens::Stop,
                }
            };
            match self.answer(happens).await {
                Ok(None) => {}
                Ok(Some(close)) => break Some(close),
                Err(Broken::Gone) => break None,
                Err(Broken::Slow) => break Some(SLOW),
                Err(Broken::Rule(code)) => break Some(Close { code, reason: "" }),
            }
        };
        if let Some(Close { code, reason }) = close {
            self.line.close(code, reason).await;
        }
    }

    async fn answer(&mut self, happens: Happens) -> Result<Option<Close>, Broken> {
        if !self.caller.may_go_on() {
            return Ok(Some(REVOKED));
        }
        match happens {
            Happens::Said(message) => self.hear(message?).await,
            Happens::Shown(Ok(Next::Lines(lines))) => self.line.send_lines(lines).await.map(|()| None),
            Happens::Shown(Ok(Next::Over)) if self.app.is_stopping() => Ok(Some(RESTARTS)),
            // All has been shown that is.
            Happens::Shown(Ok(Next::Over)) if self.caller.share().is_some_and(|share| share.until().is_some()) => {
                self.session = None;
                Ok(None)
            }
            Happens::Shown(Ok(Next::Over)) => self.lose(Problem::not_found()).await,
            Happens::Shown(Err(problem)) => self.lose(problem).await,
            Happens::Stop => Ok(Some(GOING_AWAY)),
            Happens::Look => Ok(None),
            Happens::Tick if !self.caller.pass.is_good() => Ok(Some(REVOKED)),
            Happens::Tick if self.missed >= MISSED_MAX => Ok(Some(SILENT)),
            Happens::Tick => {
                self.missed += 1;
                self.line.ping().await.map(|()| None)
            }
        }
    }

    async fn hear(&mut self, heard: Heard) -> Result<Option<Close>, Broken> {
        self.missed = 0;
        match heard {
            Heard::Text(text, room) => {
                if !self.caller.pass.is_good() {
                    return Ok(Some(REVOKED));
                }
                match self.obey(text, room).await {
                    Ok(None) => {}
                    Ok(Some(reply)) => self.line.send_text(reply).await?,
                    Err(problem) => self.complain(problem).await?,
                }
            }
            Heard::Binary => {
                let problem = Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_message", "messages are text");
                self.complain(problem).await?;
            }
            Heard::Alive => {}
            Heard::Close => return Ok(Some(NORMAL)),
        }
        Ok(None)
    }

    /// Does what a client says. Most of it is answered by what is shown next.
    async fn obey(&mut self, text: Bytes, _large: Option<Room>) -> Result<Option<&'static str>, Problem> {
        let Self { app, caller, session, .. } = self;
        let said = Said::read(Json::read_text(text).await?)?;
        if caller.share().is_some() && !said.only_reads() {
            return Err(shares::read_only());
        }
        match said {
            Said::Chat(chat) => Box::pin(session::chat(app, caller, session, chat)).await?,
            Said::Resume(resume) => session::resume(app, caller, session, resume).await?,
            Said::Stop => {
                let thread = session.as_ref().map(|session| session.thread.clone());
                session::stop(app, caller, thread).await?;
            }
            Said::Decide(answer) => session::decide(app, caller, answer).await?,
            Said::Ping => return Ok(Some(PONG)),
        }
        Ok(None)
    }

    /// The session cannot be followed any more. The socket can.
    async fn lose(&mut self, problem: Problem) -> Result<Option<Close>, Broken> {
        self.complain(problem).await?;
        self.session = None;
        Ok(None)
    }

    async fn complain(&mut self, problem: Problem) -> Result<(), Broken> {
        let session = self.session.as_ref().map(|session| session.name.as_str());
        let error = message::error(problem, session).await;
        self.line.send_text(&error).await
    }
}

/// Time to see whether the other side may still be here, where that can end without a word.
async fn look(every: Option<Duration>) {
    match every {
        Some(every) => tokio::time::sleep(every).await,
        None => pending().await,
    }
}

async fn shown(session: Option<&mut Session>) -> Result<Next, Problem> {
    match session {
        Some(session) => session.next().await,
        None => pending().await,
    }
}

/// The server stops. Whoever follows a session is not asked here: it sees its run to the end that the server lets it have.
async fn stopping(stay: Option<&mut Stay>) {
    match stay {
        // An error is a listener that is gone, and with it everybody who could stop.
        Some(stay) => drop(stay.closing.wait_for(|closing| *closing).await),
        None => pending().await,
    }
}
