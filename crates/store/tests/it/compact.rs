//! The space of deleted threads: given back by the writer, and by `headwater compact`.

use crate::data_folder::open;
use model::ports::{Journal as _, PageLimit, ThreadWriter as _};
use model::{Record, Seq};
use rusqlite::Connection;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;
use store::{
    CompactError, DiskSpace, DiskSpaceProbe, SqliteStore, StoreOpenError, compact_data_folder, verify_data_folder,
};
use store_conformance::fixtures::{LogWriter, nth_thread, test_user};

const MIB: u64 = 1024 * 1024;
const COPY: &str = "headwater.db.compacted";

fn file_bytes(dir: &Path) -> u64 {
    fs::metadata(dir.join("headwater.db")).unwrap().len()
}

fn pragma(dir: &Path, name: &str) -> u32 {
    let conn = Connection::open(dir.join("headwater.db")).unwrap();
    conn.pragma_query_value(None, name, |row| row.get(0)).unwrap()
}

/// Threads of about half a mebibyte each. Returns the log of the last one.
async fn fill(store: &SqliteStore, threads: usize) -> Vec<Record> {
    let mut log = Vec::new();
    for n in 1..=threads {
        let mut author = LogWriter::new(store, store, n).await;
        author.start_run();
        for at in 0..8 {
            author.push_note(&format!("{n} {at} {}", "0123456789abcdef".repeat(4096)));
        }
        log = author.must_append().await;
    }
    log
}

/// Deletes all threads but the last one.
async fn delete_all_but_last(store: &SqliteStore, threads: usize) {
    for n in 1..threads {
        assert_eq!(store.delete_thread(&test_user(), &nth_thread(n)).await, Ok(true));
    }
}

async fn read_log(store: &SqliteStore, n: usize) -> Vec<Record> {
    store.read_page(&test_user(), &nth_thread(n), Seq::ZERO, PageLimit::WIDE).await.unwrap().records
}

/// Makes a database like those of older versions, which do not shrink.
fn forget_auto_vacuum(dir: &Path) {
    let conn = Connection::open(dir.join("headwater.db")).unwrap();
    conn.execute_batch("PRAGMA auto_vacuum = 0; VACUUM; PRAGMA wal_checkpoint(TRUNCATE);").unwrap();
    drop(conn);
    assert_eq!(pragma(dir, "auto_vacuum"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_shrinks_by_itself_after_deletions() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let log = fill(&store, 48).await;
    store.close().await;
    drop(store);
    let full = file_bytes(dir.path());
    assert!(full > 20 * MIB, "{full}");

    let store = open(dir.path());
    delete_all_but_last(&store, 48).await;
    // What stays free is for new rows: a thousand pages, and the pages of the last thread are in use.
    let shrinks = async {
        while file_bytes(dir.path()) > 6 * MIB {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(60), shrinks).await;
    assert!(in_time.is_ok(), "{} of {full} bytes are left", file_bytes(dir.path()));
    assert_eq!(read_log(&store, 48).await, log);
    drop(store);
    let report = verify_data_folder(dir.path()).unwrap();
    assert!(report.is_clean(), "{report}");
}

/// Rows that come and go with every run use the same pages again: shrinking after each of them would cost more than it gives.
#[tokio::test(flavor = "multi_thread")]
async fn a_little_free_space_stays() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    fill(&store, 6).await;
    delete_all_but_last(&store, 6).await;
    store.close().await;
    drop(store);
    assert!(pragma(dir.path(), "freelist_count") > 300);
    assert_eq!(pragma(dir.path(), "auto_vacuum"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn compacting_shrinks_an_old_database_and_lets_it_shrink_from_then_on() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    forget_auto_vacuum(dir.path());
    let store = open(dir.path());
    let log = fill(&store, 24).await;
    delete_all_but_last(&store, 24).await;
    store.close().await;
    drop(store);
    let full = file_bytes(dir.path());
    assert!(full > 10 * MIB && pragma(dir.path(), "auto_vacuum") == 0, "an old one does not shrink: {full}");

    let report = compact_data_folder(dir.path(), &DiskSpaceProbe::default()).unwrap();
    assert_eq!((report.bytes_before, report.bytes_after), (full, file_bytes(dir.path())));
    assert!(report.bytes_after < 2 * MIB, "{report:?}");
    assert_eq!((pragma(dir.path(), "auto_vacuum"), pragma(dir.path(), "freelist_count")), (2, 0));
    let mode = fs::metadata(dir.path().join("headwater.db")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(!dir.path().join(COPY).exists());
    let verified = verify_data_folder(dir.path()).unwrap();
    assert!(verified.is_clean(), "{verified}");
    let store = open(dir.path());
    assert_eq!(read_log(&store, 24).await, log);
    // The numbers of threads that were deleted are not used again.
    let mut author = LogWriter::new(&store, &store, 25).await;
    author.start_run().must_append().await;
    drop(store);
    let num: i64 = Connection::open(dir.path().join("headwater.db"))
        .unwrap()
        .query_row("SELECT max(num) FROM threads", (), |row| row.get(0))
        .unwrap();
    assert_eq!(num, 25);
}

#[tokio::test(flavor = "multi_thread")]
async fn compacting_is_refused_while_the_folder_is_in_use_or_the_disk_has_no_room() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let log = fill(&store, 2).await;
    let refused = compact_data_folder(dir.path(), &DiskSpaceProbe::default());
    assert!(matches!(refused, Err(CompactError::Open(StoreOpenError::Locked(_)))), "{refused:?}");
    drop(store);
    let before = fs::read(dir.path().join("headwater.db")).unwrap();
    let tight = DiskSpaceProbe::new(|_| Some(DiskSpace { available: MIB, total: 1 << 30 }));
    let refused = compact_data_folder(dir.path(), &tight);
    let Err(CompactError::NoRoom { needed, available: MIB }) = refused else { panic!("{refused:?}") };
    assert!(needed > MIB && needed < 4 * MIB, "{needed}");
    assert_eq!(fs::read(dir.path().join("headwater.db")).unwrap(), before);
    assert!(!dir.path().join(COPY).exists());
    assert_eq!(read_log(&open(dir.path()), 2).await, log);
    // No folder, and a folder without a database.
    let empty = tempfile::tempdir().unwrap();
    for dir in [empty.path().join("none"), empty.path().to_owned()] {
        let refused = compact_data_folder(&dir, &DiskSpaceProbe::default());
        assert!(matches!(refused, Err(CompactError::Open(_))), "{refused:?}");
    }
    assert_eq!(fs::read_dir(empty.path()).unwrap().count(), 0, "nothing was created");
}

/// A crash before the copy takes the name of the database leaves the copy behind, complete or not.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_crash_leaves_of_a_copy_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let log = fill(&store, 1).await;
    drop(store);
    for leave in ["half a copy", ""] {
        fs::write(dir.path().join(COPY), leave).unwrap();
        fs::write(dir.path().join(format!("{COPY}-journal")), leave).unwrap();
        assert_eq!(read_log(&open(dir.path()), 1).await, log);
        assert!(!dir.path().join(COPY).exists() && !dir.path().join(format!("{COPY}-journal")).exists());
        fs::write(dir.path().join(COPY), leave).unwrap();
        compact_data_folder(dir.path(), &DiskSpaceProbe::default()).unwrap();
        assert!(!dir.path().join(COPY).exists());
        assert_eq!(read_log(&open(dir.path()), 1).await, log);
    }
}
