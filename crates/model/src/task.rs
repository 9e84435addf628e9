//! A task as a JSON object: the response of `GET /v1/tasks/{id}`, and what a client gets by folding the events.

use crate::error::ErrorInfo;
use crate::event::{Event, PendingRequest};
use crate::id::{TaskId, ThreadId};
use crate::item::Item;
use crate::json::ExactObject;
use crate::seq::{Millis, Seq};
use crate::usage::Usage;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    #[default]
    Queued,
    Running,
    /// Waits for a client or a person.
    Paused,
    Completed,
    /// A limit ended the task.
    Incomplete,
    Failed,
    Cancelled,
}

impl TaskStatus {
    /// In the order of a task's lifecycle.
    pub const ALL: [Self; 7] =
        [Self::Queued, Self::Running, Self::Paused, Self::Completed, Self::Incomplete, Self::Failed, Self::Cancelled];

    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Incomplete | Self::Failed | Self::Cancelled)
    }

    /// The wire name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Completed => "completed",
            Self::Incomplete => "incomplete",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Parses the wire name.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }
}

impl Event {
    /// The status that a terminal event gives its task; `None` for every other event.
    pub const fn terminal_status(&self) -> Option<TaskStatus> {
        match self {
            Self::Completed(_) => Some(TaskStatus::Completed),
            Self::Incomplete(_) => Some(TaskStatus::Incomplete),
            Self::Failed(_) => Some(TaskStatus::Failed),
            Self::Cancelled(_) => Some(TaskStatus::Cancelled),
            _ => None,
        }
    }

    /// Whether the event ends its task.
    pub const fn is_terminal(&self) -> bool {
        self.terminal_status().is_some()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Task")]
pub struct TaskObject {
    pub task_id: TaskId,
    pub thread_id: ThreadId,
    /// The active agent.
    pub agent: String,
    pub status: TaskStatus,
    /// A sub-agent's items stand in the `block_list` of the result of the call that started it.
    pub output: Vec<Item>,
    pub pending: Vec<PendingRequest>,
    /// Descendants included.
    pub usage: Usage,
    pub error: Option<ErrorInfo>,
    /// Which limit or who ended the task.
    pub reason: Option<String>,
    /// The client's own data, returned unchanged.
    pub metadata: ExactObject,
    /// For a queued task, the time of the request.
    pub created_at: Millis,
    pub ended_at: Option<Millis>,
    /// The last record of the thread that is included; continue after it.
    pub seq: Seq,
}
