//! Blobs: content-addressed bytes of threads, under `/v1/blobs/{sha-256}`.
//!
//! Each user stores the same bytes once. They are deleted with the last thread that refers to them.

use super::AttachmentStore;
use crate::rejection::Rejection;
use crate::secret_token::sha256_hex;
use bytes::Bytes;
use files::{FileKey, FileKeyError, FileStoreError, FileType, UploadError, content_disposition};
use model::blob;
use model::error::ErrorCode;
use model::ports::{AttachmentOutcome, AttachmentRow, StorageSpace, StoreError};
use model::{ThreadId, UserId};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use uuid::Uuid;

/// How long the deletion of a thread waits for its files to be deleted.
const DELETE_WAIT_MAX: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub struct NewBlob {
    pub name: String,
    /// Media type according to the sender.
    pub declared_type: Option<String>,
    pub bytes: Bytes,
    pub origin: BlobOrigin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlobOrigin {
    /// A request that may create its thread: the thread need not exist yet.
    NewThreadUpload,
    /// A request to an existing thread.
    ThreadUpload,
    /// A run in an existing thread. Not subject to the user's quota.
    RunOutput,
}

#[derive(Debug, thiserror::Error)]
pub enum BlobError {
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
    /// Stores bytes for a thread and returns their URL. Runs to completion even if the caller is dropped.
    pub async fn store_blob(
        self: &Arc<Self>,
        owner: &UserId,
        thread: &ThreadId,
        blob: NewBlob,
    ) -> Result<String, BlobError> {
        let (files, owner, thread) = (Arc::clone(self), owner.clone(), thread.clone());
        let kept = tokio::spawn(async move { files.find_or_store_blob(&owner, &thread, blob).await });
        kept.await.unwrap_or(Err(BlobError::Aborted))
    }

    /// Waits for room if this error is a full disk, and returns whether to try again: the output of a run came and must not
    /// get lost, and the run cannot record anything before that either.
    pub(super) async fn waits_for_room(&self, error: BlobError) -> bool {
        match error {
            BlobError::Store(StoreError::NoSpace) => {}
            // Without the alarm, the file alone is too large for the free space: waiting would not help.
            BlobError::Upload(UploadError::Store(FileStoreError::NoSpace))
                if self.space.space() == StorageSpace::Full => {}
            _ => return false,
        }
        self.space.space_changed(StorageSpace::Full).await;
        true
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

    /// Work on a thread continues for a moment after its deletion, and may store files for a thread that no longer exists.
    /// Checking afterwards closes the gap: either the deletion came first and this call releases the files, or the deletion
    /// itself releases them. (Files stored before a run starts cannot be checked this way, because their thread need not
    /// exist yet; they are released when the store is opened.)
    pub async fn release_deleted_thread(&self, owner: &UserId, thread: &ThreadId) -> Result<(), StoreError> {
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
        if !matches!(kept, Ok(AttachmentOutcome::Stored)) {
            self.delete_partial(&key).await;
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
        let row = AttachmentRow { hash: Some(hash), ..self.new_row(key, blob.name, kind.content_type, bytes) };
        let bytes_max = self.settings.user_bytes_max.filter(|_| blob.origin != BlobOrigin::RunOutput);
        Ok(self.directory.writer(key.owner())?.commit_blob(key.owner(), thread, row, bytes_max).await?)
    }

    pub async fn read_bytes(&self, row: &AttachmentRow) -> Result<Bytes, FileStoreError> {
        let key = FileKey::parse_stored(&row.path).map_err(|_| FileStoreError::NotFound)?;
        self.file_store.read_all(&key, row.size_bytes).await
    }

    /// Deletes files that no thread refers to any more. The next start retries what fails.
    pub async fn delete_released(&self) -> Result<(), StoreError> {
        let released = self.directory.unreferenced_attachments().await?;
        self.delete_all(released).await;
        Ok(())
    }

    /// Like [`Self::delete_released`], but waits at most [`DELETE_WAIT_MAX`] and never fails: the thread is already
    /// deleted.
    pub async fn delete_released_soon(self: &Arc<Self>) {
        let files = Arc::clone(self);
        let clearing = tokio::spawn(async move {
            if let Err(error) = files.delete_released().await {
                tracing::warn!(%error, "released files were not deleted; this waits for the next start");
            }
        });
        let _in_time = timeout(DELETE_WAIT_MAX, clearing).await.is_ok();
    }
}

impl From<BlobError> for Rejection {
    fn from(error: BlobError) -> Self {
        match error {
            BlobError::QuotaExceeded { most, used } => {
                metrics::counter!("headwater_quota_rejections_total", "quota" => "files").increment(1);
                let rejection = Self::new(ErrorCode::QuotaExceeded, error.to_string());
                rejection.with_extension("bytes_max", most).with_extension("bytes_used", used)
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
    use crate::attachments::AttachmentSettings;
    use engine::SystemClock;
    use memory_store::MemoryStore;
    use model::blob::blob_hash;
    use std::path::Path;

    fn files(dir: &Path) -> Arc<AttachmentStore> {
        let directory = Arc::new(MemoryStore::default());
        let settings = AttachmentSettings::default();
        let signer = ::files::UrlSigner::from_key(&[7; 32]).unwrap();
        Arc::new(
            AttachmentStore::open(
                settings,
                dir,
                signer,
                directory,
                Arc::new(SystemClock),
                Arc::new(MemoryStore::new()),
            )
            .unwrap(),
        )
    }

    fn blob(text: &'static str, origin: BlobOrigin) -> NewBlob {
        NewBlob { name: "x".to_owned(), declared_type: None, bytes: Bytes::from_static(text.as_bytes()), origin }
    }

    #[tokio::test]
    async fn files_of_a_deleted_thread_are_released() {
        let dir = tempfile::tempdir().unwrap();
        let files = files(dir.path());
        let (owner, thread) = (UserId::from("ann"), ThreadId::from_uuid(Uuid::now_v7()));
        for origin in [BlobOrigin::RunOutput, BlobOrigin::ThreadUpload] {
            let address = files.store_blob(&owner, &thread, blob("made", origin)).await.unwrap();
            let made = files.directory.blob(&owner, None, blob_hash(&address).unwrap()).await.unwrap();
            assert_eq!((made, files.file_store.list().await.unwrap()), (None, Vec::new()), "{origin:?}");
        }

        // The thread of an upload may yet be created. A blob of two threads goes with the second.
        let address = files.store_blob(&owner, &thread, blob("sent", BlobOrigin::NewThreadUpload)).await.unwrap();
        let sent = async || files.directory.blob(&owner, None, blob_hash(&address).unwrap()).await.unwrap();
        assert!(sent().await.is_some());
        let other = ThreadId::from_uuid(Uuid::now_v7());
        files.store_blob(&owner, &other, blob("sent", BlobOrigin::RunOutput)).await.unwrap();
        assert!(sent().await.is_some(), "only the other thread did not exist");
        assert_eq!(files.file_store.list().await.unwrap().len(), 1);
        files.store_blob(&owner, &thread, blob("sent", BlobOrigin::RunOutput)).await.unwrap();
        assert_eq!((sent().await, files.file_store.list().await.unwrap()), (None, Vec::new()));
    }

    #[test]
    fn a_hash_is_lowercase_hex() {
        let hash = sha256_hex(b"");
        assert_eq!(hash, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert!(blob::is_sha256_hex(&hash));
    }
}
