//! The events of a stream.

use super::payload::{ToolAgentOutput, WorkerAgentOutput};
use model::item::Role;
use model::{CallId, ItemId};
use serde::Serialize;

/// Every type of event that there is.
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

/// Whose event it is.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunIds<'a> {
    /// The thread, as whoever watches it calls it.
    pub thread_id: &'a str,
    /// The run.
    pub run_id: &'a str,
}

/// One event of the stream.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "SCREAMING_SNAKE_CASE", rename_all_fields = "camelCase")]
pub enum AgentRunEvent<'a> {
    /// A run begins.
    RunStarted(RunIds<'a>),
    /// A model is asked.
    StepStarted {
        /// Whose.
        #[serde(flatten)]
        ids: RunIds<'a>,
        /// `turn-<n>`. A turn that is done again has its name again.
        step_name: String,
    },
    /// It has answered, or was cut off.
    StepFinished {
        /// Whose.
        #[serde(flatten)]
        ids: RunIds<'a>,
        /// As when it began.
        step_name: String,
    },
    /// A message begins.
    TextMessageStart {
        /// Whose.
        #[serde(flatten)]
        ids: RunIds<'a>,
        /// The message.
        message_id: &'a ItemId,
        /// Who speaks.
        role: Role,
        /// The agent that speaks.
        stage: &'a str,
    },
    /// One more piece of it.
    TextMessageContent {
        /// Whose.
        #[serde(flatten)]
        ids: RunIds<'a>,
        /// The message.
        message_id: &'a ItemId,
        /// The piece, never empty.
        delta: &'a str,
    },
    /// The message has ended. Neither `stage` nor `model` stands here.
    TextMessageEnd {
        /// Whose.
        #[serde(flatten)]
        ids: RunIds<'a>,
        /// The message.
        message_id: &'a ItemId,
        /// What it amounts to.
        worker_agent_output: Box<WorkerAgentOutput>,
    },
    /// What a call gave; or, with the status `partial`, what it waits for. The final one has the same `messageId`.
    ToolCallResult {
        /// Whose.
        #[serde(flatten)]
        ids: RunIds<'a>,
        /// The result.
        message_id: ItemId,
        /// The call.
        tool_call_id: CallId,
        /// What it amounts to.
        tool_agent_output: Box<ToolAgentOutput>,
    },
    /// A run has ended, whole or at a limit.
    RunFinished(RunIds<'a>),
    /// A run failed or was stopped.
    RunError {
        /// Whose.
        #[serde(flatten)]
        ids: RunIds<'a>,
        /// What happened.
        message: &'a str,
    },
}

impl AgentRunEvent<'_> {
    /// Its type.
    #[must_use]
    pub const fn event_type(&self) -> &'static str {
        match self {
            Self::RunStarted(_) => "RUN_STARTED",
            Self::StepStarted { .. } => "STEP_STARTED",
            Self::StepFinished { .. } => "STEP_FINISHED",
            Self::TextMessageStart { .. } => "TEXT_MESSAGE_START",
            Self::TextMessageContent { .. } => "TEXT_MESSAGE_CONTENT",
            Self::TextMessageEnd { .. } => "TEXT_MESSAGE_END",
            Self::ToolCallResult { .. } => "TOOL_CALL_RESULT",
            Self::RunFinished(_) => "RUN_FINISHED",
            Self::RunError { .. } => "RUN_ERROR",
        }
    }
}
