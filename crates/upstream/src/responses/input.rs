//! The history, as the service takes it.
//!
//! With ids present the service looks items up and enforces the chain reasoning → message or call: it refuses a message
//! whose reasoning is missing, reasoning whose message is missing, and reasoning without its blob. Without ids it takes
//! items as plain content. So items of one answer that came from here go back as a group, in one of three ways:
//!
//! - *whole*: with reasoning, as they came, if nothing of the group is missing;
//! - *loose*: no reasoning was there, so nothing is enforced: words and calls without ids, the rest as it came;
//! - *plain*: something is missing: words and calls without ids, and nothing else.
//!
//! What came from elsewhere, or was cut short, has no raw item and is always plain.

use super::hosted_call;
use super::item_builder::TOMBSTONE_KEY;
use crate::content_parts::{ImageSource, file_name_or_default, file_placeholder, summary_text};
use crate::history::{PromptCall, PromptItem, PromptResult, normalize_history};
use crate::json::{array_field, non_null_field, str_field};
use model::content::{ContentPart, FileRef, IMAGE_MEDIA_TYPES};
use model::history::HistoryEntry;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};

/// What a request says that has nothing else to say: the service wants some input.
const PLACEHOLDER_INPUT: &str = "Go on.";
/// The longest name of a function that the service takes.
const NAME_BYTES_MAX: usize = 64;

/// The history as input items. Never empty; it may end with the model's own words, which the service continues from.
/// `store`: does the service keep what it says, so that an id is enough for reasoning?
pub(super) fn build_input(history: &[HistoryEntry], origin: &str, store: bool) -> Vec<Value> {
    let told = normalize_history(history, origin);
    let pictured = told.iter().filter_map(|told| match told {
        PromptItem::Result(result) => first_screenshot(&result.content).map(|_| result.call.id),
        _ => None,
    });
    let mut writer =
        InputWriter { store, calls_with_screenshot: pictured.collect(), call_shapes: HashMap::new(), out: Vec::new() };
    let mut rest = told.as_slice();
    while let Some(first) = rest.first() {
        let length = rest.iter().take_while(|told| raw_item_of(told).is_some()).count();
        let (group, after) = rest.split_at(length.max(1).min(rest.len()));
        rest = after;
        match (length, first) {
            (0, single) => writer.write_single(single),
            _ => writer.write_group(group),
        }
    }
    if writer.out.is_empty() {
        writer.out.push(placeholder_input());
    }
    writer.out
}

/// The input of a request that has none.
pub(super) fn placeholder_input() -> Value {
    message_json("user", &json!([{ "type": "input_text", "text": PLACEHOLDER_INPUT }]))
}

/// The item as it came, of something that the model said or did here.
const fn raw_item_of<'a>(told: &PromptItem<'a>) -> Option<&'a Value> {
    match told {
        PromptItem::Reasoning(raw) | PromptItem::Hosted { raw, .. } => Some(raw),
        PromptItem::Assistant { raw, .. } | PromptItem::Call(PromptCall { raw, .. }) => *raw,
        PromptItem::Summary(_) | PromptItem::System(_) | PromptItem::User(_) | PromptItem::Result(_) => None,
    }
}

/// How a call was told, and so how its result must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallShape {
    Function,
    Custom,
    Computer,
}

/// How a group goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResendMode {
    Verbatim,
    WithoutIds,
    PlainContent,
}

struct InputWriter<'a> {
    store: bool,
    /// The calls whose result has a picture.
    calls_with_screenshot: HashSet<&'a str>,
    call_shapes: HashMap<&'a str, CallShape>,
    out: Vec<Value>,
}

impl<'a> InputWriter<'a> {
    /// Something that stands for itself.
    fn write_single(&mut self, told: &PromptItem<'a>) {
        match told {
            PromptItem::Summary(summary) => {
                let content = json!([{ "type": "input_text", "text": summary_text(summary) }]);
                self.out.push(message_json("user", &content));
            }
            // Not `developer`, which means the same here: servers of the same dialect have templates that refuse it.
            PromptItem::System(words) => {
                self.out.push(message_json("system", &json!([{ "type": "input_text", "text": words }])));
            }
            PromptItem::User(content) => {
                let content: Vec<Value> = content.iter().map(|part| input_part_json(part)).collect();
                self.out.push(message_json("user", &content.into()));
            }
            PromptItem::Result(result) => self.write_result(result),
            PromptItem::Assistant { .. }
            | PromptItem::Call(_)
            | PromptItem::Reasoning(_)
            | PromptItem::Hosted { .. } => {
                self.write_item(told, ResendMode::PlainContent);
            }
        }
    }

