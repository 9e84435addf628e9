//! Pins of MCP tools.

use crate::MemoryStore;
use async_trait::async_trait;
use model::UserId;
use model::ports::{MCP_PINS_MAX, McpPins, StoreResult};
use model::seq::Millis;
use std::collections::BTreeMap;

#[async_trait]
impl McpPins for MemoryStore {
    async fn pin_new(
        &self,
        owner: &UserId,
        server: &str,
        digests: &BTreeMap<String, String>,
        _: Millis,
    ) -> StoreResult<BTreeMap<String, String>> {
        let mut tables = self.lock_tables();
        let pins = tables.mcp_pins.entry((owner.clone(), server.to_owned())).or_default();
        for (tool, digest) in digests {
            if pins.len() < MCP_PINS_MAX && !pins.contains_key(tool) {
                pins.insert(tool.clone(), digest.clone());
            }
        }
        Ok(pins.clone())
    }

    async fn replace_pin(&self, owner: &UserId, server: &str, tool: &str, digest: &str, _: Millis) -> StoreResult<()> {
        let mut tables = self.lock_tables();
        let pins = tables.mcp_pins.entry((owner.clone(), server.to_owned())).or_default();
        if pins.len() < MCP_PINS_MAX || pins.contains_key(tool) {
            pins.insert(tool.to_owned(), digest.to_owned());
        }
        Ok(())
    }
}
