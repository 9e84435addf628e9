//! What a client of this protocol asks of us: the body of a request, in our words. Fields that we do not know are left
//! alone, for SDKs send new ones all the time; fields that we know have to be what they say.
//!
//! Not taken: tools that only the provider knows, files of a file store, and an answer that begins with the client's words.
//! Left out of what was said: thoughts (they are given back only to where they came from) and what a provider's own tools
//! did.

use super::project::SERVER_NAME;
use super::request_blocks::{parse_assistant_blocks, parse_user_blocks};
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
use std::borrow::Cow;
use std::collections::HashSet;

/// Reads the body of a request.
///
/// # Errors
/// When a field is not what it has to be.
pub fn parse_messages_request(body: &JsonObject) -> Result<StatelessRequest, InvalidField> {
    let said = normalize_input(parse_messages(list_or_empty(body, "messages", "")?)?)?;
    Ok(StatelessRequest {
        model: required_str(body, "model", "")?.to_owned(),
        stream: optional_bool(body, "stream", "")?.unwrap_or(false),
        include_usage: true,
        input: said,
        tools: parse_client_tools(list_or_empty(body, "tools", "")?)?,
        model_settings: parse_model_settings(body)?,
        metadata: optional_object(body, "metadata", "")?.cloned().unwrap_or_default(),
    })
}

fn parse_model_settings(body: &JsonObject) -> Result<ModelSettings, InvalidField> {
    let stop = list_or_empty(body, "stop_sequences", "")?.iter().map(|word| word.as_str().map(str::to_owned));
    let stop: Option<Vec<String>> = stop.collect();
    let (tool_choice, parallel_tool_calls) = parse_tool_choice(body)?;
    let output = optional_object(body, "output_config", "")?;
    let effort = output.map(|output| optional_str(output, "effort", "output_config")).transpose()?.flatten();
    Ok(ModelSettings {
        instructions: parse_system(body)?,
        max_output_tokens: optional_positive(body, "max_tokens")?,
        temperature: optional_number(body, "temperature", 2.0)?,
        top_p: optional_number(body, "top_p", 1.0)?,
        stop: stop.ok_or_else(|| InvalidField::new("stop_sequences", "expected a list of texts"))?,
        tool_choice,
        parallel_tool_calls,
        effort: effort.map(str::to_owned),
        format: output.map(parse_output_format).transpose()?.flatten(),
    })
}

fn parse_system(body: &JsonObject) -> Result<Option<String>, InvalidField> {
    let text = match non_null_field(body, "system") {
        None => None,
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Array(blocks)) => Some(join_text_blocks(blocks, "system")?),
        Some(_) => return Err(InvalidField::new("system", "expected a text or a list of text blocks")),
    };
    Ok(text.filter(|text| !text.trim().is_empty()))
}

/// The words of blocks that can only be text.
fn join_text_blocks(blocks: &[Value], at: &str) -> Result<String, InvalidField> {
    let mut texts = Vec::new();
    for (place, block) in blocks.iter().enumerate() {
        let at = format!("{at}[{place}]");
        let block = expect_object(block, &at)?;
        if optional_str(block, "type", &at)? != Some("text") {
            return Err(InvalidField::new(field_path(&at, "type"), "expected `text`"));
        }
        texts.extend(optional_str(block, "text", &at)?);
    }
    Ok(texts.join("\n\n"))
}

fn parse_output_format(output: &JsonObject) -> Result<Option<OutputFormat>, InvalidField> {
    let at = "output_config.format";
    let Some(format) = optional_object(output, "format", "output_config")? else { return Ok(None) };
    if optional_str(format, "type", at)? != Some("json_schema") {
        return Err(InvalidField::new(field_path(at, "type"), "expected `json_schema`"));
    }
    let schema = optional_object(format, "schema", at)?.cloned();
    let schema = schema.ok_or_else(|| InvalidField::new(field_path(at, "schema"), "expected a JSON Schema"))?;
    Ok(Some(OutputFormat::Schema { name: "answer".to_owned(), schema: schema.into(), strict: Some(true) }))
}

