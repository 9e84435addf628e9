//! Items of the log as items of a response.

use super::super::wire::{
    AnnotationObject, FunctionCallItem, ItemObject, McpApprovalRequestItem, McpCallError, McpCallItem, MessageItem,
    PartObject, ReasoningItem, SERVER_LABEL,
};
use crate::record_frames::to_json_value;
use crate::tool_results::result_text;
use model::content::TextBlock;
use model::event::ApprovalRequested;
use model::fold::{ItemFold, RunFold, TaskFold};
use model::item::{
    Block, CallKind, Item, ItemStatus, Message, Reasoning, ResultStatus, SummaryPart, ToolCall, ToolResult,
};
use model::json::ExactValue;
use serde_json::Value;

/// Whether an item's `done` event has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItemPhase {
    Open,
    Done,
}

impl From<&ItemFold> for ItemPhase {
    fn from(fold: &ItemFold) -> Self {
        if fold.done { Self::Done } else { Self::Open }
    }
}

/// The status of an item, as one of the names that all item types share.
pub(super) const fn item_status(status: Option<ItemStatus>, phase: ItemPhase) -> &'static str {
    match (status, phase) {
        (Some(ItemStatus::Incomplete | ItemStatus::Failed), _) => "incomplete",
        (_, ItemPhase::Done) => "completed",
        (_, ItemPhase::Open) => "in_progress",
    }
}

pub(super) fn reasoning_item(item: &Reasoning, phase: ItemPhase) -> ItemObject<'_> {
    ItemObject::Reasoning(ReasoningItem {
        id: item.id.as_str(),
        status: item_status(item.status, phase),
        summary: item.summary.iter().flatten().map(|part| PartObject::summary_text(part.text())).collect(),
        item_type: "reasoning",
    })
}

/// A message of the model. Its parts are its texts: a response has no place for images in a message.
pub(super) fn message_item<'a>(
    item: &'a Message,
    phase: ItemPhase,
    references_url: &str,
    logprobs: impl Fn(usize) -> &'a [Value],
) -> ItemObject<'a> {
    let blocks = item.block_list.iter().flatten().enumerate();
    let content = blocks.filter_map(|(index, block)| match block {
        Block::Text(text) => Some(content_part(text, references_url, logprobs(index))),
        _ => None,
    });
    ItemObject::Message(MessageItem {
        content: content.collect(),
        id: item.id.as_str().into(),
        phase: item.phase.as_deref(),
        role: "assistant",
        status: item_status(item.status, phase),
        item_type: "message",
    })
}

pub(super) fn content_part<'a>(block: &'a TextBlock, references_url: &str, logprobs: &'a [Value]) -> PartObject<'a> {
    if is_refusal(block) {
        return PartObject::refusal(block.text());
    }
    let annotations = block.annotations.iter().flatten();
    let annotations = annotations.map(|annotation| AnnotationObject::new(annotation, references_url)).collect();
    PartObject::output_text(block.text(), annotations, logprobs)
}

pub(super) fn is_refusal(block: &TextBlock) -> bool {
    block.refusal == Some(true)
}

/// A call that the client answers.
pub(super) fn function_call_item<'a>(call: &'a ToolCall, arguments: &'a str, status: &'static str) -> ItemObject<'a> {
    ItemObject::FunctionCall(FunctionCallItem {
        arguments,
        call_id: call.call_id.as_str(),
        id: call.id.as_str().into(),
        name: &call.name,
        status,
        item_type: "function_call",
    })
}

/// A call that a person is asked about.
pub(crate) fn approval_request_item<'a>(request: &'a ApprovalRequested, call: &'a ToolCall) -> ItemObject<'a> {
    ItemObject::McpApprovalRequest(McpApprovalRequestItem {
        arguments: approval_arguments(request, call),
        id: request.key.as_str(),
        name: call.own_tool_name(),
        note: request.action_requests.first().and_then(|action| action.note.as_deref()),
        server_label: server_label(call),
        question: request.question.as_ref(),
        item_type: "mcp_approval_request",
    })
}

