//! Random texts, and PKCE.

use super::error::AuthorizationError;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

const RANDOM_BYTES: usize = 32;

/// 256 random bits, in characters that URLs need not escape.
pub(super) fn random_text() -> Result<String, AuthorizationError> {
    let mut bytes = [0; RANDOM_BYTES];
    getrandom::fill(&mut bytes).map_err(|_| AuthorizationError::NoRandomness)?;
    Ok(BASE64_URL_SAFE_NO_PAD.encode(bytes))
}

/// The challenge `S256` of a verifier.
pub(super) fn pkce_challenge(verifier: &str) -> String {
    digest_text(verifier)
}

/// The name under which something is stored that must not be found by its text.
pub(super) fn digest_text(text: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7636, appendix B.
    #[test]
    fn a_challenge_is_that_of_the_standard() {
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        assert_eq!(pkce_challenge(verifier), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[test]
    fn a_random_text_is_long_enough_for_a_verifier() {
        let (one, other) = (random_text().unwrap(), random_text().unwrap());
        assert_eq!(one.len(), 43);
        assert_ne!(one, other);
    }
}
