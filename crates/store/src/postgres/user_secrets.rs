//! Secrets of users.

use super::PostgresStore;
use super::connection::{OpenTransaction, Params, column, limit_param, opt_u64_column, u64_column};
use async_trait::async_trait;
use model::UserId;
use model::ports::{NewSecret, SecretKey, SecretKind, StoreResult, StoredSecret, UserSecrets};
use model::seq::Millis;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

const SELECT: &str = "SELECT owner, kind, name, version, body, updated_at, expires_at FROM headwater.user_secrets";
#[async_trait]
impl UserSecrets for PostgresStore {
    async fn secret(&self, key: &SecretKey, now: Millis) -> StoreResult<Option<StoredSecret>> {
        let sql = format!("{SELECT} WHERE owner = $1 AND kind = $2 AND name = $3");
        let row = self.pool.query_opt(&sql, &key_params(&key.owner.as_str(), &key.kind.as_str(), &key.name)).await?;
        let found = row.map_or(Ok(None), |row| secret_row(&row))?;
        Ok(found.filter(|secret| secret.is_current(now)))
    }

    async fn secrets(&self, owner: &UserId, now: Millis) -> StoreResult<Vec<StoredSecret>> {
        let sql = format!("{SELECT} WHERE owner = $1 ORDER BY kind, name");
        let rows = self.pool.query(&sql, &[(&owner.as_str(), Type::TEXT)]).await?;
        let found = rows.iter().map(secret_row).collect::<StoreResult<Vec<Option<StoredSecret>>>>()?;
        Ok(found.into_iter().flatten().filter(|secret| secret.is_current(now)).collect())
    }

    async fn put_secret(&self, secret: NewSecret) -> StoreResult<u64> {
        self.check_space()?;
        let sql = "INSERT INTO headwater.user_secrets (owner, kind, name, body, updated_at, expires_at)
                   VALUES ($1, $2, $3, $4, $5, $6)
                   ON CONFLICT (owner, kind, name) DO UPDATE SET version = DEFAULT, body = excluded.body,
                       updated_at = excluded.updated_at, expires_at = excluded.expires_at, claimed_until = NULL
                   RETURNING version";
        let tx = OpenTransaction::begin(&self.pool).await?;
        let row = write_secret(&tx, sql, &secret, &[]).await?;
        delete_surplus(&tx, &secret).await?;
        tx.commit().await?;
        row.map_or(Ok(0), |row| u64_column(&row, 0))
    }

    async fn replace_secret(&self, version: u64, secret: NewSecret) -> StoreResult<bool> {
        self.check_space()?;
        let sql = "UPDATE headwater.user_secrets SET version = DEFAULT, body = $4, updated_at = $5, expires_at = $6,
                       claimed_until = NULL
                   WHERE owner = $1 AND kind = $2 AND name = $3 AND version = $7
                     AND (expires_at IS NULL OR expires_at > $5)
                   RETURNING version";
        let tx = OpenTransaction::begin(&self.pool).await?;
        let row = write_secret(&tx, sql, &secret, &[(&version.cast_signed(), Type::INT8)]).await?;
        tx.commit().await?;
        Ok(row.is_some())
    }

