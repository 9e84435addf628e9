//! A segment of a run as an answer of this protocol.
//!
//! There is one text: what the model says between its tools is joined by blank lines, and so is what it thinks
//! (`reasoning_content`). The protocol has no words for tools that the server runs: nothing is told of them, and
//! `tool_calls` is for tools of the client's own. What the text refers to comes at its end, all at once, for clients
//! cannot collect it piece by piece.

use crate::record_frames::RecordFrames;
use crate::stateless::segment::{Segment, SegmentEnd, SegmentEvent, SegmentPart};
use crate::stateless::{RunFailure, RunFailureKind, answer_id};
use model::content::Annotation;
use model::error::ErrorCode;
use model::json::JsonObject;
use model::ports::{Frames, Projection};
use model::usage::Usage;
use model::{Record, TaskId};
use serde_json::{Value, json};

/// What stands between two messages, or two thoughts.
const TEXT_SEPARATOR: &str = "\n\n";

/// One segment of a run as a completion.
#[derive(Clone, Debug)]
pub struct ChatProjection {
    segment: Segment,
    include_usage: bool,
}

/// Where a part's text goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Channel {
    Content,
    Refusal,
    Reasoning,
}

impl Channel {
    const fn field(self) -> &'static str {
        match self {
            Self::Content => "content",
            Self::Refusal => "refusal",
            Self::Reasoning => "reasoning_content",
        }
    }
}

impl ChatProjection {
    /// The `segment`-th answer of a run, from 1. It ends with the run, or where the run pauses for the client's tools.
    #[must_use]
    pub fn new(run: TaskId, segment: u32, include_usage: bool) -> Self {
        Self { segment: Segment::new(run, segment), include_usage }
    }

