//! The messages of a request. Clients send back what they were shown, each message with its id, and add their own.

use super::UnsupportedInput;
use crate::client_input::{ClientInput, InputKind, InvalidField};
use crate::request_fields::{
    expect_object, field_path, file_part, image_part, list_or_empty, non_null_field, optional_str, present_str,
    required_object, required_str,
};
use model::TaskId;
use model::content::ContentPart;
use model::json::{ExactValue, JsonObject};
use serde_json::Value;

/// An id is recorded with the run.
const MESSAGE_ID_BYTES_MAX: usize = 256;

pub(super) struct ParsedMessages {
    pub(super) messages: Vec<ClientInput>,
    pub(super) unsupported: Vec<UnsupportedInput>,
}

pub(super) fn parse_messages(list: Option<&ExactValue>) -> Result<ParsedMessages, InvalidField> {
    let Some(ExactValue::Array(list)) = list else {
        return Err(InvalidField::new("messages", "expected a list"));
    };
    let mut parsed = ParsedMessages { messages: Vec::new(), unsupported: Vec::new() };
    for (index, message) in list.iter().enumerate() {
        let at = format!("messages[{index}]");
        let message = message.to_value();
        parsed.add_message(expect_object(&message, &at)?, &at)?;
    }
    Ok(parsed)
}

impl ParsedMessages {
    fn add_message(&mut self, message: &JsonObject, at: &str) -> Result<(), InvalidField> {
        let id = required_str(message, "id", at)?;
        if id.len() > MESSAGE_ID_BYTES_MAX {
            let reason = format!("longer than {MESSAGE_ID_BYTES_MAX} bytes");
            return Err(InvalidField::new(field_path(at, "id"), reason));
        }
        let is_of_subagent = optional_str(message, "subagentRunId", at)?.is_some();
        let kind = match required_str(message, "role", at)? {
            "developer" | "system" => InputKind::System(present_str(message, "content", at)?.to_owned()),
            "user" => {
                let parts = self.parse_content(message, at)?;
                if parts.is_empty() { InputKind::ItemReference } else { InputKind::User(parts) }
            }
            // The root of a run has not said it, and its history lacks it.
            "assistant" if is_of_subagent => InputKind::ItemReference,
            "assistant" => return self.add_assistant_message(message, id, at),
            "tool" => self.parse_tool_message(message, (id, is_of_subagent), at)?,
            "reasoning" | "activity" => InputKind::ItemReference,
            _ => {
                let expected = "expected `developer`, `system`, `user`, `assistant`, `tool`, `reasoning` or `activity`";
                self.refuse_if_new(InvalidField::new(field_path(at, "role"), expected));
                InputKind::ItemReference
            }
        };
        self.push(id, kind);
        Ok(())
    }

    fn add_assistant_message(&mut self, message: &JsonObject, id: &str, at: &str) -> Result<(), InvalidField> {
        let text = optional_str(message, "content", at)?.filter(|text| !text.is_empty());
        let calls = list_or_empty(message, "toolCalls", at)?;
        match text {
            Some(text) => self.push(id, InputKind::Assistant(text.to_owned())),
            None if calls.is_empty() => self.push(id, InputKind::ItemReference),
            None => {}
        }
        for (index, call) in calls.iter().enumerate() {
            let at = format!("{at}.toolCalls[{index}]");
            let call = expect_object(call, &at)?;
            let call_id = required_str(call, "id", &at)?;
            let function = required_object(call, "function", &at)?;
            let at = field_path(&at, "function");
            let name = required_str(function, "name", &at)?.to_owned();
            let arguments = present_str(function, "arguments", &at)?.to_owned();
            self.push(call_id, InputKind::ToolCall { call_id: call_id.to_owned(), name, arguments });
        }
        Ok(())
    }

