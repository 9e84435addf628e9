//! A place, opened.

use crate::list_folder::{ListedFile, ListedFileKind, list_folder};
use crate::{FileKey, FileType, Upload};
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

/// A place, opened. Cheap to share.
#[derive(Debug)]
pub struct FileStore {
    pub(crate) objects: Arc<dyn ObjectStore>,
    /// Who signs addresses, where the place can.
    pub(crate) signer: Option<Arc<dyn Signer>>,
    /// What all names in the bucket begin with.
    pub(crate) prefix: Location,
    /// The folder, where it is one.
    pub(crate) folder: Option<PathBuf>,
    /// The bucket, where it is one.
    pub(crate) bucket: Option<String>,
}

/// Why a file could not be had.
#[derive(Debug, thiserror::Error)]
pub enum FileStoreError {
    /// It is not there.
    #[error("there is no such file")]
    NotFound,
    /// The place does not answer, or not sensibly.
    #[error("{0}")]
    Unavailable(String),
}

/// A file that is being read.
pub struct FileStream {
    /// How large the whole file is.
    pub total_bytes: u64,
    /// Which part of it comes.
    pub range: Range<u64>,
    /// The bytes.
    pub stream: BoxStream<'static, Result<Bytes, FileStoreError>>,
}

impl FileStore {
    /// The bucket's own name; a folder has none.
    #[must_use]
    pub fn bucket(&self) -> Option<&str> {
        self.bucket.as_deref()
    }

    /// Begins to take a file in. `disposition` is what a bucket tells those who come by a signed address.
    ///
    /// # Errors
    /// When there is something in the folder that we have not made.
    pub async fn upload(
        &self,
        key: &FileKey,
        kind: FileType,
        disposition: &str,
        bytes_max: u64,
    ) -> Result<Upload, FileStoreError> {
        if !self.has_no_symlink(key).await? {
            return Err(FileStoreError::Unavailable("there is a link in the folder of files".to_owned()));
        }
        let mut attributes = Attributes::new();
        // A folder keeps nothing beside the bytes.
        if self.folder.is_none() {
            attributes.insert(Attribute::ContentType, AttributeValue::from(kind.content_type));
            attributes.insert(Attribute::ContentDisposition, AttributeValue::from(disposition.to_owned()));
        }
        Ok(Upload::new(
            Arc::clone(&self.objects),
            self.location(key.as_str()),
            attributes,
            self.folder.is_some(),
            bytes_max,
        ))
    }

    /// Reads a file, or a part of it.
    ///
    /// # Errors
    /// When it is not there, or the part is not in it.
    pub async fn read(&self, key: &FileKey, range: Option<Range<u64>>) -> Result<FileStream, FileStoreError> {
        if !self.has_no_symlink(key).await? {
            return Err(FileStoreError::NotFound);
        }
        let options = GetOptions { range: range.map(GetRange::Bounded), ..GetOptions::default() };
        let found = self.objects.get_opts(&self.location(key.as_str()), options).await?;
        let (bytes, range) = (found.meta.size, found.range.clone());
        Ok(FileStream { total_bytes: bytes, range, stream: found.into_stream().map_err(FileStoreError::from).boxed() })
    }

    /// Reads a whole file, if it has no more bytes than this.
    ///
    /// # Errors
    /// When it is not there, or larger.
    pub async fn read_all(&self, key: &FileKey, bytes_max: u64) -> Result<Bytes, FileStoreError> {
        let mut reading = self.read(key, None).await?;
        if reading.total_bytes > bytes_max {
            return Err(FileStoreError::Unavailable(format!("the file has more than {bytes_max} bytes")));
        }
        let mut whole = BytesMut::with_capacity(usize::try_from(reading.total_bytes).unwrap_or_default());
        while let Some(piece) = reading.stream.try_next().await? {
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }

    /// How large a file is.
    ///
    /// # Errors
    /// When it is not there.
    pub async fn size(&self, key: &FileKey) -> Result<u64, FileStoreError> {
        if !self.has_no_symlink(key).await? {
            return Err(FileStoreError::NotFound);
        }
        Ok(self.objects.head(&self.location(key.as_str())).await?.size)
    }

    /// Removes a file, and what an upload that was broken off has left of it. One that is not there is removed already.
    ///
    /// # Errors
    /// When the place does not answer.
    pub async fn delete(&self, key: &FileKey) -> Result<(), FileStoreError> {
        if let Some(folder) = &self.folder {
            // Where `object_store` writes what is not whole yet: names are new, so it is always the first.
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

    /// Everything that is here, whosever it is.
    ///
    /// # Errors
    /// When the place does not answer.
    pub async fn list(&self) -> Result<Vec<ListedFile>, FileStoreError> {
        if let Some(folder) = self.folder.clone() {
            let walked = tokio::task::spawn_blocking(move || list_folder(&folder)).await;
            return walked.unwrap_or_else(|error| Err(FileStoreError::Unavailable(error.to_string())));
        }
        let depth = self.prefix.parts().count();
        let found = |file: ObjectMeta| {
            let parts: Vec<String> = file.location.parts().skip(depth).map(|part| part.as_ref().to_owned()).collect();
            ListedFile { name: parts.join("/"), bytes: file.size, kind: ListedFileKind::File }
        };
        self.objects.list(Some(&self.prefix)).map_ok(found).map_err(FileStoreError::from).try_collect().await
    }

    /// An address under which anybody can read the file for a while; `None` where the place gives none.
    ///
    /// # Errors
    /// When the place cannot sign, for want of a key or an answer.
    pub async fn presigned_url(&self, key: &FileKey, lifetime: Duration) -> Result<Option<String>, FileStoreError> {
        let Some(signer) = &self.signer else { return Ok(None) };
        let url = signer.signed_url(reqwest::Method::GET, &self.location(key.as_str()), lifetime).await?;
        Ok(Some(url.to_string()))
    }

    fn location(&self, name: &str) -> Location {
        // What a location does not allow is in no name and no prefix; the slash in front of a lone name is taken off.
        Location::parse(format!("{}/{name}", self.prefix)).unwrap_or_default()
    }

    /// Is everything on the way to a file a folder of ours, and the file no link? A bucket has no links.
    async fn has_no_symlink(&self, key: &FileKey) -> Result<bool, FileStoreError> {
        let Some(folder) = &self.folder else { return Ok(true) };
        let mut path = folder.clone();
        for part in key.as_str().split('/') {
            path.push(part);
            match is_symlink(&path).await {
                Ok(true) => return Ok(false),
                Ok(false) => {}
                // Nothing is below what is not there.
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

impl From<object_store::Error> for FileStoreError {
    fn from(error: object_store::Error) -> Self {
        match error {
            object_store::Error::NotFound { .. } => Self::NotFound,
            other => Self::Unavailable(other.to_string()),
        }
    }
}
