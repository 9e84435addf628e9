//! Aliases. A row refers to its thread by id rather than by number, because the thread may not exist yet.

use super::columns::{get_text, get_u64};
use model::ports::{AliasData, AliasKind, AliasRow, AliasUpdate, ConversationData};
use model::{ThreadId, UserId};
use rusqlite::{Connection, OptionalExtension};

pub(super) fn find_alias(
    conn: &Connection,
    owner: &UserId,
    kind: AliasKind,
    name: &str,
) -> rusqlite::Result<Option<AliasRow>> {
    let sql = "SELECT name, thread, note, created_at FROM names WHERE owner = ?1 AND protocol = ?2 AND name = ?3";
    let mut select = conn.prepare_cached(sql)?;
    let found = select.query_row((owner.as_str(), kind.as_str(), name), |row| {
        Ok(AliasRow {
            name: get_text(row, 0)?,
            thread: ThreadId::from(get_text(row, 1)?),
            data: AliasData::from_stored(kind, &get_text(row, 2)?),
            created_at: get_u64(row, 3)?,
        })
    });
    found.optional()
}

/// Inserts an alias unless it exists. Returns the row that exists afterwards.
pub(super) fn insert_alias(conn: &Connection, owner: &UserId, row: AliasRow) -> rusqlite::Result<AliasRow> {
    let (kind, thread, at) = (row.data.kind(), row.thread.as_str(), row.created_at.cast_signed());
    let mut insert = conn.prepare_cached("INSERT OR IGNORE INTO names VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
    insert.execute((owner.as_str(), kind.as_str(), &row.name, thread, row.data.to_stored(), at))?;
    Ok(find_alias(conn, owner, kind, &row.name)?.unwrap_or(row))
}

/// Replaces a conversation's data if its row is still `current`.
pub(super) fn update_conversation(
    conn: &Connection,
    owner: &UserId,
    current: &AliasRow,
    data: &ConversationData,
) -> rusqlite::Result<AliasUpdate> {
    let kind = AliasKind::Conversation;
    let Some(stored) = find_alias(conn, owner, kind, &current.name)? else { return Ok(AliasUpdate::NotFound) };
    // Compares values, not text: a decoded number may be encoded differently.
    if stored != *current {
        return Ok(AliasUpdate::Conflict);
    }
    let sql = "UPDATE names SET note = ?4 WHERE owner = ?1 AND protocol = ?2 AND name = ?3";
    conn.prepare_cached(sql)?.execute((owner.as_str(), kind.as_str(), &current.name, data.to_stored()))?;
    Ok(AliasUpdate::Updated)
}

/// Returns false when there is no such alias.
pub(super) fn delete_alias(conn: &Connection, owner: &UserId, kind: AliasKind, name: &str) -> rusqlite::Result<bool> {
    let sql = "DELETE FROM names WHERE owner = ?1 AND protocol = ?2 AND name = ?3";
    Ok(conn.prepare_cached(sql)?.execute((owner.as_str(), kind.as_str(), name))? > 0)
}
