//! URLs of blobs: `/v1/blobs/{sha-256}`. Access control and storage live elsewhere.

/// Followed by the SHA-256 of the blob in lower-case hex.
pub const BLOB_URL_PREFIX: &str = "/v1/blobs/";

pub const SHA256_HEX_LEN: usize = 64;

#[must_use]
pub fn blob_url(hash: &str) -> String {
    format!("{BLOB_URL_PREFIX}{hash}")
}

/// The hash in a blob's URL.
#[must_use]
pub fn blob_hash(address: &str) -> Option<&str> {
    address.strip_prefix(BLOB_URL_PREFIX).filter(|hash| is_sha256_hex(hash))
}

/// Whether the text is a SHA-256 in lower-case hex.
#[must_use]
pub fn is_sha256_hex(text: &str) -> bool {
    text.len() == SHA256_HEX_LEN && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_has_one_notation() {
        let hash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(blob_hash(&blob_url(hash)), Some(hash));
        for no in [hash.to_uppercase(), format!("{hash}0"), String::new(), "g".repeat(64), "é".repeat(32)] {
            assert_eq!(blob_hash(&blob_url(&no)), None, "{no}");
        }
        assert_eq!(blob_hash(hash), None);
    }
}
