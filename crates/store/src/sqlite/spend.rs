//! Daily spending.

use super::SqliteStore;
use super::columns::get_u64;
use async_trait::async_trait;
use model::UserId;
use model::limits::CostMicros;
use model::ports::{Day, Spend, StoreResult, UsageLedger};
use model::usage::Usage;
use rusqlite::{Connection, OptionalExtension, Row};

#[async_trait]
impl UsageLedger for SqliteStore {
    async fn daily_spend(&self, owner: &UserId, day: Day) -> StoreResult<Spend> {
        let owner = owner.clone();
        self.query(move |conn| find_daily_spend(conn, &owner, day)).await
    }
}

fn find_daily_spend(conn: &Connection, owner: &UserId, day: Day) -> rusqlite::Result<Spend> {
    let sql = "SELECT input, cached, cache_write, output, reasoning, cost FROM spent WHERE owner = ?1 AND day = ?2";
    let found = conn.prepare_cached(sql)?.query_row((owner.as_str(), day.0), spend_row).optional()?;
    Ok(found.unwrap_or_default())
}

/// Adds in Rust, because SQL integers are signed and do not saturate.
pub(super) fn add_spend(conn: &Connection, owner: &UserId, day: Day, spent: Spend) -> rusqlite::Result<()> {
    let sum = find_daily_spend(conn, owner, day)?.saturating_add(spent);
    let Usage { input_tokens, cached_tokens, cache_write_tokens, output_tokens, reasoning_tokens } = sum.usage;
    let mut put = conn.prepare_cached("INSERT OR REPLACE INTO spent VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?;
    let parts = [input_tokens, cached_tokens, cache_write_tokens, output_tokens, reasoning_tokens, sum.cost.0];
    let [input, cached, cache_write, output, reasoning, cost] = parts.map(u64::cast_signed);
    put.execute((owner.as_str(), day.0, input, cached, cache_write, output, reasoning, cost)).map(drop)
}

fn spend_row(row: &Row<'_>) -> rusqlite::Result<Spend> {
    let usage = Usage {
        input_tokens: get_u64(row, 0)?,
        cached_tokens: get_u64(row, 1)?,
        cache_write_tokens: get_u64(row, 2)?,
        output_tokens: get_u64(row, 3)?,
        reasoning_tokens: get_u64(row, 4)?,
    };
    Ok(Spend { usage, cost: CostMicros(get_u64(row, 5)?) })
}
