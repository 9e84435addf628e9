//! Builds the request body, in the form that the strictest service accepts:
//!
//! - Roles alternate. Consecutive user messages are one message, and so is everything that the model produced in a step, its
//!   calls included. A history that begins or ends with the assistant gets a user message before or after it: some
//!   services refuse the one, some the other, and some would continue the last sentence.
//! - Content is a string where possible: not every service accepts arrays of parts.
//! - There is one system message, and it comes first; it includes the system messages of the conversation.
//! - Results directly follow their calls, in order and as text; images and files in them follow in a user message.
//! - Arguments are always an object, because some services parse them; anything else is wrapped in one.
//! - A call of another origin gets an id of nine letters and digits, because Mistral accepts no other.
//! - Reasoning goes back only to its origin, and only in fields that some service requires: `reasoning_content` (DeepSeek
//!   and Moonshot refuse a history without it), `reasoning_details` (OpenRouter) and a call's `extra_content` (Gemini).
//!   Services that send none of these get none: Groq refuses unknown fields.
//! - An option that is `null` removes its field, for example `stream_options` where a service refuses it.

use super::reasoning::ReasoningDetails;
use super::settings;
use crate::content_parts::{ImageSource, file_name_or_default, file_placeholder, summary_text};
use crate::history::{PromptCall, PromptItem, PromptResult, normalize_history};
use crate::request_list::{ListText, RequestList};
use crate::settings::combined_instructions;
use crate::tool_name::sanitize_tool_name;
use crate::written_history::{self, HistorySegment, SegmentWriter, write_history};
use crate::{RequestTarget, json, options};
use model::content::{ContentPart, FileRef, IMAGE_MEDIA_TYPES};
use model::definition::ToolSpec;
use model::history::HistoryEntry;
use model::json::JsonObject;
use model::model_turn::ModelRequest;
use serde::Serialize;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The name of a tool that the model called without one.
const UNNAMED_TOOL: &str = "unknown";
/// Stands in for a user message where a service requires one.
const CONTINUE_PROMPT: &str = "Continue.";
/// Holds arguments that are not an object.
const INVALID_ARGUMENTS_KEY: &str = "_invalid";
/// Length of the id of a call of another origin.
const CALL_ID_CHARS: usize = 9;
const CALL_ID_ALPHABET: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

const MESSAGES_FIELD: &str = "messages";

/// The request for a turn.
pub fn build_request(turn: &ModelRequest, target: &RequestTarget<'_>) -> Value {
    let (mut fields, mut messages) = (build_fields(turn, target), Vec::new());
    let history = HistorySegment::whole(turn.history.entries());
    push_system(turn, history, &mut messages);
    push_messages(history, target.origin, &mut messages);
    fields.insert(MESSAGES_FIELD.to_owned(), messages.into());
    Value::Object(fields)
}

/// The text of [`build_request`].
pub fn write_request(turn: &ModelRequest, target: &RequestTarget<'_>) -> Vec<u8> {
    let history = write_history(&turn.history, &ChatSegments { origin: target.origin });
    let mut system = ListText::default();
    // A text that was kept has no system messages.
    let entries = turn.history.entries().get(history.past_count()..).unwrap_or_default();
    push_system(turn, HistorySegment::whole(entries), &mut system);
    let body = history.write_body(MESSAGES_FIELD, &system, &build_fields(turn, target));
    history.keep_past(&turn.history);
    body
}

/// The entries whose text no earlier request of the thread has left for this one.
pub fn unwritten_entries<'a>(turn: &'a ModelRequest, target: &RequestTarget<'_>) -> &'a [Arc<HistoryEntry>] {
    written_history::unwritten_entries(&turn.history, &ChatSegments { origin: target.origin })
}

struct ChatSegments<'a> {
    origin: &'a str,
}

impl SegmentWriter for ChatSegments<'_> {
    fn origin(&self) -> &str {
        self.origin
    }

    fn format(&self) -> String {
        format!("chat {}", self.origin)
    }

    fn write_segment(&self, segment: HistorySegment<'_>, out: &mut ListText) -> Vec<String> {
        push_messages(segment, self.origin, out)
    }
}

/// All but the messages.
fn build_fields(turn: &ModelRequest, target: &RequestTarget<'_>) -> JsonObject {
    let mut body = JsonObject::new();
    body.insert("model".to_owned(), target.model.into());
    body.insert("stream".to_owned(), true.into());
    body.insert("stream_options".to_owned(), json!({ "include_usage": true }));
    let tools: Vec<Value> = turn.tools.iter().map(tool_json).collect();
    if !tools.is_empty() {
        body.insert("tools".to_owned(), tools.into());
    }
    settings::apply_settings(&mut body, turn, target.model);
    options::merge_options(&mut body, &turn.provider_options, &[]);
    body.retain(|_, value| !value.is_null());
    body
}