    /// Has all been told?
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.segment.end().is_some()
    }

    /// Why there is no answer, where there is none.
    #[must_use]
    pub fn failure(&self) -> Option<&RunFailure> {
        self.segment.failure()
    }

    /// The completion as far as it is: what a client collects from the chunks, without what was cut and said anew.
    #[must_use]
    pub fn object(&self) -> Value {
        let parts: Vec<&SegmentPart> = self.segment.current_parts().collect();
        let mut message = JsonObject::new();
        message.insert("role".to_owned(), "assistant".into());
        for channel in [Channel::Content, Channel::Refusal] {
            message.insert(
                channel.field().to_owned(),
                self.join_channel(&parts, channel).map_or(Value::Null, Value::String),
            );
        }
        if let Some(thoughts) = self.join_channel(&parts, Channel::Reasoning) {
            message.insert(Channel::Reasoning.field().to_owned(), thoughts.into());
        }
        let annotations = self.annotations(&parts);
        if !annotations.is_empty() {
            message.insert("annotations".to_owned(), annotations.into());
        }
        let calls: Vec<Value> = parts.iter().filter_map(|part| tool_call_object(part)).collect();
        if !calls.is_empty() {
            message.insert("tool_calls".to_owned(), calls.into());
        }
        let choice = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": self.finish_reason()});
        let mut object = self.envelope("chat.completion", &[choice]);
        object.insert("usage".to_owned(), usage_object(self.segment.usage()));
        Value::Object(object)
    }

    fn envelope(&self, kind: &str, choices: &[Value]) -> JsonObject {
        let (run, segment) = self.segment.run_and_number();
        let mut envelope = JsonObject::new();
        envelope.insert("id".to_owned(), answer_id("chatcmpl-", run, segment).into());
        envelope.insert("object".to_owned(), kind.into());
        envelope.insert("created".to_owned(), (self.segment.started_at() / 1_000).into());
        envelope.insert("model".to_owned(), self.segment.model().into());
        envelope.insert("choices".to_owned(), choices.into());
        envelope
    }

    fn finish_reason(&self) -> Option<&'static str> {
        match self.segment.end()? {
            SegmentEnd::Completed | SegmentEnd::Refused => Some("stop"),
            SegmentEnd::ToolCalls => Some("tool_calls"),
            SegmentEnd::Limit => Some("length"),
            SegmentEnd::ContentFilter => Some("content_filter"),
            SegmentEnd::Failed(_) => None,
        }
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

    fn join_channel(&self, parts: &[&SegmentPart], channel: Channel) -> Option<String> {
        let of_channel = parts.iter().filter(|part| self.channel(part) == Some(channel));
        let texts: Vec<String> = of_channel.map(|part| self.segment.part_text(part)).collect();
        (!texts.is_empty()).then(|| texts.join(TEXT_SEPARATOR))
    }

    /// What the content refers to; places are counted in the whole of it.
    fn annotations(&self, parts: &[&SegmentPart]) -> Vec<Value> {
        let mut all = Vec::new();
        let mut begins = 0_usize;
        for part in parts.iter().filter(|part| self.channel(part) == Some(Channel::Content)) {
            let cited =
                self.segment.text_block(part).and_then(|block| block.annotations.as_deref()).unwrap_or_default();
            all.extend(cited.iter().filter_map(|cited| self.annotation(cited, begins)));
            begins += self.segment.part_text(part).chars().count() + TEXT_SEPARATOR.len();
        }
        all
    }

    fn annotation(&self, cited: &Annotation, begins: usize) -> Option<Value> {
        let (url, title, start, end) = match cited {
            Annotation::UrlCitation { url, title, start_index, end_index } => {
                (url.clone(), title.clone().unwrap_or_default(), *start_index, *end_index)
            }
            Annotation::ReferenceToBlock { reference_id, start_index, end_index } => {
                (self.segment.reference_url(*reference_id), format!("[{reference_id}]"), *start_index, *end_index)
            }
            // This protocol refers to addresses alone.
            Annotation::FileCitation { .. } => return None,
        };
        let (start, end) = (begins + start as usize, begins + end as usize);
        let citation = json!({"url": url, "title": title, "start_index": start, "end_index": end});
        Some(json!({"type": "url_citation", "url_citation": citation}))
    }

    fn write_event(&self, told: &SegmentEvent, out: &mut RecordFrames) {
        match told {
            SegmentEvent::Started => self.write_chunk(&json!({"role": "assistant", "content": null}), out),
            SegmentEvent::PartStarted(place) => self.write_part_start(*place, out),
            SegmentEvent::PartDelta(place, more) => {
                let part = self.segment.part_progress(*place).map(|shown| &shown.part);
                if let Some(channel) = part.and_then(|part| self.channel(part)) {
                    self.write_chunk(&json!({ channel.field(): more }), out);
                }
            }
            SegmentEvent::Annotation(..) | SegmentEvent::PartDone(_) => {}
            SegmentEvent::Finished => self.write_end(out),
        }
    }

    fn write_part_start(&self, place: usize, out: &mut RecordFrames) {
        let Some(part) = self.segment.part_progress(place).map(|shown| &shown.part) else { return };
        if let Some(channel) = self.channel(part)
            && self.segment.parts_before(place).any(|before| self.channel(before) == Some(channel))
        {
            self.write_chunk(&json!({ channel.field(): TEXT_SEPARATOR }), out);
        }
        match part {
            SegmentPart::Image { .. } => self.write_chunk(&json!({"content": self.segment.part_text(part)}), out),
            SegmentPart::ClientCall { call_id, name, arguments } => {
                let index = self
                    .segment
                    .parts_before(place)
                    .filter(|part| matches!(part, SegmentPart::ClientCall { .. }))
                    .count();
                let function = json!({"name": name, "arguments": ""});
                let head = json!({"index": index, "id": call_id, "type": "function", "function": function});
                self.write_chunk(&json!({"tool_calls": [head]}), out);
                let more = json!({"index": index, "function": {"arguments": arguments}});
                self.write_chunk(&json!({"tool_calls": [more]}), out);
            }
            SegmentPart::Reasoning { .. }
            | SegmentPart::Text { .. }
            | SegmentPart::ServerCall { .. }
            | SegmentPart::ServerResult { .. } => {}
        }
    }

    fn write_end(&self, out: &mut RecordFrames) {
        if let Some(failure) = self.failure() {
            let (kind, code) = match failure.kind {
                RunFailureKind::RateLimited => ("rate_limit_error", ErrorCode::RateLimited),
                RunFailureKind::Overloaded => ("server_error", ErrorCode::Overloaded),
                RunFailureKind::Cancelled => ("server_error", ErrorCode::Cancelled),
                RunFailureKind::Other => ("server_error", ErrorCode::RunFailed),
            };
            let error = json!({"message": failure.message, "type": kind, "param": null, "code": code.as_str()});
            out.push("", &json!({ "error": error }));
            return;
        }
        let parts: Vec<&SegmentPart> = self.segment.started_parts().collect();
        let annotations = self.annotations(&parts);
        if !annotations.is_empty() {
            self.write_chunk(&json!({ "annotations": annotations }), out);
        }
        let choice = json!({"index": 0, "delta": {}, "logprobs": null, "finish_reason": self.finish_reason()});
        self.write_choices(&[choice], Value::Null, out);
        if self.include_usage {
            self.write_choices(&[], usage_object(self.segment.usage()), out);
        }
    }

    fn write_chunk(&self, delta: &Value, out: &mut RecordFrames) {
        let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": null});
        self.write_choices(&[choice], Value::Null, out);
    }

    fn write_choices(&self, choices: &[Value], usage: Value, out: &mut RecordFrames) {
        let mut chunk = self.envelope("chat.completion.chunk", choices);
        if self.include_usage {
            chunk.insert("usage".to_owned(), usage);
        }
        // These events have no name.
        out.push("", &chunk);
    }
}

impl Projection for ChatProjection {
    fn project(&mut self, record: &Record, out: &mut Frames) {
        let told = self.segment.read_record(record);
        let mut burst = RecordFrames::default();
        told.iter().for_each(|told| self.write_event(told, &mut burst));
        burst.write_without_ids(record, out);
        if self.is_finished() {
            out.finish();
        }
    }

    fn boxed_clone(&self) -> Box<dyn Projection> {
        Box::new(self.clone())
    }
}

fn tool_call_object(part: &SegmentPart) -> Option<Value> {
    let SegmentPart::ClientCall { call_id, name, arguments } = part else { return None };
    Some(json!({"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}))
}

/// What it cost.
fn usage_object(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens.saturating_add(usage.output_tokens),
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    })
}
