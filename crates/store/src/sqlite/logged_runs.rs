//! Reads a logged run from a data folder that a server may have open, without a lock and without writing.
//!
//! One snapshot determines the range of records. Every page then has its own connection and snapshot, because a slow
//! reader with a long snapshot would keep the server from truncating its write-ahead log. `page` finds records that
//! were packed in between.

use super::attachments::find_blob;
use super::data_folder::{StoreOpenError, database_path};
use super::page::{PageForm, PageQuery, read_page};
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

/// A run, as logged when [`find_logged_run`] was called.
#[derive(Debug)]
pub struct LoggedRun {
    pub id: TaskId,
    pub owner: UserId,
    pub thread: ThreadId,
    /// Whether the run had ended; otherwise later records are missing here.
    pub has_ended: bool,
    /// The first and the last record; `None` for a queued run.
    pub seq_range: Option<(Seq, Seq)>,
    database: PathBuf,
    /// Positions of the records that are not packed yet.
    index: RecordIndex,
}

/// Finds a run of any owner in a data folder. A server may have the folder open.
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
    /// The records in order. The iterator ends after an error.
    pub fn records(&self) -> LoggedRecords<'_> {
        let after = self.seq_range.map_or(Seq::ZERO, |(first, _)| first.prev());
        LoggedRecords { run: self, page: Vec::new().into_iter(), after, failed: false }
    }

    /// The row of the owner's blob with this hash.
    pub fn find_blob(&self, hash: &str) -> Result<Option<AttachmentRow>, StoreError> {
        with_shared_database(&self.database, unavailable_error, |conn| {
            find_blob(conn, &self.owner, hash).map_err(|error| unavailable_error(&error))
        })
    }

    fn read_page(&self, after: Seq, last: Seq) -> Result<Vec<Record>, StoreError> {
        let limit = PageLimit::WIDE;
        let plan = self.index.read_plan(&self.thread, after, limit.records_max);
        let (owner, thread) = (self.owner.clone(), self.thread.clone());
        let ask = PageQuery { owner, thread, after, until: last, limit, plan };
        let mut records =
            with_shared_database(&self.database, unavailable_error, |conn| read_page(conn, &ask, PageForm::Records))?
                .records;
        records.retain(|record| record.seq <= last && record.run == self.id);
        if records.is_empty() {
            return Err(StoreError::Corrupt { thread: self.thread.clone(), seq: after.next() });
        }
        Ok(records)
    }
}

/// Iterator over the records of a run that holds one page in memory.
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

/// Reads a database that a server may have open. With a write-ahead log, SQLite isolates reader and writer. Without
/// one, no server has it open, and an immutable connection leaves no files behind; a server that starts meanwhile
/// creates the log before it writes, and the result is then discarded.
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
    // Finding rows takes a full scan: skip it when the blocks have all records.
    if first.is_some() && !(ended && last.is_some_and(|last| last <= settled)) {
        index.replace(scan_records(&snapshot)?.threads.into_iter().filter(|(id, _)| *id == thread).collect());
    }
    // An active run is the last of its thread, so it extends to the head of the log.
    let head = index.read_plan(&thread, Seq::ZERO, 1).map_or(settled, |plan| plan.head);
    let last = if ended { last } else { Some(head) };
    let span = first.zip(last).filter(|(first, last)| first <= last);
    let (id, owner, database) = (id.clone(), UserId::from(owner), database.to_owned());
    Ok(Some(LoggedRun { id, owner, thread, has_ended: ended, seq_range: span, database, index }))
}
