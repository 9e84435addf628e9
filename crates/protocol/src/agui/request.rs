//! The bodies of AG-UI requests. Unknown members are ignored, because clients and frameworks add their own; known ones
//! have to have their type, and `null` is the same as absent.
//!
//! A request carries the client's whole history or only its end. What is new in it is found with the log, so this module
//! keeps every message; [`AgUiRequest::check_new_messages`] refuses what would be lost.

mod messages;
mod resume;

use super::AgUiVersion;
use crate::client_input::{ClientInput, InvalidField};
use crate::request_fields::{
    any_object_schema, expect_object, field_path, list_or_empty, non_null_field, optional_object, optional_str,
    present_str, required_str,
};
use crate::task::OnBusyParam;
use messages::{ParsedMessages, parse_messages};
use model::context::ContextEntry;
use model::event::ClientTool;
use model::json::{ExactObject, ExactValue, JsonObject};
pub use resume::{AgUiLegacyAnswer, AgUiResume, AgUiResumeStatus, parse_tool_message_decision};
use serde::Serialize;
use serde_json::Value;

const ID_CHARS_MAX: usize = 64;
const STATE_BYTES_MAX: usize = 64 * 1024;
const CONTEXT_ENTRIES_MAX: usize = 64;
const CONTEXT_BYTES_MAX: usize = 32 * 1024;
const FORWARDED_PROPS_BYTES_MAX: usize = 16 * 1024;
/// The member of `forwardedProps` that is for this server.
const OWN_PROPS: &str = "headwater";
/// Members with payloads, whose numbers are kept as they were written, and the messages, which are converted one by one.
const EXACT_MEMBERS: [&str; 3] = ["messages", "resume", "forwardedProps"];

/// `RunAgentInput`.
#[derive(Clone, Debug, PartialEq)]
pub struct AgUiRequest {
    pub version: AgUiVersion,
    /// The client's name of the thread.
    pub thread_id: String,
    pub run_id: String,
    pub parent_run_id: Option<String>,
    /// In the order of the conversation. An assistant message is its text and then its calls.
    pub messages: Vec<ClientInput>,
    unsupported: Vec<UnsupportedInput>,
    /// Tools that the client runs.
    pub tools: Vec<ClientTool>,
    /// What the application tells its agent beside the conversation.
    pub context: Vec<ContextEntry>,
    /// `None` also for `{}`, which clients without a state send.
    pub state: Option<Value>,
    /// Answers to interrupts.
    pub answers: Vec<AgUiResume>,
    /// The answer in the form of clients that know interrupts as a custom event.
    pub legacy_answer: Option<AgUiLegacyAnswer>,
    /// Without the members that are for this server; `None` if nothing is left.
    pub forwarded_props: Option<ExactValue>,
    pub on_busy: Option<OnBusyParam>,
    /// The run to continue from.
    pub previous: Option<String>,
}

