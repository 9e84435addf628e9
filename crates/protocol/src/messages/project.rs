//! A segment of a run as an answer of this protocol.
//!
//! What the server runs is `mcp_tool_use` and `mcp_tool_result`, with us as the server: each is one block that is whole as
//! it starts, for not every client collects the pieces of such an input. `tool_use` is for tools of the client's own.
//! Thoughts carry the name of their item as signature: whoever sends them back names the run that they are of.

use crate::record_frames::RecordFrames;
use crate::stateless::segment::{Segment, SegmentEnd, SegmentEvent, SegmentPart, parse_arguments_object};
use crate::stateless::{RunFailure, RunFailureKind, answer_id};
use model::content::Annotation;
use model::ports::{Frames, Projection};
use model::usage::Usage;
use model::{Record, TaskId};
use serde_json::{Value, json};

/// The server that our own tools are known by.
pub const SERVER_NAME: &str = "headwater";

/// One segment of a run as a message.
#[derive(Clone, Debug)]
pub struct MessagesProjection {
    segment: Segment,
}

impl MessagesProjection {
    /// The `segment`-th answer of a run, from 1. It ends with the run, or where the run pauses for the client's tools.
    #[must_use]
    pub fn new(run: TaskId, segment: u32) -> Self {
        Self { segment: Segment::new(run, segment) }
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

    /// The message as far as it is: what a client collects from the frames, without what was cut and said anew.
    #[must_use]
    pub fn object(&self) -> Value {
        let content: Vec<Value> = self.segment.current_parts().map(|part| self.content_block(part)).collect();
        self.message_object(&content, self.stop_reason(), self.segment.usage())
    }

    fn message_object(&self, content: &[Value], stop_reason: Option<&str>, usage: Usage) -> Value {
        let (run, segment) = self.segment.run_and_number();
        json!({
            "id": answer_id("msg_", run, segment),
            "type": "message",
            "role": "assistant",
            "model": self.segment.model(),
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": null,
            "usage": usage_object(usage),
        })
    }

    fn stop_reason(&self) -> Option<&'static str> {
        match self.segment.end()? {
            SegmentEnd::Completed => Some("end_turn"),
            SegmentEnd::ToolCalls => Some("tool_use"),
            SegmentEnd::Limit => Some("max_tokens"),
            SegmentEnd::Refused | SegmentEnd::ContentFilter => Some("refusal"),
            SegmentEnd::Failed(_) => None,
        }
    }

    /// A part as the block that it becomes.
    fn content_block(&self, part: &SegmentPart) -> Value {
        let mut block = self.initial_block(part);
        let text = || self.segment.part_text(part);
        let (key, value) = match part {
            SegmentPart::Reasoning { item, .. } => {
                insert_field(&mut block, "signature", self.segment.item_id(*item).into());
                ("thinking", text().into())
            }
            SegmentPart::Text { .. } => {
                let annotations = self.segment.text_block(part).and_then(|block| block.annotations.as_deref());
                let cited = annotations.unwrap_or_default().iter().filter_map(|cited| self.citation(cited));
                let cited: Vec<Value> = cited.collect();
                if !cited.is_empty() {
                    insert_field(&mut block, "citations", cited.into());
                }
                ("text", text().into())
            }
            SegmentPart::Image { .. } => ("text", text().into()),
            SegmentPart::ClientCall { arguments, .. } => ("input", parse_arguments_object(arguments)),
            SegmentPart::ServerCall { .. } | SegmentPart::ServerResult { .. } => return block,
        };
        insert_field(&mut block, key, value);
        block
    }

    /// A block as it starts.
    fn initial_block(&self, part: &SegmentPart) -> Value {
        match part {
            SegmentPart::Reasoning { .. } => json!({"type": "thinking", "thinking": "", "signature": ""}),
            SegmentPart::Text { .. } | SegmentPart::Image { .. } => json!({"type": "text", "text": ""}),
            SegmentPart::ClientCall { call_id, name, .. } => {
                json!({"type": "tool_use", "id": call_id, "name": name, "input": {}})
            }
            SegmentPart::ServerCall { id, name, arguments } => json!({
                "type": "mcp_tool_use",
                "id": id,
                "name": name,
                "server_name": SERVER_NAME,
                "input": parse_arguments_object(arguments),
            }),
            SegmentPart::ServerResult { item } => {
                let (id, is_good) = self.segment.call_outcome(*item);
                let content = [json!({"type": "text", "text": self.segment.part_text(part)})];
                json!({"type": "mcp_tool_result", "tool_use_id": id, "is_error": !is_good, "content": content})
            }
        }
    }

