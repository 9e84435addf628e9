//! Secrets that are shown once, and the digests that are stored of them.

use sha2::{Digest as _, Sha256};

const SECRET_BYTES: usize = 32;

/// Generates 256 random bits in hex, after `prefix`.
pub fn generate_secret(prefix: &str) -> Result<String, getrandom::Error> {
    let mut secret = [0; SECRET_BYTES];
    getrandom::fill(&mut secret)?;
    Ok(format!("{prefix}{}", encode_hex(&secret)))
}

/// Tables are keyed by digest, so that the timing of a lookup reveals nothing about the secret.
pub fn secret_digest(secret: &str) -> String {
    sha256_hex(secret.as_bytes())
}

pub fn sha256_hex(bytes: &[u8]) -> String {
    encode_hex(&Sha256::digest(bytes))
}

pub fn encode_hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or_default();
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.extend([digit(byte >> 4), digit(byte & 0xf)]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_two_lowercase_digits() {
        assert_eq!(encode_hex(&[0x00, 0x0f, 0xa0, 0xff]), "000fa0ff");
        assert_eq!(encode_hex(&[]), "");
    }
}
