//! Messages and calls → their outputs.

use super::wire::{OutputError, ToolAgentOutput, ToolStatus, WorkerAgentOutput, WorkerStatus};
use crate::hosted_calls::{hosted_arguments, hosted_call_succeeded, hosted_error_text, hosted_output_text};
use crate::tool_results::result_text;
use model::error::ErrorInfo;
use model::fold::{RunFold, TaskFold};
use model::item::{CallKind, HostedCall, IncompleteReason, Item, ItemStatus, Message, ResultStatus, ToolResult};
use model::json::{ExactObject, JsonObject, parse_exact_object, to_exact_object};
use model::{CallId, TaskId};
use serde::Deserialize;
use serde_json::Value;

/// The length of a summary, in code points.
const SUMMARY_CHARS_MAX: usize = 500;

impl OutputError {
    fn new(code: &str, message: &str) -> Self {
        Self { code: code.to_owned(), message: message.to_owned(), retryable: None, details: None }
    }
}

impl From<&ErrorInfo> for OutputError {
    fn from(error: &ErrorInfo) -> Self {
        let details = error.details.as_ref().and_then(Value::as_object).cloned();
        Self { code: error.code.clone(), message: error.message.clone(), retryable: error.retryable, details }
    }
}

/// The answer of a model that was instructed to answer in this shape. A plain text has none of these fields.
#[derive(Deserialize)]
struct StructuredAnswer {
    answer: String,
    status: Option<WorkerStatus>,
    key_points: Option<Vec<String>>,
    result_type: Option<String>,
    suggested_actions: Option<Vec<String>>,
    error: Option<JsonObject>,
    ui_hints: Option<JsonObject>,
}

impl StructuredAnswer {
    /// The answer and its error; `None` if the text is anything else.
    fn parse(text: &str) -> Option<(Self, Option<OutputError>)> {
        // Serde would accept a list for a struct.
        let mut answer: Self = serde_json::from_str(text).ok().filter(|_| text.trim_start().starts_with('{'))?;
        let error = answer.error.take().map(|error| serde_json::from_value(Value::Object(error))).transpose().ok()?;
        Some((answer, error))
    }
}

impl WorkerAgentOutput {
    /// The output of a message that has ended.
    pub fn from_message(message: &Message) -> Self {
        let text = message.text();
        let interruption = interruption(message);
        // One field of another type means that the text is other JSON, and the answer itself.
        if let Some((parsed, error)) = StructuredAnswer::parse(&text) {
            let status = parsed.status.unwrap_or(WorkerStatus::Success);
            let (status, error) = interruption.map_or((status, error), |(status, error)| (status, Some(error)));
            return Self {
                status,
                answer: parsed.answer,
                key_points: parsed.key_points,
                result_type: parsed.result_type,
                suggested_actions: parsed.suggested_actions,
                error,
                ui_hints: parsed.ui_hints,
            };
        }
        let (status, error) =
            interruption.map_or((WorkerStatus::Success, None), |(status, error)| (status, Some(error)));
        let (key_points, result_type, suggested_actions, ui_hints) = (None, None, None, None);
        Self { status, answer: text, key_points, result_type, suggested_actions, error, ui_hints }
    }
}

/// The reason why a message is incomplete.
fn interruption(message: &Message) -> Option<(WorkerStatus, OutputError)> {
    let (Some(ItemStatus::Incomplete | ItemStatus::Failed), reason) = (message.status, message.reason) else {
        return None;
    };
    Some(match reason {
        Some(IncompleteReason::Limit) => {
            (WorkerStatus::PartialSuccess, OutputError::new("limit", "A limit cut the answer short"))
        }
        Some(IncompleteReason::Cancelled) => {
            let error = OutputError { retryable: Some(true), ..OutputError::new("cancelled", "Cancelled") };
            (WorkerStatus::PartialSuccess, error)
        }
        Some(IncompleteReason::Recovered) => {
            (WorkerStatus::Failed, OutputError::new("recovered", "The server restarted; the turn is done again"))
        }
        Some(IncompleteReason::Failed) | None => {
            (WorkerStatus::Failed, OutputError::new("failed", "The model failed in the middle of the answer"))
        }
    })
}

