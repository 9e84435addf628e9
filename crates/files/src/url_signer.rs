//! Signed URLs: a signature over all parts of the URL, with a key that stays in the data folder, or in the database that
//! several servers share.
//!
//! No clock: the expiry is part of what is signed, and the caller compares it with the time.

use crate::file_key::FileKey;
use hmac::{Hmac, KeyInit as _, Mac};
use model::UserId;
use sha2::Sha256;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

const KEY_BYTES: usize = 32;
const OWNER_ONLY: u32 = 0o600;

#[derive(Clone)]
pub struct UrlSigner {
    key: [u8; KEY_BYTES],
}

#[derive(Debug, thiserror::Error)]
pub enum UrlSignerError {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The file does not hold a key.
    #[error("the key file does not hold {KEY_BYTES} bytes: remove it, which invalidates all signed URLs")]
    Damaged,
    #[error("no randomness: {0}")]
    Random(getrandom::Error),
}

impl std::fmt::Debug for UrlSigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UrlSigner")
    }
}

impl UrlSigner {
    /// Uses a key that is stored elsewhere; `None` if it has the wrong length.
    pub fn from_key(key: &[u8]) -> Option<Self> {
        Some(Self { key: key.try_into().ok()? })
    }

    /// A new random key.
    pub fn generate_key() -> Result<Vec<u8>, UrlSignerError> {
        let mut key = [0; KEY_BYTES];
        getrandom::fill(&mut key).map_err(UrlSignerError::Random)?;
        Ok(key.to_vec())
    }

    /// Reads the key at this path, or creates one. Blocking.
    pub fn load_or_create(path: &Path) -> Result<Self, UrlSignerError> {
        match File::open(path) {
            Ok(file) => {
                let mut text = Vec::new();
                file.take(KEY_BYTES as u64 + 1).read_to_end(&mut text)?;
                let key = text.try_into().map_err(|_| UrlSignerError::Damaged)?;
                Ok(Self { key })
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Self::create(path),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes a temporary file and renames it, so that a crash leaves no partial key.
    fn create(path: &Path) -> Result<Self, UrlSignerError> {
        let key = Self::generate_key()?;
        let temporary = path.with_extension("new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(OWNER_ONLY).open(&temporary)?;
        file.write_all(&key)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            File::open(folder)?.sync_all()?;
        }
        Self::from_key(&key).ok_or(UrlSignerError::Damaged)
    }

    pub fn sign(&self, bucket: &str, key: &FileKey, expires: u64) -> String {
        let mac = self.mac(bucket, key, expires);
        mac.map(|mac| hex(&mac.finalize().into_bytes())).unwrap_or_default()
    }

    /// Verifies a signature in constant time.
    pub fn verify(&self, bucket: &str, key: &FileKey, expires: u64, signature: &str) -> bool {
        let (Some(mac), Some(signature)) = (self.mac(bucket, key, expires), decode_hex(signature)) else {
            return false;
        };
        mac.verify_slice(&signature).is_ok()
    }

    /// Signs access to a blob as this user sees it.
    pub fn sign_blob(&self, user: &UserId, hash: &str, expires: u64) -> String {
        let mac = self.blob_mac(user, hash, expires);
        mac.map(|mac| hex(&mac.finalize().into_bytes())).unwrap_or_default()
    }

    /// Verifies the signature of [`Self::sign_blob`] in constant time.
    pub fn verify_blob(&self, user: &UserId, hash: &str, expires: u64, signature: &str) -> bool {
        let (Some(mac), Some(signature)) = (self.blob_mac(user, hash, expires), decode_hex(signature)) else {
            return false;
        };
        mac.verify_slice(&signature).is_ok()
    }

    /// Signs a text that a client keeps and sends back as this user.
    pub fn sign_text(&self, user: &UserId, text: &str) -> String {
        let mac = self.text_mac(user, text);
        mac.map(|mac| hex(&mac.finalize().into_bytes())).unwrap_or_default()
    }

    /// Verifies the signature of [`Self::sign_text`] in constant time.
    pub fn verify_text(&self, user: &UserId, text: &str, signature: &str) -> bool {
        let (Some(mac), Some(signature)) = (self.text_mac(user, text), decode_hex(signature)) else {
            return false;
        };
        mac.verify_slice(&signature).is_ok()
    }

    fn text_mac(&self, user: &UserId, text: &str) -> Option<Hmac<Sha256>> {
        // Unambiguous: the name of a user has no line breaks, and no signed URL begins like this.
        self.mac_of(&format!("TEXT\n{user}\n{text}"))
    }

    fn mac(&self, bucket: &str, key: &FileKey, expires: u64) -> Option<Hmac<Sha256>> {
        // Unambiguous: a path has no line breaks, and a number follows the last one.
        self.mac_of(&format!("GET\n{bucket}\n{}\n{expires}", key.as_str()))
    }

    fn blob_mac(&self, user: &UserId, hash: &str, expires: u64) -> Option<Hmac<Sha256>> {
        // Unambiguous, because only the last part may have line breaks. No path of a file is a hash, so the signature of
        // a blob is none of a file.
        self.mac_of(&format!("GET\nblobs\n{hash}\n{expires}\n{user}"))
    }

    fn mac_of(&self, text: &str) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).ok()?;
        mac.update(text.as_bytes());
        Some(mac)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Accepts lower-case hex only.
fn decode_hex(signature: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    signature.as_bytes().chunks(2).map(pair).collect()
}
