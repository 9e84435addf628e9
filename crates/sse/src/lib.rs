//! The one codec of server-sent events, in both directions.
//!
//! The rules are those of the WHATWG HTML standard, section "Server-sent events". [`Decoder`] reads a stream in chunks
//! of any size, one event at a time, within [`Limits`]. The functions [`frame`], [`position`], [`retry`] and
//! [`comment`] each give one whole frame in one buffer, so that one frame is one write.
//!
//! What `data` means (JSON, `[DONE]`), what an id means (a cursor) and when to reconnect is for the dialects and their
//! callers. Nothing here reads or writes a socket.

mod decode;
mod encode;

pub use decode::{DecodeError, DecodeLimits, Decoder, SseEvent};
pub use encode::{keep_alive_comment, write_event, write_id, write_retry};

/// Where the first byte is for which `wanted` holds.
///
/// Both directions look at every byte of every event here, and almost always in vain. A block is asked as a whole,
/// without a branch per byte, so that the compiler can use vector instructions. Keep `wanted` to one or two comparisons:
/// with three the loop was measured to be several times slower.
fn find_byte(bytes: &[u8], wanted: impl Fn(u8) -> bool) -> Option<usize> {
    const BLOCK_BYTES: usize = 32;
    let (blocks, _) = bytes.as_chunks::<BLOCK_BYTES>();
    let clean_blocks = blocks
        .iter()
        .take_while(|block| block.iter().fold(0, |hits, byte| hits | u8::from(wanted(*byte))) == 0)
        .count();
    let clean = clean_blocks * BLOCK_BYTES;
    let at = bytes.get(clean..)?.iter().position(|byte| wanted(*byte))?;
    Some(clean + at)
}

/// Where the first line ends.
fn find_line_end(bytes: &[u8]) -> Option<usize> {
    find_byte(bytes, |byte| byte == b'\n' || byte == b'\r')
}
