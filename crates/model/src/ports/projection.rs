//! Projections from records to the frames of a client protocol.

use crate::record::Record;
use crate::seq::Seq;
use bytes::BytesMut;

/// Converts records to the frames of one client protocol.
///
/// 1. Frames are a function of the records: no clock, no connection, no randomness (law 4).
/// 2. The frames of a log are a byte prefix of the frames of every longer log (law 4).
/// 3. A clone produces the same frames as the original.
/// 4. No state carries over from one run to the next, so a stream can start at the first record of any run. Without
///    [`Self::needs_history`] it can start at any record.
///
/// `server` passes projections to the hub, which knows no protocol.
#[warn(missing_docs)]
pub trait Projection: Send {
    /// Appends the frames of the next record to `out`; a record may have none.
    fn project(&mut self, record: &Record, out: &mut Frames);

    /// Whether frames depend on earlier records of the run, so that the projection has to start at its first record.
    fn needs_history(&self) -> bool {
        true
    }

    /// Clones the projection with its state.
    fn boxed_clone(&self) -> Box<dyn Projection>;
}

/// Frames in one buffer, with the end of every record's frames.
#[derive(Debug, Default)]
pub struct Frames {
    bytes: BytesMut,
    ends: Vec<FrameEnd>,
    finished: bool,
    /// Number of frames still to skip: the subscriber has them.
    skip: u64,
}

/// The end of a record's frames in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameEnd {
    pub seq: Seq,
    /// The offset after its last frame.
    pub end: usize,
}

/// Upper estimate of the bytes that framing adds to a record.
const FRAME_OVERHEAD_BYTES: usize = 160;

impl Frames {
    /// Reserves capacity for the frames of these records: a buffer that grows could hold twice what it needs.
    pub fn for_records<'a>(records: impl IntoIterator<Item = &'a Record>) -> Self {
        let size = |(count, bytes): (usize, usize), record: &Record| {
            (count + 1, bytes + record.public.len() + FRAME_OVERHEAD_BYTES)
        };
        let (count, bytes) = records.into_iter().fold((0, 0), size);
        Self { bytes: BytesMut::with_capacity(bytes), ends: Vec::with_capacity(count), finished: false, skip: 0 }
    }

    /// Skips the first `skip` frames.
    #[must_use]
    pub const fn with_skip(mut self, skip: u64) -> Self {
        self.skip = skip;
        self
    }

    /// The number of frames still to skip.
    pub const fn remaining_skip(&self) -> u64 {
        self.skip
    }

    /// Appends a frame of the record at `seq`, unless it is skipped.
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

    /// Marks the end of the stream: no frame follows.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Whether the stream has ended.
    pub const fn is_finished(&self) -> bool {
        self.finished
    }

    /// The number of bytes in the buffer.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the buffer is empty.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes, the ends of the records' frames, and whether the stream has ended.
    pub fn into_parts(self) -> (bytes::Bytes, Vec<FrameEnd>, bool) {
        (self.bytes.freeze(), self.ends, self.finished)
    }
}
