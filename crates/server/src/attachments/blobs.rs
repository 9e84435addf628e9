//! Blobs: bytes that threads hold, under the address `/v1/blobs/{sha-256}`.
//!
//! Whoever keeps the same bytes twice has them once; whoever deletes the last thread that uses them has them no more.

use super::AttachmentStore;
use crate::hex::encode_hex;
use crate::problem::Problem;
use bytes::Bytes;
use engine::SystemClock;
use files::{FileKey, FileKeyError, FileStoreError, FileType, UploadError, content_disposition};
use model::blob;
use model::error::ErrorCode;
use model::ports::{AttachmentOutcome, AttachmentRow, Clock as _, StoreError};
use model::{ThreadId, UserId};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use uuid::Uuid;

/// Whoever deletes something waits so long for its bytes to be gone.
const DELETE_WAIT_MAX: Duration = Duration::from_secs(5);

/// Bytes that a thread is to hold.
#[derive(Clone, Debug)]
pub(crate) struct NewBlob {
    /// What people call it.
    pub(crate) name: String,
    /// What its sender says it is.
    pub(crate) declared_type: Option<String>,
    pub(crate) bytes: Bytes,
    pub(crate) origin: BlobOrigin,
}

/// Where bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlobOrigin {
    /// A request brings them that may begin a thread: it need not be there yet.
    NewThreadUpload,
    /// They are brought into a thread that was there.
    ThreadUpload,
    /// A run makes them, in a thread that was there. They are kept in any case, and the others only as far as their owner
    /// may have more.
    RunOutput,
}

/// Why a blob was not kept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BlobError {
    #[error("your files may hold {most} bytes together, and hold {used} already: delete threads to make room")]
    QuotaExceeded { most: u64, used: u64 },
    #[error(transparent)]
    Key(#[from] FileKeyError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Upload(#[from] UploadError),
    #[error("the work was broken off")]
    Aborted,
}

impl AttachmentStore {
    /// Keeps bytes for a thread and says under which address they are. Goes to its end, whoever stops waiting.
    pub(crate) async fn store_blob(
        self: &Arc<Self>,
        owner: &UserId,
        thread: &ThreadId,
        blob: NewBlob,
    ) -> Result<String, BlobError> {
        let (files, owner, thread) = (Arc::clone(self), owner.clone(), thread.clone());
        let kept = tokio::spawn(async move { files.find_or_store_blob(&owner, &thread, blob).await });
        kept.await.unwrap_or(Err(BlobError::Aborted))
    }

    async fn find_or_store_blob(&self, owner: &UserId, thread: &ThreadId, blob: NewBlob) -> Result<String, BlobError> {
        let (hash, origin) = (sha256_hex(&blob.bytes), blob.origin);
        let address = blob::blob_url(&hash);
        if self.directory.writer(owner)?.link_blob(owner, thread, &hash).await?.is_none() {
            self.store_new_blob(owner, thread, hash, blob).await?;
        }
        if origin != BlobOrigin::NewThreadUpload {
            self.release_deleted_thread(owner, thread).await?;
        }
        Ok(address)
    }

    /// Things go on for a moment when a thread is deleted, and what they keep then is used by a thread that is not there
    /// any more. Whoever looks afterwards sees that: either the deletion came first, or it takes this along. (Of what comes
    /// before a run it cannot be said, because its thread need not be there yet; that goes when the store is opened.)
    pub(crate) async fn release_deleted_thread(&self, owner: &UserId, thread: &ThreadId) -> Result<(), StoreError> {
        if self.directory.thread(owner, thread).await?.is_some() {
            return Ok(());
        }
        self.directory.writer(owner)?.delete_thread(owner, thread).await?;
        self.delete_released().await
    }

    async fn store_new_blob(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        hash: String,
        blob: NewBlob,
    ) -> Result<(), BlobError> {
        let key = FileKey::for_blob(owner, &hash, Uuid::now_v7())?;
        self.register_upload(&key).await?;
        let kept = self.upload_blob(&key, thread, hash, blob).await;
        if !matches!(kept, Ok(AttachmentOutcome::Stored))
            && let Err(error) = self.delete(owner, &key).await
        {
            tracing::warn!(path = key.as_str(), %error, "what is left of a blob waits for the next start");
        }
        match kept? {
            AttachmentOutcome::Stored | AttachmentOutcome::Duplicate(_) => Ok(()),
            AttachmentOutcome::QuotaExceeded { used } => {
                Err(BlobError::QuotaExceeded { most: self.settings.user_bytes_max.unwrap_or_default(), used })
            }
        }
    }

