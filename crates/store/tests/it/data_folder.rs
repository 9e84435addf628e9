//! A data folder as the tests open it.

use rusqlite::Connection;
use std::path::Path;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;
use store::{SqliteOptions, SqliteStore};

pub(crate) fn open(dir: &Path) -> SqliteStore {
    SqliteStore::open(dir, &SqliteOptions::default()).unwrap()
}

/// Another connection to the same database, which the writer must cope with.
pub(crate) fn database(dir: &Path) -> Connection {
    let conn = Connection::open(dir.join("headwater.db")).unwrap();
    conn.busy_timeout(Duration::from_secs(10)).unwrap();
    conn
}

/// Polls a future once, to see whether it is pending.
pub(crate) async fn waits(asked: &mut (impl Future + Unpin)) -> bool {
    // The runtime's cooperative budget could make it pending; a fresh task has a full one.
    tokio::task::yield_now().await;
    std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut *asked).poll(cx).is_pending())).await
}
