//! The reducer that every client of AG-UI has: events → messages.
//!
//! It places and merges messages as the clients do, so that a snapshot is what a client would have had.

use super::project::AgUiSink;
use super::wire::{
    AgUiContent, AgUiDelta, AgUiEvent, AgUiFunction, AgUiMessage, AgUiMessageContent, AgUiToolCall, to_raw_json,
};
use serde_json::Value;
use serde_json::value::RawValue;

/// The messages of a run, in the order in which clients have them.
#[derive(Clone, Debug, Default)]
pub struct MessageList {
    messages: Vec<AgUiMessage>,
}

impl MessageList {
    pub fn messages(&self) -> &[AgUiMessage] {
        &self.messages
    }

    /// The call, and the message that has it.
    pub(super) fn owner_of_call(&self, call_id: &str) -> Option<&AgUiMessage> {
        let has_call = |message: &&AgUiMessage| message.tool_calls.iter().flatten().any(|call| call.id == call_id);
        self.messages.iter().rev().find(has_call)
    }

    fn find(&mut self, id: &str) -> Option<&mut AgUiMessage> {
        // Nearly all events are about one of the last messages.
        self.messages.iter_mut().rev().find(|message| message.id == id)
    }

    fn find_call(&mut self, id: &str) -> Option<&mut AgUiToolCall> {
        self.messages
            .iter_mut()
            .rev()
            .flat_map(|message| message.tool_calls.iter_mut().flatten())
            .find(|call| call.id == id)
    }

    /// Adds a text or a reasoning, unless a message has its id.
    fn start_text(&mut self, event: &AgUiEvent<'_>) {
        let (Some(id), Some(role)) = (event.message_id.as_deref(), event.role) else { return };
        if self.find(id).is_none() {
            self.messages.push(AgUiMessage {
                id: id.to_owned(),
                role,
                content: Some(AgUiMessageContent::Text(String::new())),
                name: event.name.map(str::to_owned),
                subagent_run_id: event.subagent_run_id.map(str::to_owned),
                ..AgUiMessage::default()
            });
        }
    }

    fn append_text(&mut self, event: &AgUiEvent<'_>) {
        let (Some(id), Some(AgUiDelta::Text(delta))) = (event.message_id.as_deref(), event.delta) else { return };
        match self.find(id).map(|message| message.content.get_or_insert(AgUiMessageContent::Text(String::new()))) {
            Some(AgUiMessageContent::Text(text)) => text.push_str(delta),
            Some(AgUiMessageContent::Parts(_) | AgUiMessageContent::Object(_)) | None => {}
        }
    }

    fn end_text(&mut self, event: &AgUiEvent<'_>) {
        let Some(message) = event.message_id.as_deref().and_then(|id| self.find(id)) else { return };
        if let Some(metadata) = metadata_of(event) {
            message.metadata = Some(metadata);
        }
    }

    fn start_call(&mut self, event: &AgUiEvent<'_>) {
        let (Some(id), Some(name)) = (event.tool_call_id, event.tool_call_name) else { return };
        if self.find_call(id).is_some() {
            return;
        }
        let message_id = event.parent_message_id.as_deref().unwrap_or(id);
        if self.find(message_id).is_none() {
            self.messages.push(AgUiMessage {
                id: message_id.to_owned(),
                role: "assistant",
                subagent_run_id: event.subagent_run_id.map(str::to_owned),
                ..AgUiMessage::default()
            });
        }
        let function = AgUiFunction { name: name.to_owned(), arguments: String::new() };
        let call = AgUiToolCall { id: id.to_owned(), call_type: "function", function, metadata: metadata_of(event) };
        if let Some(message) = self.find(message_id) {
            message.tool_calls.get_or_insert_default().push(call);
        }
    }

    fn append_arguments(&mut self, event: &AgUiEvent<'_>) {
        let (Some(id), Some(AgUiDelta::Text(delta))) = (event.tool_call_id, event.delta) else { return };
        if let Some(call) = self.find_call(id) {
            call.function.arguments.push_str(delta);
        }
    }

