//! Opens a storage location.

use crate::error::FileStoreOpenError;
use crate::file_store::{Backend, FileStore};
use crate::object_http::ReqwestConnector;
use crate::storage_location::{CloudProvider, StorageLocation};
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
/// Short, because a client is waiting.
const RETRIES_MAX: usize = 3;
const RETRY_TIMEOUT: Duration = Duration::from_secs(20);

impl FileStore {
    /// Opens a location. `variables` are those of [`CloudProvider::variables`] that are set. Does not contact a bucket;
    /// creates a missing folder. Blocking.
    pub fn open(location: &StorageLocation, variables: &[(String, String)]) -> Result<Self, FileStoreOpenError> {
        match location {
            StorageLocation::Folder(folder) => Self::folder(folder),
            StorageLocation::Bucket { provider, bucket, prefix } => {
                let (objects, signer) =
                    connect_bucket(*provider, bucket, variables).map_err(FileStoreOpenError::Bucket)?;
                let prefix = Location::parse(prefix).map_err(|error| FileStoreOpenError::Bucket(error.into()))?;
                Ok(Self { objects, prefix, backend: Backend::Bucket { name: bucket.clone(), signer } })
            }
        }
    }

    fn folder(folder: &Path) -> Result<Self, FileStoreOpenError> {
        DirBuilder::new().recursive(true).mode(OWNER_ONLY).create(folder).map_err(FileStoreOpenError::Folder)?;
        let folder = folder.canonicalize().map_err(FileStoreOpenError::Folder)?;
        // A stored file must survive a power cut, together with its directory entries.
        let store = LocalFileSystem::new_with_prefix(&folder).map_err(FileStoreOpenError::Bucket)?.with_fsync(true);
        Ok(Self { objects: Arc::new(store), prefix: Location::default(), backend: Backend::Folder(folder) })
    }
}

type BucketClient = (Arc<dyn ObjectStore>, Arc<dyn Signer>);

fn connect_bucket(
    provider: CloudProvider,
    bucket: &str,
    variables: &[(String, String)],
) -> object_store::Result<BucketClient> {
    let retry = RetryConfig { max_retries: RETRIES_MAX, retry_timeout: RETRY_TIMEOUT, ..RetryConfig::default() };
    match provider {
        CloudProvider::S3 => {
            // Single deletes work with every S3-compatible service.
            let base = AmazonS3Builder::new()
                .with_bucket_name(bucket)
                .with_allow_http(true)
                .with_config(AmazonS3ConfigKey::DisableBulkDelete, "true");
            let settings = parse_bucket_settings::<AmazonS3ConfigKey>(variables);
            let builder = settings.into_iter().fold(base, |builder, (key, value)| builder.with_config(key, value));
            as_bucket_client(builder.with_retry(retry).with_http_connector(ReqwestConnector).build()?)
        }
        CloudProvider::Google => {
            let base = GoogleCloudStorageBuilder::new().with_bucket_name(bucket);
            let settings = parse_bucket_settings::<GoogleConfigKey>(variables);
            let builder = settings.into_iter().fold(base, |builder, (key, value)| builder.with_config(key, value));
            as_bucket_client(builder.with_retry(retry).with_http_connector(ReqwestConnector).build()?)
        }
        CloudProvider::Azure => {
            let base = MicrosoftAzureBuilder::new().with_container_name(bucket).with_allow_http(true);
            let settings = parse_bucket_settings::<AzureConfigKey>(variables);
            let builder = settings.into_iter().fold(base, |builder, (key, value)| builder.with_config(key, value));
            as_bucket_client(builder.with_retry(retry).with_http_connector(ReqwestConnector).build()?)
        }
    }
}

/// Parses environment variables into settings of `object_store`: the same names in upper case.
fn parse_bucket_settings<K: FromStr>(variables: &[(String, String)]) -> Vec<(K, String)> {
    let setting = |(name, value): &(String, String)| Some((name.to_ascii_lowercase().parse().ok()?, value.clone()));
    variables.iter().filter_map(setting).collect()
}

#[expect(clippy::unnecessary_wraps, reason = "every arm above ends in it")]
fn as_bucket_client<S: ObjectStore + Signer>(store: S) -> object_store::Result<BucketClient> {
    let store = Arc::new(store);
    Ok((Arc::clone(&store) as _, store))
}
