//! Projections from records to the frames of a client protocol.

use crate::record::Record;
use crate::seq::Seq;
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;

/// Converts records to the frames of one client protocol.
///
/// 1. Frames are a function of the records: no clock, no connection, no randomness (law 4).
/// 2. The frames of a log are a byte prefix of the frames of every longer log (law 4).
/// 3. A clone produces the same frames as the original.
/// 4. No state carries over from one run to the next, so a stream can start at the first record of any run. Without
///    [`Self::needs_history`] it can start at any record.
/// 5. A condensed record ([`crate::condense`]) leaves the projection as its records would, and writes no frame.
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

    /// Whether every frame of a condensed record counts once for each of its records ([`Frames::skip_condensed`]), so that
    /// a client that counts frames can resume without reading every record.
    fn counts_condensed_frames(&self) -> bool {
        false
    }

    /// Whether no delta has a frame before a record of another kind has come: a projection of a later part of a run can then
    /// be brought there by condensed records.
    fn is_hidden(&self) -> bool {
        false
    }

    /// Clones the projection with its state.
    fn boxed_clone(&self) -> Box<dyn Projection>;
}

/// Frames in one buffer, with the end of every record's frames. Long texts are not in the buffer: they are shared.
#[derive(Debug, Default)]
pub struct Frames {
    bytes: BytesMut,
    /// Not empty for few frames.
    pieces: Vec<FramePiece>,
    ends: Vec<FrameEnd>,
    finished: bool,
    /// Number of frames still to skip: the subscriber has them.
    skip: u64,
}

/// A long text of a frame.
#[derive(Clone, Debug)]
pub struct FramePiece {
    /// The offset in the buffer where it belongs.
    pub at: usize,
    pub text: Bytes,
}

/// A part of consecutive frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameBytes {
    /// Frames, or what is around the long texts of a frame.
    Frames(Bytes),
    /// A long text of a frame, as JSON without quotes.
    Text(Bytes),
}

impl FrameBytes {
    pub fn into_bytes(self) -> Bytes {
        let (Self::Frames(bytes) | Self::Text(bytes)) = self;
        bytes
    }
}

impl AsRef<[u8]> for FrameBytes {
    fn as_ref(&self) -> &[u8] {
        let (Self::Frames(bytes) | Self::Text(bytes)) = self;
        bytes
    }
}

/// The end of a record's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameEnd {
    pub seq: Seq,
    /// The offset after its last frame, pieces included.
    pub end: usize,
}

/// Upper estimate of the bytes that framing adds to a record.
const FRAME_OVERHEAD_BYTES: usize = 160;
/// Frames are kept for viewers that are late. A buffer with more room than this, and than half of its content, is replaced by
/// one without.
const SPARE_BYTES_MAX: usize = 4 * 1024;

impl Frames {
    /// Reserves capacity for the frames of these records: a buffer that grows could hold twice what it needs.
    pub fn for_records<'a>(records: impl IntoIterator<Item = &'a Record>) -> Self {
        let size = |(count, bytes): (usize, usize), record: &Record| {
            (count + 1, bytes + record.public.len() + FRAME_OVERHEAD_BYTES)
        };
        let (count, bytes) = records.into_iter().fold((0, 0), size);
        Self { bytes: BytesMut::with_capacity(bytes), ends: Vec::with_capacity(count), ..Self::default() }
    }

    /// Skips the first `skip` frames.
    #[must_use]
    pub const fn with_skip(mut self, skip: u64) -> Self {
        self.skip = skip;
        self
    }

    /// For a projection that is only brought to a position: no frame is written.
    pub fn discarded() -> Self {
        Self::default().with_skip(u64::MAX)
    }

    /// Skips the frames of a condensed record's records: a condensed record is never shown.
    pub const fn skip_condensed(&mut self, frames: u64) {
        self.skip = self.skip.saturating_sub(frames);
    }

    /// The number of frames still to skip.
    pub const fn remaining_skip(&self) -> u64 {
        self.skip
    }

    /// Appends a frame of the record at `seq`, unless it is skipped.
    pub fn write(&mut self, seq: Seq, write: impl FnOnce(&mut BytesMut)) {
        self.write_in_pieces(seq, |bytes, _| write(bytes));
    }

    /// Like [`Self::write`], for a frame with long texts. They are added in their order.
    pub fn write_in_pieces(&mut self, seq: Seq, write: impl FnOnce(&mut BytesMut, &mut Vec<FramePiece>)) {
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        write(&mut self.bytes, &mut self.pieces);
        let end = self.len();
        match self.ends.last_mut() {
            Some(last) if last.seq == seq => last.end = end,
            _ => self.ends.push(FrameEnd { seq, end }),
        }
    }

    /// Reserves room for a frame that is known to be long, unless it is skipped: a buffer that grows step by step copies a
    /// long frame several times.
    pub fn reserve(&mut self, bytes: usize) {
        if self.skip == 0 {
            self.bytes.reserve(bytes);
        }
    }

    /// Inserts text at this offset of the buffer, in the last record's frames: a frame may depend on whether another one
    /// follows.
    pub fn insert(&mut self, at: usize, text: &[u8]) {
        let Some(last) = self.ends.last_mut() else { return };
        self.bytes.extend_from_slice(text);
        last.end += text.len();
        let moved = self.bytes.get_mut(at..).unwrap_or_default();
        moved.rotate_right(text.len().min(moved.len()));
        for piece in self.pieces.iter_mut().filter(|piece| piece.at >= at) {
            piece.at += text.len();
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

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.bytes.len() + self.pieces.iter().map(|piece| piece.text.len()).sum::<usize>()
    }

    /// Whether there is no frame.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes, the ends of the records' frames, and whether the stream has ended. Long texts are copied.
    pub fn into_parts(mut self) -> (Bytes, Vec<FrameEnd>, bool) {
        let (ends, finished) = (std::mem::take(&mut self.ends), self.finished);
        if self.pieces.is_empty() {
            return (freeze_without_spare(self.bytes), ends, finished);
        }
        let mut bytes = Vec::with_capacity(self.len());
        self.into_pieces().iter().for_each(|piece| bytes.extend_from_slice(piece.as_ref()));
        (bytes.into(), ends, finished)
    }

    /// The bytes in consecutive pieces: long texts are not copied.
    pub fn into_pieces(self) -> VecDeque<FrameBytes> {
        let mut rest = freeze_without_spare(self.bytes);
        let (mut pieces, mut start) = (VecDeque::new(), 0);
        for FramePiece { at, text } in self.pieces {
            pieces.extend([FrameBytes::Frames(rest.split_to(at - start)), FrameBytes::Text(text)]);
            start = at;
        }
        pieces.extend(Some(rest).filter(|rest| !rest.is_empty()).map(FrameBytes::Frames));
        pieces
    }
}

