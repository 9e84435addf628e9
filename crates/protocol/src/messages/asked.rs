//! What a client of this protocol asks of us: the body of a request, in our words. Fields that we do not know are left
//! alone, for SDKs send new ones all the time; fields that we know have to be what they say.
//!
//! Not taken: tools that only the provider knows, files of a file store, and an answer that begins with the client's words.
//! Left out of what was said: thoughts (they are given back only to where they came from) and what a provider's own tools
//! did.

use super::asked_blocks::{assistant, user};
use super::project::SERVER_NAME;
use crate::said::{Said, What, Wrong};
use crate::stateless::fields::{element, flag, given, list, needed, number, object, path, text, whole};
use crate::stateless::{Asked, settled};
use model::block::JsonObject;
use model::event::ClientTool;
use model::model_settings::{ModelSettings, OutputFormat, ToolChoice};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::HashSet;

/// Reads the body of a request.
///
/// # Errors
/// When a field is not what it has to be.
pub fn asked(body: &JsonObject) -> Result<Asked, Wrong> {
    let said = settled(said(list(body, "messages", "")?)?)?;
    Ok(Asked {
        model: needed(body, "model", "")?.to_owned(),
        stream: flag(body, "stream", "")?.unwrap_or(false),
        include_usage: true,
        said,
        tools: tools(list(body, "tools", "")?)?,
        wishes: wishes(body)?,
        metadata: object(body, "metadata", "")?.cloned().unwrap_or_default(),
    })
}

fn wishes(body: &JsonObject) -> Result<ModelSettings, Wrong> {
    let stop = list(body, "stop_sequences", "")?.iter().map(|word| word.as_str().map(str::to_owned));
    let stop: Option<Vec<String>> = stop.collect();
    let (tool_choice, parallel_tool_calls) = tool_choice(body)?;
    let output = object(body, "output_config", "")?;
    let effort = output.map(|output| text(output, "effort", "output_config")).transpose()?.flatten();
    Ok(ModelSettings {
        instructions: system(body)?,
        max_output_tokens: whole(body, "max_tokens")?,
        temperature: number(body, "temperature", 2.0)?,
        top_p: number(body, "top_p", 1.0)?,
        stop: stop.ok_or_else(|| Wrong::new("stop_sequences", "expected a list of texts"))?,
        tool_choice,
        parallel_tool_calls,
        effort: effort.map(str::to_owned),
        format: output.map(format).transpose()?.flatten(),
    })
}

fn system(body: &JsonObject) -> Result<Option<String>, Wrong> {
    let text = match given(body, "system") {
        None => None,
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Array(blocks)) => Some(texts(blocks, "system")?),
        Some(_) => return Err(Wrong::new("system", "expected a text or a list of text blocks")),
    };
    Ok(text.filter(|text| !text.trim().is_empty()))
}

/// The words of blocks that can only be text.
fn texts(blocks: &[Value], at: &str) -> Result<String, Wrong> {
    let mut texts = Vec::new();
    for (place, block) in blocks.iter().enumerate() {
        let at = format!("{at}[{place}]");
        let block = element(block, &at)?;
        if text(block, "type", &at)? != Some("text") {
            return Err(Wrong::new(path(&at, "type"), "expected `text`"));
        }
        texts.extend(text(block, "text", &at)?);
    }
    Ok(texts.join("\n\n"))
}

fn format(output: &JsonObject) -> Result<Option<OutputFormat>, Wrong> {
    let at = "output_config.format";
    let Some(format) = object(output, "format", "output_config")? else { return Ok(None) };
    if text(format, "type", at)? != Some("json_schema") {
        return Err(Wrong::new(path(at, "type"), "expected `json_schema`"));
    }
    let schema = object(format, "schema", at)?.cloned();
    let schema = schema.ok_or_else(|| Wrong::new(path(at, "schema"), "expected a JSON Schema"))?;
    Ok(Some(OutputFormat::Schema { name: "answer".to_owned(), schema: schema.into(), strict: Some(true) }))
}

