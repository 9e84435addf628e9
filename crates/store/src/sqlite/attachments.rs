//! The rows of files. One without a number of bytes is only expected, or was released (see `uses`).

use super::Sqlite;
use super::directory::{maybe, number, text};
use super::group::Group;
use super::ops::Op;
use super::uses::{Named, Use};
use crate::admit;
use model::ports::{AttachmentOutcome, AttachmentRow, Attachments, BoxFuture, StoreError};
use model::seq::Millis;
use model::{ThreadId, UserId};
use rusqlite::{Connection, OptionalExtension, Row};

impl Attachments for Sqlite {
    fn reserve_attachment<'a>(
        &'a self,
        owner: &'a UserId,
        path: &'a str,
        at: Millis,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let place = Box::new((owner.clone(), path.to_owned()));
        Box::pin(self.ask(move |reply| Op::ExpectFile { place, at, reply }))
    }

    fn commit_attachment<'a>(
        &'a self,
        owner: &'a UserId,
        row: AttachmentRow,
        bytes_max: Option<u64>,
    ) -> BoxFuture<'a, Result<AttachmentOutcome, StoreError>> {
        let file = Box::new((owner.clone(), row));
        Box::pin(self.ask(move |reply| Op::PutFile { file, bytes_max, reply }))
    }

    fn attachment<'a>(
        &'a self,
        owner: &'a UserId,
        path: &'a str,
    ) -> BoxFuture<'a, Result<Option<AttachmentRow>, StoreError>> {
        let (owner, path) = (owner.clone(), path.to_owned());
        Box::pin(self.readers.query(move |conn| by_path(conn, &owner, &path)))
    }

    fn attachment_bytes_used<'a>(&'a self, owner: &'a UserId) -> BoxFuture<'a, Result<u64, StoreError>> {
        let owner = owner.clone();
        Box::pin(self.readers.query(move |conn| held(conn, &owner)))
    }

    fn delete_attachment<'a>(&'a self, owner: &'a UserId, path: &'a str) -> BoxFuture<'a, Result<bool, StoreError>> {
        let place = Box::new((owner.clone(), path.to_owned()));
        Box::pin(self.ask(move |reply| Op::DeleteFile { place, reply }))
    }

    fn link_attachment<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
        path: &'a str,
    ) -> BoxFuture<'a, Result<Option<AttachmentRow>, StoreError>> {
        let file = Named::Path(path.to_owned());
        let wanted = Box::new(Use { owner: owner.clone(), thread: thread.clone(), file });
        Box::pin(self.ask(move |reply| Op::UseFile { wanted, reply }))
    }

    fn commit_blob<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
        row: AttachmentRow,
        bytes_max: Option<u64>,
    ) -> BoxFuture<'a, Result<AttachmentOutcome, StoreError>> {
        let blob = Box::new((owner.clone(), thread.clone(), row));
        Box::pin(self.ask(move |reply| Op::PutBlob { blob, bytes_max, reply }))
    }

    fn link_blob<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
        hash: &'a str,
    ) -> BoxFuture<'a, Result<Option<AttachmentRow>, StoreError>> {
        let file = Named::Hash(hash.to_owned());
        let wanted = Box::new(Use { owner: owner.clone(), thread: thread.clone(), file });
        Box::pin(self.ask(move |reply| Op::UseFile { wanted, reply }))
    }

    fn blob<'a>(
        &'a self,
        owner: &'a UserId,
        thread: Option<&'a ThreadId>,
        hash: &'a str,
    ) -> BoxFuture<'a, Result<Option<AttachmentRow>, StoreError>> {
        let (owner, thread, hash) = (owner.clone(), thread.cloned(), hash.to_owned());
        Box::pin(self.readers.query(move |conn| match thread {
            None => by_hash(conn, &owner, &hash),
            Some(thread) => {
                let sql = format!(
                    "{SELECT} WHERE owner = ?1 AND hash = ?2 AND bytes IS NOT NULL AND EXISTS
                     (SELECT 1 FROM attachment_uses u WHERE u.owner = ?1 AND u.thread = ?3 AND u.path = attachments.path)"
                );
                let wanted = (owner.as_str(), hash, thread.as_str());
                conn.prepare_cached(&sql)?.query_row(wanted, file_row).optional()
            }
        }))
    }

    fn unreferenced_attachments(&self) -> BoxFuture<'_, Result<Vec<(UserId, String)>, StoreError>> {
        let sql = "SELECT owner, path FROM attachments WHERE released = 1 ORDER BY owner, path";
        Box::pin(self.readers.query(move |conn| conn.prepare_cached(sql)?.query_map((), place)?.collect()))
    }

    fn stale_attachments(&self) -> BoxFuture<'_, Result<Vec<(UserId, String)>, StoreError>> {
        let sql = "SELECT owner, path FROM attachments WHERE bytes IS NULL ORDER BY owner, path";
        Box::pin(self.readers.query(move |conn| conn.prepare_cached(sql)?.query_map((), place)?.collect()))
    }
}