/// Pushes the system message, if there is one.
fn push_system(turn: &ModelRequest, history: HistorySegment<'_>, messages: &mut impl RequestList) {
    let instructions = combined_instructions(turn);
    let system = history.iter().filter_map(|entry| match entry {
        HistoryEntry::System { text } => Some(text.as_str()).filter(|text| !text.trim().is_empty()),
        _ => None,
    });
    let system = std::iter::once(instructions.as_str()).filter(|text| !text.is_empty()).chain(system);
    let system: Vec<&str> = system.collect();
    if !system.is_empty() {
        messages.push(&TextMessage { content: &system.join("\n\n"), role: "system" });
    }
}

/// Pushes the messages of a segment, and returns the ids of its calls.
fn push_messages(history: HistorySegment<'_>, origin: &str, messages: &mut impl RequestList) -> Vec<String> {
    let items = normalize_history(history.iter(), origin);
    let WireCallIds { ids, used } = wire_call_ids(&items);
    let mut builder = ChatMessagesBuilder::new(ids, messages);
    // Another segment begins with a message of the user, after one of the assistant.
    builder.last_role = (!history.is_first).then_some("assistant");
    for item in &items {
        builder.push_item(item);
    }
    builder.finish(history);
    used.into_iter().collect()
}

/// The same request without reasoning and its signatures. To be tried once after `history_refused`.
pub fn without_reasoning(mut body: Value) -> Value {
    let messages = body.get_mut("messages").and_then(Value::as_array_mut);
    for message in messages.into_iter().flatten().filter_map(Value::as_object_mut) {
        message.remove("reasoning_content");
        message.remove("reasoning_details");
        let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
        for call in calls.into_iter().flatten().filter_map(Value::as_object_mut) {
            call.remove("extra_content");
        }
    }
    body
}

fn tool_json(tool: &ToolSpec) -> Value {
    let mut parameters = tool.parameters.as_object().cloned().unwrap_or_default();
    parameters.entry("type").or_insert_with(|| "object".into());
    parameters.entry("properties").or_insert_with(|| json!({}));
    json!({ "type": "function", "function": {
        "name": tool.name, "description": tool.description, "parameters": parameters,
    }})
}

/// A message whose members are in alphabetical order, as those of a value are.
#[derive(Serialize)]
struct TextMessage<'a> {
    content: &'a str,
    role: &'static str,
}

#[derive(Serialize)]
struct PartsMessage {
    content: Vec<Value>,
    role: &'static str,
}

#[derive(Serialize)]
struct AssistantMessage<'a> {
    content: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "str::is_empty")]
    reasoning_content: &'a str,
    #[serde(skip_serializing_if = "<[Value]>::is_empty")]
    reasoning_details: &'a [Value],
    role: &'static str,
    #[serde(skip_serializing_if = "<[Value]>::is_empty")]
    tool_calls: &'a [Value],
}

/// The complete messages, then a pending user message, then a pending assistant message.
struct ChatMessagesBuilder<'a, L> {
    call_ids: HashMap<&'a str, String>,
    messages: &'a mut L,
    /// Of the last complete message.
    last_role: Option<&'static str>,
    pending_user: Vec<UserPart<'a>>,
    pending_texts: Vec<&'a str>,
    pending_calls: Vec<Value>,
    pending_reasoning: String,
    pending_details: ReasoningDetails,
}

enum UserPart<'a> {
    Text(Cow<'a, str>),
    Image(Value),
    File(Value),
}

impl<'a, L: RequestList> ChatMessagesBuilder<'a, L> {
    fn new(call_ids: HashMap<&'a str, String>, messages: &'a mut L) -> Self {
        Self {
            call_ids,
            messages,
            last_role: None,
            pending_user: Vec::new(),
            pending_texts: Vec::new(),
            pending_calls: Vec::new(),
            pending_reasoning: String::new(),
            pending_details: ReasoningDetails::default(),
        }
    }

