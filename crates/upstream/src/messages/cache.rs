//! What the provider is asked to keep in its cache: the instructions, the tools, and the conversation up to here.
//!
//! A request may have four marks. The newest message gets one, so that the next request finds everything up to it; the
//! user's message before it gets another, which is where the last request put its own: the provider looks back only so
//! far by itself, and a turn with many calls is longer than that. An operator who sets any mark sets them all.

use super::conversation::Message;
use model::block::JsonObject;
use serde_json::{Value, json};

const MARK: &str = "cache_control";
/// Between a user's message and the user's message before it stands one of the model.
const USERS_APART: usize = 2;

/// Who says what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marks {
    /// We do.
    Ours,
    /// The operator does.
    Theirs,
}

impl Marks {
    /// Looks at the operator's wishes.
    pub(super) fn of(options: &JsonObject) -> Self {
        if options.contains_key(MARK) || options.values().any(is_marked) { Self::Theirs } else { Self::Ours }
    }

    /// Everything up to the last of these blocks is kept.
    pub(super) fn last(self, blocks: &mut [Value]) {
        let last = blocks.last_mut().and_then(Value::as_object_mut);
        if let Some(last) = last.filter(|_| self == Self::Ours) {
            last.insert(MARK.to_owned(), json!({"type": "ephemeral"}));
        }
    }

    /// The conversation so far is kept, and found again.
    pub(super) fn newest(self, messages: &mut [Message]) {
        for message in messages.iter_mut().rev().step_by(USERS_APART).take(2) {
            self.last(&mut message.content);
        }
    }
}

fn is_marked(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.contains_key(MARK) || fields.values().any(is_marked),
        Value::Array(list) => list.iter().any(is_marked),
        _ => false,
    }
}
