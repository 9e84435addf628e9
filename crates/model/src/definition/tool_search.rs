//! Whether a model is given all of its tools, or finds them.

use serde::{Deserialize, Serialize};

/// Whether the tools of an agent are searched instead of being declared one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolSearchPolicy {
    /// When there are many of them.
    #[default]
    Auto,
    /// Those of MCP servers and of groups, however few.
    On,
    /// Never: every request has all of them.
    Off,
    /// By the provider: every request has all of them, marked to be loaded by the provider's own search.
    Hosted,
}

impl ToolSearchPolicy {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(super) fn is_default(&self) -> bool {
        *self == Self::Auto
    }
}