    fn push_item(&mut self, item: &'a PromptItem<'a>) {
        match item {
            PromptItem::Summary(text) => {
                self.flush_assistant();
                self.pending_user.push(UserPart::Text(summary_text(text).into()));
            }
            // The first message has it.
            PromptItem::System(_) => {}
            PromptItem::User(parts) => {
                self.flush_assistant();
                self.pending_user.extend(user_parts(parts.iter().map(AsRef::as_ref)));
            }
            PromptItem::Reasoning(raw) => {
                self.pending_reasoning.push_str(json::str_field(raw, "reasoning_content").unwrap_or_default());
                json::array_field(raw, "reasoning_details")
                    .iter()
                    .cloned()
                    .for_each(|detail| self.pending_details.push(detail));
            }
            PromptItem::Assistant { text, .. } => self.pending_texts.push(text),
            PromptItem::Call(call) => {
                let call = self.tool_call_json(call);
                self.pending_calls.push(call);
            }
            PromptItem::Result(result) => self.push_result(result),
            // The dialect has no hosted calls, so no raw item of one can have this origin.
            PromptItem::Hosted { .. } => {}
        }
    }

    fn wire_call_id(&self, call: &PromptCall<'a>) -> String {
        self.call_ids.get(call.id).cloned().unwrap_or_else(|| call.id.to_owned())
    }

    fn tool_call_json(&self, call: &PromptCall<'a>) -> Value {
        let function =
            json!({ "name": sanitize_tool_name(call.name, UNNAMED_TOOL), "arguments": arguments_json(call.arguments) });
        let mut tool_call = json!({ "id": self.wire_call_id(call), "type": "function", "function": function });
        let extra = call.raw.and_then(|raw| json::non_null_field(raw, "extra_content"));
        if let (Some(extra), Some(fields)) = (extra, tool_call.as_object_mut()) {
            fields.insert("extra_content".to_owned(), extra.clone());
        }
        tool_call
    }

    fn push_result(&mut self, result: &'a PromptResult<'a>) {
        self.flush_assistant();
        let mut lines: Vec<Cow<'a, str>> = Vec::new();
        let mut attachments: Vec<UserPart<'a>> = Vec::new();
        for part in user_parts(&result.content) {
            match part {
                UserPart::Text(text) => lines.push(text),
                UserPart::Image(part) => {
                    lines.push("[image]".into());
                    attachments.push(UserPart::Image(part));
                }
                UserPart::File(part) => {
                    lines.push("[file]".into());
                    attachments.push(UserPart::File(part));
                }
            }
        }
        let (id, name) = (self.wire_call_id(&result.call), sanitize_tool_name(result.call.name, UNNAMED_TOOL));
        self.push_message("tool", &json!({ "role": "tool", "tool_call_id": id, "content": lines.join("\n") }));
        if !attachments.is_empty() {
            self.pending_user.push(UserPart::Text(format!("What {name} gave beside its text:").into()));
            self.pending_user.append(&mut attachments);
        }
    }

    /// The first message is the user's.
    fn push_message(&mut self, role: &'static str, message: &impl Serialize) {
        if self.last_role.is_none() && role != "user" {
            self.messages.push(&TextMessage { content: CONTINUE_PROMPT, role: "user" });
        }
        self.messages.push(message);
        self.last_role = Some(role);
    }

    /// Reasoning alone makes no message.
    fn flush_assistant(&mut self) {
        let (texts, calls) = (std::mem::take(&mut self.pending_texts), std::mem::take(&mut self.pending_calls));
        let (reasoning, details) =
            (std::mem::take(&mut self.pending_reasoning), std::mem::take(&mut self.pending_details));
        if texts.is_empty() && calls.is_empty() {
            return;
        }
        self.flush_user();
        let message = AssistantMessage {
            content: (!texts.is_empty()).then(|| join_texts(&texts)),
            reasoning_content: &reasoning,
            reasoning_details: &details.blocks,
            role: "assistant",
            tool_calls: &calls,
        };
        self.push_message("assistant", &message);
    }

    fn flush_user(&mut self) {
        let parts = std::mem::take(&mut self.pending_user);
        if parts.is_empty() {
            return;
        }
        let texts: Option<Vec<&str>> = parts.iter().map(UserPart::as_text).collect();
        match texts {
            Some(texts) => self.push_message("user", &TextMessage { content: &join_texts(&texts), role: "user" }),
            None => {
                let content = parts.into_iter().map(UserPart::into_part).collect();
                self.push_message("user", &PartsMessage { content, role: "user" });
            }
        }
    }

    fn finish(mut self, history: HistorySegment<'_>) {
        self.flush_assistant();
        self.flush_user();
        if history.is_last && self.last_role.is_none_or(|role| role == "assistant") {
            self.messages.push(&TextMessage { content: CONTINUE_PROMPT, role: "user" });
        }
    }
}

