//! The messages of a request, and what a content block is.

use crate::json;
use model::json::JsonObject;
use serde_json::Value;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct PromptMessage {
    pub(super) role: PromptRole,
    /// Never empty in a request.
    pub(super) content: Vec<Value>,
}

impl PromptMessage {
    pub(super) fn into_value(self) -> Value {
        let role = match self.role {
            PromptRole::User => "user",
            PromptRole::Assistant => "assistant",
        };
        let mut message = JsonObject::new();
        message.insert("role".to_owned(), role.into());
        message.insert("content".to_owned(), self.content.into());
        Value::Object(message)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PromptRole {
    /// Users and tools.
    User,
    Assistant,
}

pub(super) fn block_type(block: &Value) -> &str {
    json::str_field(block, "type").unwrap_or_default()
}

/// A call that this side answers.
pub(super) fn is_tool_use(block: &Value) -> bool {
    block_type(block) == "tool_use"
}

/// The answer to such a call.
pub(super) fn is_tool_result(block: &Value) -> bool {
    block_type(block) == "tool_result"
}

pub(super) fn is_thinking_block(block: &Value) -> bool {
    matches!(block_type(block), "thinking" | "redacted_thinking")
}
