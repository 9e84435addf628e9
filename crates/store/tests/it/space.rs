//! A full disk: the law on both backends, and a real file system of a few megabytes.

use memory_store::MemoryStore;
use model::ports::{
    AppendOutcome, InboxWriter as _, Journal as _, SpaceWatch as _, StorageSpace, StoreError, SubmitError,
    ThreadWriter as _, Threads as _,
};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use store::{DiskSpace, DiskSpaceProbe, SqliteOptions, SqliteStore, StoreOpenError, verify_data_folder};
use store_conformance::fixtures::{
    LogWriter, new_thread_submission, nth_run, nth_thread, start_command, test_node, test_user,
};
use store_conformance::space::a_full_store_refuses_new_data_and_nothing_else;

const MIB: u64 = 1024 * 1024;
/// Five times the promise.
const RECOVERY_MAX: Duration = Duration::from_secs(25);

#[tokio::test]
async fn memory_keeps_the_law_of_a_full_store() {
    let store = MemoryStore::new();
    let set_full = async |is_full| store.set_space(if is_full { StorageSpace::Full } else { StorageSpace::Available });
    a_full_store_refuses_new_data_and_nothing_else(&store, &store, set_full).await;
}

/// A disk whose room the test decides.
fn imagined_disk(available: u64) -> (Arc<AtomicU64>, DiskSpaceProbe) {
    let room = Arc::new(AtomicU64::new(available));
    let read = Arc::clone(&room);
    (room, DiskSpaceProbe::new(move |_| Some(DiskSpace { available: read.load(SeqCst), total: 1 << 30 })))
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_keeps_the_law_of_a_full_store() {
    let dir = tempfile::tempdir().unwrap();
    let (room, disk_space) = imagined_disk(1 << 29);
    let options = SqliteOptions { disk_reserve_bytes: Some(MIB), disk_space, ..SqliteOptions::default() };
    let store = SqliteStore::open(dir.path(), &options).unwrap();
    let set_full = async |is_full: bool| room.store(if is_full { 0 } else { 1 << 29 }, SeqCst);
    a_full_store_refuses_new_data_and_nothing_else(&store, &store, set_full).await;
    assert_eq!(store.stats().failures, 0, "nothing was tried that could not work");
    drop(store);
    assert!(verify_data_folder(dir.path()).unwrap().is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_store_notices_a_disk_that_others_fill() {
    let dir = tempfile::tempdir().unwrap();
    let (room, disk_space) = imagined_disk(1 << 29);
    let options = SqliteOptions { disk_reserve_bytes: Some(MIB), disk_space, ..SqliteOptions::default() };
    let store = SqliteStore::open(dir.path(), &options).unwrap();
    room.store(0, SeqCst);
    let noticed = tokio::time::timeout(RECOVERY_MAX, store.space_changed(StorageSpace::Available)).await;
    assert!(noticed.is_ok() && store.space() == StorageSpace::Full);
    assert!(!dir.path().join("reserve").exists());
}

/// A file system in memory, unmounted when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None`, and a line on stderr, without the right to mount.
    fn new(folder: &Path, megabytes: u64) -> Option<Self> {
        let mount = folder.join("disk");
        fs::create_dir_all(&mount).unwrap();
        let size = format!("size={megabytes}m");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&mount).status();
        if !mounted.is_ok_and(|status| status.success()) {
            writeln!(std::io::stderr(), "SKIPPED: a small disk needs the right to mount a tmpfs").unwrap();
            return None;
        }
        Some(Self(mount))
    }

    fn data(&self) -> PathBuf {
        self.0.join("data")
    }

    /// Leaves about `left` bytes.
    fn fill_up_to(&self, left: u64) {
        let mut file = fs::OpenOptions::new().create(true).append(true).open(self.0.join("filler")).unwrap();
        while file.write_all(&[7; 4096]).is_ok() {}
        let length = file.metadata().unwrap().len();
        file.set_len(length - left.min(length)).unwrap();
    }

    fn remove_filler(&self) {
        fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _gone = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

async fn wait_for_room(store: &SqliteStore) -> Duration {
    let began = Instant::now();
    let changed = tokio::time::timeout(RECOVERY_MAX, store.space_changed(StorageSpace::Full)).await;
    assert!(changed.is_ok(), "no recovery within {RECOVERY_MAX:?}");
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_out_of_space_is_a_certain_no_and_the_same_batch_fits_later() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::new(folder.path(), 16) else { return };
    // The probe sees nothing, so SQLite itself runs out of space.
    let options = SqliteOptions { disk_space: imagined_disk(1 << 29).1, ..SqliteOptions::default() };
    let store = SqliteStore::open(&disk.data(), &options).unwrap();
    let mut author = LogWriter::new(&store, &store, 1).await;
    let known = author.start_run().must_append().await;
    author.push_note(&"word ".repeat(100_000));
    let batch = author.push_notes(3).batch();
    disk.fill_up_to(64 * 1024);

    assert_eq!(store.append(batch.clone()).await, AppendOutcome::NoSpace);
    let start = new_thread_submission(&nth_thread(9), start_command(&nth_run(9)));
    assert_eq!(store.submit(&test_user(), start).await, Err(SubmitError::Store(StoreError::NoSpace)));
    assert_eq!((author.read_all().await, store.stats().failures), (known.clone(), 1));

    disk.remove_filler();
    wait_for_room(&store).await;
    assert_eq!(store.append(batch.clone()).await, AppendOutcome::Durable, "the lease has survived");
    assert_eq!(author.read_all().await[known.len()..], batch.records[..]);
    drop(store);
    assert_eq!(verify_data_folder(&disk.data()).unwrap().problems, Vec::<String>::new());
}

/// 8 MiB: an eighth of the disk.
fn with_reserve() -> SqliteOptions {
    SqliteOptions { disk_reserve_bytes: Some(16 * MIB), ..SqliteOptions::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn deletions_have_the_reserve_and_it_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::new(folder.path(), 64) else { return };
    let store = SqliteStore::open(&disk.data(), &with_reserve()).unwrap();
    let reserve = disk.data().join("reserve");
    let found = fs::metadata(&reserve).unwrap();
    assert_eq!((found.len(), found.mode() & 0o777), (8 * MIB, 0o600));
    assert!(found.blocks() * 512 >= 8 * MIB, "it is really allocated");
    let mut author = LogWriter::new(&store, &store, 1).await;
    author.start_run().must_append().await;
    let mut other = LogWriter::new(&store, &store, 2).await;
    for _ in 0..10 {
        other.start_run().push_note(&"word ".repeat(20_000)).must_append().await;
        other.run = nth_run(usize::try_from(other.next_seq().0).unwrap() + 100);
    }
    disk.fill_up_to(0);

    let batch = author.push_notes(1).batch();
    assert_eq!(store.append(batch.clone()).await, AppendOutcome::NoSpace);
    for _ in 0..100 {
        assert_eq!(store.append(batch.clone()).await, AppendOutcome::NoSpace, "the reserve is not for new data");
    }
    // Another program continues to fill the disk.
    disk.fill_up_to(0);
    assert!(fs::metadata(&reserve).unwrap().len() > 4 * MIB, "other programs cannot take the reserve");
    assert!(store.delete_thread(&test_user(), &other.thread).await.unwrap());
    disk.fill_up_to(0);
    assert!(store.delete_thread(&test_user(), &author.thread).await.unwrap(), "again");

    disk.remove_filler();
    let took = wait_for_room(&store).await;
    writeln!(std::io::stderr(), "room was noticed after {took:?}").unwrap();
    assert_eq!(fs::metadata(&reserve).unwrap().len(), 8 * MIB);
    let mut author = LogWriter::new(&store, &store, 3).await;
    author.start_run().must_append().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_in_the_commit_that_finds_the_disk_full_succeeds() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::new(folder.path(), 64) else { return };
    // The probe sees nothing, and both tasks wait for the same commit.
    let options = SqliteOptions {
        disk_space: imagined_disk(1 << 29).1,
        commit_spacing: Duration::from_millis(500),
        ..with_reserve()
    };
    let store = SqliteStore::open(&disk.data(), &options).unwrap();
    let mut author = LogWriter::new(&store, &store, 1).await;
    author.start_run().must_append().await;
    let mut other = LogWriter::new(&store, &store, 2).await;
    other.start_run().must_append().await;
    let batch = author.push_note(&"word ".repeat(100_000)).batch();
    disk.fill_up_to(64 * 1024);

    let owner = test_user();
    let (appended, deleted) = tokio::join!(store.append(batch), store.delete_thread(&owner, &other.thread));
    assert_eq!((appended, deleted), (AppendOutcome::NoSpace, Ok(true)));
    assert_eq!(store.stats().failures, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_opens_on_a_full_disk_with_its_reserve() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::new(folder.path(), 64) else { return };
    let store = SqliteStore::open(&disk.data(), &with_reserve()).unwrap();
    LogWriter::new(&store, &store, 1).await.start_run().must_append().await;
    drop(store);
    disk.fill_up_to(0);

    for round in 0..3 {
        let store = SqliteStore::open(&disk.data(), &with_reserve()).unwrap();
        assert_eq!(store.space(), StorageSpace::Full, "round {round}: also when the reserve is gone already");
        let refused = new_thread_submission(&nth_thread(9), start_command(&nth_run(9)));
        assert_eq!(store.submit(&test_user(), refused).await, Err(SubmitError::Store(StoreError::NoSpace)));
        store.claim(&test_user(), &nth_thread(1), &test_node()).await.unwrap();
        drop(store);
        assert!(verify_data_folder(&disk.data()).unwrap().is_clean());
    }
    let store = SqliteStore::open(&disk.data(), &SqliteOptions::default()).unwrap();
    assert!(store.delete_thread(&test_user(), &nth_thread(1)).await.unwrap(), "also from the command line");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_any_room_the_database_is_read_and_written_later() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::new(folder.path(), 16) else { return };
    let store = SqliteStore::open(&disk.data(), &SqliteOptions::default()).unwrap();
    let mut author = LogWriter::new(&store, &store, 1).await;
    let known = author.start_run().push_notes(5).must_append().await;
    let thread = author.thread.clone();
    drop(author);
    drop(store);
    disk.fill_up_to(0);

    let store = SqliteStore::open(&disk.data(), &with_reserve()).unwrap();
    assert_eq!(store.space(), StorageSpace::Full);
    let reader = LogWriter::with_lease(
        &store,
        test_user(),
        1,
        model::ports::Lease { epoch: model::seq::Epoch(1), head: model::seq::Seq(7) },
    );
    assert_eq!(reader.read_all().await, known);
    assert!(store.thread(&test_user(), &thread).await.unwrap().is_some());
    assert_eq!(store.delete_thread(&test_user(), &thread).await, Err(StoreError::NoSpace));
    assert_eq!(store.claim(&test_user(), &thread, &test_node()).await, Err(StoreError::NoSpace));

    disk.remove_filler();
    wait_for_room(&store).await;
    assert_eq!(reader.read_all().await, known);
    let lease = store.claim(&test_user(), &thread, &test_node()).await.unwrap().lease().unwrap();
    let mut author = LogWriter::with_lease(&store, test_user(), 1, lease);
    author.push_notes(1).must_append().await;
    assert_eq!(author.read_all().await.len(), known.len() + 1);
    drop((author, reader));
    drop(store);
    assert!(verify_data_folder(&disk.data()).unwrap().is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_cannot_even_be_read_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::new(folder.path(), 4) else { return };
    fs::create_dir(disk.data()).unwrap();
    disk.fill_up_to(0);
    let refused = SqliteStore::open(&disk.data(), &with_reserve()).unwrap_err();
    assert!(matches!(refused, StoreOpenError::DiskFull(_)), "{refused}");
    let line = refused.to_string();
    assert!(line.contains("is full: delete other files") && !line.contains('\n'), "{line}");
}
