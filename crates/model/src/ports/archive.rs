//! Where the records of ended runs are kept when they have left the database.

use super::BoxStream;
use async_trait::async_trait;
use bytes::Bytes;
use std::fmt;

/// Object storage for compressed records.
///
/// 1. When [`RecordArchive::put`] returns, the object survives a power cut. A put that failed or was dropped may have stored
///    it all the same.
/// 2. A name is used for one object and never again, so an object does not change.
/// 3. An object that was deleted is not listed and not found any more.
#[warn(missing_docs)]
#[async_trait]
pub trait RecordArchive: fmt::Debug + Send + Sync {
    /// Stores an object.
    async fn put(&self, name: &str, object: Bytes) -> Result<(), ArchiveError>;

    /// Reads an object. A larger one than `bytes_max` is [`ArchiveError::TooLarge`] and is not read.
    async fn get(&self, name: &str, bytes_max: usize) -> Result<Bytes, ArchiveError>;

    /// Deletes an object and what a put left of it that was interrupted. A missing object is deleted.
    async fn delete(&self, name: &str) -> Result<(), ArchiveError>;

    /// The names of all objects, in any order; also of those whose put was interrupted.
    fn list(&self) -> BoxStream<'_, Result<String, ArchiveError>>;
}

/// Why an operation of an archive failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveError {
    /// There is no object with this name.
    #[error("the object does not exist")]
    NotFound,
    /// The object is larger than it can be.
    #[error("the object is larger than expected")]
    TooLarge,
    /// The storage does not answer, has no room, or answers with an error.
    #[error("{0}")]
    Unavailable(String),
}
