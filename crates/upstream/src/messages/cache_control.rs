//! What the provider is asked to keep in its cache: the instructions, the tools, and the conversation up to here.
//!
//! A request may have four marks. The newest message gets one, so that the next request finds everything up to it; the
//! user's message before it gets another, which is where the last request put its own: the provider looks back only so
//! far by itself, and a turn with many calls is longer than that. An operator who sets any mark sets them all.

use super::conversation::PromptMessage;
use model::json::JsonObject;
use serde_json::{Value, json};

const CACHE_CONTROL: &str = "cache_control";
/// Between a user's message and the user's message before it stands one of the model.
const USER_MESSAGE_STRIDE: usize = 2;

/// Who says what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PromptCachePolicy {
    /// We do.
    Automatic,
    /// The operator does.
    Manual,
}

impl PromptCachePolicy {
    /// Looks at the operator's wishes.
    pub(super) fn from_options(options: &JsonObject) -> Self {
        if options.contains_key(CACHE_CONTROL) || options.values().any(has_cache_control) {
            Self::Manual
        } else {
            Self::Automatic
        }
    }

    /// Everything up to the last of these blocks is kept.
    pub(super) fn mark_last_block(self, blocks: &mut [Value]) {
        let last = blocks.last_mut().and_then(Value::as_object_mut);
        if let Some(last) = last.filter(|_| self == Self::Automatic) {
            last.insert(CACHE_CONTROL.to_owned(), json!({"type": "ephemeral"}));
        }
    }

    /// The conversation so far is kept, and found again.
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
