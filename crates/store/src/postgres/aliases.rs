//! Aliases. A row refers to its thread by id, because the thread may not exist yet.

use super::connection::{OpenTransaction, column, u64_column};
use super::pool::DatabasePool;
use model::ports::{AliasData, AliasKind, AliasRow, AliasUpdate, ConversationData, StoreError, StoreResult};
use model::{ThreadId, UserId};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

/// How often an insertion is tried that meets a row which is then deleted.
const INSERT_ATTEMPTS_MAX: usize = 4;

pub(super) const SELECT: &str =
    "SELECT thread, data, created_at FROM headwater.aliases WHERE owner = $1 AND kind = $2 AND name = $3";

/// The parameters of an alias: owner, kind and name.
pub(super) fn key_params<'a>(
    owner: &'a &'a str,
    kind: &'a &'a str,
    name: &'a &'a [u8],
) -> [(&'a (dyn ToSql + Sync), Type); 3] {
    [(owner, Type::TEXT), (kind, Type::TEXT), (name, Type::BYTEA)]
}

pub(super) fn alias_row(row: &Row, kind: AliasKind, name: &str) -> StoreResult<AliasRow> {
    Ok(AliasRow {
        name: name.to_owned(),
        thread: ThreadId::from(column::<&str>(row, 0)?),
        data: AliasData::from_stored(kind, column(row, 1)?),
        created_at: u64_column(row, 2)?,
    })
}

/// Inserts an alias unless it exists. Returns the row that exists afterwards.
pub(super) async fn insert_alias(pool: &DatabasePool, owner: &UserId, row: AliasRow) -> StoreResult<AliasRow> {
    let (owner, kind, name, data) = (owner.as_str(), row.data.kind(), row.name.as_bytes(), row.data.to_stored());
    let (kind_name, thread, at) = (kind.as_str(), row.thread.as_str(), row.created_at.cast_signed());
    let [owner, kind_param, name] = key_params(&owner, &kind_name, &name);
    let sql = "INSERT INTO headwater.aliases VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING";
    let params = [
        owner.clone(),
        kind_param.clone(),
        name.clone(),
        (&thread as _, Type::TEXT),
        (&data, Type::TEXT),
        (&at, Type::INT8),
    ];
    for _ in 0..INSERT_ATTEMPTS_MAX {
        if pool.execute(sql, &params).await? == 1 {
            return Ok(row);
        }
        let key = [owner.clone(), kind_param.clone(), name.clone()];
        if let Some(stored) = pool.query_opt(SELECT, &key).await? {
            return alias_row(&stored, kind, &row.name);
        }
        // It was deleted meanwhile.
    }
    Err(StoreError::Unavailable("the alias is created and deleted at the same time".to_owned()))
}

/// Replaces a conversation's data if its row is still `current`.
pub(super) async fn update_conversation(
    tx: &OpenTransaction<'_>,
    owner: &UserId,
    current: &AliasRow,
    data: &ConversationData,
) -> StoreResult<AliasUpdate> {
    let kind = AliasKind::Conversation;
    let (owner, kind_name, name) = (owner.as_str(), kind.as_str(), current.name.as_bytes());
    let [owner, kind_param, name] = key_params(&owner, &kind_name, &name);
    let key = [owner.clone(), kind_param.clone(), name.clone()];
    let Some(row) = tx.query_opt(&format!("{SELECT} FOR UPDATE"), &key).await? else {
        return Ok(AliasUpdate::NotFound);
    };
    // Compares values, not text: a decoded number may be encoded differently.
    if alias_row(&row, kind, &current.name)? != *current {
        return Ok(AliasUpdate::Conflict);
    }
    let sql = "UPDATE headwater.aliases SET data = $4 WHERE owner = $1 AND kind = $2 AND name = $3";
    tx.execute(sql, &[owner, kind_param, name, (&data.to_stored(), Type::TEXT)]).await?;
    Ok(AliasUpdate::Updated)
}
