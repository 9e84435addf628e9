//! Which folders are opened, and that a refused one stays unchanged.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use store::{SqliteOptions, SqliteStore, StoreOpenError, verify_data_folder};

fn open(dir: &Path) -> Result<SqliteStore, StoreOpenError> {
    SqliteStore::open(dir, &SqliteOptions::default())
}

/// Every file, with a digest of its bytes.
fn files(dir: &Path) -> BTreeMap<PathBuf, u64> {
    let digest = |path: &Path| {
        let mut hash = DefaultHasher::new();
        std::fs::read(path).unwrap_or_default().hash(&mut hash);
        hash.finish()
    };
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.clone(), digest(&path))).collect()
}

/// Refused in one line, with an unchanged folder.
fn refused(dir: &Path) -> StoreOpenError {
    let before = files(dir);
    let error = open(dir).unwrap_err();
    assert_eq!(files(dir), before);
    assert!(!error.to_string().contains('\n'), "{error}");
    error
}

#[test]
fn a_missing_folder_is_created() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("some/where/new%20 ?#é");
    drop(open(&deep).unwrap());
    drop(open(&deep).unwrap());
    let before = files(&deep);
    assert_eq!(verify_data_folder(&deep).unwrap().to_string(), "0 threads, 0 runs, 0 records\nno damage found");
    assert_eq!(files(&deep), before, "verify only reads");
}

#[test]
fn a_second_process_is_refused_until_the_first_exits() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path()).unwrap();
    assert!(matches!(refused(dir.path()), StoreOpenError::Locked(_)));
    assert!(matches!(verify_data_folder(dir.path()), Err(StoreOpenError::Locked(_))));
    drop(first);
    drop(open(dir.path()).unwrap());
}

/// A server that is killed while it starts a program leaves its lock to that program, until it is executed.
#[test]
fn a_lock_that_outlives_its_owner_for_a_moment_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()).unwrap());
    let lock = std::fs::File::open(dir.path().join("lock")).unwrap();
    lock.lock().unwrap();
    // Its stdin is the lock.
    let mut program = std::process::Command::new("sleep").arg("0.3").stdin(lock).spawn().unwrap();
    drop(open(dir.path()).unwrap());
    assert!(program.wait().unwrap().success());
}

/// A folder of a later version is refused with a clear message.
#[test]
fn a_newer_folder_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()).unwrap());
    std::fs::remove_file(dir.path().join("lock")).unwrap();
    let conn = rusqlite::Connection::open(dir.path().join("headwater.db")).unwrap();
    conn.pragma_update(None, "user_version", 15).unwrap();
    drop(conn);
    let error = refused(dir.path());
    assert!(matches!(error, StoreOpenError::Newer { found: 15, known: 14, .. }), "{error}");
    assert!(error.to_string().ends_with("has format 15 and this version knows 14: use the version that wrote it"));
    assert!(matches!(verify_data_folder(dir.path()), Err(StoreOpenError::Newer { .. })));
}

/// A folder without a version is refused, too.
#[test]
fn a_foreign_folder_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let database = dir.path().join("headwater.db");
    for garbage in [&b"hello"[..], &[0; 4096], b"SQLite format 3\0 and then nothing"] {
        std::fs::write(&database, garbage).unwrap();
        assert!(matches!(refused(dir.path()), StoreOpenError::Foreign(_)));
        assert!(matches!(verify_data_folder(dir.path()), Err(StoreOpenError::Foreign(_))));
    }
    std::fs::remove_file(&database).unwrap();
    let conn = rusqlite::Connection::open(&database).unwrap();
    conn.execute_batch("CREATE TABLE theirs (x); PRAGMA user_version = 7;").unwrap();
    drop(conn);
    assert!(matches!(refused(dir.path()), StoreOpenError::Foreign(_)));
    std::fs::remove_file(&database).unwrap();
    std::fs::create_dir(&database).unwrap();
    assert!(matches!(refused(dir.path()), StoreOpenError::Foreign(_)));
    assert!(matches!(verify_data_folder(tempfile::tempdir().unwrap().path()), Err(StoreOpenError::Foreign(_))));
}

#[test]
fn a_path_that_is_a_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "mine").unwrap();
    assert!(matches!(open(&file), Err(StoreOpenError::NotAFolder(_))));
    assert!(matches!(open(&file.join("below")), Err(StoreOpenError::NotAFolder(_))));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    assert_eq!(files(dir.path()).len(), 1);
}

#[cfg(unix)]
#[test]
fn a_folder_that_cannot_be_written_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    let allow = |mode| std::fs::set_permissions(&inner, std::fs::Permissions::from_mode(mode)).unwrap();
    allow(0o555);
    if std::fs::write(inner.join("probe"), "").is_ok() {
        eprintln!("skipped: this user may write everywhere");
        return;
    }
    assert!(matches!(refused(&inner), StoreOpenError::Denied { .. }));
    allow(0o000);
    assert!(matches!(open(&inner), Err(StoreOpenError::Denied { .. })));
    allow(0o755);
    drop(open(&inner).unwrap());
    let database = inner.join("headwater.db");
    std::fs::set_permissions(&database, std::fs::Permissions::from_mode(0o444)).unwrap();
    assert!(matches!(open(&inner), Err(StoreOpenError::Denied { .. })));
}

#[test]
fn an_interrupted_creation_is_restarted() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("headwater.db"), "").unwrap();
    drop(open(dir.path()).unwrap());
}
