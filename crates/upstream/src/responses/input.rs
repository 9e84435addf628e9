//! The history as input items.
//!
//! With ids present the service looks items up and enforces the chain reasoning → message or call: it refuses a message
//! whose reasoning is missing, reasoning whose message is missing, and reasoning without its encrypted content. Without
//! ids it accepts items as plain content. So the raw items of one response go back as a group, in one of three ways
//! ([`ResendMode`]). Items of other origins, and truncated ones, have no raw item and are always plain content.

use super::hosted_call;
use crate::content_parts::{ImageSource, file_name_or_default, file_placeholder, summary_text};
use crate::generated_image::TOMBSTONE_KEY;
use crate::history::{APPROVAL_REQUEST_TYPE, PromptCall, PromptItem, PromptResult, normalize_history_with_approvals};
use crate::json::{array_field, non_null_field, str_field};
use crate::request_list::RequestList;
use crate::tool_name::{is_valid_tool_name, sanitize_tool_name};
use crate::written_history::HistorySegment;
use model::content::{ContentPart, FileRef, IMAGE_MEDIA_TYPES};
use model::item::{COMPUTER_TOOL, ResultStatus};
use model::json::ExactValue;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};

/// The service requires some input.
const PLACEHOLDER_INPUT: &str = "Go on.";
/// The name of a tool that the model called without one.
const UNNAMED_TOOL: &str = "unknown";

/// Whether the service stores its responses, so that an id is enough to send reasoning back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseStorage {
    Stored,
    NotStored,
}

/// Pushes the items of a segment; of a whole history at least one. The last one may be an assistant message, which the service
/// continues.
pub(super) fn push_input(
    history: HistorySegment<'_>,
    origin: &str,
    storage: ResponseStorage,
    out: &mut impl RequestList,
) {
    let items = normalize_history_with_approvals(history.iter(), origin);
    let calls_with_screenshot = items.iter().filter_map(|item| match item {
        PromptItem::Result(result) => first_screenshot(&result.content).map(|_| result.call.id),
        _ => None,
    });
    let mut writer = InputWriter {
        storage,
        calls_with_screenshot: calls_with_screenshot.collect(),
        call_shapes: HashMap::new(),
        is_empty: true,
        out,
    };
    let mut rest = items.as_slice();
    while let Some(first) = rest.first() {
        let length = rest.iter().take_while(|item| raw_item_of(item).is_some()).count();
        let (group, after) = rest.split_at(length.max(1).min(rest.len()));
        rest = after;
        match (length, first) {
            (0, single) => writer.write_single(single),
            _ => writer.write_group(group),
        }
    }
    if writer.is_empty && history.is_first && history.is_last {
        writer.push(&placeholder_input());
    }
}

pub(super) fn placeholder_input() -> InputMessage<'static, [InputText<'static>; 1]> {
    InputMessage::new("user", [InputText::new(PLACEHOLDER_INPUT)])
}

/// A message. Its members are in alphabetical order, as those of a value are.
#[derive(Serialize)]
pub(super) struct InputMessage<'a, C> {
    content: C,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<&'a str>,
    role: &'static str,
    #[serde(rename = "type")]
    item_type: &'static str,
}

impl<C> InputMessage<'_, C> {
    const fn new(role: &'static str, content: C) -> Self {
        Self { content, phase: None, role, item_type: "message" }
    }
}

#[derive(Serialize)]
pub(super) struct InputText<'a> {
    text: &'a str,
    #[serde(rename = "type")]
    part_type: &'static str,
}

impl<'a> InputText<'a> {
    const fn new(text: &'a str) -> Self {
        Self { text, part_type: "input_text" }
    }
}

const fn raw_item_of<'a>(item: &PromptItem<'a>) -> Option<&'a Value> {
    match item {
        PromptItem::Reasoning(raw) | PromptItem::Hosted { raw, .. } => Some(raw),
        PromptItem::Assistant { raw, .. } | PromptItem::Call(PromptCall { raw, .. }) => *raw,
        PromptItem::Summary(_) | PromptItem::System(_) | PromptItem::User(_) | PromptItem::Result(_) => None,
    }
}

