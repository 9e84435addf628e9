//! Builds the request body.
//!
//! The server has its own log, so the service stores nothing: every request has the complete history (`store: false`) and
//! never a `previous_response_id`, which would add it a second time.

use super::input::{ResponseStorage, placeholder_input, push_input, to_plain_item};
use super::settings;
use crate::json::str_field;
use crate::request_list::ListText;
use crate::settings::combined_instructions;
use crate::written_history::{self, HistorySegment, SegmentWriter, write_history};
use crate::{RequestTarget, model_family, options};
use model::definition::ToolSpec;
use model::history::HistoryEntry;
use model::item::COMPUTER_TOOL;
use model::json::JsonObject;
use model::model_turn::ModelRequest;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Fields that would make the service add a history of its own.
const SERVER_STATE_FIELDS: [&str; 2] = ["previous_response_id", "conversation"];
/// Makes the service send reasoning in encrypted form, without which it cannot be sent back.
const INCLUDE_ENCRYPTED_REASONING: &str = "reasoning.encrypted_content";
const INCLUDE_LOGPROBS: &str = "message.output_text.logprobs";

/// The service's own search, which loads the functions that are deferred.
const TOOL_SEARCH_TYPE: &str = "tool_search";

const INPUT_FIELD: &str = "input";

/// The request for a turn.
pub fn build_request(turn: &ModelRequest, target: &RequestTarget<'_>) -> Value {
    let (mut fields, mut input) = (build_fields(turn, target), Vec::new());
    let history = HistorySegment::whole(turn.history.entries());
    push_input(history, target.origin, response_storage(turn, target), &mut input);
    fields.insert(INPUT_FIELD.to_owned(), input.into());
    Value::Object(fields)
}

/// The text of [`build_request`].
pub fn write_request(turn: &ModelRequest, target: &RequestTarget<'_>) -> Vec<u8> {
    let history = write_history(&turn.history, &ResponsesSegments::new(turn, target));
    let body = history.write_body(INPUT_FIELD, &ListText::default(), &build_fields(turn, target));
    history.keep_past(&turn.history);
    body
}

/// The entries whose text no earlier request of the thread has left for this one.
pub fn unwritten_entries<'a>(turn: &'a ModelRequest, target: &RequestTarget<'_>) -> &'a [Arc<HistoryEntry>] {
    written_history::unwritten_entries(&turn.history, &ResponsesSegments::new(turn, target))
}

struct ResponsesSegments<'a> {
    origin: &'a str,
    storage: ResponseStorage,
}

impl<'a> ResponsesSegments<'a> {
    fn new(turn: &ModelRequest, target: &RequestTarget<'a>) -> Self {
        Self { origin: target.origin, storage: response_storage(turn, target) }
    }
}

impl SegmentWriter for ResponsesSegments<'_> {
    fn origin(&self) -> &str {
        self.origin
    }

    fn format(&self) -> String {
        format!("responses {:?} {}", self.storage, self.origin)
    }

    /// The calls have the ids that the history has.
    fn write_segment(&self, segment: HistorySegment<'_>, out: &mut ListText) -> Vec<String> {
        push_input(segment, self.origin, self.storage, out);
        Vec::new()
    }
}

fn response_storage(turn: &ModelRequest, target: &RequestTarget<'_>) -> ResponseStorage {
    match turn.provider_options.get("store").and_then(Value::as_bool).unwrap_or(target.store) {
        true => ResponseStorage::Stored,
        false => ResponseStorage::NotStored,
    }
}

