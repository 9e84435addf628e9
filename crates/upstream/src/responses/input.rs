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

use super::hosted;
use super::item::TOO_LONG;
use crate::history::{Told, ToldCall, ToldResult, told};
use crate::json::{list, present, text};
use crate::parts::{Picture, file_name, file_note, summary_note};
use model::block::{ContentPart, FileRef, IMAGE_MEDIA_TYPES};
use model::history::HistoryEntry;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};

/// What a request says that has nothing else to say: the service wants some input.
const NOTHING_SAID: &str = "Go on.";
/// The longest name of a function that the service takes.
const NAME_BYTES_MAX: usize = 64;

/// The history as input items. Never empty; it may end with the model's own words, which the service continues from.
/// `store`: does the service keep what it says, so that an id is enough for reasoning?
pub(super) fn input(history: &[HistoryEntry], origin: &str, store: bool) -> Vec<Value> {
    let told = told(history, origin);
    let pictured = told.iter().filter_map(|told| match told {
        Told::Result(result) => screenshot(&result.content).map(|_| result.call.id),
        _ => None,
    });
    let mut writer = Writer { store, pictured: pictured.collect(), shapes: HashMap::new(), out: Vec::new() };
    let mut rest = told.as_slice();
    while let Some(first) = rest.first() {
        let length = rest.iter().take_while(|told| raw_of(told).is_some()).count();
        let (group, after) = rest.split_at(length.max(1).min(rest.len()));
        rest = after;
        match (length, first) {
            (0, single) => writer.single(single),
            _ => writer.group(group),
        }
    }
    if writer.out.is_empty() {
        writer.out.push(nothing_said());
    }
    writer.out
}

/// The input of a request that has none.
pub(super) fn nothing_said() -> Value {
    message("user", &json!([{ "type": "input_text", "text": NOTHING_SAID }]))
}

/// The item as it came, of something that the model said or did here.
const fn raw_of<'a>(told: &Told<'a>) -> Option<&'a Value> {
    match told {
        Told::Reasoning(raw) | Told::Hosted { raw, .. } => Some(raw),
        Told::Assistant { raw, .. } | Told::Call(ToldCall { raw, .. }) => *raw,
        Told::Summary(_) | Told::System(_) | Told::User(_) | Told::Result(_) => None,
    }
}

/// How a call was told, and so how its result must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Function,
    Custom,
    Computer,
}

/// How a group goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Whole,
    Loose,
    Plain,
}

struct Writer<'a> {
    store: bool,
    /// The calls whose result has a picture.
    pictured: HashSet<&'a str>,
    shapes: HashMap<&'a str, Shape>,
    out: Vec<Value>,
}

impl<'a> Writer<'a> {
    /// Something that stands for itself.
    fn single(&mut self, told: &Told<'a>) {
        match told {
            Told::Summary(summary) => {
                let content = json!([{ "type": "input_text", "text": summary_note(summary) }]);
                self.out.push(message("user", &content));
            }
            // Not `developer`, which means the same here: servers of the same dialect have templates that refuse it.
            Told::System(words) => {
                self.out.push(message("system", &json!([{ "type": "input_text", "text": words }])));
            }
            Told::User(content) => {
                let content: Vec<Value> = content.iter().map(|part| input_part(part)).collect();
                self.out.push(message("user", &content.into()));
            }
            Told::Result(result) => self.result(result),
            Told::Assistant { .. } | Told::Call(_) | Told::Reasoning(_) | Told::Hosted { .. } => {
                self.element(told, Way::Plain);
            }
        }
    }