/// The form of a call, which its result has to match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallShape {
    Function,
    Custom,
    Computer,
    /// A question of the service, whose result is the decision.
    ApprovalRequest,
    /// A question that cannot be sent back, and whose result must not be sent either.
    Omitted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResendMode {
    /// With reasoning, unchanged: nothing of the group is missing.
    Verbatim,
    /// There is no reasoning, so the service enforces nothing: messages and calls without ids, other items unchanged.
    WithoutIds,
    /// Something is missing: messages and calls without ids, and nothing else.
    PlainContent,
}

struct InputWriter<'a, L> {
    storage: ResponseStorage,
    calls_with_screenshot: HashSet<&'a str>,
    call_shapes: HashMap<&'a str, CallShape>,
    is_empty: bool,
    out: &'a mut L,
}

impl<'a, L: RequestList> InputWriter<'a, L> {
    fn push(&mut self, item: &impl Serialize) {
        self.is_empty = false;
        self.out.push(item);
    }

    /// Writes an item that belongs to no group.
    fn write_single(&mut self, item: &PromptItem<'a>) {
        match item {
            PromptItem::Summary(summary) => {
                self.push(&InputMessage::new("user", [InputText::new(&summary_text(summary))]));
            }
            // Not `developer`, which means the same: the chat templates of some servers refuse it.
            PromptItem::System(text) => self.push(&InputMessage::new("system", [InputText::new(text)])),
            PromptItem::User(content) => {
                let texts: Option<Vec<InputText<'_>>> = content.iter().map(|part| text_part(part)).collect();
                match texts {
                    Some(texts) => self.push(&InputMessage::new("user", texts)),
                    None => {
                        let content: Vec<Value> = content.iter().map(|part| input_part_json(part)).collect();
                        self.push(&InputMessage::new("user", content));
                    }
                }
            }
            PromptItem::Result(result) => self.write_result(result),
            PromptItem::Assistant { .. }
            | PromptItem::Call(_)
            | PromptItem::Reasoning(_)
            | PromptItem::Hosted { .. } => {
                self.write_item(item, ResendMode::PlainContent);
            }
        }
    }

