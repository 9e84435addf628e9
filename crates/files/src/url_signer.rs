//! Addresses that cannot be altered: a signature over everything that they say, with a key that stays in the data folder.
//!
//! No clock: until when an address is good is part of what is signed, and whoever checks one compares that with the time.

use crate::FileKey;
use hmac::{Hmac, KeyInit as _, Mac};
use sha2::Sha256;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

const KEY_BYTES: usize = 32;
const OWNER_ONLY: u32 = 0o600;

/// What signs addresses.
#[derive(Clone)]
pub struct UrlSigner {
    key: [u8; KEY_BYTES],
}

/// Why there is no seal.
#[derive(Debug, thiserror::Error)]
pub enum UrlSignerError {
    /// The disk.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The file is not what we wrote.
    #[error("it does not hold {KEY_BYTES} bytes: remove it, and addresses that were given out are good no more")]
    Damaged,
    /// The system has no random bytes.
    #[error("no randomness: {0}")]
    Random(getrandom::Error),
}

impl std::fmt::Debug for UrlSigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal")
    }
}

impl UrlSigner {
    /// Reads the key at this path, or makes one. Blocks.
    ///
    /// # Errors
    /// When it is neither there nor can be made.
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

    /// Written beside and renamed, so that a crash leaves no half of a key.
    fn create(path: &Path) -> Result<Self, UrlSignerError> {
        let mut key = [0; KEY_BYTES];
        getrandom::fill(&mut key).map_err(UrlSignerError::Random)?;
        let beside = path.with_extension("new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(OWNER_ONLY).open(&beside)?;
        file.write_all(&key)?;
        file.sync_all()?;
        std::fs::rename(&beside, path)?;
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            File::open(folder)?.sync_all()?;
        }
        Ok(Self { key })
    }

    /// The signature of an address.
    #[must_use]
    pub fn sign(&self, bucket: &str, key: &FileKey, expires: u64) -> String {
        let mac = self.mac(bucket, key, expires);
        mac.map(|mac| hex(&mac.finalize().into_bytes())).unwrap_or_default()
    }

    /// Is this its signature? How long that takes to find out says nothing.
    #[must_use]
    pub fn verify(&self, bucket: &str, key: &FileKey, expires: u64, signature: &str) -> bool {
        let (Some(mac), Some(given)) = (self.mac(bucket, key, expires), decode_hex(signature)) else { return false };
        mac.verify_slice(&given).is_ok()
    }

    fn mac(&self, bucket: &str, key: &FileKey, expires: u64) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).ok()?;
        // A path has no line breaks, and what stands after the last one is a number: this can be read in one way only.
        mac.update(format!("GET\n{bucket}\n{}\n{expires}", key.as_str()).as_bytes());
        Some(mac)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of a signature, written in the one way in which we write it.
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