/// All but the input. The options of the turn are merged over the body last; `include: null` there turns encrypted reasoning
/// off.
fn build_fields(turn: &ModelRequest, target: &RequestTarget<'_>) -> JsonObject {
    let store = response_storage(turn, target) == ResponseStorage::Stored;
    let mut body = JsonObject::new();
    let mut set = |name: &str, value: Value| body.insert(name.to_owned(), value);
    set("model", target.model.into());
    set("stream", true.into());
    set("store", store.into());
    let instructions = combined_instructions(turn);
    if !instructions.is_empty() {
        set("instructions", instructions.into());
    }
    let tools = tools_json(turn, turn.provider_options.get("tools"));
    if !tools.is_empty() {
        set("tools", tools.into());
    }
    let has_logprobs = turn.model_settings.logprobs.is_some_and(|logprobs| logprobs.include);
    let include = [
        (!store && should_request_reasoning(turn, target)).then_some(INCLUDE_ENCRYPTED_REASONING),
        has_logprobs.then_some(INCLUDE_LOGPROBS),
    ];
    let include: Vec<&str> = include.into_iter().flatten().collect();
    if !include.is_empty() {
        set("include", json!(include));
    }
    settings::apply_settings(&mut body, turn);
    options::merge_options(&mut body, &turn.provider_options, &SERVER_STATE_FIELDS);
    body
}

/// The same request with messages and calls as plain content, without reasoning and ids. To be tried once after
/// `history_refused`.
pub fn without_reasoning(mut body: Value) -> Value {
    if let Some(Value::Array(input)) = body.get_mut("input") {
        *input = input.iter().filter_map(to_plain_item).collect();
        if input.is_empty() {
            input.push(json!(placeholder_input()));
        }
    }
    body
}

/// Whether to request encrypted reasoning. Models that do not reason refuse the request; a reasoning model without it cannot
/// get its reasoning back. Certain signs come first: an effort is set, or the model has reasoned in this thread. Else its
/// name decides; an unknown family is recognised by its first reasoning item.
fn should_request_reasoning(turn: &ModelRequest, target: &RequestTarget<'_>) -> bool {
    let option = turn.provider_options.get("reasoning");
    let is_configured = option.map_or(turn.model_settings.effort.is_some(), |option| !option.is_null());
    let is_reasoning =
        |entry: &HistoryEntry| matches!(entry, HistoryEntry::Reasoning { raw, .. } if raw.origin == target.origin);
    is_configured || model_family::is_reasoning_model(target.model) || turn.history.iter().any(is_reasoning)
}

/// A tool that the operator's options declare in the service's own form (`custom`, `computer`) is not declared again as a
/// function.
fn tools_json(turn: &ModelRequest, option: Option<&Value>) -> Vec<Value> {
    let declared = option.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let is_declared = |tool: &&ToolSpec| {
        let is_computer = |other: &Value| str_field(other, "type").is_some_and(|kind| kind.starts_with("computer"));
        let is_same = |other: &Value| {
            str_field(other, "name") == Some(&*tool.name) || tool.name == COMPUTER_TOOL && is_computer(other)
        };
        declared.iter().any(is_same)
    };
    let own = turn.tools.iter().filter(|tool| !is_declared(tool));
    let mut tools: Vec<Value> = own.map(|tool| function_tool_json(tool, &turn.deferred_tools)).collect();
    let has_search = declared.iter().any(|other| str_field(other, "type") == Some(TOOL_SEARCH_TYPE));
    if !turn.deferred_tools.is_empty() && !has_search {
        tools.push(json!({ "type": TOOL_SEARCH_TYPE }));
    }
    tools
}

/// Not strict, because the service would refuse schemas that it cannot enforce.
fn function_tool_json(tool: &ToolSpec, deferred: &BTreeSet<String>) -> Value {
    let mut function = JsonObject::new();
    function.insert("type".to_owned(), "function".into());
    function.insert("name".to_owned(), tool.name.as_str().into());
    if !tool.description.trim().is_empty() {
        function.insert("description".to_owned(), tool.description.as_str().into());
    }
    function.insert("parameters".to_owned(), Value::Object(parameters_json(&tool.parameters)));
    function.insert("strict".to_owned(), false.into());
    if deferred.contains(&tool.name) {
        function.insert("defer_loading".to_owned(), true.into());
    }
    Value::Object(function)
}

/// The service requires an object schema with `properties`, even if it has none.
fn parameters_json(schema: &Value) -> JsonObject {
    let mut schema = schema.as_object().cloned().unwrap_or_default();
    schema.entry("type").or_insert_with(|| "object".into());
    if schema.get("type").and_then(Value::as_str) == Some("object") {
        schema.entry("properties").or_insert_with(|| json!({}));
    }
    schema
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
