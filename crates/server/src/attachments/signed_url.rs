//! Addresses that the server signs itself, where the place for files cannot.

use super::AttachmentStore;
use crate::problem::Problem;
use engine::SystemClock;
use files::FileKey;
use model::error::ErrorCode;
use model::ports::Clock as _;

/// Where such an address leads.
pub(crate) const RAW_ATTACHMENT_PATH: &str = "/api/v1/agent/attachments/raw";
/// No address is good for longer, whatever it says of itself.
pub(crate) const SIGNED_URL_SECONDS_MAX: u64 = 3600;

/// What stands in an address of ours.
pub(crate) struct SignedUrl {
    pub(crate) bucket: String,
    pub(crate) path: String,
    pub(crate) expires: String,
    pub(crate) signature: String,
}

impl AttachmentStore {
    /// An address under which a file can be had for a while. `base` is where we are reached.
    pub(crate) fn signed_url(&self, base: &str, key: &FileKey) -> String {
        let expires = SystemClock.now() / 1000 + self.settings.signed_url_lifetime.as_secs();
        let (bucket, signature) = (&self.bucket, self.url_signer.sign(&self.bucket, key, expires));
        // A path has no character that a query would read otherwise, but `%`.
        let path = key.as_str().replace('%', "%25");
        format!("{base}{RAW_ATTACHMENT_PATH}?bucket={bucket}&path={path}&expires={expires}&signature={signature}")
    }

    /// How many seconds an address is still good for.
    pub(crate) fn verify_signed_url(&self, address: &SignedUrl) -> Result<u64, Problem> {
        let SignedUrl { bucket, path, expires, signature } = address;
        let key = self.parse_key(bucket, path)?;
        // In one way of writing only: `+5` and `05` are the same number and another address.
        let until = expires.parse::<u64>().ok().filter(|until| until.to_string() == *expires);
        let until = until
            .filter(|until| self.url_signer.verify(bucket, &key, *until, signature))
            .ok_or_else(SignedUrl::invalid)?;
        match until.saturating_sub(SystemClock.now() / 1000) {
            0 => {
                let detail = "the time of this address is up: ask for a new one";
                Err(Problem::new(ErrorCode::UrlExpired, detail))
            }
            left if left > SIGNED_URL_SECONDS_MAX => Err(SignedUrl::invalid()),
            left => Ok(left),
        }
    }
}

impl SignedUrl {
    /// What whoever brings something else is told.
    pub(crate) fn invalid() -> Problem {
        let detail = "this address was not given out by the server, or was altered";
        Problem::new(ErrorCode::UrlNotValid, detail)
    }
}
