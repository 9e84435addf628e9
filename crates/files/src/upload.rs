//! A file on its way in.
//!
//! Bytes are gathered into parts, and one part is on its way at a time: an upload holds two parts at most, however fast
//! its sender is. What fits into one part is stored in one step. Nobody sees a file before its last byte is durable.

use crate::FileStoreError;
use bytes::{Buf as _, Bytes, BytesMut};
use object_store::path::Path as Location;
use object_store::{Attributes, MultipartUpload, ObjectStore, PutMultipartOptions, PutOptions, PutPayload};
use std::sync::Arc;

/// A folder is written to in pieces of this size.
const FOLDER_PART_BYTES: usize = 256 * 1024;
/// The smallest part that all buckets take.
const BUCKET_PART_BYTES: usize = 5 * 1024 * 1024;

/// A file on its way in. Give it bytes, then [`Upload::finish`] or [`Upload::abort`] it.
pub struct Upload {
    store: Arc<dyn ObjectStore>,
    location: Location,
    attributes: Attributes,
    multipart: Option<Box<dyn MultipartUpload>>,
    buffer: BytesMut,
    part_bytes: usize,
    bytes: u64,
    bytes_max: u64,
}

/// Why a file was not taken.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    /// It is larger than it may be.
    #[error("the file is larger than {0} bytes")]
    TooLarge(u64),
    /// The place does not take it.
    #[error(transparent)]
    Store(#[from] FileStoreError),
}

impl From<object_store::Error> for UploadError {
    fn from(error: object_store::Error) -> Self {
        // Where something is put nothing can be missing but the place itself.
        Self::Store(FileStoreError::Unavailable(error.to_string()))
    }
}

impl Upload {
    pub(crate) fn new(
        store: Arc<dyn ObjectStore>,
        location: Location,
        attributes: Attributes,
        into_folder: bool,
        bytes_max: u64,
    ) -> Self {
        let part_bytes = if into_folder { FOLDER_PART_BYTES } else { BUCKET_PART_BYTES };
        Self { store, location, attributes, multipart: None, buffer: BytesMut::new(), part_bytes, bytes: 0, bytes_max }
    }

    /// Takes more of it.
    ///
    /// # Errors
    /// When that is too much, or the place does not take it. The upload is then to be aborted.
    pub async fn write(&mut self, mut piece: Bytes) -> Result<(), UploadError> {
        self.bytes = self.bytes.saturating_add(piece.len() as u64);
        if self.bytes > self.bytes_max {
            return Err(UploadError::TooLarge(self.bytes_max));
        }
        while piece.has_remaining() {
            // Only when more comes is it known that the file does not fit into one part.
            if self.buffer.len() >= self.part_bytes {
                self.send_part().await?;
            }
            let room = self.part_bytes.saturating_sub(self.buffer.len());
            // Copied: a piece may be a small part of a large buffer, and many of them would keep it all.
            self.buffer.extend_from_slice(&piece.split_to(room.min(piece.len())));
        }
        Ok(())
    }

    /// That was all. When this returns, the file is there, and stays there when the power goes. Says how large it is.
    ///
    /// # Errors
    /// When the place does not take it; then nothing of it is left.
    pub async fn finish(mut self) -> Result<u64, UploadError> {
        let done = self.finish_upload().await;
        match done {
            Ok(()) => Ok(self.bytes),
            Err(error) => {
                self.abort().await;
                Err(error)
            }
        }
    }

    async fn finish_upload(&mut self) -> Result<(), UploadError> {
        if self.multipart.is_some() {
            self.send_part().await?;
        }
        match &mut self.multipart {
            Some(parts) => parts.complete().await.map(drop)?,
            None => {
                let payload = PutPayload::from_bytes(self.buffer.split().freeze());
                let options = PutOptions { attributes: self.attributes.clone(), ..PutOptions::default() };
                self.store.put_opts(&self.location, payload, options).await.map(drop)?;
            }
        }
        Ok(())
    }

    /// It is not wanted any more: nothing of it stays, if the place can be reached.
    pub async fn abort(mut self) {
        if let Some(mut parts) = self.multipart.take() {
            // What cannot be removed now is removed at the next start, or by the bucket's own rules.
            let _left = parts.abort().await.is_err();
        }
    }

    async fn send_part(&mut self) -> Result<(), UploadError> {
        let part = PutPayload::from_bytes(self.buffer.split().freeze());
        if self.multipart.is_none() {
            let options = PutMultipartOptions { attributes: self.attributes.clone(), ..PutMultipartOptions::default() };
            self.multipart = Some(self.store.put_multipart_opts(&self.location, options).await?);
        }
        match &mut self.multipart {
            Some(parts) if part.content_length() > 0 => Ok(parts.put_part(part).await?),
            _ => Ok(()),
        }
    }
}
