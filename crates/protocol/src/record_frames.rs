//! The frames of one record on their way out.
//!
//! A projection may make several frames of one record, and a client may leave after any of them. The last one carries the
//! record's own cursor, good in every projection; those before it carry a place inside the record, good in their own.

use model::cursor::{Cursor, CursorError, FramePosition};
use model::ports::Frames;
use model::{Record, Seq};
use serde::Serialize;
use sse;

/// The frames of one record.
#[derive(Debug, Default)]
pub struct RecordFrames {
    frames: Vec<(String, String)>,
}

impl RecordFrames {
    /// One more frame: its type and its data.
    pub fn push(&mut self, kind: &str, data: &impl Serialize) {
        // Data are maps with text keys and finite numbers: they can always be written.
        let data = serde_json::to_string(data).unwrap_or_default();
        self.frames.push((kind.to_owned(), data));
    }

    /// How many frames there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Are there none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// As server-sent events with `id`, `event` and `data`, for clients that resume by id.
    pub fn write_with_ids(self, record: &Record, projection: &str, out: &mut Frames) {
        let last = self.frames.len();
        for (place, (kind, data)) in self.frames.into_iter().enumerate() {
            let id = frame_cursor(record, projection, place + 1, last);
            out.write(record.seq, |bytes| sse::write_event(bytes, Some(&id), Some(&kind), &data));
        }
    }

    /// As server-sent events without `id`, for clients that count by themselves.
    pub fn write_without_ids(self, record: &Record, out: &mut Frames) {
        for (kind, data) in self.frames {
            out.write(record.seq, |bytes| sse::write_event(bytes, None, Some(&kind), &data));
        }
    }

    /// As lines of JSON, each an object that gets its `cursor` as last member.
    pub fn write_json_lines(self, record: &Record, projection: &str, out: &mut Frames) {
        let last = self.frames.len();
        for (place, (_, data)) in self.frames.into_iter().enumerate() {
            let id = frame_cursor(record, projection, place + 1, last);
            let body = data.strip_suffix('}').unwrap_or("{");
            let comma = if body.ends_with('{') { "" } else { "," };
            out.write(record.seq, |bytes| {
                for piece in [body, comma, "\"cursor\":\"", &id, "\"}\n"] {
                    bytes.extend_from_slice(piece.as_bytes());
                }
            });
        }
    }
}

/// The place after the `frames`-th of a record's frames, of which there are `all`.
fn frame_cursor(record: &Record, projection: &str, frames: usize, all: usize) -> String {
    let inner = (frames < all).then(|| FramePosition {
        projection: projection.to_owned(),
        frames: u32::try_from(frames).unwrap_or(u32::MAX),
    });
    let mut text = String::new();
    Cursor { frame: inner, ..Cursor::from(record) }.push_to(&mut text);
    text
}

/// Where a reader of a projection goes on: after which record, and how many frames after that it has already.
///
/// # Errors
/// When the cursor stands inside a record, between two frames of another projection.
pub fn resume_position(cursor: &Cursor, projection: &str) -> Result<(Seq, u64), CursorError> {
    match &cursor.frame {
        None => Ok((cursor.seq, 0)),
        Some(inner) if inner.projection == projection => Ok((cursor.seq.prev(), u64::from(inner.frames))),
        Some(_) => Err(CursorError::Mismatch),
    }
}
