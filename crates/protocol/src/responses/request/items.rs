//! The items of a request. A client that keeps its own history sends back the items of responses, each with its id.

use super::tool_name_for_model;
use crate::client_input::{ClientInput, InputKind, InvalidField, to_data_url, with_image_detail};
use crate::computer_calls::{self, SAFETY_CHECKS_MAX};
use crate::request_fields;
use model::content::{ContentPart, ImageUrl};
use model::event::{ApprovalDecision, ApprovalDecisionKind};
use model::item::COMPUTER_TOOL;
use model::json::{ExactValue, parse_exact_object};
use serde_json::Value;

/// An input that is a plain text.
pub(super) fn text_input(text: &str) -> Option<ClientInput> {
    (!text.is_empty()).then(|| ClientInput { id: None, kind: InputKind::User(vec![ContentPart::text(text)]) })
}

pub(super) fn parse_items(field: &str, list: &[Value]) -> Result<Vec<ClientInput>, InvalidField> {
    let mut inputs = Vec::new();
    for (index, item) in list.iter().enumerate() {
        parse_item(&format!("{field}[{index}]"), item, &mut inputs)?;
    }
    Ok(inputs)
}

fn parse_item(field: &str, item: &Value, out: &mut Vec<ClientInput>) -> Result<(), InvalidField> {
    if !item.is_object() {
        return Err(InvalidField::new(field, "expected an item"));
    }
    let id = str_field(item, "id").map(str::to_owned);
    let need = |name: &str| present_str(field, item, name);
    let kind = match str_field(item, "type") {
        // The type of a message may be left out, and so may that of a reference.
        Some("message") => return parse_message(field, item, id, out),
        None if item.get("role").is_some() => return parse_message(field, item, id, out),
        None if id.is_some() => InputKind::ItemReference,
        None => return Err(InvalidField::new(format!("{field}.type"), "expected a type")),
        Some("function_call") => {
            InputKind::ToolCall { call_id: need("call_id")?, name: need("name")?, arguments: need("arguments")? }
        }
        Some("computer_call") => {
            let (call_id, name) = (need("call_id")?, COMPUTER_TOOL.to_owned());
            InputKind::ToolCall { call_id, name, arguments: computer_calls::computer_arguments(item) }
        }
        Some("function_call_output" | "custom_tool_call_output") => {
            let content = parse_output(field, item.get("output"))?;
            let acknowledged_checks = Vec::new();
            InputKind::ToolResult { call_id: need("call_id")?, content, failed: false, acknowledged_checks }
        }
        Some("computer_call_output") => {
            let content = parse_screenshot(field, item.get("output"))?;
            let acknowledged_checks = parse_safety_checks(field, item.get("acknowledged_safety_checks"))?;
            InputKind::ToolResult { call_id: need("call_id")?, content, failed: false, acknowledged_checks }
        }
        Some("mcp_approval_response") => {
            InputKind::ApprovalDecision { key: need("approval_request_id")?, decision: parse_decision(field, item)? }
        }
        Some("mcp_call") => return parse_mcp_call(field, item, out),
        Some("image_generation_call") => parse_generated_image(field, item)?,
        Some("compaction") => {
            InputKind::SealedSummary { field: format!("{field}.encrypted_content"), sealed: need("encrypted_content")? }
        }
        Some("compaction_trigger") => {
            let reason = "is not supported: use POST /v1/responses/compact";
            return Err(InvalidField::new(format!("{field}.type"), reason));
        }
        // Reasoning, references, approval requests and hosted tools.
        Some(_) => InputKind::ItemReference,
    };
    out.push(ClientInput { id, kind });
    Ok(())
}

