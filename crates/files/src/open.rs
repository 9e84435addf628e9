//! Opening a place.

use crate::object_http::ReqwestConnector;
use crate::{CloudProvider, FileStore, StorageLocation};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path as Location;
use object_store::signer::Signer;
use object_store::{ObjectStore, RetryConfig};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

const OWNER_ONLY: u32 = 0o700;
/// A bucket that does not answer is asked again so often, and for so long: somebody is waiting.
const RETRIES_MAX: usize = 3;
const RETRY_TIMEOUT: Duration = Duration::from_secs(20);

/// Why a place cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum FileStoreOpenError {
    /// The folder cannot be made or used.
    #[error("the folder cannot be used: {0}")]
    Folder(std::io::Error),
    /// The settings of the bucket do not fit together.
    #[error("the bucket cannot be used: {0}")]
    Bucket(object_store::Error),
}

impl FileStore {
    /// Opens a place. `variables` are those of [`Cloud::variables`] that are set. Nothing is asked of a bucket yet; a
    /// folder is made where there is none. Blocks.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn open(place: &StorageLocation, variables: &[(String, String)]) -> Result<Self, FileStoreOpenError> {
        match place {
            StorageLocation::Folder(folder) => Self::folder(folder),
            StorageLocation::Bucket { provider: cloud, bucket, prefix } => {
                let (store, signer) = connect_bucket(*cloud, bucket, variables).map_err(FileStoreOpenError::Bucket)?;
                let prefix = Location::parse(prefix).map_err(|error| FileStoreOpenError::Bucket(error.into()))?;
                Ok(Self { objects: store, signer: Some(signer), prefix, folder: None, bucket: Some(bucket.clone()) })
            }
        }
    }

    fn folder(folder: &Path) -> Result<Self, FileStoreOpenError> {
        DirBuilder::new().recursive(true).mode(OWNER_ONLY).create(folder).map_err(FileStoreOpenError::Folder)?;
        let folder = folder.canonicalize().map_err(FileStoreOpenError::Folder)?;
        // What is said to be there must survive a power cut, and the folder's entries with it.
        let store = LocalFileSystem::new_with_prefix(&folder).map_err(FileStoreOpenError::Bucket)?.with_fsync(true);
        let prefix = Location::default();
        Ok(Self { objects: Arc::new(store), signer: None, prefix, folder: Some(folder), bucket: None })
    }
}

type BucketClient = (Arc<dyn ObjectStore>, Arc<dyn Signer>);

fn connect_bucket(
    cloud: CloudProvider,
    bucket: &str,
    variables: &[(String, String)],
) -> object_store::Result<BucketClient> {
    let retry = RetryConfig { max_retries: RETRIES_MAX, retry_timeout: RETRY_TIMEOUT, ..RetryConfig::default() };
    match cloud {
        CloudProvider::S3 => {
            // One is removed at a time, which everybody understands who speaks like S3.
            let base = AmazonS3Builder::new()
                .with_bucket_name(bucket)
                .with_allow_http(true)
                .with_config(AmazonS3ConfigKey::DisableBulkDelete, "true");
            let told = parse_bucket_settings::<AmazonS3ConfigKey>(variables);
            let builder = told.into_iter().fold(base, |builder, (key, value)| builder.with_config(key, value));
            as_bucket_client(builder.with_retry(retry).with_http_connector(ReqwestConnector).build()?)
        }
        CloudProvider::Google => {
            let base = GoogleCloudStorageBuilder::new().with_bucket_name(bucket);
            let told = parse_bucket_settings::<GoogleConfigKey>(variables);
            let builder = told.into_iter().fold(base, |builder, (key, value)| builder.with_config(key, value));
            as_bucket_client(builder.with_retry(retry).with_http_connector(ReqwestConnector).build()?)
        }
        CloudProvider::Azure => {
            let base = MicrosoftAzureBuilder::new().with_container_name(bucket).with_allow_http(true);
            let told = parse_bucket_settings::<AzureConfigKey>(variables);
            let builder = told.into_iter().fold(base, |builder, (key, value)| builder.with_config(key, value));
            as_bucket_client(builder.with_retry(retry).with_http_connector(ReqwestConnector).build()?)
        }
    }
}

/// The variables as the store's own settings; their names are those of the settings, in capitals.
fn parse_bucket_settings<K: FromStr>(variables: &[(String, String)]) -> Vec<(K, String)> {
    let setting = |(name, value): &(String, String)| Some((name.to_ascii_lowercase().parse().ok()?, value.clone()));
    variables.iter().filter_map(setting).collect()
}

#[expect(clippy::unnecessary_wraps, reason = "every arm above ends in it")]
fn as_bucket_client<S: ObjectStore + Signer>(store: S) -> object_store::Result<BucketClient> {
    let store = Arc::new(store);
    Ok((Arc::clone(&store) as _, store))
}
