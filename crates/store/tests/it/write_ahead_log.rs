//! The write-ahead log is copied into the database beside the writer, and starts again from its beginning.

use crate::data_folder::{database, open};
use model::ports::PageLimit;
use std::io::Read as _;
use std::path::Path;
use store::verify_data_folder;
use store_conformance::fixtures::{LogWriter, nth_thread, read_all_records, test_user};

/// A record of four pages.
const NOTE_BYTES: usize = 16 * 1024;
/// Appends after which the log must have started again: 12,000 pages, of which the thread copies each thousand.
const APPENDS_MAX: usize = 3_000;

/// How many times the log has started again; SQLite counts it in the header of the file.
fn read_restarts(dir: &Path) -> u32 {
    let mut header = [0; 16];
    std::fs::File::open(dir.join("headwater.db-wal")).unwrap().read_exact(&mut header).unwrap();
    let [.., a, b, c, d] = header;
    u32::from_be_bytes([a, b, c, d])
}

/// Appends records until the log has started again. Returns whether it has.
async fn append_until_restart(writer: &mut LogWriter<'_>, dir: &Path) -> bool {
    let before = read_restarts(dir);
    let note = "n".repeat(NOTE_BYTES);
    for _ in 0..APPENDS_MAX {
        writer.push_note(&note).must_append().await;
        if read_restarts(dir) != before {
            return true;
        }
    }
    false
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_log_starts_again_while_the_writer_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut writer = LogWriter::new(&store, &store, 1).await;
    writer.start_run().must_append().await;
    for round in 0..3 {
        assert!(append_until_restart(&mut writer, dir.path()).await, "round {round}: the log only grows");
    }
    let written = writer.read_all().await;
    store.close().await;
    assert_eq!(std::fs::metadata(dir.path().join("headwater.db-wal")).map_or(0, |log| log.len()), 0);
    assert_eq!(verify_data_folder(dir.path()).unwrap().problems, Vec::<String>::new());
    let store = open(dir.path());
    let found = read_all_records(&store, (&test_user(), &nth_thread(1)), PageLimit::WIDE).await;
    assert_eq!(found, Ok(written));
}

/// A reader with an old view keeps the log from starting again, and delays nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_a_reader_holds_starts_again_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut writer = LogWriter::new(&store, &store, 1).await;
    writer.start_run().must_append().await;
    let reader = database(dir.path());
    reader.execute_batch("BEGIN; SELECT count(*) FROM records").unwrap();
    let (before, note) = (read_restarts(dir.path()), "n".repeat(NOTE_BYTES));
    for _ in 0..APPENDS_MAX / 4 {
        writer.push_note(&note).must_append().await;
    }
    assert_eq!(read_restarts(dir.path()), before);
    reader.execute_batch("COMMIT").unwrap();
    assert!(append_until_restart(&mut writer, dir.path()).await, "the log only grows");
}
