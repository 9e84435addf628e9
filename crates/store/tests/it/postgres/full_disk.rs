//! A database on a file system of a few megabytes. The server's own log of changes is elsewhere: a server that has no room for
//! it stops, and is then one that cannot be reached.

use super::options;
use super::writers::in_time;
use model::ports::{AccessKeyRow, Accounts as _, AppendOutcome, SpaceWatch as _, StorageSpace, ThreadWriter as _};
use postgres_testing::{PostgresServer, TestDatabase};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use store::PostgresStore;
use store_conformance::fixtures::{LogWriter, test_user};
use store_conformance::space::a_full_store_refuses_new_data_and_nothing_else;

/// The store looks for room once or twice meanwhile.
const PROBES: Duration = Duration::from_millis(2_200);

/// A file system in memory that belongs to the server's user, unmounted when dropped.
struct SmallDisk {
    mount: PathBuf,
    _folder: tempfile::TempDir,
}

impl SmallDisk {
    /// `None`, and a line on stderr, without the right to mount.
    fn for_server(server: &PostgresServer, test: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mount = folder.path().join("disk");
        fs::create_dir(&mount).unwrap();
        let user = fs::metadata(server.folder().join("data")).unwrap();
        let settings = format!("size=48m,mode=700,uid={},gid={}", user.uid(), user.gid());
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &settings, "tmpfs"]).arg(&mount).status();
        if !mounted.is_ok_and(|status| status.success()) {
            writeln!(std::io::stderr(), "SKIPPED {test}: a small disk needs the right to mount a tmpfs").unwrap();
            return None;
        }
        Some(Self { mount, _folder: folder })
    }

    fn fill(&self) {
        let mut file = fs::File::create(self.mount.join("filler")).unwrap();
        while file.write_all(&[7; 4096]).is_ok() {}
    }

    fn remove_filler(&self) {
        fs::remove_file(self.mount.join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _gone = Command::new("umount").arg("--lazy").arg(&self.mount).status();
    }
}

/// A database on the disk.
fn create_database(server: &PostgresServer, disk: &SmallDisk) -> TestDatabase {
    let database = TestDatabase::create_on(server);
    let (name, mount) = (database.name(), disk.mount.display());
    server.execute("postgres", &format!("CREATE TABLESPACE small LOCATION '{mount}';"));
    server.execute("postgres", &format!("ALTER DATABASE {name} SET TABLESPACE small;"));
    database
}

/// Appends until the store has noticed, because a table may have room in its last page.
async fn append_until_full(writer: &mut LogWriter<'_>) {
    for _ in 0..1_000 {
        writer.push_note(&"word ".repeat(1_000));
        match writer.append().await {
            AppendOutcome::Durable => {}
            outcome => return assert_eq!(outcome, AppendOutcome::NoSpace),
        }
    }
    panic!("the disk is not full");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_new_data_and_nothing_else() {
    let server = PostgresServer::start();
    let Some(disk) = SmallDisk::for_server(&server, "a_full_disk_refuses_new_data_and_nothing_else") else { return };
    let database = create_database(&server, &disk);
    let store = PostgresStore::open(options(&database)).await.unwrap();
    let mut filler = LogWriter::new(&store, &store, 100).await;
    filler.start_run().must_append().await;
    let filler = tokio::sync::Mutex::new(filler);
    let set_full = async |is_full: bool| {
        if is_full {
            disk.fill();
            append_until_full(&mut *filler.lock().await).await;
        } else {
            disk.remove_filler();
        }
    };
    in_time(a_full_store_refuses_new_data_and_nothing_else(&store, &store, set_full)).await;
}

/// The file system stays as full as it is.
#[tokio::test(flavor = "multi_thread")]
async fn deleting_threads_makes_room() {
    let server = PostgresServer::start();
    let Some(disk) = SmallDisk::for_server(&server, "deleting_threads_makes_room") else { return };
    let database = create_database(&server, &disk);
    let store = PostgresStore::open(options(&database)).await.unwrap();
    let mut writer = LogWriter::new(&store, &store, 1).await;
    writer.start_run().must_append().await;
    let mut other = LogWriter::new(&store, &store, 2).await;
    other.start_run();
    for _ in 0..400 {
        other.push_note(&"word ".repeat(200));
    }
    other.must_append().await;
    // What the server does by itself after a while; the first time needs room, too.
    let vacuum = "VACUUM headwater.records;";
    database.execute(vacuum);
    let (user, digest) = (test_user(), "digest".to_owned());
    let key = AccessKeyRow { id: "key".to_owned(), user, digest, created_at: 1, revoked_at: None };
    store.create_access_key(key).await.unwrap();
    disk.fill();
    append_until_full(&mut writer).await;

    assert!(store.delete_thread(&test_user(), &other.thread).await.unwrap());
    // As often as needs room if anything is kept of it.
    for n in 0..300 {
        assert!(store.revoke_access_key("key", n).await.unwrap());
    }
    let is_noticed = tokio::time::timeout(PROBES, store.space_changed(StorageSpace::Full)).await.is_ok();
    assert!(!is_noticed, "before the rows are removed, there is no room");
    database.execute(vacuum);
    in_time(store.space_changed(StorageSpace::Full)).await;
    writer.push_notes(3).must_append().await;
}
