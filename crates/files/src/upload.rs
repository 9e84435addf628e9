//! Uploads.
//!
//! Bytes are collected into parts, and one part is in flight at a time: an upload holds at most two parts in memory,
//! however fast the sender is. A file that fits into one part is stored in a single step. A file becomes visible once
//! its last byte is durable.

use crate::error::UploadError;
use bytes::{Buf as _, Bytes, BytesMut};
use object_store::path::Path as Location;
use object_store::{Attributes, MultipartUpload, ObjectStore, PutMultipartOptions, PutOptions, PutPayload};
use std::sync::Arc;

pub(crate) const FOLDER_PART_BYTES: usize = 256 * 1024;
/// The smallest part that all providers accept.
pub(crate) const BUCKET_PART_BYTES: usize = 5 * 1024 * 1024;

/// An upload in progress. [`Upload::write`] bytes, then [`Upload::finish`] or [`Upload::abort`] it.
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

impl Upload {
    pub(crate) fn new(
        store: Arc<dyn ObjectStore>,
        location: Location,
        attributes: Attributes,
        part_bytes: usize,
        bytes_max: u64,
    ) -> Self {
        Self { store, location, attributes, multipart: None, buffer: BytesMut::new(), part_bytes, bytes: 0, bytes_max }
    }

    /// Appends bytes. After an error the upload must be aborted.
    pub async fn write(&mut self, mut chunk: Bytes) -> Result<(), UploadError> {
        self.bytes = self.bytes.saturating_add(chunk.len() as u64);
        if self.bytes > self.bytes_max {
            return Err(UploadError::TooLarge(self.bytes_max));
        }
        while chunk.has_remaining() {
            // Only when more bytes arrive is it known that the file needs several parts.
            if self.buffer.len() >= self.part_bytes {
                self.send_part().await?;
            }
            let room = self.part_bytes.saturating_sub(self.buffer.len());
            // Copied, because a slice of a large buffer would keep the whole buffer alive.
            self.buffer.extend_from_slice(&chunk.split_to(room.min(chunk.len())));
        }
        Ok(())
    }

    /// Stores the file durably and returns its size. On an error nothing is left behind.
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

    /// Discards the upload. What cannot be removed now is removed at the next start, or by the bucket's own rules.
    pub async fn abort(mut self) {
        if let Some(mut parts) = self.multipart.take() {
            let _ = parts.abort().await;
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
