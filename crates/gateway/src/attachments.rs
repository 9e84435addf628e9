//! Files that users upload and threads refer to: where they are stored, who may read them, and what is deleted when an
//! upload fails or nothing refers to a file any more.
//!
//! `blobs` stores bytes for threads; `data_url` parses `data:` URLs. Files come in through four modules: `uploads`
//! (inside a request), `receive` (a request of their own), `store_outputs` (from tools, hooks and models) and
//! `crate::documents` (from the web). They go out through three: `resolve_for_model` to models, `inline_images` to
//! clients that want images inside their frames, and `signed_blobs` to those that fetch them without a key.
//!
//! The rows of `model::ports::Attachments` say which files count; [`files::FileStore`] has the bytes. An upload registers
//! its row first ([`AttachmentStore::register_upload`]) and commits it last, so that the next start finds and deletes what
//! a crash in between leaves behind.

mod blobs;
mod data_url;
pub mod inline_images;
mod receive;
mod resolve_for_model;
mod settings;
mod signed_blobs;
mod signed_url;
mod store_outputs;
pub mod uploads;

use crate::rejection::Rejection;
pub(crate) use blobs::{BlobError, BlobOrigin, NewBlob};
pub(crate) use data_url::format_data_url;
use files::{FileKey, FileStore, FileStoreError, FileStoreOpenError, UrlSigner};
use futures_util::stream::{self, StreamExt as _};
use heavy_work::{UserPermit, UserSemaphore};
use model::UserId;
use model::error::ErrorCode;
use model::ports::{AttachmentRow, Clock, Directory, SpaceWatch, StoreError};
pub use receive::{IncomingFile, file_too_large};
pub(crate) use resolve_for_model::FileResolvingModels;
pub use settings::AttachmentSettings;
pub use signed_blobs::{BlobUrlSigner, BlobUrls, SignedBlobUrl};
pub use signed_url::{RAW_ATTACHMENT_PATH, SIGNED_URL_SECONDS_MAX, SignedUrl};
use std::path::Path;
use std::sync::Arc;
pub(crate) use store_outputs::{OutputStoringHooks, OutputStoringTools};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The bucket name that clients see when files are in a folder.
const DEFAULT_BUCKET: &str = "headwater";
/// The folder of files inside the data folder.
pub const FILES_DIR: &str = "files";
/// Several nodes have to store files where all of them find them.
const FOREIGN_FOLDER: &str =
    "this node has no storage for files that the other nodes share: set [files] url to a bucket or a shared folder";
/// Concurrent uploads; each holds up to two parts in memory.
const UPLOADS_MAX: usize = 128;
/// Concurrent uploads of one user.
const USER_UPLOADS_MAX: usize = 96;
const CONCURRENT_DELETES_MAX: usize = 16;
/// After this many failures the file store counts as unreachable.
const DELETE_FAILURES_MAX: u32 = 3;

pub struct AttachmentStore {
    pub file_store: FileStore,
    pub(crate) url_signer: UrlSigner,
    pub bucket: String,
    pub settings: AttachmentSettings,
    /// The whole store, not the one scoped to shares: a viewer of a share owns no files.
    pub(crate) directory: Arc<dyn Directory>,
    pub(crate) clock: Arc<dyn Clock>,
    space: Arc<dyn SpaceWatch>,
    upload_permits: UserSemaphore,
    /// Memory for files in requests to models, in kibibytes.
    model_bytes: Arc<Semaphore>,
}

#[derive(Debug, thiserror::Error)]
pub enum AttachmentStoreOpenError {
    #[error("files: {0}")]
    FileStore(#[from] FileStoreOpenError),
}

impl AttachmentStore {
    /// Opens the file store. Blocks.
    pub fn open(
        settings: AttachmentSettings,
        data_dir: &Path,
        url_signer: UrlSigner,
        directory: Arc<dyn Directory>,
        clock: Arc<dyn Clock>,
        space: Arc<dyn SpaceWatch>,
    ) -> Result<Self, AttachmentStoreOpenError> {
        let location = settings.location.clone().unwrap_or_else(|| default_location(data_dir));
        let file_store = FileStore::open(&location, &settings.env_vars)?;
        let bucket = settings.bucket.clone().or_else(|| file_store.bucket().map(str::to_owned));
        let bucket = bucket.unwrap_or_else(|| DEFAULT_BUCKET.to_owned());
        Ok(Self {
            file_store,
            url_signer,
            bucket,
            directory,
            clock,
            space,
            upload_permits: UserSemaphore::new(UPLOADS_MAX, USER_UPLOADS_MAX),
            model_bytes: Arc::new(Semaphore::new(to_kibibytes(settings.models_bytes_max) as usize)),
            settings,
        })
    }

