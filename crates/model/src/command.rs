//! What a caller may ask of a thread. Every command is first a durable row of the thread's inbox, then an input of the
//! run loop; the append that answers it consumes the row.

use crate::block::{Object, Part};
use crate::event::{Actor, CancelMode, ClientNames, ClientTool, Decision, DisplayMode, ErrorInfo};
use crate::history::{Before, Entry};
use crate::id::{ApprovalKey, CallId, TaskId};
use crate::wish::Wishes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One thing asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Command {
    /// Begin a run.
    Start(Box<Start>),
    /// Stop a run, or a sub-agent of it.
    Cancel(Cancel),
    /// Say something more while a run goes on.
    Steer(Steer),
    /// Answer what a run waits for.
    Answer(Answer),
}

/// Begin a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// The run's name, given when the request came in.
    pub task_id: TaskId,
    /// The agent, or `provider/model`.
    pub agent: String,
    /// What the user says.
    pub input: Vec<Part>,
    /// The run after which to go on.
    pub previous: Option<TaskId>,
    /// Tools that the caller will run itself.
    pub tools: Vec<ClientTool>,
    /// The caller's own notes.
    pub metadata: Object,
    /// How much a front end shows.
    pub display_mode: DisplayMode,
    /// The names under which a client of another protocol knows it.
    pub client: Option<ClientNames>,
    /// Where its thread came from, where that was not nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Value>,
    /// What was said before it that the thread's log does not have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Before>,
    /// What the caller asks of the model.
    #[serde(default, skip_serializing_if = "Wishes::is_empty")]
    pub wishes: Wishes,
    /// What the caller's protocol shows back of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub echo: Option<Value>,
    /// What a hook made of the past. Never a caller's to say.
    #[serde(skip)]
    pub history: Option<Vec<Entry>>,
    /// Why it ends as soon as it begins: its hook could not be asked.
    #[serde(skip)]
    pub refused: Option<ErrorInfo>,
}

/// Stop a run, or a sub-agent of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancel {
    /// Which.
    pub task_id: TaskId,
    /// How.
    pub mode: CancelMode,
}

/// Say something more while a run goes on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Steer {
    /// Which run.
    pub task_id: TaskId,
    /// What the user says.
    pub input: Vec<Part>,
    /// The run that it begins, when that one has ended before it could be heard.
    pub otherwise: TaskId,
}

/// Answer what a run waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Which run.
    pub task_id: TaskId,
    /// What is answered.
    pub to: AnswerTo,
    /// What the caller's protocol shows back of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub echo: Option<Value>,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AnswerTo {
    /// A question to a person.
    Approval {
        /// The question.
        key: ApprovalKey,
        /// The answer.
        decision: Decision,
        /// Whose: a person's, or the clock's when nobody answered in time.
        by: Actor,
    },
    /// Calls of tools that the client runs: all that one request brings, so that all of it counts or nothing.
    ClientTools {
        /// What they gave.
        results: Vec<ClientResult>,
    },
}

/// What a tool gave that the client runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientResult {
    /// The call.
    pub call_id: CallId,
    /// What the model reads.
    pub content: Vec<Part>,
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
