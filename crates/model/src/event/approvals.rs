//! Questions to people, shared state, and what happens to the thread as a whole.

use super::{ClientIds, Initiator};
use crate::id::{ApprovalKey, CallId, TaskId};
use crate::json::JsonObject;
use crate::seq::{Millis, Seq};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `task.approval.requested`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovalRequested {
    /// The task.
    pub task_id: TaskId,
    /// The question.
    pub key: ApprovalKey,
    /// The call that waits.
    pub call_id: CallId,
    /// What would be done.
    pub action_requests: Vec<ActionRequest>,
    /// What may be decided, one for each request.
    pub review_configs: Vec<ReviewConfig>,
    /// How long people have.
    pub timeout_seconds: u64,
    /// Until when.
    pub expires_at: Millis,
}

/// What would be done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActionRequest {
    /// The tool.
    pub name: String,
    /// Its arguments.
    pub args: Value,
}

/// What may be decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewConfig {
    /// Must somebody say yes?
    pub require_approval: bool,
}

/// `task.approval.resolved`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovalResolved {
    /// The task.
    pub task_id: TaskId,
    /// The question.
    pub key: ApprovalKey,
    /// The answer, one for each request.
    pub decisions: Vec<ApprovalDecision>,
    /// Whose.
    pub by: Initiator,
}

/// A person's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovalDecision {
    /// Yes, no, or yes with other arguments.
    #[serde(rename = "type")]
    pub kind: ApprovalDecisionKind,
    /// Later calls of this tool in this run are not asked for.
    #[serde(default)]
    pub always: bool,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The other arguments.
    #[serde(default, deserialize_with = "crate::json::deserialize_some", skip_serializing_if = "Option::is_none")]
    pub args: Option<Value>,
}

/// Yes, no, or yes with other arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalDecisionKind {
    /// Yes.
    Approve,
    /// No.
    Reject,
    /// Yes, with other arguments.
    Edit,
}

/// `task.paused`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskPaused {
    /// The run's root task.
    pub task_id: TaskId,
    /// What it waits for.
    pub pending: Vec<PendingRequest>,
}

/// One thing that a paused run waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingRequest {
    /// What kind of thing.
    pub kind: PendingKind,
    /// The question, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<ApprovalKey>,
    /// The call.
    pub call_id: CallId,
    /// The task whose call it is.
    pub task_id: TaskId,
}

/// What kind of thing a paused run waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PendingKind {
    /// A person's decision.
    Approval,
    /// The result of a tool that the client runs.
    ClientTool,
}

/// `task.resumed`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskResumed {
    /// The run's root task.
    pub task_id: TaskId,
    /// What made it go on.
    pub by: Initiator,
    /// The names under which the client that answered knows this segment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientIds>,
}

/// `task.state.snapshot`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateSnapshot {
    /// The task.
    pub task_id: TaskId,
    /// The shared state, whole.
    pub state: Value,
}

/// `task.state.delta`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateDelta {
    /// The task.
    pub task_id: TaskId,
    /// What changed, as RFC 6902 operations.
    pub delta: Vec<Value>,
}

/// `task.custom`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CustomEvent {
    /// The task.
    pub task_id: TaskId,
    /// The sender's name for it.
    pub name: String,
    /// Anything.
    pub value: Value,
}

/// `task.provider_event`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProviderEvent {
    /// The task.
    pub task_id: TaskId,
    /// The event as it came.
    pub event: Value,
}

/// `thread.history.compacted`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistoryCompacted {
    /// Everything up to here is in the summary.
    pub up_to: Seq,
    /// What the model is given instead.
    pub summary: String,
    /// More, by name.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub details: JsonObject,
}

/// `thread.run.hidden`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunHidden {
    /// The run that is no longer shown.
    pub run_id: TaskId,
}
