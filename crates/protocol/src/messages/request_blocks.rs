//! What a client brings in its messages: content blocks, in our words.

use crate::client_input::{ClientInput, InputKind, InvalidField};
use crate::stateless::request_fields::{
    expect_object, field_path, file_part, image_part, list_or_empty, non_null_field, optional_bool, optional_object,
    optional_str, required_str,
};
use model::content::ContentPart;
use model::json::JsonObject;
use serde_json::Value;

/// What a user's message says: words, and results of tools. Results come before the words that stand beside them.
pub(super) fn parse_user_blocks(blocks: &[Value], at: &str, out: &mut Vec<ClientInput>) -> Result<(), InvalidField> {
    let mut words = Vec::new();
    for (place, block) in blocks.iter().enumerate() {
        let at = format!("{at}[{place}]");
        let block = expect_object(block, &at)?;
        match optional_str(block, "type", &at)? {
            Some("tool_result") => out.push(parse_tool_result(block, &at)?),
            Some(kind) => words.extend(parse_block(kind, block, &at)?),
            None => return Err(InvalidField::new(field_path(&at, "type"), "expected a type")),
        }
    }
    if !words.is_empty() {
        out.push(ClientInput { id: None, kind: InputKind::User(words) });
    }
    Ok(())
}

/// What a model had said: what only its own provider could read is left out, but for the name that it may carry.
pub(super) fn parse_assistant_blocks(
    blocks: &[Value],
    at: &str,
    out: &mut Vec<ClientInput>,
) -> Result<(), InvalidField> {
    for (place, block) in blocks.iter().enumerate() {
        let at = format!("{at}[{place}]");
        let block = expect_object(block, &at)?;
        match optional_str(block, "type", &at)? {
            Some("text") => {
                let words = optional_str(block, "text", &at)?.unwrap_or_default();
                if !words.trim().is_empty() {
                    out.push(ClientInput { id: None, kind: InputKind::Assistant(words.to_owned()) });
                }
            }
            Some("tool_use" | "mcp_tool_use") => {
                let input = optional_object(block, "input", &at)?.cloned().unwrap_or_default();
                let call_id = required_str(block, "id", &at)?.to_owned();
                let name = required_str(block, "name", &at)?.to_owned();
                let what = InputKind::ToolCall { call_id, name, arguments: Value::Object(input).to_string() };
                out.push(ClientInput { id: None, kind: what });
            }
            // It has a name: it is no answer of the client's.
            Some("mcp_tool_result") => {
                let id = Some(required_str(block, "tool_use_id", &at)?.to_owned());
                out.push(ClientInput { id, ..parse_tool_result(block, &at)? });
            }
            Some("thinking") => {
                let signature = optional_str(block, "signature", &at)?.filter(|signature| signature.starts_with("rs_"));
                out.extend(signature.map(|id| ClientInput { id: Some(id.to_owned()), kind: InputKind::ItemReference }));
            }
            Some("image" | "document") => {
                return Err(InvalidField::new(
                    field_path(&at, "type"),
                    "an assistant's message has no pictures and files",
                ));
            }
            Some(_) => {}
            None => return Err(InvalidField::new(field_path(&at, "type"), "expected a type")),
        }
    }
    Ok(())
}

fn parse_tool_result(block: &JsonObject, at: &str) -> Result<ClientInput, InvalidField> {
    let call_id = required_str(block, "tool_use_id", at)?.to_owned();
    let failed = optional_bool(block, "is_error", at)?.unwrap_or(false);
    let at = field_path(at, "content");
    let content = match non_null_field(block, "content") {
        None => Vec::new(),
        Some(Value::String(text)) => vec![ContentPart::text(text)],
        Some(Value::Array(blocks)) => parse_blocks(blocks, &at)?,
        Some(_) => return Err(InvalidField::new(at, "expected a text or a list of blocks")),
    };
    Ok(ClientInput { id: None, kind: InputKind::ToolResult { call_id, content, failed } })
}

