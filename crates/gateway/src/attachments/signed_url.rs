//! Signed URLs that the server issues itself, for file stores that cannot presign.

use super::AttachmentStore;
use crate::rejection::Rejection;
use files::FileKey;
use model::error::ErrorCode;

pub const RAW_ATTACHMENT_PATH: &str = "/api/v1/agent/attachments/raw";
/// Upper limit on a URL's lifetime, even if its signature allows more.
pub const SIGNED_URL_SECONDS_MAX: u64 = 3600;

/// The query parameters of a signed URL.
pub struct SignedUrl {
    pub bucket: String,
    pub path: String,
    pub expires: String,
    pub signature: String,
}

impl AttachmentStore {
    /// Issues a URL under which a file can be downloaded for a while. `base` is the origin that the client reaches.
    pub fn signed_url(&self, base: &str, key: &FileKey) -> String {
        let expires = self.signed_until();
        let (bucket, signature) = (&self.bucket, self.url_signer.sign(&self.bucket, key, expires));
        // `%` is the only character of a path that needs escaping in a query.
        let path = key.as_str().replace('%', "%25");
        format!("{base}{RAW_ATTACHMENT_PATH}?bucket={bucket}&path={path}&expires={expires}&signature={signature}")
    }

    /// Verifies a URL and returns the seconds until it expires.
    pub fn verify_signed_url(&self, url: &SignedUrl) -> Result<u64, Rejection> {
        let SignedUrl { bucket, path, expires, signature } = url;
        let key = self.parse_key(bucket, path)?;
        self.seconds_left(expires, |until| self.url_signer.verify(bucket, &key, until, signature))
    }

    /// When a URL that is signed now expires, in seconds since the Unix epoch.
    pub(super) fn signed_until(&self) -> u64 {
        self.clock.now() / 1000 + self.settings.signed_url_lifetime.as_secs()
    }

    /// The seconds until a URL expires, if it was signed with this expiry.
    pub(super) fn seconds_left(&self, expires: &str, is_signed: impl Fn(u64) -> bool) -> Result<u64, Rejection> {
        // Canonical decimal only: `+5` and `05` are the same number in another URL.
        let until = expires.parse::<u64>().ok().filter(|until| until.to_string() == expires);
        let until = until.filter(|until| is_signed(*until)).ok_or_else(SignedUrl::invalid)?;
        match until.saturating_sub(self.clock.now() / 1000) {
            0 => {
                let detail = "the time of this address is up: ask for a new one";
                Err(Rejection::new(ErrorCode::UrlExpired, detail))
            }
            left if left > SIGNED_URL_SECONDS_MAX => Err(SignedUrl::invalid()),
            left => Ok(left),
        }
    }
}

impl SignedUrl {
    pub fn invalid() -> Rejection {
        let detail = "this address was not given out by the server, or was altered";
        Rejection::new(ErrorCode::UrlNotValid, detail)
    }
}
