//! Copies the write-ahead log into the database while the writer goes on.
//!
//! By default SQLite copies a long log inside the commit that made it long, and syncs the database: megabytes, for which all
//! streams wait. Here a thread copies most of it beside the writer. The writer then copies what it has committed meanwhile,
//! because only a log that was copied to its end starts again from its beginning.
//!
//! A copy that fails is harmless: the log keeps its pages until a sync of the database has succeeded, and the next copy
//! writes them again.

use super::{lock, schema};
use model::defects::Defect;
use rusqlite::hooks::Wal;
use rusqlite::{Connection, ErrorCode};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Number of pages in the log from which on they are copied, and of further pages before they are copied again.
const COPY_PAGES: usize = 1_000;

/// Number of pages from which on the writer copies, whatever the thread does.
const LOG_PAGES_MAX: usize = 16 * COPY_PAGES;

/// Who copies next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CopyStage {
    /// Nobody: the log is short, or was copied.
    #[default]
    Waiting,
    /// The thread.
    Requested,
    /// The writer, what was committed while the thread copied.
    Remainder,
    Stopped,
}

/// What the writer does after a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterCommit {
    Nothing,
    WakeThread,
    Copy,
}

#[derive(Debug, Default)]
struct CopyState {
    stage: CopyStage,
    /// The length of the log at the last copy of the writer. A reader may have kept the log from starting again.
    copied_pages: usize,
}

impl CopyState {
    /// Takes the length of the log after a commit.
    fn on_commit(&mut self, pages: usize) -> AfterCommit {
        if Defect::LogNeverCopied.is_planted() {
            return AfterCommit::Nothing;
        }
        if pages < self.copied_pages {
            self.copied_pages = 0;
        }
        match self.stage {
            CopyStage::Waiting if pages >= self.copied_pages + COPY_PAGES => {
                self.stage = CopyStage::Requested;
                AfterCommit::WakeThread
            }
            CopyStage::Remainder => {
                (self.stage, self.copied_pages) = (CopyStage::Waiting, pages);
                AfterCommit::Copy
            }
            CopyStage::Waiting | CopyStage::Requested | CopyStage::Stopped if pages >= LOG_PAGES_MAX => {
                AfterCommit::Copy
            }
            CopyStage::Waiting | CopyStage::Requested | CopyStage::Stopped => AfterCommit::Nothing,
        }
    }
}

#[derive(Debug, Default)]
struct SharedState {
    state: Mutex<CopyState>,
    changed: Condvar,
    /// Held during a copy of the thread: SQLite allows one at a time, and does not wait for the other.
    copying: Mutex<()>,
}

/// The thread that copies the log. Dropping this ends it.
pub(crate) struct WalCheckpointer {
    shared: Arc<SharedState>,
    thread: Option<JoinHandle<()>>,
}

impl WalCheckpointer {
    pub(crate) fn start(database: &Path) -> std::io::Result<Self> {
        let shared = Arc::<SharedState>::default();
        let (in_thread, database) = (Arc::clone(&shared), database.to_owned());
        let thread = std::thread::Builder::new().name("store-wal".to_owned());
        let thread = thread.spawn(move || copy_when_requested(&in_thread, &database))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// From now on the log of this connection is copied by the thread.
    pub(crate) fn attach(&self, conn: &mut Connection) -> rusqlite::Result<()> {
        let shared = Arc::clone(&self.shared);
        conn.wal_hook(Some(move |log: &mut Wal, pages: i32| {
            let action = lock(&shared.state).on_commit(usize::try_from(pages).unwrap_or_default());
            let copied = match action {
                AfterCommit::Nothing => Ok(()),
                AfterCommit::WakeThread => {
                    shared.changed.notify_one();
                    Ok(())
                }
                AfterCommit::Copy => log.checkpoint(),
            };
            // The commit itself has succeeded, and the thread may still be copying.
            if let Err(error) = copied
                && error.sqlite_error_code() != Some(ErrorCode::DatabaseBusy)
            {
                tracing::warn!(%error, "the rest of the write-ahead log was not copied into the database");
            }
            Ok(())
        }))
    }

    /// Keeps the thread from copying until the guard is dropped.
    pub(crate) fn pause(&self) -> MutexGuard<'_, ()> {
        lock(&self.shared.copying)
    }

    /// Ends the thread, after a copy that it has begun.
    pub(crate) fn stop(&mut self) {
        lock(&self.shared.state).stage = CopyStage::Stopped;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic in there was printed.
            let _ = thread.join();
        }
    }
}

impl Drop for WalCheckpointer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn copy_when_requested(shared: &SharedState, database: &Path) {
    loop {
        let state = lock(&shared.state);
        let is_idle = |state: &mut CopyState| matches!(state.stage, CopyStage::Waiting | CopyStage::Remainder);
        let state = shared.changed.wait_while(state, is_idle).unwrap_or_else(PoisonError::into_inner);
        if state.stage == CopyStage::Stopped {
            return;
        }
        drop(state);
        let copying = lock(&shared.copying);
        if let Err(error) = schema::copy_wal(database) {
            tracing::warn!(%error, "the write-ahead log was not copied into the database");
        }
        drop(copying);
        let mut state = lock(&shared.state);
        if state.stage == CopyStage::Requested {
            state.stage = CopyStage::Remainder;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_copies_a_long_log_and_the_writer_its_rest() {
        let mut state = CopyState::default();
        assert_eq!(state.on_commit(COPY_PAGES - 1), AfterCommit::Nothing);
        assert_eq!(state.on_commit(COPY_PAGES), AfterCommit::WakeThread);
        assert_eq!(state.on_commit(COPY_PAGES + 10), AfterCommit::Nothing, "the thread copies");
        state.stage = CopyStage::Remainder;
        assert_eq!(state.on_commit(COPY_PAGES + 20), AfterCommit::Copy);
        assert_eq!(state.on_commit(5), AfterCommit::Nothing, "the log has started again");
        assert_eq!(state.on_commit(COPY_PAGES), AfterCommit::WakeThread);
    }

    #[test]
    fn a_log_that_a_reader_holds_is_not_copied_at_each_commit() {
        let mut state = CopyState { stage: CopyStage::Remainder, copied_pages: 0 };
        assert_eq!(state.on_commit(1_500), AfterCommit::Copy);
        assert_eq!(state.on_commit(1_501), AfterCommit::Nothing);
        assert_eq!(state.on_commit(1_500 + COPY_PAGES), AfterCommit::WakeThread);
        assert_eq!(state.on_commit(LOG_PAGES_MAX), AfterCommit::Copy, "a thread that does not keep up");
    }
}
