//! A turn's history as the body of a request, in the form that the strictest service takes:
//!
//! - Roles alternate. What people say one after the other is one message; so is all that the model said in a step, its
//!   calls included. A history that begins or ends with the model's words gets a word of ours before or after it: some
//!   services refuse the one, some the other, and some would go on in the middle of the last sentence.
//! - Content is a text where a text will do: not everybody reads lists of parts.
//! - There is one system message, and it is the first: what a client's operator said on the way stands in it, too.
//! - Results follow their calls at once and in order, as texts; pictures and files in them follow in a user's message.
//! - Arguments are always an object, because some services read them: what the model said instead is put into one.
//! - A call from elsewhere has a name of nine letters and digits, because Mistral takes no other.
//! - Thoughts go back only to where they came from, and only in the fields in which somebody asks for them:
//!   `reasoning_content` (DeepSeek and Moonshot refuse a history without it), `reasoning_details` (OpenRouter) and a
//!   call's `extra_content` (Gemini). Who sends none of these gets none: Groq refuses fields that it does not know.
//! - An option that is `null` takes its field out of the body: so `stream_options` need not go where it is refused.

use super::reasoning::ReasoningDetails;
use super::settings;
use super::tool_calls::is_json_object;
use crate::content_parts::{ImageSource, file_name_or_default, file_placeholder, summary_text};
use crate::history::{PromptCall, PromptItem, PromptResult, normalize_history};
use crate::settings::combined_instructions;
use crate::{RequestTarget, json, options};
use model::content::{ContentPart, FileRef, IMAGE_MEDIA_TYPES};
use model::definition::ToolSpec;
use model::json::JsonObject;
use model::model_turn::ModelRequest;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};

/// What is said for a person where a service wants a person to speak.
const CONTINUE_PROMPT: &str = "Continue.";
/// How the key is called under which arguments stand that are no object.
const INVALID_ARGUMENTS_KEY: &str = "_invalid";
/// How long a tool's name may be.
const NAME_BYTES_MAX: usize = 64;
/// How long the name of a call is that came from elsewhere, and of what it is made.
const CALL_ID_CHARS: usize = 9;
const CALL_ID_ALPHABET: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// The body that asks for a turn.
#[must_use]
pub fn build_request(turn: &ModelRequest, target: &RequestTarget<'_>) -> Value {
    let history = normalize_history(&turn.history, target.origin);
    let mut script = ChatMessagesBuilder { call_ids: wire_call_ids(&history), ..ChatMessagesBuilder::default() };
    for told in &history {
        script.push_item(told);
    }
    let mut body = JsonObject::new();
    body.insert("model".to_owned(), target.model.into());
    body.insert("messages".to_owned(), script.into_messages(&combined_instructions(turn)).into());
    body.insert("stream".to_owned(), true.into());
    body.insert("stream_options".to_owned(), json!({ "include_usage": true }));
    let tools: Vec<Value> = turn.tools.iter().map(tool_json).collect();
    if !tools.is_empty() {
        body.insert("tools".to_owned(), tools.into());
    }
    settings::apply_settings(&mut body, turn, target.model);
    options::merge_options(&mut body, &turn.provider_options, &[]);
    body.retain(|_, value| !value.is_null());
    Value::Object(body)
}

/// The same request without anything that the service itself had said and now refuses.
#[must_use]
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

/// The messages so far, and the two that are not whole: a person's, and after it the model's.
#[derive(Default)]
struct ChatMessagesBuilder<'a> {
    call_ids: HashMap<&'a str, String>,
    system: Vec<&'a str>,
    messages: Vec<Value>,
    pending_user: Vec<UserPart>,
    pending_texts: Vec<&'a str>,
    pending_calls: Vec<Value>,
    pending_reasoning: String,
    pending_details: ReasoningDetails,
}

/// One piece of what a person says.
enum UserPart {
    Text(String),
    Image(Value),
    File(Value),
}

impl<'a> ChatMessagesBuilder<'a> {
    fn push_item(&mut self, told: &PromptItem<'a>) {
        match told {
            PromptItem::Summary(text) => {
                self.flush_assistant();
                self.pending_user.push(UserPart::Text(summary_text(text)));
            }
            PromptItem::System(text) => self.system.push(text),
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
            // This dialect has no such items: nothing of this kind came from here.
            PromptItem::Hosted { .. } => {}
        }
    }

