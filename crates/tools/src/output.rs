//! Parses the result of an external tool into a [`ToolOutput`].
//!
//! An object that has only fields of [`ToolOutput`] is one. Anything else is text for the model: a string as it is, other
//! JSON without its insignificant white space. It is never parsed and printed again, because that could change a number.

use crate::arguments::invalid_arguments;
use model::content::ContentPart;
use model::error::{ErrorCode, ErrorInfo};
use model::item::Block;
use model::json::JsonObject;
use model::tool::ToolOutput;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

const OUTPUT_FIELDS: [&str; 6] = ["message_content", "block_list", "summary", "artifact", "ui_hints", "error"];

/// Providers refuse a result without text.
const EMPTY_OUTPUT: &str = "(no output)";

/// Parses a result, or the part of it that the JSON pointer names.
pub(crate) fn parse_output(text: &str, pointer: Option<&str>) -> Result<ToolOutput, ErrorInfo> {
    let text = text.trim_end_matches(['\r', '\n']);
    let json = serde_json::from_str::<&RawValue>(text).ok();
    let found = match (pointer, json) {
        (Some(pointer), Some(json)) => Some(resolve_pointer(json, pointer)?),
        (Some(pointer), None) => {
            return Err(invalid_output(format!("the response is not JSON, so nothing is at `{pointer}`")));
        }
        (None, json) => json,
    };
    let output = match found {
        Some(json) => output_from_json(json.get())?,
        None => text_output(text),
    };
    Ok(ensure_model_content(output))
}

fn output_from_json(json: &str) -> Result<ToolOutput, ErrorInfo> {
    if let Ok(text) = serde_json::from_str::<String>(json) {
        return Ok(text_output(text));
    }
    match serde_json::from_str::<JsonObject>(json) {
        Ok(object) if is_tool_output(&object) => output_from_object(object),
        Ok(_) | Err(_) => Ok(text_output(compact_json(json))),
    }
}

fn is_tool_output(object: &JsonObject) -> bool {
    !object.is_empty() && object.keys().all(|key| OUTPUT_FIELDS.contains(&key.as_str()))
}

fn output_from_object(mut object: JsonObject) -> Result<ToolOutput, ErrorInfo> {
    object.retain(|_, value| !value.is_null());
    if let Some(content) = object.get_mut("message_content")
        && let Value::String(text) = content
    {
        *content = serde_json::json!([{ "type": "text", "text": text }]);
    }
    if let Some(error) = object.get_mut("error")
        && let Value::String(message) = error
    {
        *error = serde_json::json!({ "code": ErrorCode::ToolFailed.as_str(), "message": message });
    }
    let mut output: ToolOutput = serde_json::from_value(Value::Object(object)).map_err(invalid_output)?;
    for block in &output.block_list {
        check_block(block)?;
    }
    for part in &mut output.message_content {
        // Tags mark text that somebody else inserted; all text of a result is the tool's own.
        if let ContentPart::Text { tags, .. } = part {
            tags.clear();
        }
    }
    Ok(output)
}

/// Tools produce text and images. The other block types are for sub-agents.
fn check_block(block: &Block) -> Result<(), ErrorInfo> {
    match block {
        Block::Text(text) if text.text.is_none() => Err(invalid_output("a text block has no text")),
        Block::Text(_) | Block::Image(_) => Ok(()),
        Block::Reasoning(_)
        | Block::ToolCall(_)
        | Block::ToolResult(_)
        | Block::Message(_)
        | Block::HostedCall(_)
        | Block::FileProcessing(_) => Err(invalid_output("a tool may only return blocks of type `text` and `image`")),
    }
}

pub(crate) fn text_output(text: impl Into<String>) -> ToolOutput {
    ToolOutput { message_content: vec![ContentPart::text(text)], ..ToolOutput::default() }
}

/// Without content for the model, it reads the blocks; without those, the error or the summary.
fn ensure_model_content(mut output: ToolOutput) -> ToolOutput {
    let is_blank = |part: &ContentPart| matches!(part, ContentPart::Text { text, .. } if text.trim().is_empty());
    output.message_content.retain(|part| !is_blank(part));
    if output.message_content.is_empty() && output.block_list.is_empty() {
        let error = output.error.as_ref().map(|error| error.message.as_str());
        let text = error.or(output.summary.as_deref()).filter(|text| !text.trim().is_empty());
        output.message_content.push(ContentPart::text(text.unwrap_or(EMPTY_OUTPUT)));
    }
    output
}

fn resolve_pointer<'a>(json: &'a RawValue, pointer: &str) -> Result<&'a RawValue, ErrorInfo> {
    let missing = || invalid_output(format!("the response has nothing at `{pointer}`"));
    let mut steps = pointer.split('/');
    // A pointer is empty, or begins with a slash.
    if steps.next() != Some("") {
        return Err(missing());
    }
    steps.try_fold(json, |json, step| json_child(json, &step.replace("~1", "/").replace("~0", "~"))).ok_or_else(missing)
}

fn json_child<'a>(json: &'a RawValue, name: &str) -> Option<&'a RawValue> {
    if json.get().starts_with('[') {
        let items: Vec<&RawValue> = serde_json::from_str(json.get()).ok()?;
        return items.get(name.parse::<usize>().ok()?).copied();
    }
    let mut fields: BTreeMap<String, &RawValue> = serde_json::from_str(json.get()).ok()?;
    fields.remove(name)
}

/// Removes insignificant white space.
fn compact_json(json: &str) -> String {
    let (mut in_string, mut escaped) = (false, false);
    let keep = |letter: &char| {
        if in_string {
            in_string = *letter != '"' || escaped;
            escaped = *letter == '\\' && !escaped;
            return true;
        }
        in_string = *letter == '"';
        !letter.is_ascii_whitespace()
    };
    json.chars().filter(keep).collect()
}

/// The model reads the error.
pub(crate) fn failed_output(error: ErrorInfo) -> ToolOutput {
    ToolOutput { error: Some(error.clone()), ..text_output(error.message) }
}

pub(crate) fn invalid_arguments_output(why: impl std::fmt::Display) -> ToolOutput {
    failed_output(invalid_arguments(why))
}

pub(crate) fn output_too_large(bytes_max: usize) -> ErrorInfo {
    ErrorInfo::new(
        ErrorCode::OutputTooLarge,
        format!("The tool's output exceeds {bytes_max} bytes; the tool was stopped."),
    )
}

fn invalid_output(why: impl std::fmt::Display) -> ErrorInfo {
    ErrorInfo::new(ErrorCode::InvalidOutput, format!("the tool's result cannot be used: {why}"))
}

#[cfg(test)]
mod tests;