/// Which tool may be called, and whether several may be at once.
fn tool_choice(body: &JsonObject) -> Result<(Option<ToolChoice>, Option<bool>), Wrong> {
    let at = "tool_choice";
    let Some(fields) = object(body, at, "")? else { return Ok((None, None)) };
    let choice = match text(fields, "type", at)? {
        Some("auto") => ToolChoice::Auto,
        Some("any") => ToolChoice::Required,
        Some("none") => ToolChoice::None,
        Some("tool") => ToolChoice::Tool { name: needed(fields, "name", at)?.to_owned() },
        _ => return Err(Wrong::new(path(at, "type"), "expected `auto`, `any`, `tool` or `none`")),
    };
    let alone = flag(fields, "disable_parallel_tool_use", at)?;
    Ok((Some(choice), alone.map(|alone| !alone)))
}

/// The tools that the client runs. Our own may be named as a server, which changes nothing.
fn tools(declared: &[Value]) -> Result<Vec<ClientTool>, Wrong> {
    let mut tools = Vec::new();
    for (place, tool) in declared.iter().enumerate() {
        let at = format!("tools[{place}]");
        let tool = element(tool, &at)?;
        match text(tool, "type", &at)? {
            None | Some("custom") => {
                let parameters = object(tool, "input_schema", &at)?.cloned();
                tools.push(ClientTool {
                    name: needed(tool, "name", &at)?.to_owned(),
                    description: text(tool, "description", &at)?.unwrap_or_default().to_owned(),
                    parameters: parameters.map_or_else(|| json!({"type": "object"}), Value::Object),
                });
            }
            Some("mcp_toolset") if text(tool, "mcp_server_name", &at)? == Some(SERVER_NAME) => {}
            Some(kind) => {
                let why = format!("`{kind}` is not known here: declare a tool of your own, or one in the config");
                return Err(Wrong::new(path(&at, "type"), why));
            }
        }
    }
    Ok(tools)
}

fn said(messages: &[Value]) -> Result<Vec<Said>, Wrong> {
    let mut said = Vec::new();
    for (place, message) in messages.iter().enumerate() {
        let at = format!("messages[{place}]");
        let message = element(message, &at)?;
        // What is long is not copied: a message may hold pictures.
        let blocks = match given(message, "content") {
            Some(Value::String(text)) => Cow::Owned(vec![json!({"type": "text", "text": text})]),
            Some(Value::Array(blocks)) => Cow::Borrowed(blocks.as_slice()),
            _ => return Err(Wrong::new(path(&at, "content"), "expected a text or a list of blocks")),
        };
        let at_content = path(&at, "content");
        match text(message, "role", &at)? {
            Some("user") => user(&blocks, &at_content, &mut said)?,
            Some("assistant") => assistant(&blocks, &at_content, &mut said)?,
            Some("system") => said.push(Said { id: None, what: What::System(texts(&blocks, &at_content)?) }),
            _ => return Err(Wrong::new(path(&at, "role"), "expected `user`, `assistant` or `system`")),
        }
    }
    check_answered(messages, &said)?;
    Ok(said)
}

/// Every call of a client's tool has its result: a model would not understand a call without one.
fn check_answered(messages: &[Value], said: &[Said]) -> Result<(), Wrong> {
    let answered: HashSet<&str> = said
        .iter()
        .filter_map(|said| match &said.what {
            What::Result { call_id, .. } => Some(call_id.as_str()),
            _ => None,
        })
        .collect();
    let blocks = messages.iter().filter_map(|message| message.get("content")?.as_array()).flatten();
    let calls = blocks.filter(|block| block.get("type").and_then(Value::as_str) == Some("tool_use"));
    let mut ids = calls.filter_map(|call| call.get("id").and_then(Value::as_str));
    match ids.find(|id| !answered.contains(id)) {
        Some(id) => Err(Wrong::new("messages", format!("there is a `tool_use` without its `tool_result`: `{id}`"))),
        None => Ok(()),
    }
}

#[cfg(test)]
#[path = "asked_tests.rs"]
mod tests;
