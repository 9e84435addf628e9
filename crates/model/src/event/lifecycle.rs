//! The task's lifecycle and its steps.
//!
//! In terminal events `usage` is the total of the task's steps, descendants included, and `duration_ms` is measured from
//! `task.created`.

use crate::content::ContentPart;
use crate::error::ErrorInfo;
use crate::id::{ItemId, TaskId, ThreadId};
use crate::item::Role;
use crate::json::ExactObject;
use crate::seq::Millis;
use crate::usage::Usage;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskCreated {
    pub task_id: TaskId,
    pub task: Box<TaskSpec>,
}

/// The request behind a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskSpec {
    pub thread_id: ThreadId,
    /// The agent that runs the task.
    pub agent: String,
    /// The agent's preferred model; later ones are fallbacks.
    pub model: String,
    pub input: Vec<InputMessage>,
    /// The task whose call started this one; `None` for the root of a run.
    pub parent_task_id: Option<TaskId>,
    /// The run that it continues, where that is not the thread's last; `task_none` if it continues none.
    pub previous: Option<TaskId>,
    /// Tools that the client declared and runs itself.
    #[serde(default)]
    pub tools: Vec<ClientTool>,
    /// The client's own data, returned unchanged.
    #[serde(default)]
    pub metadata: ExactObject,
    #[serde(default)]
    pub display_mode: DisplayMode,
    /// Where the task was imported from, when it was not created here.
    pub origin: Option<Value>,
    /// The ids that a client of another protocol uses for it.
    pub client: Option<ClientIds>,
}

/// The member of `origin` that marks a task which writes a summary.
const COMPACTION_ORIGIN: &str = "compaction";

impl TaskSpec {
    /// The origin of a task that sums up a conversation: the agent's model alone, without its instructions and tools.
    pub fn compaction_origin() -> Value {
        serde_json::json!({ COMPACTION_ORIGIN: true })
    }

    pub fn is_compaction(&self) -> bool {
        self.origin.as_ref().is_some_and(|origin| origin.get(COMPACTION_ORIGIN).is_some())
    }
}

/// How much of a task a front end shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DisplayMode {
    /// Everything, tool calls and reasoning included.
    #[default]
    Agent,
    /// The messages alone.
    Chat,
}

/// One message of the input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InputMessage {
    /// `msg_…`
    pub id: ItemId,
    pub role: Role,
    pub content: Vec<ContentPart>,
}

/// A tool that the client declared and runs itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientTool {
    pub name: String,
    #[serde(default)]
    pub description: String,
    /// JSON Schema of the arguments.
    #[serde(default)]
    pub parameters: Value,
}

/// The ids that a client of another protocol uses for a run.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClientIds {
    pub protocol: String,
    pub thread_id: Option<String>,
    pub run_id: Option<String>,
    /// The ids that the client gave to the messages of the input, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub message_ids: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskStarted {
    pub task_id: TaskId,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepStarted {
    pub task_id: TaskId,
    /// The turn, counted from 1.
    pub step: u32,
    /// The attempt at this turn, counted from 1.
    pub attempt: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepDone {
    pub task_id: TaskId,
    pub step: u32,
    pub model: String,
    pub stop_reason: StopReason,
    pub usage: Usage,
    /// As reported by the provider.
    pub service_tier: Option<String>,
}

/// Why a turn ended: complete, limited or interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// Complete: the model finished its answer.
    Stop,
    /// Complete: the model calls tools.
    ToolCalls,
    /// Limited: the token limit was reached.
    MaxTokens,
    /// Limited: the provider's content filter.
    ContentFilter,
    /// Interrupted: the provider failed.
    Error,
    /// Interrupted: the run was cancelled.
    Cancelled,
    /// Interrupted: the process crashed.
    Lost,
}

impl StopReason {
    /// Whether the model finished its turn.
    pub const fn is_complete(self) -> bool {
        matches!(self, Self::Stop | Self::ToolCalls)
    }

    /// Whether the turn was cut off. Its items count as incomplete, whatever status they carry.
    pub const fn is_interrupted(self) -> bool {
        matches!(self, Self::Error | Self::Cancelled | Self::Lost)
    }
}

/// `task.retrying`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepRetrying {
    pub task_id: TaskId,
    pub step: u32,
    /// The next attempt.
    pub attempt: u32,
    /// The next attempt does not start earlier.
    pub not_before: Millis,
    /// The error of the failed attempt.
    pub error: ErrorInfo,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentUpdated {
    pub task_id: TaskId,
    /// The agent that takes over.
    pub agent: String,
    /// The agent that hands over.
    pub from: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InputAdded {
    pub task_id: TaskId,
    pub input: Vec<InputMessage>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskCancelling {
    pub task_id: TaskId,
    pub mode: CancelMode,
    pub by: Initiator,
}

/// When a cancellation takes effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CancelMode {
    /// At once; open items become incomplete.
    #[default]
    Immediate,
    /// After every task has finished its turn.
    AfterTurn,
}

/// Who or what caused a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Initiator {
    /// A client or a person.
    #[default]
    User,
    /// A time limit expired.
    Timeout,
    /// The server itself.
    System,
    /// A cancellation.
    Cancel,
}

impl Initiator {
    /// The wire name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Timeout => "timeout",
            Self::System => "system",
            Self::Cancel => "cancel",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskRecovered {
    pub task_id: TaskId,
    /// The turn that runs again.
    pub step: u32,
    /// The next attempt.
    pub attempt: u32,
    /// The items of the interrupted attempt.
    pub cut: Vec<ItemId>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskCompleted {
    pub task_id: TaskId,
    pub usage: Usage,
    /// In the currency of the configured prices; `None` where a price is unknown.
    pub cost: Option<f64>,
    pub duration_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskIncomplete {
    pub task_id: TaskId,
    pub reason: LimitReason,
    pub usage: Usage,
    pub duration_ms: u64,
}

/// Which limit ended a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitReason {
    /// `steps_max` was reached.
    MaxSteps,
    /// The model's token limit.
    MaxTokens,
    /// Tokens or cost of the run, or of the user on this day.
    Budget,
    /// The run's deadline.
    Deadline,
    /// The provider's content filter.
    ContentFilter,
}

impl LimitReason {
    /// The wire name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MaxSteps => "max_steps",
            Self::MaxTokens => "max_tokens",
            Self::Budget => "budget",
            Self::Deadline => "deadline",
            Self::ContentFilter => "content_filter",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskFailed {
    pub task_id: TaskId,
    pub error: ErrorInfo,
    pub usage: Usage,
    pub duration_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskCancelled {
    pub task_id: TaskId,
    pub mode: CancelMode,
    pub by: Initiator,
    pub usage: Usage,
    pub duration_ms: u64,
}
