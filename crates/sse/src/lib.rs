//! Encoder and decoder for server-sent events.
//!
//! The rules are those of the WHATWG HTML standard, section "Server-sent events". [`Decoder`] reads a stream in chunks of
//! any size, one event at a time, within [`DecodeLimits`]. [`write_event`], [`write_event_with`], [`write_id`],
//! [`write_retry`] and [`keep_alive_comment`] each produce one complete frame in one buffer, so that one frame is one write.
//!
//! The callers decide what `data` and ids mean and when to reconnect. Nothing here reads or writes a socket.

mod decode;
mod encode;

pub use decode::{DecodeError, DecodeLimits, Decoder, SseEvent};
pub use encode::{
    keep_alive_comment, write_comment, write_event, write_event_with, write_id, write_json_event, write_retry,
};

/// The position of the first byte for which `wanted` holds.
///
/// Both directions scan every byte of every event here, and rarely find one. Testing a block at a time, without a branch
/// per byte, lets the compiler use vector instructions. Keep `wanted` to one or two comparisons: with three, the loop was
/// measured to be several times slower.
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

fn find_line_end(bytes: &[u8]) -> Option<usize> {
    find_byte(bytes, |byte| byte == b'\n' || byte == b'\r')
}
