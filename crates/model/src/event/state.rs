//! Shared state, and events that pass through unchanged.

use crate::id::TaskId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StateSnapshot {
    pub task_id: TaskId,
    /// The complete state; replaces the one before.
    pub state: Value,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StateDelta {
    pub task_id: TaskId,
    /// RFC 6902 operations on the state.
    pub delta: Vec<Value>,
}

/// `task.custom`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CustomEvent {
    pub task_id: TaskId,
    /// The application's name for the event.
    pub name: String,
    pub value: Value,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProviderEvent {
    pub task_id: TaskId,
    /// The upstream event, unchanged.
    pub event: Value,
}
