//! Errors of the file store.

use std::error::Error;
use std::io;

#[derive(Debug, thiserror::Error)]
pub enum FileStoreOpenError {
    /// The folder cannot be created or used.
    #[error("the folder cannot be used: {0}")]
    Folder(io::Error),
    /// The settings of the bucket are inconsistent.
    #[error("the bucket cannot be used: {0}")]
    Bucket(object_store::Error),
}

#[derive(Debug, thiserror::Error)]
pub enum FileStoreError {
    #[error("there is no such file")]
    NotFound,
    #[error("the disk is full")]
    NoSpace,
    /// The storage does not answer, or answers with an error.
    #[error("{0}")]
    Unavailable(String),
}

impl From<object_store::Error> for FileStoreError {
    fn from(error: object_store::Error) -> Self {
        match error {
            object_store::Error::NotFound { .. } => Self::NotFound,
            other if is_disk_full(&other) => Self::NoSpace,
            other => Self::Unavailable(other.to_string()),
        }
    }
}

/// Whether a folder's file system had no room.
fn is_disk_full(error: &object_store::Error) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::StorageFull) {
            return true;
        }
        cause = error.source();
    }
    false
}

#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    #[error("the file is larger than {0} bytes")]
    TooLarge(u64),
    #[error(transparent)]
    Store(#[from] FileStoreError),
}

impl From<object_store::Error> for UploadError {
    fn from(error: object_store::Error) -> Self {
        // On a write, only the location itself can be missing.
        Self::Store(match FileStoreError::from(error) {
            FileStoreError::NotFound => FileStoreError::Unavailable("the location is missing".to_owned()),
            error => error,
        })
    }
}
