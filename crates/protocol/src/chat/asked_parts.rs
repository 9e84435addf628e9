//! What a message of a client holds: a text, or parts.

use crate::said::{Wrong, as_address, looked_at};
use crate::stateless::fields::{element, file, given, needed, object, path, picture, text};
use model::block::{ContentPart, JsonObject};
use serde_json::Value;

/// What a user or a tool says.
pub(super) fn parts(message: &JsonObject, at: &str) -> Result<Vec<ContentPart>, Wrong> {
    let at = path(at, "content");
    let list = match given(message, "content") {
        None => return Ok(Vec::new()),
        Some(Value::String(text)) if text.is_empty() => return Ok(Vec::new()),
        Some(Value::String(text)) => return Ok(vec![ContentPart::text(text)]),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(Wrong::new(at, "expected a text or a list of parts")),
    };
    let read = |(place, value): (usize, &Value)| {
        let at = format!("{at}[{place}]");
        part(element(value, &at)?, &at)
    };
    list.iter().enumerate().map(read).collect()
}

/// The words of a message that has nothing else.
pub(super) fn texts(message: &JsonObject, at: &str) -> Result<String, Wrong> {
    let at_content = path(at, "content");
    let Some(Value::Array(list)) = given(message, "content") else {
        return Ok(text(message, "content", at)?.unwrap_or_default().to_owned());
    };
    let mut texts = Vec::new();
    for (place, value) in list.iter().enumerate() {
        let at = format!("{at_content}[{place}]");
        let part = element(value, &at)?;
        match text(part, "type", &at)? {
            Some(kind @ ("text" | "refusal")) => texts.push(needed(part, kind, &at)?),
            _ => return Err(Wrong::new(path(&at, "type"), "expected `text`")),
        }
    }
    Ok(texts.join("\n\n"))
}

fn part(part: &JsonObject, at: &str) -> Result<ContentPart, Wrong> {
    match text(part, "type", at)? {
        Some("text") => {
            let words = text(part, "text", at)?.ok_or_else(|| Wrong::new(path(at, "text"), "expected a text"))?;
            Ok(ContentPart::text(words))
        }
        Some("image_url") => {
            let image = object(part, "image_url", at)?;
            let at = path(at, "image_url");
            let image = image.ok_or_else(|| Wrong::new(&at, "expected an object"))?;
            let shown = picture(needed(image, "url", &at)?, &path(&at, "url"))?;
            looked_at(shown, text(image, "detail", &at)?, &at)
        }
        Some("file") => {
            let sent = object(part, "file", at)?;
            let at = path(at, "file");
            let sent = sent.ok_or_else(|| Wrong::new(&at, "expected an object"))?;
            let data = text(sent, "file_data", &at)?.filter(|data| !data.is_empty());
            let why = "expected the bytes in base64: files of a file store are not known here";
            let data = data.ok_or_else(|| Wrong::new(path(&at, "file_data"), why))?;
            Ok(file(as_address(data), text(sent, "filename", &at)?))
        }
        Some(kind) => Err(Wrong::new(path(at, "type"), format!("`{kind}` cannot be read here"))),
        None => Err(Wrong::new(path(at, "type"), "expected a type")),
    }
}
