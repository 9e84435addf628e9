//! What a connection's transport and its calls share.

use model::error::ErrorInfo;
use model::event::Question;
use model::tool::ProgressUpdate;
use rmcp::model::{ProgressToken, RequestId};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::{mpsc, watch};

/// A lock that a panic elsewhere does not take away.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The newest progress of a call; those that nobody has read are overwritten.
pub(crate) type ProgressSender = watch::Sender<Option<ProgressUpdate>>;

/// Travels with a request down to the transport, which sends the arguments and routes the progress.
#[derive(Clone)]
pub(crate) struct CallRoute {
    /// The arguments as the model wrote them: a parsed number could be another one.
    pub(crate) arguments: Arc<str>,
    pub(crate) progress: Arc<ProgressSender>,
    /// Where the questions of the server in the middle of this call go.
    pub(crate) elicitations: ElicitationSender,
}

/// Travels with a request down to the transport, which leaves here why there is no response.
#[derive(Clone, Default)]
pub(crate) struct FailureSlot(Arc<OnceLock<RequestFailure>>);

impl FailureSlot {
    pub(crate) fn set(&self, failure: RequestFailure) {
        // The first failure is the cause of others.
        drop(self.0.set(failure));
    }

    pub(crate) fn get(&self) -> Option<&RequestFailure> {
        self.0.get()
    }
}

/// Why a request has no response.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RequestFailure {
    pub(crate) error: ErrorInfo,
    pub(crate) fate: RequestFate,
}

/// What became of a request without a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestFate {
    /// The server has not acted on it.
    Refused,
    /// Nor has it, because the session of the connection has ended: a new one may do.
    SessionEnded,
    /// The server may have acted on it.
    Unknown,
}

impl RequestFailure {
    /// As the caller of a tool reads it.
    pub(crate) fn into_call_error(self) -> ErrorInfo {
        match self.fate {
            RequestFate::Refused | RequestFate::SessionEnded => self.error,
            RequestFate::Unknown => lost_call_error(self.error),
        }
    }
}

/// The error of a call whose connection failed before the response.
pub(crate) fn lost_call_error(reason: ErrorInfo) -> ErrorInfo {
    let end = if reason.message.ends_with(['.', '!', '?']) { "" } else { "." };
    let message = format!("{}{end} The call may have taken effect.", reason.message);
    ErrorInfo { message, ..reason }
}

/// What a server says about its questions in the middle of a call.
pub(crate) enum ElicitationEvent {
    Asked(Elicitation),
    /// The server does not wait for the answer any more.
    Withdrawn(RequestId),
}

pub(crate) type ElicitationSender = mpsc::Sender<ElicitationEvent>;

/// A question that the server waits for.
pub(crate) struct Elicitation {
    pub(crate) id: RequestId,
    pub(crate) question: Question,
}

pub(crate) struct ConnectionLink {
    routes: Mutex<HashMap<ProgressToken, Arc<ProgressSender>>>,
    /// Calls that run, for questions of the server.
    askers: Mutex<HashMap<ProgressToken, ElicitationSender>>,
    /// Where answers to requests of the server are written. Only a connection whose server may ask has it.
    answers: OnceLock<mpsc::Sender<Vec<u8>>>,
    /// Whether the server has asked in the middle of a call.
    has_asked: AtomicBool,
    has_new_tools: AtomicBool,
    has_session_ended: AtomicBool,
    /// Why the connection was closed.
    closed: watch::Sender<Option<ErrorInfo>>,
}

impl Default for ConnectionLink {
    fn default() -> Self {
        Self {
            routes: Mutex::default(),
            askers: Mutex::default(),
            answers: OnceLock::new(),
            has_asked: AtomicBool::new(false),
            has_new_tools: AtomicBool::new(false),
            has_session_ended: AtomicBool::new(false),
            closed: watch::Sender::new(None),
        }
    }
}

impl ConnectionLink {
    pub(crate) fn add_route(&self, token: ProgressToken, progress: Arc<ProgressSender>) {
        lock(&self.routes).insert(token, progress);
    }