/// Which tool may be called, and whether several may be at once.
fn parse_tool_choice(body: &JsonObject) -> Result<(Option<ToolChoice>, Option<bool>), InvalidField> {
    let at = "tool_choice";
    let Some(fields) = optional_object(body, at, "")? else { return Ok((None, None)) };
    let choice = match optional_str(fields, "type", at)? {
        Some("auto") => ToolChoice::Auto,
        Some("any") => ToolChoice::Required,
        Some("none") => ToolChoice::None,
        Some("tool") => ToolChoice::Tool { name: required_str(fields, "name", at)?.to_owned() },
        _ => return Err(InvalidField::new(field_path(at, "type"), "expected `auto`, `any`, `tool` or `none`")),
    };
    let alone = optional_bool(fields, "disable_parallel_tool_use", at)?;
    Ok((Some(choice), alone.map(|alone| !alone)))
}

/// The tools that the client runs. Our own may be named as a server, which changes nothing.
fn parse_client_tools(declared: &[Value]) -> Result<Vec<ClientTool>, InvalidField> {
    let mut tools = Vec::new();
    for (place, tool) in declared.iter().enumerate() {
        let at = format!("tools[{place}]");
        let tool = expect_object(tool, &at)?;
        match optional_str(tool, "type", &at)? {
            None | Some("custom") => {
                let parameters = optional_object(tool, "input_schema", &at)?.cloned();
                tools.push(ClientTool {
                    name: required_str(tool, "name", &at)?.to_owned(),
                    description: optional_str(tool, "description", &at)?.unwrap_or_default().to_owned(),
                    parameters: parameters.map_or_else(|| json!({"type": "object"}), Value::Object),
                });
            }
            Some("mcp_toolset") if optional_str(tool, "mcp_server_name", &at)? == Some(SERVER_NAME) => {}
            Some(kind) => {
                let why = format!("`{kind}` is not known here: declare a tool of your own, or one in the config");
                return Err(InvalidField::new(field_path(&at, "type"), why));
            }
        }
    }
    Ok(tools)
}

fn parse_messages(messages: &[Value]) -> Result<Vec<ClientInput>, InvalidField> {
    let mut said = Vec::new();
    for (place, message) in messages.iter().enumerate() {
        let at = format!("messages[{place}]");
        let message = expect_object(message, &at)?;
        // What is long is not copied: a message may hold pictures.
        let blocks = match non_null_field(message, "content") {
            Some(Value::String(text)) => Cow::Owned(vec![json!({"type": "text", "text": text})]),
            Some(Value::Array(blocks)) => Cow::Borrowed(blocks.as_slice()),
            _ => return Err(InvalidField::new(field_path(&at, "content"), "expected a text or a list of blocks")),
        };
        let at_content = field_path(&at, "content");
        match optional_str(message, "role", &at)? {
            Some("user") => parse_user_blocks(&blocks, &at_content, &mut said)?,
            Some("assistant") => parse_assistant_blocks(&blocks, &at_content, &mut said)?,
            Some("system") => {
                said.push(ClientInput { id: None, kind: InputKind::System(join_text_blocks(&blocks, &at_content)?) })
            }
            _ => return Err(InvalidField::new(field_path(&at, "role"), "expected `user`, `assistant` or `system`")),
        }
    }
    check_calls_have_results(messages, &said)?;
    Ok(said)
}

/// Every call of a client's tool has its result: a model would not understand a call without one.
fn check_calls_have_results(messages: &[Value], said: &[ClientInput]) -> Result<(), InvalidField> {
    let answered: HashSet<&str> = said
        .iter()
        .filter_map(|said| match &said.kind {
            InputKind::ToolResult { call_id, .. } => Some(call_id.as_str()),
            _ => None,
        })
        .collect();
    let blocks = messages.iter().filter_map(|message| message.get("content")?.as_array()).flatten();
    let calls = blocks.filter(|block| block.get("type").and_then(Value::as_str) == Some("tool_use"));
    let mut ids = calls.filter_map(|call| call.get("id").and_then(Value::as_str));
    match ids.find(|id| !answered.contains(id)) {
        Some(id) => {
            Err(InvalidField::new("messages", format!("there is a `tool_use` without its `tool_result`: `{id}`")))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
