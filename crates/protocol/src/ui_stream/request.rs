//! Requests of `useChat`.
//!
//! The SDK sends its whole history with every request. The log is the truth, so history is only read for what is new in it:
//! messages of the user, approvals that a person answered, and outputs of the client's tools. Unknown members of the body
//! are ignored, because applications add their own; known ones have to have their type. A part of an unknown type is an
//! error in a new message, where it would be lost ([`UiChatRequest::check_new_messages`]), and skipped in history, because
//! the SDK adds types in minor releases.

mod parts;

use crate::client_input::{ClientInput, InvalidField};
use crate::request_fields::{
    any_object_schema, expect_object, field_path, list_or_empty, non_null_field, optional_object, optional_str,
    required_str,
};
use crate::task::OnBusyParam;
use model::content::ContentPart;
use model::event::ClientTool;
use model::id::is_valid_id;
use model::item::{Role, ToolCall};
use model::json::{ExactObject, JsonObject, to_exact_object};
use parts::parse_parts;
use serde_json::Value;

/// How many answers a request may have.
const ANSWERS_MAX: usize = 64;
/// The ids that the SDK makes have 16 characters; applications have their own.
const MESSAGE_ID_BYTES_MAX: usize = 200;

#[derive(Clone, Debug)]
pub struct UiChatRequest {
    /// The client's name for the thread.
    pub chat_id: String,
    pub trigger: UiTrigger,
    /// The message that is edited, continued or generated again.
    pub message_id: Option<String>,
    /// In the order of the conversation; at least one.
    pub messages: Vec<UiRequestMessage>,
    pub agent: Option<String>,
    /// Tools that the client runs.
    pub tools: Vec<ClientTool>,
    pub metadata: ExactObject,
    pub on_busy: Option<OnBusyParam>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UiTrigger {
    SubmitMessage,
    RegenerateMessage,
}

#[derive(Clone, Debug, PartialEq)]
pub struct UiRequestMessage {
    pub id: String,
    pub role: Role,
    /// The texts and files.
    pub content: Vec<ContentPart>,
    /// The approvals and questions that a person answered.
    pub approvals: Vec<UiApprovalAnswer>,
    /// The outputs of tools that may be the client's.
    pub outputs: Vec<UiClientOutput>,
    /// The message as history.
    pub history: Vec<ClientInput>,
    /// The first part that cannot be read.
    unknown_part: Option<InvalidField>,
}

/// An answer to an approval request or a question.
#[derive(Clone, Debug, PartialEq)]
pub struct UiApprovalAnswer {
    pub call: UiAnsweredCall,
    pub approval_id: String,
    pub approved: bool,
    /// For the model. The SDK has no other text for an answer, so a form may have put the answer to a question here, as JSON.
    pub reason: Option<String>,
    /// The answer to a question, from `answers`.
    pub arguments: Option<ExactObject>,
}

/// The output of a tool of the client.
#[derive(Clone, Debug, PartialEq)]
pub struct UiClientOutput {
    pub call: UiAnsweredCall,
    pub content: Vec<ContentPart>,
    /// Whether the client reports an error.
    pub failed: bool,
}

/// The call that an answer belongs to, as the client knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct UiAnsweredCall {
    /// The part of the request that has it.
    pub field: String,
    pub call_id: String,
    pub tool_name: String,
    /// Absent if the client left it out.
    pub input: Option<Value>,
}

impl UiAnsweredCall {
    /// Whether the client answers the call that was made. A person decides about what the page shows, so the page must not
    /// show another call. Numbers are compared as JavaScript has them.
    pub fn is_same_call(&self, call: &ToolCall) -> bool {
        let arguments = call.arguments.as_deref().unwrap_or_default();
        let own = if arguments.trim().is_empty() {
            Ok(Value::Object(JsonObject::new()))
        } else {
            serde_json::from_str(arguments)
        };
        let own = own.unwrap_or_else(|_| Value::String(arguments.to_owned()));
        self.tool_name == call.name && self.input.as_ref().is_none_or(|input| is_same_value(input, &own))
    }
}

impl UiChatRequest {
    /// Checks that no part of the messages from `first` on would be lost.
    pub fn check_new_messages(&self, first: usize) -> Result<(), InvalidField> {
        let unknown = self.messages.iter().skip(first).find_map(|message| message.unknown_part.clone());
        unknown.map_or(Ok(()), Err)
    }

    pub fn last_message(&self) -> Option<&UiRequestMessage> {
        self.messages.last()
    }
}

/// Parses the body of `POST /api/chat`.
pub fn parse_ui_chat_request(body: &JsonObject) -> Result<UiChatRequest, InvalidField> {
    let chat_id = required_str(body, "id", "")?;
    if !is_valid_id(chat_id) {
        return Err(InvalidField::new("id", "must have 1 to 64 letters, digits, `_` or `-`"));
    }
    let trigger = match optional_str(body, "trigger", "")? {
        None | Some("submit-message") => UiTrigger::SubmitMessage,
        Some("regenerate-message") => UiTrigger::RegenerateMessage,
        Some(_) => return Err(InvalidField::new("trigger", "expected `submit-message` or `regenerate-message`")),
    };
    let message_id = optional_str(body, "messageId", "")?.filter(|id| !id.is_empty());
    if message_id.is_some_and(|id| id.len() > MESSAGE_ID_BYTES_MAX) {
        return Err(long_id("messageId"));
    }
    let mut messages = parse_messages(body)?;
    add_answers(body, &mut messages)?;
    Ok(UiChatRequest {
        chat_id: chat_id.to_owned(),
        trigger,
        message_id: message_id.map(str::to_owned),
        messages,
        agent: optional_str(body, "agent", "")?.or(optional_str(body, "model", "")?).map(str::to_owned),
        tools: parse_client_tools(list_or_empty(body, "tools", "")?)?,
        metadata: to_exact_object(optional_object(body, "metadata", "")?.cloned().unwrap_or_default()),
        on_busy: parse_on_busy(body)?,
    })
}

