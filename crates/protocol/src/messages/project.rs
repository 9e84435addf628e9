//! A segment of a run → a message.
//!
//! Tools that the server runs are `mcp_tool_use` and `mcp_tool_result`, each complete in its start event, because not every
//! client collects input deltas of such blocks. `tool_use` is for the client's own tools. The signature of a thinking block
//! is the id of its item: a client that sends it back names the run that it belongs to.

use super::wire::{
    BlockDelta, Citation, ContentBlock, ErrorObject, MessageDelta, MessageObject, MessagesDelta, MessagesEvent,
    SERVER_NAME, ToolResultStatus, UsageObject,
};
use crate::record_frames::{FrameFormat, RecordFrames};
use crate::stateless::segment::{Segment, SegmentEvent};
use crate::stateless::{RunFailure, SegmentPart, parse_arguments_object, response_id};
use model::content::Annotation;
use model::json::{ExactObject, ExactValue, to_exact_value};
use model::ports::{Frames, Projection};
use model::usage::Usage;
use model::{Record, TaskId};

/// One segment of a run as a message.
#[derive(Clone, Debug)]
pub struct MessagesProjection {
    segment: Segment,
    /// Of the current record.
    events: Vec<SegmentEvent>,
}

impl MessagesProjection {
    /// The `segment`-th response of a run, from 1. It ends with the run, or where the run pauses for the client's tools.
    pub fn new(run: TaskId, segment: u32) -> Self {
        Self { segment: Segment::new(run, segment), events: Vec::new() }
    }
    pub const fn is_finished(&self) -> bool {
        self.segment.end().is_some()
    }
    pub fn failure(&self) -> Option<&RunFailure> {
        self.segment.failure()
    }

    /// The message so far: the sum of the frames, without parts that a later attempt replaced.
    pub fn object(&self) -> ExactValue {
        let content = self.segment.current_parts().map(|part| self.content_block(part)).collect();
        to_exact_value(&self.message_object(content, self.stop_reason(), self.segment.usage()))
    }

