//! The append log: records are durable in it before the database has them.

use crate::data_folder::{DATABASE_FILES, LOG_FILES, database, kill, open};
use futures_util::future::join_all;
use model::ports::{PageLimit, StoreError, ThreadWriter as _};
use model::record::Record;
use model_testing::Rng;
use std::path::Path;
use std::time::{Duration, Instant};
use store::{DiskSpaceProbe, SqliteStore, compact_data_folder, find_logged_run, verify_data_folder};
use store_conformance::fixtures::{LogWriter, nth_run, nth_thread, read_all_records, test_user};

/// The number of records in rows of the database.
fn count_rows(dir: &Path) -> u64 {
    let sum = "SELECT ifnull(sum(count), 0) FROM records";
    database(dir).query_row(sum, (), |row| row.get::<_, i64>(0)).unwrap().cast_unsigned()
}

fn assert_sound(dir: &Path) {
    assert_eq!(verify_data_folder(dir).unwrap().problems, Vec::<String>::new());
}

async fn read(store: &SqliteStore, n: usize) -> Result<Vec<Record>, StoreError> {
    read_all_records(store, (&test_user(), &nth_thread(n)), PageLimit::WIDE).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_database_gets_records_with_the_next_change() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut writer = LogWriter::new(&store, &store, 1).await;
    let mut written = writer.start_run().must_append().await;
    let started = written.len() as u64;
    for n in 0..20 {
        written.extend(writer.push_note(&format!("note {n}")).must_append().await);
        assert_eq!(writer.read_all().await, written, "a reader finds both");
    }
    assert_eq!(count_rows(dir.path()), started);
    let log = find_logged_run(dir.path(), &nth_run(1)).unwrap().unwrap();
    assert_eq!(log.seq_range.map(|range| range.1), written.last().map(|record| record.seq));
    written.extend(writer.push_note("and a change").push_change().must_append().await);
    assert_eq!(count_rows(dir.path()), written.len() as u64);
    assert_eq!(writer.read_all().await, written);
    drop(store);
    assert!(LOG_FILES.iter().all(|name| !dir.path().join(name).exists()), "a close leaves the database alone");
    assert_sound(dir.path());
}

/// A run whose records are in memory becomes a block with its last commit, and no row is written for them.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_ends_is_packed_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut writer = LogWriter::new(&store, &store, 1).await;
    let mut written = writer.start_run().must_append().await;
    let started = written.len() as u64;
    for n in 0..20 {
        written.extend(writer.push_note(&format!("note {n}")).must_append().await);
    }
    written.extend(writer.complete_run().must_append().await);
    let blocks = "SELECT count(*), max(last_seq) FROM blocks";
    let pair = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?.cast_unsigned()));
    assert_eq!(database(dir.path()).query_row(blocks, (), pair), Ok((1, written.len() as u64)));
    assert!(count_rows(dir.path()) <= started);
    assert_eq!(writer.read_all().await, written);
    // The next run of the thread follows.
    writer.run = nth_run(2);
    written.extend(writer.start_run().push_notes(3).must_append().await);
    written.extend(writer.push_notes(3).must_append().await);
    let killed = kill(dir.path());
    assert_sound(killed.path());
    assert_eq!(read(&open(killed.path()), 1).await, Ok(written));
    assert_sound(killed.path());
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_that_end_together_are_packed_at_once() {
    const RUNS: usize = 40;
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut runs = Vec::new();
    for n in 1..=RUNS {
        let mut writer = LogWriter::new(&store, &store, n).await;
        let mut written = writer.start_run().must_append().await;
        written.extend(writer.push_notes(20).must_append().await);
        runs.push((writer, written));
    }
    let started = count_rows(dir.path());
    join_all(runs.iter_mut().map(|(writer, written)| async {
        written.extend(writer.complete_run().must_append().await);
    }))
    .await;
    assert!(count_rows(dir.path()) <= started, "no other record was ever a row");
    for (writer, written) in &runs {
        assert_eq!(writer.read_all().await, *written);
    }
    assert_sound(kill(dir.path()).path());
}

