//! The rows of files. One without a number of bytes is only expected.

use super::Sqlite;
use super::directory::{number, text};
use super::group::Group;
use super::ops::Op;
use model::UserId;
use model::ports::{AttachmentRow, Attachments, BoxFuture, Kept, StoreError};
use model::seq::Millis;
use rusqlite::{Connection, OptionalExtension, Row};

impl Attachments for Sqlite {
    fn expect_attachment<'a>(
        &'a self,
        owner: &'a UserId,
        path: &'a str,
        at: Millis,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let place = Box::new((owner.clone(), path.to_owned()));
        Box::pin(self.ask(move |reply| Op::ExpectFile { place, at, reply }))
    }

    fn put_attachment<'a>(
        &'a self,
        owner: &'a UserId,
        row: AttachmentRow,
        bytes_max: Option<u64>,
    ) -> BoxFuture<'a, Result<Kept, StoreError>> {
        let file = Box::new((owner.clone(), row));
        Box::pin(self.ask(move |reply| Op::PutFile { file, bytes_max, reply }))
    }

    fn attachment<'a>(
        &'a self,
        owner: &'a UserId,
        path: &'a str,
    ) -> BoxFuture<'a, Result<Option<AttachmentRow>, StoreError>> {
        let (owner, path) = (owner.clone(), path.to_owned());
        Box::pin(self.readers.query(move |conn| {
            let sql = "SELECT path, name, content_type, bytes, created_at FROM attachments
                       WHERE owner = ?1 AND path = ?2 AND bytes IS NOT NULL";
            conn.prepare_cached(sql)?.query_row((owner.as_str(), path), file_row).optional()
        }))
    }

    fn attachment_bytes<'a>(&'a self, owner: &'a UserId) -> BoxFuture<'a, Result<u64, StoreError>> {
        let owner = owner.clone();
        Box::pin(self.readers.query(move |conn| held(conn, &owner)))
    }

    fn delete_attachment<'a>(&'a self, owner: &'a UserId, path: &'a str) -> BoxFuture<'a, Result<bool, StoreError>> {
        let place = Box::new((owner.clone(), path.to_owned()));
        Box::pin(self.ask(move |reply| Op::DeleteFile { place, reply }))
    }

    fn unfinished_attachments(&self) -> BoxFuture<'_, Result<Vec<(UserId, String)>, StoreError>> {
        Box::pin(self.readers.query(|conn| {
            let sql = "SELECT owner, path FROM attachments WHERE bytes IS NULL ORDER BY owner, path";
            let place = |row: &Row<'_>| Ok((UserId::from(text(row, 0)?), text(row, 1)?));
            conn.prepare_cached(sql)?.query_map((), place)?.collect()
        }))
    }
}

impl Group<'_> {
    /// Expects a file, unless it is expected or there.
    pub(crate) fn expect_file(
        &mut self,
        (owner, path): &(UserId, String),
        at: Millis,
    ) -> rusqlite::Result<Result<(), StoreError>> {
        let sql = "INSERT OR IGNORE INTO attachments VALUES (?1, ?2, '', '', NULL, ?3)";
        self.conn.prepare_cached(sql)?.execute((owner.as_str(), path, at.cast_signed()))?;
        Ok(Ok(()))
    }

    /// Says that a file is there, unless it is too much.
    pub(crate) fn put_file(
        &mut self,
        (owner, row): &(UserId, AttachmentRow),
        bytes_max: Option<u64>,
    ) -> rusqlite::Result<Result<Kept, StoreError>> {
        if let Some(Some(_)) = size(self.conn, owner, &row.path)? {
            return Ok(Ok(Kept::Now));
        }
        let used = held(self.conn, owner)?;
        let sum = used.saturating_add(row.bytes);
        if bytes_max.is_some_and(|most| sum > most) {
            return Ok(Ok(Kept::Over { used }));
        }
        let mut put = self.conn.prepare_cached("INSERT OR REPLACE INTO attachments VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
        let (bytes, at) = (row.bytes.cast_signed(), row.created_at.cast_signed());
        put.execute((owner.as_str(), &row.path, &row.name, &row.content_type, bytes, at))?;
        set_held(self.conn, owner, sum)?;
        Ok(Ok(Kept::Now))
    }

    /// Forgets a file.
    pub(crate) fn delete_file(
        &mut self,
        (owner, path): &(UserId, String),
    ) -> rusqlite::Result<Result<bool, StoreError>> {
        let Some(bytes) = size(self.conn, owner, path)? else { return Ok(Ok(false)) };
        let mut delete = self.conn.prepare_cached("DELETE FROM attachments WHERE owner = ?1 AND path = ?2")?;
        delete.execute((owner.as_str(), path))?;
        if let Some(bytes) = bytes {
            set_held(self.conn, owner, held(self.conn, owner)?.saturating_sub(bytes))?;
        }
        Ok(Ok(true))
    }
}

/// How large a file is; `Some(None)` when it is only expected.
fn size(conn: &Connection, owner: &UserId, path: &str) -> rusqlite::Result<Option<Option<u64>>> {
    let mut select = conn.prepare_cached("SELECT bytes FROM attachments WHERE owner = ?1 AND path = ?2")?;
    let size = |row: &Row<'_>| Ok(row.get::<_, Option<i64>>(0)?.map(i64::cast_unsigned));
    select.query_row((owner.as_str(), path), size).optional()
}

fn held(conn: &Connection, owner: &UserId) -> rusqlite::Result<u64> {
    let mut select = conn.prepare_cached("SELECT bytes FROM attachment_sums WHERE owner = ?1")?;
    Ok(select.query_row([owner.as_str()], |row| number(row, 0)).optional()?.unwrap_or_default())
}

fn set_held(conn: &Connection, owner: &UserId, bytes: u64) -> rusqlite::Result<()> {
    let mut put = conn.prepare_cached("INSERT OR REPLACE INTO attachment_sums VALUES (?1, ?2)")?;
    put.execute((owner.as_str(), bytes.cast_signed())).map(drop)
}

fn file_row(row: &Row<'_>) -> rusqlite::Result<AttachmentRow> {
    Ok(AttachmentRow {
        path: text(row, 0)?,
        name: text(row, 1)?,
        content_type: text(row, 2)?,
        bytes: number(row, 3)?,
        created_at: number(row, 4)?,
    })
}