    fn write_group(&mut self, group: &[PromptItem<'a>]) {
        let has_reasoning = group.iter().any(|item| matches!(item, PromptItem::Reasoning(_)));
        let ends_in_reasoning = matches!(group.last(), Some(PromptItem::Reasoning(_)));
        let mode = if !has_reasoning {
            ResendMode::WithoutIds
        } else if !ends_in_reasoning && group.iter().all(|item| self.is_resendable(item)) {
            ResendMode::Verbatim
        } else {
            ResendMode::PlainContent
        };
        for item in group {
            self.write_item(item, mode);
        }
    }

    /// Whether the service accepts the raw item unchanged.
    fn is_resendable(&self, item: &PromptItem<'a>) -> bool {
        let Some(raw) = raw_item_of(item).filter(|raw| raw.get(TOMBSTONE_KEY).is_none()) else { return false };
        let kind = str_field(raw, "type").unwrap_or_default();
        match item {
            PromptItem::Reasoning(_) => {
                let has_content = str_field(raw, "encrypted_content").is_some_and(|content| !content.is_empty());
                let has_id = str_field(raw, "id").is_some_and(|id| !id.is_empty());
                kind == "reasoning" && (has_content || self.storage == ResponseStorage::Stored && has_id)
            }
            PromptItem::Assistant { .. } => kind == "message" && !array_field(raw, "content").is_empty(),
            PromptItem::Hosted { .. } => {
                hosted_call::hosted_item_type(kind).is_some_and(|kind| hosted_call::is_resendable(kind, raw))
            }
            PromptItem::Call(call) => {
                let same_id = str_field(raw, "call_id") == Some(call.id);
                match kind {
                    "function_call" | "custom_tool_call" => {
                        same_id && str_field(raw, "name").is_some_and(is_valid_tool_name)
                    }
                    // Its result has to be a screenshot.
                    "computer_call" => same_id && self.calls_with_screenshot.contains(call.id),
                    // It has no `call_id`. What a refusal has emptied has no name either.
                    APPROVAL_REQUEST_TYPE => str_field(raw, "id") == Some(call.id) && raw.get("name").is_some(),
                    _ => false,
                }
            }
            PromptItem::Summary(_) | PromptItem::System(_) | PromptItem::User(_) | PromptItem::Result(_) => false,
        }
    }

    fn write_item(&mut self, item: &PromptItem<'a>, mode: ResendMode) {
        match item {
            PromptItem::Call(call) => {
                let shape = self.call_shape(item, call, mode);
                self.call_shapes.insert(call.id, shape);
                self.push(&match (shape, mode, call.raw) {
                    (CallShape::Omitted, ..) => return,
                    (CallShape::ApprovalRequest, _, Some(raw)) => raw.clone(),
                    (_, ResendMode::Verbatim, Some(raw)) | (CallShape::Computer, _, Some(raw)) => {
                        with_executed_arguments(raw.clone(), call.arguments)
                    }
                    (CallShape::Custom, _, Some(raw)) => with_executed_arguments(without_id(raw), call.arguments),
                    (_, _, raw) => with_namespace(function_call_json(call.id, call.name, call.arguments), raw),
                });
            }
            PromptItem::Assistant { text, raw } => match (mode, raw) {
                (ResendMode::Verbatim, Some(raw)) => self.push(raw),
                _ => self.push(&plain_message(text, raw.and_then(|raw| str_field(raw, "phase")))),
            },
            PromptItem::Reasoning(raw) if mode == ResendMode::Verbatim => self.push(raw),
            PromptItem::Hosted { raw, .. } if mode != ResendMode::PlainContent && self.is_resendable(item) => {
                self.push(raw);
            }
            PromptItem::Reasoning(_) | PromptItem::Hosted { .. } => {}
            PromptItem::Summary(_) | PromptItem::System(_) | PromptItem::User(_) | PromptItem::Result(_) => {}
        }
    }

    fn call_shape(&self, item: &PromptItem<'a>, call: &PromptCall<'a>, mode: ResendMode) -> CallShape {
        let kind = call.raw.and_then(|raw| str_field(raw, "type"));
        let is_question = kind == Some(APPROVAL_REQUEST_TYPE);
        match kind.filter(|_| self.is_resendable(item)) {
            Some(APPROVAL_REQUEST_TYPE) if mode != ResendMode::PlainContent => CallShape::ApprovalRequest,
            _ if is_question => CallShape::Omitted,
            Some("custom_tool_call") => CallShape::Custom,
            // It needs its id, and with the id the rest of its group.
            Some("computer_call") if mode != ResendMode::PlainContent => CallShape::Computer,
            _ => CallShape::Function,
        }
    }

    fn write_result(&mut self, result: &PromptResult<'a>) {
        let call_id = result.call.id;
        let shape = self.call_shapes.get(call_id).copied().unwrap_or(CallShape::Function);
        self.push(&match shape {
            CallShape::Function => json!({
                "type": "function_call_output", "call_id": call_id, "output": tool_output_json(&result.content),
            }),
            CallShape::Custom => json!({
                "type": "custom_tool_call_output", "call_id": call_id, "output": tool_output_json(&result.content),
            }),
            CallShape::Computer => json!({
                "type": "computer_call_output",
                "call_id": call_id,
                "output": { "type": "computer_screenshot", "image_url": first_screenshot(&result.content) },
                "acknowledged_safety_checks": acknowledged_checks(result),
            }),
            CallShape::ApprovalRequest => approval_response_json(result),
            CallShape::Omitted => return,
        });
    }
}

/// A client says which checks it acknowledges; a tool of the server acknowledges all of them by running the call.
fn acknowledged_checks(result: &PromptResult<'_>) -> Value {
    let pending = || result.call.raw.and_then(|raw| non_null_field(raw, "pending_safety_checks"));
    result.acknowledged_checks.map_or_else(|| pending().cloned().unwrap_or_default(), |checks| json!(checks))
}

fn approval_response_json(result: &PromptResult<'_>) -> Value {
    let approve = result.status == ResultStatus::Completed;
    let mut response =
        json!({ "type": "mcp_approval_response", "approval_request_id": result.call.id, "approve": approve });
    if let Some(fields) = response.as_object_mut().filter(|_| !approve) {
        fields.insert("reason".to_owned(), tool_output_json(&result.content));
    }
    response
}

/// The raw item of a call. If a person changed the arguments, it has those that ran, so that the model knows what its
/// result belongs to.
fn with_executed_arguments(mut raw: Value, arguments: &str) -> Value {
    let written = match str_field(&raw, "type") {
        Some("custom_tool_call") => json!({ "input": raw.get("input") }).into(),
        Some("computer_call") => return with_executed_actions(raw, arguments),
        _ => ExactValue::parse(str_field(&raw, "arguments").unwrap_or_default()).unwrap_or_default(),
    };
    let Ok(executed) = ExactValue::parse(arguments) else { return raw };
    let Some(item) = raw.as_object_mut().filter(|_| executed != written) else { return raw };
    let executed = executed.to_value();
    match item.get("type").and_then(Value::as_str) {
        Some("custom_tool_call") => {
            item.extend(executed.get("input").map(|input| ("input".to_owned(), input.clone())));
        }
        _ => drop(item.insert("arguments".to_owned(), arguments.into())),
    }
    raw
}

/// The raw computer call, with the actions that ran if they differ. Earlier versions logged one action as a list.
fn with_executed_actions(mut raw: Value, arguments: &str) -> Value {
    let executed: Value = serde_json::from_str(arguments).unwrap_or_default();
    let has_actions = executed.get("action").is_some() || executed.get("actions").is_some();
    let is_changed = has_actions && hosted_call::computer_actions(&executed) != hosted_call::computer_actions(&raw);
    let Some(item) = raw.as_object_mut().filter(|_| is_changed) else { return raw };
    for field in ["action", "actions"] {
        item.remove(field);
        item.extend(executed.get(field).map(|value| (field.to_owned(), value.clone())));
    }
    raw
}

/// The first image that the service can reach.
fn first_screenshot(content: &[ContentPart]) -> Option<&str> {
    content.iter().find_map(|part| match part {
        ContentPart::ImageUrl { image_url, .. }
            if ImageSource::from_url(&image_url.url) != ImageSource::Unavailable =>
        {
            Some(&*image_url.url)
        }
        _ => None,
    })
}

/// A string, or an array of parts if there is more than text.
fn tool_output_json(content: &[ContentPart]) -> Value {
    let text_of = |part: &ContentPart| match part {
        ContentPart::Text { text, .. } => Some(text.clone()),
        ContentPart::ImageUrl { .. } | ContentPart::File { .. } => None,
    };
    let texts: Option<Vec<String>> = content.iter().map(text_of).collect();
    match texts {
        Some(texts) => texts.join("\n").into(),
        None => content.iter().map(input_part_json).collect(),
    }
}

/// A part that is text.
fn text_part(part: &ContentPart) -> Option<InputText<'_>> {
    match part {
        ContentPart::Text { text, .. } => Some(InputText::new(text)),
        ContentPart::ImageUrl { .. } | ContentPart::File { .. } => None,
    }
}