    /// Deletes leftovers of the previous process's unfinished uploads. If the file store is unreachable, the next start
    /// retries.
    pub async fn delete_unfinished(&self) -> Result<(), StoreError> {
        let unfinished = self.directory.stale_attachments().await?;
        self.delete_all(unfinished).await;
        Ok(())
    }

    async fn delete_all(&self, files: Vec<(UserId, String)>) {
        let delete = async |(owner, path): (UserId, String)| {
            let Ok(key) = FileKey::parse_stored(&path) else {
                tracing::error!(path, "a stored path is malformed");
                return true;
            };
            let deleted = self.delete(&owner, &key).await;
            if let Err(error) = &deleted {
                tracing::warn!(path, %error, "a file was not deleted; this waits for the next start");
            }
            deleted.is_ok()
        };
        let mut deletions = stream::iter(files).map(delete).buffer_unordered(CONCURRENT_DELETES_MAX);
        let mut failures = 0;
        while let Some(is_deleted) = deletions.next().await {
            failures += u32::from(!is_deleted);
            if failures == DELETE_FAILURES_MAX {
                break;
            }
        }
    }

    /// Waits for memory to send `bytes` to a model. A request beyond the limit waits until it is the only one.
    async fn acquire_model_bytes(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        let wanted = to_kibibytes(bytes.min(self.settings.models_bytes_max));
        Arc::clone(&self.model_bytes).acquire_many_owned(wanted).await.ok()
    }

    pub fn acquire_upload_permit(&self, user: &UserId) -> Result<UserPermit, Rejection> {
        if self.settings.is_foreign_folder {
            return Err(Rejection::new(ErrorCode::FilesUnavailable, FOREIGN_FOLDER));
        }
        self.upload_permits.try_acquire(user).ok_or_else(|| {
            let detail =
                format!("{UPLOADS_MAX} files are coming in already, or {USER_UPLOADS_MAX} of yours: try again");
            Rejection::new(ErrorCode::TooManyUploads, detail)
        })
    }

    /// Records that bytes may appear under this key.
    async fn register_upload(&self, key: &FileKey) -> Result<(), StoreError> {
        if self.settings.is_foreign_folder {
            return Err(StoreError::Unavailable(FOREIGN_FOLDER.to_owned()));
        }
        self.directory.writer(key.owner())?.reserve_attachment(key.owner(), key.as_str(), self.clock.now()).await
    }

    /// The row of a file whose bytes are durable.
    fn new_row(&self, key: &FileKey, name: String, content_type: &str, size_bytes: u64) -> AttachmentRow {
        let (path, content_type) = (key.as_str().to_owned(), content_type.to_owned());
        AttachmentRow { path, name, content_type, size_bytes, created_at: self.clock.now(), hash: None }
    }

    /// Deletes what a failed upload has left.
    async fn delete_partial(&self, key: &FileKey) {
        if let Err(error) = self.delete(key.owner(), key).await {
            tracing::warn!(path = key.as_str(), %error, "a partial upload was not deleted; this waits for the next start");
        }
    }

    /// Deletes the bytes first, then the row: bytes without a row would never be found.
    async fn delete(&self, owner: &UserId, key: &FileKey) -> Result<(), FileStoreError> {
        self.file_store.delete(key).await?;
        let unavailable = |error: StoreError| FileStoreError::Unavailable(error.to_string());
        let writer = self.directory.writer(owner).map_err(unavailable)?;
        writer.delete_attachment(owner, key.as_str()).await.map(drop).map_err(unavailable)
    }

    /// Finds the file that a client names.
    pub async fn find_by_path(&self, bucket: &str, path: &str) -> Result<(FileKey, AttachmentRow), Rejection> {
        let key = self.parse_key(bucket, path)?;
        let row = self.directory.attachment(key.owner(), key.as_str()).await?;
        row.map(|row| (key, row)).ok_or_else(Rejection::not_found)
    }

    /// Parses the key that a client names, whether or not the file exists.
    pub fn parse_key(&self, bucket: &str, path: &str) -> Result<FileKey, Rejection> {
        if bucket != self.bucket {
            let detail = "there is no such bucket: use the one that was given when the file was sent";
            return Err(Rejection::new(ErrorCode::BucketNotFound, detail));
        }
        Ok(FileKey::parse(path)?)
    }
}

pub fn default_location(data_dir: &Path) -> files::StorageLocation {
    files::StorageLocation::Folder(data_dir.join(FILES_DIR))
}

fn to_kibibytes(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX)
}