/// The arguments that a person is asked about. Those of a question are what it asks; those of a call are as the model wrote them, unless other arguments would be run.
pub(crate) fn approval_arguments(request: &ApprovalRequested, call: &ToolCall) -> String {
    if let Some(question) = &request.question {
        return to_json_value(question).to_string();
    }
    let written = call.arguments.clone().unwrap_or_default();
    match request.action_requests.first() {
        Some(action) if !call.has_same_arguments(&action.args) && !is_rounded(&action.args, &written) => {
            action.args.to_string()
        }
        _ => written,
    }
}

/// Earlier versions logged what they asked with the nearest numbers of 64 bits.
fn is_rounded(args: &ExactValue, written: &str) -> bool {
    ExactValue::parse(written).is_ok_and(|written| ExactValue::from(written.to_value()) == *args)
}

/// The outcome of a call that the server answers.
#[derive(Clone, Debug, Default)]
pub(super) struct McpCallOutcome {
    pub(super) status: &'static str,
    pub(super) output: Option<String>,
    pub(super) error: Option<String>,
}

impl McpCallOutcome {
    pub(super) const IN_PROGRESS: Self = Self { status: "in_progress", output: None, error: None };
    /// The response ends before the call does.
    pub(super) const INCOMPLETE: Self = Self { status: "incomplete", output: None, error: None };

    pub(super) fn from_result(run: &RunFold, task: &TaskFold, result: &ToolResult) -> Self {
        let error =
            || result.error.as_ref().map(|error| if error.message.is_empty() { &error.code } else { &error.message });
        match result.status {
            None | Some(ResultStatus::InProgress | ResultStatus::Completed) => {
                Self { status: "completed", output: Some(result_text(run, task, result)), error: None }
            }
            Some(ResultStatus::Incomplete) => Self { status: "incomplete", output: None, error: error().cloned() },
            Some(ResultStatus::Failed | ResultStatus::Rejected | ResultStatus::Unknown) => {
                let error = error().cloned().unwrap_or_else(|| result_text(run, task, result));
                Self { status: "failed", output: None, error: Some(error) }
            }
        }
    }
}

/// A call that the server answers.
pub(super) fn mcp_call_item<'a>(
    call: &'a ToolCall,
    arguments: &'a str,
    approval_request_id: Option<&'a str>,
    outcome: &'a McpCallOutcome,
) -> ItemObject<'a> {
    ItemObject::McpCall(Box::new(McpCallItem {
        approval_request_id,
        arguments,
        error: outcome.error.as_deref().map(McpCallError::new),
        id: call.call_id.item_id("mcp").to_string(),
        name: call.own_tool_name(),
        output: outcome.output.as_deref(),
        server_label: server_label(call),
        status: outcome.status,
        item_type: "mcp_call",
    }))
}

/// The MCP server that has the tool; this server's own tools count as one.
fn server_label(call: &ToolCall) -> &str {
    call.server_label.as_deref().unwrap_or(SERVER_LABEL)
}

/// The question of a provider that wants to call a tool of its own. The key is known before the approval is requested.
pub(super) fn hosted_request_item<'a>(call: &'a ToolCall, key: &'a str) -> ItemObject<'a> {
    ItemObject::McpApprovalRequest(McpApprovalRequestItem {
        arguments: call.arguments.clone().unwrap_or_default(),
        id: key,
        name: call.own_tool_name(),
        note: None,
        server_label: server_label(call),
        question: None,
        item_type: "mcp_approval_request",
    })
}

pub(super) fn is_hosted_request(call: &ToolCall) -> bool {
    call.kind == Some(CallKind::Hosted)
}

pub(super) fn is_client_call(call: &ToolCall) -> bool {
    call.kind == Some(CallKind::Client)
}

/// The text of a summary part, from the run so far.
pub(super) fn summary_text(item: &Item, index: u32) -> &str {
    let Item::Reasoning(reasoning) = item else { return "" };
    reasoning.summary.as_deref().unwrap_or_default().get(index as usize).map_or("", SummaryPart::text)
}
