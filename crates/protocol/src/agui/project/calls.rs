//! Calls and their results.

use super::EventProjector;
use super::events::call_start;
use crate::agui::AgUiVersion;
use crate::agui::wire::{AgUiContent, AgUiDelta, AgUiDetails, AgUiEvent, AgUiPart, AgUiSource, AgUiStatus, AgUiValue};
use crate::hosted_calls::{
    has_complete_arguments, hosted_arguments, hosted_call_succeeded, hosted_error_text, hosted_output_text,
};
use crate::tool_results::{result_or_error_text, subagent_of_result};
use model::event::{ArgumentsDelta, ArgumentsDone};
use model::item::{Block, CallKind, HostedCall, Item, MCP_LIST_TOOLS, ResultStatus, ToolCall, ToolResult};
use serde::Serialize;
use serde_json::{Value, json};
use std::borrow::Cow;

/// Text of a result that the tool has not finished.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResultPiece<'a> {
    block_index: u32,
    delta: &'a str,
    tool_call_id: &'a str,
}

impl<'a> EventProjector<'a, '_> {
    /// The calls of a step belong to its last message, or else to a message with the id of the first call.
    fn place_call(&mut self, call_id: &str) -> Option<Cow<'a, str>> {
        let known = self.state.step_messages.get(&self.task.id).cloned();
        if known.is_none() {
            self.state.step_messages.insert(self.task.id.clone(), call_id.to_owned());
        }
        known.map(Cow::Owned)
    }

    pub(super) fn start_call(&mut self, call: &'a ToolCall) {
        let message_id = self.place_call(call.call_id.as_str());
        self.push(call_start(self.task, call, message_id));
        self.push_arguments(call.call_id.as_str(), call.arguments.as_deref().unwrap_or_default());
    }

    pub(super) fn on_arguments_delta(&mut self, e: &'a ArgumentsDelta) {
        if let Some(call) = self.call_at(e.output_index) {
            self.push_arguments(call.call_id.as_str(), &e.delta);
        }
    }

    pub(super) fn on_arguments_done(&mut self, e: &'a ArgumentsDone) {
        if let Some(call) = self.call_at(e.output_index) {
            self.end_call(call.call_id.as_str());
        }
    }

    fn call_at(&self, output_index: u32) -> Option<&'a ToolCall> {
        match &self.task.items.get(output_index as usize)?.item {
            Item::ToolCall(call) => Some(call),
            _ => None,
        }
    }

    fn push_arguments(&mut self, call_id: &str, delta: &str) {
        if !delta.is_empty() {
            let (tool_call_id, delta) = (Some(call_id), Some(AgUiDelta::Text(delta)));
            self.push_tagged(AgUiEvent { tool_call_id, delta, ..AgUiEvent::new("TOOL_CALL_ARGS") });
        }
    }

    pub(super) fn end_call(&mut self, call_id: &str) {
        self.push_tagged(AgUiEvent { tool_call_id: Some(call_id), ..AgUiEvent::new("TOOL_CALL_END") });
    }

    pub(super) fn push_result(&mut self, result: &'a ToolResult) {
        let call = self.task.call(&result.call_id).map(|(_, call)| call);
        let changed = call.filter(|call| call.original_arguments.is_some());
        let details = AgUiDetails {
            status: Some(AgUiStatus::Result(result.status.unwrap_or(ResultStatus::Completed))),
            error: result.error.as_ref(),
            reason: result.reason,
            arguments: changed.and_then(|call| call.arguments.as_deref()),
            artifact: result.artifact.as_ref(),
            ui_hints: result.ui_hints.as_ref(),
            ..AgUiDetails::default()
        };
        self.push_tagged(AgUiEvent {
            message_id: Some(result.id.as_str().into()),
            tool_call_id: Some(result.call_id.as_str()),
            role: Some("tool"),
            content: Some(self.result_content(result)),
            metadata: Some(details.into()),
            ..AgUiEvent::new("TOOL_CALL_RESULT")
        });
    }

    /// A result with pictures has parts, for clients that accept them.
    fn result_content(&self, result: &'a ToolResult) -> AgUiContent<'a> {
        let status = result.status.unwrap_or(ResultStatus::Completed);
        let blocks = result.block_list.as_deref().unwrap_or_default();
        let has_pictures = blocks.iter().any(|block| matches!(block, Block::Image(_)));
        let is_own = subagent_of_result(self.run, self.task, result).is_none();
        if self.options.version == AgUiVersion::V0_0_59 || !has_pictures || !is_own || status != ResultStatus::Completed
        {
            return AgUiContent::Text(result_or_error_text(self.run, self.task, result, status));
        }
        let parts = blocks.iter().filter_map(|block| match block {
            Block::Text(text) => Some(AgUiPart::Text { text: text.text() }),
            Block::Image(image) => Some(AgUiPart::Image { source: AgUiSource::from_url(&image.image_url.url) }),
            Block::Reasoning(_)
            | Block::ToolCall(_)
            | Block::ToolResult(_)
            | Block::Message(_)
            | Block::HostedCall(_)
            | Block::FileProcessing(_) => None,
        });
        AgUiContent::Parts(parts.collect())
    }

    pub(super) fn push_result_piece(&mut self, tool_call_id: &str, block_index: u32, delta: &str) {
        let piece = ResultPiece { block_index, delta, tool_call_id };
        self.push_custom("headwater.tool_output", AgUiValue::new(&piece));
    }

    /// Sends a hosted call as soon as its arguments are complete.
    pub(super) fn send_hosted_call(&mut self, output_index: u32) {
        let Some(Item::HostedCall(call)) = self.task.items.get(output_index as usize).map(|fold| &fold.item) else {
            return;
        };
        if has_complete_arguments(call) {
            self.start_hosted_call(call);
        }
    }

    fn start_hosted_call(&mut self, call: &'a HostedCall) {
        if call.name == MCP_LIST_TOOLS || self.state.sent_hosted_calls.contains(&call.id) {
            return;
        }
        self.state.sent_hosted_calls.push(call.id.clone());
        let id = call.id.as_str();
        let details =
            AgUiDetails { kind: Some(CallKind::Hosted), server_label: call.server_label(), ..AgUiDetails::default() };
        let parent_message_id = self.place_call(id);
        self.push_tagged(AgUiEvent {
            tool_call_id: Some(id),
            tool_call_name: Some(call.tool_name()),
            parent_message_id,
            metadata: Some(details.into()),
            ..AgUiEvent::new("TOOL_CALL_START")
        });
        let arguments = serde_json::to_string(&hosted_arguments(call)).unwrap_or_default();
        self.push_arguments(id, &arguments);
        self.end_call(id);
    }

    pub(super) fn end_hosted_call(&mut self, call: &'a HostedCall) {
        if call.name == MCP_LIST_TOOLS {
            return self.push_tool_list(call);
        }
        self.start_hosted_call(call);
        self.state.sent_hosted_calls.retain(|sent| *sent != call.id);
        let status = if hosted_call_succeeded(call) { ResultStatus::Completed } else { ResultStatus::Failed };
        let details =
            AgUiDetails { status: Some(AgUiStatus::Result(status)), reason: call.reason, ..AgUiDetails::default() };
        // The message of the call may have the id of the call.
        self.push_tagged(AgUiEvent {
            message_id: Some(format!("{}-result", call.id).into()),
            tool_call_id: Some(call.id.as_str()),
            role: Some("tool"),
            content: Some(AgUiContent::Text(hosted_output_text(call))),
            metadata: Some(details.into()),
            ..AgUiEvent::new("TOOL_CALL_RESULT")
        });
    }

    /// The tools of an MCP server, by name.
    fn push_tool_list(&mut self, call: &'a HostedCall) {
        let tools = call.output().and_then(Value::as_array).into_iter().flatten();
        let names: Vec<&str> = tools.filter_map(|tool| tool.get("name")?.as_str()).collect();
        let mut content = json!({"serverLabel": call.server_label(), "tools": names});
        if let (Some(error), Some(members)) = (hosted_error_text(call), content.as_object_mut()) {
            members.insert("error".to_owned(), error.into());
        }
        self.push_activity(call.id.as_str().into(), MCP_LIST_TOOLS, AgUiContent::Object(Cow::Owned(content)));
    }
}
