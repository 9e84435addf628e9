//! The task's life and its steps.

use crate::content::ContentPart;
use crate::error::ErrorInfo;
use crate::id::{ItemId, TaskId, ThreadId};
use crate::item::Role;
use crate::json::JsonObject;
use crate::seq::Millis;
use crate::usage::Usage;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `task.created`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskCreated {
    /// The new task.
    pub task_id: TaskId,
    /// What it is to do.
    pub task: Box<TaskSpec>,
}

/// What a task is to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskSpec {
    /// The thread that it belongs to.
    pub thread_id: ThreadId,
    /// The agent that answers.
    pub agent: String,
    /// The model that the agent asks first.
    pub model: String,
    /// What was said.
    pub input: Vec<InputMessage>,
    /// The task whose call asked for this one.
    #[serde(default)]
    pub parent_task_id: Option<TaskId>,
    /// The run after which it goes on, where that is not the thread's last.
    #[serde(default)]
    pub previous: Option<TaskId>,
    /// Tools that the caller declared and will run itself.
    #[serde(default)]
    pub tools: Vec<ClientTool>,
    /// The caller's own notes.
    #[serde(default)]
    pub metadata: JsonObject,
    /// How much a front end shows: `agent` (everything) or `chat`.
    #[serde(default)]
    pub display_mode: DisplayMode,
    /// Where it came from, when it was not asked for here.
    #[serde(default)]
    pub origin: Option<Value>,
    /// The names under which a client of another protocol knows it.
    #[serde(default)]
    pub client: Option<ClientIds>,
}

/// How much a front end shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DisplayMode {
    /// Everything.
    #[default]
    Agent,
    /// The conversation alone.
    Chat,
}

/// One message of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InputMessage {
    /// `msg_…`
    pub id: ItemId,
    /// Who said it.
    pub role: Role,
    /// What.
    pub content: Vec<ContentPart>,
}

/// A tool that the caller declared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientTool {
    /// Its name.
    pub name: String,
    /// What it is for.
    #[serde(default)]
    pub description: String,
    /// The JSON Schema of its arguments.
    #[serde(default)]
    pub parameters: Value,
}

/// The names under which a client of another protocol knows a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientIds {
    /// The protocol.
    pub protocol: String,
    /// Its name for the thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// Its name for the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
}

/// An event that says only that it happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskStarted {
    /// The task.
    pub task_id: TaskId,
}

/// `task.step.started`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepStarted {
    /// The task.
    pub task_id: TaskId,
    /// The turn, from 1.
    pub step: u32,
    /// Which try of it, from 1.
    pub attempt: u32,
}

/// `task.step.done`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepDone {
    /// The task.
    pub task_id: TaskId,
    /// The turn.
    pub step: u32,
    /// The model that answered.
    pub model: String,
    /// How it ended.
    pub stop_reason: StopReason,
    /// What it cost.
    pub usage: Usage,
    /// The provider's service tier.
    #[serde(default)]
    pub service_tier: Option<String>,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// Whole: the model had said what it wanted.
    Stop,
    /// Whole: it wants tools.
    ToolCalls,
    /// Limited: out of tokens.
    MaxTokens,
    /// Limited: the provider's filter.
    ContentFilter,
    /// Cut: the provider failed.
    Error,
    /// Cut: somebody stopped it.
    Cancelled,
    /// Cut: the process died.
    Lost,
}

impl StopReason {
    /// Did the model say all that it wanted?
    #[must_use]
    pub const fn is_complete(self) -> bool {
        matches!(self, Self::Stop | Self::ToolCalls)
    }

    /// Was it broken off? Its items count as incomplete, whatever they said themselves.
    #[must_use]
    pub const fn is_interrupted(self) -> bool {
        matches!(self, Self::Error | Self::Cancelled | Self::Lost)
    }
}

/// `task.retrying`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRetrying {
    /// The task.
    pub task_id: TaskId,
    /// The turn.
    pub step: u32,
    /// The try that comes.
    pub attempt: u32,
    /// It does not begin before.
    pub not_before: Millis,
    /// What went wrong.
    pub error: ErrorInfo,
}

/// `task.agent.updated`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentUpdated {
    /// The task.
    pub task_id: TaskId,
    /// Who goes on.
    pub agent: String,
    /// Who handed over.
    pub from: String,
}

/// `task.input.added`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InputAdded {
    /// The task.
    pub task_id: TaskId,
    /// What was said.
    pub input: Vec<InputMessage>,
}

/// `task.cancelling`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCancelling {
    /// The task.
    pub task_id: TaskId,
    /// How.
    pub mode: CancelMode,
    /// By whom.
    pub by: Initiator,
}

/// How a run is stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelMode {
    /// Now; what is open is cut.
    #[default]
    Immediate,
    /// When every task has finished its turn.
    AfterTurn,
}

/// Who did something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Initiator {
    /// A person.
    #[default]
    User,
    /// A clock.
    Timeout,
    /// Headwater itself.
    System,
    /// A cancel.
    Cancel,
}

/// `task.recovered`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRecovered {
    /// The task.
    pub task_id: TaskId,
    /// The turn that is done again.
    pub step: u32,
    /// The try that comes.
    pub attempt: u32,
    /// The items of the lost attempt.
    pub cut: Vec<ItemId>,
}

/// `task.completed`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskCompleted {
    /// The task.
    pub task_id: TaskId,
    /// The sum of its steps, descendants included.
    pub usage: Usage,
    /// What that cost, where prices are known.
    #[serde(default)]
    pub cost: Option<f64>,
    /// From `created` on.
    pub duration_ms: u64,
}

/// `task.incomplete`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskIncomplete {
    /// The task.
    pub task_id: TaskId,
    /// Which limit.
    pub reason: LimitReason,
    /// The sum of its steps, descendants included.
    pub usage: Usage,
    /// From `created` on.
    pub duration_ms: u64,
}

/// Which limit ended a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitReason {
    /// Too many turns.
    MaxSteps,
    /// The model ran out of tokens.
    MaxTokens,
    /// Tokens or money of the run, the user or the day.
    Budget,
    /// Time.
    Deadline,
    /// The provider's filter.
    ContentFilter,
}

/// `task.failed`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskFailed {
    /// The task.
    pub task_id: TaskId,
    /// What went wrong.
    pub error: ErrorInfo,
    /// The sum of its steps, descendants included.
    pub usage: Usage,
    /// From `created` on.
    pub duration_ms: u64,
}

/// `task.cancelled`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskCancelled {
    /// The task.
    pub task_id: TaskId,
    /// How.
    pub mode: CancelMode,
    /// By whom.
    pub by: Initiator,
    /// The sum of its steps, descendants included.
    pub usage: Usage,
    /// From `created` on.
    pub duration_ms: u64,
}
