//! Where users' files are stored, and how large they may be.

use super::BlobUrls;
use files::StorageLocation;
use std::time::Duration;

const MIB: u64 = 1024 * 1024;

#[derive(Clone, Debug)]
pub struct AttachmentSettings {
    /// A folder in the data folder unless set.
    pub location: Option<StorageLocation>,
    /// Other nodes store files elsewhere, so this one must not store any.
    pub is_foreign_folder: bool,
    /// Credentials for the location: environment variables of its provider.
    pub env_vars: Vec<(String, String)>,
    /// The bucket name that clients see.
    pub bucket: Option<String>,
    pub upload_bytes_max: u64,
    /// Per image inside a message.
    pub image_bytes_max: u64,
    /// Quota of one user.
    pub user_bytes_max: Option<u64>,
    /// Sum of the files in one request to a model.
    pub model_bytes_max: u64,
    /// Sum of the files in all concurrent requests to models.
    pub models_bytes_max: u64,
    /// Text per file in a request to a model.
    pub text_bytes_max: usize,
    /// Per decoded image.
    pub pixels_max: u64,
    pub signed_url_lifetime: Duration,
    /// The form of blob URLs in responses to requests that do not choose one.
    pub blob_urls: BlobUrls,
}

impl Default for AttachmentSettings {
    fn default() -> Self {
        Self {
            location: None,
            is_foreign_folder: false,
            env_vars: Vec::new(),
            bucket: None,
            upload_bytes_max: 20 * MIB,
            image_bytes_max: 20 * MIB,
            user_bytes_max: None,
            model_bytes_max: 32 * MIB,
            models_bytes_max: 256 * MIB,
            text_bytes_max: 1024 * 1024,
            pixels_max: 100_000_000,
            signed_url_lifetime: Duration::from_secs(300),
            blob_urls: BlobUrls::Plain,
        }
    }
}
