//! Access keys and daily spending.

use super::PostgresStore;
use super::connection::{Params, column, opt_u64_column, u64_column};
use super::pool::DatabasePool;
use async_trait::async_trait;
use model::UserId;
use model::limits::CostMicros;
use model::ports::validation;
use model::ports::{AccessKeyRow, Accounts, Day, Spend, StoreResult, UsageLedger};
use model::seq::Millis;
use model::usage::Usage;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

#[async_trait]
impl Accounts for PostgresStore {
    async fn access_keys(&self) -> StoreResult<Vec<AccessKeyRow>> {
        self.pool.access_keys().await
    }

    async fn create_access_key(&self, key: AccessKeyRow) -> StoreResult<()> {
        self.pool.create_access_key(key).await
    }

    async fn revoke_access_key(&self, id: &str, at: Millis) -> StoreResult<bool> {
        self.pool.revoke_access_key(id, at).await
    }
}

/// Keys are also changed by a command that opens no store.
#[async_trait]
impl Accounts for DatabasePool {
    async fn access_keys(&self) -> StoreResult<Vec<AccessKeyRow>> {
        let sql = "SELECT id, owner, digest, created_at, revoked_at FROM headwater.access_keys ORDER BY created_at, id";
        self.query(sql, &[]).await?.iter().map(access_key_row).collect()
    }

    async fn create_access_key(&self, key: AccessKeyRow) -> StoreResult<()> {
        let sql = "INSERT INTO headwater.access_keys VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING";
        let params: Params<'_> = &[
            (&key.id, Type::TEXT),
            (&key.user.as_str(), Type::TEXT),
            (&key.digest, Type::TEXT),
            (&key.created_at.cast_signed(), Type::INT8),
            (&key.revoked_at.map(Millis::cast_signed), Type::INT8),
        ];
        if self.execute(sql, params).await? == 1 { Ok(()) } else { Err(validation::key_exists_error(&key.id)) }
    }

    async fn revoke_access_key(&self, id: &str, at: Millis) -> StoreResult<bool> {
        let sql = "UPDATE headwater.access_keys SET revoked_at = coalesce(revoked_at, $2) WHERE id = $1";
        Ok(self.execute(sql, &[(&id, Type::TEXT), (&at.cast_signed(), Type::INT8)]).await? > 0)
    }
}

fn access_key_row(row: &Row) -> StoreResult<AccessKeyRow> {
    Ok(AccessKeyRow {
        id: column(row, 0)?,
        user: UserId::from(column::<&str>(row, 1)?),
        digest: column(row, 2)?,
        created_at: u64_column(row, 3)?,
        revoked_at: opt_u64_column(row, 4)?,
    })
}

#[async_trait]
impl UsageLedger for PostgresStore {
    /// Each node adds to a row of its own, so that no two wait for each other.
    async fn daily_spend(&self, owner: &UserId, day: Day) -> StoreResult<Spend> {
        let sql = "SELECT input::text, cached::text, cache_write::text, output::text, reasoning::text, cost::text
                   FROM headwater.spent WHERE owner = $1 AND day = $2";
        let rows = self.pool.query(sql, &[(&owner.as_str(), Type::TEXT), (&day.0.cast_signed(), Type::INT4)]).await?;
        rows.iter().try_fold(Spend::default(), |sum, row| Ok(sum.saturating_add(spend_row(row)?)))
    }
}

fn spend_row(row: &Row) -> StoreResult<Spend> {
    let number = |index: usize| column::<&str>(row, index).map(|text| text.parse().unwrap_or(u64::MAX));
    let usage = Usage {
        input_tokens: number(0)?,
        cached_tokens: number(1)?,
        cache_write_tokens: number(2)?,
        output_tokens: number(3)?,
        reasoning_tokens: number(4)?,
    };
    Ok(Spend { usage, cost: CostMicros(number(5)?) })
}
