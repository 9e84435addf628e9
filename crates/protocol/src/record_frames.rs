//! The frames of one record, and their cursors.
//!
//! A projection may make several frames of one record, and a client may disconnect after any of them. The last frame has
//! the record's own cursor, which is valid in every projection; the frames before it have a cursor inside the record, which
//! is valid in their own projection only.

use bytes::BytesMut;
use model::cursor::{Cursor, CursorError, FramePosition};
use model::defects::Defect;
use model::json::{JsonPieces, SHARED_TEXT_BYTES_MIN, SharedJson};
use model::ports::{FramePiece, Frames};
use model::{Record, Seq};
use serde::Serialize;
use serde_json::Value;
use sse;

/// A frame with more text reserves its room.
const LONG_TEXT_BYTES: usize = 32 * 1024;

/// Writes the frames of one record, each straight into the buffer that viewers share.
#[derive(Debug)]
pub struct RecordFrames<'a> {
    record: &'a Record,
    format: FrameFormat,
    out: &'a mut Frames,
    frame_count: u32,
    /// Where the cursor of the last frame ends in the buffer; `None` if the frame has none or was skipped.
    cursor_end: Option<usize>,
}

/// How a frame is encoded, and how its clients state their position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameFormat {
    /// Server-sent events without `id`, for clients that resume by count.
    CountedEvents,
    /// Server-sent events with `id`, `event` and `data`, with the projection's name in cursors.
    EventsWithIds(&'static str),
    /// Server-sent events with `id` and `data`, for clients that read every event alike, with the projection's name in cursors.
    DataWithIds(&'static str),
    /// Lines of JSON, each an object with its `cursor` as the last member, with the projection's name in cursors.
    JsonLines(&'static str),
}

impl<'a> RecordFrames<'a> {
    pub fn new(record: &'a Record, format: FrameFormat, out: &'a mut Frames) -> Self {
        Self { record, format, out, frame_count: 0, cursor_end: None }
    }

    /// The frames that each one stands for: more than one if the record is a condensed one.
    pub(crate) fn frames_per_event(&self) -> u64 {
        if Defect::MergedDeltaCountsOnce.is_planted() { 1 } else { self.record.record_count() }
    }

    /// Adds a frame: its event name and its data.
    pub fn push(&mut self, kind: &str, data: &impl Serialize) {
        self.push_with(kind, |out, _| write_json(out, data));
    }

    /// Adds a frame whose data `write_data` appends as JSON.
    pub(crate) fn push_written(&mut self, kind: &str, write_data: impl FnOnce(&mut BytesMut)) {
        self.push_with(kind, |out, _| write_data(out));
    }

    /// Adds a frame of [`FrameFormat::CountedEvents`] whose data `write_data` appends as JSON.
    pub(crate) fn push_counted(&mut self, kind: &'static str, write_data: impl FnOnce(&mut BytesMut)) {
        debug_assert_eq!(self.format, FrameFormat::CountedEvents);
        if self.record.record_count() > 1 {
            return self.out.skip_condensed(self.frames_per_event());
        }
        self.frame_count = self.frame_count.saturating_add(1);
        self.out.write(self.record.seq, |out| sse::write_json_event(out, kind, write_data));
    }

    /// Adds a frame whose data has these long texts, which are not copied. They are asked for if the frame is not skipped.
    pub(crate) fn push_sharing(
        &mut self,
        kind: &str,
        data: &impl Serialize,
        long_texts: impl FnOnce() -> Vec<SharedJson>,
    ) {
        self.push_with(kind, |out, pieces| {
            let mut json = JsonPieces::with_shared(long_texts());
            // The keys are texts and the numbers finite, so this cannot fail.
            let _ok = model::json::write_json(&mut json, data);
            for text in json.into_pieces() {
                if text.len() < SHARED_TEXT_BYTES_MIN {
                    out.extend_from_slice(&text);
                } else {
                    pieces.push(FramePiece { at: out.len(), text });
                }
            }
        });
    }

    /// Adds a frame whose data `write_data` appends, except its long texts.
    fn push_with(&mut self, kind: &str, write_data: impl FnOnce(&mut BytesMut, &mut Vec<FramePiece>)) {
        if self.record.record_count() > 1 {
            return self.out.skip_condensed(self.frames_per_event());
        }
        self.mark_last_as_inner();
        self.frame_count = self.frame_count.saturating_add(1);
        let (record, format, cursor_end) = (self.record, self.format, &mut self.cursor_end);
        let mut write_cursor = |out: &mut BytesMut| {
            write_cursor(record, out);
            *cursor_end = Some(out.len());
        };
        self.out.write_in_pieces(record.seq, |out, pieces| match format {
            FrameFormat::CountedEvents => {
                sse::write_event_with(out, |_| (), Some(kind), |out| write_data(out, pieces));
            }
            FrameFormat::EventsWithIds(_) => {
                sse::write_event_with(out, write_cursor, Some(kind), |out| write_data(out, pieces));
            }
            FrameFormat::DataWithIds(_) => {
                sse::write_event_with(out, write_cursor, None, |out| write_data(out, pieces));
            }
            FrameFormat::JsonLines(_) => {
                write_data(out, pieces);
                open_json_object(out);
                out.extend_from_slice(b"\"cursor\":\"");
                write_cursor(out);
                out.extend_from_slice(b"\"}\n");
            }
        });
    }

    /// Reserves room for the next frame, if it has this much text.
    pub(crate) fn reserve(&mut self, text_bytes: usize) {
        if text_bytes > LONG_TEXT_BYTES && self.record.record_count() == 1 {
            // Some for what is escaped.
            self.out.reserve(text_bytes + text_bytes / 16 + LONG_TEXT_BYTES);
        }
    }

    /// Every frame is written as the record's last one, which it nearly always is. When another follows, its cursor becomes
    /// one inside the record.
    fn mark_last_as_inner(&mut self) {
        let (FrameFormat::EventsWithIds(projection)
        | FrameFormat::DataWithIds(projection)
        | FrameFormat::JsonLines(projection)) = self.format
        else {
            return;
        };
        let Some(cursor_end) = self.cursor_end.take() else { return };
        let mut position = BytesMut::new();
        // Writing to a buffer cannot fail.
        let _ok = FramePosition { projection: projection.to_owned(), frames: self.frame_count }.write_to(&mut position);
        self.out.insert(cursor_end, &position);
    }
}

/// Appends a wire type as JSON.
pub(crate) fn write_json(out: &mut BytesMut, data: &(impl Serialize + ?Sized)) {
    // The keys are texts and the numbers finite, so this cannot fail.
    let _ok = model::json::write_json(out, data);
}

/// Removes the end of an object, so that another member can follow.
fn open_json_object(out: &mut BytesMut) {
    out.truncate(out.len().saturating_sub(1));
    if !out.ends_with(b"{") {
        out.extend_from_slice(b",");
    }
}

/// Appends the record's own cursor.
pub(crate) fn write_cursor(record: &Record, out: &mut BytesMut) {
    // Writing to a buffer cannot fail.
    let _ok = Cursor::from(record).write_to(out);
}

/// A wire type as a value.
pub(crate) fn to_json_value(object: &impl Serialize) -> Value {
    // The keys are texts and the numbers finite, so this cannot fail.
    serde_json::to_value(object).unwrap_or_default()
}

/// The record after which a reader resumes, and the number of frames after it to skip.
pub fn resume_position(cursor: &Cursor, projection: &str) -> Result<(Seq, u64), CursorError> {
    match &cursor.frame {
        None => Ok((cursor.seq, 0)),
        Some(inner) if inner.projection == projection => Ok((cursor.seq.prev(), u64::from(inner.frames))),
        Some(_) => Err(CursorError::Mismatch),
    }
}
