//! Builds the request body.

use super::cache_control::PromptCachePolicy;
use super::conversation::build_messages;
use super::exact_inputs::{exact_inputs, write_body};
use super::thinking::{self, ThinkingMode};
use super::wire::{PromptMessage, is_thinking_block, is_tool_use};
use super::{BETAS_OPTION, content, settings};
use crate::settings::combined_instructions;
use crate::{RequestTarget, json, options};
use model::definition::ToolSpec;
use model::history::HistoryEntry;
use model::json::JsonObject;
use model::model_turn::ModelRequest;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The provider requires an output limit. It does not count thinking; the caller's setting and `max_tokens` in the options
/// replace it.
const DEFAULT_MAX_TOKENS: u64 = 8192;
/// The provider refuses these at the top level of a schema.
const UNSUPPORTED_TOP_LEVEL_KEYWORDS: [&str; 3] = ["oneOf", "anyOf", "allOf"];

/// The provider's own search, which loads the tools that are deferred.
const TOOL_SEARCH_TYPE: &str = "tool_search_tool_bm25_20251119";
const TOOL_SEARCH_NAME: &str = "tool_search_tool_bm25";

/// The provider refuses a history with calls if no tool is declared. A turn without tools therefore declares the tools of
/// earlier calls and sets `tool_choice` to `none`.
pub fn build_request(turn: &ModelRequest, target: &RequestTarget<'_>) -> Value {
    let options = &*turn.provider_options;
    let cache_policy = PromptCachePolicy::from_options(options);
    let mut messages = build_messages(&turn.history, target.origin);
    let mut protected = vec![BETAS_OPTION];
    let thinking = thinking::resolve_thinking(options, &mut messages);
    if thinking == ThinkingMode::Suspended {
        protected.push(thinking::THINKING_OPTION);
    }
    cache_policy.mark_recent_messages(&mut messages);
    let mut body = JsonObject::new();
    body.insert("model".to_owned(), target.model.into());
    body.insert("stream".to_owned(), true.into());
    let output_tokens = turn.model_settings.max_output_tokens.unwrap_or(DEFAULT_MAX_TOKENS);
    body.insert(
        "max_tokens".to_owned(),
        output_tokens.saturating_add(thinking::thinking_budget_tokens(options)).into(),
    );
    let mut system = system_blocks(turn);
    if !system.is_empty() {
        cache_policy.mark_last_block(&mut system);
        body.insert("system".to_owned(), system.into());
    }
    let mut tools = tools_json(turn);
    if !tools.is_empty() {
        cache_policy.mark_last_block(&mut tools);
        body.insert("tools".to_owned(), tools.into());
    }
    settings::apply_settings(&mut body, turn, thinking);
    options::merge_options(&mut body, options, &protected);
    declare_past_tools(&mut body, &messages);
    body.insert("messages".to_owned(), messages.into_iter().map(PromptMessage::into_value).collect());
    Value::Object(body)
}

/// The text of [`build_request`], with the inputs of calls as they were written.
pub fn write_request(turn: &ModelRequest, target: &RequestTarget<'_>) -> Vec<u8> {
    write_body(&build_request(turn, target), &exact_inputs(&turn.history, target.origin))
}

/// The instructions, then the system messages of the conversation: the provider has no such role.
fn system_blocks(turn: &ModelRequest) -> Vec<Value> {
    let system_texts = turn.history.iter().filter_map(|entry| match entry {
        HistoryEntry::System { text } => Some(text.clone()),
        _ => None,
    });
    let texts = std::iter::once(combined_instructions(turn)).chain(system_texts);
    texts.filter(|text| !text.trim().is_empty()).map(|text| content::text_block(&text)).collect()
}

/// The tools that are always declared come last, so that the mark of the prompt cache is not on a deferred one: the provider
/// refuses that.
fn tools_json(turn: &ModelRequest) -> Vec<Value> {
    let is_deferred = |spec: &&ToolSpec| turn.deferred_tools.contains(&spec.name);
    let (deferred, direct): (Vec<_>, Vec<_>) = turn.tools.iter().partition(is_deferred);
    let mut tools: Vec<Value> = deferred.into_iter().map(tool_json).collect();
    for tool in tools.iter_mut().filter_map(Value::as_object_mut) {
        tool.insert("defer_loading".to_owned(), true.into());
    }
    tools.extend(direct.into_iter().map(tool_json));
    if !turn.deferred_tools.is_empty() {
        tools.push(json!({ "type": TOOL_SEARCH_TYPE, "name": TOOL_SEARCH_NAME }));
    }
    tools
}

fn tool_json(spec: &ToolSpec) -> Value {
    let mut schema = spec.parameters.as_object().cloned().unwrap_or_default();
    schema.retain(|key, _| !UNSUPPORTED_TOP_LEVEL_KEYWORDS.contains(&key.as_str()));
    schema.insert("type".to_owned(), "object".into());
    let mut tool = json!({"name": spec.name, "input_schema": schema});
    if let Some(tool) = tool.as_object_mut().filter(|_| !spec.description.trim().is_empty()) {
        tool.insert("description".to_owned(), spec.description.as_str().into());
    }
    tool
}

fn declare_past_tools(body: &mut JsonObject, messages: &[PromptMessage]) {
    if body.get("tools").and_then(Value::as_array).is_some_and(|tools| !tools.is_empty()) {
        return;
    }
    let calls = messages.iter().flat_map(|message| &message.content).filter(|block| is_tool_use(block));
    let names: BTreeSet<&str> = calls.filter_map(|call| json::str_field(call, "name")).collect();
    if names.is_empty() {
        return;
    }
    let tools: Vec<Value> =
        names.iter().map(|name| json!({"name": name, "input_schema": {"type": "object"}})).collect();
    body.insert("tools".to_owned(), tools.into());
    body.insert("tool_choice".to_owned(), json!({"type": "none"}));
}

/// The same request without thinking blocks. To be tried once after `history_refused`.
pub fn without_reasoning(mut body: Value) -> Value {
    let Some(fields) = body.as_object_mut() else { return body };
    if let Some(Value::Array(messages)) = fields.get_mut("messages") {
        for message in messages {
            if let Some(Value::Array(content)) = message.get_mut("content") {
                content.retain(|block| !is_thinking_block(block));
            }
        }
    }
    let option = fields.get(thinking::THINKING_OPTION);
    if option.is_some_and(|option| json::str_field(option, "type") == Some("enabled")) {
        fields.remove(thinking::THINKING_OPTION);
    }
    body
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
