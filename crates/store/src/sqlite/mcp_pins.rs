//! Pins of MCP tools.

use super::SqliteStore;
use super::columns::get_text;
use super::write_task::TaskCost;
use async_trait::async_trait;
use model::UserId;
use model::ports::{MCP_PINS_MAX, McpPins, StoreResult};
use model::seq::Millis;
use rusqlite::Connection;
use std::collections::BTreeMap;

#[async_trait]
impl McpPins for SqliteStore {
    async fn pin_new(
        &self,
        owner: &UserId,
        server: &str,
        digests: &BTreeMap<String, String>,
        at: Millis,
    ) -> StoreResult<BTreeMap<String, String>> {
        let key = (owner.clone(), server.to_owned());
        let known = self.query({
            let (owner, server) = key.clone();
            move |conn| find_pins(conn, &owner, &server)
        });
        let known = known.await?;
        let new: Vec<(String, String)> = digests
            .iter()
            .filter(|(tool, _)| !known.contains_key(*tool))
            .take(MCP_PINS_MAX.saturating_sub(known.len()))
            .map(|(tool, digest)| (tool.clone(), digest.clone()))
            .collect();
        if new.is_empty() {
            return Ok(known);
        }
        self.call_writer(TaskCost::ROW, move |tx| {
            let (owner, server) = key;
            let room = MCP_PINS_MAX.saturating_sub(find_pins(tx.conn, &owner, &server)?.len());
            let sql = "INSERT OR IGNORE INTO mcp_pins (owner, server, tool, digest, at) VALUES (?1, ?2, ?3, ?4, ?5)";
            let mut insert = tx.conn.prepare_cached(sql)?;
            for (tool, digest) in new.iter().take(room) {
                insert.execute((owner.as_str(), &server, tool, digest, at.cast_signed()))?;
            }
            find_pins(tx.conn, &owner, &server).map(Ok)
        })
        .await
    }

    async fn replace_pin(&self, owner: &UserId, server: &str, tool: &str, digest: &str, at: Millis) -> StoreResult<()> {
        let (owner, server, tool, digest) = (owner.clone(), server.to_owned(), tool.to_owned(), digest.to_owned());
        self.call_writer(TaskCost::ROW, move |tx| {
            let pins = find_pins(tx.conn, &owner, &server)?;
            if pins.len() < MCP_PINS_MAX || pins.contains_key(&tool) {
                let sql =
                    "INSERT OR REPLACE INTO mcp_pins (owner, server, tool, digest, at) VALUES (?1, ?2, ?3, ?4, ?5)";
                let params = (owner.as_str(), &server, &tool, &digest, at.cast_signed());
                tx.conn.prepare_cached(sql)?.execute(params)?;
            }
            Ok(Ok(()))
        })
        .await
    }
}

fn find_pins(conn: &Connection, owner: &UserId, server: &str) -> rusqlite::Result<BTreeMap<String, String>> {
    let sql = "SELECT tool, digest FROM mcp_pins WHERE owner = ?1 AND server = ?2";
    let mut statement = conn.prepare_cached(sql)?;
    let rows = statement.query_map((owner.as_str(), server), |row| Ok((get_text(row, 0)?, get_text(row, 1)?)))?;
    rows.collect()
}
