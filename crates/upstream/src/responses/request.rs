//! What the service is asked.
//!
//! We have a log of our own, so nothing is left with the service: every request holds all that was said (`store: false`),
//! and never a `previous_response_id`, which would say it a second time.

use super::input::{build_input, placeholder_input, to_plain_item};
use super::settings;
use crate::json::str_field;
use crate::settings::combined_instructions;
use crate::{RequestTarget, model_family, options};
use model::definition::ToolSpec;
use model::history::HistoryEntry;
use model::json::JsonObject;
use model::model_turn::ModelRequest;
use serde_json::{Value, json};

/// What would make the service add a past of its own.
const SERVER_STATE_FIELDS: [&str; 2] = ["previous_response_id", "conversation"];
/// What makes reasoning come with its blob, without which it cannot be given back.
const INCLUDE_ENCRYPTED_REASONING: &str = "reasoning.encrypted_content";

/// The body that asks for a turn. `turn.options` are put over it last; `include: null` there asks for no blobs.
#[must_use]
pub fn build_request(turn: &ModelRequest, target: &RequestTarget<'_>) -> Value {
    let store = turn.provider_options.get("store").and_then(Value::as_bool).unwrap_or(target.store);
    let mut body = JsonObject::new();
    let mut set = |name: &str, value: Value| body.insert(name.to_owned(), value);
    set("model", target.model.into());
    set("stream", true.into());
    set("store", store.into());
    set("input", build_input(&turn.history, target.origin, store).into());
    let instructions = combined_instructions(turn);
    if !instructions.is_empty() {
        set("instructions", instructions.into());
    }
    let tools = tools_json(&turn.tools, turn.provider_options.get("tools"));
    if !tools.is_empty() {
        set("tools", tools.into());
    }
    if !store && should_request_reasoning(turn, target) {
        set("include", json!([INCLUDE_ENCRYPTED_REASONING]));
    }
    settings::apply_settings(&mut body, turn);
    options::merge_options(&mut body, &turn.provider_options, &SERVER_STATE_FIELDS);
    Value::Object(body)
}

/// The same request without anything that the service could miss a part of: no reasoning, no ids, words and calls alone.
/// It is what to try, once, when the answer was `history_refused`.
#[must_use]
pub fn without_reasoning(mut body: Value) -> Value {
    if let Some(Value::Array(input)) = body.get_mut("input") {
        *input = input.iter().filter_map(to_plain_item).collect();
        if input.is_empty() {
            input.push(placeholder_input());
        }
    }
    body
}

/// Is it a model that reasons? Others refuse to be asked for blobs of reasoning, while one that is not asked cannot be
/// given its reasoning back, so both mistakes cost something. Sure signs come first: somebody says how hard it is to
/// think, or it has thought in this thread. Else its name has to do; a new family is found out with its first thought.
fn should_request_reasoning(turn: &ModelRequest, target: &RequestTarget<'_>) -> bool {
    let wished =
        turn.provider_options.get("reasoning").map_or(turn.model_settings.effort.is_some(), |wish| !wish.is_null());
    let thought =
        |entry: &HistoryEntry| matches!(entry, HistoryEntry::Reasoning { raw, .. } if raw.origin == target.origin);
    wished || turn.history.iter().any(thought) || model_family::is_reasoning_model(target.model)
}

/// Our tools in the service's shape. A tool that the operator declares in the service's own words (`custom`, `computer`)
/// is not declared a second time as a function: it is the same tool, asked for in another way.
fn tools_json(ours: &[ToolSpec], wished: Option<&Value>) -> Vec<Value> {
    let wished = wished.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let is_declared = |tool: &&ToolSpec| {
        let is_computer = |wish: &Value| str_field(wish, "type").is_some_and(|kind| kind.starts_with("computer"));
        let same =
            |wish: &Value| str_field(wish, "name") == Some(&*tool.name) || tool.name == "computer" && is_computer(wish);
        wished.iter().any(same)
    };
    ours.iter().filter(|tool| !is_declared(tool)).map(function_tool_json).collect()
}

/// Not strict: that demands more of a schema than to be one, and the service would refuse the rest.
fn function_tool_json(tool: &ToolSpec) -> Value {
    let mut function = JsonObject::new();
    function.insert("type".to_owned(), "function".into());
    function.insert("name".to_owned(), tool.name.as_str().into());
    if !tool.description.trim().is_empty() {
        function.insert("description".to_owned(), tool.description.as_str().into());
    }
    function.insert("parameters".to_owned(), Value::Object(parameters_json(&tool.parameters)));
    function.insert("strict".to_owned(), false.into());
    Value::Object(function)
}

/// The service wants an object, and its properties even if there are none.
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
