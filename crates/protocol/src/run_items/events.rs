//! The events of a loop. Item events have the names that clients of such loops know, the misspelt one included.

use crate::responses::{approval_arguments, result_text};
use model::error::ErrorCode;
use model::event::{PendingKind, PendingRequest};
use model::fold::{RunFold, TaskFold};
use model::item::Block;
use model::item::{CallKind, Item, ItemStatus, ResultStatus, ToolCall, ToolResult};
use model::task::TaskStatus;
use serde_json::{Value, json};

/// The tool behind which there is a screen.
const COMPUTER_TOOL: &str = "computer";

/// Who speaks from here on.
pub(super) fn agent_updated(name: &str) -> Value {
    json!({"type": "agent_updated_stream_event", "new_agent": {"name": name}})
}

/// An item of a turn is whole. One that was cut says nothing.
pub(super) fn item_created(root: &TaskFold, item: &Item, raw: Value) -> Option<Value> {
    let (status, agent) = match item {
        Item::Reasoning(item) => (item.status, &item.agent),
        Item::Message(item) => (item.status, &item.agent),
        Item::ToolCall(item) => (item.status, &item.agent),
        Item::HostedCall(item) => (item.status, &item.agent),
        Item::ToolResult(_) | Item::FileProcessing(_) => return None,
    };
    if status == Some(ItemStatus::Incomplete) {
        return None;
    }
    let (name, kind, raw) = match item {
        Item::Reasoning(_) => ("reasoning_item_created", "reasoning_item", raw),
        Item::Message(_) => ("message_output_created", "message_output_item", raw),
        Item::ToolCall(call) if call.kind == Some(CallKind::Handoff) => ("handoff_requested", "handoff_call_item", raw),
        Item::ToolCall(call) => ("tool_called", "tool_call_item", computer_call(call).unwrap_or(raw)),
        Item::HostedCall(call) if call.name == "mcp_list_tools" => ("mcp_list_tools", "mcp_list_tools_item", raw),
        _ => ("tool_called", "tool_call_item", raw),
    };
    let agent = agent.as_deref().unwrap_or(&root.agent);
    Some(run_item_event(name, &json!({"type": kind, "agent": {"name": agent}, "raw_item": raw})))
}

/// A call got its result. One that was given up says nothing.
pub(super) fn tool_output(run: &RunFold, root: &TaskFold, result: &ToolResult) -> Option<Value> {
    let (_, call) = root.call(&result.call_id)?;
    let status = result.status.unwrap_or(ResultStatus::Completed);
    if status == ResultStatus::Incomplete {
        return None;
    }
    let went_well = status == ResultStatus::Completed;
    let (name, kind) = match call.kind {
        Some(CallKind::Handoff) if went_well => ("handoff_occured", "handoff_output_item"),
        _ => ("tool_output", "tool_call_output_item"),
    };
    let output = output_text(run, root, result, status);
    let screen = if call.name == COMPUTER_TOOL { screenshot(result) } else { None };
    let (raw, output) = match screen {
        Some(url) => {
            let screen = json!({"type": "computer_screenshot", "image_url": url});
            (json!({"type": "computer_call_output", "call_id": call.call_id, "output": screen}), url.to_owned())
        }
        None => (json!({"type": "function_call_output", "call_id": call.call_id, "output": output}), output),
    };
    let agent = result.agent.as_deref().or(call.agent.as_deref()).unwrap_or(&root.agent);
    Some(run_item_event(name, &json!({"type": kind, "agent": {"name": agent}, "raw_item": raw, "output": output})))
}

fn run_item_event(name: &str, item: &Value) -> Value {
    json!({"type": "run_item_stream_event", "name": name, "item": item})
}

/// What a call gave, in words: also when it gave nothing but a reason.
fn output_text(run: &RunFold, root: &TaskFold, result: &ToolResult, status: ResultStatus) -> String {
    let why = result.error.as_ref().map(|error| {
        let words = if error.message.is_empty() { &error.code } else { &error.message };
        match status {
            ResultStatus::Rejected if error.has_code(ErrorCode::Rejected) => format!("Rejected: {words}"),
            _ => words.clone(),
        }
    });
    why.filter(|_| status != ResultStatus::Completed).unwrap_or_else(|| result_text(run, root, result))
}

/// A call of the computer, in its own shape: one action by itself, several as a list.
fn computer_call(call: &ToolCall) -> Option<Value> {
    if call.name != COMPUTER_TOOL {
        return None;
    }
    let arguments: Value = serde_json::from_str(call.arguments.as_deref()?).ok()?;
    let actions = arguments.get("actions")?.as_array()?;
    let checks = arguments.get("pending_safety_checks").cloned().unwrap_or_else(|| json!([]));
    let mut item = json!({
        "id": call.id, "type": "computer_call", "call_id": call.call_id, "pending_safety_checks": checks,
        "status": "completed",
    });
    let (key, value) = match actions.as_slice() {
        [one] => ("action", one.clone()),
        _ => ("actions", actions.clone().into()),
    };
    item.as_object_mut()?.insert(key.to_owned(), value);
    Some(item)
}

fn screenshot(result: &ToolResult) -> Option<&str> {
    result.block_list.iter().flatten().rev().find_map(|block| match block {
        Block::Image(image) => Some(image.image_url.url.as_str()),
        _ => None,
    })
}

/// The run waits for people.
pub(super) fn run_paused(run: &RunFold, pending: &[PendingRequest]) -> Value {
    let asks = pending.iter().any(|pending| pending.kind == PendingKind::Approval);
    let reason = if asks { "approval" } else { "client_tool" };
    let interruptions: Vec<Value> = pending.iter().filter_map(|pending| interruption(run, pending)).collect();
    json!({"type": "run_paused", "reason": reason, "interruptions": interruptions})
}

fn interruption(run: &RunFold, pending: &PendingRequest) -> Option<Value> {
    let task = run.task(&pending.task_id)?;
    let (_, call) = task.call(&pending.call_id)?;
    let arguments = match (pending.kind, task.last_approval(&pending.call_id)) {
        (PendingKind::Approval, Some((asked, _))) => approval_arguments(asked, call),
        _ => call.arguments.clone().unwrap_or_default(),
    };
    Some(json!({"key": pending.key, "call_id": call.call_id, "tool_name": call.name, "arguments": arguments}))
}

/// The run ended.
pub(super) fn run_ended(root: &TaskFold) -> Value {
    let failed = root.error.as_ref().filter(|_| root.status == TaskStatus::Failed);
    let reason = root.reason.as_deref().or(failed.map(|error| error.code.as_str()));
    let status = root.status.as_str();
    let mut ended = json!({"type": "run_ended", "status": status, "reason": reason, "interruptions": []});
    if let (Some(error), Some(ended)) = (failed, ended.as_object_mut()) {
        ended.insert("error".to_owned(), json!({"code": error.code, "message": error.message}));
    }
    ended
}
