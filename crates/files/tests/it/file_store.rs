//! A folder as file store.

use bytes::Bytes;
use files::{FileKey, FileStore, FileStoreError, FileType, ListedFile, ListedFileKind, StorageLocation, UploadError};
use futures_util::TryStreamExt as _;
use model::UserId;
use model_testing::{Rng, test_seeds};
use std::path::{Path, PathBuf};
use std::time::Duration;
use uuid::Uuid;

const MANY: u64 = 1 << 30;

fn depot(dir: &Path) -> FileStore {
    FileStore::open(&StorageLocation::Folder(dir.join("files")), &[]).unwrap()
}

fn key(user: &str) -> FileKey {
    FileKey::for_attachment(&UserId::from(user), Uuid::now_v7(), Some("txt")).unwrap()
}

async fn put(depot: &FileStore, key: &FileKey, pieces: &[Bytes]) -> Result<u64, UploadError> {
    let mut upload = depot.upload(key, FileType::sniff(b"x", None), "attachment", MANY).await?;
    for piece in pieces {
        upload.write(piece.clone()).await?;
    }
    upload.finish().await
}

async fn all(depot: &FileStore, key: &FileKey, range: Option<std::ops::Range<u64>>) -> Result<Vec<u8>, FileStoreError> {
    let reading = depot.read(key, range).await?;
    let pieces: Vec<Bytes> = reading.stream.try_collect().await?;
    Ok(pieces.concat())
}

async fn names(depot: &FileStore) -> Vec<String> {
    let all = depot.list().await.unwrap();
    all.into_iter().filter(|found| found.kind == ListedFileKind::File).map(|found| found.name).collect()
}

/// Every file below a folder.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

#[tokio::test]
async fn an_upload_round_trips_in_any_chunking() {
    let dir = tempfile::tempdir().unwrap();
    let depot = depot(dir.path());
    for seed in test_seeds() {
        let mut rng = Rng::new(seed);
        let size = [1, 255, 256 * 1024 - 1, 256 * 1024, 256 * 1024 + 1, 700_000][rng.below(6)];
        let bytes: Vec<u8> = (0..=250).cycle().take(size).collect();
        let mut pieces = Vec::new();
        let mut rest = Bytes::from(bytes.clone());
        while !rest.is_empty() {
            pieces.push(rest.split_to(rest.len().min(1 + rng.below(100_000))));
        }
        let key = key("u1");
        assert_eq!(put(&depot, &key, &pieces).await.unwrap(), size as u64, "seed {seed}");
        assert!(all(&depot, &key, None).await.unwrap() == bytes, "seed {seed}");
        let from = rng.below(size);
        let to = from + 1 + rng.below(size - from);
        let part = all(&depot, &key, Some(from as u64..to as u64)).await.unwrap();
        assert!(part == bytes[from..to], "seed {seed}: {from}..{to}");
        assert_eq!(depot.size(&key).await.unwrap(), size as u64);
    }
}

#[tokio::test]
async fn a_file_is_visible_only_when_complete_and_an_aborted_one_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let depot = depot(dir.path());
    let big = Bytes::from(vec![7; 1_000_000]);
    let kept = key("u1");
    let mut upload = depot.upload(&kept, FileType::sniff(b"x", None), "attachment", MANY).await.unwrap();
    upload.write(big.clone()).await.unwrap();
    assert!(matches!(depot.read(&kept, None).await, Err(FileStoreError::NotFound)));
    assert_eq!(names(&depot).await, Vec::<String>::new());
    upload.finish().await.unwrap();
    assert_eq!(names(&depot).await, [kept.as_str()]);

    let aborted = key("u1");
    let mut upload = depot.upload(&aborted, FileType::sniff(b"x", None), "attachment", MANY).await.unwrap();
    upload.write(big.clone()).await.unwrap();
    upload.abort().await;
    let too_large = key("u1");
    let mut upload = depot.upload(&too_large, FileType::sniff(b"x", None), "attachment", 1_000_001).await.unwrap();
    upload.write(big.clone()).await.unwrap();
    upload.write(Bytes::from_static(b"x")).await.unwrap();
    assert!(matches!(upload.write(Bytes::from_static(b"y")).await, Err(UploadError::TooLarge(1_000_001))));
    upload.abort().await;
    assert_eq!(files(dir.path()), [dir.path().join("files").canonicalize().unwrap().join(kept.as_str())]);
}

