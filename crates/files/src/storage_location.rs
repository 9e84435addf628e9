//! Where the operator keeps files.

use std::path::PathBuf;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageLocation {
    /// A folder of this machine.
    Folder(PathBuf),
    Bucket {
        provider: CloudProvider,
        bucket: String,
        /// Prepended to all keys; without slashes at its ends, may be empty.
        prefix: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloudProvider {
    /// Amazon and compatible services.
    S3,
    Google,
    Azure,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StorageLocationError {
    #[error("`{0}://` is not known; write a folder, or s3://bucket, gs://bucket or az://container")]
    UnknownScheme(String),
    #[error("a bucket has letters, digits, `.`, `_` and `-`; write it like s3://bucket/prefix")]
    InvalidBucket,
    #[error("a prefix has letters, digits, `.`, `_`, `-` and single slashes, and no `..`")]
    InvalidPrefix,
    #[error("a storage location is a folder, or s3://bucket, gs://bucket or az://container")]
    Empty,
}

impl StorageLocation {
    /// Parses a path or a bucket's URL.
    pub fn parse(text: &str) -> Result<Self, StorageLocationError> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return if text.is_empty() {
                Err(StorageLocationError::Empty)
            } else {
                Ok(Self::Folder(PathBuf::from(text)))
            };
        };
        let cloud = match scheme {
            "file" if rest.starts_with('/') => return Ok(Self::Folder(PathBuf::from(rest))),
            "s3" => CloudProvider::S3,
            "gs" => CloudProvider::Google,
            "az" => CloudProvider::Azure,
            _ => return Err(StorageLocationError::UnknownScheme(scheme.chars().take(20).collect())),
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if !is_path_segment(bucket) {
            return Err(StorageLocationError::InvalidBucket);
        }
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        if !prefix.is_empty() && !prefix.split('/').all(is_path_segment) {
            return Err(StorageLocationError::InvalidPrefix);
        }
        Ok(Self::Bucket { provider: cloud, bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }

    /// Whether one of the locations is the other one, or inside of it. Links are not resolved.
    pub fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Folder(one), Self::Folder(other)) => one.starts_with(other) || other.starts_with(one),
            (
                Self::Bucket { provider, bucket, prefix },
                Self::Bucket { provider: other_provider, bucket: other_bucket, prefix: other_prefix },
            ) => {
                let contains = |outer: &str, inner: &str| {
                    outer.is_empty()
                        || inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                };
                provider == other_provider
                    && bucket == other_bucket
                    && (contains(prefix, other_prefix) || contains(other_prefix, prefix))
            }
            _ => false,
        }
    }
}

impl CloudProvider {
    /// The environment variables with the credentials, under the names of the provider's own tools.
    pub const fn env_vars(self) -> &'static [&'static str] {
        match self {
            Self::S3 => &[
                "AWS_ACCESS_KEY_ID",
                "AWS_SECRET_ACCESS_KEY",
                "AWS_SESSION_TOKEN",
                "AWS_REGION",
                "AWS_DEFAULT_REGION",
                "AWS_ENDPOINT_URL",
                "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
                "AWS_WEB_IDENTITY_TOKEN_FILE",
                "AWS_ROLE_ARN",
                "AWS_ROLE_SESSION_NAME",
                "AWS_ENDPOINT_URL_STS",
                "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
            ],
            Self::Google => &["GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY", "GOOGLE_APPLICATION_CREDENTIALS"],
            Self::Azure => &[
                "AZURE_STORAGE_ACCOUNT_NAME",
                "AZURE_STORAGE_ACCOUNT_KEY",
                "AZURE_STORAGE_ENDPOINT",
                "AZURE_STORAGE_SAS_TOKEN",
                "AZURE_CLIENT_ID",
                "AZURE_CLIENT_SECRET",
                "AZURE_TENANT_ID",
                "AZURE_FEDERATED_TOKEN_FILE",
            ],
        }
    }
}

pub(crate) fn is_path_segment(part: &str) -> bool {
    (1..=255).contains(&part.len())
        && part != "."
        && part != ".."
        && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}
