//! A data folder as the tests open it.

use rusqlite::Connection;
use std::path::Path;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;
use store::{SqliteOptions, SqliteStore};

/// The files that a killed process leaves, in the order in which they can be copied while it goes on.
pub(crate) const DATABASE_FILES: [&str; 4] = [LOG_FILES[0], LOG_FILES[1], "headwater.db", "headwater.db-wal"];

/// Those of the append log.
pub(crate) const LOG_FILES: [&str; 2] = ["headwater.db-log0", "headwater.db-log1"];

pub(crate) fn open(dir: &Path) -> SqliteStore {
    SqliteStore::open(dir, &SqliteOptions::default()).unwrap()
}

/// A copy of the folder as a process that is killed now would leave it.
pub(crate) fn kill(dir: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    // While somebody reads, the write-ahead log keeps all that the file may lack: the process goes on between two files.
    let reader = Connection::open(dir.join("headwater.db")).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM meta").unwrap();
    for name in DATABASE_FILES {
        std::fs::copy(dir.join(name), copy.path().join(name)).unwrap();
    }
    copy
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

/// Makes the database one of an older version, before 13: with a row for each record, and a column for each of its fields.
pub(crate) fn make_older(dir: &Path, version: u32) {
    let conn = database(dir);
    conn.execute_batch(
        "ALTER TABLE records RENAME TO record_rows;
         CREATE TABLE records (
             pos INTEGER PRIMARY KEY, thread INTEGER NOT NULL, run INTEGER NOT NULL, seq INTEGER NOT NULL,
             at INTEGER NOT NULL, epoch INTEGER NOT NULL, v INTEGER NOT NULL, checksum INTEGER NOT NULL,
             public BLOB NOT NULL, private BLOB
         ) STRICT;",
    )
    .unwrap();
    let mut select = conn.prepare("SELECT pos - count, thread, run, seq, data FROM record_rows").unwrap();
    let mut rows = select.query(()).unwrap();
    let mut insert = conn.prepare("INSERT INTO records VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)").unwrap();
    while let Some(row) = rows.next().unwrap() {
        let number = |column: usize| row.get::<_, i64>(column).unwrap();
        let (mut pos, thread, run, mut seq) = (number(0), number(1), number(2), number(3));
        let mut data = &row.get::<_, Vec<u8>>(4).unwrap()[..];
        while !data.is_empty() {
            let (at, epoch, v) = (take_number(&mut data, 8), take_number(&mut data, 8), take_number(&mut data, 2));
            let checksum = take_number(&mut data, 4);
            let mut take_length = || usize::try_from(take_number(&mut data, 4)).unwrap();
            let (public, private) = (take_length(), take_length());
            let (bytes, rest) = data.split_at(public + private);
            let (public, private) = bytes.split_at(public);
            let private = Some(private).filter(|private| !private.is_empty());
            pos += 1;
            insert.execute((pos, thread, run, seq, at, epoch, v, checksum, public, private)).unwrap();
            (data, seq) = (rest, seq + 1);
        }
    }
    drop(rows);
    drop((select, insert));
    conn.execute_batch("DROP TABLE record_rows").unwrap();
    conn.pragma_update(None, "user_version", version).unwrap();
}

fn take_number(data: &mut &[u8], bytes: usize) -> i64 {
    let (number, rest) = data.split_at(bytes);
    *data = rest;
    number.iter().rev().fold(0, |sum, byte| sum << 8 | i64::from(*byte))
}
