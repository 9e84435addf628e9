//! A result as somebody else wrote it, read as a [`ToolOutput`].
//!
//! An object with the fields of a [`ToolOutput`] and no others is one. Everything else is words for the model: a text as
//! it is, other JSON without its white space. It is never parsed and written again, because that could change a number.

use model::content::ContentPart;
use model::error::{ErrorCode, ErrorInfo};
use model::item::Block;
use model::json::JsonObject;
use model::tool::ToolOutput;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

const OUTPUT_FIELDS: [&str; 6] = ["message_content", "block_list", "summary", "artifact", "ui_hints", "error"];

/// What the model reads when there is nothing: providers refuse a result without words.
const EMPTY_OUTPUT: &str = "(no output)";

/// Reads a result, or what `pointer` finds in it.
pub(crate) fn parse_output(text: &str, pointer: Option<&str>) -> Result<ToolOutput, ErrorInfo> {
    let text = text.trim_end_matches(['\r', '\n']);
    let json = serde_json::from_str::<&RawValue>(text).ok();
    let found = match (pointer, json) {
        (Some(pointer), Some(json)) => Some(resolve_pointer(json, pointer)?),
        (Some(pointer), None) => {
            return Err(invalid_output(format!("the answer is not JSON, so there is nothing at `{pointer}`")));
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
        return Ok(text_output(&text));
    }
    match serde_json::from_str::<JsonObject>(json) {
        Ok(object) if is_tool_output(&object) => output_from_object(object),
        Ok(_) | Err(_) => Ok(text_output(&compact_json(json))),
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
        // Tags say who put words there when it was not the author; a tool is the author.
        if let ContentPart::Text { tags, .. } = part {
            tags.clear();
        }
    }
    Ok(output)
}

/// A tool shows words and pictures. The other kinds are a sub-agent's.
fn check_block(block: &Block) -> Result<(), ErrorInfo> {
    match block {
        Block::Text(text) if text.text.is_none() => Err(invalid_output("a text block has no text")),
        Block::Text(_) | Block::Image(_) => Ok(()),
        Block::Reasoning(_)
        | Block::ToolCall(_)
        | Block::ToolResult(_)
        | Block::Message(_)
        | Block::HostedCall(_)
        | Block::FileProcessing(_) => Err(invalid_output("a tool may only give blocks of type `text` and `image`")),
    }
}

fn text_output(text: &str) -> ToolOutput {
    ToolOutput { message_content: vec![ContentPart::text(text)], ..ToolOutput::default() }
}

/// The model must have something to read. Blocks are read when there is nothing else, so they are enough.
fn ensure_model_content(mut output: ToolOutput) -> ToolOutput {
    let blank = |part: &ContentPart| matches!(part, ContentPart::Text { text, .. } if text.trim().is_empty());
    output.message_content.retain(|part| !blank(part));
    if output.message_content.is_empty() && output.block_list.is_empty() {
        let why = output.error.as_ref().map(|error| error.message.as_str());
        let said = why.or(output.summary.as_deref()).filter(|said| !said.trim().is_empty());
        output.message_content.push(ContentPart::text(said.unwrap_or(EMPTY_OUTPUT)));
    }
    output
}

fn resolve_pointer<'a>(json: &'a RawValue, pointer: &str) -> Result<&'a RawValue, ErrorInfo> {
    let missing = || invalid_output(format!("the answer has nothing at `{pointer}`"));
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

/// JSON without the white space that means nothing.
fn compact_json(json: &str) -> String {
    let (mut inside, mut escaped) = (false, false);
    let keep = |letter: &char| {
        if inside {
            inside = *letter != '"' || escaped;
            escaped = *letter == '\\' && !escaped;
            return true;
        }
        inside = *letter == '"';
        !letter.is_ascii_whitespace()
    };
    json.chars().filter(keep).collect()
}

fn invalid_output(why: impl std::fmt::Display) -> ErrorInfo {
    ErrorInfo::new(ErrorCode::InvalidOutput, format!("the tool's result cannot be used: {why}"))
}

#[cfg(test)]
mod tests;