fn freeze_without_spare(bytes: BytesMut) -> Bytes {
    let (used, spare) = (bytes.len(), bytes.capacity() - bytes.len());
    if spare > SPARE_BYTES_MAX.max(used / 2) { Bytes::copy_from_slice(&bytes) } else { bytes.freeze() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(pieces: &[(u64, &str)]) -> Frames {
        let mut frames = Frames::default();
        for (seq, text) in pieces {
            frames.write(Seq(*seq), |bytes| bytes.extend_from_slice(text.as_bytes()));
        }
        frames
    }

    #[test]
    fn an_insertion_moves_the_end_of_the_last_record_alone() {
        let mut frames = written(&[(1, "first;"), (2, "id;")]);
        frames.insert("first;id".len(), b".inner");
        frames.write(Seq(2), |bytes| bytes.extend_from_slice(b"last;"));
        let (bytes, ends, _) = frames.into_parts();
        assert_eq!(bytes, "first;id.inner;last;");
        assert_eq!(ends, [FrameEnd { seq: Seq(1), end: 6 }, FrameEnd { seq: Seq(2), end: 20 }]);
    }

    #[test]
    fn long_texts_are_pieces_and_keep_their_places() {
        let long = Bytes::from_static(b"long");
        let written = || {
            let mut frames = written(&[(1, "first;"), (2, "id ")]);
            frames.write_in_pieces(Seq(2), |bytes, pieces| {
                bytes.extend_from_slice(b"<");
                pieces.push(FramePiece { at: bytes.len(), text: long.clone() });
                bytes.extend_from_slice(b">");
            });
            frames.insert("first;id".len(), b".inner");
            frames.write_in_pieces(Seq(3), |bytes, pieces| {
                bytes.extend_from_slice(b"[");
                pieces.push(FramePiece { at: bytes.len(), text: long.clone() });
            });
            frames
        };
        assert_eq!(written().len(), "first;id.inner <long>[long".len());
        let (bytes, ends, _) = written().into_parts();
        assert_eq!(bytes, "first;id.inner <long>[long");
        let ends: Vec<_> = ends.iter().map(|end| (end.seq.0, end.end)).collect();
        assert_eq!(ends, [(1, 6), (2, 21), (3, 26)]);
        let (text, frames) = (FrameBytes::Text(long.clone()), |text| FrameBytes::Frames(Bytes::from_static(text)));
        let pieces = written().into_pieces();
        assert_eq!(pieces, [frames(b"first;id.inner <"), text.clone(), frames(b">["), text]);
        assert_eq!(pieces[1].as_ref().as_ptr(), long.as_ptr());
        assert!(Frames::default().into_pieces().is_empty());
    }

    #[test]
    fn frames_do_not_keep_a_buffer_that_is_mostly_empty() {
        let mut frames = written(&[(1, "short")]);
        frames.bytes.reserve(10 * SPARE_BYTES_MAX);
        let (bytes, ..) = frames.into_parts();
        assert_eq!(bytes, "short");
        let capacity = bytes.try_into_mut().map(|bytes| bytes.capacity());
        assert!(capacity.is_ok_and(|capacity| capacity <= SPARE_BYTES_MAX), "the spare room is given back");
    }
}
