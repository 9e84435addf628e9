//! A pool of read-only connections for blocking threads. Readers see a snapshot and neither block the writer nor wait
//! for it.

use super::{lock, schema};
use model::ports::StoreError;
use rusqlite::Connection;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;

#[derive(Debug)]
pub(crate) struct ReaderPool {
    database: PathBuf,
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
    closed: AtomicBool,
}

impl ReaderPool {
    pub(crate) fn new(database: PathBuf, readers_max: usize) -> Self {
        let permits = Arc::new(Semaphore::new(readers_max.max(1)));
        Self { database, idle: Mutex::default(), permits, closed: AtomicBool::new(false) }
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
        schema::open_reader(&self.database).map_err(|error| super::record_row::unavailable_error(&error))
    }

    fn release(&self, conn: Connection) {
        let mut idle = lock(&self.idle);
        if !self.closed.load(Ordering::SeqCst) {
            idle.push(conn);
        }
    }
}