/// Most runs end before the next file is half as long as it gets: until then their records are no rows, which would be written for
/// nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_file_is_not_written_out_before_it_has_to_be() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    // A file and a quarter of the next one, by several runs, so that the writer keeps them all in memory.
    for n in 0..15 {
        log_megabyte(&store, 80 + n).await;
    }
    let mut short = LogWriter::new(&store, &store, 1).await;
    let mut written = short.start_run().must_append().await;
    let started = written.len() as u64;
    written.extend(short.push_notes(20).must_append().await);
    for n in 15..20 {
        log_megabyte(&store, 80 + n).await;
    }
    let logs = LOG_FILES.map(|name| std::fs::metadata(dir.path().join(name)).unwrap().len());
    assert!(logs.iter().all(|bytes| *bytes > 512 * 1024), "both files have records: {logs:?}");
    assert_eq!(count_rows_of(dir.path(), 1), started);
    written.extend(short.complete_run().must_append().await);
    assert!(count_rows_of(dir.path(), 1) <= started, "it has become a block");
    assert_eq!(short.read_all().await, written);
}

/// A run of about a megabyte that does not end.
async fn log_megabyte(store: &SqliteStore, n: usize) {
    let mut run = LogWriter::new(store, store, n).await;
    run.start_run().must_append().await;
    for _ in 0..16 {
        run.push_note(&"busy ".repeat(12_000)).must_append().await;
    }
}

/// Silent threads, whose records stay in the log until it is long, and one that writes all the time.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_log_is_written_out_while_runs_go_on() {
    const FILE_BYTES_MAX: u64 = 18 * 1024 * 1024;
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut all = Vec::new();
    for n in 1..=30 {
        let mut silent = LogWriter::new(&store, &store, n).await;
        let mut written = silent.start_run().must_append().await;
        for _ in 0..3 {
            written.extend(silent.push_note(&"silent ".repeat(1_000)).must_append().await);
        }
        all.push((n, written));
    }
    let mut busy = LogWriter::new(&store, &store, 99).await;
    let mut written = busy.start_run().must_append().await;
    for round in 0..600 {
        written.extend(busy.push_note(&"busy ".repeat(12_000)).must_append().await);
        if round % 200 == 199 {
            all.push((99, written.clone()));
            let killed = kill(dir.path());
            for name in LOG_FILES {
                let bytes = std::fs::metadata(killed.path().join(name)).unwrap().len();
                assert!(bytes < FILE_BYTES_MAX, "{name} has {bytes} bytes");
            }
            assert_sound(killed.path());
            compact_data_folder(killed.path(), &DiskSpaceProbe::default()).unwrap();
            let again = open(killed.path());
            for (n, written) in &all {
                assert_eq!(read(&again, *n).await.as_ref(), Ok(written), "thread {n} after {round} appends");
            }
            all.pop();
        }
    }
    for (n, written) in &all {
        assert_eq!(read(&store, *n).await.as_ref(), Ok(written));
        assert_eq!(count_rows_of(dir.path(), *n), written.len() as u64, "thread {n} was written out");
    }
}

fn count_rows_of(dir: &Path, n: usize) -> u64 {
    let sql = "SELECT ifnull(sum(count), 0) FROM records WHERE thread = (SELECT num FROM threads WHERE id = ?1)";
    database(dir).query_row(sql, [nth_thread(n).as_str()], |row| row.get::<_, i64>(0)).unwrap().cast_unsigned()
}

