//! A segment of a run as an answer of this protocol.
//!
//! What the server runs is `mcp_tool_use` and `mcp_tool_result`, with us as the server: each is one block that is whole as
//! it starts, for not every client collects the pieces of such an input. `tool_use` is for tools of the client's own.
//! Thoughts carry the name of their item as signature: whoever sends them back names the run that they are of.

use crate::burst::Burst;
use crate::stateless::telling::{End, Part, Telling, Told, input};
use crate::stateless::{Failure, FailureKind, name};
use model::block::Annotation;
use model::ports::{Frames, Projection};
use model::usage::Usage;
use model::{Record, TaskId};
use serde_json::{Value, json};

/// The server that our own tools are known by.
pub const SERVER_NAME: &str = "headwater";

/// One segment of a run as a message.
#[derive(Clone, Debug)]
pub struct Answer {
    telling: Telling,
}

impl Answer {
    /// The `segment`-th answer of a run, from 1. It ends with the run, or where the run pauses for the client's tools.
    #[must_use]
    pub fn new(run: TaskId, segment: u32) -> Self {
        Self { telling: Telling::new(run, segment) }
    }

    /// Has all been told?
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.telling.end().is_some()
    }

    /// Why there is no answer, where there is none.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        self.telling.failure()
    }

    /// The message as far as it is: what a client collects from the frames, without what was cut and said anew.
    #[must_use]
    pub fn object(&self) -> Value {
        let content: Vec<Value> = self.telling.kept().map(|part| self.block(part)).collect();
        self.message(&content, self.stop_reason(), self.telling.usage())
    }

    fn message(&self, content: &[Value], stop_reason: Option<&str>, usage: Usage) -> Value {
        let (run, segment) = self.telling.run();
        json!({
            "id": name("msg_", run, segment),
            "type": "message",
            "role": "assistant",
            "model": self.telling.model(),
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": null,
            "usage": tokens(usage),
        })
    }

    fn stop_reason(&self) -> Option<&'static str> {
        match self.telling.end()? {
            End::Done => Some("end_turn"),
            End::Calls => Some("tool_use"),
            End::Length => Some("max_tokens"),
            End::Refused | End::Filtered => Some("refusal"),
            End::Failed(_) => None,
        }
    }

    /// A part as the block that it becomes.
    fn block(&self, part: &Part) -> Value {
        let mut block = self.head(part);
        let text = || self.telling.text(part);
        let (key, value) = match part {
            Part::Thought { item, .. } => {
                put(&mut block, "signature", self.telling.item_id(*item).into());
                ("thinking", text().into())
            }
            Part::Words { .. } => {
                let annotations = self.telling.words(part).and_then(|block| block.annotations.as_deref());
                let cited = annotations.unwrap_or_default().iter().filter_map(|cited| self.citation(cited));
                let cited: Vec<Value> = cited.collect();
                if !cited.is_empty() {
                    put(&mut block, "citations", cited.into());
                }
                ("text", text().into())
            }
            Part::Picture { .. } => ("text", text().into()),
            Part::Call { arguments, .. } => ("input", input(arguments)),
            Part::Used { .. } | Part::Given { .. } => return block,
        };
        put(&mut block, key, value);
        block
    }

    /// A block as it starts.
    fn head(&self, part: &Part) -> Value {
        match part {
            Part::Thought { .. } => json!({"type": "thinking", "thinking": "", "signature": ""}),
            Part::Words { .. } | Part::Picture { .. } => json!({"type": "text", "text": ""}),
            Part::Call { call_id, name, .. } => json!({"type": "tool_use", "id": call_id, "name": name, "input": {}}),
            Part::Used { id, name, arguments } => json!({
                "type": "mcp_tool_use",
                "id": id,
                "name": name,
                "server_name": SERVER_NAME,
                "input": input(arguments),
            }),
            Part::Given { item } => {
                let (id, is_good) = self.telling.outcome(*item);
                let content = [json!({"type": "text", "text": self.telling.text(part)})];
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
                "source": self.telling.reference(*reference_id),
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

    fn frame(&self, told: &Told, out: &mut Burst) {
        match told {
            Told::Begun => {
                let message = self.message(&[], None, Usage::default());
                out.push("message_start", &json!({"type": "message_start", "message": message}));
            }
            Told::Opened(place) => self.opened(*place, out),
            Told::Grew(place, more) => {
                let delta = match self.telling.part(*place).map(|shown| &shown.part) {
                    Some(Part::Thought { .. }) => json!({"type": "thinking_delta", "thinking": more}),
                    _ => json!({"type": "text_delta", "text": more}),
                };
                self.delta(*place, &delta, out);
            }
            Told::Cited(place, cited) => {
                if let Some(citation) = self.citation(cited) {
                    self.delta(*place, &json!({"type": "citations_delta", "citation": citation}), out);
                }
            }
            Told::Closed(place) => self.closed(*place, out),
            Told::Over => self.over(out),
        }
    }

    fn opened(&self, place: usize, out: &mut Burst) {
        let Some(shown) = self.telling.part(place) else { return };
        let head = self.head(&shown.part);
        let start = json!({"type": "content_block_start", "index": shown.index, "content_block": head});
        out.push("content_block_start", &start);
        match &shown.part {
            Part::Call { arguments, .. } => {
                self.delta(place, &json!({"type": "input_json_delta", "partial_json": arguments}), out);
            }
            Part::Picture { .. } => {
                let note = self.telling.text(&shown.part);
                self.delta(place, &json!({"type": "text_delta", "text": note}), out);
            }
            Part::Thought { .. } | Part::Words { .. } | Part::Used { .. } | Part::Given { .. } => {}
        }
    }

    fn delta(&self, place: usize, delta: &Value, out: &mut Burst) {
        let index = self.telling.part(place).and_then(|shown| shown.index);
        out.push("content_block_delta", &json!({"type": "content_block_delta", "index": index, "delta": delta}));
    }

    fn closed(&self, place: usize, out: &mut Burst) {
        let Some(shown) = self.telling.part(place) else { return };
        if let Part::Thought { item, .. } = &shown.part {
            let signature = self.telling.item_id(*item);
            self.delta(place, &json!({"type": "signature_delta", "signature": signature}), out);
        }
        out.push("content_block_stop", &json!({"type": "content_block_stop", "index": shown.index}));
    }

    fn over(&self, out: &mut Burst) {
        if let Some(failure) = self.failure() {
            let kind = match failure.kind {
                FailureKind::RateLimited => "rate_limit_error",
                FailureKind::Overloaded => "overloaded_error",
                FailureKind::Cancelled | FailureKind::Other => "api_error",
            };
            let error = json!({"type": "error", "error": {"type": kind, "message": failure.message}});
            out.push("error", &error);
            return;
        }
        let delta = json!({"stop_reason": self.stop_reason(), "stop_sequence": null});
        let usage = tokens(self.telling.usage());
        out.push("message_delta", &json!({"type": "message_delta", "delta": delta, "usage": usage}));
        out.push("message_stop", &json!({"type": "message_stop"}));
    }
}

impl Projection for Answer {
    fn project(&mut self, record: &Record, out: &mut Frames) {
        let told = self.telling.take(record);
        let mut burst = Burst::default();
        told.iter().for_each(|told| self.frame(told, &mut burst));
        burst.write_without_ids(record, out);
        if self.is_over() {
            out.finish();
        }
    }

    fn boxed_clone(&self) -> Box<dyn Projection> {
        Box::new(self.clone())
    }
}

fn put(block: &mut Value, key: &str, value: Value) {
    if let Some(fields) = block.as_object_mut() {
        fields.insert(key.to_owned(), value);
    }
}

/// What it cost. This protocol counts what its cache held beside what was read.
fn tokens(usage: Usage) -> Value {
    let cached = usage.cached_tokens.saturating_add(usage.cache_write_tokens);
    json!({
        "input_tokens": usage.input_tokens.saturating_sub(cached),
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    })
}
