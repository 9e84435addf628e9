//! Names of threads. A name holds its thread's own name, not its number: it may be there before its thread is.

use super::directory::{number, text};
use super::group::Group;
use model::ports::{AliasRow, StoreError};
use model::{ThreadId, UserId};
use rusqlite::{Connection, OptionalExtension, Row};

/// Which name, whose.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Whose.
    pub(crate) owner: UserId,
    /// Where it is a name.
    pub(crate) protocol: String,
    /// The name.
    pub(crate) name: String,
}

impl Place {
    /// The same, as the port says it.
    pub(crate) fn new(owner: &UserId, protocol: &str, name: &str) -> Self {
        Self { owner: owner.clone(), protocol: protocol.to_owned(), name: name.to_owned() }
    }

    fn key(&self) -> (&str, &String, &String) {
        (self.owner.as_str(), &self.protocol, &self.name)
    }
}

/// What a name stands for.
pub(crate) fn find(conn: &Connection, place: &Place) -> rusqlite::Result<Option<AliasRow>> {
    let sql = "SELECT protocol, name, thread, note, created_at FROM names
               WHERE owner = ?1 AND protocol = ?2 AND name = ?3";
    conn.prepare_cached(sql)?.query_row(place.key(), name_row).optional()
}

impl Group<'_> {
    /// Gives a name, unless it is taken.
    pub(crate) fn give_name(
        &mut self,
        owner: &UserId,
        row: &AliasRow,
    ) -> rusqlite::Result<Result<AliasRow, StoreError>> {
        let mut insert = self.conn.prepare_cached("INSERT OR IGNORE INTO names VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
        let (thread, at) = (row.thread.as_str(), row.created_at.cast_signed());
        insert.execute((owner.as_str(), &row.protocol, &row.name, thread, &row.note, at))?;
        let there = find(self.conn, &Place::new(owner, &row.protocol, &row.name))?;
        Ok(Ok(there.unwrap_or_else(|| row.clone())))
    }

    /// Notes something else beside a name, or frees it.
    pub(crate) fn change_name(
        &mut self,
        place: &Place,
        note: Option<&str>,
    ) -> rusqlite::Result<Result<bool, StoreError>> {
        let (owner, protocol, name) = place.key();
        let changed = match note {
            Some(note) => {
                let sql = "UPDATE names SET note = ?4 WHERE owner = ?1 AND protocol = ?2 AND name = ?3";
                self.conn.prepare_cached(sql)?.execute((owner, protocol, name, note))?
            }
            None => {
                let sql = "DELETE FROM names WHERE owner = ?1 AND protocol = ?2 AND name = ?3";
                let forgotten = self.conn.prepare_cached(sql)?.execute((owner, protocol, name))?;
                self.deleted |= forgotten > 0;
                forgotten
            }
        };
        Ok(Ok(changed > 0))
    }
}

fn name_row(row: &Row<'_>) -> rusqlite::Result<AliasRow> {
    Ok(AliasRow {
        protocol: text(row, 0)?,
        name: text(row, 1)?,
        thread: ThreadId::from(text(row, 2)?),
        note: text(row, 3)?,
        created_at: number(row, 4)?,
    })
}