    fn parse_tool_message(
        &mut self,
        message: &JsonObject,
        (id, is_of_subagent): (&str, bool),
        at: &str,
    ) -> Result<InputKind, InvalidField> {
        let call_id = required_str(message, "toolCallId", at)?.to_owned();
        let error = optional_str(message, "error", at)?.filter(|error| !error.is_empty());
        let mut content = self.parse_content(message, at)?;
        if content.is_empty() {
            content.extend(error.map(ContentPart::text));
        }
        // A result that this server has shown of a sub-agent: its call is not in the history of the root either.
        if is_of_subagent && TaskId::from(id).run_id().is_some() {
            return Ok(InputKind::ItemReference);
        }
        if let [ContentPart::Text { text, .. }] = content.as_slice()
            && text.starts_with("data:image/")
        {
            // A screenshot from a client whose messages have only text.
            content = vec![image_part(text.clone(), &field_path(at, "content"))?];
        }
        Ok(InputKind::ToolResult { call_id, content, failed: error.is_some(), acknowledged_checks: Vec::new() })
    }

    /// A text, or parts. Parts that this server cannot pass on are left out.
    fn parse_content(&mut self, message: &JsonObject, at: &str) -> Result<Vec<ContentPart>, InvalidField> {
        let at = field_path(at, "content");
        let list = match non_null_field(message, "content") {
            Some(Value::String(text)) if text.is_empty() => return Ok(Vec::new()),
            Some(Value::String(text)) => return Ok(vec![ContentPart::text(text)]),
            Some(Value::Array(list)) => list,
            _ => return Err(InvalidField::new(at, "expected a text or a list of parts")),
        };
        let mut parts = Vec::new();
        for (index, part) in list.iter().enumerate() {
            let at = format!("{at}[{index}]");
            parts.extend(self.parse_part(expect_object(part, &at)?, &at)?);
        }
        Ok(parts)
    }

    fn parse_part(&mut self, part: &JsonObject, at: &str) -> Result<Option<ContentPart>, InvalidField> {
        let kind = required_str(part, "type", at)?;
        let url = match kind {
            "text" => return Ok(Some(ContentPart::text(present_str(part, "text", at)?))),
            "image" | "document" => source_url(required_object(part, "source", at)?, &field_path(at, "source"))?,
            "binary" => binary_url(part, at)?,
            _ => {
                let reason = "is not supported: `text`, `image` and `document` are";
                self.refuse_if_new(InvalidField::new(field_path(at, "type"), reason));
                return Ok(None);
            }
        };
        let Some(url) = url else {
            let reason = "files of other services are not supported: send the data or a URL";
            self.refuse_if_new(InvalidField::new(at, reason));
            return Ok(None);
        };
        let is_image = match kind {
            "binary" => required_str(part, "mimeType", at)?.starts_with("image/"),
            kind => kind == "image",
        };
        if is_image {
            return image_part(url, at).map(Some);
        }
        Ok(Some(file_part(url, file_name(part, at)?)))
    }

    fn push(&mut self, id: &str, kind: InputKind) {
        self.messages.push(ClientInput { id: Some(id.to_owned()), kind });
    }

    /// Remembers that something of the next message is not understood.
    fn refuse_if_new(&mut self, error: InvalidField) {
        self.unsupported.push(UnsupportedInput { message: self.messages.len(), error });
    }
}

/// The URL of a source; `None` for a file of another service.
fn source_url(source: &JsonObject, at: &str) -> Result<Option<String>, InvalidField> {
    let value = required_str(source, "value", at)?;
    match required_str(source, "type", at)? {
        "data" => Ok(Some(data_url(value, required_str(source, "mimeType", at)?))),
        "url" => Ok(Some(value.to_owned())),
        _ => Ok(None),
    }
}

/// The URL of a part in the form before sources; `None` for a file of another service.
fn binary_url(part: &JsonObject, at: &str) -> Result<Option<String>, InvalidField> {
    let mime_type = required_str(part, "mimeType", at)?;
    let data = optional_str(part, "data", at)?.map(|data| data_url(data, mime_type));
    Ok(data.or(optional_str(part, "url", at)?.map(str::to_owned)))
}

fn data_url(data: &str, mime_type: &str) -> String {
    if data.starts_with("data:") { data.to_owned() } else { format!("data:{mime_type};base64,{data}") }
}

/// The protocol has no place for names of files: front ends write them into the metadata.
fn file_name<'a>(part: &'a JsonObject, at: &str) -> Result<Option<&'a str>, InvalidField> {
    let metadata = part.get("metadata").and_then(Value::as_object);
    let in_metadata = metadata.and_then(|metadata| metadata.get("filename")).and_then(Value::as_str);
    Ok(optional_str(part, "filename", at)?.or(in_metadata))
}