fn input_part_json(part: &ContentPart) -> Value {
    let text_part = |text: &str| json!({ "type": "input_text", "text": text });
    match part {
        ContentPart::Text { text, .. } => text_part(text),
        ContentPart::ImageUrl { image_url, .. } => match ImageSource::from_url(&image_url.url) {
            ImageSource::Remote(url) | ImageSource::Inline { url, .. } => {
                json!({ "type": "input_image", "detail": image_url.detail_or_auto(), "image_url": url })
            }
            ImageSource::Unavailable => text_part("[image]"),
        },
        ContentPart::File { file } => input_file_json(file).unwrap_or_else(|| text_part(&file_placeholder(file))),
    }
}

/// `None` if the service cannot read the file.
fn input_file_json(file: &FileRef) -> Option<Value> {
    let url = file.url.as_deref()?;
    match ImageSource::from_url(url) {
        ImageSource::Remote(url) => Some(json!({ "type": "input_file", "file_url": url })),
        // The service accepts no images as files.
        ImageSource::Inline { url, media_type, .. } if IMAGE_MEDIA_TYPES.contains(&media_type) => {
            Some(json!({ "type": "input_image", "detail": "auto", "image_url": url }))
        }
        ImageSource::Inline { url, media_type, .. } if is_supported_file_type(media_type) => {
            Some(json!({ "type": "input_file", "filename": file_name_or_default(file), "file_data": url }))
        }
        ImageSource::Inline { .. } | ImageSource::Unavailable => None,
    }
}

