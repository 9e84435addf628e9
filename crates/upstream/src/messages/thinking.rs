//! Thinking blocks in the history.
//!
//! For the provider, a turn with tools lasts until a response without a call, and its thinking blocks have to stay in it.
//! With `thinking = { type = "enabled", … }` it also refuses a turn that does *not* begin with thinking, as happens when
//! another model, or this one without thinking, began it. The solution is the one that its error message names: until that
//! turn is over, requests go without thinking and without thinking blocks.
//!
//! `adaptive` has no such rule. Without the option a model may think all the same, so thinking blocks are sent back; with
//! `disabled` they are not.

use super::wire::{PromptMessage, PromptRole, is_thinking_block, is_tool_result};
use crate::json;
use model::json::JsonObject;
use serde_json::Value;

pub(super) const THINKING_OPTION: &str = "thinking";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThinkingMode {
    /// The operator's option applies.
    AsConfigured,
    /// This request goes without thinking.
    Suspended,
}

/// Decides whether the option can apply to this conversation, and drops thinking blocks if it cannot or is `disabled`.
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

fn thinking_type(options: &JsonObject) -> &str {
    options.get(THINKING_OPTION).and_then(|option| json::str_field(option, "type")).unwrap_or_default()
}

pub(super) fn is_thinking_enabled(options: &JsonObject) -> bool {
    !matches!(thinking_type(options), "" | "disabled")
}

pub(super) fn thinking_budget_tokens(options: &JsonObject) -> u64 {
    options.get(THINKING_OPTION).map_or(0, |option| json::token_count_field(option, "budget_tokens"))
}

/// No message consists of thinking alone.
pub(super) fn strip_thinking(messages: &mut [PromptMessage]) {
    for message in messages {
        message.content.retain(|block| !is_thinking_block(block));
    }
}

/// Whether the current turn begins with thinking. It is not over if its calls were just answered. A user message along with
/// a result may have started a new turn, which then has to begin with thinking, too.
fn can_think(messages: &[PromptMessage]) -> bool {
    if !messages.last().is_some_and(|last| last.content.iter().any(is_tool_result)) {
        return true;
    }
    for pair in messages.windows(2).rev() {
        let [before, message] = pair else { continue };
        if message.role != PromptRole::Assistant {
            continue;
        }
        let thinks = message.content.first().is_some_and(is_thinking_block);
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

/// The provider accepts no thinking block without its signature.
pub(super) fn is_resendable_thinking(block: &Value) -> bool {
    let has = |key| json::str_field(block, key).is_some();
    match json::str_field(block, "type") {
        Some("thinking") => has("thinking") && has("signature"),
        Some("redacted_thinking") => has("data"),
        _ => false,
    }
}
