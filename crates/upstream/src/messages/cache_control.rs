//! Prompt caching: marks the instructions, the tools, and the conversation so far as cacheable.
//!
//! A request may have four marks. The newest message gets one, so that the next request finds everything up to it. The
//! user message before it gets another, where the last request had its own: the provider searches back only a limited
//! number of blocks, and a turn with many calls has more. If the operator's options set any mark, they set all of them.

use super::wire::PromptMessage;
use model::json::JsonObject;
use serde_json::{Value, json};

const CACHE_CONTROL: &str = "cache_control";
/// User and assistant messages alternate.
const USER_MESSAGE_STRIDE: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PromptCachePolicy {
    Automatic,
    /// The operator's options have marks.
    Manual,
}

impl PromptCachePolicy {
    pub(super) fn from_options(options: &JsonObject) -> Self {
        if options.contains_key(CACHE_CONTROL) || options.values().any(has_cache_control) {
            Self::Manual
        } else {
            Self::Automatic
        }
    }

    pub(super) fn mark_last_block(self, blocks: &mut [Value]) {
        let last = blocks.last_mut().and_then(Value::as_object_mut);
        if let Some(last) = last.filter(|_| self == Self::Automatic) {
            last.insert(CACHE_CONTROL.to_owned(), json!({"type": "ephemeral"}));
        }
    }

    pub(super) fn mark_recent_messages(self, messages: &mut [PromptMessage]) {
        for message in messages.iter_mut().rev().step_by(USER_MESSAGE_STRIDE).take(2) {
            self.mark_last_block(&mut message.content);
        }
    }
}

fn has_cache_control(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.contains_key(CACHE_CONTROL) || fields.values().any(has_cache_control),
        Value::Array(list) => list.iter().any(has_cache_control),
        _ => false,
    }
}
