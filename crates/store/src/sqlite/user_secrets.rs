//! Secrets of users. The version of a row is its number: a row that changes is replaced by a new one.

use super::SqliteStore;
use super::columns::{get_opt_u64, get_text, get_u64};
use super::write_task::TaskCost;
use async_trait::async_trait;
use model::UserId;
use model::ports::{NewSecret, SecretKey, SecretKind, StoreResult, StoredSecret, UserSecrets};
use model::seq::Millis;
use rusqlite::{Connection, OptionalExtension as _, Row};

const SELECT: &str = "SELECT owner, kind, name, version, body, updated_at, expires_at FROM user_secrets";
/// Expired rows that one write deletes.
const EXPIRED_ROWS_MAX: u32 = 100;

#[async_trait]
impl UserSecrets for SqliteStore {
    async fn secret(&self, key: &SecretKey, now: Millis) -> StoreResult<Option<StoredSecret>> {
        let key = key.clone();
        let found = self.query(move |conn| find_secret(conn, &key)).await?;
        Ok(found.filter(|secret| secret.is_current(now)))
    }

    async fn secrets(&self, owner: &UserId, now: Millis) -> StoreResult<Vec<StoredSecret>> {
        let owner = owner.clone();
        let rows = self.query(move |conn| {
            let sql = format!("{SELECT} WHERE owner = ?1 ORDER BY kind, name");
            let mut statement = conn.prepare_cached(&sql)?;
            let rows = statement.query_map([owner.as_str()], secret_row)?;
            rows.collect::<rusqlite::Result<Vec<Option<StoredSecret>>>>()
        });
        Ok(rows.await?.into_iter().flatten().filter(|secret| secret.is_current(now)).collect())
    }

    async fn put_secret(&self, secret: NewSecret) -> StoreResult<u64> {
        self.call_writer(TaskCost::ROW, move |tx| {
            delete_secret(tx.conn, &secret.key)?;
            tx.effects.has_deleted_content = true;
            insert_secret(tx.conn, &secret).map(Ok)
        })
        .await
    }

    async fn replace_secret(&self, version: u64, secret: NewSecret) -> StoreResult<bool> {
        self.call_writer(TaskCost::ROW, move |tx| {
            let found = find_secret(tx.conn, &secret.key)?;
            if !found.is_some_and(|found| found.version == version && found.is_current(secret.at)) {
                return Ok(Ok(false));
            }
            delete_secret(tx.conn, &secret.key)?;
            tx.effects.has_deleted_content = true;
            insert_secret(tx.conn, &secret)?;
            Ok(Ok(true))
        })
        .await
    }

    async fn claim_secret(&self, key: &SecretKey, version: u64, now: Millis, until: Millis) -> StoreResult<bool> {
        let key = key.clone();
        self.call_writer(TaskCost::ROW, move |tx| {
            let sql = "UPDATE user_secrets SET claimed_until = ?6
                       WHERE owner = ?1 AND kind = ?2 AND name = ?3 AND version = ?4
                         AND coalesce(claimed_until, 0) <= ?5 AND coalesce(expires_at, ?5 + 1) > ?5";
            let (owner, kind) = (key.owner.as_str(), key.kind.as_str());
            let times = (now.cast_signed(), until.cast_signed());
            let params = (owner, kind, &key.name, version.cast_signed(), times.0, times.1);
            Ok(Ok(tx.conn.prepare_cached(sql)?.execute(params)? > 0))
        })
        .await
    }

    async fn take_secret(&self, kind: SecretKind, name: &str, now: Millis) -> StoreResult<Option<StoredSecret>> {
        let name = name.to_owned();
        // Strangers come with names that do not exist, and must not keep the writer busy.
        let wanted = name.clone();
        if self.query(move |conn| find_by_name(conn, kind, &wanted)).await?.is_none() {
            return Ok(None);
        }
        let taken = self.call_writer_for_relief(move |tx| {
            let Some(secret) = find_by_name(tx.conn, kind, &name)? else { return Ok(Ok(None)) };
            delete_secret(tx.conn, &secret.key)?;
            tx.effects.has_deleted_content = true;
            Ok(Ok(Some(secret)))
        });
        Ok(taken.await?.filter(|secret| secret.is_current(now)))
    }

