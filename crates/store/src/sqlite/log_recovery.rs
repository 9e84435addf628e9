//! What a crash has left in the append log.
//!
//! Opening the database for writing moves it there. A connection that only reads shows it as rows of `records`, so that its
//! readers need not know of the log. Records that the database has already are skipped: the files are emptied later than they are
//! written out, and a server may be writing them.

use super::append_log::{AppendLogContent, read_append_log};
use super::encoded_records::EncodedBatch;
use super::log_frame::LoggedRow;
use super::log_only_records::LogOnlyRecords;
use super::record_blocks::RecordBlock;
use super::record_row::{self, INSERT_RECORDS};
use super::schema;
use model::defects::Defect;
use rusqlite::{Connection, ErrorCode, OptionalExtension, ffi};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::path::Path;

/// The position of the first row that is only shown: behind all that are there.
const FIRST_SHOWN_POS: i64 = 1 << 62;

/// Records that a log has and its database has not, by the number of their thread. Between two entries of a thread, records are
/// missing.
#[derive(Debug, Default)]
pub(crate) struct LogRemainder(BTreeMap<i64, Vec<LogOnlyRecords>>);

/// The end of a thread's log in the database; `None` without such a thread.
type StoredEnd = Option<u64>;

impl LogRemainder {
    /// The log was read before the connection's snapshot began: what was written out since then is in both.
    pub(crate) fn find(conn: &Connection, log: AppendLogContent) -> rusqlite::Result<Self> {
        if log.rows.is_empty() || Defect::AppendLogNotRead.is_planted() {
            return Ok(Self::default());
        }
        let ends_in_rows = last_rows(conn)?;
        let mut ends: BTreeMap<i64, StoredEnd> = BTreeMap::new();
        let mut found = Self::default();
        for row in log.rows {
            let end = match ends.entry(row.thread) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(new) => {
                    let in_rows = ends_in_rows.get(&row.thread).copied().unwrap_or_default();
                    *new.insert(stored_end(conn, row.thread, in_rows)?)
                }
            };
            // Deleted threads have left what is not emptied yet.
            let Some(end) = end else { continue };
            found.add(conn, end, row)?;
        }
        Ok(found)
    }

    fn add(&mut self, conn: &Connection, stored: u64, row: LoggedRow) -> rusqlite::Result<()> {
        let LoggedRow { thread, run, seq, count, records, is_newest } = row;
        let mut logged = LogOnlyRecords::default();
        logged.push(run, EncodedBatch { first: seq, count, encoded: records[..].into() });
        let last = self.0.get(&thread).and_then(|entries| entries.last());
        let next = last.map_or(stored.saturating_add(1), LogOnlyRecords::end_seq);
        logged.skip_to(next);
        let Some(first) = logged.first_seq() else { return Ok(()) };
        let sql = "SELECT 1 FROM runs WHERE num = ?1 AND thread = ?2";
        // The last group may not have been committed: then nobody has seen any of it, and its first part may be missing.
        if (first > next && is_newest) || !conn.prepare_cached(sql)?.exists((run, thread))? {
            tracing::warn!(
                thread,
                seq = first,
                expected = next,
                "records of the append log continue nothing: not used"
            );
            return Ok(());
        }
        let entries = self.0.entry(thread).or_default();
        match entries.last_mut() {
            Some(last) if first == next && last.run == run => last.append(logged),
            // Of those behind a gap, a scan says that the thread is damaged.
            _ => entries.push(logged),
        }
        Ok(())
    }

    /// Keeps only those of one thread.
    pub(crate) fn retain_thread(&mut self, thread: i64) {
        self.0.retain(|num, _| *num == thread);
    }

    fn insert(&self, conn: &Connection, sql: &str, mut next_pos: i64) -> rusqlite::Result<()> {
        let mut insert = conn.prepare(sql)?;
        let entries = self.0.iter().flat_map(|(thread, entries)| entries.iter().map(move |logged| (thread, logged)));
        for (thread, logged) in entries {
            let mut seq = logged.first_seq().unwrap_or_default();
            let bytes = logged.records.bytes_from(seq);
            let mut encoded = &bytes[..];
            while seq < logged.end_seq()
                && let (row, count, rest) = record_row::split_row(encoded)
                && count > 0
            {
                next_pos = next_pos.saturating_add(count.cast_signed());
                insert.execute((next_pos - 1, thread, logged.run, seq.cast_signed(), count.cast_signed(), row))?;
                (seq, encoded) = (seq + count, rest);
            }
        }
        Ok(())
    }

    /// Shows these records to those who read through this connection.
    pub(crate) fn show(&self, conn: &Connection) -> rusqlite::Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        conn.execute_batch(
            "PRAGMA query_only=OFF;
             CREATE TEMP TABLE logged_records (
                 pos INTEGER PRIMARY KEY, thread INTEGER, run INTEGER, seq INTEGER, count INTEGER, data BLOB
             );
             CREATE TEMP VIEW records AS
                 SELECT pos, thread, run, seq, count, data FROM main.records
                 UNION ALL SELECT pos, thread, run, seq, count, data FROM logged_records;",
        )?;
        self.insert(conn, "INSERT INTO logged_records VALUES (?1, ?2, ?3, ?4, ?5, ?6)", FIRST_SHOWN_POS)?;
        conn.execute_batch("PRAGMA query_only=ON")
    }
}

