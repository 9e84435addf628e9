//! The events that open a text, a part of a reasoning or a call: at its first record, and again when a client joins.

use super::subagent_id;
use crate::agui::wire::{AgUiDetails, AgUiEvent};
use model::fold::TaskFold;
use model::item::{Message, Reasoning, ToolCall};
use std::borrow::Cow;

/// A text with the name of its agent, where that is not the one that the run started with.
pub(in crate::agui) fn text_start<'a>(task: &'a TaskFold, message: &'a Message) -> AgUiEvent<'a> {
    let agent = message.agent.as_deref().unwrap_or(&task.agent);
    AgUiEvent {
        subagent_run_id: subagent_id(task),
        message_id: Some(message.id.as_str().into()),
        role: Some("assistant"),
        name: (agent != task.spec.agent).then_some(agent),
        ..AgUiEvent::new("TEXT_MESSAGE_START")
    }
}

/// The id of a part of a reasoning, counted from 0. The first one has the id of the whole.
pub(in crate::agui) fn reasoning_message_id(reasoning: &str, part: u32) -> Cow<'_, str> {
    if part == 0 { reasoning.into() } else { format!("{reasoning}-{}", part.saturating_add(1)).into() }
}

pub(in crate::agui) fn reasoning_message_start<'a>(
    task: &'a TaskFold,
    reasoning: &'a Reasoning,
    part: u32,
) -> AgUiEvent<'a> {
    AgUiEvent {
        subagent_run_id: subagent_id(task),
        message_id: Some(reasoning_message_id(reasoning.id.as_str(), part)),
        role: Some("reasoning"),
        ..AgUiEvent::new("REASONING_MESSAGE_START")
    }
}

/// A call, in the assistant message of this id. Without one, clients create a message with the id of the call.
pub(in crate::agui) fn call_start<'a>(
    task: &'a TaskFold,
    call: &'a ToolCall,
    message_id: Option<Cow<'a, str>>,
) -> AgUiEvent<'a> {
    let details = AgUiDetails {
        kind: call.kind,
        display_name: call.display_name.as_deref(),
        gate: call.gate,
        server_label: call.server_label.as_deref(),
        server_tool: call.server_tool.as_deref(),
        ..AgUiDetails::default()
    };
    AgUiEvent {
        subagent_run_id: subagent_id(task),
        tool_call_id: Some(call.call_id.as_str()),
        tool_call_name: Some(&call.name),
        parent_message_id: message_id,
        metadata: Some(details.into()),
        ..AgUiEvent::new("TOOL_CALL_START")
    }
}