/// Most messages are one text, which is not copied.
fn join_texts<'a>(texts: &[&'a str]) -> Cow<'a, str> {
    match texts {
        [text] => Cow::Borrowed(text),
        texts => texts.join("\n\n").into(),
    }
}

impl UserPart<'_> {
    fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Image(_) | Self::File(_) => None,
        }
    }

    fn into_part(self) -> Value {
        match self {
            Self::Text(text) => json!({ "type": "text", "text": text }),
            Self::Image(part) | Self::File(part) => part,
        }
    }
}

/// Joins adjacent texts.
fn user_parts<'a>(parts: impl IntoIterator<Item = &'a ContentPart>) -> Vec<UserPart<'a>> {
    let mut user_parts: Vec<UserPart<'a>> = Vec::new();
    for part in parts {
        match (user_parts.last_mut(), user_part(part)) {
            (Some(UserPart::Text(text)), UserPart::Text(more)) => {
                let text = text.to_mut();
                text.push('\n');
                text.push_str(&more);
            }
            (_, part) => user_parts.push(part),
        }
    }
    user_parts
}

fn user_part(part: &ContentPart) -> UserPart<'_> {
    match part {
        ContentPart::Text { text, .. } => UserPart::Text(text.as_str().into()),
        ContentPart::ImageUrl { image_url, .. } => match ImageSource::from_url(&image_url.url) {
            ImageSource::Remote(url) | ImageSource::Inline { url, .. } => {
                let mut image = json!({ "url": url });
                // Only if it was set: not every service knows the field.
                if let (Some(detail), Some(fields)) = (image_url.detail, image.as_object_mut()) {
                    fields.insert("detail".to_owned(), detail.as_str().into());
                }
                UserPart::Image(json!({ "type": "image_url", "image_url": image }))
            }
            ImageSource::Unavailable => UserPart::Text(image_url.placeholder().into()),
        },
        ContentPart::File { file } => file_user_part(file),
    }
}

/// Only inline PDFs and images can be sent: services of this dialect fetch no files.
fn file_user_part(file: &FileRef) -> UserPart<'_> {
    match file.url.as_deref().map(ImageSource::from_url) {
        Some(ImageSource::Inline { url, media_type, .. }) if IMAGE_MEDIA_TYPES.contains(&media_type) => {
            UserPart::Image(json!({ "type": "image_url", "image_url": { "url": url } }))
        }
        Some(ImageSource::Inline { url, media_type: "application/pdf", .. }) => {
            let file = json!({ "filename": file_name_or_default(file), "file_data": url });
            UserPart::File(json!({ "type": "file", "file": file }))
        }
        _ => UserPart::Text(file_placeholder(file).into()),
    }
}

fn arguments_json(text: &str) -> String {
    match text.trim() {
        "" | "null" => "{}".to_owned(),
        _ if json::is_json_object(text) => text.to_owned(),
        _ => json!({ INVALID_ARGUMENTS_KEY: text }).to_string(),
    }
}

struct WireCallIds<'a> {
    /// Ids for calls of other origins; the same in every request of a conversation.
    ids: HashMap<&'a str, String>,
    /// The ids of all calls.
    used: HashSet<String>,
}

fn wire_call_ids<'a>(history: &[PromptItem<'a>]) -> WireCallIds<'a> {
    let calls = || history.iter().filter_map(|item| if let PromptItem::Call(call) = item { Some(call) } else { None });
    let is_native = |call: &&PromptCall<'a>| call.raw.and_then(|raw| json::str_field(raw, "id")) == Some(call.id);
    let mut used: HashSet<String> = calls().filter(is_native).map(|call| call.id.to_owned()).collect();
    let mut ids = HashMap::new();
    for call in calls().filter(|call| !is_native(call)) {
        let id = (0..).map(|salt| short_call_id(call.id, salt)).find(|id| used.insert(id.clone()));
        ids.insert(call.id, id.unwrap_or_default());
    }
    WireCallIds { ids, used }
}

/// An FNV-1a hash of the id, in base 62.
fn short_call_id(id: &str, salt: u64) -> String {
    let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let mut rest = id.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325 ^ salt, hash);
    let mut short_id = String::with_capacity(CALL_ID_CHARS);
    while short_id.len() < CALL_ID_CHARS {
        let digit = usize::try_from(rest % 62).unwrap_or_default();
        short_id.extend(CALL_ID_ALPHABET.get(digit).map(|byte| char::from(*byte)));
        rest /= 62;
    }
    short_id
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