    pub(crate) fn remove_route(&self, token: &ProgressToken) {
        lock(&self.routes).remove(token);
        lock(&self.askers).remove(token);
    }

    /// Lets the server ask people in the middle of calls; the answers are written here.
    pub(crate) fn allow_questions(&self, answers: mpsc::Sender<Vec<u8>>) {
        let _second = self.answers.set(answers);
    }

    pub(crate) fn takes_questions(&self) -> bool {
        self.answers.get().is_some()
    }

    pub(crate) fn add_asker(&self, token: ProgressToken, elicitations: ElicitationSender) {
        lock(&self.askers).insert(token, elicitations);
    }

    /// Whether the server has asked in the middle of a call: then it is called once at a time, because nothing says which of
    /// several calls asks.
    pub(crate) fn has_asked(&self) -> bool {
        self.has_asked.load(Ordering::Relaxed)
    }

    /// Passes a question to the call that asks it: `origin`, or else the only one that runs. The error says why the server gets
    /// no answer.
    pub(crate) fn ask(&self, elicitation: Elicitation, origin: Option<&ProgressToken>) -> Result<(), &'static str> {
        let askers = lock(&self.askers);
        if let Some(call) = origin.and_then(|origin| askers.get(origin)) {
            return call.try_send(ElicitationEvent::Asked(elicitation)).map_err(|_| "too many questions at once");
        }
        self.has_asked.store(true, Ordering::Relaxed);
        let mut calls = askers.values();
        match (calls.next(), calls.next()) {
            (Some(call), None) => {
                call.try_send(ElicitationEvent::Asked(elicitation)).map_err(|_| "too many questions at once")
            }
            (None, _) => Err("no call is running that could ask"),
            (Some(_), Some(_)) => Err("several calls are running, and nothing says which one asks: ask again later"),
        }
    }

    /// The server does not wait for the answer to a request of its own any more.
    pub(crate) fn withdraw_request(&self, id: &RequestId) {
        for call in lock(&self.askers).values() {
            let _full = call.try_send(ElicitationEvent::Withdrawn(id.clone()));
        }
    }

    /// Answers a request of the server. One that does not read is noticed elsewhere.
    pub(crate) fn answer_request(&self, id: &RequestId, result: &Value) {
        let Some(answers) = self.answers.get() else { return };
        let mut line = json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string().into_bytes();
        line.push(b'\n');
        let _full = answers.try_send(line);
    }

    /// Progress of a call that has ended is dropped.
    pub(crate) fn send_progress(&self, token: &ProgressToken, update: ProgressUpdate) {
        if let Some(progress) = lock(&self.routes).get(token) {
            progress.send_replace(Some(update));
        }
    }

    pub(crate) fn note_new_tools(&self) {
        self.has_new_tools.store(true, Ordering::Relaxed);
    }

    /// Whether the server has said that its tools changed, since the last call of this function.
    pub(crate) fn take_new_tools(&self) -> bool {
        self.has_new_tools.swap(false, Ordering::Relaxed)
    }

    /// The server knows the session of this connection no more; a new connection has another one.
    pub(crate) fn end_session(&self, reason: ErrorInfo) {
        self.has_session_ended.store(true, Ordering::Relaxed);
        self.close(reason);
    }

    pub(crate) fn has_session_ended(&self) -> bool {
        self.has_session_ended.load(Ordering::Relaxed)
    }

    /// The first reason stays.
    pub(crate) fn close(&self, reason: ErrorInfo) {
        self.closed.send_if_modified(|closed| {
            let is_first = closed.is_none();
            closed.get_or_insert(reason);
            is_first
        });
    }

    pub(crate) fn close_reason(&self) -> Option<ErrorInfo> {
        self.closed.borrow().clone()
    }

    /// Waits until the connection is closed.
    pub(crate) async fn closed(&self) -> ErrorInfo {
        let mut closed = self.closed.subscribe();
        loop {
            if let Some(reason) = closed.borrow_and_update().clone() {
                return reason;
            }
            if closed.changed().await.is_err() {
                // The sender is a field of `self`: it is there.
                std::future::pending::<()>().await;
            }
        }
    }
}
