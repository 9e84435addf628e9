//! What a client of this protocol asks of us: the body of a request, in our words. Fields that we do not know are left
//! alone, for SDKs send new ones all the time; fields that we know have to be what they say.
//!
//! Not taken: several choices, tools of free text, `functions` (which `tools` replaced), audio, files of a file store, and
//! an answer that begins with the client's words.

use super::asked_parts::{parts, texts};
use crate::said::{Said, What, Wrong};
use crate::stateless::fields::{element, flag, given, list, needed, number, object, path, text, whole};
use crate::stateless::{Asked, settled};
use model::block::JsonObject;
use model::event::ClientTool;
use model::model_settings::{ModelSettings, OutputFormat, ToolChoice};
use serde_json::{Value, json};
use std::collections::HashSet;

/// Reads the body of a request.
///
/// # Errors
/// When a field is not what it has to be.
pub fn asked(body: &JsonObject) -> Result<Asked, Wrong> {
    if whole(body, "n")?.is_some_and(|choices| choices > 1) {
        return Err(Wrong::new("n", "one choice is made here: ask again for another"));
    }
    if given(body, "functions").is_some() || given(body, "function_call").is_some() {
        return Err(Wrong::new("functions", "declare them as `tools`"));
    }
    let mut said = said(list(body, "messages", "")?)?;
    // What the operator says before everything is said with the instructions; in between it is history.
    let first = said.iter().take_while(|said| matches!(said.what, What::System(_))).count();
    let instructions: Vec<String> = said
        .drain(..first)
        .filter_map(|said| match said.what {
            What::System(text) => Some(text),
            _ => None,
        })
        .collect();
    let said = settled(said)?;
    let options = object(body, "stream_options", "")?;
    let include_usage = options.map(|options| flag(options, "include_usage", "stream_options")).transpose()?.flatten();
    Ok(Asked {
        model: needed(body, "model", "")?.to_owned(),
        stream: flag(body, "stream", "")?.unwrap_or(false),
        include_usage: include_usage.unwrap_or(false),
        said,
        tools: tools(list(body, "tools", "")?)?,
        wishes: wishes(body, instructions.join("\n\n"))?,
        metadata: object(body, "metadata", "")?.cloned().unwrap_or_default(),
    })
}

fn wishes(body: &JsonObject, instructions: String) -> Result<ModelSettings, Wrong> {
    let max_tokens = whole(body, "max_tokens")?;
    Ok(ModelSettings {
        instructions: Some(instructions).filter(|text| !text.trim().is_empty()),
        max_output_tokens: whole(body, "max_completion_tokens")?.or(max_tokens),
        temperature: number(body, "temperature", 2.0)?,
        top_p: number(body, "top_p", 1.0)?,
        stop: stop(body)?,
        tool_choice: tool_choice(body)?,
        parallel_tool_calls: flag(body, "parallel_tool_calls", "")?,
        effort: text(body, "reasoning_effort", "")?.map(str::to_owned),
        format: format(body)?,
    })
}

fn stop(body: &JsonObject) -> Result<Vec<String>, Wrong> {
    let words = match given(body, "stop") {
        None => Some(Vec::new()),
        Some(Value::String(word)) => Some(vec![word.clone()]),
        Some(Value::Array(words)) => words.iter().map(|word| word.as_str().map(str::to_owned)).collect(),
        Some(_) => None,
    };
    words.ok_or_else(|| Wrong::new("stop", "expected a text or a list of texts"))
}

fn format(body: &JsonObject) -> Result<Option<OutputFormat>, Wrong> {
    let at = "response_format";
    let Some(format) = object(body, at, "")? else { return Ok(None) };
    match text(format, "type", at)? {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(OutputFormat::Json)),
        Some("json_schema") => {
            let at = "response_format.json_schema";
            let shape = object(format, "json_schema", "response_format")?;
            let shape = shape.ok_or_else(|| Wrong::new(at, "expected an object"))?;
            let schema = object(shape, "schema", at)?.cloned().map_or_else(|| json!({"type": "object"}), Value::Object);
            let name = needed(shape, "name", at)?.to_owned();
            Ok(Some(OutputFormat::Schema { name, schema, strict: flag(shape, "strict", at)? }))
        }
        _ => Err(Wrong::new(path(at, "type"), "expected `text`, `json_object` or `json_schema`")),
    }
}

