//! What the writer does about a full disk.
//!
//! Before a commit, and from time to time while there is none, the writer looks how much room there is. When it is low it
//! empties the write-ahead log, with the room of the reserve; if that is not enough it raises the alarm ([`SpaceWatch`]): new
//! data is refused, and only deletions use the reserve. While the alarm lasts the writer looks more often.
//!
//! SQLite reports a full disk when it writes a page, never when it syncs. Then the transaction is rolled back, nothing
//! that the disk has is in doubt, and the connection stays as it is.
//!
//! [`SpaceWatch`]: model::ports::SpaceWatch

use super::data_folder::StoreOpenError;
use super::lock;
use super::log_size::LogSizeCount;
use super::log_write_out::LoggedThreads;
use super::open_database::{OpenedDatabase, open_database};
use super::record_scan::RecordScan;
use super::write_task::WriteFailure;
use super::writer::SqliteWriter;
use model::ports::StorageSpace;
use rusqlite::{Connection, ErrorCode};
use std::time::{Duration, Instant};

/// How often an idle writer looks for room.
const IDLE_PROBE_INTERVAL: Duration = Duration::from_secs(5);
/// The same while the alarm lasts, at first and at last.
const ALARM_PROBE_INTERVAL_MIN: Duration = Duration::from_millis(250);
const ALARM_PROBE_INTERVAL_MAX: Duration = Duration::from_secs(2);

/// Whether SQLite found no room on the disk.
pub(crate) fn is_disk_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
}

impl SqliteWriter {
    /// Whether new data is refused.
    pub(crate) fn is_full(&self) -> bool {
        self.space.is_full()
    }

    /// Before the first task: a reserve that is missing may have been used, so it comes before new data.
    pub(crate) fn restore_reserve_at_start(&mut self) {
        if self.conn.is_none() || !(self.reserve.is_whole() || self.restore_reserve()) {
            self.raise_alarm();
        }
        self.schedule_space_probe();
    }

    /// Looks for room if it is time to.
    pub(crate) fn probe_space_if_due(&mut self) {
        if Instant::now() < self.space_probe_at {
            return;
        }
        if !self.is_full() {
            self.space_needed = 0;
            self.check_space(0);
        } else if self.restore_reserve() {
            self.clear_alarm();
        } else {
            self.alarm_probe_interval = (self.alarm_probe_interval * 2).min(ALARM_PROBE_INTERVAL_MAX);
        }
        self.schedule_space_probe();
    }

    /// Raises the alarm if there is no room for a commit of this size.
    pub(crate) fn check_space(&mut self, bytes: usize) {
        if self.is_full() || self.reserve.has_room_for(bytes as u64) {
            return;
        }
        self.reserve.release();
        self.empty_wal();
        self.space_needed = bytes as u64;
        if !self.restore_reserve() {
            self.raise_alarm();
        }
    }

