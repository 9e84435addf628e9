//! Reads a logged run from a data folder that a server may have open, without a lock and without writing.
//!
//! Every page has its own connection and snapshot, because a slow reader with a long snapshot would keep the server from
//! truncating its write-ahead log. `page` finds records that were packed in between.

use super::append_log::{AppendLogContent, read_append_log};
use super::attachments::find_blob;
use super::data_folder::{StoreOpenError, database_path};
use super::log_recovery::LogRemainder;
use super::page::{PageForm, PageQuery, read_page};
use super::record_blocks::RecordBlock;
use super::record_index::RecordIndex;
use super::record_row::unavailable_error;
use super::record_scan::scan_records;
use super::schema::{MIGRATIONS, open_immutable, open_reader, schema_version, wal_path};
use crate::logged_run::{LoggedRun, SharedLog};
use async_trait::async_trait;
use model::ports::{AttachmentRow, PageLimit, StoreError, StoreResult};
use model::record::Record;
use model::seq::Seq;
use model::{TaskId, ThreadId, UserId};
use rusqlite::{Connection, OptionalExtension};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Finds a run of any owner in a data folder. A server may have the folder open.
pub fn find_logged_run(dir: &Path, id: &TaskId) -> Result<Option<LoggedRun>, StoreOpenError> {
    let database = database_path(dir)?;
    // Before the database: what a server writes out meanwhile is found there.
    let log = read_append_log(&database).map_err(|error| StoreOpenError::denied(dir, &error))?;
    let refused = |error: &rusqlite::Error| StoreOpenError::from_sqlite(&database, error);
    with_shared_database(&database, refused, |conn| {
        let found =
            schema_version(conn, MIGRATIONS).map_err(|error| StoreOpenError::from_migration(&database, &error))?;
        if found == 0 {
            Ok(None)
        } else {
            query_logged_run(conn, &database, id, log.clone()).map_err(|error| refused(&error))
        }
    })
}

/// The database of a folder, opened for each read.
#[derive(Clone, Debug)]
struct FolderLog {
    database: PathBuf,
    /// Positions of the records that are not packed yet.
    index: Arc<RecordIndex>,
    /// Those that were not in the database either.
    remainder: Arc<LogRemainder>,
}

#[async_trait]
impl SharedLog for FolderLog {
    async fn read_page(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        Range { start: after, end: until }: Range<Seq>,
    ) -> StoreResult<Vec<Record>> {
        let limit = PageLimit::WIDE;
        let plan = self.index.read_plan(thread, after, limit.records_max);
        let query = PageQuery { owner: owner.clone(), thread: thread.clone(), after, until, limit, plan };
        let remainder = Arc::clone(&self.remainder);
        let page = self.read(move |conn| {
            remainder.show(conn).map_err(|error| unavailable_error(&error))?;
            read_page(conn, &query, PageForm::Records)
        });
        Ok(page.await?.records)
    }

    async fn find_blob(&self, owner: &UserId, hash: &str) -> StoreResult<Option<AttachmentRow>> {
        let (owner, hash) = (owner.clone(), hash.to_owned());
        self.read(move |conn| find_blob(conn, &owner, &hash).map_err(|error| unavailable_error(&error))).await
    }
}

impl FolderLog {
    async fn read<T: Send + 'static>(
        &self,
        look: impl Fn(&Connection) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        let database = self.database.clone();
        let reading = tokio::task::spawn_blocking(move || with_shared_database(&database, unavailable_error, look));
        reading.await.unwrap_or_else(|error| Err(StoreError::Unavailable(error.to_string())))
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

fn query_logged_run(
    conn: &Connection,
    database: &Path,
    id: &TaskId,
    log: AppendLogContent,
) -> rusqlite::Result<Option<LoggedRun>> {
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
    let mut remainder = LogRemainder::default();
    let settled = RecordBlock::last_packed_seq(&snapshot, num)?;
    // Finding rows takes a full scan: skip it when the blocks have all records.
    if first.is_some() && !(ended && last.is_some_and(|last| last <= settled)) {
        remainder = LogRemainder::find(&snapshot, log)?;
        remainder.retain_thread(num);
        remainder.show(&snapshot)?;
        index.replace(scan_records(&snapshot)?.threads.into_iter().filter(|(id, _)| *id == thread));
    }
    // An active run is the last of its thread, so it extends to the head of the log.
    let head = index.read_plan(&thread, Seq::ZERO, 1).map_or(settled, |plan| plan.head);
    let last = if ended { last } else { Some(head) };
    let span = first.zip(last).filter(|(first, last)| first <= last);
    let log =
        Box::new(FolderLog { database: database.to_owned(), index: Arc::new(index), remainder: Arc::new(remainder) });
    let (id, owner) = (id.clone(), UserId::from(owner));
    Ok(Some(LoggedRun { id, owner, thread, has_ended: ended, seq_range: span, log }))
}