/// The database without the log: what SQLite's own backup copies.
#[tokio::test(flavor = "multi_thread")]
async fn the_database_alone_has_a_log_without_gaps() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut rng = Rng::new(11);
    let mut writers = Vec::new();
    for n in 1..=4 {
        let mut writer = LogWriter::new(&store, &store, n).await;
        let written = writer.start_run().must_append().await;
        writers.push((n, writer, written));
    }
    for round in 0..20 {
        for (_, writer, written) in &mut writers {
            for _ in 0..rng.below(12) {
                writer.push_notes(1 + rng.below(3));
                if rng.chance(10) {
                    writer.push_change();
                }
                written.extend(writer.must_append().await);
            }
        }
        let backup = tempfile::tempdir().unwrap();
        let copy = backup.path().join("headwater.db");
        database(dir.path()).execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
        assert_sound(backup.path());
        let restored = open(backup.path());
        for (n, _, written) in &writers {
            let found = read(&restored, *n).await.unwrap();
            assert!(!found.is_empty() && found[..] == written[..found.len()], "round {round}, thread {n}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_thread_leaves_nothing_in_the_log() {
    const SECRET: &str = "the number of the account is 4711";
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut other = LogWriter::new(&store, &store, 2).await;
    let mut kept = other.start_run().must_append().await;
    let mut writer = LogWriter::new(&store, &store, 1).await;
    writer.start_run().must_append().await;
    writer.push_note(SECRET).must_append().await;
    kept.extend(other.push_note("kept").must_append().await);
    let has_secret = || {
        let has = |name: &&str| {
            let content = std::fs::read(dir.path().join(name)).unwrap();
            content.windows(SECRET.len()).any(|bytes| bytes == SECRET.as_bytes())
        };
        DATABASE_FILES.iter().any(has)
    };
    assert!(has_secret());
    assert_eq!(store.delete_thread(&test_user(), &nth_thread(1)).await, Ok(true));
    let begun = Instant::now();
    while has_secret() {
        assert!(begun.elapsed() < Duration::from_secs(20), "the deleted record is still there");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(other.read_all().await, kept);
    let killed = kill(dir.path());
    assert_eq!(read(&open(killed.path()), 2).await, Ok(kept));
    assert_sound(killed.path());
}

/// Whatever happens to the log, no wrong record is returned, and what is missing of any but the last group is reported.
#[tokio::test(flavor = "multi_thread")]
async fn a_torn_log_is_shorter_and_a_damaged_one_is_reported() {
    const THREADS: usize = 3;
    let seed = model_testing::test_seeds().next().unwrap();
    println!("seed {seed}");
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut writers = Vec::new();
    for n in 1..=THREADS {
        let mut writer = LogWriter::new(&store, &store, n).await;
        let written = writer.start_run().must_append().await;
        writers.push((writer, written));
    }
    let mut rng = Rng::new(seed);
    let mut last = 0;
    for _ in 0..200 {
        last = rng.below(THREADS);
        let (writer, written) = &mut writers[last];
        written.extend(writer.push_notes(1 + rng.below(4)).must_append().await);
    }
    let whole = std::fs::read(dir.path().join(LOG_FILES[0])).unwrap();
    let used = whole.iter().rposition(|byte| *byte != 0).unwrap();
    let mut reported = 0;
    for round in 0..120 {
        let killed = kill(dir.path());
        let mut content = whole.clone();
        let place = rng.below(used);
        let is_torn = round % 3 == 0;
        if is_torn {
            content[place..].fill(0);
        } else {
            content[place] ^= 1 << rng.below(8);
        }
        std::fs::write(killed.path().join(LOG_FILES[0]), content).unwrap();
        let report = verify_data_folder(killed.path()).unwrap();
        let again = open(killed.path());
        for (n, (writer, written)) in writers.iter().enumerate() {
            let found = match read(&again, n + 1).await {
                Ok(found) => found,
                Err(error) => {
                    assert!(matches!(error, StoreError::Corrupt { .. }), "round {round}: {error}");
                    assert!(!report.is_clean(), "round {round} at {place}");
                    continue;
                }
            };
            assert!(found[..] == written[..found.len()], "round {round} at {place}: thread {n}");
            // The last commit may not have happened.
            let last_batch = if n == last { 4 } else { 0 };
            let is_lost = found.len() + last_batch < written.len();
            assert!(
                is_torn || !is_lost || !report.is_clean(),
                "round {round} at {place}: {} of {}",
                found.len(),
                writer.lease.head
            );
            reported += u32::from(!report.is_clean());
        }
        if is_torn {
            assert!(report.is_clean(), "round {round} at {place}: {report}");
        }
    }
    assert!(reported > 0);
}
