//! Thoughts on their way back.
//!
//! A turn with tools is one turn for the provider until it is answered without a call, and its thoughts must stay with
//! it. With `thinking = { type = "enabled", … }` the provider also refuses such a turn when it does *not* begin with
//! thoughts, which is what happens when another model, or this one without thinking, began it. The way out is the one
//! that its own message names: until that turn is over it is asked without thinking, and without thoughts.
//!
//! `adaptive` asks for nothing of that kind. Without the wish a model may think all the same, so thoughts go back; with
//! `disabled` they do not.

use super::conversation::{PromptMessage, PromptRole, is_tool_result};
use crate::json;
use model::json::JsonObject;
use serde_json::Value;

/// The wish in the operator's options.
pub(super) const THINKING_OPTION: &str = "thinking";

/// What becomes of the wish to think.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThinkingMode {
    /// The request says what the operator says.
    AsConfigured,
    /// This request does without.
    Suspended,
}

/// Looks at what is wished and what is possible. Where the model is not to think, its thoughts are left out.
pub(super) fn resolve_thinking(options: &JsonObject, messages: &mut [PromptMessage]) -> ThinkingMode {
    match thinking_type(options) {
        "disabled" => {
            strip_thinking(messages);
            ThinkingMode::AsConfigured
        }
        "enabled" if !can_think(messages) => {
            strip_thinking(messages);
            ThinkingMode::Suspended
        }
        _ => ThinkingMode::AsConfigured,
    }
}

/// The kind of thinking that is wished for.
fn thinking_type(options: &JsonObject) -> &str {
    options.get(THINKING_OPTION).and_then(|wish| json::str_field(wish, "type")).unwrap_or_default()
}

/// Does the operator have the model think?
pub(super) fn is_thinking_enabled(options: &JsonObject) -> bool {
    !matches!(thinking_type(options), "" | "disabled")
}

/// How many tokens of the answer may be thoughts.
pub(super) fn thinking_budget_tokens(options: &JsonObject) -> u64 {
    options.get(THINKING_OPTION).map_or(0, |wish| json::token_count_field(wish, "budget_tokens"))
}

/// Leaves out all thoughts. No message consists of them alone.
pub(super) fn strip_thinking(messages: &mut [PromptMessage]) {
    for message in messages {
        message.content.retain(|block| !is_thinking_block(block));
    }
}

/// Does the turn that is not over begin with thoughts? It is not over when its calls were just answered. Where a user
/// spoke along with an answer, a new turn may have begun, and that must do so, too.
fn can_think(messages: &[PromptMessage]) -> bool {
    if !messages.last().is_some_and(|last| last.content.iter().any(is_tool_result)) {
        return true;
    }
    for pair in messages.windows(2).rev() {
        let [before, said] = pair else { continue };
        if said.role != PromptRole::Assistant {
            continue;
        }
        let thinks = said.content.first().is_some_and(is_thinking_block);
        let results = before.content.iter().filter(|block| is_tool_result(block)).count();
        if results == 0 {
            return thinks;
        }
        if results < before.content.len() && !thinks {
            return false;
        }
    }
    true
}

/// Is it a thought?
pub(super) fn is_thinking_block(block: &Value) -> bool {
    matches!(json::str_field(block, "type"), Some("thinking" | "redacted_thinking"))
}

/// Is it a thought that the provider would take back? It takes none without its signature.
pub(super) fn is_resendable_thinking(block: &Value) -> bool {
    let has = |key| json::str_field(block, key).is_some();
    match json::str_field(block, "type") {
        Some("thinking") => has("thinking") && has("signature"),
        Some("redacted_thinking") => has("data"),
        _ => false,
    }
}
