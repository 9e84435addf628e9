//! The history as messages that the provider takes.
//!
//! It wants roles that take turns, the user first and last; every call answered at the beginning of the message after it;
//! nothing blank; thoughts never last in a message; and for each tool that it ran itself both halves or none. A turn that
//! would end with the model's own words gets [`GO_ON`] behind them: to let the model continue its last sentence is what
//! newer models refuse.

use super::content::{self, raw_blocks, text_block};
use super::thinking;
use crate::content_parts::summary_text;
use crate::history::{PromptItem, normalize_history};
use crate::json;
use model::history::HistoryEntry;
use serde::Serialize;
use serde_json::Value;
use std::collections::HashSet;

/// What is said for a user who has nothing to say.
const CONTINUE_PROMPT: &str = "Go on.";
/// What is said for a user whose words are not there any more.
const OMITTED_HISTORY_NOTE: &str = "(What was said before this is not shown.)";

/// One message.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct PromptMessage {
    /// Whose it is.
    pub(super) role: PromptRole,
    /// Its blocks, at least one.
    pub(super) content: Vec<Value>,
}

/// Whose a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PromptRole {
    /// People's and tools'.
    User,
    /// The model's.
    Assistant,
}

/// The history, for a provider of this origin.
pub(super) fn build_messages(history: &[HistoryEntry], origin: &str) -> Vec<PromptMessage> {
    let mut messages = Vec::new();
    for told in normalize_history(history, origin) {
        let (role, blocks) = to_blocks(told);
        append_blocks(&mut messages, role, blocks);
    }
    drop_unpaired_hosted_calls(&mut messages);
    drop_stale_citations(&mut messages);
    for message in messages.iter_mut().filter(|message| message.role == PromptRole::Assistant) {
        let last = message.content.iter().rposition(|block| !thinking::is_thinking_block(block));
        message.content.truncate(last.map_or(0, |last| last + 1));
    }
    enforce_alternation(messages)
}

/// What is told, as blocks of one role.
fn to_blocks(told: PromptItem<'_>) -> (PromptRole, Vec<Value>) {
    match told {
        // That is said with the instructions.
        PromptItem::System(_) => (PromptRole::User, Vec::new()),
        PromptItem::Summary(summary) => (PromptRole::User, vec![text_block(&summary_text(summary))]),
        PromptItem::User(parts) => (PromptRole::User, parts.iter().map(|part| content::part_block(part)).collect()),
        PromptItem::Result(result) => (PromptRole::User, vec![content::tool_result_block(&result)]),
        PromptItem::Reasoning(raw) => {
            let thoughts = raw_blocks(raw).iter().filter(|block| thinking::is_resendable_thinking(block));
            (PromptRole::Assistant, thoughts.cloned().collect())
        }
        PromptItem::Assistant { text: words, raw } => {
            let said = raw.map_or(&[][..], raw_blocks).iter().filter(|block| is_non_blank_text(block));
            let said: Vec<Value> = said.cloned().collect();
            (PromptRole::Assistant, if said.is_empty() { vec![text_block(words)] } else { said })
        }
        PromptItem::Hosted { raw, .. } => {
            let halves =
                raw_blocks(raw).iter().filter(|block| hosted_call_id(block).or(hosted_result_id(block)).is_some());
            (PromptRole::Assistant, halves.cloned().collect())
        }
        PromptItem::Call(call) => (PromptRole::Assistant, vec![content::tool_use_block(&call)]),
    }
}

/// Words that are not blank.
fn is_non_blank_text(block: &Value) -> bool {
    block_type(block) == "text" && json::str_field(block, "text").is_some_and(|words| !words.trim().is_empty())
}

/// Adds blocks to the last message, or begins a new one where the role changes.
fn append_blocks(messages: &mut Vec<PromptMessage>, role: PromptRole, mut blocks: Vec<Value>) {
    match messages.last_mut() {
        _ if blocks.is_empty() => {}
        Some(last) if last.role == role => last.content.append(&mut blocks),
        _ => messages.push(PromptMessage { role, content: blocks }),
    }
}

/// Leaves out what the provider's own tools did where half of it is missing. A call that the newest turn is still busy
/// with gets its result in the next answer.
fn drop_unpaired_hosted_calls(messages: &mut [PromptMessage]) {
    let ids = |half: fn(&Value) -> Option<&str>| -> HashSet<String> {
        messages.iter().flat_map(|message| &message.content).filter_map(half).map(str::to_owned).collect()
    };
    let (calls, results) = (ids(hosted_call_id), ids(hosted_result_id));
    let newest = messages.iter().rposition(|message| message.role == PromptRole::Assistant);
    for (place, message) in messages.iter_mut().enumerate() {
        let is_busy = newest == Some(place) && message.content.iter().any(is_tool_use);
        message.content.retain(|block| match (hosted_call_id(block), hosted_result_id(block)) {
            (Some(id), _) => is_busy || results.contains(id),
            (_, Some(id)) => calls.contains(id),
            _ => true,
        });
    }
}

fn hosted_call_id(block: &Value) -> Option<&str> {
    json::str_field(block, "id").filter(|_| matches!(block_type(block), "server_tool_use" | "mcp_tool_use"))
}

fn hosted_result_id(block: &Value) -> Option<&str> {
    json::str_field(block, "tool_use_id").filter(|_| block_type(block).ends_with("_tool_result"))
}

/// Is it a call that we answer?
pub(super) fn is_tool_use(block: &Value) -> bool {
    block_type(block) == "tool_use"
}

/// Is it our answer to a call?
pub(super) fn is_tool_result(block: &Value) -> bool {
    block_type(block) == "tool_result"
}

fn block_type(block: &Value) -> &str {
    json::str_field(block, "type").unwrap_or_default()
}

/// Citations go back while what they point at is there. Those that count documents by their place do not: the places may
/// have moved.
fn drop_stale_citations(messages: &mut [PromptMessage]) {
    let mut blocks = messages.iter().flat_map(|message| &message.content);
    let has_results = blocks.any(|block| block_type(block) == "web_search_tool_result");
    let stays = |citation: &Value| has_results && block_type(citation) == "web_search_result_location";
    for block in messages.iter_mut().flat_map(|message| &mut message.content).filter_map(Value::as_object_mut) {
        let Some(Value::Array(citations)) = block.get_mut("citations") else { continue };
        citations.retain(stays);
        if citations.is_empty() {
            block.remove("citations");
        }
    }
}

/// The messages that have something in them, neighbours of one role joined, with a user first and last.
fn enforce_alternation(messages: Vec<PromptMessage>) -> Vec<PromptMessage> {
    let mut joined = Vec::new();
    for PromptMessage { role, content } in messages {
        if joined.is_empty() && role == PromptRole::Assistant && !content.is_empty() {
            append_blocks(&mut joined, PromptRole::User, vec![text_block(OMITTED_HISTORY_NOTE)]);
        }
        append_blocks(&mut joined, role, content);
    }
    if joined.last().is_none_or(|last| last.role == PromptRole::Assistant) {
        append_blocks(&mut joined, PromptRole::User, vec![text_block(CONTINUE_PROMPT)]);
    }
    joined
}
