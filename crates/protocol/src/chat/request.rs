//! What a client of this protocol asks of us: the body of a request, in our words. Fields that we do not know are left
//! alone, for SDKs send new ones all the time; fields that we know have to be what they say.
//!
//! Not taken: several choices, tools of free text, `functions` (which `tools` replaced), audio, files of a file store, and
//! an answer that begins with the client's words.

use super::request_parts::{parse_content_parts, parse_text_content};
use crate::client_input::{ClientInput, InputKind, InvalidField};
use crate::stateless::request_fields::{
    expect_object, field_path, list_or_empty, non_null_field, optional_bool, optional_number, optional_object,
    optional_positive, optional_str, required_str,
};
use crate::stateless::{StatelessRequest, normalize_input};
use model::event::ClientTool;
use model::json::JsonObject;
use model::model_settings::{ModelSettings, OutputFormat, ToolChoice};
use serde_json::{Value, json};
use std::collections::HashSet;

/// Reads the body of a request.
///
/// # Errors
/// When a field is not what it has to be.
pub fn parse_chat_request(body: &JsonObject) -> Result<StatelessRequest, InvalidField> {
    if optional_positive(body, "n")?.is_some_and(|choices| choices > 1) {
        return Err(InvalidField::new("n", "one choice is made here: ask again for another"));
    }
    if non_null_field(body, "functions").is_some() || non_null_field(body, "function_call").is_some() {
        return Err(InvalidField::new("functions", "declare them as `tools`"));
    }
    let mut said = parse_messages(list_or_empty(body, "messages", "")?)?;
    // What the operator says before everything is said with the instructions; in between it is history.
    let first = said.iter().take_while(|said| matches!(said.kind, InputKind::System(_))).count();
    let instructions: Vec<String> = said
        .drain(..first)
        .filter_map(|said| match said.kind {
            InputKind::System(text) => Some(text),
            _ => None,
        })
        .collect();
    let said = normalize_input(said)?;
    let options = optional_object(body, "stream_options", "")?;
    let include_usage =
        options.map(|options| optional_bool(options, "include_usage", "stream_options")).transpose()?.flatten();
    Ok(StatelessRequest {
        model: required_str(body, "model", "")?.to_owned(),
        stream: optional_bool(body, "stream", "")?.unwrap_or(false),
        include_usage: include_usage.unwrap_or(false),
        input: said,
        tools: parse_client_tools(list_or_empty(body, "tools", "")?)?,
        model_settings: parse_model_settings(body, instructions.join("\n\n"))?,
        metadata: optional_object(body, "metadata", "")?.cloned().unwrap_or_default(),
    })
}

fn parse_model_settings(body: &JsonObject, instructions: String) -> Result<ModelSettings, InvalidField> {
    let max_tokens = optional_positive(body, "max_tokens")?;
    Ok(ModelSettings {
        instructions: Some(instructions).filter(|text| !text.trim().is_empty()),
        max_output_tokens: optional_positive(body, "max_completion_tokens")?.or(max_tokens),
        temperature: optional_number(body, "temperature", 2.0)?,
        top_p: optional_number(body, "top_p", 1.0)?,
        stop: parse_stop(body)?,
        tool_choice: parse_tool_choice(body)?,
        parallel_tool_calls: optional_bool(body, "parallel_tool_calls", "")?,
        effort: optional_str(body, "reasoning_effort", "")?.map(str::to_owned),
        format: parse_output_format(body)?,
    })
}

fn parse_stop(body: &JsonObject) -> Result<Vec<String>, InvalidField> {
    let words = match non_null_field(body, "stop") {
        None => Some(Vec::new()),
        Some(Value::String(word)) => Some(vec![word.clone()]),
        Some(Value::Array(words)) => words.iter().map(|word| word.as_str().map(str::to_owned)).collect(),
        Some(_) => None,
    };
    words.ok_or_else(|| InvalidField::new("stop", "expected a text or a list of texts"))
}

fn parse_output_format(body: &JsonObject) -> Result<Option<OutputFormat>, InvalidField> {
    let at = "response_format";
    let Some(format) = optional_object(body, at, "")? else { return Ok(None) };
    match optional_str(format, "type", at)? {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(OutputFormat::Json)),
        Some("json_schema") => {
            let at = "response_format.json_schema";
            let shape = optional_object(format, "json_schema", "response_format")?;
            let shape = shape.ok_or_else(|| InvalidField::new(at, "expected an object"))?;
            let schema =
                optional_object(shape, "schema", at)?.cloned().map_or_else(|| json!({"type": "object"}), Value::Object);
            let name = required_str(shape, "name", at)?.to_owned();
            Ok(Some(OutputFormat::Schema { name, schema, strict: optional_bool(shape, "strict", at)? }))
        }
        _ => Err(InvalidField::new(field_path(at, "type"), "expected `text`, `json_object` or `json_schema`")),
    }
}

