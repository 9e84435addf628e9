//! Pauses, and the ends of runs.
//!
//! A client that sends answers on its own looks at the last step of the message. After the end of a run that step must not
//! have a call of the client's, or the client posts the same answers again, and again. So a run that ends without another
//! step after such calls gets an empty one, and something after it that changes the message: the SDK publishes a step with
//! the next change only.

use super::EventProjector;
use crate::run_end::RunEnd;
use crate::ui_stream::UiVersion;
use crate::ui_stream::wire::{UiChunk, UiError, UiMessageMetadata, UiUsage};
use model::event::{Event, PendingRequest};

const CANCELLED: &str = "cancelled";

impl EventProjector<'_, '_> {
    /// The same message goes on.
    pub(super) fn on_resumed(&mut self) {
        self.message.segment = self.message.segment.saturating_add(1);
        self.message.has_segment_ended = false;
        let message_id = Some(self.root.id.as_str());
        self.push(&UiChunk { message_id, ..UiChunk::new("start") });
        self.resume_paused_calls();
    }

    pub(super) fn on_paused(&mut self, pending: &[PendingRequest]) {
        self.pause_open_calls(pending);
        self.show_pending(pending);
        let usage = Some(UiUsage::of_run(self.run));
        self.finish(&RunEnd::ToolCalls, UiMessageMetadata { usage, ..UiMessageMetadata::default() });
        self.message.has_segment_ended = true;
    }

    pub(super) fn on_end(&mut self, event: &Event) {
        self.close_last_step();
        match event {
            Event::Completed(e) => {
                let (usage, duration_ms) = (Some(e.usage.into()), Some(e.duration_ms));
                let metadata = UiMessageMetadata { usage, duration_ms, cost: e.cost, ..UiMessageMetadata::default() };
                self.finish(&RunEnd::Completed, metadata);
            }
            Event::Incomplete(e) => self.finish(
                &e.reason.into(),
                UiMessageMetadata {
                    status: Some("incomplete"),
                    reason: Some(e.reason.as_str()),
                    usage: Some(e.usage.into()),
                    duration_ms: Some(e.duration_ms),
                    ..UiMessageMetadata::default()
                },
            ),
            Event::Failed(e) => {
                let error = UiError { code: &e.error.code, message: &e.error.message, retryable: e.error.retryable };
                self.push_metadata(UiMessageMetadata {
                    status: Some("failed"),
                    error: Some(error),
                    usage: Some(e.usage.into()),
                    duration_ms: Some(e.duration_ms),
                    ..UiMessageMetadata::default()
                });
                let error_text = Some(e.error.message.as_str().into());
                self.push(&UiChunk { error_text, ..UiChunk::new("error") });
            }
            Event::Cancelled(e) => {
                let (usage, duration_ms) = (Some(e.usage.into()), Some(e.duration_ms));
                let metadata = UiMessageMetadata { usage, duration_ms, ..UiMessageMetadata::default() };
                cancelled_chunks(self.version, metadata).iter().for_each(|chunk| self.push(chunk));
            }
            _ => {}
        }
        self.message.has_segment_ended = true;
        self.message.has_run_ended = true;
    }

    fn close_last_step(&mut self) {
        let step = self.message.step_count;
        if self.message.calls.iter().any(|known| known.step == step && !known.is_executed) {
            self.start_step();
            self.push(&UiChunk::new("finish-step"));
        }
    }

    fn finish(&mut self, end: &RunEnd, metadata: UiMessageMetadata<'_>) {
        let finish_reason = end.names().ui_finish_reason;
        self.push(&UiChunk { finish_reason, message_metadata: Some(metadata), ..UiChunk::new("finish") });
    }
}

/// The end of a cancelled run. The SDK ignores an `abort`; the metadata is what changes the message.
pub(in crate::ui_stream) fn cancelled_chunks(version: UiVersion, metadata: UiMessageMetadata<'_>) -> Vec<UiChunk<'_>> {
    let metadata = Some(UiMessageMetadata { status: Some(CANCELLED), ..metadata });
    let mut chunks = vec![
        UiChunk { message_metadata: metadata, ..UiChunk::new("message-metadata") },
        UiChunk { reason: Some(CANCELLED), ..UiChunk::new("abort") },
    ];
    if version == UiVersion::Seven {
        chunks.push(UiChunk { finish_reason: Some("interrupted"), ..UiChunk::new("finish") });
    }
    chunks
}