    async fn delete_secret(&self, key: &SecretKey) -> StoreResult<bool> {
        let key = key.clone();
        self.call_writer_for_relief(move |tx| {
            let deleted = delete_secret(tx.conn, &key)?;
            tx.effects.has_deleted_content |= deleted;
            Ok(Ok(deleted))
        })
        .await
    }

    async fn delete_secrets(&self, owner: &UserId) -> StoreResult<u64> {
        let owner = owner.clone();
        self.call_writer_for_relief(move |tx| {
            let deleted = tx.conn.execute("DELETE FROM user_secrets WHERE owner = ?1", [owner.as_str()])?;
            tx.effects.has_deleted_content |= deleted > 0;
            Ok(Ok(u64::try_from(deleted).unwrap_or(u64::MAX)))
        })
        .await
    }
}

fn find_secret(conn: &Connection, key: &SecretKey) -> rusqlite::Result<Option<StoredSecret>> {
    let sql = format!("{SELECT} WHERE owner = ?1 AND kind = ?2 AND name = ?3");
    let params = (key.owner.as_str(), key.kind.as_str(), &key.name);
    Ok(conn.prepare_cached(&sql)?.query_row(params, secret_row).optional()?.flatten())
}

fn find_by_name(conn: &Connection, kind: SecretKind, name: &str) -> rusqlite::Result<Option<StoredSecret>> {
    let sql = format!("{SELECT} WHERE kind = ?1 AND name = ?2 LIMIT 1");
    Ok(conn.prepare_cached(&sql)?.query_row((kind.as_str(), name), secret_row).optional()?.flatten())
}

fn delete_secret(conn: &Connection, key: &SecretKey) -> rusqlite::Result<bool> {
    let sql = "DELETE FROM user_secrets WHERE owner = ?1 AND kind = ?2 AND name = ?3";
    Ok(conn.prepare_cached(sql)?.execute((key.owner.as_str(), key.kind.as_str(), &key.name))? > 0)
}

/// Inserts a row whose key is free, and deletes what has expired or has to make room.
fn insert_secret(conn: &Connection, secret: &NewSecret) -> rusqlite::Result<u64> {
    let NewSecret { key, body, at, expires_at, count_max } = secret;
    let sql = "DELETE FROM user_secrets WHERE version IN
               (SELECT version FROM user_secrets WHERE expires_at <= ?1 LIMIT ?2)";
    conn.prepare_cached(sql)?.execute((at.cast_signed(), EXPIRED_ROWS_MAX))?;
    let sql = "INSERT INTO user_secrets (owner, kind, name, body, updated_at, expires_at)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let (owner, kind) = (key.owner.as_str(), key.kind.as_str());
    let expires_at = expires_at.map(Millis::cast_signed);
    conn.prepare_cached(sql)?.execute((owner, kind, &key.name, body, at.cast_signed(), expires_at))?;
    let version = conn.last_insert_rowid().cast_unsigned();
    let sql = "DELETE FROM user_secrets WHERE version IN (SELECT version FROM user_secrets
               WHERE owner = ?1 AND kind = ?2 ORDER BY version DESC LIMIT -1 OFFSET ?3)";
    let count_max = i64::try_from(*count_max).unwrap_or(i64::MAX);
    conn.prepare_cached(sql)?.execute((owner, kind, count_max))?;
    Ok(version)
}

/// `None` for a kind of a newer version.
fn secret_row(row: &Row<'_>) -> rusqlite::Result<Option<StoredSecret>> {
    let Some(kind) = SecretKind::parse(&get_text(row, 1)?) else { return Ok(None) };
    let key = SecretKey { owner: UserId::from(get_text(row, 0)?), kind, name: get_text(row, 2)? };
    Ok(Some(StoredSecret {
        key,
        version: get_u64(row, 3)?,
        body: row.get(4)?,
        updated_at: get_u64(row, 5)?,
        expires_at: get_opt_u64(row, 6)?,
    }))
}