    fn write_group(&mut self, group: &[PromptItem<'a>]) {
        let thought = group.iter().any(|told| matches!(told, PromptItem::Reasoning(_)));
        let ends_in_thought = matches!(group.last(), Some(PromptItem::Reasoning(_)));
        let way = match thought {
            false => ResendMode::WithoutIds,
            true if !ends_in_thought && group.iter().all(|told| self.is_resendable(told)) => ResendMode::Verbatim,
            true => ResendMode::PlainContent,
        };
        for told in group {
            self.write_item(told, way);
        }
    }

    /// Does the service take this item as it came?
    fn is_resendable(&self, told: &PromptItem<'a>) -> bool {
        let Some(raw) = raw_item_of(told).filter(|raw| raw.get(TOMBSTONE_KEY).is_none()) else { return false };
        let kind = str_field(raw, "type").unwrap_or_default();
        match told {
            PromptItem::Reasoning(_) => {
                let has_blob = str_field(raw, "encrypted_content").is_some_and(|blob| !blob.is_empty());
                let is_kept = self.store && str_field(raw, "id").is_some_and(|id| !id.is_empty());
                kind == "reasoning" && (has_blob || is_kept)
            }
            PromptItem::Assistant { .. } => kind == "message" && !array_field(raw, "content").is_empty(),
            PromptItem::Hosted { .. } => hosted_call::hosted_item_type(kind).is_some_and(hosted_call::is_resendable),
            PromptItem::Call(call) => {
                let same_id = str_field(raw, "call_id") == Some(call.id);
                match kind {
                    "function_call" | "custom_tool_call" => {
                        same_id && str_field(raw, "name").is_some_and(is_valid_tool_name)
                    }
                    // Its result is a picture of the screen and nothing else.
                    "computer_call" => same_id && self.calls_with_screenshot.contains(call.id),
                    _ => false,
                }
            }
            PromptItem::Summary(_) | PromptItem::System(_) | PromptItem::User(_) | PromptItem::Result(_) => false,
        }
    }

    fn write_item(&mut self, told: &PromptItem<'a>, way: ResendMode) {
        match told {
            PromptItem::Call(call) => {
                let shape = self.call_shape(told, call, way);
                self.call_shapes.insert(call.id, shape);
                self.out.push(match (shape, way, call.raw) {
                    (_, ResendMode::Verbatim, Some(raw)) | (CallShape::Computer, _, Some(raw)) => raw.clone(),
                    (CallShape::Custom, _, Some(raw)) => without_id(raw),
                    _ => function_call_json(call.id, call.name, call.arguments),
                });
            }
            PromptItem::Assistant { text: words, raw } => self.out.push(match (way, raw) {
                (ResendMode::Verbatim, Some(raw)) => (*raw).clone(),
                _ => plain_message_json(words, raw.and_then(|raw| str_field(raw, "phase"))),
            }),
            PromptItem::Reasoning(raw) => self.out.extend((way == ResendMode::Verbatim).then(|| (*raw).clone())),
            PromptItem::Hosted { raw, .. } => {
                let goes = way != ResendMode::PlainContent && self.is_resendable(told);
                self.out.extend(goes.then(|| (*raw).clone()));
            }
            PromptItem::Summary(_) | PromptItem::System(_) | PromptItem::User(_) | PromptItem::Result(_) => {}
        }
    }

    fn call_shape(&self, told: &PromptItem<'a>, call: &PromptCall<'a>, way: ResendMode) -> CallShape {
        let kind = call.raw.and_then(|raw| str_field(raw, "type")).filter(|_| self.is_resendable(told));
        match kind {
            Some("custom_tool_call") => CallShape::Custom,
            // It cannot go without its id, and with its id not without what it followed from.
            Some("computer_call") if way != ResendMode::PlainContent => CallShape::Computer,
            _ => CallShape::Function,
        }
    }

    fn write_result(&mut self, result: &PromptResult<'a>) {
        let call_id = result.call.id;
        let shape = self.call_shapes.get(call_id).copied().unwrap_or(CallShape::Function);
        self.out.push(match shape {
            CallShape::Function => json!({
                "type": "function_call_output", "call_id": call_id, "output": tool_output_json(&result.content),
            }),
            CallShape::Custom => json!({
                "type": "custom_tool_call_output", "call_id": call_id, "output": tool_output_json(&result.content),
            }),
            // That the call was carried out says that its checks were taken note of.
            CallShape::Computer => json!({
                "type": "computer_call_output",
                "call_id": call_id,
                "output": { "type": "computer_screenshot", "image_url": first_screenshot(&result.content) },
                "acknowledged_safety_checks": result.call.raw.and_then(|raw| non_null_field(raw, "pending_safety_checks")),
            }),
        });
    }
}

/// The first picture that the service can see.
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

/// What the model reads of a result: a text, or a list where there is more than text.
fn tool_output_json(content: &[ContentPart]) -> Value {
    let words = |part: &ContentPart| match part {
        ContentPart::Text { text, .. } => Some(text.clone()),
        ContentPart::ImageUrl { .. } | ContentPart::File { .. } => None,
    };
    let texts: Option<Vec<String>> = content.iter().map(words).collect();
    match texts {
        Some(texts) => texts.join("\n").into(),
        None => content.iter().map(input_part_json).collect(),
    }
}

fn input_part_json(part: &ContentPart) -> Value {
    let words = |text: &str| json!({ "type": "input_text", "text": text });
    match part {
        ContentPart::Text { text, .. } => words(text),
        ContentPart::ImageUrl { image_url, .. } => match ImageSource::from_url(&image_url.url) {
            ImageSource::Remote(url) | ImageSource::Inline { url, .. } => {
                json!({ "type": "input_image", "detail": image_url.detail_or_auto(), "image_url": url })
            }
            ImageSource::Unavailable => words("[image]"),
        },
        ContentPart::File { file } => input_file_json(file).unwrap_or_else(|| words(&file_placeholder(file))),
    }
}

/// A file that the service can read.
fn input_file_json(file: &FileRef) -> Option<Value> {
    let url = file.url.as_deref()?;
    match ImageSource::from_url(url) {
        ImageSource::Remote(url) => Some(json!({ "type": "input_file", "file_url": url })),
        // The service reads no pictures in files.
        ImageSource::Inline { url, media_type, .. } if IMAGE_MEDIA_TYPES.contains(&media_type) => {
            Some(json!({ "type": "input_image", "detail": "auto", "image_url": url }))
        }
        ImageSource::Inline { url, media_type, .. } if is_supported_file_type(media_type) => {
            Some(json!({ "type": "input_file", "filename": file_name_or_default(file), "file_data": url }))
        }
        ImageSource::Inline { .. } | ImageSource::Unavailable => None,
    }
}

/// Does the service read files of this type? It refuses a request with any other in it.
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

fn message_json(role: &str, content: &Value) -> Value {
    json!({ "type": "message", "role": role, "content": content })
}

/// What the model said, as words alone. The phase is no id: a service that gave one wants it back.
fn plain_message_json(words: &str, phase: Option<&str>) -> Value {
    let mut plain = message_json("assistant", &words.into());
    if let (Some(phase), Some(fields)) = (phase, plain.as_object_mut()) {
        fields.insert("phase".to_owned(), phase.into());
    }
    plain
}

fn function_call_json(call_id: &str, name: &str, arguments: &str) -> Value {
    let arguments = if arguments.trim().is_empty() { "{}" } else { arguments };
    json!({ "type": "function_call", "call_id": call_id, "name": sanitize_tool_name(name), "arguments": arguments })
}

fn is_valid_tool_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(plain)
}

