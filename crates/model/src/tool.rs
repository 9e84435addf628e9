//! A tool call: its request and its events.

use crate::content::ContentPart;
use crate::definition::{DeclaredParameters, ToolExecutor};
use crate::error::{ErrorCode, ErrorInfo};
use crate::id::{CallId, TaskId, ThreadId, UserId};
use crate::item::Block;
use crate::json::JsonObject;
use crate::question::{InputRequired, ToolAnswers, ToolQuestion};
use crate::seq::Millis;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

/// A call of a tool that the server runs.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolRequest {
    pub user: UserId,
    pub thread: ThreadId,
    pub run: TaskId,
    pub task: TaskId,
    /// Also the idempotency key.
    pub call_id: CallId,
    /// Counted from 1.
    pub attempt: u32,
    pub name: String,
    /// A complete JSON text.
    pub arguments: String,
    pub deadline: Millis,
    pub executor: Arc<ToolExecutor>,
    pub parameters: DeclaredParameters,
    pub output_bytes_max: usize,
    /// The answers to what the tool asked when it was called before.
    pub answers: Option<ToolAnswers>,
}

/// An event of a tool's stream. The last one is `End`, `InputRequired` or `Lost`; a stream that ends without any has failed.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolEvent {
    Progress(ProgressUpdate),
    State(StateChange),
    /// An application-defined event, opaque to the server.
    Custom {
        name: String,
        value: Value,
    },
    /// A piece of the result, which people see at once.
    Piece {
        piece: ResultPiece,
        place: PiecePlace,
    },
    /// The call waits until people have answered. At most one question of a call is open.
    Question(ToolQuestion),
    /// The open question needs no answer any more.
    QuestionWithdrawn,
    /// The call has ended with questions: the tool is called again with the answers.
    InputRequired(InputRequired),
    End(ToolOutput),
    /// Whatever ran the tool was lost, and nobody knows what it did. The tool's rule for a crash decides.
    Lost(ErrorInfo),
}

/// What a tool has produced of its result so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResultPiece {
    Text(String),
    /// An image. A partial one is a preview, which the next image of the block replaces.
    Image {
        url: String,
        partial: Option<u32>,
    },
}

/// Which block of the result a piece belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PiecePlace {
    /// The block of the piece before it, if that has the same kind and is not complete.
    #[default]
    OpenBlock,
    NewBlock,
}

impl ResultPiece {
    pub const fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Image { url, .. } => url.len(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProgressUpdate {
    pub message: Option<String>,
    pub progress: Option<f64>,
    pub total: Option<f64>,
}

/// A change of the thread's shared state.
#[derive(Clone, Debug, PartialEq)]
pub enum StateChange {
    /// Replaces the state.
    Snapshot(Value),
    /// RFC 6902 operations.
    Delta(Vec<Value>),
}

/// The output of a tool: `message_content` for the model, `block_list` for people. After pieces, these are the first blocks, and
/// what the model reads if there is no `message_content`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolOutput {
    pub message_content: Vec<ContentPart>,
    pub block_list: Vec<Block>,
    /// A short form for people.
    pub summary: Option<String>,
    /// Data for the front end alone.
    pub artifact: Option<Value>,
    /// How the front end may present it.
    pub ui_hints: Option<JsonObject>,
    /// If set, the result is `failed`.
    pub error: Option<ErrorInfo>,
}

impl ToolOutput {
    /// The output of a tool that failed, with the error for the model.
    pub fn failed(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::from_error(ErrorInfo::new(code, message))
    }

    /// A failure that the model reads as its message.
    pub fn from_error(error: ErrorInfo) -> Self {
        Self { message_content: vec![ContentPart::text(&error.message)], error: Some(error), ..Self::default() }
    }
}
