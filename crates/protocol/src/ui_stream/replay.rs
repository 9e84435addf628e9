//! Everything that a client has missed, in few frames.
//!
//! The SDK has no cursor: a client that comes back wants its message from the start. A replay is the projection over
//! condensed records, so a text is one delta, and the projection then continues with the records that follow. Its frames
//! have no ids: nobody can resume inside it.
//!
//! What a later chunk replaces is left out. That is more than thrift for the calls of the client's tools: a client runs a
//! tool as soon as it has the input, so a call that has its output by now must not be shown without it. A data part keeps the
//! position of its first chunk, as in the client's message: that of a sub-agent comes again with each of its items.

use super::UiVersion;
use super::project::{UiStreamProjection, cancelled_chunks};
use super::wire::{UiChunk, UiMessageMetadata, UiSink};
use crate::record_frames::write_json;
use bytes::{Bytes, BytesMut};
use model::{Record, TaskId};
use std::collections::HashMap;

/// The frames of a replay.
#[derive(Debug, Default)]
pub struct UiReplay {
    /// Frames before those in `out`.
    pieces: Vec<Bytes>,
    piece_bytes: usize,
    /// The pieces that are data parts, by type and id.
    data_parts: HashMap<(String, String), usize>,
    out: BytesMut,
    /// Frames that a later chunk of the same call replaces.
    held: Vec<HeldFrame>,
    /// The end of the last segment. Held frames precede it.
    held_finish: Option<Bytes>,
}

#[derive(Debug)]
struct HeldFrame {
    call_id: String,
    frame: Bytes,
}

impl UiStreamProjection {
    /// Adds the chunks of the next record to a replay. It may be a condensed one.
    pub fn replay_record(&mut self, record: &Record, replay: &mut UiReplay) {
        self.read_record(record, replay);
    }
}

impl UiReplay {
    /// The number of bytes so far.
    pub fn len(&self) -> usize {
        let held: usize = self.held.iter().map(|held| held.frame.len()).sum();
        self.piece_bytes + self.out.len() + held + self.held_finish.as_ref().map_or(0, Bytes::len)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The frames, after the last record.
    pub fn into_frames(mut self) -> Bytes {
        for held in std::mem::take(&mut self.held) {
            self.out.extend_from_slice(&held.frame);
        }
        self.flush_finish();
        if self.pieces.is_empty() {
            return self.out.freeze();
        }
        self.end_piece();
        self.pieces.concat().into()
    }

    /// Writes a data part where its first chunk was.
    fn set_data_part(&mut self, id: &str, chunk: &UiChunk<'_>) {
        let frame = frame(chunk);
        self.piece_bytes += frame.len();
        let part = (chunk.chunk_type().to_owned(), id.to_owned());
        let known = self.data_parts.get(&part).and_then(|piece| self.pieces.get_mut(*piece));
        if let Some(piece) = known {
            self.piece_bytes -= piece.len();
            *piece = frame;
            return;
        }
        self.end_piece();
        self.data_parts.insert(part, self.pieces.len());
        self.pieces.push(frame);
    }

    fn end_piece(&mut self) {
        let piece = self.out.split().freeze();
        if !piece.is_empty() {
            self.piece_bytes += piece.len();
            self.pieces.push(piece);
        }
    }

    fn flush_finish(&mut self) {
        if let Some(finish) = self.held_finish.take() {
            self.out.extend_from_slice(&finish);
        }
    }
}

impl UiSink for UiReplay {
    fn push(&mut self, chunk: &UiChunk<'_>) {
        if chunk.is_transient() {
            return;
        }
        if let Some(call_id) = chunk.tool_call_id {
            self.held.retain(|held| held.call_id != call_id);
        }
        match chunk.tool_call_id {
            Some(call_id) if is_replaced(chunk) => {
                self.held.push(HeldFrame { call_id: call_id.to_owned(), frame: frame(chunk) });
            }
            _ if chunk.chunk_type() == "finish" => self.held_finish = Some(frame(chunk)),
            _ => {
                // A start: the run went on after the pause.
                self.flush_finish();
                match chunk.data_part_id() {
                    Some(id) => self.set_data_part(id, chunk),
                    None => write_frame(&mut self.out, chunk),
                }
                if chunk.chunk_type() == "reset-step" {
                    // The client drops parts: those that come again are new.
                    self.data_parts.clear();
                }
            }
        }
    }
}

/// Whether another chunk of the call replaces this one, if there is one.
fn is_replaced(chunk: &UiChunk<'_>) -> bool {
    let is_input = chunk.chunk_type() == "tool-input-available";
    let is_client_input = is_input && chunk.dynamic.is_none() && chunk.provider_executed != Some(true);
    chunk.preliminary == Some(true) || is_client_input
}

/// The frames of a run that was cancelled before its first record: the log has none of it.
pub fn ui_cancelled_frames(version: UiVersion, run: &TaskId) -> Bytes {
    let mut out = BytesMut::new();
    write_frame(&mut out, &UiChunk { message_id: Some(run.as_str()), ..UiChunk::new("start") });
    cancelled_chunks(version, UiMessageMetadata::default()).iter().for_each(|chunk| write_frame(&mut out, chunk));
    out.freeze()
}

fn frame(chunk: &UiChunk<'_>) -> Bytes {
    let mut out = BytesMut::new();
    write_frame(&mut out, chunk);
    out.freeze()
}

fn write_frame(out: &mut BytesMut, chunk: &UiChunk<'_>) {
    sse::write_event_with(out, |_| (), None, |out| write_json(out, chunk));
}
