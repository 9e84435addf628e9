//! Models, tools and the clock: what the run loop reaches for.

use super::{BoxFuture, BoxStream};
use crate::content::ContentPart;
use crate::definition::InputHook;
use crate::error::ErrorInfo;
use crate::history::HistoryEntry;
use crate::id::{TaskId, ThreadId, UserId};
use crate::model_turn::{ModelEvent, ModelRequest};
use crate::seq::Millis;
use crate::tool::{ToolEvent, ToolRequest};
use serde::{Deserialize, Serialize};

/// Asks models.
///
/// 1. The stream's last event is `End` or `Failed`; one that just ends counts as failed.
/// 2. Dropping the stream stops the turn: no more is read, nothing is left behind.
/// 3. Nothing is read ahead of the consumer beyond a bounded buffer.
pub trait ModelClient: Send + Sync {
    /// Begins a turn.
    fn stream_turn(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent>;
}

/// Runs tools.
///
/// 1. The stream's last event is `End`; one that just ends counts as failed.
/// 2. Dropping the stream stops the tool.
/// 3. Nothing happens before the stream is polled: the engine makes the start durable first (law 10).
pub trait ToolRunner: Send + Sync {
    /// Runs a tool once.
    fn call_tool(&self, request: ToolRequest) -> BoxStream<'static, ToolEvent>;
}

/// Asks those who may rewrite what is said before the model sees it.
///
/// 1. Nothing comes of it but the answer: it may be asked again after a crash.
/// 2. Dropping the future stops it.
pub trait HookRunner: Send + Sync {
    /// Asks one.
    fn run_hook(&self, hook: &InputHook, request: HookRequest) -> BoxFuture<'static, Result<HookResponse, ErrorInfo>>;
}

/// What a hook may rewrite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HookRequest {
    /// Whose run it is.
    pub user: UserId,
    /// In which thread.
    pub thread: ThreadId,
    /// The run that is about to begin.
    pub run: TaskId,
    /// The agent whose hook it is.
    pub agent: String,
    /// What was said and done so far, as the model would be given it.
    pub history: Vec<HistoryEntry>,
    /// What is said now.
    pub input: Vec<ContentPart>,
}

/// What a hook made of it. What it does not name stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HookResponse {
    /// What the model is given of the past.
    pub history: Option<Vec<HistoryEntry>>,
    /// What is said now; this is what is logged.
    pub input: Option<Vec<ContentPart>>,
}

/// Reads the files that people point at.
///
/// 1. Nothing comes of it but the answer: it may be asked again after a crash.
/// 2. It always answers, in bounded time, and what it says when it cannot is for people to read.
/// 3. Dropping the future stops it.
pub trait FileReader: Send + Sync {
    /// Reads one.
    fn read_file(&self, request: FileReadRequest) -> BoxFuture<'static, FileReadOutcome>;
}

/// A file that is to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReadRequest {
    /// Whose run it is.
    pub user: UserId,
    /// In which thread.
    pub thread: ThreadId,
    /// Where the file is.
    pub url: String,
}

/// What became of a file that was to be read.
#[derive(Clone, Debug, PartialEq)]
pub enum FileReadOutcome {
    /// It was read.
    Read {
        /// What the model reads of it; it fits a record.
        content: Vec<ContentPart>,
        /// What there is to say about it.
        message: Option<String>,
    },
    /// It could not be; the run goes on.
    Failed {
        /// Why not.
        message: String,
    },
}

/// Tells the time. Only expiry depends on it, never order.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970.
    fn now(&self) -> Millis;
}
