//! What a tool is given and what comes of it.

use crate::content::ContentPart;
use crate::definition::ToolExecutor;
use crate::error::{ErrorCode, ErrorInfo};
use crate::id::{CallId, TaskId, ThreadId, UserId};
use crate::item::Block;
use crate::json::JsonObject;
use crate::seq::Millis;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

/// One call of a tool that the server runs.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolRequest {
    /// For whom.
    pub user: UserId,
    /// In which thread.
    pub thread: ThreadId,
    /// In which run.
    pub run: TaskId,
    /// For which task.
    pub task: TaskId,
    /// The call; also its idempotency key.
    pub call_id: CallId,
    /// Which try, from 1.
    pub attempt: u32,
    /// The tool.
    pub name: String,
    /// The arguments, a JSON text that is whole.
    pub arguments: String,
    /// When it must have ended.
    pub deadline: Millis,
    /// Who does it.
    pub executor: Arc<ToolExecutor>,
    /// How much it may give.
    pub output_bytes_max: usize,
}

/// What a tool sends back. The last one is `End`; a stream that ends without it has failed.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolEvent {
    /// How far it is.
    Progress(ProgressUpdate),
    /// The shared state changed.
    State(StateChange),
    /// Something for the front end.
    Custom {
        /// The sender's name for it.
        name: String,
        /// Anything.
        value: Value,
    },
    /// It ended.
    End(ToolOutput),
}

/// How far a tool is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProgressUpdate {
    /// In words.
    pub message: Option<String>,
    /// In numbers.
    pub progress: Option<f64>,
    /// Of how much.
    pub total: Option<f64>,
}

/// How a tool changes the thread's shared state.
#[derive(Clone, Debug, PartialEq)]
pub enum StateChange {
    /// This is all of it.
    Snapshot(Value),
    /// RFC 6902 operations.
    Delta(Vec<Value>),
}

/// What a tool gave: `message_content` for the model, `block_list` for people.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolOutput {
    /// What the model reads.
    pub message_content: Vec<ContentPart>,
    /// What people see.
    pub block_list: Vec<Block>,
    /// A short form for people.
    pub summary: Option<String>,
    /// Something for the front end alone.
    pub artifact: Option<Value>,
    /// How the front end may show it.
    pub ui_hints: Option<JsonObject>,
    /// What went wrong. With it, the result is `failed`.
    pub error: Option<ErrorInfo>,
}

impl ToolOutput {
    /// The tool could not do it. The model reads why.
    #[must_use]
    pub fn failed(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::from_error(ErrorInfo::new(code, message))
    }

    /// A failure that the model reads as its message.
    #[must_use]
    pub fn from_error(error: ErrorInfo) -> Self {
        Self { message_content: vec![ContentPart::text(&error.message)], error: Some(error), ..Self::default() }
    }
}
