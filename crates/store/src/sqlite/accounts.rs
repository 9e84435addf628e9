//! Access keys.

use super::SqliteStore;
use super::columns::{get_opt_u64, get_text, get_u64};
use async_trait::async_trait;
use model::UserId;
use model::ports::validation;
use model::ports::{AccessKeyRow, Accounts, StoreError, StoreResult};
use model::seq::Millis;
use rusqlite::{Connection, Row};

#[async_trait]
impl Accounts for SqliteStore {
    async fn access_keys(&self) -> StoreResult<Vec<AccessKeyRow>> {
        self.query(|conn| {
            let sql = "SELECT id, user, digest, created_at, revoked_at FROM keys ORDER BY created_at, id";
            conn.prepare_cached(sql)?.query_map((), access_key_row)?.collect()
        })
        .await
    }

    async fn create_access_key(&self, key: AccessKeyRow) -> StoreResult<()> {
        self.call_writer_for_relief(move |tx| insert_access_key(tx.conn, &key)).await
    }

    async fn revoke_access_key(&self, id: &str, at: Millis) -> StoreResult<bool> {
        let id = id.to_owned();
        self.call_writer_for_relief(move |tx| {
            let sql = "UPDATE keys SET revoked_at = coalesce(revoked_at, ?2) WHERE id = ?1";
            Ok(Ok(tx.conn.prepare_cached(sql)?.execute((id, at.cast_signed()))? > 0))
        })
        .await
    }
}

fn insert_access_key(conn: &Connection, key: &AccessKeyRow) -> rusqlite::Result<Result<(), StoreError>> {
    if conn.prepare_cached("SELECT 1 FROM keys WHERE id = ?1")?.exists([&key.id])? {
        return Ok(Err(validation::key_exists_error(&key.id)));
    }
    let revoked = key.revoked_at.map(u64::cast_signed);
    let mut insert = conn.prepare_cached("INSERT INTO keys VALUES (?1, ?2, ?3, ?4, ?5)")?;
    insert.execute((&key.id, key.user.as_str(), &key.digest, key.created_at.cast_signed(), revoked))?;
    Ok(Ok(()))
}

fn access_key_row(row: &Row<'_>) -> rusqlite::Result<AccessKeyRow> {
    Ok(AccessKeyRow {
        id: get_text(row, 0)?,
        user: UserId::from(get_text(row, 1)?),
        digest: get_text(row, 2)?,
        created_at: get_u64(row, 3)?,
        revoked_at: get_opt_u64(row, 4)?,
    })
}
