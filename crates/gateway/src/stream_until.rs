//! Where a stream of a task ends, and what is inserted into its frames. No frame is parsed.

use bytes::Bytes;
use memchr::memmem;

/// Where a stream of a task ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamUntil {
    /// With the task.
    #[default]
    End,
    /// After the next `run_paused`, or with the task.
    Pause,
}

/// Inserts frames after the first one.
pub fn insert_after_first_frame(frames: &Bytes, inserted: &Bytes) -> Bytes {
    let first = memmem::find(frames, FRAME_END).map_or(frames.len(), |end| end + FRAME_END.len());
    let (first, rest) = frames.split_at(first);
    [first, inserted, rest].concat().into()
}

/// The frame of a pause. No data has a line break.
const PAUSE_FRAME: &[u8] = b"\nevent: run_paused\n";
const FRAME_END: &[u8] = b"\n\n";

impl StreamUntil {
    /// Where in these frames the stream ends, if it ends before the task.
    pub fn find_end(self, frames: &[u8]) -> Option<usize> {
        if self == Self::End {
            return None;
        }
        let (_, rest) = frames.split_at_checked(memmem::find(frames, PAUSE_FRAME)?)?;
        let length = memmem::find(rest, FRAME_END).map_or(rest.len(), |end| end + FRAME_END.len());
        Some(frames.len() - rest.len() + length)
    }
}
