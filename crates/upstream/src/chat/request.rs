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

use super::calls::is_whole;
use super::thoughts::Details;
use super::wishes;
use crate::history::{Told, ToldCall, ToldResult, told};
use crate::parts::{Picture, file_name, file_note, summary_note};
use crate::wishes::instructions;
use crate::{Target, json, options};
use model::block::{ContentPart, FileRef, IMAGE_MEDIA_TYPES, JsonObject};
use model::model_turn::ModelRequest;
use model::tool::ToolSpec;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};

/// What is said for a person where a service wants a person to speak.
const GO_ON: &str = "Continue.";
/// How the key is called under which arguments stand that are no object.
const INVALID: &str = "_invalid";
/// How long a tool's name may be.
const NAME_BYTES_MAX: usize = 64;
/// How long the name of a call is that came from elsewhere, and of what it is made.
const CALL_NAME_CHARS: usize = 9;
const CALL_NAME_ALPHABET: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// The body that asks for a turn.
#[must_use]
pub fn request(turn: &ModelRequest, target: &Target<'_>) -> Value {
    let history = told(&turn.history, target.origin);
    let mut script = Script { names: names(&history), ..Script::default() };
    for told in &history {
        script.tell(told);
    }
    let mut body = JsonObject::new();
    body.insert("model".to_owned(), target.model.into());
    body.insert("messages".to_owned(), script.messages(&instructions(turn)).into());
    body.insert("stream".to_owned(), true.into());
    body.insert("stream_options".to_owned(), json!({ "include_usage": true }));
    let tools: Vec<Value> = turn.tools.iter().map(tool).collect();
    if !tools.is_empty() {
        body.insert("tools".to_owned(), tools.into());
    }
    wishes::put(&mut body, turn, target.model);
    options::merge(&mut body, &turn.provider_options, &[]);
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

fn tool(tool: &ToolSpec) -> Value {
    let mut parameters = tool.parameters.as_object().cloned().unwrap_or_default();
    parameters.entry("type").or_insert_with(|| "object".into());
    parameters.entry("properties").or_insert_with(|| json!({}));
    json!({ "type": "function", "function": {
        "name": tool.name, "description": tool.description, "parameters": parameters,
    }})
}

/// The messages so far, and the two that are not whole: a person's, and after it the model's.
#[derive(Default)]
struct Script<'a> {
    names: HashMap<&'a str, String>,
    system: Vec<&'a str>,
    messages: Vec<Value>,
    user: Vec<Piece>,
    said: Vec<&'a str>,
    calls: Vec<Value>,
    thought: String,
    details: Details,
}

/// One piece of what a person says.
enum Piece {
    Text(String),
    Picture(Value),
    File(Value),
}

impl<'a> Script<'a> {
    fn tell(&mut self, told: &Told<'a>) {
        match told {
            Told::Summary(text) => {
                self.end_step();
                self.user.push(Piece::Text(summary_note(text)));
            }
            Told::System(text) => self.system.push(text),
            Told::User(parts) => {
                self.end_step();
                self.user.extend(pieces(parts.iter().map(AsRef::as_ref)));
            }
            Told::Reasoning(raw) => {
                self.thought.push_str(json::text(raw, "reasoning_content").unwrap_or_default());
                json::list(raw, "reasoning_details").iter().cloned().for_each(|detail| self.details.push(detail));
            }
            Told::Assistant { text, .. } => self.said.push(text),
            Told::Call(call) => {
                let call = self.call(call);
                self.calls.push(call);
            }
            Told::Result(result) => self.result(result),
            // This dialect has no such items: nothing of this kind came from here.
            Told::Hosted { .. } => {}
        }
    }

    /// The name of a call in this request.
    fn name_of(&self, call: &ToldCall<'a>) -> String {
        self.names.get(call.id).cloned().unwrap_or_else(|| call.id.to_owned())
    }

    fn call(&self, call: &ToldCall<'a>) -> Value {
        let function = json!({ "name": tool_name(call.name), "arguments": arguments(call.arguments) });
        let mut told = json!({ "id": self.name_of(call), "type": "function", "function": function });
        let extra = call.raw.and_then(|raw| json::present(raw, "extra_content"));
        if let (Some(extra), Some(told)) = (extra, told.as_object_mut()) {
            told.insert("extra_content".to_owned(), extra.clone());
        }
        told
    }

    fn result(&mut self, result: &ToldResult<'a>) {
        self.end_step();
        let mut lines: Vec<String> = Vec::new();
        let mut shown: Vec<Piece> = Vec::new();
        for piece in pieces(&result.content) {
            match piece {
                Piece::Text(text) => lines.push(text),
                Piece::Picture(part) => {
                    lines.push("[image]".to_owned());
                    shown.push(Piece::Picture(part));
                }
                Piece::File(part) => {
                    lines.push("[file]".to_owned());
                    shown.push(Piece::File(part));
                }
            }
        }
        let (id, name) = (self.name_of(&result.call), tool_name(result.call.name));
        self.messages.push(json!({ "role": "tool", "tool_call_id": id, "content": lines.join("\n") }));
        if !shown.is_empty() {
            self.user.push(Piece::Text(format!("What {name} gave beside its text:")));
            self.user.append(&mut shown);
        }
    }

