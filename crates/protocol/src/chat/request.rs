//! Requests of the Chat Completions protocol. Unknown fields are ignored, because SDKs send new ones all the time; known
//! fields have to have their type.
//!
//! Not supported: several choices, custom tools, `functions` (which `tools` replaced), audio, uploaded files, and a last
//! message of the assistant that the model should continue.

mod parts;

use crate::client_input::{ClientInput, InputKind, InvalidField};
use crate::request_fields::{
    SamplingFields, any_object_schema, expect_object, field_path, list_or_empty, non_null_field, optional_bool,
    optional_object, optional_positive, optional_str, parse_tool_choice_mode, required_object, required_str,
};
use crate::stateless::{StatelessRequest, normalize_input};
use model::event::ClientTool;
use model::json::{JsonObject, to_exact_object};
use model::model_settings::{ModelSettings, OutputFormat, ToolChoice};
use parts::{parse_content_parts, parse_text_content};
use serde_json::Value;
use std::collections::HashSet;

/// Parses a request body.
pub fn parse_chat_request(body: &JsonObject) -> Result<StatelessRequest, InvalidField> {
    if optional_positive(body, "n")?.is_some_and(|choices| choices > 1) {
        return Err(InvalidField::new("n", "only one choice is supported"));
    }
    if non_null_field(body, "functions").is_some() || non_null_field(body, "function_call").is_some() {
        return Err(InvalidField::new("functions", "declare them as `tools`"));
    }
    let mut inputs = parse_messages(list_or_empty(body, "messages", "")?)?;
    // System messages at the start are instructions; later ones are history.
    let system_count = inputs.iter().take_while(|input| matches!(input.kind, InputKind::System(_))).count();
    let instructions: Vec<String> = inputs
        .drain(..system_count)
        .filter_map(|input| match input.kind {
            InputKind::System(text) => Some(text),
            _ => None,
        })
        .collect();
    let options = optional_object(body, "stream_options", "")?;
    let include_usage =
        options.map(|options| optional_bool(options, "include_usage", "stream_options")).transpose()?.flatten();
    Ok(StatelessRequest {
        model: required_str(body, "model", "")?.to_owned(),
        stream: optional_bool(body, "stream", "")?.unwrap_or(false),
        include_usage: include_usage.unwrap_or(false),
        input: normalize_input(inputs)?,
        tools: parse_client_tools(list_or_empty(body, "tools", "")?)?,
        model_settings: parse_model_settings(body, instructions.join("\n\n"))?,
        metadata: to_exact_object(optional_object(body, "metadata", "")?.cloned().unwrap_or_default()),
    })
}

fn parse_model_settings(body: &JsonObject, instructions: String) -> Result<ModelSettings, InvalidField> {
    Ok(ModelSettings {
        instructions: Some(instructions).filter(|text| !text.trim().is_empty()),
        tool_choice: parse_tool_choice(body)?,
        parallel_tool_calls: optional_bool(body, "parallel_tool_calls", "")?,
        effort: optional_str(body, "reasoning_effort", "")?.map(str::to_owned),
        format: parse_output_format(body)?,
        ..SamplingFields::CHAT.parse(body)?
    })
}

fn parse_output_format(body: &JsonObject) -> Result<Option<OutputFormat>, InvalidField> {
    let at = "response_format";
    let Some(format) = optional_object(body, at, "")? else { return Ok(None) };
    match optional_str(format, "type", at)? {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(OutputFormat::Json)),
        Some("json_schema") => {
            let at = "response_format.json_schema";
            let json_schema = required_object(format, "json_schema", "response_format")?;
            let schema = optional_object(json_schema, "schema", at)?.cloned();
            let schema = schema.map_or_else(any_object_schema, Value::Object);
            let name = required_str(json_schema, "name", at)?.to_owned();
            Ok(Some(OutputFormat::Schema { name, schema, strict: optional_bool(json_schema, "strict", at)? }))
        }
        _ => Err(InvalidField::new(field_path(at, "type"), "expected `text`, `json_object` or `json_schema`")),
    }
}

fn parse_tool_choice(body: &JsonObject) -> Result<Option<ToolChoice>, InvalidField> {
    let invalid = || InvalidField::new("tool_choice", "expected `auto`, `none`, `required` or a function");
    let parse_mode = |mode: Option<&str>| parse_tool_choice_mode(mode).map(Some).ok_or_else(invalid);
    let Some(choice) = non_null_field(body, "tool_choice") else { return Ok(None) };
    let Some(fields) = choice.as_object() else { return parse_mode(choice.as_str()) };
    match optional_str(fields, "type", "tool_choice")? {
        Some("function") => {
            let function = optional_object(fields, "function", "tool_choice")?.ok_or_else(invalid)?;
            let name = required_str(function, "name", "tool_choice.function")?.to_owned();
            Ok(Some(ToolChoice::Tool { name }))
        }
        Some("allowed_tools") => {
            let allowed = optional_object(fields, "allowed_tools", "tool_choice")?.ok_or_else(invalid)?;
            parse_mode(optional_str(allowed, "mode", "tool_choice.allowed_tools")?)
        }
        _ => Err(invalid()),
    }
}