    async fn upload_blob(
        &self,
        key: &FileKey,
        thread: &ThreadId,
        hash: String,
        blob: NewBlob,
    ) -> Result<AttachmentOutcome, BlobError> {
        let kind = FileType::sniff(&blob.bytes, blob.declared_type.as_deref());
        let disposition = content_disposition(&blob.name, kind.content_type);
        let uploading = self.file_store.upload(key, kind, &disposition, u64::MAX).await;
        let mut upload = uploading.map_err(UploadError::from)?;
        if let Err(error) = upload.write(blob.bytes).await {
            upload.abort().await;
            return Err(error.into());
        }
        let bytes = upload.finish().await?;
        let row = AttachmentRow {
            path: key.as_str().to_owned(),
            name: blob.name,
            content_type: kind.content_type.to_owned(),
            size_bytes: bytes,
            created_at: SystemClock.now(),
            hash: Some(hash),
        };
        let bytes_max = self.settings.user_bytes_max.filter(|_| blob.origin != BlobOrigin::RunOutput);
        Ok(self.directory.writer(key.owner())?.commit_blob(key.owner(), thread, row, bytes_max).await?)
    }

    /// The bytes that a row tells of.
    pub(crate) async fn read_bytes(&self, row: &AttachmentRow) -> Result<Bytes, FileStoreError> {
        let key = FileKey::parse_stored(&row.path).map_err(|_| FileStoreError::NotFound)?;
        self.file_store.read_all(&key, row.size_bytes).await
    }

    /// Removes the bytes that no thread uses any more. What cannot be removed now waits for the next start.
    pub(crate) async fn delete_released(&self) -> Result<(), StoreError> {
        let released = self.directory.unreferenced_attachments().await?;
        self.delete_all(released).await;
        Ok(())
    }

    /// The same, for somebody who has deleted something. That is done, whatever becomes of the bytes; after a while they are
    /// not waited for.
    pub(crate) async fn delete_released_soon(self: &Arc<Self>) {
        let files = Arc::clone(self);
        let clearing = tokio::spawn(async move {
            if let Err(error) = files.delete_released().await {
                tracing::warn!(%error, "what no thread uses any more waits for the next start");
            }
        });
        let _in_time = timeout(DELETE_WAIT_MAX, clearing).await.is_ok();
    }
}

pub(super) fn sha256_hex(bytes: &[u8]) -> String {
    encode_hex(&Sha256::digest(bytes))
}

impl From<BlobError> for Problem {
    fn from(error: BlobError) -> Self {
        match error {
            BlobError::QuotaExceeded { most, used } => {
                let problem = Self::new(ErrorCode::QuotaExceeded, error.to_string());
                problem.with_extension("bytes_max", most).with_extension("bytes_used", used)
            }
            BlobError::Key(error) => error.into(),
            BlobError::Store(error) => error.into(),
            BlobError::Upload(UploadError::Store(error)) => error.into(),
            BlobError::Upload(UploadError::TooLarge(_)) | BlobError::Aborted => Self::internal(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Overrides};
    use model::blob::blob_hash;
    use std::path::Path;
    use store::MemoryStore;

    fn files(dir: &Path) -> Arc<AttachmentStore> {
        let config = config::load_config(None, Overrides::default()).unwrap().files;
        Arc::new(AttachmentStore::open(config, dir, Arc::new(MemoryStore::default())).unwrap())
    }

    fn blob(text: &'static str, origin: BlobOrigin) -> NewBlob {
        NewBlob { name: "x".to_owned(), declared_type: None, bytes: Bytes::from_static(text.as_bytes()), origin }
    }

    #[tokio::test]
    async fn what_is_kept_for_a_thread_that_is_gone_is_gone_too() {
        let dir = tempfile::tempdir().unwrap();
        let files = files(dir.path());
        let (owner, thread) = (UserId::from("ann"), ThreadId::from_uuid(Uuid::now_v7()));
        for origin in [BlobOrigin::RunOutput, BlobOrigin::ThreadUpload] {
            let address = files.store_blob(&owner, &thread, blob("made", origin)).await.unwrap();
            let made = files.directory.blob(&owner, None, blob_hash(&address).unwrap()).await.unwrap();
            assert_eq!((made, files.file_store.list().await.unwrap()), (None, Vec::new()), "{origin:?}");
        }

        // The thread of what was sent may yet come. What is used twice goes with the second.
        let address = files.store_blob(&owner, &thread, blob("sent", BlobOrigin::NewThreadUpload)).await.unwrap();
        let sent = async || files.directory.blob(&owner, None, blob_hash(&address).unwrap()).await.unwrap();
        assert!(sent().await.is_some());
        let other = ThreadId::from_uuid(Uuid::now_v7());
        files.store_blob(&owner, &other, blob("sent", BlobOrigin::RunOutput)).await.unwrap();
        assert!(sent().await.is_some(), "the other thread alone was not there");
        assert_eq!(files.file_store.list().await.unwrap().len(), 1);
        files.store_blob(&owner, &thread, blob("sent", BlobOrigin::RunOutput)).await.unwrap();
        assert_eq!((sent().await, files.file_store.list().await.unwrap()), (None, Vec::new()));
    }

    #[test]
    fn a_hash_is_written_as_addresses_have_it() {
        let hash = sha256_hex(b"");
        assert_eq!(hash, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert!(blob::is_sha256_hex(&hash));
    }
}