    /// A result follows the message with its call and the results that are there.
    fn add_result(&mut self, event: &AgUiEvent<'_>) {
        let (Some(id), Some(call_id)) = (event.message_id.as_deref(), event.tool_call_id) else { return };
        let message = AgUiMessage {
            id: id.to_owned(),
            role: "tool",
            content: event.content.as_ref().map(AgUiMessageContent::from),
            tool_call_id: Some(call_id.to_owned()),
            subagent_run_id: event.subagent_run_id.map(str::to_owned),
            metadata: metadata_of(event),
            ..AgUiMessage::default()
        };
        let has_call = |message: &AgUiMessage| message.tool_calls.iter().flatten().any(|call| call.id == call_id);
        let place = match self.messages.iter().rposition(has_call) {
            None => self.messages.len(),
            Some(owner) => {
                let results = self.messages.iter().skip(owner + 1).take_while(|message| message.role == "tool");
                owner + 1 + results.count()
            }
        };
        self.messages.insert(place, message);
    }

    fn set_activity(&mut self, event: &AgUiEvent<'_>) {
        let (Some(id), Some(activity_type), Some(AgUiContent::Object(content))) =
            (event.message_id.as_deref(), event.activity_type, &event.content)
        else {
            return;
        };
        let message = AgUiMessage {
            id: id.to_owned(),
            role: "activity",
            content: Some(AgUiMessageContent::Object(content.clone().into_owned())),
            activity_type: Some(activity_type.to_owned()),
            subagent_run_id: event.subagent_run_id.map(str::to_owned),
            ..AgUiMessage::default()
        };
        match self.find(id) {
            None => self.messages.push(message),
            Some(known) if event.replace != Some(false) => *known = message,
            Some(_) => {}
        }
    }

    /// Patches an activity; a patch that does not apply is ignored, as clients do.
    fn patch_activity(&mut self, event: &AgUiEvent<'_>) {
        let (Some(id), Some(activity_type), Some(patch)) =
            (event.message_id.as_deref(), event.activity_type, event.patch)
        else {
            return;
        };
        let Some(AgUiMessage { content: Some(AgUiMessageContent::Object(content)), activity_type: known, .. }) =
            self.find(id)
        else {
            return;
        };
        if let Some(patched) = patched_value(content, patch) {
            *content = patched;
            *known = Some(activity_type.to_owned());
        }
    }

    fn add_input(&mut self, event: &AgUiEvent<'_>) {
        for message in event.input.iter().flat_map(|input| &input.messages) {
            if self.find(&message.id).is_none() {
                self.messages.push(message.clone());
            }
        }
    }
}

fn metadata_of(event: &AgUiEvent<'_>) -> Option<Box<RawValue>> {
    event.metadata.as_ref().map(to_raw_json)
}

fn patched_value(value: &Value, operations: &[Value]) -> Option<Value> {
    let patch: json_patch::Patch = serde_json::from_value(Value::Array(operations.to_vec())).ok()?;
    let mut patched = value.clone();
    json_patch::patch(&mut patched, &patch).ok()?;
    Some(patched)
}

impl AgUiSink for MessageList {
    fn push(&mut self, event: &AgUiEvent<'_>) {
        match event.event_type {
            "RUN_STARTED" => self.add_input(event),
            "TEXT_MESSAGE_START" | "REASONING_MESSAGE_START" => self.start_text(event),
            "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT" => self.append_text(event),
            "TEXT_MESSAGE_END" => self.end_text(event),
            "TOOL_CALL_START" => self.start_call(event),
            "TOOL_CALL_ARGS" => self.append_arguments(event),
            "TOOL_CALL_RESULT" => self.add_result(event),
            "ACTIVITY_SNAPSHOT" => self.set_activity(event),
            "ACTIVITY_DELTA" => self.patch_activity(event),
            // The others change no message.
            _ => {}
        }
    }
}
