//! Records → one client protocol's frames.

use crate::record::Record;
use crate::seq::Seq;
use bytes::BytesMut;

/// Records → one client protocol's frames.
///
/// 1. Frames come from records alone: no clock, no connection, no chance (law 4).
/// 2. The frames of a longer log begin with the frames of a shorter one, byte for byte (law 4).
/// 3. A copy goes on exactly as the original would.
/// 4. It starts anew with each run, unless it says that it needs no history at all.
///
/// The hub holds projections without knowing which: `server` hands them in.
pub trait Projection: Send {
    /// Turns the next record into frames, or into none.
    fn project(&mut self, record: &Record, out: &mut Frames);

    /// Must it have seen its run from the beginning? A projection whose frames depend on one record alone need not.
    fn needs_history(&self) -> bool {
        true
    }

    /// A copy that goes on from the same place.
    fn boxed_clone(&self) -> Box<dyn Projection>;
}

/// Frames in one piece of memory, and where each ends.
#[derive(Debug, Default)]
pub struct Frames {
    bytes: BytesMut,
    ends: Vec<FrameEnd>,
    finished: bool,
    /// So many frames are not wanted: whoever asks has them.
    skip: u64,
}

/// Where a record's frames end in the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameEnd {
    /// The record.
    pub seq: Seq,
    /// The first byte after its frames.
    pub end: usize,
}

/// What a frame adds to its record's bytes, generously.
const FRAME_OVERHEAD_BYTES: usize = 160;

impl Frames {
    /// Room for the frames of these records, so that they do not take twice what they need while somebody holds them.
    #[must_use]
    pub fn for_records(records: &[Record]) -> Self {
        let bytes = records.iter().map(|record| record.public.len() + FRAME_OVERHEAD_BYTES).sum();
        Self {
            bytes: BytesMut::with_capacity(bytes),
            ends: Vec::with_capacity(records.len()),
            finished: false,
            skip: 0,
        }
    }

    /// The same without the first `skip` frames.
    #[must_use]
    pub const fn with_skip(mut self, skip: u64) -> Self {
        self.skip = skip;
        self
    }

    /// How many frames are still to be left out.
    #[must_use]
    pub const fn remaining_skip(&self) -> u64 {
        self.skip
    }

    /// Adds one frame of the record at `seq`.
    pub fn write(&mut self, seq: Seq, write: impl FnOnce(&mut BytesMut)) {
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        write(&mut self.bytes);
        let end = self.bytes.len();
        match self.ends.last_mut() {
            Some(last) if last.seq == seq => last.end = end,
            _ => self.ends.push(FrameEnd { seq, end }),
        }
    }

    /// Nothing will ever follow: the stream ends here.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Has the stream ended?
    #[must_use]
    pub const fn is_finished(&self) -> bool {
        self.finished
    }

    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Are there none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes, where each record's frames end, and whether the stream ended.
    #[must_use]
    pub fn into_parts(self) -> (bytes::Bytes, Vec<FrameEnd>, bool) {
        (self.bytes.freeze(), self.ends, self.finished)
    }
}