/// The tools that the client runs.
fn parse_client_tools(declared: &[Value]) -> Result<Vec<ClientTool>, InvalidField> {
    let mut tools = Vec::new();
    for (index, tool) in declared.iter().enumerate() {
        let at = format!("tools[{index}]");
        let tool = expect_object(tool, &at)?;
        if optional_str(tool, "type", &at)? != Some("function") {
            return Err(InvalidField::new(field_path(&at, "type"), "expected `function`"));
        }
        let function = required_object(tool, "function", &at)?;
        let at = field_path(&at, "function");
        let parameters = optional_object(function, "parameters", &at)?.cloned();
        tools.push(ClientTool {
            name: required_str(function, "name", &at)?.to_owned(),
            description: optional_str(function, "description", &at)?.unwrap_or_default().to_owned(),
            parameters: parameters.map_or_else(any_object_schema, Value::Object),
        });
    }
    Ok(tools)
}

fn parse_messages(messages: &[Value]) -> Result<Vec<ClientInput>, InvalidField> {
    let mut inputs = Vec::new();
    // The calls of the last assistant message.
    let mut open_calls: Vec<String> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let at = format!("messages[{index}]");
        let message = expect_object(message, &at)?;
        let role = optional_str(message, "role", &at)?;
        if role != Some("tool") {
            check_calls_have_results(&inputs, &std::mem::take(&mut open_calls))?;
        }
        match role {
            Some("system" | "developer") => {
                let text = parse_text_content(message, &at)?;
                if !text.trim().is_empty() {
                    inputs.push(ClientInput { id: None, kind: InputKind::System(text) });
                }
            }
            Some("user") => {
                let parts = parse_content_parts(message, &at)?;
                if !parts.is_empty() {
                    inputs.push(ClientInput { id: None, kind: InputKind::User(parts) });
                }
            }
            Some("assistant") => open_calls = parse_assistant_message(message, &at, &mut inputs)?,
            Some("tool") => {
                let call_id = required_str(message, "tool_call_id", &at)?.to_owned();
                let kind = InputKind::ToolResult {
                    call_id,
                    content: parse_content_parts(message, &at)?,
                    failed: false,
                    acknowledged_checks: Vec::new(),
                };
                inputs.push(ClientInput { id: None, kind });
            }
            _ => {
                let expected = "expected `system`, `developer`, `user`, `assistant` or `tool`";
                return Err(InvalidField::new(field_path(&at, "role"), expected));
            }
        }
    }
    check_calls_have_results(&inputs, &open_calls)?;
    Ok(inputs)
}

/// Adds the message and its calls. Returns the ids of the calls.
fn parse_assistant_message(
    message: &JsonObject,
    at: &str,
    out: &mut Vec<ClientInput>,
) -> Result<Vec<String>, InvalidField> {
    let text = match optional_str(message, "refusal", at)? {
        Some(refusal) => refusal.to_owned(),
        None => parse_text_content(message, at)?,
    };
    if !text.trim().is_empty() {
        out.push(ClientInput { id: None, kind: InputKind::Assistant(text) });
    }
    let mut ids = Vec::new();
    for (index, call) in list_or_empty(message, "tool_calls", at)?.iter().enumerate() {
        let at = format!("{at}.tool_calls[{index}]");
        let call = expect_object(call, &at)?;
        let function = required_object(call, "function", &at)?;
        let call_id = required_str(call, "id", &at)?.to_owned();
        let at = field_path(&at, "function");
        let name = required_str(function, "name", &at)?.to_owned();
        let arguments = optional_str(function, "arguments", &at)?.unwrap_or_default().to_owned();
        ids.push(call_id.clone());
        out.push(ClientInput { id: None, kind: InputKind::ToolCall { call_id, name, arguments } });
    }
    Ok(ids)
}

/// Every call needs its result before the next message: providers refuse a call without one.
fn check_calls_have_results(inputs: &[ClientInput], calls: &[String]) -> Result<(), InvalidField> {
    let results = inputs.iter().rev().map_while(|input| match &input.kind {
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
mod tests;
