//! Receiving a file: the bytes go to the file store as they arrive, and the first of them determine the media type. A
//! failed upload leaves neither bytes nor a row.

use super::{AttachmentStore, BlobError};
use crate::rejection::Rejection;
use bytes::{Bytes, BytesMut};
use files::{FileKey, FileType, ImageHeaderScanner, SNIFF_BYTES, UploadError, content_disposition, sanitize_file_name};
use futures_core::Stream;
use futures_util::stream::StreamExt as _;
use model::UserId;
use model::error::ErrorCode;
use model::ports::{AttachmentOutcome, AttachmentRow};
use uuid::Uuid;

/// The sender's declarations about a file.
pub struct IncomingFile {
    pub name: String,
    pub declared_type: Option<String>,
}

impl AttachmentStore {
    /// Rejects a user without remaining quota before any byte is read.
    pub async fn check_quota(&self, user: &UserId) -> Result<(), Rejection> {
        let Some(bytes_max) = self.settings.user_bytes_max else { return Ok(()) };
        let used = self.directory.attachment_bytes_used(user).await?;
        if used >= bytes_max { Err(BlobError::QuotaExceeded { most: bytes_max, used }.into()) } else { Ok(()) }
    }

    /// Stores a file from a stream of its bytes.
    pub async fn receive<E: From<Rejection>>(
        &self,
        user: &UserId,
        file: IncomingFile,
        mut chunks: impl Stream<Item = Result<Bytes, E>> + Send + Unpin,
    ) -> Result<AttachmentRow, E> {
        let head = read_head(&mut chunks).await?;
        if head.is_empty() {
            return Err(Rejection::new(ErrorCode::EmptyFile, "the file is empty").into());
        }
        let file_type = FileType::sniff(&head, file.declared_type.as_deref());
        let mut image_check = ImageHeaderScanner::new(file_type, self.settings.pixels_max);
        image_check.feed(&head).map_err(Rejection::from)?;
        let key = FileKey::for_attachment(user, Uuid::now_v7(), file_type.extension).map_err(Rejection::from)?;
        self.register_upload(&key).await.map_err(Rejection::from)?;
        let typed = TypedFile { name: sanitize_file_name(&file.name), file_type, head, image_check };
        let stored = self.store_chunks(&key, typed, chunks).await;
        if stored.is_err() {
            self.delete_partial(&key).await;
        }
        stored
    }

    /// Writes the bytes, and commits the row once they are durable.
    async fn store_chunks<E: From<Rejection>>(
        &self,
        key: &FileKey,
        file: TypedFile,
        mut chunks: impl Stream<Item = Result<Bytes, E>> + Send + Unpin,
    ) -> Result<AttachmentRow, E> {
        let TypedFile { name, file_type, head, mut image_check } = file;
        let disposition = content_disposition(&name, file_type.content_type);
        let bytes_max = self.settings.upload_bytes_max;
        let upload = self.file_store.upload(key, file_type, &disposition, bytes_max).await;
        let mut upload = upload.map_err(Rejection::from)?;
        let mut chunk = Some(head);
        while let Some(bytes) = chunk {
            let next = match upload.write(bytes).await {
                Ok(()) => next_chunk(&mut chunks, &mut image_check).await,
                Err(error) => Err(upload_rejection(error, bytes_max).into()),
            };
            match next {
                Ok(next) => chunk = next,
                Err(error) => {
                    upload.abort().await;
                    return Err(error);
                }
            }
        }
        let size_bytes = upload.finish().await.map_err(|error| upload_rejection(error, bytes_max))?;
        let row = self.new_row(key, name, file_type.content_type, size_bytes);
        let user_bytes_max = self.settings.user_bytes_max;
        let writer = self.directory.writer(key.owner()).map_err(Rejection::from)?;
        let outcome = writer.commit_attachment(key.owner(), row.clone(), user_bytes_max).await;
        match outcome.map_err(Rejection::from)? {
            AttachmentOutcome::Stored | AttachmentOutcome::Duplicate(_) => Ok(row),
            AttachmentOutcome::QuotaExceeded { used } => {
                let error = BlobError::QuotaExceeded { most: user_bytes_max.unwrap_or_default(), used };
                Err(Rejection::from(error).into())
            }
        }
    }
}

struct TypedFile {
    name: String,
    file_type: FileType,
    head: Bytes,
    image_check: ImageHeaderScanner,
}

/// Reads enough bytes to detect the file's type.
async fn read_head<E>(chunks: &mut (impl Stream<Item = Result<Bytes, E>> + Send + Unpin)) -> Result<Bytes, E> {
    let mut head = BytesMut::new();
    while head.len() < SNIFF_BYTES {
        let Some(chunk) = chunks.next().await.transpose()? else { break };
        head.extend_from_slice(&chunk);
    }
    Ok(head.freeze())
}

/// Rejects an image as soon as its header declares too many pixels.
async fn next_chunk<E: From<Rejection>>(
    chunks: &mut (impl Stream<Item = Result<Bytes, E>> + Send + Unpin),
    image_check: &mut ImageHeaderScanner,
) -> Result<Option<Bytes>, E> {
    let chunk = chunks.next().await.transpose()?;
    if let Some(chunk) = &chunk {
        image_check.feed(chunk).map_err(Rejection::from)?;
    }
    Ok(chunk)
}

fn upload_rejection(error: UploadError, bytes_max: u64) -> Rejection {
    match error {
        UploadError::TooLarge(_) => file_too_large(bytes_max),
        UploadError::Store(error) => error.into(),
    }
}

pub fn file_too_large(bytes_max: u64) -> Rejection {
    let detail = format!("the file is larger than {bytes_max} bytes");
    Rejection::new(ErrorCode::BodyTooLarge, detail).with_extension("bytes_max", bytes_max)
}
