//! What a message of a client holds: a text, or parts.

use crate::client_input::{InvalidField, to_data_url, with_image_detail};
use crate::stateless::request_fields::{
    expect_object, field_path, file_part, image_part, non_null_field, optional_object, optional_str, required_str,
};
use model::content::ContentPart;
use model::json::JsonObject;
use serde_json::Value;

/// What a user or a tool says.
pub(super) fn parse_content_parts(message: &JsonObject, at: &str) -> Result<Vec<ContentPart>, InvalidField> {
    let at = field_path(at, "content");
    let list = match non_null_field(message, "content") {
        None => return Ok(Vec::new()),
        Some(Value::String(text)) if text.is_empty() => return Ok(Vec::new()),
        Some(Value::String(text)) => return Ok(vec![ContentPart::text(text)]),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(InvalidField::new(at, "expected a text or a list of parts")),
    };
    let read = |(place, value): (usize, &Value)| {
        let at = format!("{at}[{place}]");
        parse_part(expect_object(value, &at)?, &at)
    };
    list.iter().enumerate().map(read).collect()
}

/// The words of a message that has nothing else.
pub(super) fn parse_text_content(message: &JsonObject, at: &str) -> Result<String, InvalidField> {
    let at_content = field_path(at, "content");
    let Some(Value::Array(list)) = non_null_field(message, "content") else {
        return Ok(optional_str(message, "content", at)?.unwrap_or_default().to_owned());
    };
    let mut texts = Vec::new();
    for (place, value) in list.iter().enumerate() {
        let at = format!("{at_content}[{place}]");
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
        Some("text") => {
            let words = optional_str(part, "text", at)?
                .ok_or_else(|| InvalidField::new(field_path(at, "text"), "expected a text"))?;
            Ok(ContentPart::text(words))
        }
        Some("image_url") => {
            let image = optional_object(part, "image_url", at)?;
            let at = field_path(at, "image_url");
            let image = image.ok_or_else(|| InvalidField::new(&at, "expected an object"))?;
            let shown = image_part(required_str(image, "url", &at)?, &field_path(&at, "url"))?;
            with_image_detail(shown, optional_str(image, "detail", &at)?, &at)
        }
        Some("file") => {
            let sent = optional_object(part, "file", at)?;
            let at = field_path(at, "file");
            let sent = sent.ok_or_else(|| InvalidField::new(&at, "expected an object"))?;
            let data = optional_str(sent, "file_data", &at)?.filter(|data| !data.is_empty());
            let why = "expected the bytes in base64: files of a file store are not known here";
            let data = data.ok_or_else(|| InvalidField::new(field_path(&at, "file_data"), why))?;
            Ok(file_part(to_data_url(data), optional_str(sent, "filename", &at)?))
        }
        Some(kind) => Err(InvalidField::new(field_path(at, "type"), format!("`{kind}` cannot be read here"))),
        None => Err(InvalidField::new(field_path(at, "type"), "expected a type")),
    }
}
