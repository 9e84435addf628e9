//! Names of threads. A name holds its thread's own name, not its number: it may be there before its thread is.

use super::directory::{get_text, get_u64};
use super::transaction::WriteTransaction;
use model::ports::{AliasRow, StoreError};
use model::{ThreadId, UserId};
use rusqlite::{Connection, OptionalExtension, Row};

/// Which name, whose.
#[derive(Clone, Debug)]
pub(crate) struct AliasKey {
    /// Whose.
    pub(crate) owner: UserId,
    /// Where it is a name.
    pub(crate) protocol: String,
    /// The name.
    pub(crate) name: String,
}

impl AliasKey {
    /// The same, as the port says it.
    pub(crate) fn new(owner: &UserId, protocol: &str, name: &str) -> Self {
        Self { owner: owner.clone(), protocol: protocol.to_owned(), name: name.to_owned() }
    }

    fn as_params(&self) -> (&str, &String, &String) {
        (self.owner.as_str(), &self.protocol, &self.name)
    }
}

/// What a name stands for.
pub(crate) fn find_alias(conn: &Connection, place: &AliasKey) -> rusqlite::Result<Option<AliasRow>> {
    let sql = "SELECT protocol, name, thread, note, created_at FROM names
               WHERE owner = ?1 AND protocol = ?2 AND name = ?3";
    conn.prepare_cached(sql)?.query_row(place.as_params(), alias_row).optional()
}

impl WriteTransaction<'_> {
    /// Gives a name, unless it is taken.
    pub(crate) fn create_alias(
        &mut self,
        owner: &UserId,
        row: &AliasRow,
    ) -> rusqlite::Result<Result<AliasRow, StoreError>> {
        let mut insert = self.conn.prepare_cached("INSERT OR IGNORE INTO names VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
        let (thread, at) = (row.thread.as_str(), row.created_at.cast_signed());
        insert.execute((owner.as_str(), &row.protocol, &row.name, thread, &row.note, at))?;
        let there = find_alias(self.conn, &AliasKey::new(owner, &row.protocol, &row.name))?;
        Ok(Ok(there.unwrap_or_else(|| row.clone())))
    }

    /// Notes something else beside a name, or frees it.
    pub(crate) fn change_alias(
        &mut self,
        place: &AliasKey,
        note: Option<&str>,
    ) -> rusqlite::Result<Result<bool, StoreError>> {
        let (owner, protocol, name) = place.as_params();
        let changed = match note {
            Some(note) => {
                let sql = "UPDATE names SET note = ?4 WHERE owner = ?1 AND protocol = ?2 AND name = ?3";
                self.conn.prepare_cached(sql)?.execute((owner, protocol, name, note))?
            }
            None => {
                let sql = "DELETE FROM names WHERE owner = ?1 AND protocol = ?2 AND name = ?3";
                let forgotten = self.conn.prepare_cached(sql)?.execute((owner, protocol, name))?;
                self.has_deleted_content |= forgotten > 0;
                forgotten
            }
        };
        Ok(Ok(changed > 0))
    }
}

fn alias_row(row: &Row<'_>) -> rusqlite::Result<AliasRow> {
    Ok(AliasRow {
        protocol: get_text(row, 0)?,
        name: get_text(row, 1)?,
        thread: ThreadId::from(get_text(row, 2)?),
        note: get_text(row, 3)?,
        created_at: get_u64(row, 4)?,
    })
}
