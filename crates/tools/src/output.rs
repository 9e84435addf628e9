//! Parses the result of an external tool into a [`ToolOutput`].
//!
//! An object that has only fields of [`ToolOutput`] is one. Anything else is text for the model: a string as it is, other
//! JSON without its insignificant white space. It is never parsed and printed again, because that could change a number.

use crate::arguments::invalid_arguments;
use model::content::{ContentPart, TextBlock};
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

/// Parses what a tool has returned after pieces, which may be nothing. What is no [`ToolOutput`] is another block.
pub(crate) fn parse_rest(text: &str, pointer: Option<&str>) -> Result<ToolOutput, ErrorInfo> {
    if text.trim().is_empty() {
        return Ok(ToolOutput::default());
    }
    let text = text.trim_end_matches(['\r', '\n']);
    let json = serde_json::from_str::<&RawValue>(text).ok();
    let json = match (pointer, json) {
        (Some(pointer), Some(json)) => Some(resolve_pointer(json, pointer)?),
        (_, json) => json,
    };
    let object = json.and_then(|json| serde_json::from_str::<JsonObject>(json.get()).ok());
    match object.filter(is_tool_output) {
        Some(object) => output_from_object(object),
        None => {
            let words = json.and_then(|json| serde_json::from_str(json.get()).ok());
            let words = words.unwrap_or_else(|| json.map_or(text, RawValue::get).to_owned());
            Ok(ToolOutput { block_list: vec![Block::Text(TextBlock::new(words))], ..ToolOutput::default() })
        }
    }
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
    if let Some(error) = object.get_mut("error")
        && let Value::String(message) = error
    {
        *error = serde_json::json!({ "code": ErrorCode::ToolFailed.as_str(), "message": message });
    }
    let (content, blocks) = (object.remove("message_content"), object.remove("block_list"));
    let mut output: ToolOutput = serde_json::from_value(Value::Object(object)).map_err(invalid_output)?;
    output.message_content = into_list(content).into_iter().map(parse_part).collect();
    output.block_list = into_list(blocks).into_iter().map(parse_block).collect();
    for part in &mut output.message_content {
        // Tags mark text that somebody else inserted; all text of a result is the tool's own.
        if let ContentPart::Text { tags, .. } = part {
            tags.clear();
        }
    }
    Ok(output)
}

fn into_list(value: Option<Value>) -> Vec<Value> {
    match value {
        None => Vec::new(),
        Some(Value::Array(list)) => list,
        Some(single) => vec![single],
    }
}

/// A part for the model. One that is none is given to it as text.
fn parse_part(part: Value) -> ContentPart {
    match (serde_json::from_value(part.clone()), part) {
        (Ok(part), _) => part,
        (Err(_), Value::String(text)) => ContentPart::text(text),
        (Err(_), other) => ContentPart::text(other.to_string()),
    }
}

/// A block of a tool: text or an image. Any other block is kept as its JSON text: one block that the server does not know
/// must not cost the rest of the result.
fn parse_block(mut block: Value) -> Block {
    // `image_url` is the name of the part for the model, and common for the block, too.
    if let Some(kind) = block.get_mut("type").filter(|kind| *kind == "image_url") {
        *kind = "image".into();
    }
    match serde_json::from_value::<Block>(block.clone()) {
        Ok(Block::Text(text)) if text.text.is_some() => Block::Text(text),
        Ok(Block::Image(image)) => Block::Image(image),
        Ok(_) | Err(_) => {
            let id = block.get("id").and_then(Value::as_u64).and_then(|id| u32::try_from(id).ok());
            Block::Text(TextBlock { id, ..TextBlock::new(block.to_string()) })
        }
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