fn parse_decision(field: &str, item: &Value) -> Result<ApprovalDecision, InvalidField> {
    let approve = item.get("approve").and_then(Value::as_bool);
    let approve = approve.ok_or_else(|| InvalidField::new(format!("{field}.approve"), "expected true or false"))?;
    let message = str_field(item, "reason").filter(|reason| !reason.is_empty()).map(str::to_owned);
    // Beyond the original protocol: the answer to a question, as JSON or as its text.
    let args = item.get("arguments").filter(|arguments| !arguments.is_null()).map(|arguments| {
        let not_object = |_| InvalidField::new(format!("{field}.arguments"), "expected a JSON object");
        parse_exact_object(&json_text(arguments)).map(ExactValue::Object).map_err(not_object)
    });
    let kind = if approve { ApprovalDecisionKind::Approve } else { ApprovalDecisionKind::Reject };
    Ok(ApprovalDecision { kind, always: false, message, args: args.transpose()? })
}

fn json_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A call that a server answered: a call and its result in one item.
fn parse_mcp_call(field: &str, item: &Value, out: &mut Vec<ClientInput>) -> Result<(), InvalidField> {
    let (Some(id), Some(name)) = (str_field(item, "id"), str_field(item, "name")) else {
        return Err(InvalidField::new(field, "expected an `id` and a `name`"));
    };
    let arguments = str_field(item, "arguments").unwrap_or("{}").to_owned();
    let name = tool_name_for_model(str_field(item, "server_label"), name);
    out.push(ClientInput {
        id: Some(id.to_owned()),
        kind: InputKind::ToolCall { call_id: id.to_owned(), name, arguments },
    });
    let failed = item.get("error").is_some_and(|error| !error.is_null());
    let output = str_field(item, "output").map(str::to_owned);
    let content = output.or_else(|| failed.then(|| item.get("error").map(Value::to_string))?).unwrap_or_default();
    let (content, acknowledged_checks) = (vec![ContentPart::text(content)], Vec::new());
    let kind = InputKind::ToolResult { call_id: id.to_owned(), content, failed, acknowledged_checks };
    out.push(ClientInput { id: Some(id.to_owned()), kind });
    Ok(())
}

/// A message. Images of a system message become a user message: no provider accepts them elsewhere.
fn parse_message(
    field: &str,
    item: &Value,
    id: Option<String>,
    out: &mut Vec<ClientInput>,
) -> Result<(), InvalidField> {
    let content = match item.get("content") {
        Some(Value::String(text)) => vec![ContentPart::text(text.clone())],
        Some(Value::Array(list)) => parse_parts(&format!("{field}.content"), list)?,
        _ => return Err(InvalidField::new(format!("{field}.content"), "expected a text or a list of parts")),
    };
    let is_text = |part: &ContentPart| matches!(part, ContentPart::Text { .. });
    let (kind, attachments) = match str_field(item, "role") {
        Some("user") => (InputKind::User(content), Vec::new()),
        Some("assistant") if !content.iter().all(is_text) => {
            return Err(InvalidField::new(format!("{field}.content"), "an assistant message can only have text"));
        }
        Some("assistant") => (InputKind::Assistant(join_text_parts(&content)), Vec::new()),
        Some("system" | "developer") => {
            let text = join_text_parts(&content);
            (InputKind::System(text), content.into_iter().filter(|part| !is_text(part)).collect())
        }
        _ => {
            return Err(InvalidField::new(
                format!("{field}.role"),
                "expected `user`, `assistant`, `system` or `developer`",
            ));
        }
    };
    out.push(ClientInput { id, kind });
    let attachments = (!attachments.is_empty()).then_some(InputKind::User(attachments));
    out.extend(attachments.map(|kind| ClientInput { id: None, kind }));
    Ok(())
}

/// A generated image. This server's own are identified by id; others must include their data.
fn parse_generated_image(field: &str, item: &Value) -> Result<InputKind, InvalidField> {
    match str_field(item, "result").filter(|result| !result.is_empty()) {
        None => Ok(InputKind::ItemReference),
        Some(result) => {
            let url = ImageUrl::parse(result.to_owned()).map(|image| image.url);
            let url = url.unwrap_or_else(|_| format!("data:image/png;base64,{result}"));
            Ok(InputKind::GeneratedImages(vec![image_part(field, url)?]))
        }
    }
}

