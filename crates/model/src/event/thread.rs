//! Events of the thread, outside any task.

use crate::id::TaskId;
use crate::json::JsonObject;
use crate::seq::Seq;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryCompacted {
    /// The last record that the summary covers.
    pub up_to: Seq,
    /// What the model reads in place of those records.
    pub summary: String,
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub details: JsonObject,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunHidden {
    pub run_id: TaskId,
}
