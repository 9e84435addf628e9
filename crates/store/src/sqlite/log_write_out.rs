//! Writes records that only the append log has to the database, so that a file of the log can be overwritten.
//!
//! Most records get there without it, with the next change of their run, and as a block if the run has ended: a row would be written
//! and deleted for nothing. So it waits until the other file is half as long as it gets. The records of runs that still go on are
//! written while its second half grows, a few with each group, so that no group waits for many.

use super::append_log::AppendLog;
use super::transaction::WriteTransaction;
use super::writer::{SqliteWriter, in_transaction};
use model::ThreadId;

/// Approximate number of bytes that one transaction writes out.
const STEP_BYTES: usize = 128 * 1024;

/// Threads that have had records in a file of the log and not in the database. Some may have none by now.
#[derive(Debug, Default)]
pub(crate) struct LoggedThreads {
    /// Those of the file that grows.
    growing: Vec<ThreadId>,
    /// Those of the other one.
    waiting: Vec<ThreadId>,
    /// How much is to be written out before the other file is long.
    owed_bytes: usize,
}

impl LoggedThreads {
    pub(crate) fn extend(&mut self, threads: Vec<ThreadId>) {
        self.growing.extend(threads);
    }
}

impl SqliteWriter {
    /// After a group of this size: writes out twice as much of the file that waits, so that it is done before the other is long.
    pub(crate) fn make_room_in_log(&mut self, group_bytes: usize) {
        let log = self.append_log.as_ref().filter(|log| log.is_half_long());
        let Some(is_long) = log.map(AppendLog::is_long).filter(|_| self.backoff_commits == 0 && !self.is_full()) else {
            return;
        };
        if !self.logged.waiting.is_empty() {
            self.logged.owed_bytes += 2 * group_bytes;
            let bytes = if is_long { usize::MAX } else { self.logged.owed_bytes };
            if bytes < STEP_BYTES || !self.write_out(bytes) {
                return;
            }
            self.logged.owed_bytes = 0;
        }
        if let Some(log) = self.append_log.as_mut().filter(|_| is_long && self.logged.waiting.is_empty()) {
            log.switch_files();
            std::mem::swap(&mut self.logged.growing, &mut self.logged.waiting);
        }
    }

    /// Writes about this many bytes of the file that waits to the database. Returns false when that failed.
    fn write_out(&mut self, bytes_max: usize) -> bool {
        let Some(conn) = self.conn.take() else { return false };
        let waiting = &mut self.logged.waiting;
        let mut begun = Vec::new();
        let written = in_transaction(&conn, |conn| {
            let mut transaction = WriteTransaction::new(conn, &mut self.state);
            let mut bytes = 0;
            while bytes < bytes_max
                && let Some(thread) = waiting.pop()
            {
                bytes += transaction.write_out_thread(&thread)?;
                begun.push(thread);
            }
            Ok(transaction.effects)
        });
        match written {
            Ok(effects) => {
                self.conn = Some(conn);
                let published = self.state.index.publish(effects.index_updates);
                self.state.pack_queue.extend(published.pack_requests);
                true
            }
            Err(error) => {
                self.logged.waiting.append(&mut begun);
                self.back_off(conn, &error)
            }
        }
    }

    /// Empties the log, after writing all of it out. Returns whether it is empty.
    pub(crate) fn empty_append_log(&mut self) -> bool {
        let Some(log) = &self.append_log else { return false };
        if log.is_empty() {
            return true;
        }
        let mut growing = std::mem::take(&mut self.logged.growing);
        self.logged.waiting.append(&mut growing);
        while !self.logged.waiting.is_empty() {
            if self.is_full() || !self.write_out(STEP_BYTES) {
                return false;
            }
        }
        let emptied = self.append_log.as_mut().map(AppendLog::empty);
        if let Some(Err(error)) = &emptied {
            tracing::warn!(%error, "the append log cannot be emptied; the next start skips what the database has");
        }
        matches!(emptied, Some(Ok(())))
    }
}

impl WriteTransaction<'_> {
    /// Inserts the records of a thread that only the log has. Returns their size.
    fn write_out_thread(&mut self, thread: &ThreadId) -> rusqlite::Result<usize> {
        let Some(mut live) = self.take_thread(thread)? else { return Ok(0) };
        let bytes = self.store_logged(thread, &mut live)?;
        self.cache_thread(thread, live);
        Ok(bytes)
    }
}
