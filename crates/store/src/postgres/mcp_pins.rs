//! Pins of MCP tools.

use super::PostgresStore;
use super::connection::{OpenTransaction, Params, column};
use async_trait::async_trait;
use model::UserId;
use model::ports::{MCP_PINS_MAX, McpPins, StoreResult};
use model::seq::Millis;
use std::collections::BTreeMap;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

const SELECT: &str = "SELECT tool, digest FROM headwater.mcp_pins WHERE owner = $1 AND server = $2";
/// Writers of one owner's pins take turns: together they keep to the limit.
const LOCK_OWNER: &str = "SELECT pg_advisory_xact_lock(hashtextextended('mcp_pins ' || $1, 0))";

#[async_trait]
impl McpPins for PostgresStore {
    async fn pin_new(
        &self,
        owner: &UserId,
        server: &str,
        digests: &BTreeMap<String, String>,
        at: Millis,
    ) -> StoreResult<BTreeMap<String, String>> {
        let key: Params<'_> = &[(&owner.as_str(), Type::TEXT), (&server, Type::TEXT)];
        let known = pins_of_rows(&self.pool.query(SELECT, key).await?)?;
        if digests.keys().all(|tool| known.contains_key(tool)) || known.len() >= MCP_PINS_MAX {
            return Ok(known);
        }
        self.check_space()?;
        let tx = OpenTransaction::begin(&self.pool).await?;
        tx.query_opt(LOCK_OWNER, &[(&owner.as_str(), Type::TEXT)]).await?;
        let mut known = pins_of_rows(&tx.query(SELECT, key).await?)?;
        let room = MCP_PINS_MAX.saturating_sub(known.len());
        let new: Vec<(&String, &String)> =
            digests.iter().filter(|(tool, _)| !known.contains_key(*tool)).take(room).collect();
        let (tools, values): (Vec<&str>, Vec<&str>) =
            new.iter().map(|(tool, digest)| (tool.as_str(), digest.as_str())).unzip();
        let sql = "INSERT INTO headwater.mcp_pins (owner, server, tool, digest, at)
                   SELECT $1, $2, tool, digest, $5 FROM unnest($3::text[], $4::text[]) AS new (tool, digest)";
        let params: Params<'_> = &[
            (&owner.as_str(), Type::TEXT),
            (&server, Type::TEXT),
            (&tools, Type::TEXT_ARRAY),
            (&values, Type::TEXT_ARRAY),
            (&at.cast_signed(), Type::INT8),
        ];
        tx.execute(sql, params).await?;
        tx.commit().await?;
        known.extend(new.into_iter().map(|(tool, digest)| (tool.clone(), digest.clone())));
        Ok(known)
    }

    async fn replace_pin(&self, owner: &UserId, server: &str, tool: &str, digest: &str, at: Millis) -> StoreResult<()> {
        self.check_space()?;
        let tx = OpenTransaction::begin(&self.pool).await?;
        tx.query_opt(LOCK_OWNER, &[(&owner.as_str(), Type::TEXT)]).await?;
        let known = tx.query(SELECT, &[(&owner.as_str(), Type::TEXT), (&server, Type::TEXT)]).await?;
        let known = pins_of_rows(&known)?;
        if known.len() < MCP_PINS_MAX || known.contains_key(tool) {
            let sql = "INSERT INTO headwater.mcp_pins (owner, server, tool, digest, at) VALUES ($1, $2, $3, $4, $5)
                       ON CONFLICT (owner, server, tool) DO UPDATE SET digest = excluded.digest, at = excluded.at";
            let params: Params<'_> = &[
                (&owner.as_str(), Type::TEXT),
                (&server, Type::TEXT),
                (&tool, Type::TEXT),
                (&digest, Type::TEXT),
                (&at.cast_signed(), Type::INT8),
            ];
            tx.execute(sql, params).await?;
        }
        tx.commit().await
    }
}

fn pins_of_rows(rows: &[Row]) -> StoreResult<BTreeMap<String, String>> {
    rows.iter().map(|row| Ok((column(row, 0)?, column(row, 1)?))).collect()
}
