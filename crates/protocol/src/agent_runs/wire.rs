//! The events of a stream, and the outputs of messages and calls. The order of members is the order on the wire.

use model::event::{ActionRequest, ReviewConfig};
use model::item::Role;
use model::json::{ExactObject, ExactValue, JsonObject, to_exact_value};
use model::{ApprovalKey, CallId, ItemId, Millis, Seq};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

pub const EVENT_TYPES: [&str; 9] = [
    "RUN_STARTED",
    "STEP_STARTED",
    "STEP_FINISHED",
    "TEXT_MESSAGE_START",
    "TEXT_MESSAGE_CONTENT",
    "TEXT_MESSAGE_END",
    "TOOL_CALL_RESULT",
    "RUN_FINISHED",
    "RUN_ERROR",
];

/// One event of the stream. Every type of event has a few of the optional members.
#[skip_serializing_none]
#[derive(Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentRunEvent<'a> {
    #[serde(rename = "type")]
    pub(super) event_type: &'static str,
    /// The name by which the client addresses the thread.
    pub(super) thread_id: &'a str,
    pub(super) run_id: &'a str,
    /// `turn-<n>`. A retried turn has the same name again.
    pub(super) step_name: Option<String>,
    pub(super) message_id: Option<&'a ItemId>,
    pub(super) role: Option<Role>,
    /// The agent that writes the message.
    pub(super) stage: Option<&'a str>,
    /// Never empty.
    pub(super) delta: Option<&'a str>,
    pub(super) worker_agent_output: Option<WorkerAgentOutput>,
    pub(super) tool_call_id: Option<&'a CallId>,
    /// The result of a call or, with the status `partial`, its pending request. Both have the same `messageId`.
    pub(super) tool_agent_output: Option<ToolAgentOutput>,
    /// Why the run failed or was cancelled.
    pub(super) message: Option<&'a str>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct WorkerAgentOutput {
    pub status: WorkerStatus,
    pub answer: String,
    pub key_points: Option<Vec<String>>,
    pub result_type: Option<String>,
    pub suggested_actions: Option<Vec<String>>,
    pub error: Option<OutputError>,
    pub ui_hints: Option<JsonObject>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkerStatus {
    Success,
    /// A limit or a cancellation interrupted the message.
    PartialSuccess,
    /// The model or the server failed before the message was complete.
    Failed,
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ToolAgentOutput {
    pub tool_name: String,
    pub tool_call_id: String,
    /// The arguments that the tool ran with, or would run with.
    pub tool_call_args: Option<ExactObject>,
    pub status: ToolStatus,
    pub result_summary: String,
    /// Those of the tool, and the `server_label` of an MCP server's tool. For a call that waits, a [`PendingHint`].
    pub ui_hints: Option<ExactObject>,
    pub error: Option<OutputError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    Success,
    /// The call waits for an approval, an answer or a client tool; the final result follows.
    Partial,
    /// The call failed, or its outcome is unknown.
    Failure,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OutputError {
    pub code: String,
    pub message: String,
    /// Whether the same request may succeed later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<JsonObject>,
}

/// The pending request of a call.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum PendingHint<'a> {
    Approval {
        action_requests: &'a [ActionRequest],
        expires_at: Millis,
        key: &'a ApprovalKey,
        review_configs: &'a [ReviewConfig],
        timeout_seconds: u64,
    },
    Question {
        expires_at: Millis,
        key: &'a ApprovalKey,
        message: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        schema: Option<&'a serde_json::Value>,
        timeout_seconds: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        url: Option<&'a str>,
    },
    ClientTool {
        arguments: &'a str,
        call_id: &'a CallId,
        name: &'a str,
    },
}

/// The additional members of a message in the history.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct WorkerMetadata<'a> {
    pub(super) stage: &'a str,
    pub(super) worker_agent_output: &'a WorkerAgentOutput,
}

/// The additional members of a tool message in the history.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolMetadata<'a> {
    pub(super) tool_agent_output: &'a ToolAgentOutput,
    pub(super) tool_call_id: &'a str,
}

/// A file or image that a client sent with a message.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ImageAttachment<'a> {
    pub(super) url: &'a str,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct HistoryMessage {
    pub id: ItemId,
    /// The record that completed the message. A client can stream from there.
    pub seq: Seq,
    pub role: MessageRole,
    pub content: String,
    #[serde(skip_serializing_if = "ExactObject::is_empty")]
    pub metadata: ExactObject,
    /// The time of that record.
    #[serde(skip)]
    pub at: Millis,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MessageRole {
    User,
    Assistant,
    System,
    /// A tool or a sub-agent.
    Tool,
}

impl From<Role> for MessageRole {
    fn from(role: Role) -> Self {
        match role {
            Role::User => Self::User,
            Role::Assistant => Self::Assistant,
            Role::System => Self::System,
        }
    }
}

pub(super) fn to_object(value: &impl Serialize) -> ExactObject {
    match to_exact_value(value) {
        ExactValue::Object(object) => object,
        // Structs are objects, so this cannot happen.
        _ => ExactObject::new(),
    }
}
