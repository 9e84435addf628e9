//! What a client brings in its messages: content blocks, in our words.

use crate::said::{Said, What, Wrong};
use crate::stateless::fields::{element, file, flag, given, list, needed, object, path, picture, text};
use model::block::{ContentPart, JsonObject};
use serde_json::Value;

/// What a user's message says: words, and results of tools. Results come before the words that stand beside them.
pub(super) fn user(blocks: &[Value], at: &str, out: &mut Vec<Said>) -> Result<(), Wrong> {
    let mut words = Vec::new();
    for (place, block) in blocks.iter().enumerate() {
        let at = format!("{at}[{place}]");
        let block = element(block, &at)?;
        match text(block, "type", &at)? {
            Some("tool_result") => out.push(result(block, &at)?),
            Some(kind) => words.extend(parts(kind, block, &at)?),
            None => return Err(Wrong::new(path(&at, "type"), "expected a type")),
        }
    }
    if !words.is_empty() {
        out.push(Said { id: None, what: What::User(words) });
    }
    Ok(())
}

/// What a model had said: what only its own provider could read is left out, but for the name that it may carry.
pub(super) fn assistant(blocks: &[Value], at: &str, out: &mut Vec<Said>) -> Result<(), Wrong> {
    for (place, block) in blocks.iter().enumerate() {
        let at = format!("{at}[{place}]");
        let block = element(block, &at)?;
        match text(block, "type", &at)? {
            Some("text") => {
                let words = text(block, "text", &at)?.unwrap_or_default();
                if !words.trim().is_empty() {
                    out.push(Said { id: None, what: What::Assistant(words.to_owned()) });
                }
            }
            Some("tool_use" | "mcp_tool_use") => {
                let input = object(block, "input", &at)?.cloned().unwrap_or_default();
                let call_id = needed(block, "id", &at)?.to_owned();
                let name = needed(block, "name", &at)?.to_owned();
                let what = What::Call { call_id, name, arguments: Value::Object(input).to_string() };
                out.push(Said { id: None, what });
            }
            // It has a name: it is no answer of the client's.
            Some("mcp_tool_result") => {
                let id = Some(needed(block, "tool_use_id", &at)?.to_owned());
                out.push(Said { id, ..result(block, &at)? });
            }
            Some("thinking") => {
                let signature = text(block, "signature", &at)?.filter(|signature| signature.starts_with("rs_"));
                out.extend(signature.map(|id| Said { id: Some(id.to_owned()), what: What::Other }));
            }
            Some("image" | "document") => {
                return Err(Wrong::new(path(&at, "type"), "an assistant's message has no pictures and files"));
            }
            Some(_) => {}
            None => return Err(Wrong::new(path(&at, "type"), "expected a type")),
        }
    }
    Ok(())
}

fn result(block: &JsonObject, at: &str) -> Result<Said, Wrong> {
    let call_id = needed(block, "tool_use_id", at)?.to_owned();
    let failed = flag(block, "is_error", at)?.unwrap_or(false);
    let at = path(at, "content");
    let content = match given(block, "content") {
        None => Vec::new(),
        Some(Value::String(text)) => vec![ContentPart::text(text)],
        Some(Value::Array(blocks)) => all(blocks, &at)?,
        Some(_) => return Err(Wrong::new(at, "expected a text or a list of blocks")),
    };
    Ok(Said { id: None, what: What::Result { call_id, content, failed } })
}

fn all(blocks: &[Value], at: &str) -> Result<Vec<ContentPart>, Wrong> {
    let mut all = Vec::new();
    for (place, block) in blocks.iter().enumerate() {
        let at = format!("{at}[{place}]");
        let block = element(block, &at)?;
        let kind = text(block, "type", &at)?.ok_or_else(|| Wrong::new(path(&at, "type"), "expected a type"))?;
        all.extend(parts(kind, block, &at)?);
    }
    Ok(all)
}

/// What a block of a user or a tool says.
fn parts(kind: &str, block: &JsonObject, at: &str) -> Result<Vec<ContentPart>, Wrong> {
    match kind {
        "text" => {
            let words = text(block, "text", at)?.ok_or_else(|| Wrong::new(path(at, "text"), "expected a text"))?;
            Ok(if words.is_empty() { Vec::new() } else { vec![ContentPart::text(words)] })
        }
        "image" => image(block, at).map(|part| vec![part]),
        "document" => document(block, at),
        "search_result" => {
            let names = [text(block, "title", at)?, text(block, "source", at)?];
            let mut parts: Vec<ContentPart> = names.into_iter().flatten().map(ContentPart::text).collect();
            parts.extend(all(list(block, "content", at)?, &path(at, "content"))?);
            Ok(parts)
        }
        kind => Err(Wrong::new(path(at, "type"), format!("`{kind}` cannot be read here"))),
    }
}

fn source<'a>(block: &'a JsonObject, at: &str) -> Result<(&'a JsonObject, &'a str, String), Wrong> {
    let at = path(at, "source");
    let source = given(block, "source").ok_or_else(|| Wrong::new(&at, "expected an object"))?;
    let source = element(source, &at)?;
    Ok((source, text(source, "type", &at)?.unwrap_or_default(), at))
}

fn image(block: &JsonObject, at: &str) -> Result<ContentPart, Wrong> {
    let (source, kind, at) = source(block, at)?;
    match kind {
        "base64" => {
            let (media_type, data) = (needed(source, "media_type", &at)?, needed(source, "data", &at)?);
            picture(format!("data:{media_type};base64,{data}"), &path(&at, "media_type"))
        }
        "url" => picture(needed(source, "url", &at)?, &path(&at, "url")),
        _ => Err(Wrong::new(path(&at, "type"), "expected `base64` or `url`: files of a file store are not known here")),
    }
}

/// A file is named by its title; what is words already is told under it. What the client says about it stands before it. Whether an address may be asked is found out when
/// it is: what cannot be read fails, and not the request.
fn document(block: &JsonObject, at: &str) -> Result<Vec<ContentPart>, Wrong> {
    let (title, context) = (text(block, "title", at)?, text(block, "context", at)?);
    let (source, kind, at) = source(block, at)?;
    let context = context.filter(|context| !context.trim().is_empty()).map(ContentPart::text);
    let named = |url: String| context.clone().into_iter().chain([file(url, title)]).collect();
    let mut parts: Vec<ContentPart> = title.map(ContentPart::text).into_iter().chain(context.clone()).collect();
    match kind {
        "base64" => {
            let (media_type, data) = (needed(source, "media_type", &at)?, needed(source, "data", &at)?);
            return Ok(named(format!("data:{media_type};base64,{data}")));
        }
        "url" => return Ok(named(needed(source, "url", &at)?.to_owned())),
        "text" => parts.push(ContentPart::text(needed(source, "data", &at)?)),
        "content" => match given(source, "content") {
            Some(Value::String(text)) => parts.push(ContentPart::text(text)),
            Some(Value::Array(blocks)) => parts.extend(all(blocks, &path(&at, "content"))?),
            _ => return Err(Wrong::new(path(&at, "content"), "expected a text or a list of blocks")),
        },
        _ => {
            let why = "expected `base64`, `url`, `text` or `content`: files of a file store are not known here";
            return Err(Wrong::new(path(&at, "type"), why));
        }
    }
    Ok(parts)
}
