//! The text of a tool result. The result of a sub-agent is the last message that the sub-agent wrote.

use model::error::ErrorCode;
use model::fold::{RunFold, TaskFold};
use model::item::{Item, Message, ResultStatus, ToolResult, plain_text};

pub(crate) fn subagent_of_result<'a>(run: &'a RunFold, task: &TaskFold, result: &ToolResult) -> Option<&'a TaskFold> {
    let child = run.task(&result.call_id.child_task_id())?;
    (child.spec.parent_task_id.as_ref() == Some(&task.id)).then_some(child)
}

/// The messages of a task, newest first, without those that a later attempt replaced.
pub(crate) fn latest_messages(task: &TaskFold) -> impl Iterator<Item = &Message> {
    task.items.iter().rev().filter(|fold| !fold.superseded).filter_map(|fold| match &fold.item {
        Item::Message(message) => Some(message),
        Item::Reasoning(_)
        | Item::ToolCall(_)
        | Item::ToolResult(_)
        | Item::HostedCall(_)
        | Item::FileProcessing(_) => None,
    })
}

pub(crate) fn result_text(run: &RunFold, task: &TaskFold, result: &ToolResult) -> String {
    match subagent_of_result(run, task, result) {
        Some(child) => latest_messages(child).next().map(Message::text).unwrap_or_default(),
        None => plain_text(result.block_list.as_deref().unwrap_or_default()),
    }
}

/// The text of a result, or the reason why there is none.
pub(crate) fn result_or_error_text(
    run: &RunFold,
    task: &TaskFold,
    result: &ToolResult,
    status: ResultStatus,
) -> String {
    let reason = result.error.as_ref().map(|error| {
        let text = if error.message.is_empty() { &error.code } else { &error.message };
        match status {
            ResultStatus::Rejected if error.has_code(ErrorCode::Rejected) => format!("Rejected: {text}"),
            _ => text.clone(),
        }
    });
    reason.filter(|_| status != ResultStatus::Completed).unwrap_or_else(|| result_text(run, task, result))
}
