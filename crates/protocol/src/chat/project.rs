//! A segment of a run → a completion.
//!
//! A completion has one text: the messages between tool calls are joined by blank lines, and so is the reasoning
//! (`reasoning_content`). The protocol cannot express tools that the server runs, so nothing is sent of them; `tool_calls`
//! is for the client's own tools. Annotations are sent at the end, all at once, because clients cannot merge them.

use super::wire::{
    AnnotationObject, Choice, Completion, ErrorFrame, ErrorObject, FunctionObject, MessageObject, Nullable,
    ToolCallObject, UrlCitation,
};
use crate::record_frames::{FrameFormat, RecordFrames, to_json_value};
use crate::stateless::segment::{Segment, SegmentEvent};
use crate::stateless::{RunFailure, SegmentPart, response_id};
use model::content::Annotation;
use model::ports::{Frames, Projection};
use model::{Record, TaskId};
use serde_json::Value;
use std::borrow::Cow;

/// Separates two messages, or two parts of the reasoning.
const TEXT_SEPARATOR: &str = "\n\n";

/// One segment of a run as a completion.
#[derive(Clone, Debug)]
pub struct ChatProjection {
    segment: Segment,
    stream_usage: StreamUsage,
    /// Every chunk repeats it.
    id: String,
    /// Of the current record.
    events: Vec<SegmentEvent>,
}

/// Whether a stream ends with a usage chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamUsage {
    Included,
    Omitted,
}

impl From<bool> for StreamUsage {
    /// The value of `stream_options.include_usage`.
    fn from(include_usage: bool) -> Self {
        if include_usage { Self::Included } else { Self::Omitted }
    }
}

/// The member of a message that a part's text belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Channel {
    Content,
    Refusal,
    Reasoning,
}

impl Channel {
    fn delta<'a>(self, text: impl Into<Cow<'a, str>>) -> MessageObject<'a> {
        let text = text.into();
        match self {
            Self::Content => MessageObject { content: Some(Nullable(Some(text))), ..MessageObject::default() },
            Self::Refusal => MessageObject { refusal: Some(Nullable(Some(text))), ..MessageObject::default() },
            Self::Reasoning => MessageObject { reasoning_content: Some(text), ..MessageObject::default() },
        }
    }
}

impl ChatProjection {
    /// The `segment`-th response of a run, from 1. It ends with the run, or where the run pauses for the client's tools.
    pub fn new(run: TaskId, segment: u32, stream_usage: StreamUsage) -> Self {
        let id = response_id("chatcmpl-", &run, segment);
        Self { segment: Segment::new(run, segment), stream_usage, id, events: Vec::new() }
    }
    pub const fn is_finished(&self) -> bool {
        self.segment.end().is_some()
    }
    pub fn failure(&self) -> Option<&RunFailure> {
        self.segment.failure()
    }

    /// The completion so far: the sum of the chunks, without parts that a later attempt replaced.
    pub fn object(&self) -> Value {
        let parts: Vec<&SegmentPart> = self.segment.current_parts().collect();
        let message = MessageObject {
            annotations: self.annotations(&parts),
            content: Some(Nullable(self.join_channel(&parts, Channel::Content))),
            reasoning_content: self.join_channel(&parts, Channel::Reasoning),
            refusal: Some(Nullable(self.join_channel(&parts, Channel::Refusal))),
            role: Some("assistant"),
            tool_calls: parts.iter().filter_map(|part| tool_call_object(part)).collect(),
        };
        let choice = Choice::of_completion(message, self.finish_reason());
        let usage = Some(Nullable(Some(self.segment.usage().into())));
        to_json_value(&Completion { usage, ..self.envelope("chat.completion", &[choice]) })
    }

    fn envelope<'a>(&'a self, object: &'static str, choices: &'a [Choice<'a>]) -> Completion<'a> {
        Completion {
            choices,
            created: self.segment.started_at() / 1_000,
            id: &self.id,
            model: self.segment.model(),
            object,
            usage: None,
        }
    }

    fn finish_reason(&self) -> Option<&'static str> {
        self.segment.end()?.names().chat_finish_reason
    }

    fn channel(&self, part: &SegmentPart) -> Option<Channel> {
        match part {
            SegmentPart::Reasoning { .. } => Some(Channel::Reasoning),
            SegmentPart::Text { .. } => match self.segment.text_block(part).and_then(|block| block.refusal) {
                Some(true) => Some(Channel::Refusal),
                _ => Some(Channel::Content),
            },
            SegmentPart::Image { .. } => Some(Channel::Content),
            SegmentPart::ClientCall { .. } | SegmentPart::ServerCall { .. } | SegmentPart::ServerResult { .. } => None,
        }
    }