/// A part or a role that this server does not know, and the message that has it.
#[derive(Clone, Debug, PartialEq)]
struct UnsupportedInput {
    /// An index of [`AgUiRequest::messages`].
    message: usize,
    error: InvalidField,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAgUiRequest {
    #[error(transparent)]
    Field(#[from] InvalidField),
    #[error("AG-UI {version} is not supported: 1.0 is, and 0.0.59, whose requests have no `protocolVersion`")]
    UnsupportedVersion { version: String },
    #[error("`{field}` is larger than {bytes_max} bytes")]
    TooLarge { field: &'static str, bytes_max: usize },
}

impl AgUiRequest {
    /// Refuses messages from `first_new` on (an index of `messages`) that have a role or a part that would be lost. In
    /// history it is skipped: the model has seen it, or another server has.
    pub fn check_new_messages(&self, first_new: usize) -> Result<(), InvalidField> {
        let lost = self.unsupported.iter().find(|unsupported| unsupported.message >= first_new);
        lost.map_or(Ok(()), |unsupported| Err(unsupported.error.clone()))
    }
}

/// Parses the body of a request that starts or continues a run.
pub fn parse_agui_request(body: &ExactObject) -> Result<AgUiRequest, InvalidAgUiRequest> {
    let fields = body.iter().filter(|(name, _)| !EXACT_MEMBERS.contains(&name.as_str()));
    let fields: JsonObject = fields.map(|(name, value)| (name.clone(), value.to_value())).collect();
    let version = parse_version(&fields)?;
    let ParsedMessages { messages, unsupported } = parse_messages(body.get("messages"))?;
    let props = ForwardedProps::parse(body.get("forwardedProps"))?;
    Ok(AgUiRequest {
        version,
        thread_id: parse_id(&fields, "threadId")?,
        run_id: parse_id(&fields, "runId")?,
        parent_run_id: optional_str(&fields, "parentRunId", "")?.map(str::to_owned),
        messages,
        unsupported,
        tools: parse_client_tools(&fields)?,
        context: parse_context(&fields)?,
        state: parse_state(&fields)?,
        answers: resume::parse_resume(body.get("resume"))?,
        legacy_answer: props.legacy_answer,
        forwarded_props: props.rest,
        on_busy: props.on_busy,
        previous: props.previous,
    })
}

/// Parses the body of a stop: the run that it means, if it names one. Other members are refused, because a stop cannot be
/// undone and they might have been meant to limit it.
pub fn parse_agui_stop(body: &ExactObject) -> Result<Option<String>, InvalidField> {
    if let Some(name) = body.keys().find(|name| *name != "runId") {
        return Err(InvalidField::new(shorten(name), "unknown member: only `runId` is known here"));
    }
    match body.get("runId") {
        None | Some(ExactValue::Null) => Ok(None),
        Some(ExactValue::String(id)) => {
            check_agui_id("runId", id)?;
            Ok(Some(id.clone()))
        }
        Some(_) => Err(InvalidField::new("runId", "expected a text")),
    }
}

/// Checks the id of a thread or a run.
pub fn check_agui_id(field: &str, id: &str) -> Result<(), InvalidField> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if (1..=ID_CHARS_MAX).contains(&id.len()) && id.bytes().all(is_valid) {
        return Ok(());
    }
    let reason = format!("expected 1 to {ID_CHARS_MAX} letters, digits, `-` and `_`");
    Err(InvalidField::new(field, reason))
}

fn parse_id(fields: &JsonObject, name: &str) -> Result<String, InvalidField> {
    let id = present_str(fields, name, "")?;
    check_agui_id(name, id)?;
    Ok(id.to_owned())
}

fn parse_version(fields: &JsonObject) -> Result<AgUiVersion, InvalidAgUiRequest> {
    parse_agui_version(optional_str(fields, "protocolVersion", "")?)
}

/// The version that a client names. Those of 0.0.59 name none.
pub fn parse_agui_version(version: Option<&str>) -> Result<AgUiVersion, InvalidAgUiRequest> {
    let Some(version) = version else { return Ok(AgUiVersion::V0_0_59) };
    let minor = version.strip_prefix("1.").unwrap_or_default();
    if !minor.is_empty() && minor.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Ok(AgUiVersion::V1);
    }
    Err(InvalidAgUiRequest::UnsupportedVersion { version: shorten(version) })
}

fn parse_client_tools(fields: &JsonObject) -> Result<Vec<ClientTool>, InvalidField> {
    let mut tools = Vec::new();
    for (index, tool) in list_or_empty(fields, "tools", "")?.iter().enumerate() {
        let at = format!("tools[{index}]");
        let tool = expect_object(tool, &at)?;
        let parameters = optional_object(tool, "parameters", &at)?.filter(|schema| !schema.is_empty()).cloned();
        tools.push(ClientTool {
            name: required_str(tool, "name", &at)?.to_owned(),
            description: optional_str(tool, "description", &at)?.unwrap_or_default().to_owned(),
            parameters: parameters.map_or_else(any_object_schema, Value::Object),
        });
    }
    Ok(tools)
}

fn parse_context(fields: &JsonObject) -> Result<Vec<ContextEntry>, InvalidAgUiRequest> {
    let list = list_or_empty(fields, "context", "")?;
    if list.len() > CONTEXT_ENTRIES_MAX {
        let reason = format!("{} entries; the maximum is {CONTEXT_ENTRIES_MAX}", list.len());
        return Err(InvalidField::new("context", reason).into());
    }
    let mut context = Vec::new();
    for (index, entry) in list.iter().enumerate() {
        let at = format!("context[{index}]");
        let entry = expect_object(entry, &at)?;
        let text = |name: &str| present_str(entry, name, &at).map(str::to_owned);
        context.push(ContextEntry { description: text("description")?, value: text("value")? });
    }
    check_size("context", &context, CONTEXT_BYTES_MAX)?;
    Ok(context)
}

fn parse_state(fields: &JsonObject) -> Result<Option<Value>, InvalidAgUiRequest> {
    let is_empty = |state: &Value| state.as_object().is_some_and(JsonObject::is_empty);
    let Some(state) = non_null_field(fields, "state").filter(|state| !is_empty(state)) else { return Ok(None) };
    check_size("state", state, STATE_BYTES_MAX)?;
    Ok(Some(state.clone()))
}

/// What an application passes through to its agent, and what of it is for this server.
#[derive(Default)]
struct ForwardedProps {
    rest: Option<ExactValue>,
    legacy_answer: Option<AgUiLegacyAnswer>,
    on_busy: Option<OnBusyParam>,
    previous: Option<String>,
}

impl ForwardedProps {
    fn parse(props: Option<&ExactValue>) -> Result<Self, InvalidAgUiRequest> {
        let Some(props) = props.filter(|props| **props != ExactValue::Null) else { return Ok(Self::default()) };
        check_size("forwardedProps", props, FORWARDED_PROPS_BYTES_MAX)?;
        let ExactValue::Object(members) = props else {
            return Ok(Self { rest: Some(props.clone()), ..Self::default() });
        };
        let mut rest = members.clone();
        let at = field_path("forwardedProps", OWN_PROPS);
        let own = match rest.remove(OWN_PROPS) {
            None | Some(ExactValue::Null) => JsonObject::new(),
            Some(own) => expect_object(&own.to_value(), &at)?.clone(),
        };
        let legacy_answer = rest.get("command").and_then(AgUiLegacyAnswer::parse);
        if legacy_answer.is_some() {
            rest.remove("command");
        }
        Ok(Self {
            rest: (!rest.is_empty()).then_some(ExactValue::Object(rest)),
            legacy_answer,
            on_busy: parse_on_busy(&own, &at)?,
            previous: optional_str(&own, "previous", &at)?.map(str::to_owned),
        })
    }
}

fn parse_on_busy(own: &JsonObject, at: &str) -> Result<Option<OnBusyParam>, InvalidField> {
    Ok(match optional_str(own, "on_busy", at)? {
        None => None,
        Some("enqueue") => Some(OnBusyParam::Enqueue),
        Some("reject") => Some(OnBusyParam::Reject),
        Some("interrupt") => Some(OnBusyParam::Interrupt),
        Some("steer") => Some(OnBusyParam::Steer),
        Some(_) => {
            let expected = "expected `enqueue`, `reject`, `interrupt` or `steer`";
            return Err(InvalidField::new(field_path(at, "on_busy"), expected));
        }
    })
}

fn check_size(field: &'static str, value: &impl Serialize, bytes_max: usize) -> Result<(), InvalidAgUiRequest> {
    let size = serde_json::to_vec(value).map_or(usize::MAX, |text| text.len());
    if size > bytes_max { Err(InvalidAgUiRequest::TooLarge { field, bytes_max }) } else { Ok(()) }
}

/// A client's text for an error message.
fn shorten(text: &str) -> String {
    text.chars().take(ID_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests;
