//! Signed URLs of this server in a document request: the file is read from the file store, not fetched over HTTP.

use crate::attachments::{AttachmentStore, RAW_ATTACHMENT_PATH, SignedUrl};
use fetch::{DocumentFormat, FetchError, FetchedFile};
use model::ports::{AttachmentRow, FileReadRequest};
use std::collections::HashMap;
use url::Url;

/// Reads the user's own file that this URL was signed for. Returns `None` if this server did not sign the URL, if it
/// has expired, or if it names another user's file: it is then fetched like any other.
pub(super) async fn read_signed_attachment(
    attachments: &AttachmentStore,
    request: &FileReadRequest,
    bytes_max: usize,
) -> Option<Result<FetchedFile, FetchError>> {
    // The server has several host names; the path is the same under each.
    let url = Url::parse(&request.url).ok().filter(|url| url.path().ends_with(RAW_ATTACHMENT_PATH))?;
    let mut params: HashMap<_, _> = url.query_pairs().into_owned().collect();
    let mut param = |name| params.remove(name);
    let (bucket, path) = (param("bucket")?, param("path")?);
    let signed = SignedUrl { bucket, path, expires: param("expires")?, signature: param("signature")? };
    attachments.verify_signed_url(&signed).ok()?;
    let (key, row) = attachments.find_by_path(&signed.bucket, &signed.path).await.ok()?;
    if *key.owner() != request.user {
        return None;
    }
    Some(load_attachment(attachments, url, row, bytes_max).await)
}

async fn load_attachment(
    attachments: &AttachmentStore,
    url: Url,
    row: AttachmentRow,
    bytes_max: usize,
) -> Result<FetchedFile, FetchError> {
    if usize::try_from(row.size_bytes).map_or(true, |bytes| bytes > bytes_max) {
        return Err(FetchError::TooLarge);
    }
    let bytes = attachments.read_bytes(&row).await.map_err(|_| FetchError::Unreachable)?;
    let format = DocumentFormat::sniff(&bytes, &row.content_type, &row.name)?;
    Ok(FetchedFile { url, name: row.name, format, charset: None, bytes })
}
