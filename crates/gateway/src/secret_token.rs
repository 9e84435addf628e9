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
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
