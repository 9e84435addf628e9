//! The file store.

use crate::error::FileStoreError;
use crate::file_key::FileKey;
use crate::file_type::FileType;
use crate::list_folder::{ListedFile, ListedFileKind, list_folder};
use crate::upload::{BUCKET_PART_BYTES, FOLDER_PART_BYTES, Upload};
use bytes::{Bytes, BytesMut};
use futures_util::stream::{BoxStream, StreamExt as _, TryStreamExt as _};
use object_store::path::Path as Location;
use object_store::signer::Signer;
use object_store::{
    Attribute, AttributeValue, Attributes, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt as _,
};
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Cheap to share.
#[derive(Debug)]
pub struct FileStore {
    pub(crate) objects: Arc<dyn ObjectStore>,
    /// Prepended to all keys.
    pub(crate) prefix: Location,
    pub(crate) backend: Backend,
}

#[derive(Debug)]
pub(crate) enum Backend {
    Folder(PathBuf),
    Bucket { name: String, signer: Arc<dyn Signer> },
}

pub struct FileStream {
    /// The size of the whole file.
    pub total_bytes: u64,
    /// The range that is streamed.
    pub range: Range<u64>,
    pub stream: BoxStream<'static, Result<Bytes, FileStoreError>>,
}

impl FileStore {
    /// `None` for a folder.
    pub fn bucket(&self) -> Option<&str> {
        match &self.backend {
            Backend::Folder(_) => None,
            Backend::Bucket { name, .. } => Some(name),
        }
    }

    /// Starts an upload. A bucket sends `disposition` to clients that use a signed URL. Fails if the folder contains a
    /// link.
    pub async fn upload(
        &self,
        key: &FileKey,
        file_type: FileType,
        disposition: &str,
        bytes_max: u64,
    ) -> Result<Upload, FileStoreError> {
        if !self.has_no_symlink(key.as_str()).await? {
            return Err(FileStoreError::Unavailable("the path contains a symbolic link".to_owned()));
        }
        let mut attributes = Attributes::new();
        let part_bytes = match self.backend {
            // A folder stores nothing but the bytes.
            Backend::Folder(_) => FOLDER_PART_BYTES,
            Backend::Bucket { .. } => {
                attributes.insert(Attribute::ContentType, AttributeValue::from(file_type.content_type));
                attributes.insert(Attribute::ContentDisposition, AttributeValue::from(disposition.to_owned()));
                BUCKET_PART_BYTES
            }
        };
        let location = self.location(key.as_str());
        Ok(Upload::new(Arc::clone(&self.objects), location, attributes, part_bytes, bytes_max))
    }

    pub async fn read(&self, key: &FileKey, range: Option<Range<u64>>) -> Result<FileStream, FileStoreError> {
        if !self.has_no_symlink(key.as_str()).await? {
            return Err(FileStoreError::NotFound);
        }
        let options = GetOptions { range: range.map(GetRange::Bounded), ..GetOptions::default() };
        let found = self.objects.get_opts(&self.location(key.as_str()), options).await?;
        let (total_bytes, range) = (found.meta.size, found.range.clone());
        Ok(FileStream { total_bytes, range, stream: found.into_stream().map_err(FileStoreError::from).boxed() })
    }

    /// Reads a whole file, unless it is larger than `bytes_max`.
    pub async fn read_all(&self, key: &FileKey, bytes_max: u64) -> Result<Bytes, FileStoreError> {
        let mut file = self.read(key, None).await?;
        if file.total_bytes > bytes_max {
            return Err(FileStoreError::Unavailable(format!("the file has more than {bytes_max} bytes")));
        }
        let mut content = BytesMut::with_capacity(usize::try_from(file.total_bytes).unwrap_or_default());
        while let Some(chunk) = file.stream.try_next().await? {
            content.extend_from_slice(&chunk);
        }
        Ok(content.freeze())
    }

    pub async fn size(&self, key: &FileKey) -> Result<u64, FileStoreError> {
        if !self.has_no_symlink(key.as_str()).await? {
            return Err(FileStoreError::NotFound);
        }
        Ok(self.objects.head(&self.location(key.as_str())).await?.size)
    }

    /// Deletes a file and the remains of an interrupted upload. Deleting a missing file succeeds.
    pub async fn delete(&self, key: &FileKey) -> Result<(), FileStoreError> {
        if let Backend::Folder(folder) = &self.backend {
            // `object_store` writes partial files here. Keys are unique, so the number is always 1.
            let partial = folder.join(format!("{}#1", key.as_str()));
            match tokio::fs::remove_file(&partial).await {
                Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                    return Err(FileStoreError::Unavailable(error.to_string()));
                }
                _ => {}
            }
        }
        match self.objects.delete(&self.location(key.as_str())).await.map_err(FileStoreError::from) {
            Err(FileStoreError::NotFound) => Ok(()),
            removed => removed,
        }
    }

    /// Lists all files of all users.
    pub async fn list(&self) -> Result<Vec<ListedFile>, FileStoreError> {
        if let Backend::Folder(folder) = &self.backend {
            let folder = folder.clone();
            let listed = tokio::task::spawn_blocking(move || list_folder(&folder)).await;
            return listed.unwrap_or_else(|error| Err(FileStoreError::Unavailable(error.to_string())));
        }
        self.list_bucket().try_collect().await
    }

    /// Lists all files of a bucket, with few of them in memory.
    pub(crate) fn list_bucket(&self) -> BoxStream<'static, Result<ListedFile, FileStoreError>> {
        let depth = self.prefix.parts().count();
        let listed = move |file: ObjectMeta| {
            let parts: Vec<String> = file.location.parts().skip(depth).map(|part| part.as_ref().to_owned()).collect();
            ListedFile { name: parts.join("/"), bytes: file.size, kind: ListedFileKind::File }
        };
        self.objects.list(Some(&self.prefix)).map_ok(listed).map_err(FileStoreError::from).boxed()
    }

    /// A URL that grants read access for a while; `None` for a folder.
    pub async fn presigned_url(&self, key: &FileKey, lifetime: Duration) -> Result<Option<String>, FileStoreError> {
        let Backend::Bucket { signer, .. } = &self.backend else { return Ok(None) };
        let url = signer.signed_url(reqwest::Method::GET, &self.location(key.as_str()), lifetime).await?;
        Ok(Some(url.to_string()))
    }

    pub(crate) fn location(&self, name: &str) -> Location {
        // Keys and prefixes contain only characters that a location permits; the leading slash of an empty prefix is
        // removed.
        Location::parse(format!("{}/{name}", self.prefix)).unwrap_or_default()
    }

    /// Whether no component of the path is a symbolic link. Buckets have none.
    pub(crate) async fn has_no_symlink(&self, name: &str) -> Result<bool, FileStoreError> {
        let Backend::Folder(folder) = &self.backend else { return Ok(true) };
        let mut path = folder.clone();
        for part in name.split('/') {
            path.push(part);
            match is_symlink(&path).await {
                Ok(true) => return Ok(false),
                Ok(false) => {}
                // Nothing exists below a missing folder.
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
                Err(error) => return Err(FileStoreError::Unavailable(error.to_string())),
            }
        }
        Ok(true)
    }
}

async fn is_symlink(path: &Path) -> std::io::Result<bool> {
    Ok(tokio::fs::symlink_metadata(path).await?.is_symlink())
}
