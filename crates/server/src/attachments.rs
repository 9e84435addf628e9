//! The files that users send and threads hold: where they are, who may read them, and what is cleared away when it was
//! broken off or nobody uses it any more.
//!
//! `blobs` keeps bytes for threads, and `data` is how these stand in an address. Bytes come in through three doors: `intake`
//! for what clients send, `shown` for what tools, hooks and models give, `crate::documents` for what is read on the web.
//! They go out through three more: `given` to models, `inline` to clients that want pictures in their frames, `answer` to
//! whoever asks for a file.
//!
//! The rows of `model::ports::Attachments` say which bytes count; [`files::Depot`] has the bytes. Whoever takes a file in
//! says first that it comes ([`Files::expect`]) and last that it is there, so that a crash in between leaves nothing that
//! the next start does not find.

mod blobs;
pub(crate) mod data_url;
mod file_response;
pub(crate) mod inline_images;
mod resolve_for_model;
mod signed_url;
mod store_outputs;
pub(crate) mod uploads;

use crate::config::FilesConfig;
use crate::problem::Problem;
use crate::user_semaphore::{UserPermit, UserSemaphore};
pub(crate) use blobs::{BlobError, BlobOrigin, NewBlob};
use engine::SystemClock;
pub(crate) use file_response::CachePolicy;
use files::{
    FileKey, FileKeyError, FileStore, FileStoreError, FileStoreOpenError, ImageTooLarge, UrlSigner, UrlSignerError,
};
use futures_util::stream::{self, StreamExt as _};
pub(crate) use inline_images::{ImageInliner, InlineImageError, ThreadImages};
use model::UserId;
use model::error::ErrorCode;
use model::ports::{AttachmentRow, Clock as _, Directory, StoreError};
pub(crate) use resolve_for_model::FileResolvingModels;
pub(crate) use signed_url::{RAW_ATTACHMENT_PATH, SIGNED_URL_SECONDS_MAX, SignedUrl};
use std::path::{Path, PathBuf};
use std::sync::Arc;
pub(crate) use store_outputs::{OutputStoringHooks, OutputStoringTools};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What clients are told that a folder is called.
const DEFAULT_BUCKET: &str = "headwater";
/// The folder of files in a data folder.
pub(crate) const FILES_DIR: &str = "files";
const SIGNING_KEY_FILE: &str = "files.key";
/// So many files come in at once; each holds up to two parts in memory.
const UPLOADS_MAX: usize = 128;
/// So many of them are of one user.
const USER_UPLOADS_MAX: usize = 96;
/// So many files are removed at a time.
const CONCURRENT_DELETES_MAX: usize = 16;
/// When so many files could not be removed, none can.
const DELETE_FAILURES_MAX: u32 = 3;

/// Everything about files.
pub(crate) struct AttachmentStore {
    pub(crate) file_store: FileStore,
    pub(crate) url_signer: UrlSigner,
    pub(crate) bucket: String,
    pub(crate) settings: FilesConfig,
    pub(crate) directory: Arc<dyn Directory>,
    upload_permits: UserSemaphore,
    /// Room for what models are being given, in kibibytes.
    model_bytes: Arc<Semaphore>,
}

/// Why there is no place for files.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttachmentStoreOpenError {
    #[error("files: {0}")]
    FileStore(#[from] FileStoreOpenError),
    #[error("{}: {why}", path.display())]
    SigningKey { path: PathBuf, why: UrlSignerError },
}

impl AttachmentStore {
    /// Opens the place. Blocks.
    pub(crate) fn open(
        config: FilesConfig,
        data_dir: &Path,
        directory: Arc<dyn Directory>,
    ) -> Result<Self, AttachmentStoreOpenError> {
        let place = config.location.clone().unwrap_or_else(|| default_location(data_dir));
        let depot = FileStore::open(&place, &config.env_vars)?;
        let path = data_dir.join(SIGNING_KEY_FILE);
        let seal =
            UrlSigner::load_or_create(&path).map_err(|why| AttachmentStoreOpenError::SigningKey { path, why })?;
        let bucket = config.bucket.clone().or_else(|| depot.bucket().map(str::to_owned));
        let bucket = bucket.unwrap_or_else(|| DEFAULT_BUCKET.to_owned());
        let uploads = UserSemaphore::new(UPLOADS_MAX, USER_UPLOADS_MAX);
        let giving = Arc::new(Semaphore::new(to_kibibytes(config.models_bytes_max) as usize));
        Ok(Self {
            file_store: depot,
            url_signer: seal,
            bucket,
            settings: config,
            directory,
            upload_permits: uploads,
            model_bytes: giving,
        })
    }

    /// Removes what was broken off when the server last ran. A place that cannot be reached now is asked again at the next
    /// start: nobody waits for it.
    pub(crate) async fn delete_unfinished(&self) -> Result<(), StoreError> {
        let unfinished = self.directory.stale_attachments().await?;
        self.delete_all(unfinished).await;
        Ok(())
    }

