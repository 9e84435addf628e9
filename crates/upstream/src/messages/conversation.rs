//! The history as messages.
//!
//! The provider requires alternating roles, with the user first and last; the result of every call at the beginning of the
//! next message; no blank text; no thinking at the end of a message; and for each hosted tool both call and result, or
//! neither. A conversation that would end with the assistant gets [`CONTINUE_PROMPT`] appended: newer models refuse to
//! continue their own last message.

use super::content::{self, raw_blocks, text_block};
use super::thinking;
use super::wire::{PromptMessage, PromptRole, block_type, is_thinking_block, is_tool_use};
use crate::content_parts::summary_text;
use crate::history::{PromptItem, normalize_history};
use crate::json;
use model::history::SharedHistory;
use serde_json::Value;
use std::collections::HashSet;

/// Stands in for a user message at the end.
const CONTINUE_PROMPT: &str = "Go on.";
/// Stands in for a user message at the beginning.
const OMITTED_HISTORY_NOTE: &str = "(What was said before this is not shown.)";

pub(super) fn build_messages(history: &SharedHistory, origin: &str) -> Vec<PromptMessage> {
    let mut messages = Vec::new();
    for item in normalize_history(history, origin) {
        let (role, blocks) = to_blocks(item);
        append_blocks(&mut messages, role, blocks);
    }
    drop_unpaired_hosted_calls(&mut messages);
    drop_stale_citations(&mut messages);
    for message in messages.iter_mut().filter(|message| message.role == PromptRole::Assistant) {
        let last = message.content.iter().rposition(|block| !is_thinking_block(block));
        message.content.truncate(last.map_or(0, |last| last + 1));
    }
    enforce_alternation(messages)
}

fn to_blocks(item: PromptItem<'_>) -> (PromptRole, Vec<Value>) {
    match item {
        // The instructions include it.
        PromptItem::System(_) => (PromptRole::User, Vec::new()),
        PromptItem::Summary(summary) => (PromptRole::User, vec![text_block(&summary_text(summary))]),
        PromptItem::User(parts) => (PromptRole::User, parts.iter().map(|part| content::part_block(part)).collect()),
        PromptItem::Result(result) => (PromptRole::User, vec![content::tool_result_block(&result)]),
        PromptItem::Reasoning(raw) => {
            let blocks = raw_blocks(raw).iter().filter(|block| thinking::is_resendable_thinking(block));
            (PromptRole::Assistant, blocks.cloned().collect())
        }
        PromptItem::Assistant { text, raw } => {
            let blocks = raw.map_or(&[][..], raw_blocks).iter().filter(|block| is_non_blank_text(block));
            let blocks: Vec<Value> = blocks.cloned().collect();
            (PromptRole::Assistant, if blocks.is_empty() { vec![text_block(text)] } else { blocks })
        }
        PromptItem::Hosted { raw, .. } => {
            let blocks =
                raw_blocks(raw).iter().filter(|block| hosted_call_id(block).or(hosted_result_id(block)).is_some());
            (PromptRole::Assistant, blocks.cloned().collect())
        }
        PromptItem::Call(call) => (PromptRole::Assistant, vec![content::tool_use_block(&call)]),
    }
}

fn is_non_blank_text(block: &Value) -> bool {
    block_type(block) == "text" && json::str_field(block, "text").is_some_and(|text| !text.trim().is_empty())
}

/// Appends to the last message, or starts a new one if the role changes.
fn append_blocks(messages: &mut Vec<PromptMessage>, role: PromptRole, mut blocks: Vec<Value>) {
    match messages.last_mut() {
        _ if blocks.is_empty() => {}
        Some(last) if last.role == role => last.content.append(&mut blocks),
        _ => messages.push(PromptMessage { role, content: blocks }),
    }
}

/// Drops hosted calls without a result and results without a call. In the newest turn a call may be pending: its result
/// comes with the next response.
fn drop_unpaired_hosted_calls(messages: &mut [PromptMessage]) {
    let ids_of = |id: fn(&Value) -> Option<&str>| -> HashSet<String> {
        messages.iter().flat_map(|message| &message.content).filter_map(id).map(str::to_owned).collect()
    };
    let (calls, results) = (ids_of(hosted_call_id), ids_of(hosted_result_id));
    let newest = messages.iter().rposition(|message| message.role == PromptRole::Assistant);
    for (index, message) in messages.iter_mut().enumerate() {
        let is_pending = newest == Some(index) && message.content.iter().any(is_tool_use);
        message.content.retain(|block| match (hosted_call_id(block), hosted_result_id(block)) {
            (Some(id), _) => is_pending || results.contains(id),
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

/// Keeps citations whose search results are present. Citations by document index are dropped, because indices may have
/// changed.
fn drop_stale_citations(messages: &mut [PromptMessage]) {
    let mut blocks = messages.iter().flat_map(|message| &message.content);
    let has_results = blocks.any(|block| block_type(block) == "web_search_tool_result");
    let is_valid = |citation: &Value| has_results && block_type(citation) == "web_search_result_location";
    for block in messages.iter_mut().flat_map(|message| &mut message.content).filter_map(Value::as_object_mut) {
        let Some(Value::Array(citations)) = block.get_mut("citations") else { continue };
        citations.retain(is_valid);
        if citations.is_empty() {
            block.remove("citations");
        }
    }
}

/// Joins neighbours of one role, and makes the user first and last.
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