    /// All that the model said in a step is one message. Thoughts alone are none.
    fn end_step(&mut self) {
        let (said, calls) = (std::mem::take(&mut self.said), std::mem::take(&mut self.calls));
        let (thought, details) = (std::mem::take(&mut self.thought), std::mem::take(&mut self.details));
        if said.is_empty() && calls.is_empty() {
            return;
        }
        self.end_user();
        let mut message = JsonObject::new();
        message.insert("role".to_owned(), "assistant".into());
        message.insert("content".to_owned(), if said.is_empty() { Value::Null } else { said.join("\n\n").into() });
        if !thought.is_empty() {
            message.insert("reasoning_content".to_owned(), thought.into());
        }
        if !details.list.is_empty() {
            message.insert("reasoning_details".to_owned(), details.list.into());
        }
        if !calls.is_empty() {
            message.insert("tool_calls".to_owned(), calls.into());
        }
        self.messages.push(Value::Object(message));
    }

    fn end_user(&mut self) {
        let pieces = std::mem::take(&mut self.user);
        if pieces.is_empty() {
            return;
        }
        let texts: Option<Vec<&str>> = pieces.iter().map(Piece::as_text).collect();
        let content: Value = match texts {
            Some(texts) => texts.join("\n\n").into(),
            None => pieces.into_iter().map(Piece::into_part).collect(),
        };
        self.messages.push(json!({ "role": "user", "content": content }));
    }

    fn messages(mut self, instructions: &str) -> Vec<Value> {
        self.end_step();
        self.end_user();
        let go_on = || json!({ "role": "user", "content": GO_ON });
        if self.messages.first().and_then(role) != Some("user") {
            self.messages.insert(0, go_on());
        }
        if self.messages.last().and_then(role) == Some("assistant") {
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

impl Piece {
    fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Picture(_) | Self::File(_) => None,
        }
    }

    fn into_part(self) -> Value {
        match self {
            Self::Text(text) => json!({ "type": "text", "text": text }),
            Self::Picture(part) | Self::File(part) => part,
        }
    }
}

fn role(message: &Value) -> Option<&str> {
    json::text(message, "role")
}

/// Parts in the dialect's shapes; texts beside each other are one.
fn pieces<'a>(parts: impl IntoIterator<Item = &'a ContentPart>) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for part in parts {
        match (pieces.last_mut(), piece(part)) {
            (Some(Piece::Text(text)), Piece::Text(more)) => {
                text.push('\n');
                text.push_str(&more);
            }
            (_, piece) => pieces.push(piece),
        }
    }
    pieces
}

fn piece(part: &ContentPart) -> Piece {
    match part {
        ContentPart::Text { text, .. } => Piece::Text(text.clone()),
        ContentPart::ImageUrl { image_url, .. } => match Picture::at(&image_url.url) {
            Picture::Web(url) | Picture::Data { url, .. } => {
                let mut shown = json!({ "url": url });
                // Only where it was said: not everybody knows the field.
                if let (Some(detail), Some(shown)) = (image_url.detail, shown.as_object_mut()) {
                    shown.insert("detail".to_owned(), detail.as_str().into());
                }
                Piece::Picture(json!({ "type": "image_url", "image_url": shown }))
            }
            Picture::Hidden => Piece::Text(image_url.placeholder()),
        },
        ContentPart::File { file } => file_piece(file),
    }
}

/// A file goes along when its bytes are at hand and it is a PDF: the dialect fetches none and takes no others.
fn file_piece(file: &FileRef) -> Piece {
    match file.url.as_deref().map(Picture::at) {
        Some(Picture::Data { url, media_type, .. }) if IMAGE_MEDIA_TYPES.contains(&media_type) => {
            Piece::Picture(json!({ "type": "image_url", "image_url": { "url": url } }))
        }
        Some(Picture::Data { url, media_type: "application/pdf", .. }) => {
            let file = json!({ "filename": file_name(file), "file_data": url });
            Piece::File(json!({ "type": "file", "file": file }))
        }
        _ => Piece::Text(file_note(file)),
    }
}

/// Arguments as an object, whatever the model said.
fn arguments(text: &str) -> String {
    match text.trim() {
        "" | "null" => "{}".to_owned(),
        _ if is_whole(text) => text.to_owned(),
        _ => json!({ INVALID: text }).to_string(),
    }
}

/// A name that a service takes, also when the model made one up.
fn tool_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let name: String = name.chars().take(NAME_BYTES_MAX).map(plain).collect();
    if name.is_empty() { "unknown".to_owned() } else { name }
}

/// Names for the calls that the service did not name itself: the same in every request of a conversation.
fn names<'a>(history: &[Told<'a>]) -> HashMap<&'a str, String> {
    let calls = || history.iter().filter_map(|told| if let Told::Call(call) = told { Some(call) } else { None });
    let is_theirs = |call: &&ToldCall<'a>| call.raw.and_then(|raw| json::text(raw, "id")) == Some(call.id);
    let mut taken: HashSet<String> = calls().filter(is_theirs).map(|call| call.id.to_owned()).collect();
    let mut names = HashMap::new();
    for call in calls().filter(|call| !is_theirs(call)) {
        let name = (0..).map(|salt| short_name(call.id, salt)).find(|name| taken.insert(name.clone()));
        names.insert(call.id, name.unwrap_or_default());
    }
    names
}

/// Nine letters and digits that stand for an id (FNV-1a, in base 62).
fn short_name(id: &str, salt: u64) -> String {
    let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let mut rest = id.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325 ^ salt, hash);
    let mut name = String::with_capacity(CALL_NAME_CHARS);
    while name.len() < CALL_NAME_CHARS {
        let digit = usize::try_from(rest % 62).unwrap_or_default();
        name.extend(CALL_NAME_ALPHABET.get(digit).map(|byte| char::from(*byte)));
        rest /= 62;
    }
    name
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