#[tokio::test]
async fn remains_of_a_killed_upload_are_removed_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let depot = depot(dir.path());
    let key = key("u1");
    let mut upload = depot.upload(&key, FileType::sniff(b"x", None), "attachment", MANY).await.unwrap();
    upload.write(Bytes::from(vec![7; 1_000_000])).await.unwrap();
    assert_eq!(files(dir.path()).len(), 1);
    // The state that a killed process leaves behind.
    std::mem::forget(upload);
    depot.delete(&key).await.unwrap();
    assert_eq!(files(dir.path()), Vec::<PathBuf>::new());
    depot.delete(&key).await.unwrap();
}

#[tokio::test]
async fn symbolic_links_are_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let depot = depot(dir.path());
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "secret").unwrap();
    let root = dir.path().join("files/agent-inputs");

    let key_of_link = key("u1");
    std::fs::create_dir_all(root.join("u1")).unwrap();
    std::os::unix::fs::symlink(&secret, dir.path().join("files").join(key_of_link.as_str())).unwrap();
    assert!(matches!(depot.read(&key_of_link, None).await, Err(FileStoreError::NotFound)));
    assert!(matches!(depot.size(&key_of_link).await, Err(FileStoreError::NotFound)));

    let (mine, outside) = (key("u2"), dir.path().join("outside"));
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join(mine.as_str().rsplit('/').next().unwrap()), "secret").unwrap();
    std::os::unix::fs::symlink(&outside, root.join("u2")).unwrap();
    assert!(matches!(depot.read(&mine, None).await, Err(FileStoreError::NotFound)));
    assert!(matches!(put(&depot, &key("u2"), &[Bytes::from_static(b"x")]).await, Err(UploadError::Store(_))));
    assert_eq!(files(&outside).len(), 1);
}

#[tokio::test]
async fn listing_a_folder_shows_complete_partial_and_foreign_files() {
    let dir = tempfile::tempdir().unwrap();
    let depot = depot(dir.path());
    assert_eq!(depot.list().await.unwrap(), []);
    let (whole, part, link) = (key("u1"), key("u1"), key("#2"));
    put(&depot, &whole, &[Bytes::from_static(b"12345")]).await.unwrap();
    let mut upload = depot.upload(&part, FileType::sniff(b"x", None), "attachment", MANY).await.unwrap();
    upload.write(Bytes::from(vec![7; 1_000_000])).await.unwrap();
    let place = dir.path().join("files").join(link.as_str());
    std::fs::create_dir_all(place.parent().unwrap()).unwrap();
    // A circular link is not followed either.
    std::os::unix::fs::symlink(dir.path(), &place).unwrap();
    let mut all = depot.list().await.unwrap();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    let found = |key: &FileKey, what| (key.as_str().to_owned(), what);
    let mut wanted = vec![
        found(&whole, ListedFileKind::File),
        found(&part, ListedFileKind::PartialUpload),
        found(&link, ListedFileKind::Other),
    ];
    wanted.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(all.iter().map(|found| (found.name.clone(), found.kind)).collect::<Vec<_>>(), wanted);
    assert!(all.contains(&ListedFile { name: whole.as_str().to_owned(), bytes: 5, kind: ListedFileKind::File }));
    upload.abort().await;
    assert_eq!(depot.list().await.unwrap().len(), 2);
}

#[tokio::test]
async fn users_with_odd_names_have_folders_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let depot = depot(dir.path());
    for user in ["u1", "u10", "u1/../u2", "..", "日本", "a%2Fb", "#1"] {
        let key = key(user);
        put(&depot, &key, &[Bytes::copy_from_slice(user.as_bytes())]).await.unwrap();
        assert!(names(&depot).await.contains(&key.as_str().to_owned()), "{user}");
        assert_eq!(all(&depot, &key, None).await.unwrap(), user.as_bytes());
    }
    let folders: Vec<_> = std::fs::read_dir(dir.path().join("files/agent-inputs")).unwrap().collect();
    assert_eq!(folders.len(), 7);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn a_folder_signs_no_urls_and_a_missing_file_is_not_found() {
    let dir = tempfile::tempdir().unwrap();
    let depot = depot(dir.path());
    assert_eq!(depot.bucket(), None);
    assert!(depot.presigned_url(&key("u1"), Duration::from_secs(1)).await.unwrap().is_none());
    assert!(matches!(depot.read(&key("u1"), None).await, Err(FileStoreError::NotFound)));
    assert!(matches!(depot.size(&key("u1")).await, Err(FileStoreError::NotFound)));
}
