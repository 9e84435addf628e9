//! Addresses that we have signed ourselves, of files that their users have sent.
//!
//! We ask nobody for these, and ourselves least of all: the signature says which file it is, and it is read where it is kept.

use crate::attachments::{AttachmentStore, RAW_ATTACHMENT_PATH, SignedUrl};
use fetch::{DocumentFormat, FetchError, FetchedFile};
use model::ports::{AttachmentRow, FileReadRequest};
use reqwest::Url;
use std::collections::HashMap;

/// The user's own file that this address was signed for. None if it is another address, or altered, over, or of somebody
/// else: then it is one like any other.
pub(super) async fn read_signed_attachment(
    files: &AttachmentStore,
    request: &FileReadRequest,
    bytes_max: usize,
) -> Option<Result<FetchedFile, FetchError>> {
    // Under whatever name we were reached, this is how such an address ends.
    let url = Url::parse(&request.url).ok().filter(|url| url.path().ends_with(RAW_ATTACHMENT_PATH))?;
    let mut said: HashMap<_, _> = url.query_pairs().into_owned().collect();
    let mut said = |name| said.remove(name);
    let (bucket, path) = (said("bucket")?, said("path")?);
    let address = SignedUrl { bucket, path, expires: said("expires")?, signature: said("signature")? };
    files.verify_signed_url(&address).ok()?;
    let (key, row) = files.find_by_path(&address.bucket, &address.path).await.ok()?;
    if *key.owner() != request.user {
        return None;
    }
    Some(load_attachment(files, url, row, bytes_max).await)
}

async fn load_attachment(
    files: &AttachmentStore,
    url: Url,
    row: AttachmentRow,
    bytes_max: usize,
) -> Result<FetchedFile, FetchError> {
    if usize::try_from(row.size_bytes).map_or(true, |bytes| bytes > bytes_max) {
        return Err(FetchError::TooLarge);
    }
    let bytes = files.read_bytes(&row).await.map_err(|_| FetchError::Unreachable)?;
    let kind = DocumentFormat::sniff(&bytes, &row.content_type, &row.name)?;
    Ok(FetchedFile { url, name: row.name, format: kind, charset: None, bytes })
}
