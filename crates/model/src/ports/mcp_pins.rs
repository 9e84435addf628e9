//! What users have seen of the tools of MCP servers.

use super::StoreResult;
use crate::id::UserId;
use crate::seq::Millis;
use async_trait::async_trait;
use std::collections::BTreeMap;

/// Pins of one owner and server. A tool beyond them has no pin.
pub const MCP_PINS_MAX: usize = 2_048;

/// The digest of each tool's description that its user knows or has consented to: a server that describes a tool in another way
/// later has to be approved again.
///
/// 1. A pin belongs to an owner, a server and a tool; others do not exist for it.
/// 2. [`McpPins::pin_new`] pins the tools that have no pin, and returns the pins of all tools of the server. Of several callers
///    that pin the same tool one does, and all get its pin.
/// 3. [`McpPins::replace_pin`] writes a pin, whatever was there.
/// 4. An owner has at most [`MCP_PINS_MAX`] pins of a server. Those beyond are not written, and the others stay.
#[warn(missing_docs)]
#[async_trait]
pub trait McpPins: Send + Sync {
    /// Pins tools by their digests.
    async fn pin_new(
        &self,
        owner: &UserId,
        server: &str,
        digests: &BTreeMap<String, String>,
        at: Millis,
    ) -> StoreResult<BTreeMap<String, String>>;

    /// Replaces the pin of a tool.
    async fn replace_pin(&self, owner: &UserId, server: &str, tool: &str, digest: &str, at: Millis) -> StoreResult<()>;
}