    fn group(&mut self, group: &[Told<'a>]) {
        let thought = group.iter().any(|told| matches!(told, Told::Reasoning(_)));
        let ends_in_thought = matches!(group.last(), Some(Told::Reasoning(_)));
        let way = match thought {
            false => Way::Loose,
            true if !ends_in_thought && group.iter().all(|told| self.can_go_back(told)) => Way::Whole,
            true => Way::Plain,
        };
        for told in group {
            self.element(told, way);
        }
    }

    /// Does the service take this item as it came?
    fn can_go_back(&self, told: &Told<'a>) -> bool {
        let Some(raw) = raw_of(told).filter(|raw| raw.get(TOO_LONG).is_none()) else { return false };
        let kind = text(raw, "type").unwrap_or_default();
        match told {
            Told::Reasoning(_) => {
                let has_blob = text(raw, "encrypted_content").is_some_and(|blob| !blob.is_empty());
                let is_kept = self.store && text(raw, "id").is_some_and(|id| !id.is_empty());
                kind == "reasoning" && (has_blob || is_kept)
            }
            Told::Assistant { .. } => kind == "message" && !list(raw, "content").is_empty(),
            Told::Hosted { .. } => hosted::kind(kind).is_some_and(hosted::is_given_back),
            Told::Call(call) => {
                let same_id = text(raw, "call_id") == Some(call.id);
                match kind {
                    "function_call" | "custom_tool_call" => same_id && text(raw, "name").is_some_and(is_name),
                    // Its result is a picture of the screen and nothing else.
                    "computer_call" => same_id && self.pictured.contains(call.id),
                    _ => false,
                }
            }
            Told::Summary(_) | Told::System(_) | Told::User(_) | Told::Result(_) => false,
        }
    }

    fn element(&mut self, told: &Told<'a>, way: Way) {
        match told {
            Told::Call(call) => {
                let shape = self.shape(told, call, way);
                self.shapes.insert(call.id, shape);
                self.out.push(match (shape, way, call.raw) {
                    (_, Way::Whole, Some(raw)) | (Shape::Computer, _, Some(raw)) => raw.clone(),
                    (Shape::Custom, _, Some(raw)) => without_id(raw),
                    _ => function_call(call.id, call.name, call.arguments),
                });
            }
            Told::Assistant { text: words, raw } => self.out.push(match (way, raw) {
                (Way::Whole, Some(raw)) => (*raw).clone(),
                _ => plain_message(words, raw.and_then(|raw| text(raw, "phase"))),
            }),
            Told::Reasoning(raw) => self.out.extend((way == Way::Whole).then(|| (*raw).clone())),
            Told::Hosted { raw, .. } => {
                let goes = way != Way::Plain && self.can_go_back(told);
                self.out.extend(goes.then(|| (*raw).clone()));
            }
            Told::Summary(_) | Told::System(_) | Told::User(_) | Told::Result(_) => {}
        }
    }

    fn shape(&self, told: &Told<'a>, call: &ToldCall<'a>, way: Way) -> Shape {
        let kind = call.raw.and_then(|raw| text(raw, "type")).filter(|_| self.can_go_back(told));
        match kind {
            Some("custom_tool_call") => Shape::Custom,
            // It cannot go without its id, and with its id not without what it followed from.
            Some("computer_call") if way != Way::Plain => Shape::Computer,
            _ => Shape::Function,
        }
    }

    fn result(&mut self, result: &ToldResult<'a>) {
        let call_id = result.call.id;
        let shape = self.shapes.get(call_id).copied().unwrap_or(Shape::Function);
        self.out.push(match shape {
            Shape::Function => json!({
                "type": "function_call_output", "call_id": call_id, "output": output(&result.content),
            }),
            Shape::Custom => json!({
                "type": "custom_tool_call_output", "call_id": call_id, "output": output(&result.content),
            }),
            // That the call was carried out says that its checks were taken note of.
            Shape::Computer => json!({
                "type": "computer_call_output",
                "call_id": call_id,
                "output": { "type": "computer_screenshot", "image_url": screenshot(&result.content) },
                "acknowledged_safety_checks": result.call.raw.and_then(|raw| present(raw, "pending_safety_checks")),
            }),
        });
    }
}

/// The first picture that the service can see.
fn screenshot(content: &[ContentPart]) -> Option<&str> {
    content.iter().find_map(|part| match part {
        ContentPart::ImageUrl { image_url, .. } if Picture::at(&image_url.url) != Picture::Hidden => {
            Some(&*image_url.url)
        }
        _ => None,
    })
}

/// What the model reads of a result: a text, or a list where there is more than text.
fn output(content: &[ContentPart]) -> Value {
    let words = |part: &ContentPart| match part {
        ContentPart::Text { text, .. } => Some(text.clone()),
        ContentPart::ImageUrl { .. } | ContentPart::File { .. } => None,
    };
    let texts: Option<Vec<String>> = content.iter().map(words).collect();
    match texts {
        Some(texts) => texts.join("\n").into(),
        None => content.iter().map(input_part).collect(),
    }
}

fn input_part(part: &ContentPart) -> Value {
    let words = |text: &str| json!({ "type": "input_text", "text": text });
    match part {
        ContentPart::Text { text, .. } => words(text),
        ContentPart::ImageUrl { image_url, .. } => match Picture::at(&image_url.url) {
            Picture::Web(url) | Picture::Data { url, .. } => {
                json!({ "type": "input_image", "detail": image_url.detail_or_auto(), "image_url": url })
            }
            Picture::Hidden => words("[image]"),
        },
        ContentPart::File { file } => input_file(file).unwrap_or_else(|| words(&file_note(file))),
    }
}

/// A file that the service can read.
fn input_file(file: &FileRef) -> Option<Value> {
    let url = file.url.as_deref()?;
    match Picture::at(url) {
        Picture::Web(url) => Some(json!({ "type": "input_file", "file_url": url })),
        // The service reads no pictures in files.
        Picture::Data { url, media_type, .. } if IMAGE_MEDIA_TYPES.contains(&media_type) => {
            Some(json!({ "type": "input_image", "detail": "auto", "image_url": url }))
        }
        Picture::Data { url, media_type, .. } if is_read(media_type) => {
            Some(json!({ "type": "input_file", "filename": file_name(file), "file_data": url }))
        }
        Picture::Data { .. } | Picture::Hidden => None,
    }
}

/// Does the service read files of this type? It refuses a request with any other in it.
fn is_read(media_type: &str) -> bool {
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

fn message(role: &str, content: &Value) -> Value {
    json!({ "type": "message", "role": role, "content": content })
}

/// What the model said, as words alone. The phase is no id: a service that gave one wants it back.
fn plain_message(words: &str, phase: Option<&str>) -> Value {
    let mut plain = message("assistant", &words.into());
    if let (Some(phase), Some(fields)) = (phase, plain.as_object_mut()) {
        fields.insert("phase".to_owned(), phase.into());
    }
    plain
}

fn function_call(call_id: &str, name: &str, arguments: &str) -> Value {
    let arguments = if arguments.trim().is_empty() { "{}" } else { arguments };
    json!({ "type": "function_call", "call_id": call_id, "name": taken_name(name), "arguments": arguments })
}

fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(plain)
}

/// A model may ask for a tool by a name that its own service does not take back.
fn taken_name(name: &str) -> String {
    if is_name(name) {
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
pub(super) fn plain(item: &Value) -> Option<Value> {
    let call_id = text(item, "call_id").unwrap_or_default();
    match text(item, "type").unwrap_or("message") {
        "message" if text(item, "role") == Some("assistant") => {
            let words: Vec<&str> = match item.get("content") {
                Some(Value::String(words)) => vec![words],
                _ => list(item, "content")
                    .iter()
                    .filter_map(|part| text(part, "text").or_else(|| text(part, "refusal")))
                    .collect(),
            };
            let words = words.join("\n");
            (!words.trim().is_empty()).then(|| plain_message(&words, text(item, "phase")))
        }
        "function_call" => {
            let said = |key| text(item, key).unwrap_or_default();
            Some(function_call(call_id, said("name"), said("arguments")))
        }
        "computer_call" => Some(function_call(call_id, "computer", &hosted::computer_arguments(item))),
        "computer_call_output" => {
            let url = item.get("output").and_then(|output| text(output, "image_url")).unwrap_or_default();
            let output = json!([{ "type": "input_image", "detail": "auto", "image_url": url }]);
            Some(json!({ "type": "function_call_output", "call_id": call_id, "output": output }))
        }
        "message" | "function_call_output" | "custom_tool_call" | "custom_tool_call_output" => Some(without_id(item)),
        _ => None,
    }
}
