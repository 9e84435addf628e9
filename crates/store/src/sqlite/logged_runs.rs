//! One run as it is logged, read beside whoever works in the folder: no lock is taken and nothing is changed.
//!
//! What there is to read is settled once, in one snapshot. The records then come page by page, each page in a snapshot and
//! from a connection of its own: whoever shows a run as slowly as it went must not keep the server from emptying its
//! write-ahead log meanwhile. `page` knows how to find what moved in between.

use super::attachments::find_blob;
use super::data_folder::{StoreOpenError, database_path};
use super::page::{PageQuery, read_page};
use super::record_blocks::RecordBlock;
use super::record_index::RecordIndex;
use super::record_row::unavailable_error;
use super::record_scan::scan_records;
use super::schema::{MIGRATIONS, open_immutable, open_reader, schema_version, wal_path};
use model::ports::{AttachmentRow, PageLimit, StoreError};
use model::record::Record;
use model::seq::Seq;
use model::{TaskId, ThreadId, UserId};
use rusqlite::{Connection, OptionalExtension};
use std::path::{Path, PathBuf};

/// A run as far as it was logged when it was asked for.
#[derive(Debug)]
pub struct LoggedRun {
    /// Its name.
    pub id: TaskId,
    /// Whose it is.
    pub owner: UserId,
    /// Its thread.
    pub thread: ThreadId,
    /// Had it ended? What else would have been logged is not here.
    pub has_ended: bool,
    /// Its first and its last record; a run that waits for its turn has none.
    pub seq_range: Option<(Seq, Seq)>,
    database: PathBuf,
    /// Where those of its records lie that are no blocks yet.
    index: RecordIndex,
}

/// Finds a run in a data folder, whoever's it is; `None` when there is none of this name. A server may work in the folder.
///
/// # Errors
/// When there is nothing to look at: no database of ours, or a newer one.
pub fn find_logged_run(dir: &Path, id: &TaskId) -> Result<Option<LoggedRun>, StoreOpenError> {
    let database = database_path(dir)?;
    let refused = |error: &rusqlite::Error| StoreOpenError::from_sqlite(&database, error);
    with_shared_database(&database, refused, |conn| {
        let found =
            schema_version(conn, MIGRATIONS).map_err(|error| StoreOpenError::from_migration(&database, &error))?;
        if found == 0 { Ok(None) } else { query_logged_run(conn, &database, id).map_err(|error| refused(&error)) }
    })
}

impl LoggedRun {
    /// Its records in their order. After an error there are no more.
    #[must_use]
    pub fn records(&self) -> LoggedRecords<'_> {
        let after = self.seq_range.map_or(Seq::ZERO, |(first, _)| first.prev());
        LoggedRecords { run: self, page: Vec::new().into_iter(), after, failed: false }
    }

    /// What is known of a blob that the run's owner has; `None` when there is none with this hash.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn find_blob(&self, hash: &str) -> Result<Option<AttachmentRow>, StoreError> {
        with_shared_database(&self.database, unavailable_error, |conn| {
            find_blob(conn, &self.owner, hash).map_err(|error| unavailable_error(&error))
        })
    }

    fn read_page(&self, after: Seq, last: Seq) -> Result<Vec<Record>, StoreError> {
        let limit = PageLimit::WIDE;
        let plan = self.index.read_plan(&self.thread, after, limit.records_max);
        let ask = PageQuery { owner: self.owner.clone(), thread: self.thread.clone(), after, limit, plan };
        let mut records =
            with_shared_database(&self.database, unavailable_error, |conn| read_page(conn, &ask))?.records;
        records.retain(|record| record.seq <= last && record.run == self.id);
        if records.is_empty() {
            return Err(StoreError::Corrupt { thread: self.thread.clone(), seq: after.next() });
        }
        Ok(records)
    }
}

/// The records of a run, a page at a time in memory.
#[derive(Debug)]
pub struct LoggedRecords<'a> {
    run: &'a LoggedRun,
    page: std::vec::IntoIter<Record>,
    after: Seq,
    failed: bool,
}

impl Iterator for LoggedRecords<'_> {
    type Item = Result<Record, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (_, last) = self.run.seq_range?;
        if self.page.len() == 0 && self.after < last && !self.failed {
            match self.run.read_page(self.after, last) {
                Ok(records) => self.page = records.into_iter(),
                Err(error) => {
                    self.failed = true;
                    return Some(Err(error));
                }
            }
        }
        let record = self.page.next()?;
        self.after = record.seq;
        Some(Ok(record))
    }
}

/// Looks at a database that a server may have open. Where it has a write-ahead log SQLite keeps us out of each other's way.
/// Where it has none nobody works in it, and it is looked at without a trace; somebody who comes meanwhile makes a log
/// before anything else changes, and then what was seen does not count.
fn with_shared_database<T, E>(
    database: &Path,
    refused: impl Fn(&rusqlite::Error) -> E,
    look: impl Fn(&Connection) -> Result<T, E>,
) -> Result<T, E> {
    let log = wal_path(database);
    if !log.exists() {
        let seen = open_immutable(database).map_err(|error| refused(&error)).and_then(|conn| look(&conn));
        if !log.exists() {
            return seen;
        }
    }
    look(&open_reader(database).map_err(|error| refused(&error))?)
}

fn query_logged_run(conn: &Connection, database: &Path, id: &TaskId) -> rusqlite::Result<Option<LoggedRun>> {
    let snapshot = conn.unchecked_transaction()?;
    let sql = "SELECT t.num, t.id, t.owner, r.ended_at IS NOT NULL, r.first, r.last
               FROM runs r JOIN threads t ON t.num = r.thread WHERE r.id = ?1 ORDER BY r.num LIMIT 1";
    let seq = |number: Option<i64>| number.map(|number| Seq(number.cast_unsigned()));
    let row = snapshot.query_row(sql, [id.as_str()], |row| {
        let names: (i64, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok((names, row.get::<_, bool>(3)?, seq(row.get(4)?), seq(row.get(5)?)))
    });
    let Some(((num, thread, owner), ended, first, last)) = row.optional()? else { return Ok(None) };
    let thread = ThreadId::from(thread);
    let index = RecordIndex::default();
    let settled = RecordBlock::last_packed_seq(&snapshot, num)?;
    // All rows have to be passed to find some, which is not worth it where the blocks have everything.
    if first.is_some() && !(ended && last.is_some_and(|last| last <= settled)) {
        index.replace(scan_records(&snapshot)?.threads.into_iter().filter(|(id, _)| *id == thread).collect());
    }
    // A run that goes on is its thread's last: it reaches as far as the log does.
    let head = index.read_plan(&thread, Seq::ZERO, 1).map_or(settled, |plan| plan.head);
    let last = if ended { last } else { Some(head) };
    let span = first.zip(last).filter(|(first, last)| first <= last);
    let (id, owner, database) = (id.clone(), UserId::from(owner), database.to_owned());
    Ok(Some(LoggedRun { id, owner, thread, has_ended: ended, seq_range: span, database, index }))
}
