//! Items of the log in the shape of a response's items.

use crate::responses::SERVER_LABEL;
use model::content::{Annotation, TextBlock};
use model::event::ApprovalRequested;
use model::fold::{RunFold, TaskFold};
use model::item::{Block, plain_text};
use model::item::{CallKind, Item, ItemStatus, Message, Reasoning, ResultStatus, SummaryPart, ToolCall, ToolResult};
use serde_json::{Value, json};

/// How far an item is, in the word that every item has for it.
pub(super) const fn item_status(said: Option<ItemStatus>, closed: bool) -> &'static str {
    match said {
        Some(ItemStatus::Incomplete | ItemStatus::Failed) => "incomplete",
        _ if closed => "completed",
        _ => "in_progress",
    }
}

/// What the model thought.
pub(super) fn reasoning_item(item: &Reasoning, closed: bool) -> Value {
    let parts: Vec<Value> = item.summary.iter().flatten().map(|part| summary_part(part.text())).collect();
    json!({"id": item.id, "type": "reasoning", "summary": parts, "status": item_status(item.status, closed)})
}

/// One part of what it thought.
pub(super) fn summary_part(text: &str) -> Value {
    json!({"type": "summary_text", "text": text})
}

/// What the model said. Pictures have no place in a message here: its parts are its texts, counted without them.
pub(super) fn message_item(
    item: &Message,
    closed: bool,
    references: &str,
    logprobs: impl Fn(usize) -> Vec<Value>,
) -> Value {
    let blocks = item.block_list.iter().flatten().enumerate();
    let parts = blocks.filter_map(|(place, block)| match block {
        Block::Text(text) => Some(content_part(text, references, &logprobs(place))),
        _ => None,
    });
    let parts: Vec<Value> = parts.collect();
    let status = item_status(item.status, closed);
    let mut value = json!({"id": item.id, "type": "message", "role": "assistant", "content": parts, "status": status});
    if let (Some(phase), Some(object)) = (&item.phase, value.as_object_mut()) {
        object.insert("phase".to_owned(), phase.as_str().into());
    }
    value
}

/// One part of what it said.
pub(super) fn content_part(block: &TextBlock, references: &str, logprobs: &[Value]) -> Value {
    if is_refusal(block) {
        return json!({"type": "refusal", "refusal": block.text()});
    }
    let annotations: Vec<Value> =
        block.annotations.iter().flatten().map(|annotation| annotation_object(annotation, references)).collect();
    json!({"type": "output_text", "text": block.text(), "annotations": annotations, "logprobs": logprobs})
}

/// Did the model decline?
pub(super) fn is_refusal(block: &TextBlock) -> bool {
    block.refusal == Some(true)
}

/// What a place in a text refers to. `references` is the address of the thread's own groups.
pub(super) fn annotation_object(annotation: &Annotation, references: &str) -> Value {
    match annotation {
        Annotation::ReferenceToBlock { reference_id, start_index, end_index } => json!({
            "type": "url_citation", "url": format!("{references}{reference_id}"), "title": format!("[{reference_id}]"),
            "start_index": start_index, "end_index": end_index,
        }),
        Annotation::UrlCitation { url, title, start_index, end_index } => json!({
            "type": "url_citation", "url": url, "title": title.as_deref().unwrap_or(url),
            "start_index": start_index, "end_index": end_index,
        }),
        Annotation::FileCitation { file_id, filename, index } => json!({
            "type": "file_citation", "file_id": file_id, "filename": filename.as_deref().unwrap_or(file_id),
            "index": index,
        }),
    }
}

/// A call that the client answers.
pub(super) fn function_call_item(call: &ToolCall, arguments: &str, status: &str) -> Value {
    json!({
        "id": call.id, "type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": arguments,
        "status": status,
    })
}

/// A call that a person is asked about.
pub(super) fn approval_request_item(asked: &ApprovalRequested, call: &ToolCall) -> Value {
    let arguments = approval_arguments(asked, call);
    json!({
        "id": asked.key, "type": "mcp_approval_request", "server_label": SERVER_LABEL, "name": call.name,
        "arguments": arguments,
    })
}

/// The arguments that a person is asked about: as the model wrote them, unless they are not what would be run.
pub(crate) fn approval_arguments(asked: &ApprovalRequested, call: &ToolCall) -> String {
    let written = call.arguments.clone().unwrap_or_default();
    match asked.action_requests.first() {
        Some(action) if serde_json::from_str::<Value>(&written).ok().as_ref() != Some(&action.args) => {
            action.args.to_string()
        }
        _ => written,
    }
}

/// What became of a call, as an `mcp_call` says it.
#[derive(Clone, Debug, Default)]
pub(super) struct McpCallOutcome {
    pub(super) status: &'static str,
    pub(super) output: Option<String>,
    pub(super) error: Option<String>,
}

impl McpCallOutcome {
    /// Nothing yet.
    pub(super) const IN_PROGRESS: Self = Self { status: "in_progress", output: None, error: None };
    /// It will not come, here or at all.
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
                let why = error().cloned().unwrap_or_else(|| result_text(run, task, result));
                Self { status: "failed", output: None, error: Some(why) }
            }
        }
    }
}

/// A call that the server answers.
pub(super) fn mcp_call_item(
    call: &ToolCall,
    arguments: &str,
    approval: Option<&str>,
    outcome: &McpCallOutcome,
) -> Value {
    let error = outcome.error.as_ref();
    let error =
        error.map(|why| json!({"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": why}]}));
    json!({
        "id": call.call_id.item_id("mcp"), "type": "mcp_call", "server_label": SERVER_LABEL, "name": call.name,
        "arguments": arguments, "status": outcome.status, "output": outcome.output, "error": error,
        "approval_request_id": approval,
    })
}

/// The plain text of a result; of a sub-agent, its last message.
pub(crate) fn result_text(run: &RunFold, task: &TaskFold, result: &ToolResult) -> String {
    let child =
        run.task(&result.call_id.child_task_id()).filter(|child| child.spec.parent_task_id.as_ref() == Some(&task.id));
    let Some(child) = child else { return plain_text(result.block_list.as_deref().unwrap_or_default()) };
    let last = child.items.iter().rev().filter(|fold| !fold.superseded).find_map(|fold| match &fold.item {
        Item::Message(message) => Some(message.text()),
        _ => None,
    });
    last.unwrap_or_default()
}

/// Does the client answer it?
pub(super) fn is_client_call(call: &ToolCall) -> bool {
    call.kind == Some(CallKind::Client)
}

/// The words of a summary part, from the run so far.
pub(super) fn summary_text(item: &Item, index: u32) -> &str {
    let Item::Reasoning(reasoning) = item else { return "" };
    reasoning.summary.as_deref().unwrap_or_default().get(index as usize).map_or("", SummaryPart::text)
}
