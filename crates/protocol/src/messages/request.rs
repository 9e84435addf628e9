//! Requests of the Messages protocol. Unknown fields are ignored, because SDKs send new ones all the time; known fields
//! have to have their type.
//!
//! Not supported: hosted tools, uploaded files, and a last message of the assistant that the model should continue. Thinking
//! blocks and the blocks of hosted tools are skipped: only the provider that wrote them can read them.

mod blocks;

use super::wire::SERVER_NAME;
use crate::client_input::{ClientInput, InputKind, InvalidField};
use crate::request_fields::{
    SamplingFields, any_object_schema, expect_object, field_path, list_or_empty, non_null_field, optional_bool,
    optional_object, optional_str, required_str,
};
use crate::stateless::{StatelessRequest, normalize_input};
use blocks::{parse_assistant_blocks, parse_user_blocks};
use model::event::ClientTool;
use model::json::{JsonObject, to_exact_object};
use model::model_settings::{ModelSettings, OutputFormat, ToolChoice};
use serde_json::Value;
use std::collections::HashSet;

/// Parses the body of a request.
pub fn parse_messages_request(body: &JsonObject) -> Result<StatelessRequest, InvalidField> {
    Ok(StatelessRequest {
        model: required_str(body, "model", "")?.to_owned(),
        stream: optional_bool(body, "stream", "")?.unwrap_or(false),
        include_usage: true,
        input: normalize_input(parse_messages(list_or_empty(body, "messages", "")?)?)?,
        tools: parse_client_tools(list_or_empty(body, "tools", "")?)?,
        model_settings: parse_model_settings(body)?,
        metadata: to_exact_object(optional_object(body, "metadata", "")?.cloned().unwrap_or_default()),
    })
}

fn parse_model_settings(body: &JsonObject) -> Result<ModelSettings, InvalidField> {
    let (tool_choice, parallel_tool_calls) = parse_tool_choice(body)?;
    let output = optional_object(body, "output_config", "")?;
    let effort = output.map(|output| optional_str(output, "effort", "output_config")).transpose()?.flatten();
    Ok(ModelSettings {
        instructions: parse_system(body)?,
        tool_choice,
        parallel_tool_calls,
        effort: effort.map(str::to_owned),
        format: output.map(parse_output_format).transpose()?.flatten(),
        ..SamplingFields::MESSAGES.parse(body)?
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

/// The text of blocks that can only be text blocks.
fn join_text_blocks(blocks: &[Value], at: &str) -> Result<String, InvalidField> {
    let mut texts = Vec::new();
    for (index, block) in blocks.iter().enumerate() {
        let at = format!("{at}[{index}]");
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

/// The tool choice, and whether the model may call several tools at once.
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
    let disable_parallel = optional_bool(fields, "disable_parallel_tool_use", at)?;
    Ok((Some(choice), disable_parallel.map(|disable| !disable)))
}

/// The tools that the client runs. The server's own tools may be listed as a toolset, which changes nothing.
fn parse_client_tools(declared: &[Value]) -> Result<Vec<ClientTool>, InvalidField> {
    let mut tools = Vec::new();
    for (index, tool) in declared.iter().enumerate() {
        let at = format!("tools[{index}]");
        let tool = expect_object(tool, &at)?;
        match optional_str(tool, "type", &at)? {
            None | Some("custom") => {
                let parameters = optional_object(tool, "input_schema", &at)?.cloned();
                tools.push(ClientTool {
                    name: required_str(tool, "name", &at)?.to_owned(),
                    description: optional_str(tool, "description", &at)?.unwrap_or_default().to_owned(),
                    parameters: parameters.map_or_else(any_object_schema, Value::Object),
                });
            }
            Some("mcp_toolset") if optional_str(tool, "mcp_server_name", &at)? == Some(SERVER_NAME) => {}
            Some(kind) => {
                let reason = format!("`{kind}` is not supported: declare a custom tool, or one in the config");
                return Err(InvalidField::new(field_path(&at, "type"), reason));
            }
        }
    }
    Ok(tools)
}

fn parse_messages(messages: &[Value]) -> Result<Vec<ClientInput>, InvalidField> {
    let mut inputs = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let at = format!("messages[{index}]");
        let message = expect_object(message, &at)?;
        let at_content = field_path(&at, "content");
        let text_block;
        let blocks = match non_null_field(message, "content") {
            Some(Value::String(text)) => {
                text_block = [new_text_block(text)];
                &text_block[..]
            }
            Some(Value::Array(blocks)) => blocks.as_slice(),
            _ => return Err(InvalidField::new(at_content, "expected a text or a list of blocks")),
        };
        match optional_str(message, "role", &at)? {
            Some("user") => parse_user_blocks(blocks, &at_content, &mut inputs)?,
            Some("assistant") => parse_assistant_blocks(blocks, &at_content, &mut inputs)?,
            Some("system") => {
                let kind = InputKind::System(join_text_blocks(blocks, &at_content)?);
                inputs.push(ClientInput { id: None, kind });
            }
            _ => return Err(InvalidField::new(field_path(&at, "role"), "expected `user`, `assistant` or `system`")),
        }
    }
    check_calls_have_results(messages, &inputs)?;
    Ok(inputs)
}

/// The block form of a plain-text content.
fn new_text_block(text: &str) -> Value {
    JsonObject::from_iter([("type".to_owned(), "text".into()), ("text".to_owned(), text.into())]).into()
}

/// Every call of the client's tools needs its result: providers refuse a call without one.
fn check_calls_have_results(messages: &[Value], inputs: &[ClientInput]) -> Result<(), InvalidField> {
    let answered: HashSet<&str> = inputs
        .iter()
        .filter_map(|input| match &input.kind {
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
mod tests;
