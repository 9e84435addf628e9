//! The content of a message: a text, or parts.

use crate::client_input::{InvalidField, to_data_url, with_image_detail};
use crate::request_fields::{
    expect_object, field_path, file_part, image_part, non_null_field, optional_str, present_str, required_object,
    required_str,
};
use model::content::ContentPart;
use model::json::JsonObject;
use serde_json::Value;

/// The content of a user message or a tool message.
pub(super) fn parse_content_parts(message: &JsonObject, at: &str) -> Result<Vec<ContentPart>, InvalidField> {
    let at = field_path(at, "content");
    let list = match non_null_field(message, "content") {
        None => return Ok(Vec::new()),
        Some(Value::String(text)) if text.is_empty() => return Ok(Vec::new()),
        Some(Value::String(text)) => return Ok(vec![ContentPart::text(text)]),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(InvalidField::new(at, "expected a text or a list of parts")),
    };
    let mut parts = Vec::new();
    for (index, value) in list.iter().enumerate() {
        let at = format!("{at}[{index}]");
        parts.push(parse_part(expect_object(value, &at)?, &at)?);
    }
    Ok(parts)
}

/// The content of a message that can only have text.
pub(super) fn parse_text_content(message: &JsonObject, at: &str) -> Result<String, InvalidField> {
    let Some(Value::Array(list)) = non_null_field(message, "content") else {
        return Ok(optional_str(message, "content", at)?.unwrap_or_default().to_owned());
    };
    let at = field_path(at, "content");
    let mut texts = Vec::new();
    for (index, value) in list.iter().enumerate() {
        let at = format!("{at}[{index}]");
        let part = expect_object(value, &at)?;
        match optional_str(part, "type", &at)? {
            Some(kind @ ("text" | "refusal")) => texts.push(required_str(part, kind, &at)?),
            _ => return Err(InvalidField::new(field_path(&at, "type"), "expected `text`")),
        }
    }
    Ok(texts.join("\n\n"))
}

fn parse_part(part: &JsonObject, at: &str) -> Result<ContentPart, InvalidField> {
    match optional_str(part, "type", at)? {
        Some("text") => Ok(ContentPart::text(present_str(part, "text", at)?)),
        Some("image_url") => {
            let image = required_object(part, "image_url", at)?;
            let at = field_path(at, "image_url");
            let part = image_part(required_str(image, "url", &at)?, &field_path(&at, "url"))?;
            with_image_detail(part, optional_str(image, "detail", &at)?, &at)
        }
        Some("file") => {
            let file = required_object(part, "file", at)?;
            let at = field_path(at, "file");
            let data = optional_str(file, "file_data", &at)?.filter(|data| !data.is_empty());
            let expected = "expected base64: uploaded files are not supported";
            let data = data.ok_or_else(|| InvalidField::new(field_path(&at, "file_data"), expected))?;
            Ok(file_part(to_data_url(data), optional_str(file, "filename", &at)?))
        }
        Some(kind) => Err(InvalidField::new(field_path(at, "type"), format!("`{kind}` is not supported"))),
        None => Err(InvalidField::new(field_path(at, "type"), "expected a type")),
    }
}