fn parse_tool_choice(body: &JsonObject) -> Result<Option<ToolChoice>, InvalidField> {
    let wrong = || InvalidField::new("tool_choice", "expected `auto`, `none`, `required` or a function");
    let mode = |mode: Option<&str>| match mode {
        Some("auto") => Ok(Some(ToolChoice::Auto)),
        Some("none") => Ok(Some(ToolChoice::None)),
        Some("required") => Ok(Some(ToolChoice::Required)),
        _ => Err(wrong()),
    };
    let Some(choice) = non_null_field(body, "tool_choice") else { return Ok(None) };
    let Some(fields) = choice.as_object() else { return mode(choice.as_str()) };
    match optional_str(fields, "type", "tool_choice")? {
        Some("function") => {
            let function = optional_object(fields, "function", "tool_choice")?.ok_or_else(wrong)?;
            let name = required_str(function, "name", "tool_choice.function")?.to_owned();
            Ok(Some(ToolChoice::Tool { name }))
        }
        Some("allowed_tools") => {
            let allowed = optional_object(fields, "allowed_tools", "tool_choice")?.ok_or_else(wrong)?;
            mode(optional_str(allowed, "mode", "tool_choice.allowed_tools")?)
        }
        _ => Err(wrong()),
    }
}

/// The tools that the client runs.
fn parse_client_tools(declared: &[Value]) -> Result<Vec<ClientTool>, InvalidField> {
    let mut tools = Vec::new();
    for (place, tool) in declared.iter().enumerate() {
        let at = format!("tools[{place}]");
        let tool = expect_object(tool, &at)?;
        if optional_str(tool, "type", &at)? != Some("function") {
            return Err(InvalidField::new(field_path(&at, "type"), "expected `function`"));
        }
        let at = field_path(&at, "function");
        let function = tool.get("function").ok_or_else(|| InvalidField::new(&at, "expected an object"))?;
        let function = expect_object(function, &at)?;
        let parameters = optional_object(function, "parameters", &at)?.cloned();
        tools.push(ClientTool {
            name: required_str(function, "name", &at)?.to_owned(),
            description: optional_str(function, "description", &at)?.unwrap_or_default().to_owned(),
            parameters: parameters.map_or_else(|| json!({"type": "object"}), Value::Object),
        });
    }
    Ok(tools)
}

fn parse_messages(messages: &[Value]) -> Result<Vec<ClientInput>, InvalidField> {
    let mut said = Vec::new();
    let mut open: Vec<String> = Vec::new();
    for (place, message) in messages.iter().enumerate() {
        let at = format!("messages[{place}]");
        let message = expect_object(message, &at)?;
        let role = optional_str(message, "role", &at)?;
        if role != Some("tool") {
            check_calls_have_results(&said, &std::mem::take(&mut open))?;
        }
        match role {
            Some("system" | "developer") => {
                let text = parse_text_content(message, &at)?;
                if !text.trim().is_empty() {
                    said.push(ClientInput { id: None, kind: InputKind::System(text) });
                }
            }
            Some("user") => {
                let parts = parse_content_parts(message, &at)?;
                if !parts.is_empty() {
                    said.push(ClientInput { id: None, kind: InputKind::User(parts) });
                }
            }
            Some("assistant") => open = parse_assistant_message(message, &at, &mut said)?,
            Some("tool") => {
                let call_id = required_str(message, "tool_call_id", &at)?.to_owned();
                let what =
                    InputKind::ToolResult { call_id, content: parse_content_parts(message, &at)?, failed: false };
                said.push(ClientInput { id: None, kind: what });
            }
            _ => {
                let why = "expected `system`, `developer`, `user`, `assistant` or `tool`";
                return Err(InvalidField::new(field_path(&at, "role"), why));
            }
        }
    }
    check_calls_have_results(&said, &open)?;
    Ok(said)
}

/// What a model had said, and the calls that it made.
fn parse_assistant_message(
    message: &JsonObject,
    at: &str,
    out: &mut Vec<ClientInput>,
) -> Result<Vec<String>, InvalidField> {
    let words = match optional_str(message, "refusal", at)? {
        Some(refusal) => refusal.to_owned(),
        None => parse_text_content(message, at)?,
    };
    if !words.trim().is_empty() {
        out.push(ClientInput { id: None, kind: InputKind::Assistant(words) });
    }
    let mut ids = Vec::new();
    for (place, call) in list_or_empty(message, "tool_calls", at)?.iter().enumerate() {
        let at = format!("{at}.tool_calls[{place}]");
        let call = expect_object(call, &at)?;
        let function = optional_object(call, "function", &at)?;
        let function = function.ok_or_else(|| InvalidField::new(field_path(&at, "function"), "expected an object"))?;
        let call_id = required_str(call, "id", &at)?.to_owned();
        let at = field_path(&at, "function");
        let name = required_str(function, "name", &at)?.to_owned();
        let arguments = optional_str(function, "arguments", &at)?.unwrap_or_default().to_owned();
        ids.push(call_id.clone());
        out.push(ClientInput { id: None, kind: InputKind::ToolCall { call_id, name, arguments } });
    }
    Ok(ids)
}

/// Every call has its result before anything else is said: a model would not understand a call without one.
fn check_calls_have_results(said: &[ClientInput], calls: &[String]) -> Result<(), InvalidField> {
    let results = said.iter().rev().map_while(|said| match &said.kind {
        InputKind::ToolResult { call_id, .. } => Some(call_id.as_str()),
        _ => None,
    });
    let answered: HashSet<&str> = results.collect();
    match calls.iter().find(|id| !answered.contains(id.as_str())) {
        Some(id) => {
            Err(InvalidField::new("messages", format!("there is a call without a `tool` message for it: `{id}`")))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