    /// While the disk is full, lets what makes room use the reserve.
    pub(crate) fn with_reserve<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        if self.is_full() {
            self.reserve.release();
        }
        let result = work(self);
        if self.is_full() {
            self.reserve.hold();
        }
        result
    }

    /// New data is refused from here on.
    pub(crate) fn raise_alarm(&mut self) {
        // A database that is not open needs the room in order to be opened.
        if self.state.boot != 0 {
            self.reserve.hold();
        }
        if self.space.set(StorageSpace::Full) {
            let available = self.reserve.disk_space().map(|found| found.available);
            tracing::error!(
                available,
                "the disk of the data folder is full: new data is refused, deletions and reads work; delete conversations \
                 or other files, or enlarge the disk"
            );
            // A disk that is full again at once is looked at less often.
            let is_repeated = self.alarm_cleared_at.is_some_and(|at| at.elapsed() < IDLE_PROBE_INTERVAL);
            let interval = if is_repeated { self.alarm_probe_interval * 2 } else { ALARM_PROBE_INTERVAL_MIN };
            self.alarm_probe_interval = interval.min(ALARM_PROBE_INTERVAL_MAX);
            self.schedule_space_probe();
        }
    }

    fn clear_alarm(&mut self) {
        if self.space.set(StorageSpace::Available) {
            let available = self.reserve.disk_space().map(|found| found.available);
            tracing::info!(available, "the disk of the data folder has room again: new data is accepted");
            self.alarm_cleared_at = Some(Instant::now());
        }
    }

    /// Whether there is room for new data; then the reserve is there again, too.
    fn restore_reserve(&mut self) -> bool {
        if self.state.boot == 0 && !self.open_late() {
            return false;
        }
        let free_page_bytes = self.conn.as_ref().and_then(|conn| free_page_bytes(conn).ok()).unwrap_or_default();
        self.reserve.try_fill(self.space_needed, free_page_bytes)
    }

    /// Opens a database that could only be read at the start.
    fn open_late(&mut self) -> bool {
        if !self.reserve.has_room_for(0) {
            return false;
        }
        // Nobody may read the file as one that does not change while it is written.
        let Some(_all) = self.readers.try_pause() else { return false };
        let opened = open_database(&self.folder.database).and_then(|mut opened| {
            let prepared = self.checkpointer.attach(&mut opened.conn).and_then(|()| LogSizeCount::load(&opened.conn));
            let log_count = prepared.map_err(|error| StoreOpenError::from_sqlite(&self.folder.database, &error))?;
            Ok((opened, log_count))
        });
        match opened {
            Ok((OpenedDatabase { conn, append_log, boot, found }, log_count)) => {
                self.state.boot = boot;
                self.state.log_count = log_count;
                self.adopt_scan(found);
                self.readers.follow_writer();
                (self.conn, self.append_log) = (Some(conn), Some(append_log));
                true
            }
            Err(error) => {
                tracing::warn!(%error, "the database can still only be read");
                false
            }
        }
    }

    /// Takes over what a scan of the database has found.
    pub(crate) fn adopt_scan(&mut self, found: RecordScan) {
        self.state.threads.clear();
        self.state.tails.clear();
        self.state.next_pos = self.state.next_pos.max(found.next_pos);
        self.state.pack_queue = found.pack_requests;
        self.state.dead_rows = found.dead_rows;
        // Opening the database has moved there what the log had.
        self.logged = LoggedThreads::default();
        self.state.index.replace(found.threads);
    }

    /// After a transaction that failed; `first_pos` is where its records would have been.
    pub(crate) fn undo_transaction(
        &mut self,
        conn: Connection,
        first_pos: i64,
        error: &rusqlite::Error,
    ) -> WriteFailure {
        self.state.tails.clear();
        if !is_disk_full(error) {
            drop(conn);
        } else if self.undo_full_disk(conn, first_pos) {
            lock(&self.stats).failures += 1;
            return WriteFailure::NoSpace;
        }
        self.handle_failure(error);
        WriteFailure::Failed(error.to_string())
    }

    /// Returns false when the transaction may have been written all the same.
    fn undo_full_disk(&mut self, conn: Connection, first_pos: i64) -> bool {
        if self.append_log.as_mut().is_some_and(|log| log.undo_write().is_err()) {
            return false;
        }
        let newest = conn.query_row("SELECT coalesce(max(pos), -1) FROM records", (), |row| row.get::<_, i64>(0));
        if !conn.is_autocommit() || !newest.is_ok_and(|newest| newest < first_pos) {
            return false;
        }
        // What the failed transaction has cached is not in the database.
        self.state.threads.clear();
        self.state.next_pos = first_pos;
        self.conn = Some(conn);
        self.reserve.release();
        self.empty_wal();
        self.raise_alarm();
        true
    }

    /// Copies the write-ahead log into the database and gives its space back, if no reader prevents it.
    fn empty_wal(&mut self) {
        let Some(Err(error)) = self.try_checkpoint_wal() else { return };
        if !is_disk_full(&error) {
            self.conn = None;
            self.handle_failure(&error);
        }
    }

    fn schedule_space_probe(&mut self) {
        let interval = if self.is_full() { self.alarm_probe_interval } else { IDLE_PROBE_INTERVAL };
        self.space_probe_at = Instant::now() + interval;
    }
}

/// The size of the pages that deletions have freed inside the database.
fn free_page_bytes(conn: &Connection) -> rusqlite::Result<u64> {
    let read = |pragma| conn.pragma_query_value(None, pragma, |row| row.get::<_, u32>(0)).map(u64::from);
    Ok(read("freelist_count")? * read("page_size")?)
}