    fn join_channel(&self, parts: &[&SegmentPart], channel: Channel) -> Option<Cow<'static, str>> {
        let of_channel = parts.iter().filter(|part| self.channel(part) == Some(channel));
        let texts: Vec<String> = of_channel.map(|part| self.segment.part_text(part)).collect();
        (!texts.is_empty()).then(|| texts.join(TEXT_SEPARATOR).into())
    }

    /// The annotations of the content. Their indices count from the start of the joined text.
    fn annotations<'a>(&'a self, parts: &[&'a SegmentPart]) -> Vec<AnnotationObject<'a>> {
        let mut all = Vec::new();
        let mut offset = 0_usize;
        for part in parts.iter().filter(|part| self.channel(part) == Some(Channel::Content)) {
            let annotations = self.segment.annotations(part).iter();
            all.extend(annotations.filter_map(|annotation| self.annotation(annotation, offset)));
            offset += self.segment.part_text(part).chars().count() + TEXT_SEPARATOR.len();
        }
        all
    }

    fn annotation<'a>(&self, annotation: &'a Annotation, offset: usize) -> Option<AnnotationObject<'a>> {
        let (url, title, start_index, end_index): (Cow<'a, str>, Cow<'a, str>, u32, u32) = match annotation {
            Annotation::UrlCitation { url, title, start_index, end_index } => {
                (url.into(), title.as_deref().unwrap_or_default().into(), *start_index, *end_index)
            }
            Annotation::ReferenceToBlock { reference_id, start_index, end_index } => {
                let url = self.segment.reference_url(*reference_id);
                (url.into(), format!("[{reference_id}]").into(), *start_index, *end_index)
            }
            // This protocol cites URLs alone.
            Annotation::FileCitation { .. }
            | Annotation::ContainerFileCitation { .. }
            | Annotation::FilePath { .. } => return None,
        };
        let (start_index, end_index) = (offset + start_index as usize, offset + end_index as usize);
        let url_citation = UrlCitation { end_index, start_index, title, url };
        Some(AnnotationObject { annotation_type: "url_citation", url_citation })
    }

    fn write_event(&self, event: &SegmentEvent, out: &mut RecordFrames<'_>) {
        match event {
            SegmentEvent::Started => {
                let (role, content) = (Some("assistant"), Some(Nullable(None)));
                self.write_delta(MessageObject { role, content, ..MessageObject::default() }, out);
            }
            SegmentEvent::PartStarted(position) => self.write_part_start(*position, out),
            SegmentEvent::PartDelta(position, byte) => {
                let Some(part) = self.segment.part_progress(*position).map(|progress| &progress.part) else { return };
                if let Some(channel) = self.channel(part) {
                    self.write_delta(channel.delta(self.segment.text_from(part, *byte)), out);
                }
            }
            SegmentEvent::Annotation(..) | SegmentEvent::PartDone(_) => {}
            SegmentEvent::Finished => self.write_end(out),
        }
    }

    fn write_part_start(&self, position: usize, out: &mut RecordFrames<'_>) {
        let Some(part) = self.segment.part_progress(position).map(|progress| &progress.part) else { return };
        if let Some(channel) = self.channel(part)
            && self.segment.parts_before(position).any(|before| self.channel(before) == Some(channel))
        {
            self.write_delta(channel.delta(TEXT_SEPARATOR), out);
        }
        match part {
            SegmentPart::Image { .. } => {
                self.write_delta(Channel::Content.delta(self.segment.part_text(part)), out);
            }
            SegmentPart::ClientCall { call_id, name, arguments } => {
                let calls_before =
                    self.segment.parts_before(position).filter(|part| matches!(part, SegmentPart::ClientCall { .. }));
                let index = Some(calls_before.count());
                let head = ToolCallObject { index, ..ToolCallObject::new(call_id.as_str(), name, "") };
                self.write_delta(MessageObject { tool_calls: vec![head], ..MessageObject::default() }, out);
                let function = FunctionObject { arguments, name: None };
                let more = ToolCallObject { function, index, ..ToolCallObject::default() };
                self.write_delta(MessageObject { tool_calls: vec![more], ..MessageObject::default() }, out);
            }
            SegmentPart::Reasoning { .. }
            | SegmentPart::Text { .. }
            | SegmentPart::ServerCall { .. }
            | SegmentPart::ServerResult { .. } => {}
        }
    }

    fn write_end(&self, out: &mut RecordFrames<'_>) {
        if let Some(failure) = self.failure() {
            let names = failure.kind.names();
            let (code, error_type) = (names.chat_code, names.chat_type);
            let error = ErrorObject { code, message: &failure.message, param: None, error_type };
            return out.push("", &ErrorFrame { error });
        }
        let parts: Vec<&SegmentPart> = self.segment.started_parts().collect();
        let annotations = self.annotations(&parts);
        if !annotations.is_empty() {
            self.write_delta(MessageObject { annotations, ..MessageObject::default() }, out);
        }
        let choice = Choice::of_chunk(MessageObject::default(), self.finish_reason());
        self.write_chunk(self.envelope("chat.completion.chunk", &[choice]), out);
        if self.stream_usage == StreamUsage::Included {
            let usage = Some(Nullable(Some(self.segment.usage().into())));
            self.write_chunk(Completion { usage, ..self.envelope("chat.completion.chunk", &[]) }, out);
        }
    }

    fn write_delta(&self, delta: MessageObject<'_>, out: &mut RecordFrames<'_>) {
        self.write_chunk(self.envelope("chat.completion.chunk", &[Choice::of_chunk(delta, None)]), out);
    }

    /// Writes a chunk. If usage is included, every chunk has the member, and all but the last have `null`.
    fn write_chunk(&self, chunk: Completion<'_>, out: &mut RecordFrames<'_>) {
        let usage = match self.stream_usage {
            StreamUsage::Included => Some(chunk.usage.unwrap_or(Nullable(None))),
            StreamUsage::Omitted => None,
        };
        // Events of this protocol have no name.
        out.push("", &Completion { usage, ..chunk });
    }
}

impl Projection for ChatProjection {
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

fn tool_call_object(part: &SegmentPart) -> Option<ToolCallObject<'_>> {
    let SegmentPart::ClientCall { call_id, name, arguments } = part else { return None };
    Some(ToolCallObject::new(call_id.as_str(), name, arguments))
}
