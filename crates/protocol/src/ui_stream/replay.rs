//! Everything that a client has missed, in few frames.
//!
//! The SDK has no cursor: a client that comes back wants its message from the start. A replay is the projection over
//! condensed records, so a text is one delta, and the projection then continues with the records that follow. Its frames
//! have no ids: nobody can resume inside it.
//!
//! What a later chunk replaces is left out. That is more than thrift for the calls of the client's tools: a client runs a
//! tool as soon as it has the input, so a call that has its output by now must not be shown without it.

use super::UiVersion;
use super::project::{UiStreamProjection, cancelled_chunks};
use super::wire::{UiChunk, UiMessageMetadata, UiSink};
use crate::record_frames::write_json;
use bytes::{Bytes, BytesMut};
use model::{Record, TaskId};

/// The frames of a replay.
#[derive(Debug, Default)]
pub struct UiReplay {
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
    /// The number of bytes so far, without those that are held.
    pub fn len(&self) -> usize {
        self.out.len()
    }

    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// The frames, after the last record.
    pub fn into_frames(mut self) -> Bytes {
        for held in std::mem::take(&mut self.held) {
            self.out.extend_from_slice(&held.frame);
        }
        self.flush_finish();
        self.out.freeze()
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
                write_frame(&mut self.out, chunk);
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
