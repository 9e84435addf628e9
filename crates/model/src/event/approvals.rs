//! Approval requests, pauses and resumes.

use super::{ClientIds, Initiator};
use crate::id::{ApprovalKey, CallId, TaskId};
use crate::json::ExactValue;
use crate::seq::Millis;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalRequested {
    pub task_id: TaskId,
    pub key: ApprovalKey,
    /// The call that waits for the decision.
    pub call_id: CallId,
    /// The tool calls to review.
    pub action_requests: Vec<ActionRequest>,
    /// The decisions that are allowed, one per request.
    pub review_configs: Vec<ReviewConfig>,
    pub timeout_seconds: u64,
    pub expires_at: Millis,
    /// What the tool asks. `approve` answers it, with `args` that fit its schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<Question>,
}

/// A question of a tool to people.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Question {
    pub message: String,
    /// The JSON Schema of the answer, which is an object.
    #[serde(default)]
    pub schema: Option<serde_json::Value>,
    /// Where the user goes before answering, such as `/v1/mcp/NAME/authorize`.
    #[serde(default)]
    pub url: Option<String>,
}

/// A tool call to review.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ActionRequest {
    /// The name of the tool.
    pub name: String,
    pub args: ExactValue,
    /// The MCP server that has the tool.
    pub server_label: Option<String>,
    /// `false` if the decision cannot be `edit`: the provider runs the call as it asked for it.
    pub editable: Option<bool>,
    /// What people should know before they decide, such as that the tool has changed.
    pub note: Option<String>,
}

/// How an action request is to be reviewed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReviewConfig {
    pub require_approval: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalResolved {
    pub task_id: TaskId,
    pub key: ApprovalKey,
    /// One decision per action request.
    pub decisions: Vec<ApprovalDecision>,
    /// Who decided.
    pub by: Initiator,
}

/// The decision on one action request.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalDecision {
    #[serde(rename = "type")]
    pub kind: ApprovalDecisionKind,
    /// Applies to later calls of the same tool in this run, too.
    #[serde(default)]
    pub always: bool,
    /// The reason, for the model.
    pub message: Option<String>,
    /// The arguments to run with instead, with [`ApprovalDecisionKind::Edit`]; the answer to a question, with
    /// [`ApprovalDecisionKind::Approve`].
    #[serde(default, deserialize_with = "crate::json::deserialize_some")]
    pub args: Option<ExactValue>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalDecisionKind {
    Approve,
    Reject,
    /// Approve with different arguments.
    Edit,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskPaused {
    pub task_id: TaskId,
    pub pending: Vec<PendingRequest>,
}

/// A request that a paused run waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PendingRequest {
    pub kind: PendingKind,
    /// Set for approvals and questions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<ApprovalKey>,
    pub call_id: CallId,
    /// The task that made the call; not necessarily the root.
    pub task_id: TaskId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PendingKind {
    Approval,
    /// The result of a tool that the client runs.
    ClientTool,
    /// The answer to a question of a tool.
    Question,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskResumed {
    pub task_id: TaskId,
    /// What resumed it.
    pub by: Initiator,
    /// The answering client's ids for this segment of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientIds>,
}