impl Group<'_> {
    /// Expects a file, unless it is expected or there.
    pub(crate) fn expect_file(
        &mut self,
        (owner, path): &(UserId, String),
        at: Millis,
    ) -> rusqlite::Result<Result<(), StoreError>> {
        let sql = "INSERT OR IGNORE INTO attachments VALUES (?1, ?2, '', '', NULL, ?3, NULL, 0)";
        self.conn.prepare_cached(sql)?.execute((owner.as_str(), path, at.cast_signed()))?;
        Ok(Ok(()))
    }

    /// Says that a file is there, unless it is too much.
    pub(crate) fn put_file(
        &mut self,
        (owner, row): &(UserId, AttachmentRow),
        bytes_max: Option<u64>,
    ) -> rusqlite::Result<Result<AttachmentOutcome, StoreError>> {
        if row.hash.is_some() {
            return Ok(Err(admit::blob_without_thread(&row.path)));
        }
        self.put_row(owner, row, bytes_max)
    }

    /// The same for a file of any kind.
    pub(super) fn put_row(
        &mut self,
        owner: &UserId,
        row: &AttachmentRow,
        bytes_max: Option<u64>,
    ) -> rusqlite::Result<Result<AttachmentOutcome, StoreError>> {
        match state(self.conn, owner, &row.path)? {
            Some(State::There(_)) => return Ok(Ok(AttachmentOutcome::Stored)),
            // Whoever removes its bytes would remove the new ones.
            Some(State::Released) => return Ok(Err(admit::taken_path(&row.path))),
            Some(State::Expected) | None => {}
        }
        let used = held(self.conn, owner)?;
        let sum = used.saturating_add(row.size_bytes);
        if bytes_max.is_some_and(|most| sum > most) {
            return Ok(Ok(AttachmentOutcome::QuotaExceeded { used }));
        }
        let sql = "INSERT OR REPLACE INTO attachments VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0)";
        let mut put = self.conn.prepare_cached(sql)?;
        let (bytes, at) = (row.size_bytes.cast_signed(), row.created_at.cast_signed());
        put.execute((owner.as_str(), &row.path, &row.name, &row.content_type, bytes, at, &row.hash))?;
        set_held(self.conn, owner, sum)?;
        Ok(Ok(AttachmentOutcome::Stored))
    }

    /// Forgets a file. Nobody uses it any more.
    pub(crate) fn delete_file(
        &mut self,
        (owner, path): &(UserId, String),
    ) -> rusqlite::Result<Result<bool, StoreError>> {
        let Some(state) = state(self.conn, owner, path)? else { return Ok(Ok(false)) };
        for table in ["attachments", "attachment_uses"] {
            let sql = format!("DELETE FROM {table} WHERE owner = ?1 AND path = ?2");
            self.conn.prepare_cached(&sql)?.execute((owner.as_str(), path))?;
        }
        if let State::There(bytes) = state {
            set_held(self.conn, owner, held(self.conn, owner)?.saturating_sub(bytes))?;
            self.deleted = true;
        }
        Ok(Ok(true))
    }
}

/// What is known of a path.
enum State {
    Expected,
    /// With so many bytes.
    There(u64),
    Released,
}

fn state(conn: &Connection, owner: &UserId, path: &str) -> rusqlite::Result<Option<State>> {
    let mut select = conn.prepare_cached("SELECT bytes, released FROM attachments WHERE owner = ?1 AND path = ?2")?;
    let state = |row: &Row<'_>| {
        Ok(match maybe(row, 0)? {
            Some(bytes) => State::There(bytes),
            None if row.get(1)? => State::Released,
            None => State::Expected,
        })
    };
    select.query_row((owner.as_str(), path), state).optional()
}

/// What [`file_row`] reads.
const SELECT: &str = "SELECT path, name, content_type, bytes, created_at, hash FROM attachments";

/// A file that is there.
pub(super) fn by_path(conn: &Connection, owner: &UserId, path: &str) -> rusqlite::Result<Option<AttachmentRow>> {
    let sql = format!("{SELECT} WHERE owner = ?1 AND path = ?2 AND bytes IS NOT NULL");
    conn.prepare_cached(&sql)?.query_row((owner.as_str(), path), file_row).optional()
}

/// A blob that is there.
pub(super) fn by_hash(conn: &Connection, owner: &UserId, hash: &str) -> rusqlite::Result<Option<AttachmentRow>> {
    let sql = format!("{SELECT} WHERE owner = ?1 AND hash = ?2 AND bytes IS NOT NULL");
    conn.prepare_cached(&sql)?.query_row((owner.as_str(), hash), file_row).optional()
}

/// What a user's files hold together.
pub(super) fn held(conn: &Connection, owner: &UserId) -> rusqlite::Result<u64> {
    let mut select = conn.prepare_cached("SELECT bytes FROM attachment_sums WHERE owner = ?1")?;
    Ok(select.query_row([owner.as_str()], |row| number(row, 0)).optional()?.unwrap_or_default())
}

pub(super) fn set_held(conn: &Connection, owner: &UserId, bytes: u64) -> rusqlite::Result<()> {
    let mut put = conn.prepare_cached("INSERT OR REPLACE INTO attachment_sums VALUES (?1, ?2)")?;
    put.execute((owner.as_str(), bytes.cast_signed())).map(drop)
}

/// A row that begins with owner and path.
pub(crate) fn place(row: &Row<'_>) -> rusqlite::Result<(UserId, String)> {
    Ok((UserId::from(text(row, 0)?), text(row, 1)?))
}

/// A row that begins with path, name, type, bytes, time and hash.
pub(crate) fn file_row(row: &Row<'_>) -> rusqlite::Result<AttachmentRow> {
    Ok(AttachmentRow {
        path: text(row, 0)?,
        name: text(row, 1)?,
        content_type: text(row, 2)?,
        size_bytes: number(row, 3)?,
        created_at: number(row, 4)?,
        hash: row.get(5)?,
    })
}