    fn message_object<'a>(
        &'a self,
        content: Vec<ContentBlock<'a>>,
        stop_reason: Option<&'static str>,
        usage: Usage,
    ) -> MessageObject<'a> {
        let (run, segment) = self.segment.run_and_number();
        MessageObject {
            content,
            id: response_id("msg_", run, segment),
            model: self.segment.model(),
            role: "assistant",
            stop_reason,
            stop_sequence: None,
            object_type: "message",
            usage: usage.into(),
        }
    }

    fn stop_reason(&self) -> Option<&'static str> {
        self.segment.end()?.names().messages_stop_reason
    }

    /// A part as a block of the message.
    fn content_block<'a>(&'a self, part: &'a SegmentPart) -> ContentBlock<'a> {
        match part {
            SegmentPart::Reasoning { item, .. } => {
                ContentBlock::thinking(self.segment.part_text(part), self.segment.item_id(*item))
            }
            SegmentPart::Text { .. } | SegmentPart::Image { .. } => {
                let annotations = self.segment.annotations(part).iter();
                let citations = annotations.filter_map(|annotation| self.citation(annotation)).collect();
                ContentBlock::text(self.segment.part_text(part), citations)
            }
            SegmentPart::ClientCall { call_id, name, arguments } => {
                ContentBlock::tool_use(call_id.as_str(), name, parse_arguments_object(arguments))
            }
            SegmentPart::ServerCall { .. } | SegmentPart::ServerResult { .. } => self.initial_block(part),
        }
    }

    /// A part as the block that its start event has.
    fn initial_block<'a>(&'a self, part: &'a SegmentPart) -> ContentBlock<'a> {
        match part {
            SegmentPart::Reasoning { .. } => ContentBlock::thinking(String::new(), ""),
            SegmentPart::Text { .. } | SegmentPart::Image { .. } => ContentBlock::text(String::new(), Vec::new()),
            SegmentPart::ClientCall { call_id, name, .. } => {
                ContentBlock::tool_use(call_id.as_str(), name, ExactObject::new())
            }
            SegmentPart::ServerCall { id, name, server, arguments } => {
                ContentBlock::mcp_tool_use(id, name, server.as_deref().unwrap_or(SERVER_NAME), arguments.clone())
            }
            SegmentPart::ServerResult { item } => {
                let outcome = self.segment.call_outcome(*item);
                let status = if outcome.succeeded { ToolResultStatus::Succeeded } else { ToolResultStatus::Failed };
                ContentBlock::mcp_tool_result(outcome.call_id, status, self.segment.part_text(part))
            }
        }
    }

    fn citation<'a>(&self, annotation: &'a Annotation) -> Option<Citation<'a>> {
        match annotation {
            Annotation::UrlCitation { url, title, .. } => Some(Citation::web_page(url, title.as_deref())),
            Annotation::ReferenceToBlock { reference_id, .. } => {
                Some(Citation::reference(*reference_id, self.segment.reference_url(*reference_id)))
            }
            Annotation::FileCitation { .. }
            | Annotation::ContainerFileCitation { .. }
            | Annotation::FilePath { .. } => {
                let file = annotation.file()?;
                Some(Citation::file(&file, self.document_index(file.file_id)))
            }
        }
    }

    /// The number of a file among those that the segment cites, in the order of their first citations.
    fn document_index(&self, file_id: &str) -> usize {
        let annotations = self.segment.started_parts().flat_map(|part| self.segment.annotations(part));
        let mut files: Vec<&str> = Vec::new();
        for cited in annotations.filter_map(|annotation| annotation.file()).map(|file| file.file_id) {
            if cited == file_id {
                break;
            }
            if !files.contains(&cited) {
                files.push(cited);
            }
        }
        files.len()
    }

    fn write_event(&self, event: &SegmentEvent, out: &mut RecordFrames<'_>) {
        match event {
            SegmentEvent::Started => {
                let message = Some(self.message_object(Vec::new(), None, Usage::default()));
                push(&MessagesEvent { message, ..MessagesEvent::new("message_start") }, out);
            }
            SegmentEvent::PartStarted(position) => self.write_part_start(*position, out),
            SegmentEvent::PartDelta(position, byte) => {
                let Some(part) = self.segment.part_progress(*position).map(|progress| &progress.part) else { return };
                let text = self.segment.text_from(part, *byte);
                let delta = match part {
                    SegmentPart::Reasoning { .. } => BlockDelta::thinking(text),
                    _ => BlockDelta::text(text),
                };
                self.write_delta(*position, delta, out);
            }
            SegmentEvent::Annotation(position, annotation) => {
                if let Some(citation) = self.citation(annotation) {
                    self.write_delta(*position, BlockDelta::citation(citation), out);
                }
            }
            SegmentEvent::PartDone(position) => self.write_part_end(*position, out),
            SegmentEvent::Finished => self.write_end(out),
        }
    }

    fn write_part_start(&self, position: usize, out: &mut RecordFrames<'_>) {
        let Some(progress) = self.segment.part_progress(position) else { return };
        let content_block = Some(self.initial_block(&progress.part));
        let event = MessagesEvent { content_block, index: progress.index, ..MessagesEvent::new("content_block_start") };
        push(&event, out);
        match &progress.part {
            SegmentPart::ClientCall { arguments, .. } => {
                self.write_delta(position, BlockDelta::input_json(arguments), out);
            }
            SegmentPart::Image { .. } => {
                let text = self.segment.part_text(&progress.part);
                self.write_delta(position, BlockDelta::text(&text), out);
            }
            SegmentPart::Reasoning { .. }
            | SegmentPart::Text { .. }
            | SegmentPart::ServerCall { .. }
            | SegmentPart::ServerResult { .. } => {}
        }
    }

    fn write_delta(&self, position: usize, delta: BlockDelta<'_>, out: &mut RecordFrames<'_>) {
        let index = self.segment.part_progress(position).and_then(|progress| progress.index);
        let delta = Some(MessagesDelta::Block(delta));
        push(&MessagesEvent { delta, index, ..MessagesEvent::new("content_block_delta") }, out);
    }

    fn write_part_end(&self, position: usize, out: &mut RecordFrames<'_>) {
        let Some(progress) = self.segment.part_progress(position) else { return };
        if let SegmentPart::Reasoning { item, .. } = &progress.part {
            self.write_delta(position, BlockDelta::signature(self.segment.item_id(*item)), out);
        }
        push(&MessagesEvent { index: progress.index, ..MessagesEvent::new("content_block_stop") }, out);
    }

    fn write_end(&self, out: &mut RecordFrames<'_>) {
        if let Some(failure) = self.failure() {
            let error_type = failure.kind.names().messages_type;
            let error = Some(ErrorObject { message: &failure.message, error_type });
            return push(&MessagesEvent { error, ..MessagesEvent::new("error") }, out);
        }
        let delta = MessageDelta { stop_reason: self.stop_reason(), stop_sequence: None };
        let event = MessagesEvent {
            delta: Some(MessagesDelta::Message(delta)),
            usage: Some(UsageObject::from(self.segment.usage())),
            ..MessagesEvent::new("message_delta")
        };
        push(&event, out);
        push(&MessagesEvent::new("message_stop"), out);
    }
}

impl Projection for MessagesProjection {
    fn project(&mut self, record: &Record, out: &mut Frames) {
        self.segment.read_record(record, &mut self.events);
        let mut frames = RecordFrames::new(record, FrameFormat::CountedEvents, out);
        self.events.iter().for_each(|event| self.write_event(event, &mut frames));
        if self.is_finished() {
            out.finish();
        }
    }

    fn is_hidden(&self) -> bool {
        self.segment.is_ahead()
    }

    fn boxed_clone(&self) -> Box<dyn Projection> {
        Box::new(self.clone())
    }
}

fn push(event: &MessagesEvent<'_>, out: &mut RecordFrames<'_>) {
    out.push(event.event_type, event);
}
