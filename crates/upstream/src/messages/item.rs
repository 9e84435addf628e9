//! One item of the answer, and what the answer cost.

use super::block::Kind;
use crate::json;
use model::block::JsonObject;
use model::model_turn::{ModelDelta, ModelEvent, ModelItemKind};
use model::record::RawItem;
use model::usage::Usage;
use serde_json::Value;

/// An item that is not done.
#[derive(Debug)]
pub(super) struct Item {
    /// Our number for it.
    pub(super) slot: u32,
    /// What its first block is.
    pub(super) kind: Kind,
    /// Somebody was told of it.
    pub(super) told: bool,
    /// A block of it has not ended.
    pub(super) open: bool,
    /// The call whose result belongs to it and has not come.
    pub(super) awaits: Option<String>,
    /// What a hosted call does.
    pub(super) action: JsonObject,
    /// How long a message is, in code points.
    pub(super) letters: u32,
    /// Its blocks that have ended.
    pub(super) blocks: Vec<Value>,
}

impl Item {
    /// An item whose first block starts.
    pub(super) fn new(slot: u32, kind: Kind, head: &Value, out: &mut Vec<ModelEvent>) -> Self {
        let started = announced(kind, head);
        let told = started.is_some();
        out.extend(started.map(|item| ModelEvent::Delta(ModelDelta::Started { slot, item })));
        Self { slot, kind, told, open: true, awaits: None, action: JsonObject::new(), letters: 0, blocks: Vec::new() }
    }

    /// More words of a message. It is told of with its first one: a message without words never was.
    pub(super) fn say(&mut self, words: &str, out: &mut Vec<ModelEvent>) {
        let slot = self.slot;
        if !self.told && !words.is_empty() {
            self.told = true;
            let item = ModelItemKind::Message { phase: None };
            out.push(ModelEvent::Delta(ModelDelta::Started { slot, item }));
        }
        let letters = u32::try_from(words.chars().count()).unwrap_or(u32::MAX);
        self.letters = self.letters.saturating_add(letters);
        if !words.is_empty() {
            let text = words.to_owned();
            out.push(ModelEvent::Delta(ModelDelta::Text { slot, part: 0, text, logprobs: None }));
        }
    }

    /// A hosted call moved on.
    pub(super) fn moved(&self, state: &str) -> ModelEvent {
        let action = Some(Value::Object(self.action.clone()));
        ModelEvent::Delta(ModelDelta::Hosted { slot: self.slot, state: state.to_owned(), action })
    }

    /// It is whole.
    pub(super) fn done(&mut self, origin: &str, out: &mut Vec<ModelEvent>) {
        if self.told {
            let blocks = std::mem::take(&mut self.blocks);
            let raw = (!is_plain(&blocks)).then(|| RawItem { origin: origin.to_owned(), item: Value::Array(blocks) });
            out.push(ModelEvent::Delta(ModelDelta::Done { slot: self.slot, raw }));
        }
    }
}

/// Are words all that there is? Then nothing has to be kept beside them.
fn is_plain(blocks: &[Value]) -> bool {
    let [Value::Object(block)] = blocks else { return false };
    block.get("type").is_some_and(|kind| kind == "text") && block.keys().all(|key| key == "type" || key == "text")
}

/// What is told of an item when its first block starts.
fn announced(kind: Kind, head: &Value) -> Option<ModelItemKind> {
    let text = |key| json::text(head, key).unwrap_or_default().to_owned();
    match kind {
        Kind::Text | Kind::Unknown => None,
        Kind::Thinking | Kind::Sealed => Some(ModelItemKind::Reasoning),
        Kind::Call => {
            let provider_call_id = Some(text("id")).filter(|id| !id.is_empty());
            Some(ModelItemKind::ToolCall { name: text("name"), provider_call_id })
        }
        Kind::HostedCall => Some(ModelItemKind::HostedCall { name: text("name") }),
        // The call itself was in an answer before this one.
        Kind::HostedResult => Some(ModelItemKind::HostedCall { name: text("type").replace("_tool_result", "") }),
    }
}

/// Tokens in the provider's words: it counts what came from its cache, and what went into it, apart.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tokens {
    input: u64,
    cache_write: u64,
    cache_read: u64,
    output: u64,
    thinking: u64,
}

impl Tokens {
    /// Takes in what is told; counts are sums so far, and what is left out stays as it was.
    pub(super) fn update(&mut self, usage: &Value) {
        let set = |field: &mut u64, usage: &Value, key: &str| {
            if json::present(usage, key).is_some() {
                *field = json::count(usage, key);
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
    pub(super) const fn usage(&self) -> Usage {
        Usage {
            input_tokens: self.input.saturating_add(self.cache_write).saturating_add(self.cache_read),
            cached_tokens: self.cache_read,
            cache_write_tokens: self.cache_write,
            output_tokens: self.output,
            reasoning_tokens: self.thinking,
        }
    }
}
