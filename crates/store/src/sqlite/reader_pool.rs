//! A pool of read-only connections for blocking threads. Readers see a snapshot and neither block the writer nor wait
//! for it. As long as a full disk keeps the writer from opening the database, they read it without one.

use super::{lock, log_recovery, schema};
use model::ports::StoreError;
use rusqlite::Connection;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

#[derive(Debug)]
pub(crate) struct ReaderPool {
    database: PathBuf,
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
    readers_max: u32,
    /// No writer has opened the database yet.
    is_offline: AtomicBool,
    closed: AtomicBool,
}

impl ReaderPool {
    pub(crate) fn new(database: PathBuf, readers_max: usize, is_offline: bool) -> Self {
        let readers_max = u32::try_from(readers_max.max(1)).unwrap_or(u32::MAX);
        let permits = Arc::new(Semaphore::new(readers_max as usize));
        let (is_offline, closed) = (AtomicBool::new(is_offline), AtomicBool::new(false));
        Self { database, idle: Mutex::default(), permits, readers_max, is_offline, closed }
    }

    /// Keeps everybody from reading until the result is dropped; `None` while somebody reads.
    pub(crate) fn try_pause(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.permits).try_acquire_many_owned(self.readers_max).ok()
    }

    /// A writer has opened the database.
    pub(crate) fn follow_writer(&self) {
        self.is_offline.store(false, Ordering::SeqCst);
        lock(&self.idle).clear();
    }

    pub(crate) async fn with_connection<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let closed = || StoreError::Unavailable(super::STORE_CLOSED.to_owned());
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| closed())?;
        let readers = Arc::clone(self);
        let reading = tokio::task::spawn_blocking(move || {
            let conn = readers.acquire()?;
            let read = work(&conn);
            // A connection that failed is not reused.
            if matches!(read, Ok(_) | Err(StoreError::ThreadNotFound)) {
                readers.release(conn);
            }
            drop(permit);
            read
        });
        reading.await.unwrap_or_else(|_| Err(closed()))
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.permits.close();
        lock(&self.idle).clear();
    }

    fn acquire(&self) -> Result<Connection, StoreError> {
        if let Some(conn) = lock(&self.idle).pop() {
            return Ok(conn);
        }
        let is_offline = self.is_offline.load(Ordering::SeqCst);
        let open = if is_offline { log_recovery::open_offline } else { schema::open_reader };
        open(&self.database).map_err(|error| super::record_row::unavailable_error(&error))
    }

    fn release(&self, conn: Connection) {
        let mut idle = lock(&self.idle);
        if !self.closed.load(Ordering::SeqCst) {
            idle.push(conn);
        }
    }
}