/// A model may ask for a tool by a name that its own service does not take back.
fn sanitize_tool_name(name: &str) -> String {
    if is_valid_tool_name(name) {
        return name.to_owned();
    }
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    let taken: String = name.chars().map(plain).take(NAME_BYTES_MAX).collect();
    if taken.is_empty() { "unknown".to_owned() } else { taken }
}

fn without_id(item: &Value) -> Value {
    let mut item = item.clone();
    if let Some(fields) = item.as_object_mut() {
        fields.remove("id");
    }
    item
}

/// An input item as plain content: no id, no reasoning, nothing that only a group makes sense of.
pub(super) fn to_plain_item(item: &Value) -> Option<Value> {
    let call_id = str_field(item, "call_id").unwrap_or_default();
    match str_field(item, "type").unwrap_or("message") {
        "message" if str_field(item, "role") == Some("assistant") => {
            let words: Vec<&str> = match item.get("content") {
                Some(Value::String(words)) => vec![words],
                _ => array_field(item, "content")
                    .iter()
                    .filter_map(|part| str_field(part, "text").or_else(|| str_field(part, "refusal")))
                    .collect(),
            };
            let words = words.join("\n");
            (!words.trim().is_empty()).then(|| plain_message_json(&words, str_field(item, "phase")))
        }
        "function_call" => {
            let said = |key| str_field(item, key).unwrap_or_default();
            Some(function_call_json(call_id, said("name"), said("arguments")))
        }
        "computer_call" => Some(function_call_json(call_id, "computer", &hosted_call::computer_arguments(item))),
        "computer_call_output" => {
            let url = item.get("output").and_then(|output| str_field(output, "image_url")).unwrap_or_default();
            let output = json!([{ "type": "input_image", "detail": "auto", "image_url": url }]);
            Some(json!({ "type": "function_call_output", "call_id": call_id, "output": output }))
        }
        "message" | "function_call_output" | "custom_tool_call" | "custom_tool_call_output" => Some(without_id(item)),
        _ => None,
    }
}