/// The whole history, or its last message alone.
fn parse_messages(body: &JsonObject) -> Result<Vec<UiRequestMessage>, InvalidField> {
    let single = optional_object(body, "message", "")?;
    let list = list_or_empty(body, "messages", "")?;
    let mut messages = Vec::new();
    for (index, message) in list.iter().enumerate() {
        let at = format!("messages[{index}]");
        messages.push(parse_message(expect_object(message, &at)?, &at)?);
    }
    if let Some(message) = single.filter(|_| list.is_empty()) {
        messages.push(parse_message(message, "message")?);
    }
    if messages.is_empty() {
        return Err(InvalidField::new("messages", "must not be empty"));
    }
    Ok(messages)
}

fn parse_message(message: &JsonObject, at: &str) -> Result<UiRequestMessage, InvalidField> {
    let id = required_str(message, "id", at)?;
    if id.len() > MESSAGE_ID_BYTES_MAX {
        return Err(long_id(&field_path(at, "id")));
    }
    let role = match optional_str(message, "role", at)? {
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some("system") => Role::System,
        _ => return Err(InvalidField::new(field_path(at, "role"), "expected `user`, `assistant` or `system`")),
    };
    let mut parsed = UiRequestMessage {
        id: id.to_owned(),
        role,
        content: Vec::new(),
        approvals: Vec::new(),
        outputs: Vec::new(),
        history: Vec::new(),
        unknown_part: None,
    };
    let at = field_path(at, "parts");
    let Some(parts) = non_null_field(message, "parts").and_then(Value::as_array) else {
        return Err(InvalidField::new(at, "expected a list"));
    };
    parse_parts(parts, &at, &mut parsed)?;
    Ok(parsed)
}

fn long_id(field: &str) -> InvalidField {
    InvalidField::new(field, format!("longer than {MESSAGE_ID_BYTES_MAX} bytes"))
}

/// Adds the content of answers that the client could not put into a part.
fn add_answers(body: &JsonObject, messages: &mut [UiRequestMessage]) -> Result<(), InvalidField> {
    let Some(answers) = optional_object(body, "answers", "")? else { return Ok(()) };
    if answers.len() > ANSWERS_MAX {
        return Err(InvalidField::new("answers", format!("more than {ANSWERS_MAX} answers")));
    }
    let asked = messages.last_mut().map_or(&mut [][..], |message| &mut message.approvals);
    for (id, content) in answers {
        let at = format!("answers.{}", shorten(id));
        let content = expect_object(content, &at)?;
        let Some(answer) = asked.iter_mut().find(|answer| answer.approval_id == *id) else {
            return Err(InvalidField::new(at, "the last message has no such approval that was answered"));
        };
        answer.arguments = Some(to_exact_object(content.clone()));
    }
    Ok(())
}

/// The tools that the client runs.
fn parse_client_tools(declared: &[Value]) -> Result<Vec<ClientTool>, InvalidField> {
    let mut tools = Vec::new();
    for (index, tool) in declared.iter().enumerate() {
        let at = format!("tools[{index}]");
        let tool = expect_object(tool, &at)?;
        let parameters = optional_object(tool, "parameters", &at)?.or(optional_object(tool, "inputSchema", &at)?);
        tools.push(ClientTool {
            name: required_str(tool, "name", &at)?.to_owned(),
            description: optional_str(tool, "description", &at)?.unwrap_or_default().to_owned(),
            parameters: parameters.cloned().map_or_else(any_object_schema, Value::Object),
        });
    }
    Ok(tools)
}

fn parse_on_busy(body: &JsonObject) -> Result<Option<OnBusyParam>, InvalidField> {
    match optional_str(body, "on_busy", "")? {
        None => Ok(None),
        Some("enqueue") => Ok(Some(OnBusyParam::Enqueue)),
        Some("reject") => Ok(Some(OnBusyParam::Reject)),
        Some("interrupt") => Ok(Some(OnBusyParam::Interrupt)),
        Some("steer") => Ok(Some(OnBusyParam::Steer)),
        Some(_) => Err(InvalidField::new("on_busy", "expected `enqueue`, `reject`, `interrupt` or `steer`")),
    }
}

/// An error does not repeat a long id.
fn shorten(id: &str) -> String {
    id.chars().take(64).collect()
}

/// Whether two values are the same to JavaScript, which has one type of numbers.
fn is_same_value(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same_value(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, value)| other.get(name).is_some_and(|other| is_same_value(value, other)))
        }
        (one, other) => one == other,
    }
}

#[cfg(test)]
mod tests;
