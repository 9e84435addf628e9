//! Seals what the store keeps: AES-256-GCM with a random nonce, bound to the key of the row.

use super::error::AuthorizationError;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use model::ports::SecretKey;
use std::fmt;

const KEY_BYTES: usize = 32;
/// The first byte of what is sealed this way.
const FORMAT: u8 = 1;

/// The key that seals users' tokens. Nothing prints it.
#[derive(Clone)]
pub struct SealingKey([u8; KEY_BYTES]);

impl SealingKey {
    /// `None` if it has not 32 bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(Self(bytes.try_into().ok()?))
    }

    /// `None` if it is not 64 digits of hex.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.len() != 2 * KEY_BYTES || !text.is_ascii() {
            return None;
        }
        let digits: Option<Vec<u8>> = text.chars().map(|digit| u8::try_from(digit.to_digit(16)?).ok()).collect();
        let bytes: Vec<u8> =
            digits?.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect();
        Self::from_bytes(&bytes)
    }

    fn cipher(&self) -> Option<LessSafeKey> {
        Some(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &self.0).ok()?))
    }

    /// Encrypts a text that is stored under this key.
    pub(super) fn seal(&self, row: &SecretKey, plain: &[u8]) -> Result<Vec<u8>, AuthorizationError> {
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).map_err(|_| AuthorizationError::NoRandomness)?;
        let mut text = plain.to_vec();
        let cipher = self.cipher().ok_or(AuthorizationError::NoRandomness)?;
        cipher
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(row_text(row)), &mut text)
            .map_err(|_| AuthorizationError::NoRandomness)?;
        Ok([&[FORMAT], nonce.as_slice(), &text].concat())
    }

    /// `None` if it was sealed with another key or for another row, or is damaged.
    pub(super) fn open(&self, row: &SecretKey, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, text) = sealed.strip_prefix(&[FORMAT])?.split_first_chunk::<NONCE_LEN>()?;
        let mut text = text.to_vec();
        let cipher = self.cipher()?;
        let opened = cipher.open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(row_text(row)), &mut text);
        opened.ok().map(|plain| plain.to_vec())
    }
}

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealingKey")
    }
}

/// Unambiguous: lengths separate the parts.
fn row_text(row: &SecretKey) -> String {
    let (owner, kind) = (row.owner.as_str(), row.kind.as_str());
    format!("{}:{owner}{}:{kind}{}", owner.len(), kind.len(), row.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::UserId;
    use model::ports::SecretKind;

    fn row(owner: &str, name: &str) -> SecretKey {
        SecretKey { owner: UserId::from(owner), kind: SecretKind::McpToken, name: name.to_owned() }
    }

    #[test]
    fn what_is_sealed_opens_with_its_key_in_its_row_only() {
        let key = SealingKey::from_bytes(&[7; 32]).unwrap();
        let sealed = key.seal(&row("ann", "files"), b"the token").unwrap();
        assert_eq!(key.open(&row("ann", "files"), &sealed).unwrap(), b"the token");
        assert!(!sealed.windows(9).any(|part| part == b"the token"));
        assert_ne!(key.seal(&row("ann", "files"), b"the token").unwrap(), sealed, "no nonce is used twice");
        for other in [row("ben", "files"), row("ann", "file"), row("annm", "files")] {
            assert_eq!(key.open(&other, &sealed), None, "{other:?}");
        }
        assert_eq!(SealingKey::from_bytes(&[8; 32]).unwrap().open(&row("ann", "files"), &sealed), None);
        for at in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[at] ^= 1;
            assert_eq!(key.open(&row("ann", "files"), &damaged), None, "byte {at}");
        }
        assert_eq!(key.open(&row("ann", "files"), b""), None);
        assert_eq!(key.open(&row("ann", "files"), &sealed[..10]), None);
        assert_eq!(format!("{key:?}"), "SealingKey");
    }

    #[test]
    fn a_key_is_32_bytes_or_64_digits() {
        let hex = "00ff".repeat(16);
        let key = SealingKey::from_hex(&format!("{hex}\n")).unwrap();
        assert_eq!(key.0[..4], [0, 255, 0, 255]);
        for wrong in [String::new(), hex[1..].to_owned(), format!("{hex}00"), "é".repeat(32), "g".repeat(64)] {
            assert!(SealingKey::from_hex(&wrong).is_none(), "{wrong}");
        }
        assert!(SealingKey::from_bytes(&[0; 31]).is_none());
    }
}