    async fn delete_all(&self, files: Vec<(UserId, String)>) {
        let discard = async |(owner, path): (UserId, String)| {
            let Ok(key) = FileKey::parse_stored(&path) else {
                tracing::error!(path, "a file has a name that none has");
                return true;
            };
            let discarded = self.delete(&owner, &key).await;
            if let Err(error) = &discarded {
                tracing::warn!(path, %error, "what is left of a file waits for the next start");
            }
            discarded.is_ok()
        };
        let mut discarding = stream::iter(files).map(discard).buffer_unordered(CONCURRENT_DELETES_MAX);
        let mut failures = 0;
        while let Some(is_gone) = discarding.next().await {
            failures += u32::from(!is_gone);
            if failures == DELETE_FAILURES_MAX {
                break;
            }
        }
    }

    /// Room to give so many bytes to a model. Who wants more than there is waits until nobody else has any.
    async fn acquire_model_bytes(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        let wanted = to_kibibytes(bytes.min(self.settings.models_bytes_max));
        Arc::clone(&self.model_bytes).acquire_many_owned(wanted).await.ok()
    }

    /// Room for one more file of this user to come in.
    pub(crate) fn acquire_upload_permit(&self, user: &UserId) -> Result<UserPermit, Problem> {
        let full = || {
            let detail =
                format!("{UPLOADS_MAX} files are coming in already, or {USER_UPLOADS_MAX} of yours: try again");
            Problem::too_many_uploads(detail)
        };
        self.upload_permits.try_acquire(user).ok_or_else(full)
    }

    /// Says that a file comes.
    pub(crate) async fn register_upload(&self, key: &FileKey) -> Result<(), StoreError> {
        self.directory.writer(key.owner())?.reserve_attachment(key.owner(), key.as_str(), SystemClock.now()).await
    }

    /// Says that it is there. What is too much is not.
    pub(crate) async fn commit_upload(
        &self,
        owner: &UserId,
        row: AttachmentRow,
    ) -> Result<model::ports::AttachmentOutcome, StoreError> {
        self.directory.writer(owner)?.commit_attachment(owner, row, self.settings.user_bytes_max).await
    }

    /// Forgets a file: the bytes first, so that a row always tells of them.
    pub(crate) async fn delete(&self, owner: &UserId, key: &FileKey) -> Result<(), FileStoreError> {
        self.file_store.delete(key).await?;
        let unavailable = |error: StoreError| FileStoreError::Unavailable(error.to_string());
        let writer = self.directory.writer(owner).map_err(unavailable)?;
        writer.delete_attachment(owner, key.as_str()).await.map(drop).map_err(unavailable)
    }

    /// How much a user's files hold.
    pub(crate) async fn used_bytes(&self, owner: &UserId) -> Result<u64, StoreError> {
        self.directory.attachment_bytes_used(owner).await
    }

    /// The file that a client names, where it is there.
    pub(crate) async fn find_by_path(&self, bucket: &str, path: &str) -> Result<(FileKey, AttachmentRow), Problem> {
        let key = self.parse_key(bucket, path)?;
        let row = self.directory.attachment(key.owner(), key.as_str()).await?;
        row.map(|row| (key, row)).ok_or_else(Problem::not_found)
    }

    /// What a client names, be it there or not.
    pub(crate) fn parse_key(&self, bucket: &str, path: &str) -> Result<FileKey, Problem> {
        if bucket != self.bucket {
            let detail = "there is no such bucket: use the one that was given when the file was sent";
            return Err(Problem::new(ErrorCode::BucketNotFound, detail));
        }
        Ok(FileKey::parse(path)?)
    }
}

/// Where files are unless it is said.
pub(crate) fn default_location(data_dir: &Path) -> files::StorageLocation {
    files::StorageLocation::Folder(data_dir.join(FILES_DIR))
}

fn to_kibibytes(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX)
}

impl From<FileKeyError> for Problem {
    fn from(error: FileKeyError) -> Self {
        match error {
            FileKeyError::Malformed => Self::new(ErrorCode::InvalidPath, error.to_string()),
            FileKeyError::Unknown => Self::not_found(),
            FileKeyError::InvalidOwner => Self::new(ErrorCode::Unsupported, error.to_string()),
        }
    }
}

impl From<FileStoreError> for Problem {
    fn from(error: FileStoreError) -> Self {
        match error {
            FileStoreError::NotFound => Self::not_found(),
            FileStoreError::Unavailable(why) => {
                tracing::error!(why, "the place for files is not available");
                let detail = "files cannot be had now: try again";
                Self::new(ErrorCode::FilesUnavailable, detail).with_retry_after()
            }
        }
    }
}

impl From<ImageTooLarge> for Problem {
    fn from(error: ImageTooLarge) -> Self {
        let problem = Self::new(ErrorCode::ImageTooLarge, error.to_string());
        problem.with_extension("pixels_max", error.pixels_max)
    }
}
