//! The parts of a message.

use super::{UiAnsweredCall, UiApprovalAnswer, UiClientOutput, UiRequestMessage};
use crate::client_input::{ClientInput, InputKind, InvalidField};
use crate::request_fields::{
    expect_object, field_path, file_part, image_part, optional_bool, optional_str, present_str, required_object,
    required_str,
};
use model::blob::BLOB_URL_PREFIX;
use model::content::ContentPart;
use model::item::Role;
use model::json::JsonObject;
use serde_json::Value;

/// Parts that tell nothing new: the log has what they show.
const SHOWN_PARTS: [&str; 7] =
    ["step-start", "reasoning", "source-url", "source-document", "steering-message", "custom", "reasoning-file"];
/// What the URL of a file may begin with.
const FILE_URLS: [&str; 4] = ["https://", "http://", "data:", BLOB_URL_PREFIX];

/// Reads the parts into their message.
pub(super) fn parse_parts(parts: &[Value], at: &str, message: &mut UiRequestMessage) -> Result<(), InvalidField> {
    for (index, part) in parts.iter().enumerate() {
        let at = format!("{at}[{index}]");
        let part = expect_object(part, &at)?;
        let part_type = required_str(part, "type", &at)?;
        match part_type {
            "text" => {
                let text = present_str(part, "text", &at)?;
                if !text.is_empty() {
                    message.content.push(ContentPart::text(text));
                }
            }
            "file" => message.content.push(parse_file(part, &at)?),
            "dynamic-tool" => {
                let name = required_str(part, "toolName", &at)?;
                parse_call(part, name, &at, message)?;
            }
            _ if part_type.starts_with("data-") || SHOWN_PARTS.contains(&part_type) => {}
            _ => match part_type.strip_prefix("tool-").filter(|name| !name.is_empty()) {
                Some(name) => parse_call(part, name, &at, message)?,
                None => set_unknown(message, &at, "type"),
            },
        }
    }
    let content = content_history(message);
    message.history.splice(..0, content);
    Ok(())
}

/// A type that a later version of the SDK may have.
fn set_unknown(message: &mut UiRequestMessage, at: &str, name: &str) {
    let unknown = || InvalidField::new(field_path(at, name), "not supported");
    message.unknown_part.get_or_insert_with(unknown);
}

fn parse_file(part: &JsonObject, at: &str) -> Result<ContentPart, InvalidField> {
    let url = required_str(part, "url", at)?;
    let media_type = required_str(part, "mediaType", at)?;
    let name = optional_str(part, "filename", at)?;
    let at = field_path(at, "url");
    if media_type.starts_with("image/") {
        return image_part(url, &at);
    }
    if !FILE_URLS.iter().any(|start| url.starts_with(start)) {
        let expected = format!("a file's address begins with https://, http://, data: or {BLOB_URL_PREFIX}");
        return Err(InvalidField::new(at, expected));
    }
    Ok(file_part(url, name))
}

/// The texts and files as history.
fn content_history(message: &UiRequestMessage) -> Vec<ClientInput> {
    let (texts, files): (Vec<_>, Vec<_>) =
        message.content.iter().cloned().partition(|part| matches!(part, ContentPart::Text { .. }));
    let texts = texts.iter().filter_map(|part| match part {
        ContentPart::Text { text, .. } => Some(text.as_str()),
        _ => None,
    });
    let text = texts.collect::<Vec<_>>().join("\n\n");
    let kinds = match message.role {
        Role::User => vec![InputKind::User(message.content.clone())],
        Role::System => vec![InputKind::System(text)],
        Role::Assistant => {
            let images = files.into_iter().filter(|part| matches!(part, ContentPart::ImageUrl { .. }));
            let images: Vec<ContentPart> = images.collect();
            let text = Some(InputKind::Assistant(text.clone())).filter(|_| !text.is_empty());
            let images = Some(images).filter(|images| !images.is_empty()).map(InputKind::GeneratedImages);
            text.into_iter().chain(images).collect()
        }
    };
    kinds.into_iter().map(|kind| ClientInput { id: Some(message.id.clone()), kind }).collect()
}

fn parse_call(part: &JsonObject, name: &str, at: &str, message: &mut UiRequestMessage) -> Result<(), InvalidField> {
    if message.role != Role::Assistant {
        return Err(InvalidField::new(field_path(at, "type"), "only messages of the assistant have calls"));
    }
    let call_id = required_str(part, "toolCallId", at)?.to_owned();
    let call = UiAnsweredCall {
        field: at.to_owned(),
        call_id: call_id.clone(),
        tool_name: name.to_owned(),
        input: part.get("input").cloned(),
    };
    let is_executed = optional_bool(part, "providerExecuted", at)?.unwrap_or(false);
    let is_partial = optional_bool(part, "preliminary", at)?.unwrap_or(false);
    let result = match required_str(part, "state", at)? {
        "input-streaming" | "input-available" | "approval-requested" => return Ok(()),
        "approval-responded" => {
            message.approvals.push(parse_approval(part, call, at)?);
            return Ok(());
        }
        "output-available" if is_partial => return Ok(()),
        "output-available" => {
            let output = part.get("output").unwrap_or(&Value::Null);
            (output_content(output), false)
        }
        "output-error" => (vec![ContentPart::text(present_str(part, "errorText", at)?)], true),
        "output-denied" => (vec![ContentPart::text("The call was not approved.")], true),
        _ => {
            set_unknown(message, at, "state");
            return Ok(());
        }
    };
    let (content, failed) = result;
    let arguments = call.input.as_ref().map_or_else(|| "{}".to_owned(), Value::to_string);
    let kinds = [
        InputKind::ToolCall { call_id: call_id.clone(), name: name.to_owned(), arguments },
        InputKind::ToolResult { call_id, content: content.clone(), failed, acknowledged_checks: Vec::new() },
    ];
    message.history.extend(kinds.map(|kind| ClientInput { id: None, kind }));
    if !is_executed {
        message.outputs.push(UiClientOutput { call, content, failed });
    }
    Ok(())
}

fn parse_approval(part: &JsonObject, call: UiAnsweredCall, at: &str) -> Result<UiApprovalAnswer, InvalidField> {
    let approval = required_object(part, "approval", at)?;
    let at = field_path(at, "approval");
    let approved = optional_bool(approval, "approved", &at)?;
    let approved = approved.ok_or_else(|| InvalidField::new(field_path(&at, "approved"), "expected true or false"))?;
    let reason = optional_str(approval, "reason", &at)?.filter(|reason| !reason.is_empty());
    Ok(UiApprovalAnswer {
        call,
        approval_id: required_str(approval, "id", &at)?.to_owned(),
        approved,
        reason: reason.map(str::to_owned),
        arguments: None,
    })
}

/// What a tool of the client returned: a text, a picture, or any other value as JSON.
fn output_content(output: &Value) -> Vec<ContentPart> {
    let only = output.as_object().filter(|output| output.len() == 1);
    let image = only.and_then(|output| output.get("image_url")).and_then(Value::as_str);
    let image = image.or(output.as_str().filter(|text| text.starts_with("data:image/")));
    if let Some(image) = image.and_then(|url| image_part(url, "").ok()) {
        return vec![image];
    }
    match output {
        Value::String(text) => vec![ContentPart::text(text)],
        other => vec![ContentPart::text(other.to_string())],
    }
}