fn tool_choice(body: &JsonObject) -> Result<Option<ToolChoice>, Wrong> {
    let wrong = || Wrong::new("tool_choice", "expected `auto`, `none`, `required` or a function");
    let mode = |mode: Option<&str>| match mode {
        Some("auto") => Ok(Some(ToolChoice::Auto)),
        Some("none") => Ok(Some(ToolChoice::None)),
        Some("required") => Ok(Some(ToolChoice::Required)),
        _ => Err(wrong()),
    };
    let Some(choice) = given(body, "tool_choice") else { return Ok(None) };
    let Some(fields) = choice.as_object() else { return mode(choice.as_str()) };
    match text(fields, "type", "tool_choice")? {
        Some("function") => {
            let function = object(fields, "function", "tool_choice")?.ok_or_else(wrong)?;
            let name = needed(function, "name", "tool_choice.function")?.to_owned();
            Ok(Some(ToolChoice::Tool { name }))
        }
        Some("allowed_tools") => {
            let allowed = object(fields, "allowed_tools", "tool_choice")?.ok_or_else(wrong)?;
            mode(text(allowed, "mode", "tool_choice.allowed_tools")?)
        }
        _ => Err(wrong()),
    }
}

/// The tools that the client runs.
fn tools(declared: &[Value]) -> Result<Vec<ClientTool>, Wrong> {
    let mut tools = Vec::new();
    for (place, tool) in declared.iter().enumerate() {
        let at = format!("tools[{place}]");
        let tool = element(tool, &at)?;
        if text(tool, "type", &at)? != Some("function") {
            return Err(Wrong::new(path(&at, "type"), "expected `function`"));
        }
        let at = path(&at, "function");
        let function = tool.get("function").ok_or_else(|| Wrong::new(&at, "expected an object"))?;
        let function = element(function, &at)?;
        let parameters = object(function, "parameters", &at)?.cloned();
        tools.push(ClientTool {
            name: needed(function, "name", &at)?.to_owned(),
            description: text(function, "description", &at)?.unwrap_or_default().to_owned(),
            parameters: parameters.map_or_else(|| json!({"type": "object"}), Value::Object),
        });
    }
    Ok(tools)
}

fn said(messages: &[Value]) -> Result<Vec<Said>, Wrong> {
    let mut said = Vec::new();
    let mut open: Vec<String> = Vec::new();
    for (place, message) in messages.iter().enumerate() {
        let at = format!("messages[{place}]");
        let message = element(message, &at)?;
        let role = text(message, "role", &at)?;
        if role != Some("tool") {
            check_answered(&said, &std::mem::take(&mut open))?;
        }
        match role {
            Some("system" | "developer") => {
                let text = texts(message, &at)?;
                if !text.trim().is_empty() {
                    said.push(Said { id: None, what: What::System(text) });
                }
            }
            Some("user") => {
                let parts = parts(message, &at)?;
                if !parts.is_empty() {
                    said.push(Said { id: None, what: What::User(parts) });
                }
            }
            Some("assistant") => open = assistant(message, &at, &mut said)?,
            Some("tool") => {
                let call_id = needed(message, "tool_call_id", &at)?.to_owned();
                let what = What::Result { call_id, content: parts(message, &at)?, failed: false };
                said.push(Said { id: None, what });
            }
            _ => {
                let why = "expected `system`, `developer`, `user`, `assistant` or `tool`";
                return Err(Wrong::new(path(&at, "role"), why));
            }
        }
    }
    check_answered(&said, &open)?;
    Ok(said)
}

/// What a model had said, and the calls that it made.
fn assistant(message: &JsonObject, at: &str, out: &mut Vec<Said>) -> Result<Vec<String>, Wrong> {
    let words = match text(message, "refusal", at)? {
        Some(refusal) => refusal.to_owned(),
        None => texts(message, at)?,
    };
    if !words.trim().is_empty() {
        out.push(Said { id: None, what: What::Assistant(words) });
    }
    let mut ids = Vec::new();
    for (place, call) in list(message, "tool_calls", at)?.iter().enumerate() {
        let at = format!("{at}.tool_calls[{place}]");
        let call = element(call, &at)?;
        let function = object(call, "function", &at)?;
        let function = function.ok_or_else(|| Wrong::new(path(&at, "function"), "expected an object"))?;
        let call_id = needed(call, "id", &at)?.to_owned();
        let at = path(&at, "function");
        let name = needed(function, "name", &at)?.to_owned();
        let arguments = text(function, "arguments", &at)?.unwrap_or_default().to_owned();
        ids.push(call_id.clone());
        out.push(Said { id: None, what: What::Call { call_id, name, arguments } });
    }
    Ok(ids)
}

/// Every call has its result before anything else is said: a model would not understand a call without one.
fn check_answered(said: &[Said], calls: &[String]) -> Result<(), Wrong> {
    let results = said.iter().rev().map_while(|said| match &said.what {
        What::Result { call_id, .. } => Some(call_id.as_str()),
        _ => None,
    });
    let answered: HashSet<&str> = results.collect();
    match calls.iter().find(|id| !answered.contains(id.as_str())) {
        Some(id) => Err(Wrong::new("messages", format!("there is a call without a `tool` message for it: `{id}`"))),
        None => Ok(()),
    }
}

#[cfg(test)]
#[path = "asked_tests.rs"]
mod tests;
