//! Errors of the file store.

#[derive(Debug, thiserror::Error)]
pub enum FileStoreOpenError {
    /// The folder cannot be created or used.
    #[error("the folder cannot be used: {0}")]
    Folder(std::io::Error),
    /// The settings of the bucket are inconsistent.
    #[error("the bucket cannot be used: {0}")]
    Bucket(object_store::Error),
}

#[derive(Debug, thiserror::Error)]
pub enum FileStoreError {
    #[error("there is no such file")]
    NotFound,
    /// The storage does not answer, or answers with an error.
    #[error("{0}")]
    Unavailable(String),
}

impl From<object_store::Error> for FileStoreError {
    fn from(error: object_store::Error) -> Self {
        match error {
            object_store::Error::NotFound { .. } => Self::NotFound,
            other => Self::Unavailable(other.to_string()),
        }
    }
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
        Self::Store(FileStoreError::Unavailable(error.to_string()))
    }
}