    fn citation(&self, cited: &Annotation) -> Option<Value> {
        match cited {
            Annotation::UrlCitation { url, title, .. } => Some(json!({
                "type": "web_search_result_location",
                "url": url,
                "title": title,
                "cited_text": "",
                "encrypted_index": "",
            })),
            Annotation::ReferenceToBlock { reference_id, .. } => Some(json!({
                "type": "search_result_location",
                "source": self.segment.reference_url(*reference_id),
                "title": format!("[{reference_id}]"),
                "cited_text": "",
                "search_result_index": reference_id.saturating_sub(1),
                "start_block_index": 0,
                "end_block_index": 1,
            })),
            // This protocol counts a file's letters or pages, which nobody has told us.
            Annotation::FileCitation { .. } => None,
        }
    }

    fn write_event(&self, told: &SegmentEvent, out: &mut RecordFrames) {
        match told {
            SegmentEvent::Started => {
                let message = self.message_object(&[], None, Usage::default());
                out.push("message_start", &json!({"type": "message_start", "message": message}));
            }
            SegmentEvent::PartStarted(place) => self.write_part_start(*place, out),
            SegmentEvent::PartDelta(place, more) => {
                let delta = match self.segment.part_progress(*place).map(|shown| &shown.part) {
                    Some(SegmentPart::Reasoning { .. }) => json!({"type": "thinking_delta", "thinking": more}),
                    _ => json!({"type": "text_delta", "text": more}),
                };
                self.write_delta(*place, &delta, out);
            }
            SegmentEvent::Annotation(place, cited) => {
                if let Some(citation) = self.citation(cited) {
                    self.write_delta(*place, &json!({"type": "citations_delta", "citation": citation}), out);
                }
            }
            SegmentEvent::PartDone(place) => self.write_part_end(*place, out),
            SegmentEvent::Finished => self.write_end(out),
        }
    }

    fn write_part_start(&self, place: usize, out: &mut RecordFrames) {
        let Some(shown) = self.segment.part_progress(place) else { return };
        let head = self.initial_block(&shown.part);
        let start = json!({"type": "content_block_start", "index": shown.index, "content_block": head});
        out.push("content_block_start", &start);
        match &shown.part {
            SegmentPart::ClientCall { arguments, .. } => {
                self.write_delta(place, &json!({"type": "input_json_delta", "partial_json": arguments}), out);
            }
            SegmentPart::Image { .. } => {
                let note = self.segment.part_text(&shown.part);
                self.write_delta(place, &json!({"type": "text_delta", "text": note}), out);
            }
            SegmentPart::Reasoning { .. }
            | SegmentPart::Text { .. }
            | SegmentPart::ServerCall { .. }
            | SegmentPart::ServerResult { .. } => {}
        }
    }

    fn write_delta(&self, place: usize, delta: &Value, out: &mut RecordFrames) {
        let index = self.segment.part_progress(place).and_then(|shown| shown.index);
        out.push("content_block_delta", &json!({"type": "content_block_delta", "index": index, "delta": delta}));
    }

    fn write_part_end(&self, place: usize, out: &mut RecordFrames) {
        let Some(shown) = self.segment.part_progress(place) else { return };
        if let SegmentPart::Reasoning { item, .. } = &shown.part {
            let signature = self.segment.item_id(*item);
            self.write_delta(place, &json!({"type": "signature_delta", "signature": signature}), out);
        }
        out.push("content_block_stop", &json!({"type": "content_block_stop", "index": shown.index}));
    }

    fn write_end(&self, out: &mut RecordFrames) {
        if let Some(failure) = self.failure() {
            let kind = match failure.kind {
                RunFailureKind::RateLimited => "rate_limit_error",
                RunFailureKind::Overloaded => "overloaded_error",
                RunFailureKind::Cancelled | RunFailureKind::Other => "api_error",
            };
            let error = json!({"type": "error", "error": {"type": kind, "message": failure.message}});
            out.push("error", &error);
            return;
        }
        let delta = json!({"stop_reason": self.stop_reason(), "stop_sequence": null});
        let usage = usage_object(self.segment.usage());
        out.push("message_delta", &json!({"type": "message_delta", "delta": delta, "usage": usage}));
        out.push("message_stop", &json!({"type": "message_stop"}));
    }
}

impl Projection for MessagesProjection {
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

fn insert_field(block: &mut Value, key: &str, value: Value) {
    if let Some(fields) = block.as_object_mut() {
        fields.insert(key.to_owned(), value);
    }
}

/// What it cost. This protocol counts what its cache held beside what was read.
fn usage_object(usage: Usage) -> Value {
    let cached = usage.cached_tokens.saturating_add(usage.cache_write_tokens);
    json!({
        "input_tokens": usage.input_tokens.saturating_sub(cached),
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    })
}
