//! Content blocks of a request → inputs.

use crate::client_input::{ClientInput, InputKind, InvalidField};
use crate::request_fields::{
    expect_object, field_path, file_part, image_part, list_or_empty, non_null_field, optional_bool, optional_object,
    optional_str, present_str, required_str,
};
use model::content::ContentPart;
use model::json::JsonObject;
use serde_json::Value;

/// The blocks of a user message. Tool results come before the texts next to them.
pub(super) fn parse_user_blocks(blocks: &[Value], at: &str, out: &mut Vec<ClientInput>) -> Result<(), InvalidField> {
    let mut parts = Vec::new();
    for (index, block) in blocks.iter().enumerate() {
        let at = format!("{at}[{index}]");
        let block = expect_object(block, &at)?;
        match optional_str(block, "type", &at)? {
            Some("tool_result") => out.push(parse_tool_result(block, &at)?),
            Some(kind) => parts.extend(parse_block(kind, block, &at)?),
            None => return Err(InvalidField::new(field_path(&at, "type"), "expected a type")),
        }
    }
    if !parts.is_empty() {
        out.push(ClientInput { id: None, kind: InputKind::User(parts) });
    }
    Ok(())
}

/// Parses the blocks of an assistant message. Of a thinking block, only the id in its signature is used.
pub(super) fn parse_assistant_blocks(
    blocks: &[Value],
    at: &str,
    out: &mut Vec<ClientInput>,
) -> Result<(), InvalidField> {
    for (index, block) in blocks.iter().enumerate() {
        let at = format!("{at}[{index}]");
        let block = expect_object(block, &at)?;
        match optional_str(block, "type", &at)? {
            Some("text") => {
                let text = optional_str(block, "text", &at)?.unwrap_or_default();
                if !text.trim().is_empty() {
                    out.push(ClientInput { id: None, kind: InputKind::Assistant(text.to_owned()) });
                }
            }
            Some("tool_use" | "mcp_tool_use") => {
                let input = optional_object(block, "input", &at)?.cloned().unwrap_or_default();
                let call_id = required_str(block, "id", &at)?.to_owned();
                let name = required_str(block, "name", &at)?.to_owned();
                let kind = InputKind::ToolCall { call_id, name, arguments: Value::Object(input).to_string() };
                out.push(ClientInput { id: None, kind });
            }
            // The id marks a tool that the server ran, not the client.
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
                    "an assistant message cannot have images or files",
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
    let acknowledged_checks = Vec::new();
    Ok(ClientInput { id: None, kind: InputKind::ToolResult { call_id, content, failed, acknowledged_checks } })
}

fn parse_blocks(blocks: &[Value], at: &str) -> Result<Vec<ContentPart>, InvalidField> {
    let mut parts = Vec::new();
    for (index, block) in blocks.iter().enumerate() {
        let at = format!("{at}[{index}]");
        let block = expect_object(block, &at)?;
        let kind = optional_str(block, "type", &at)?;
        let kind = kind.ok_or_else(|| InvalidField::new(field_path(&at, "type"), "expected a type"))?;
        parts.extend(parse_block(kind, block, &at)?);
    }
    Ok(parts)
}

/// A block of a user message or of a tool result.
fn parse_block(kind: &str, block: &JsonObject, at: &str) -> Result<Vec<ContentPart>, InvalidField> {
    match kind {
        "text" => {
            let text = present_str(block, "text", at)?;
            Ok(if text.is_empty() { Vec::new() } else { vec![ContentPart::text(text)] })
        }
        "image" => parse_image(block, at).map(|part| vec![part]),
        "document" => parse_document(block, at),
        "search_result" => {
            let names = [optional_str(block, "title", at)?, optional_str(block, "source", at)?];
            let mut parts: Vec<ContentPart> = names.into_iter().flatten().map(ContentPart::text).collect();
            parts.extend(parse_blocks(list_or_empty(block, "content", at)?, &field_path(at, "content"))?);
            Ok(parts)
        }
        kind => Err(InvalidField::new(field_path(at, "type"), format!("`{kind}` is not supported"))),
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
            "expected `base64` or `url`: uploaded files are not supported",
        )),
    }
}

/// Parses a document block. The title names the file or precedes its text; the context comes before the content. URLs
/// are not checked here: if a fetch fails later, the file fails and not the request.
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
            let why = "expected `base64`, `url`, `text` or `content`: uploaded files are not supported";
            return Err(InvalidField::new(field_path(&at, "type"), why));
        }
    }
    Ok(parts)
}
