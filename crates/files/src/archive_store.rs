//! The archive of a database: compressed records in a folder or a bucket.

use crate::error::{FileStoreError, FileStoreOpenError};
use crate::file_store::{Backend, FileStore};
use crate::list_folder::ListedFileKind;
use crate::storage_location::{StorageLocation, is_path_segment};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use model::ports::{ArchiveError, BoxStream, RecordArchive};
use object_store::{GetOptions, ObjectStore as _, ObjectStoreExt as _};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;

/// A location that holds an archive and nothing else.
#[derive(Debug)]
pub struct ArchiveStore(FileStore);

impl ArchiveStore {
    /// Opens a location like [`FileStore::open`].
    ///
    /// # Errors
    /// When the folder cannot be created, or the settings of the bucket are inconsistent.
    pub fn open(location: &StorageLocation, variables: &[(String, String)]) -> Result<Self, FileStoreOpenError> {
        FileStore::open(location, variables).map(Self)
    }

    /// A name comes from a database, which somebody may have changed: it must not lead out of the location.
    async fn check_name(&self, name: &str) -> Result<(), ArchiveError> {
        if !name.split('/').all(is_path_segment) {
            return Err(ArchiveError::NotFound);
        }
        if !self.0.has_no_symlink(name).await? {
            return Err(ArchiveError::Unavailable(format!("the path of {name} contains a symbolic link")));
        }
        Ok(())
    }
}

/// How often a put to a folder is tried.
const FOLDER_ATTEMPTS_MAX: u32 = 16;

#[async_trait]
impl RecordArchive for ArchiveStore {
    async fn put(&self, name: &str, object: Bytes) -> Result<(), ArchiveError> {
        self.check_name(name).await?;
        let mut attempt = 1;
        loop {
            let stored = self.0.objects.put(&self.0.location(name), object.clone().into()).await;
            match stored.map_err(FileStoreError::from) {
                Ok(_) => return Ok(()),
                // A deletion may have removed the folder of the thread between its creation and its first file.
                Err(_) if attempt < FOLDER_ATTEMPTS_MAX && matches!(self.0.backend, Backend::Folder(_)) => attempt += 1,
                Err(FileStoreError::NotFound) => {
                    return Err(ArchiveError::Unavailable("the location is missing".to_owned()));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn get(&self, name: &str, bytes_max: usize) -> Result<Bytes, ArchiveError> {
        self.check_name(name).await?;
        let found = self.0.objects.get_opts(&self.0.location(name), GetOptions::default()).await;
        let mut stream = found.map_err(FileStoreError::from)?.into_stream();
        let mut object = BytesMut::new();
        while let Some(chunk) = stream.try_next().await.map_err(FileStoreError::from)? {
            if object.len() + chunk.len() > bytes_max {
                return Err(ArchiveError::TooLarge);
            }
            object.extend_from_slice(&chunk);
        }
        Ok(object.freeze())
    }

    async fn delete(&self, name: &str) -> Result<(), ArchiveError> {
        match self.check_name(name).await {
            Err(ArchiveError::NotFound) => return Ok(()),
            checked => checked?,
        }
        if let Backend::Folder(folder) = &self.0.backend {
            let path = folder.join(name);
            let removing = tokio::task::spawn_blocking(move || remove_durably(&path)).await;
            return removing
                .unwrap_or_else(|error| Err(io::Error::other(error)))
                .map_err(|error| ArchiveError::Unavailable(error.to_string()));
        }
        match self.0.objects.delete(&self.0.location(name)).await.map_err(FileStoreError::from) {
            Ok(()) | Err(FileStoreError::NotFound) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn list(&self) -> BoxStream<'_, Result<String, ArchiveError>> {
        if let Backend::Bucket { .. } = &self.0.backend {
            return self.0.list_bucket().map_ok(|file| file.name).map_err(ArchiveError::from).boxed();
        }
        let names = async {
            let files = self.0.list().await?.into_iter().filter(|file| file.kind != ListedFileKind::Other);
            Ok::<_, ArchiveError>(stream::iter(files.map(|file| Ok(file.name))))
        };
        stream::once(names).try_flatten().boxed()
    }
}

/// Removes a file, what an interrupted put left of it, and its folder if nothing else is in it. Durable, because nothing would
/// delete the file again if it came back. Blocking.
fn remove_durably(path: &Path) -> io::Result<()> {
    // `object_store` writes here first. Names are unique, so the number is always 1.
    let mut partial = path.as_os_str().to_owned();
    partial.push("#1");
    for path in [Path::new(&partial), path] {
        match std::fs::remove_file(path) {
            Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Err(error),
            _ => {}
        }
    }
    let Some(folder) = path.parent() else { return Ok(()) };
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Err(error),
        _ => {}
    }
    // It may have other files, or get one right now.
    let _kept = std::fs::remove_dir(folder);
    Ok(())
}

impl From<FileStoreError> for ArchiveError {
    fn from(error: FileStoreError) -> Self {
        match error {
            FileStoreError::NotFound => Self::NotFound,
            error @ (FileStoreError::NoSpace | FileStoreError::Unavailable(_)) => Self::Unavailable(error.to_string()),
        }
    }
}
