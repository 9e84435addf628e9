//! What a caller may ask of a thread. Every command is first a durable row of the thread's inbox, then an input of the
//! run loop; the append that answers it consumes the row.

use crate::content::ContentPart;
use crate::error::ErrorInfo;
use crate::event::{ApprovalDecision, CancelMode, ClientIds, ClientTool, DisplayMode, Initiator};
use crate::history::{HistoryEntry, PriorHistory};
use crate::id::{ApprovalKey, CallId, TaskId};
use crate::json::JsonObject;
use crate::model_settings::ModelSettings;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One thing asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Command {
    /// Begin a run.
    Start(Box<StartCommand>),
    /// Stop a run, or a sub-agent of it.
    Cancel(CancelCommand),
    /// Say something more while a run goes on.
    Steer(SteerCommand),
    /// Answer what a run waits for.
    Answer(AnswerCommand),
}

/// Begin a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StartCommand {
    /// The run's name, given when the request came in.
    pub task_id: TaskId,
    /// The agent, or `provider/model`.
    pub agent: String,
    /// What the user says.
    pub input: Vec<ContentPart>,
    /// The run after which to go on.
    pub previous: Option<TaskId>,
    /// Tools that the caller will run itself.
    pub tools: Vec<ClientTool>,
    /// The caller's own notes.
    pub metadata: JsonObject,
    /// How much a front end shows.
    pub display_mode: DisplayMode,
    /// The names under which a client of another protocol knows it.
    pub client: Option<ClientIds>,
    /// Where its thread came from, where that was not nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Value>,
    /// What was said before it that the thread's log does not have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "before")]
    pub prior_history: Option<PriorHistory>,
    /// What the caller asks of the model.
    #[serde(default, skip_serializing_if = "ModelSettings::is_empty")]
    #[serde(rename = "wishes")]
    pub model_settings: ModelSettings,
    /// What the caller's protocol shows back of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "echo")]
    pub request_echo: Option<Value>,
    /// What a hook made of the past. Never a caller's to say.
    #[serde(skip)]
    pub rewritten_history: Option<Vec<HistoryEntry>>,
    /// Why it ends as soon as it begins: its hook could not be asked.
    #[serde(skip)]
    pub hook_error: Option<ErrorInfo>,
}

/// Stop a run, or a sub-agent of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelCommand {
    /// Which.
    pub task_id: TaskId,
    /// How.
    pub mode: CancelMode,
}

/// Say something more while a run goes on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SteerCommand {
    /// Which run.
    pub task_id: TaskId,
    /// What the user says.
    pub input: Vec<ContentPart>,
    /// The run that it begins, when that one has ended before it could be heard.
    #[serde(rename = "otherwise")]
    pub fallback_task_id: TaskId,
}

/// Answer what a run waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnswerCommand {
    /// Which run.
    pub task_id: TaskId,
    /// What is answered.
    #[serde(rename = "to")]
    pub body: AnswerBody,
    /// What the caller's protocol shows back of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "echo")]
    pub request_echo: Option<Value>,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AnswerBody {
    /// A question to a person.
    Approval {
        /// The question.
        key: ApprovalKey,
        /// The answer.
        decision: ApprovalDecision,
        /// Whose: a person's, or the clock's when nobody answered in time.
        by: Initiator,
    },
    /// Calls of tools that the client runs: all that one request brings, so that all of it counts or nothing.
    ClientTools {
        /// What they gave.
        results: Vec<ClientToolResult>,
    },
}

/// What a tool gave that the client runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientToolResult {
    /// The call.
    pub call_id: CallId,
    /// What the model reads.
    pub content: Vec<ContentPart>,
    /// What went wrong.
    pub error: Option<ErrorInfo>,
}

impl Command {
    /// The run that it is about.
    #[must_use]
    pub fn task_id(&self) -> &TaskId {
        match self {
            Self::Start(start) => &start.task_id,
            Self::Cancel(cancel) => &cancel.task_id,
            Self::Steer(steer) => &steer.task_id,
            Self::Answer(answer) => &answer.task_id,
        }
    }
}
