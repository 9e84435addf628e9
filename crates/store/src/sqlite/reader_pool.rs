//! Connections that only read, each used by one reader at a time, off the async threads.
//!
//! A reader sees the database as it was when it began, and neither waits for the writer nor makes it wait.

use super::{lock, schema};
use model::ports::StoreError;
use rusqlite::Connection;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;

/// The pool.
#[derive(Debug)]
pub(crate) struct ReaderPool {
    database: PathBuf,
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
    closed: AtomicBool,
}

impl ReaderPool {
    /// At most so many at once.
    pub(crate) fn new(database: PathBuf, readers_max: usize) -> Self {
        let permits = Arc::new(Semaphore::new(readers_max.max(1)));
        Self { database, idle: Mutex::default(), permits, closed: AtomicBool::new(false) }
    }

    /// Reads.
    pub(crate) async fn with_connection<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let gone = || StoreError::Unavailable("the store is closed".to_owned());
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| gone())?;
        let readers = Arc::clone(self);
        let reading = tokio::task::spawn_blocking(move || {
            let conn = readers.acquire()?;
            let read = work(&conn);
            // After trouble a fresh connection is the safer one.
            if matches!(read, Ok(_) | Err(StoreError::ThreadNotFound)) {
                readers.release(conn);
            }
            drop(permit);
            read
        });
        reading.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Reads what concerns no thread in particular.
    pub(crate) async fn query<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.with_connection(|conn| work(conn).map_err(|error| super::record_row::unavailable_error(&error))).await
    }

    /// Takes in nobody any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.permits.close();
        lock(&self.idle).clear();
    }

    fn acquire(&self) -> Result<Connection, StoreError> {
        if let Some(conn) = lock(&self.idle).pop() {
            return Ok(conn);
        }
        schema::open_reader(&self.database).map_err(|error| super::record_row::unavailable_error(&error))
    }

    fn release(&self, conn: Connection) {
        let mut idle = lock(&self.idle);
        if !self.closed.load(Ordering::SeqCst) {
            idle.push(conn);
        }
    }
}
