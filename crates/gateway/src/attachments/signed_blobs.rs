//! Signed URLs of blobs, for clients that cannot send a key with every request, such as an `<img>`.
//!
//! Records and frames have `/v1/blobs/{hash}`. The connection of one client adds the signature when it sends them, so that
//! shared frames never contain one.

use super::AttachmentStore;
use crate::attachments::inline_images::has_blob_url;
use crate::rejection::Rejection;
use bytes::{Bytes, BytesMut};
use memchr::memmem;
use model::UserId;
use model::blob::{BLOB_URL_PREFIX, blob_hash};
use model::ports::{Directory, StoreError};
use std::sync::Arc;
use url::form_urlencoded;

/// The form in which a response has blob URLs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlobUrls {
    /// As in the log; the client sends its key.
    #[default]
    Plain,
    /// With a signature that replaces the key for a while.
    Signed,
}

/// What the query of a signed blob URL says.
pub struct SignedBlobUrl<'a> {
    pub hash: &'a str,
    pub user: &'a UserId,
    pub expires: &'a str,
    pub signature: &'a str,
}

impl AttachmentStore {
    fn signed_blob_query(&self, user: &UserId, hash: &str) -> String {
        let expires = self.signed_until();
        let signature = self.url_signer.sign_blob(user, hash, expires);
        let user: String = form_urlencoded::byte_serialize(user.as_str().as_bytes()).collect();
        format!("?user={user}&expires={expires}&signature={signature}")
    }

    /// Verifies a signed blob URL. Whether the user sees the blob is not checked.
    pub fn verify_signed_blob(&self, url: &SignedBlobUrl<'_>) -> Result<(), Rejection> {
        let SignedBlobUrl { hash, user, expires, signature } = url;
        let is_signed = |until: u64| self.url_signer.verify_blob(user, hash, until, signature);
        self.seconds_left(expires, is_signed).map(drop)
    }
}

/// Signs the blob URLs in what one user is sent.
pub struct BlobUrlSigner {
    /// Scoped to shares: a viewer sees the blobs of the shared thread.
    directory: Arc<dyn Directory>,
    attachments: Arc<AttachmentStore>,
    user: UserId,
}

impl BlobUrlSigner {
    pub(crate) fn new(directory: &Arc<dyn Directory>, attachments: &Arc<AttachmentStore>, user: &UserId) -> Self {
        Self { directory: Arc::clone(directory), attachments: Arc::clone(attachments), user: user.clone() }
    }

    /// Signs the URLs in a piece of JSON, each of which is the whole value of a member. A URL inside a text stays, and so
    /// does one that the user may not read. `json` must not end inside a URL.
    pub async fn sign_urls(&self, json: Bytes) -> Result<Bytes, StoreError> {
        if !has_blob_url(&json) {
            return Ok(json);
        }
        let mut out = BytesMut::with_capacity(json.len());
        let mut from = 0;
        for at in memmem::find_iter(&json, BLOB_URL_PREFIX.as_bytes()) {
            let Some(hash) = blob_hash_at(&json, at) else { continue };
            if self.directory.blob(&self.user, None, hash).await?.is_none() {
                continue;
            }
            let end = at + BLOB_URL_PREFIX.len() + hash.len();
            out.extend_from_slice(json.get(from..end).unwrap_or_default());
            out.extend_from_slice(self.attachments.signed_blob_query(&self.user, hash).as_bytes());
            from = end;
        }
        out.extend_from_slice(json.get(from..).unwrap_or_default());
        Ok(out.freeze())
    }
}

/// The hash in the blob URL at `at`, if the URL is a whole JSON string.
fn blob_hash_at(json: &[u8], at: usize) -> Option<&str> {
    let (before, url) = json.split_at_checked(at)?;
    // An escaped quotation mark is part of a text.
    if !before.ends_with(b"\"") || before.ends_with(b"\\\"") {
        return None;
    }
    let (url, _) = url.split_at_checked(memchr::memchr(b'"', url)?)?;
    blob_hash(std::str::from_utf8(url).ok()?)
}

/// Removes the signature from a blob URL that a client sends back.
pub(super) fn strip_blob_signature(url: &mut String) {
    if url.starts_with(BLOB_URL_PREFIX)
        && let Some(query) = url.find("?user=")
    {
        url.truncate(query);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_a_whole_value_is_a_blob_url() {
        let url = format!("/v1/blobs/{}", "a".repeat(64));
        let found = |json: &str| {
            let starts = memmem::find_iter(json.as_bytes(), BLOB_URL_PREFIX.as_bytes());
            starts.filter_map(|at| blob_hash_at(json.as_bytes(), at)).count()
        };
        let text = json!({ "url": url }).to_string();
        for (json, count) in [
            (json!({ "url": url, "parts": [url, { "result": url }] }), 3),
            (json!({ "text": format!("see {url}") }), 0),
            (json!({ "text": format!("{url} is it") }), 0),
            (json!({ "text": text }), 0),
            (json!({ "url": format!("{url}0") }), 0),
            (json!({ "url": format!("{url}?user=ann") }), 0),
        ] {
            assert_eq!(found(&json.to_string()), count, "{json}");
        }
        assert_eq!((found(&url), found("\"/v1/blobs/")), (0, 0));
    }
}
