//! An event as it stands on the wire, for whoever reads it.

use model::{Event, Millis, Seq};
use serde::Deserialize;

/// An event with its place and its moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Wire {
    /// What happened; [`Event::Unknown`] when a later version says it.
    pub event: Event,
    /// Its place in the thread.
    pub seq: Seq,
    /// Its moment.
    pub at: Millis,
}

#[derive(Deserialize)]
struct Place {
    seq: Seq,
    at: Millis,
}

/// Reads a frame's data. Unknown fields are ignored and unknown types kept as such; `None` is no event at all.
#[must_use]
pub fn parse(data: &str) -> Option<Wire> {
    let Place { seq, at } = serde_json::from_str(data).ok()?;
    Some(Wire { event: Event::decode(data.as_bytes()), seq, at })
}
