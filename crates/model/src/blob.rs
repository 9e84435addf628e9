//! How blobs are named: `/v1/blobs/{sha-256}`. Who may read one, and where its bytes are, is others' business.

/// How the address of a blob begins; the SHA-256 of its bytes follows, in hex.
pub const BLOBS: &str = "/v1/blobs/";

/// How many hex digits a hash has.
pub const HASH_DIGITS: usize = 64;

/// Where the bytes with this hash are.
#[must_use]
pub fn address(hash: &str) -> String {
    format!("{BLOBS}{hash}")
}

/// The hash in the address of a blob.
#[must_use]
pub fn hash_in(address: &str) -> Option<&str> {
    address.strip_prefix(BLOBS).filter(|hash| is_hash(hash))
}

/// Is this a SHA-256, written as we write it?
#[must_use]
pub fn is_hash(text: &str) -> bool {
    text.len() == HASH_DIGITS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_written_in_one_way() {
        let hash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(hash_in(&address(hash)), Some(hash));
        for no in [hash.to_uppercase(), format!("{hash}0"), String::new(), "g".repeat(64), "é".repeat(32)] {
            assert_eq!(hash_in(&address(&no)), None, "{no}");
        }
        assert_eq!(hash_in(hash), None);
    }
}
