//! The check of the fuzz target `sse`: the chunks of a stream do not affect the decoded events.
//!
//! Stable Rust with no dependency but the crate under test, because `cargo test -p sse` includes this file.

use sse::{DecodeError, DecodeLimits, Decoder, SseEvent};

/// Small enough for short inputs to reach.
const TIGHT: DecodeLimits = DecodeLimits { line_bytes_max: 24, event_bytes_max: 32 };

/// Every offset up to this is tried as a split; more would be quadratic.
const CUTS_MAX: usize = 256;

/// Everything that a decoder reports about a stream.
#[derive(Debug, PartialEq)]
struct Read {
    events: Vec<SseEvent>,
    last_event_id: Option<String>,
    retry_ms: Option<u64>,
    failure: Option<DecodeError>,
}

/// Decodes `bytes` as one chunk, byte by byte, in uneven chunks and in two chunks, and compares the results.
pub(crate) fn any_split_gives_the_same_events(bytes: &[u8]) {
    for limits in [DecodeLimits::default(), TIGHT] {
        let whole = read(limits, [bytes]);
        for event in &whole.events {
            assert!(event.data.len() <= limits.event_bytes_max && !event.data.contains('\r'), "{event:?}");
        }
        assert_eq!(read(limits, bytes.chunks(1)), whole, "byte by byte, {limits:?}");
        assert_eq!(read(limits, uneven(bytes)), whole, "in uneven chunks, {limits:?}");
        for at in 0..=bytes.len().min(CUTS_MAX) {
            let (head, tail) = bytes.split_at(at);
            assert_eq!(read(limits, [head, tail]), whole, "split at {at}, {limits:?}");
        }
    }
}

fn read<'a>(limits: DecodeLimits, chunks: impl IntoIterator<Item = &'a [u8]>) -> Read {
    let mut decoder = Decoder::new(limits);
    let mut events = Vec::new();
    let failure = chunks.into_iter().try_for_each(|mut rest| {
        while let Some(event) = decoder.decode(&mut rest)? {
            events.push(event);
        }
        Ok(())
    });
    Read {
        events,
        last_event_id: decoder.last_event_id().map(str::to_owned),
        retry_ms: decoder.retry_ms(),
        failure: failure.err(),
    }
}

/// Chunks of one to seven bytes. The first byte of a chunk sets its size, so that the fuzzer can choose the splits.
fn uneven(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let first = rest.first()?;
        let (chunk, after) = rest.split_at(rest.len().min(usize::from(first % 7) + 1));
        rest = after;
        Some(chunk)
    })
}