    /// The name of a call in this request.
    fn wire_call_id(&self, call: &PromptCall<'a>) -> String {
        self.call_ids.get(call.id).cloned().unwrap_or_else(|| call.id.to_owned())
    }

    fn tool_call_json(&self, call: &PromptCall<'a>) -> Value {
        let function = json!({ "name": sanitize_tool_name(call.name), "arguments": arguments_json(call.arguments) });
        let mut told = json!({ "id": self.wire_call_id(call), "type": "function", "function": function });
        let extra = call.raw.and_then(|raw| json::non_null_field(raw, "extra_content"));
        if let (Some(extra), Some(told)) = (extra, told.as_object_mut()) {
            told.insert("extra_content".to_owned(), extra.clone());
        }
        told
    }

    fn push_result(&mut self, result: &PromptResult<'a>) {
        self.flush_assistant();
        let mut lines: Vec<String> = Vec::new();
        let mut shown: Vec<UserPart> = Vec::new();
        for piece in user_parts(&result.content) {
            match piece {
                UserPart::Text(text) => lines.push(text),
                UserPart::Image(part) => {
                    lines.push("[image]".to_owned());
                    shown.push(UserPart::Image(part));
                }
                UserPart::File(part) => {
                    lines.push("[file]".to_owned());
                    shown.push(UserPart::File(part));
                }
            }
        }
        let (id, name) = (self.wire_call_id(&result.call), sanitize_tool_name(result.call.name));
        self.messages.push(json!({ "role": "tool", "tool_call_id": id, "content": lines.join("\n") }));
        if !shown.is_empty() {
            self.pending_user.push(UserPart::Text(format!("What {name} gave beside its text:")));
            self.pending_user.append(&mut shown);
        }
    }

    /// All that the model said in a step is one message. Thoughts alone are none.
    fn flush_assistant(&mut self) {
        let (said, calls) = (std::mem::take(&mut self.pending_texts), std::mem::take(&mut self.pending_calls));
        let (thought, details) =
            (std::mem::take(&mut self.pending_reasoning), std::mem::take(&mut self.pending_details));
        if said.is_empty() && calls.is_empty() {
            return;
        }
        self.flush_user();
        let mut message = JsonObject::new();
        message.insert("role".to_owned(), "assistant".into());
        message.insert("content".to_owned(), if said.is_empty() { Value::Null } else { said.join("\n\n").into() });
        if !thought.is_empty() {
            message.insert("reasoning_content".to_owned(), thought.into());
        }
        if !details.blocks.is_empty() {
            message.insert("reasoning_details".to_owned(), details.blocks.into());
        }
        if !calls.is_empty() {
            message.insert("tool_calls".to_owned(), calls.into());
        }
        self.messages.push(Value::Object(message));
    }

    fn flush_user(&mut self) {
        let pieces = std::mem::take(&mut self.pending_user);
        if pieces.is_empty() {
            return;
        }
        let texts: Option<Vec<&str>> = pieces.iter().map(UserPart::as_text).collect();
        let content: Value = match texts {
            Some(texts) => texts.join("\n\n").into(),
            None => pieces.into_iter().map(UserPart::into_part).collect(),
        };
        self.messages.push(json!({ "role": "user", "content": content }));
    }

    fn into_messages(mut self, instructions: &str) -> Vec<Value> {
        self.flush_assistant();
        self.flush_user();
        let go_on = || json!({ "role": "user", "content": CONTINUE_PROMPT });
        if self.messages.first().and_then(message_role) != Some("user") {
            self.messages.insert(0, go_on());
        }
        if self.messages.last().and_then(message_role) == Some("assistant") {
            self.messages.push(go_on());
        }
        let said = std::iter::once(instructions).filter(|text| !text.is_empty()).chain(self.system);
        let said: Vec<&str> = said.collect();
        if !said.is_empty() {
            self.messages.insert(0, json!({ "role": "system", "content": said.join("\n\n") }));
        }
        self.messages
    }
}

