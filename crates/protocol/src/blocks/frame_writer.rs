//! Writes the frames of one record, all of one turn.

use super::wire::{BlocksDelta, BlocksEvent, BlocksFrame, TextDelta, TextDeltaFrame};
use crate::record_frames::RecordFrames;
use model::TaskId;
use model::fold::{RunFold, TaskFold};
use std::time::Duration;

pub(super) struct BlocksFrameWriter<'a, 'f> {
    pub(super) frames: &'a mut RecordFrames<'f>,
    pub(super) message_id: &'a TaskId,
}

impl BlocksFrameWriter<'_, '_> {
    pub(super) fn start_message(&mut self, session_id: &str, run: &RunFold, root: &TaskFold) {
        self.push(&BlocksEvent::MessageStart {
            session_id,
            timestamp: Duration::from_millis(run.at).as_secs_f64(),
            display_mode: root.spec.display_mode,
            is_new_session_from_share: root.spec.origin.as_ref().is_some_and(|origin| origin.get("share").is_some()),
            input: root.spec.input.iter().map(Into::into).collect(),
        });
    }

    pub(super) fn send_text_delta(&mut self, index: u32, delta: TextDelta<'_>) {
        let frame = TextDeltaFrame { index, delta, message_id: self.message_id };
        self.frames.push_written("", |out| frame.write_json(out));
    }

    pub(super) fn send_delta(&mut self, index: u32, delta: BlocksDelta<'_>) {
        self.push(&BlocksEvent::ContentBlockDelta { index, delta });
    }

    /// Stops a block. `is_final` is for texts alone.
    pub(super) fn stop_block(&mut self, index: u32, is_final: Option<bool>) {
        self.push(&BlocksEvent::ContentBlockStop { index, is_final });
    }

    pub(super) fn push(&mut self, event: &BlocksEvent<'_>) {
        // Frames of this protocol are lines without an event name.
        self.frames.push("", &BlocksFrame { event, message_id: self.message_id });
    }
}