/// The service refuses a request that has a file of another type.
fn is_supported_file_type(media_type: &str) -> bool {
    const DOCUMENTS: [&str; 8] = [
        "application/pdf",
        "application/json",
        "application/rtf",
        "application/msword",
        "application/vnd.ms-excel",
        "application/vnd.ms-powerpoint",
        "application/vnd.oasis.opendocument.text",
        "application/xml",
    ];
    const OFFICE: &str = "application/vnd.openxmlformats-officedocument.";
    media_type.starts_with("text/") || media_type.starts_with(OFFICE) || DOCUMENTS.contains(&media_type)
}

/// An assistant message as plain text. It keeps its phase: a service that sent one requires it.
const fn plain_message<'a>(text: &'a str, phase: Option<&'a str>) -> InputMessage<'a, &'a str> {
    InputMessage { phase, ..InputMessage::new("assistant", text) }
}

fn function_call_json(call_id: &str, name: &str, arguments: &str) -> Value {
    let arguments = if arguments.trim().is_empty() { "{}" } else { arguments };
    json!({ "type": "function_call", "call_id": call_id, "name": sanitize_tool_name(name, UNNAMED_TOOL), "arguments": arguments })
}

/// A call of a tool that the service found in a namespace names it.
fn with_namespace(mut call: Value, raw: Option<&Value>) -> Value {
    let namespace = raw.and_then(|raw| str_field(raw, "namespace"));
    if let (Some(call), Some(namespace)) = (call.as_object_mut(), namespace) {
        call.insert("namespace".to_owned(), namespace.into());
    }
    call
}

fn without_id(item: &Value) -> Value {
    let mut item = item.clone();
    if let Some(fields) = item.as_object_mut() {
        fields.remove("id");
    }
    item
}

/// An input item as plain content, without its id; `None` for items that need their group.
pub(super) fn to_plain_item(item: &Value) -> Option<Value> {
    let call_id = str_field(item, "call_id").unwrap_or_default();
    match str_field(item, "type").unwrap_or("message") {
        "message" if str_field(item, "role") == Some("assistant") => {
            let texts: Vec<&str> = match item.get("content") {
                Some(Value::String(text)) => vec![text],
                _ => array_field(item, "content")
                    .iter()
                    .filter_map(|part| str_field(part, "text").or_else(|| str_field(part, "refusal")))
                    .collect(),
            };
            let text = texts.join("\n");
            (!text.trim().is_empty()).then(|| json!(plain_message(&text, str_field(item, "phase"))))
        }
        "function_call" => {
            let field = |key| str_field(item, key).unwrap_or_default();
            Some(with_namespace(function_call_json(call_id, field("name"), field("arguments")), Some(item)))
        }
        "computer_call" => Some(function_call_json(call_id, COMPUTER_TOOL, &hosted_call::computer_arguments(item))),
        "computer_call_output" => {
            let url = item.get("output").and_then(|output| str_field(output, "image_url")).unwrap_or_default();
            let output = json!([{ "type": "input_image", "detail": "auto", "image_url": url }]);
            Some(json!({ "type": "function_call_output", "call_id": call_id, "output": output }))
        }
        "message" | "function_call_output" | "custom_tool_call" | "custom_tool_call_output" => Some(without_id(item)),
        _ => None,
    }
}
