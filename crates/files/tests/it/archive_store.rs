//! A folder as archive.

use bytes::Bytes;
use files::{ArchiveStore, StorageLocation};
use futures_util::TryStreamExt as _;
use model::ports::{ArchiveError, RecordArchive as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

fn open(dir: &Path) -> ArchiveStore {
    ArchiveStore::open(&StorageLocation::Folder(dir.join("archive")), &[]).unwrap()
}

async fn names(archive: &ArchiveStore) -> Vec<String> {
    let mut names: Vec<String> = archive.list().try_collect().await.unwrap();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn objects_are_stored_read_listed_and_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let archive = open(dir.path());
    let objects = [("1/1-9-a", "one"), ("1/10-12-b", ""), ("12/1-2-c", "three")];
    for (name, text) in objects {
        archive.put(name, Bytes::from_static(text.as_bytes())).await.unwrap();
    }
    assert_eq!(names(&archive).await, objects.map(|(name, _)| name));
    let mode = std::fs::metadata(dir.path().join("archive")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    // Another process sees the same.
    let archive = open(dir.path());
    for (name, text) in objects {
        assert_eq!(archive.get(name, text.len()).await.unwrap(), text);
    }
    assert_eq!(archive.get("12/1-2-c", 4).await, Err(ArchiveError::TooLarge));
    assert_eq!(archive.get("12/1-2-d", 9).await, Err(ArchiveError::NotFound));
    assert_eq!(archive.get("13/1-2-c", 9).await, Err(ArchiveError::NotFound));
    archive.delete("1/1-9-a").await.unwrap();
    archive.delete("1/1-9-a").await.unwrap();
    assert_eq!(archive.get("1/1-9-a", 9).await, Err(ArchiveError::NotFound));
    assert_eq!(names(&archive).await, ["1/10-12-b", "12/1-2-c"]);
    archive.delete("1/10-12-b").await.unwrap();
    archive.delete("12/1-2-c").await.unwrap();
    assert_eq!(std::fs::read_dir(dir.path().join("archive")).unwrap().count(), 0, "nothing is left");
}

#[tokio::test]
async fn a_put_that_was_interrupted_is_listed_and_deleted_under_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let archive = open(dir.path());
    archive.put("1/1-2-a", Bytes::from_static(b"one")).await.unwrap();
    std::fs::rename(dir.path().join("archive/1/1-2-a"), dir.path().join("archive/1/1-2-a#1")).unwrap();
    assert_eq!(names(&archive).await, ["1/1-2-a"]);
    assert_eq!(archive.get("1/1-2-a", 9).await, Err(ArchiveError::NotFound));
    archive.delete("1/1-2-a").await.unwrap();
    assert_eq!(names(&archive).await, [""; 0]);
}

#[tokio::test]
async fn no_name_and_no_link_leads_out_of_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    let archive = open(dir.path());
    std::fs::write(dir.path().join("secret"), "secret").unwrap();
    std::fs::create_dir(dir.path().join("outside")).unwrap();
    std::fs::write(dir.path().join("outside/1-2-a"), "secret").unwrap();
    symlink(dir.path().join("outside"), dir.path().join("archive/7")).unwrap();
    for name in ["../secret", "/etc/passwd", "", ".", "1/../../secret", "1//2", "7\0", "ä"] {
        assert_eq!(archive.get(name, 100).await, Err(ArchiveError::NotFound), "{name:?}");
        assert!(archive.put(name, Bytes::from_static(b"x")).await.is_err(), "{name:?}");
        archive.delete(name).await.unwrap();
    }
    for refused in [
        archive.get("7/1-2-a", 100).await.map(drop),
        archive.put("7/1-2-b", Bytes::from_static(b"x")).await,
        archive.delete("7/1-2-a").await,
    ] {
        assert!(
            matches!(&refused, Err(ArchiveError::Unavailable(why)) if why.contains("symbolic link")),
            "{refused:?}"
        );
    }
    assert_eq!(std::fs::read_to_string(dir.path().join("secret")).unwrap(), "secret");
    assert_eq!(std::fs::read_dir(dir.path().join("outside")).unwrap().count(), 1);
    assert_eq!(names(&archive).await, [""; 0], "a link is no object");
}

/// Folders of threads come and go while others are written.
#[tokio::test(flavor = "multi_thread")]
async fn puts_and_deletes_of_a_thread_do_not_disturb_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let archive = std::sync::Arc::new(open(dir.path()));
    let writers = (0..4).map(|writer| {
        let archive = std::sync::Arc::clone(&archive);
        tokio::spawn(async move {
            for n in 0..100 {
                let name = format!("1/{n}-{writer}-a");
                archive.put(&name, Bytes::from_static(b"x")).await.unwrap();
                archive.delete(&name).await.unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    assert_eq!(names(&archive).await, [""; 0]);
}
