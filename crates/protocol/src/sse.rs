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

pub use decode::{DecodeError, Decoder, Event, Limits};
pub use encode::{comment, frame, position, retry};

/// Where the first byte is for which `wanted` holds.
///
/// Both directions look at every byte of every event here, and almost always in vain. A whole block is asked without a
/// branch per byte, which the compiler turns into vector instructions.
fn find(bytes: &[u8], wanted: impl Fn(u8) -> bool) -> Option<usize> {
    const BLOCK_BYTES: usize = 32;
    let clean_blocks = bytes
        .chunks_exact(BLOCK_BYTES)
        .take_while(|block| !block.iter().fold(false, |hit, byte| hit | wanted(*byte)))
        .count();
    let clean = clean_blocks * BLOCK_BYTES;
    let at = bytes.get(clean..)?.iter().position(|byte| wanted(*byte))?;
    Some(clean + at)
}