    async fn claim_secret(&self, key: &SecretKey, version: u64, now: Millis, until: Millis) -> StoreResult<bool> {
        let sql = "UPDATE headwater.user_secrets SET claimed_until = $6
                   WHERE owner = $1 AND kind = $2 AND name = $3 AND version = $4
                     AND coalesce(claimed_until, 0) <= $5 AND (expires_at IS NULL OR expires_at > $5)";
        let params: Params<'_> = &[
            (&key.owner.as_str(), Type::TEXT),
            (&key.kind.as_str(), Type::TEXT),
            (&key.name, Type::TEXT),
            (&version.cast_signed(), Type::INT8),
            (&now.cast_signed(), Type::INT8),
            (&until.cast_signed(), Type::INT8),
        ];
        Ok(self.pool.execute(sql, params).await? > 0)
    }

    async fn take_secret(&self, kind: SecretKind, name: &str, now: Millis) -> StoreResult<Option<StoredSecret>> {
        // Strangers come with names that do not exist.
        let exists = "SELECT 1 FROM headwater.user_secrets WHERE kind = $1 AND name = $2";
        if self.pool.query_opt(exists, &[(&kind.as_str(), Type::TEXT), (&name, Type::TEXT)]).await?.is_none() {
            return Ok(None);
        }
        let sql = "DELETE FROM headwater.user_secrets WHERE version =
                       (SELECT version FROM headwater.user_secrets WHERE kind = $1 AND name = $2 LIMIT 1 FOR UPDATE)
                   RETURNING owner, kind, name, version, body, updated_at, expires_at";
        let tx = OpenTransaction::begin(&self.pool).await?;
        let row = tx.query_opt(sql, &[(&kind.as_str(), Type::TEXT), (&name, Type::TEXT)]).await?;
        tx.commit().await?;
        let taken = row.map_or(Ok(None), |row| secret_row(&row))?;
        Ok(taken.filter(|secret| secret.is_current(now)))
    }

    async fn delete_secret(&self, key: &SecretKey) -> StoreResult<bool> {
        let sql = "DELETE FROM headwater.user_secrets WHERE owner = $1 AND kind = $2 AND name = $3";
        let deleted = self.pool.execute(sql, &key_params(&key.owner.as_str(), &key.kind.as_str(), &key.name)).await?;
        Ok(deleted > 0)
    }

    async fn delete_secrets(&self, owner: &UserId) -> StoreResult<u64> {
        let sql = "DELETE FROM headwater.user_secrets WHERE owner = $1";
        self.pool.execute(sql, &[(&owner.as_str(), Type::TEXT)]).await
    }
}

async fn write_secret(
    tx: &OpenTransaction<'_>,
    sql: &str,
    secret: &NewSecret,
    more: Params<'_>,
) -> StoreResult<Option<Row>> {
    let NewSecret { key, body, at, expires_at, .. } = secret;
    let (owner, kind, at) = (key.owner.as_str(), key.kind.as_str(), at.cast_signed());
    let expires_at = expires_at.map(Millis::cast_signed);
    let params: Params<'_> = &[
        (&owner, Type::TEXT),
        (&kind, Type::TEXT),
        (&key.name, Type::TEXT),
        (body, Type::BYTEA),
        (&at, Type::INT8),
        (&expires_at, Type::INT8),
    ];
    tx.query_opt(sql, &[params, more].concat()).await
}

/// Deletes what has expired, and what has to make room.
async fn delete_surplus(tx: &OpenTransaction<'_>, secret: &NewSecret) -> StoreResult<()> {
    let sql = "DELETE FROM headwater.user_secrets WHERE expires_at <= $1";
    tx.execute(sql, &[(&secret.at.cast_signed(), Type::INT8)]).await?;
    let sql = "DELETE FROM headwater.user_secrets WHERE version IN (SELECT version FROM headwater.user_secrets
               WHERE owner = $1 AND kind = $2 ORDER BY version DESC OFFSET $3)";
    let params: Params<'_> = &[
        (&secret.key.owner.as_str(), Type::TEXT),
        (&secret.key.kind.as_str(), Type::TEXT),
        (&limit_param(secret.count_max), Type::INT8),
    ];
    tx.execute(sql, params).await?;
    Ok(())
}

fn key_params<'a>(owner: &'a &str, kind: &'a &str, name: &'a String) -> [(&'a (dyn ToSql + Sync), Type); 3] {
    [(owner, Type::TEXT), (kind, Type::TEXT), (name, Type::TEXT)]
}

/// `None` for a kind of a newer version.
fn secret_row(row: &Row) -> StoreResult<Option<StoredSecret>> {
    let Some(kind) = SecretKind::parse(column(row, 1)?) else { return Ok(None) };
    let key = SecretKey { owner: UserId::from(column::<&str>(row, 0)?), kind, name: column(row, 2)? };
    Ok(Some(StoredSecret {
        key,
        version: u64_column(row, 3)?,
        body: column(row, 4)?,
        updated_at: u64_column(row, 5)?,
        expires_at: opt_u64_column(row, 6)?,
    }))
}