/// The last record of each thread that has rows.
fn last_rows(conn: &Connection) -> rusqlite::Result<BTreeMap<i64, u64>> {
    let mut select = conn.prepare("SELECT thread, max(seq + count - 1) FROM main.records GROUP BY thread")?;
    let pair = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get::<_, i64>(1)?.cast_unsigned()));
    select.query_map((), pair)?.collect()
}

fn stored_end(conn: &Connection, thread: i64, in_rows: u64) -> rusqlite::Result<StoredEnd> {
    let exists = conn.prepare_cached("SELECT 1 FROM threads WHERE num = ?1")?.exists([thread])?;
    if !exists {
        return Ok(None);
    }
    let in_blocks = RecordBlock::last_packed_seq(conn, thread)?;
    Ok(Some(in_rows.max(in_blocks.0)))
}

/// Moves what a log has into its database. After this the log can be emptied.
pub(crate) fn move_into_database(conn: &Connection, database: &Path) -> rusqlite::Result<()> {
    let log = read_append_log(database).map_err(|error| to_sql_error(&error))?;
    if log.is_damaged {
        tracing::error!("the append log is damaged: records of a crashed server may be missing");
    }
    let remainder = LogRemainder::find(conn, log)?;
    if remainder.0.is_empty() {
        return Ok(());
    }
    let transaction = conn.unchecked_transaction()?;
    let last_pos: Option<i64> =
        transaction.query_row("SELECT max(pos) FROM records", (), |row| row.get(0)).optional()?.flatten();
    remainder.insert(&transaction, INSERT_RECORDS, last_pos.unwrap_or_default() + 1)?;
    transaction.commit()
}

/// Opens a database without a writer, and shows what its log has.
pub(crate) fn open_offline(database: &Path) -> rusqlite::Result<Connection> {
    let log = read_append_log(database).map_err(|error| to_sql_error(&error))?;
    let conn = schema::open_offline(database)?;
    LogRemainder::find(&conn, log)?.show(&conn)?;
    Ok(conn)
}

/// An error of the log as one of the database whose records it has: what follows from them is the same.
pub(crate) fn to_sql_error(error: &io::Error) -> rusqlite::Error {
    let is_full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    let code = if is_full { ffi::SQLITE_FULL } else { ffi::SQLITE_IOERR };
    let failure = ffi::Error::new(code);
    debug_assert!(matches!(failure.code, ErrorCode::DiskFull | ErrorCode::SystemIoFailure));
    rusqlite::Error::SqliteFailure(failure, Some(format!("the append log: {error}")))
}

/// Whether a frame of a database's log is damaged that was not the last one.
pub(crate) fn is_append_log_damaged(database: &Path) -> bool {
    read_append_log(database).is_ok_and(|log| log.is_damaged)
}
