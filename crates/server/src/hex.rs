//! Bytes in hex, as digests and secrets are written.

/// Two digits for each byte.
pub(crate) fn encode_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