fn parse_blocks(blocks: &[Value], at: &str) -> Result<Vec<ContentPart>, InvalidField> {
    let mut all = Vec::new();
    for (place, block) in blocks.iter().enumerate() {
        let at = format!("{at}[{place}]");
        let block = expect_object(block, &at)?;
        let kind = optional_str(block, "type", &at)?
            .ok_or_else(|| InvalidField::new(field_path(&at, "type"), "expected a type"))?;
        all.extend(parse_block(kind, block, &at)?);
    }
    Ok(all)
}

/// What a block of a user or a tool says.
fn parse_block(kind: &str, block: &JsonObject, at: &str) -> Result<Vec<ContentPart>, InvalidField> {
    match kind {
        "text" => {
            let words = optional_str(block, "text", at)?
                .ok_or_else(|| InvalidField::new(field_path(at, "text"), "expected a text"))?;
            Ok(if words.is_empty() { Vec::new() } else { vec![ContentPart::text(words)] })
        }
        "image" => parse_image(block, at).map(|part| vec![part]),
        "document" => parse_document(block, at),
        "search_result" => {
            let names = [optional_str(block, "title", at)?, optional_str(block, "source", at)?];
            let mut parts: Vec<ContentPart> = names.into_iter().flatten().map(ContentPart::text).collect();
            parts.extend(parse_blocks(list_or_empty(block, "content", at)?, &field_path(at, "content"))?);
            Ok(parts)
        }
        kind => Err(InvalidField::new(field_path(at, "type"), format!("`{kind}` cannot be read here"))),
    }
}

fn parse_source<'a>(block: &'a JsonObject, at: &str) -> Result<(&'a JsonObject, &'a str, String), InvalidField> {
    let at = field_path(at, "source");
    let source = non_null_field(block, "source").ok_or_else(|| InvalidField::new(&at, "expected an object"))?;
    let source = expect_object(source, &at)?;
    Ok((source, optional_str(source, "type", &at)?.unwrap_or_default(), at))
}

fn parse_image(block: &JsonObject, at: &str) -> Result<ContentPart, InvalidField> {
    let (source, kind, at) = parse_source(block, at)?;
    match kind {
        "base64" => {
            let (media_type, data) = (required_str(source, "media_type", &at)?, required_str(source, "data", &at)?);
            image_part(format!("data:{media_type};base64,{data}"), &field_path(&at, "media_type"))
        }
        "url" => image_part(required_str(source, "url", &at)?, &field_path(&at, "url")),
        _ => Err(InvalidField::new(
            field_path(&at, "type"),
            "expected `base64` or `url`: files of a file store are not known here",
        )),
    }
}

/// A file is named by its title; what is words already is told under it. What the client says about it stands before it. Whether an address may be asked is found out when
/// it is: what cannot be read fails, and not the request.
fn parse_document(block: &JsonObject, at: &str) -> Result<Vec<ContentPart>, InvalidField> {
    let (title, context) = (optional_str(block, "title", at)?, optional_str(block, "context", at)?);
    let (source, kind, at) = parse_source(block, at)?;
    let context = context.filter(|context| !context.trim().is_empty()).map(ContentPart::text);
    let named = |url: String| context.clone().into_iter().chain([file_part(url, title)]).collect();
    let mut parts: Vec<ContentPart> = title.map(ContentPart::text).into_iter().chain(context.clone()).collect();
    match kind {
        "base64" => {
            let (media_type, data) = (required_str(source, "media_type", &at)?, required_str(source, "data", &at)?);
            return Ok(named(format!("data:{media_type};base64,{data}")));
        }
        "url" => return Ok(named(required_str(source, "url", &at)?.to_owned())),
        "text" => parts.push(ContentPart::text(required_str(source, "data", &at)?)),
        "content" => match non_null_field(source, "content") {
            Some(Value::String(text)) => parts.push(ContentPart::text(text)),
            Some(Value::Array(blocks)) => parts.extend(parse_blocks(blocks, &field_path(&at, "content"))?),
            _ => return Err(InvalidField::new(field_path(&at, "content"), "expected a text or a list of blocks")),
        },
        _ => {
            let why = "expected `base64`, `url`, `text` or `content`: files of a file store are not known here";
            return Err(InvalidField::new(field_path(&at, "type"), why));
        }
    }
    Ok(parts)
}
