//! A task as one JSON object: what `GET /v1/tasks/{id}` answers and what a client that folds the events ends up with.

use crate::error::ErrorInfo;
use crate::event::PendingRequest;
use crate::id::{TaskId, ThreadId};
use crate::item::Item;
use crate::json::JsonObject;
use crate::seq::{Millis, Seq};
use crate::usage::Usage;
use serde::{Deserialize, Serialize};

/// Where a task is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// It waits for its turn.
    #[default]
    Queued,
    /// It goes on.
    Running,
    /// It waits for people.
    Paused,
    /// It did what it was asked.
    Completed,
    /// A limit ended it.
    Incomplete,
    /// It went wrong.
    Failed,
    /// Somebody stopped it.
    Cancelled,
}

impl TaskStatus {
    /// All of them, in the order in which a task can go through them.
    pub const ALL: [Self; 7] =
        [Self::Queued, Self::Running, Self::Paused, Self::Completed, Self::Incomplete, Self::Failed, Self::Cancelled];

    /// Has it ended?
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Incomplete | Self::Failed | Self::Cancelled)
    }

    /// The word on the wire.
    #[must_use]
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

    /// Reads the word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }
}

/// A task as one JSON object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskObject {
    /// Its name.
    pub task_id: TaskId,
    /// Its thread.
    pub thread_id: ThreadId,
    /// The agent that answers now.
    pub agent: String,
    /// Where it is.
    pub status: TaskStatus,
    /// What it has given so far. A sub-agent's items stand in the `block_list` of the result of the call that asked.
    pub output: Vec<Item>,
    /// What it waits for.
    pub pending: Vec<PendingRequest>,
    /// What it cost, descendants included.
    pub usage: Usage,
    /// What went wrong.
    pub error: Option<ErrorInfo>,
    /// Which limit, or who, ended it.
    pub reason: Option<String>,
    /// The caller's own notes.
    pub metadata: JsonObject,
    /// When it began; for a queued task, when it was asked for.
    pub created_at: Millis,
    /// When it ended.
    pub ended_at: Option<Millis>,
    /// The last record of its thread that is in here; go on after it.
    pub seq: Seq,
}
