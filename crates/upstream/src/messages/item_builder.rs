//! One item of the answer, and what the answer cost.

use super::block_builder::ContentBlockKind;
use crate::json;
use model::history::RawItem;
use model::json::JsonObject;
use model::model_turn::{ModelDelta, ModelEvent, ModelItemKind};
use model::usage::Usage;
use serde_json::Value;

/// An item that is not done.
#[derive(Debug)]
pub(super) struct MessagesItemBuilder {
    /// Our number for it.
    pub(super) slot: u32,
    /// What its first block is.
    pub(super) kind: ContentBlockKind,
    /// Somebody was told of it.
    pub(super) is_announced: bool,
    /// A block of it has not ended.
    pub(super) has_open_block: bool,
    /// The call whose result belongs to it and has not come.
    pub(super) pending_call_id: Option<String>,
    /// What a hosted call does.
    pub(super) action: JsonObject,
    /// How long a message is, in code points.
    pub(super) text_chars: u32,
    /// Its blocks that have ended.
    pub(super) blocks: Vec<Value>,
}

impl MessagesItemBuilder {
    /// An item whose first block starts.
    pub(super) fn new(slot: u32, kind: ContentBlockKind, head: &Value, out: &mut Vec<ModelEvent>) -> Self {
        let started = started_item(kind, head);
        let told = started.is_some();
        out.extend(started.map(|item| ModelEvent::Delta(ModelDelta::Started { slot, item })));
        Self {
            slot,
            kind,
            is_announced: told,
            has_open_block: true,
            pending_call_id: None,
            action: JsonObject::new(),
            text_chars: 0,
            blocks: Vec::new(),
        }
    }

    /// More words of a message. It is told of with its first one: a message without words never was.
    pub(super) fn push_text(&mut self, words: &str, out: &mut Vec<ModelEvent>) {
        let slot = self.slot;
        if !self.is_announced && !words.is_empty() {
            self.is_announced = true;
            let item = ModelItemKind::Message { phase: None };
            out.push(ModelEvent::Delta(ModelDelta::Started { slot, item }));
        }
        let letters = u32::try_from(words.chars().count()).unwrap_or(u32::MAX);
        self.text_chars = self.text_chars.saturating_add(letters);
        if !words.is_empty() {
            let text = words.to_owned();
            out.push(ModelEvent::Delta(ModelDelta::Text { slot, part: 0, text, logprobs: None }));
        }
    }

    /// A hosted call moved on.
    pub(super) fn hosted_delta(&self, state: &str) -> ModelEvent {
        let action = Some(Value::Object(self.action.clone()));
        ModelEvent::Delta(ModelDelta::Hosted { slot: self.slot, state: state.to_owned(), action })
    }

    /// It is whole.
    pub(super) fn finish(&mut self, origin: &str, out: &mut Vec<ModelEvent>) {
        if self.is_announced {
            let blocks = std::mem::take(&mut self.blocks);
            let raw =
                (!is_plain_text(&blocks)).then(|| RawItem { origin: origin.to_owned(), item: Value::Array(blocks) });
            out.push(ModelEvent::Delta(ModelDelta::Done { slot: self.slot, raw }));
        }
    }
}

/// Are words all that there is? Then nothing has to be kept beside them.
fn is_plain_text(blocks: &[Value]) -> bool {
    let [Value::Object(block)] = blocks else { return false };
    block.get("type").is_some_and(|kind| kind == "text") && block.keys().all(|key| key == "type" || key == "text")
}

/// What is told of an item when its first block starts.
fn started_item(kind: ContentBlockKind, head: &Value) -> Option<ModelItemKind> {
    let text = |key| json::str_field(head, key).unwrap_or_default().to_owned();
    match kind {
        ContentBlockKind::Text | ContentBlockKind::Unknown => None,
        ContentBlockKind::Thinking | ContentBlockKind::RedactedThinking => Some(ModelItemKind::Reasoning),
        ContentBlockKind::ToolUse => {
            let provider_call_id = Some(text("id")).filter(|id| !id.is_empty());
            Some(ModelItemKind::ToolCall { name: text("name"), provider_call_id })
        }
        ContentBlockKind::HostedToolUse => Some(ModelItemKind::HostedCall { name: text("name") }),
        // The call itself was in an answer before this one.
        ContentBlockKind::HostedToolResult => {
            Some(ModelItemKind::HostedCall { name: text("type").replace("_tool_result", "") })
        }
    }
}

/// Tokens in the provider's words: it counts what came from its cache, and what went into it, apart.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MessagesUsage {
    input: u64,
    cache_write: u64,
    cache_read: u64,
    output: u64,
    thinking: u64,
}

impl MessagesUsage {
    /// Takes in what is told; counts are sums so far, and what is left out stays as it was.
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

    /// The same in our words.
    pub(super) const fn to_usage(&self) -> Usage {
        Usage {
            input_tokens: self.input.saturating_add(self.cache_write).saturating_add(self.cache_read),
            cached_tokens: self.cache_read,
            cache_write_tokens: self.cache_write,
            output_tokens: self.output,
            reasoning_tokens: self.thinking,
        }
    }
}
