//! The frames of one record, and their cursors.
//!
//! A projection may make several frames of one record, and a client may disconnect after any of them. The last frame has
//! the record's own cursor, which is valid in every projection; the frames before it have a cursor inside the record, which
//! is valid in their own projection only.

use model::cursor::{Cursor, CursorError, FramePosition};
use model::ports::Frames;
use model::{Record, Seq};
use serde::Serialize;
use serde_json::Value;
use sse;

#[derive(Debug, Default)]
pub struct RecordFrames {
    frames: Vec<(String, String)>,
}

impl RecordFrames {
    /// Adds a frame: its event name and its data.
    pub fn push(&mut self, kind: &str, data: &impl Serialize) {
        // The keys are texts and the numbers finite, so this cannot fail.
        let data = serde_json::to_string(data).unwrap_or_default();
        self.frames.push((kind.to_owned(), data));
    }
    pub fn len(&self) -> usize {
        self.frames.len()
    }
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Writes server-sent events with `id`, `event` and `data`, for clients that resume by id.
    pub fn write_with_ids(self, record: &Record, projection: &str, out: &mut Frames) {
        let last = self.frames.len();
        for (index, (kind, data)) in self.frames.into_iter().enumerate() {
            let id = frame_cursor(record, projection, index + 1, last);
            out.write(record.seq, |bytes| sse::write_event(bytes, Some(&id), Some(&kind), &data));
        }
    }

    /// Writes server-sent events without `id`, for clients that resume by count.
    pub fn write_without_ids(self, record: &Record, out: &mut Frames) {
        for (kind, data) in self.frames {
            out.write(record.seq, |bytes| sse::write_event(bytes, None, Some(&kind), &data));
        }
    }

    /// Writes lines of JSON, each an object with its `cursor` as the last member.
    pub fn write_json_lines(self, record: &Record, projection: &str, out: &mut Frames) {
        let last = self.frames.len();
        for (index, (_, data)) in self.frames.into_iter().enumerate() {
            let id = frame_cursor(record, projection, index + 1, last);
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

/// A wire type as a value.
pub(crate) fn to_json_value(object: &impl Serialize) -> Value {
    // The keys are texts and the numbers finite, so this cannot fail.
    serde_json::to_value(object).unwrap_or_default()
}

/// The cursor after `frames` of the `all` frames of a record.
fn frame_cursor(record: &Record, projection: &str, frames: usize, all: usize) -> String {
    let frame = (frames < all).then(|| FramePosition {
        projection: projection.to_owned(),
        frames: u32::try_from(frames).unwrap_or(u32::MAX),
    });
    let mut text = String::new();
    Cursor { frame, ..Cursor::from(record) }.push_to(&mut text);
    text
}

/// The record after which a reader resumes, and the number of frames after it to skip.
pub fn resume_position(cursor: &Cursor, projection: &str) -> Result<(Seq, u64), CursorError> {
    match &cursor.frame {
        None => Ok((cursor.seq, 0)),
        Some(inner) if inner.projection == projection => Ok((cursor.seq.prev(), u64::from(inner.frames))),
        Some(_) => Err(CursorError::Mismatch),
    }
}