impl UserPart {
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

fn message_role(message: &Value) -> Option<&str> {
    json::str_field(message, "role")
}

/// Parts in the dialect's shapes; texts beside each other are one.
fn user_parts<'a>(parts: impl IntoIterator<Item = &'a ContentPart>) -> Vec<UserPart> {
    let mut pieces: Vec<UserPart> = Vec::new();
    for part in parts {
        match (pieces.last_mut(), user_part(part)) {
            (Some(UserPart::Text(text)), UserPart::Text(more)) => {
                text.push('\n');
                text.push_str(&more);
            }
            (_, piece) => pieces.push(piece),
        }
    }
    pieces
}

fn user_part(part: &ContentPart) -> UserPart {
    match part {
        ContentPart::Text { text, .. } => UserPart::Text(text.clone()),
        ContentPart::ImageUrl { image_url, .. } => match ImageSource::from_url(&image_url.url) {
            ImageSource::Remote(url) | ImageSource::Inline { url, .. } => {
                let mut shown = json!({ "url": url });
                // Only where it was said: not everybody knows the field.
                if let (Some(detail), Some(shown)) = (image_url.detail, shown.as_object_mut()) {
                    shown.insert("detail".to_owned(), detail.as_str().into());
                }
                UserPart::Image(json!({ "type": "image_url", "image_url": shown }))
            }
            ImageSource::Unavailable => UserPart::Text(image_url.placeholder()),
        },
        ContentPart::File { file } => file_user_part(file),
    }
}

/// A file goes along when its bytes are at hand and it is a PDF: the dialect fetches none and takes no others.
fn file_user_part(file: &FileRef) -> UserPart {
    match file.url.as_deref().map(ImageSource::from_url) {
        Some(ImageSource::Inline { url, media_type, .. }) if IMAGE_MEDIA_TYPES.contains(&media_type) => {
            UserPart::Image(json!({ "type": "image_url", "image_url": { "url": url } }))
        }
        Some(ImageSource::Inline { url, media_type: "application/pdf", .. }) => {
            let file = json!({ "filename": file_name_or_default(file), "file_data": url });
            UserPart::File(json!({ "type": "file", "file": file }))
        }
        _ => UserPart::Text(file_placeholder(file)),
    }
}

/// Arguments as an object, whatever the model said.
fn arguments_json(text: &str) -> String {
    match text.trim() {
        "" | "null" => "{}".to_owned(),
        _ if is_json_object(text) => text.to_owned(),
        _ => json!({ INVALID_ARGUMENTS_KEY: text }).to_string(),
    }
}

/// A name that a service takes, also when the model made one up.
fn sanitize_tool_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let name: String = name.chars().take(NAME_BYTES_MAX).map(plain).collect();
    if name.is_empty() { "unknown".to_owned() } else { name }
}

/// Names for the calls that the service did not name itself: the same in every request of a conversation.
fn wire_call_ids<'a>(history: &[PromptItem<'a>]) -> HashMap<&'a str, String> {
    let calls = || history.iter().filter_map(|told| if let PromptItem::Call(call) = told { Some(call) } else { None });
    let is_theirs = |call: &&PromptCall<'a>| call.raw.and_then(|raw| json::str_field(raw, "id")) == Some(call.id);
    let mut taken: HashSet<String> = calls().filter(is_theirs).map(|call| call.id.to_owned()).collect();
    let mut names = HashMap::new();
    for call in calls().filter(|call| !is_theirs(call)) {
        let name = (0..).map(|salt| short_call_id(call.id, salt)).find(|name| taken.insert(name.clone()));
        names.insert(call.id, name.unwrap_or_default());
    }
    names
}

/// Nine letters and digits that stand for an id (FNV-1a, in base 62).
fn short_call_id(id: &str, salt: u64) -> String {
    let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let mut rest = id.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325 ^ salt, hash);
    let mut name = String::with_capacity(CALL_ID_CHARS);
    while name.len() < CALL_ID_CHARS {
        let digit = usize::try_from(rest % 62).unwrap_or_default();
        name.extend(CALL_ID_ALPHABET.get(digit).map(|byte| char::from(*byte)));
        rest /= 62;
    }
    name
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