impl ToolAgentOutput {
    /// The output of a call that has its result.
    pub fn from_result(run: &RunFold, task: &TaskFold, result: &ToolResult) -> Self {
        let status = result.status.unwrap_or(ResultStatus::Completed);
        let error = result.error.as_ref().map(OutputError::from).or_else(|| default_error(status));
        let summary = result.summary.clone().unwrap_or_else(|| result_text(run, task, result));
        let summary = match &error {
            Some(error) if summary.is_empty() => error.message.clone(),
            _ => summary,
        };
        Self {
            // `partial` would promise that another result follows.
            status: if status == ResultStatus::Completed { ToolStatus::Success } else { ToolStatus::Failure },
            result_summary: truncate_summary(&summary),
            ui_hints: with_server_label(
                result.ui_hints.clone().map(to_exact_object),
                task.call(&result.call_id).and_then(|(_, call)| call.server_label.as_deref()),
            ),
            error,
            ..Self::pending(task, &result.call_id)
        }
    }

    /// The output of a call that has no result yet.
    pub fn pending(task: &TaskFold, call: &CallId) -> Self {
        let found = task.call(call);
        let arguments = found.and_then(|(fold, call)| match &fold.started {
            Some(started) => Some(started.arguments.as_str()),
            None => call.arguments.as_deref(),
        });
        Self {
            tool_name: found.map(|(_, call)| call.own_tool_name().to_owned()).unwrap_or_default(),
            tool_call_id: call.as_str().to_owned(),
            tool_call_args: arguments.and_then(parse_object),
            status: ToolStatus::Partial,
            result_summary: String::new(),
            ui_hints: None,
            error: None,
        }
    }

    /// The output of a hosted call. It has no separate call item, so its own id serves as the call id.
    pub fn from_hosted_call(item: &HostedCall) -> Self {
        let succeeded = hosted_call_succeeded(item);
        let default = match item.status {
            Some(ItemStatus::Incomplete) => OutputError::new("incomplete", "The call was not finished"),
            _ => OutputError::new("failed", "The tool failed"),
        };
        let error = match hosted_error_text(item) {
            _ if succeeded => None,
            Some(message) => Some(OutputError { message, ..default }),
            None => Some(default),
        };
        let summary = match (hosted_output_text(item), &error) {
            (text, Some(error)) if text.is_empty() => error.message.clone(),
            (text, _) => text,
        };
        Self {
            tool_name: item.tool_name().to_owned(),
            tool_call_id: item.id.as_str().to_owned(),
            tool_call_args: Some(hosted_arguments(item)).filter(|arguments| !arguments.is_empty()),
            status: if succeeded { ToolStatus::Success } else { ToolStatus::Failure },
            result_summary: truncate_summary(&summary),
            ui_hints: with_server_label(None, item.server_label()),
            error,
        }
    }
}

/// The protocol has no other member for it.
fn with_server_label(ui_hints: Option<ExactObject>, server_label: Option<&str>) -> Option<ExactObject> {
    let Some(label) = server_label else { return ui_hints };
    let mut ui_hints = ui_hints.unwrap_or_default();
    ui_hints.insert("server_label".to_owned(), Value::from(label).into());
    Some(ui_hints)
}

/// The result at this position of a sub-agent's output, if its call waited for a decision or for the client. Clients saw
/// the call while it waited, although a sub-agent is otherwise one call of its parent.
pub(super) fn find_awaited_result<'a>(
    run: &'a RunFold,
    task: &TaskId,
    output_index: u32,
) -> Option<(&'a TaskFold, &'a ToolResult)> {
    let task = run.task(task).filter(|task| task.spec.parent_task_id.is_some())?;
    let Item::ToolResult(result) = &task.items.get(output_index as usize)?.item else { return None };
    let (_, call) = task.call(&result.call_id)?;
    let was_awaited = call.kind == Some(CallKind::Client) || task.last_approval(&call.call_id).is_some();
    was_awaited.then_some((task, result))
}

/// The error of a failed result that has none itself.
fn default_error(status: ResultStatus) -> Option<OutputError> {
    let (code, message) = match status {
        ResultStatus::Completed => return None,
        ResultStatus::Failed => ("failed", "The tool failed"),
        ResultStatus::Rejected => ("rejected", "The call was not approved"),
        ResultStatus::Incomplete | ResultStatus::InProgress => ("incomplete", "The call was not finished"),
        ResultStatus::Unknown => ("outcome_unknown", "Nobody knows what became of the call"),
    };
    Some(OutputError::new(code, message))
}

fn parse_object(text: &str) -> Option<ExactObject> {
    parse_exact_object(text).ok()
}

fn truncate_summary(text: &str) -> String {
    text.chars().take(SUMMARY_CHARS_MAX).collect()
}