fn join_text_parts(parts: &[ContentPart]) -> String {
    let texts = parts.iter().filter_map(|part| match part {
        ContentPart::Text { text, .. } => Some(text.as_str()),
        ContentPart::ImageUrl { .. } | ContentPart::File { .. } => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn parse_output(field: &str, output: Option<&Value>) -> Result<Vec<ContentPart>, InvalidField> {
    match output {
        Some(Value::String(text)) => Ok(vec![ContentPart::text(text.clone())]),
        Some(Value::Array(list)) => parse_parts(&format!("{field}.output"), list),
        _ => Err(InvalidField::new(format!("{field}.output"), "expected a text or a list of parts")),
    }
}

fn parse_screenshot(field: &str, output: Option<&Value>) -> Result<Vec<ContentPart>, InvalidField> {
    let url = output.and_then(|output| str_field(output, "image_url")).unwrap_or_default();
    Ok(vec![image_part(&format!("{field}.output"), url.to_owned())?])
}

/// The checks that somebody has seen and accepted. At most as many as a call has.
fn parse_safety_checks(field: &str, checks: Option<&Value>) -> Result<Vec<Value>, InvalidField> {
    let invalid = || {
        let reason = format!("expected a list of at most {SAFETY_CHECKS_MAX} checks, each with an `id`");
        InvalidField::new(format!("{field}.acknowledged_safety_checks"), reason)
    };
    let is_check = |check: &Value| str_field(check, "id").is_some();
    match checks {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(list)) if list.len() <= SAFETY_CHECKS_MAX && list.iter().all(is_check) => Ok(list.clone()),
        Some(_) => Err(invalid()),
    }
}

fn parse_parts(field: &str, list: &[Value]) -> Result<Vec<ContentPart>, InvalidField> {
    list.iter().enumerate().map(|(index, value)| parse_part(&format!("{field}[{index}]"), value)).collect()
}

fn parse_part(field: &str, part: &Value) -> Result<ContentPart, InvalidField> {
    let need = |name: &str| present_str(field, part, name);
    match str_field(part, "type") {
        Some("input_text" | "output_text" | "text" | "summary_text" | "reasoning_text") => {
            Ok(ContentPart::text(need("text")?))
        }
        Some("refusal") => Ok(ContentPart::text(need("refusal")?)),
        Some("input_image" | "computer_screenshot") => match str_field(part, "image_url") {
            Some(url) => with_image_detail(image_part(field, url.to_owned())?, str_field(part, "detail"), field),
            None => {
                Err(InvalidField::new(format!("{field}.image_url"), "expected a URL: uploaded files are not supported"))
            }
        },
        Some("input_file") => file_part(field, part),
        _ => Err(InvalidField::new(format!("{field}.type"), "expected `input_text`, `input_image` or `input_file`")),
    }
}

fn image_part(field: &str, url: String) -> Result<ContentPart, InvalidField> {
    request_fields::image_part(url, &format!("{field}.image_url"))
}

/// A file. Its URL is not checked here: if the fetch fails later, the file fails and not the request.
fn file_part(field: &str, part: &Value) -> Result<ContentPart, InvalidField> {
    let url = match (str_field(part, "file_url"), str_field(part, "file_data")) {
        (Some(url), _) if !url.is_empty() => url.to_owned(),
        (None, Some("")) => {
            return Err(InvalidField::new(format!("{field}.file_data"), "expected a text that is not empty"));
        }
        (None, Some(data)) => to_data_url(data),
        (Some(_), _) | (None, None) => {
            return Err(InvalidField::new(
                field,
                "expected `file_url` or `file_data`: uploaded files are not supported",
            ));
        }
    };
    Ok(request_fields::file_part(url, str_field(part, "filename")))
}

fn str_field<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name).and_then(Value::as_str)
}

fn present_str(field: &str, value: &Value, name: &str) -> Result<String, InvalidField> {
    let text = str_field(value, name).map(str::to_owned);
    text.ok_or_else(|| InvalidField::new(format!("{field}.{name}"), "expected a text"))
}
