//! One item of a response, and the response's usage.

use super::block_builder::ContentBlockKind;
use crate::json;
use model::history::RawItem;
use model::json::JsonObject;
use model::model_turn::{ModelDelta, ModelEvent, ModelItemKind};
use model::usage::Usage;
use serde_json::Value;

#[derive(Debug)]
pub(super) struct MessagesItemBuilder {
    pub(super) slot: u32,
    /// The kind of its first block.
    pub(super) kind: ContentBlockKind,
    /// `Started` was emitted.
    pub(super) is_announced: bool,
    pub(super) has_open_block: bool,
    /// The hosted call whose result is still missing.
    pub(super) pending_call_id: Option<String>,
    pub(super) action: JsonObject,
    pub(super) text_chars: u32,
    /// Complete blocks.
    pub(super) blocks: Vec<Value>,
}

impl MessagesItemBuilder {
    pub(super) fn new(slot: u32, kind: ContentBlockKind, start_json: &Value, out: &mut Vec<ModelEvent>) -> Self {
        let started = started_item(kind, start_json);
        let is_announced = started.is_some();
        out.extend(started.map(|item| ModelEvent::Delta(ModelDelta::Started { slot, item })));
        Self {
            slot,
            kind,
            is_announced,
            has_open_block: true,
            pending_call_id: None,
            action: JsonObject::new(),
            text_chars: 0,
            blocks: Vec::new(),
        }
    }

    /// A message starts with its first text: without text there is no message.
    pub(super) fn push_text(&mut self, text: &str, out: &mut Vec<ModelEvent>) {
        let slot = self.slot;
        if !self.is_announced && !text.is_empty() {
            self.is_announced = true;
            let item = ModelItemKind::Message { phase: None };
            out.push(ModelEvent::Delta(ModelDelta::Started { slot, item }));
        }
        let chars = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
        self.text_chars = self.text_chars.saturating_add(chars);
        if !text.is_empty() {
            let text = text.to_owned();
            out.push(ModelEvent::Delta(ModelDelta::Text { slot, part: 0, text, logprobs: None }));
        }
    }

    pub(super) fn hosted_delta(&self, state: &str) -> ModelEvent {
        let action = Some(Value::Object(self.action.clone()));
        ModelEvent::Delta(ModelDelta::Hosted { slot: self.slot, state: state.to_owned(), action })
    }

    pub(super) fn finish(&mut self, origin: &str, out: &mut Vec<ModelEvent>) {
        if self.is_announced {
            let blocks = std::mem::take(&mut self.blocks);
            let raw =
                (!is_plain_text(&blocks)).then(|| RawItem { origin: origin.to_owned(), item: Value::Array(blocks) });
            out.push(ModelEvent::Delta(ModelDelta::Done { slot: self.slot, raw }));
        }
    }
}

/// Then the text is enough, and no raw item is needed.
fn is_plain_text(blocks: &[Value]) -> bool {
    let [Value::Object(block)] = blocks else { return false };
    block.get("type").is_some_and(|kind| kind == "text") && block.keys().all(|key| key == "type" || key == "text")
}

/// `None` for items that start later, or never.
fn started_item(kind: ContentBlockKind, start_json: &Value) -> Option<ModelItemKind> {
    let text = |key| json::str_field(start_json, key).unwrap_or_default().to_owned();
    match kind {
        ContentBlockKind::Text | ContentBlockKind::Unknown => None,
        ContentBlockKind::Thinking | ContentBlockKind::RedactedThinking => Some(ModelItemKind::Reasoning),
        ContentBlockKind::ToolUse => {
            let provider_call_id = Some(text("id")).filter(|id| !id.is_empty());
            Some(ModelItemKind::ToolCall { name: text("name"), provider_call_id })
        }
        ContentBlockKind::HostedToolUse => Some(ModelItemKind::HostedCall { name: text("name"), action: None }),
        // The call was in an earlier response.
        ContentBlockKind::HostedToolResult => {
            Some(ModelItemKind::HostedCall { name: text("type").replace("_tool_result", ""), action: None })
        }
    }
}

/// The provider counts tokens that it read from its cache, or wrote to it, apart from the input.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MessagesUsage {
    input: u64,
    cache_write: u64,
    cache_read: u64,
    output: u64,
    thinking: u64,
}

impl MessagesUsage {
    /// Counts are cumulative; missing ones keep their value.
    pub(super) fn update(&mut self, usage: &Value) {
        let set = |field: &mut u64, usage: &Value, key: &str| {
            if json::non_null_field(usage, key).is_some() {
                *field = json::token_count_field(usage, key);
            }
        };
        set(&mut self.input, usage, "input_tokens");
        set(&mut self.cache_write, usage, "cache_creation_input_tokens");
        set(&mut self.cache_read, usage, "cache_read_input_tokens");
        set(&mut self.output, usage, "output_tokens");
        if let Some(details) = usage.get("output_tokens_details") {
            set(&mut self.thinking, details, "thinking_tokens");
        }
    }

    pub(super) const fn to_usage(self) -> Usage {
        Usage {
            input_tokens: self.input.saturating_add(self.cache_write).saturating_add(self.cache_read),
            cached_tokens: self.cache_read,
            cache_write_tokens: self.cache_write,
            output_tokens: self.output,
            reasoning_tokens: self.thinking,
        }
    }
}
