//! What messages and calls amount to.

use model::CallId;
use model::error::{ErrorCode, ErrorInfo};
use model::fold::{RunFold, TaskFold};
use model::item::plain_text;
use model::item::{HostedCall, IncompleteReason, Item, ItemStatus, Message, ResultStatus, ToolCall, ToolResult};
use model::json::JsonObject;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A summary has so many code points at most.
const SUMMARY_CHARS_MAX: usize = 500;

/// What a message amounts to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkerAgentOutput {
    /// How it ended.
    pub status: WorkerStatus,
    /// What was said.
    pub answer: String,
    /// What matters in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_points: Option<Vec<String>>,
    /// What kind of answer it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_type: Option<String>,
    /// What one could do now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggested_actions: Option<Vec<String>>,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<OutputError>,
    /// How a front end may show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ui_hints: Option<JsonObject>,
}

/// How a message ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerStatus {
    /// It is whole.
    Success,
    /// A limit or a cancel cut it short.
    PartialSuccess,
    /// The model or the server failed in the middle of it.
    Failed,
}

/// What a call amounts to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ToolAgentOutput {
    /// The tool.
    pub tool_name: String,
    /// The call.
    pub tool_call_id: String,
    /// The arguments that it ran with, or would.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_args: Option<JsonObject>,
    /// How it ended.
    pub status: ToolStatus,
    /// What it gave, in short.
    pub result_summary: String,
    /// How a front end may show it; of a call that waits, what it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ui_hints: Option<JsonObject>,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<OutputError>,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    /// The tool did it.
    Success,
    /// It waits for somebody; the final result comes later.
    Partial,
    /// It was not done, or nobody knows.
    Failure,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputError {
    /// Stable, for programs.
    pub code: String,
    /// For people.
    pub message: String,
    /// May the same request succeed later?
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
    /// More, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<JsonObject>,
}

impl OutputError {
    fn new(code: ErrorCode, message: &str) -> Self {
        Self { code: code.as_str().to_owned(), message: message.to_owned(), retryable: None, details: None }
    }
}

impl From<&ErrorInfo> for OutputError {
    fn from(error: &ErrorInfo) -> Self {
        let details = error.details.as_ref().and_then(Value::as_object).cloned();
        Self { code: error.code.clone(), message: error.message.clone(), retryable: error.retryable, details }
    }
}

/// The answer of a model that was told to answer in this shape. Nothing else could fill these fields: a model that says
/// plain words has made no list of what matters in them, and we do not make one up.
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
    /// The fields and the error among them; `None` when the text is anything else.
    fn parse(text: &str) -> Option<(Self, Option<OutputError>)> {
        // Serde would take a list for a struct, and so somebody else's list for an answer.
        let mut said: Self = serde_json::from_str(text).ok().filter(|_| text.trim_start().starts_with('{'))?;
        let error = said.error.take().map(|error| serde_json::from_value(Value::Object(error))).transpose().ok()?;
        Some((said, error))
    }
}

impl WorkerAgentOutput {
    /// What a message amounts to that has ended.
    #[must_use]
    pub fn from_message(message: &Message) -> Self {
        let text = message.text();
        let cut = interruption(message);
        // One field that is not what it should be, and the whole is somebody else's JSON: then the text is the answer.
        if let Some((said, error)) = StructuredAnswer::parse(&text) {
            let status = said.status.unwrap_or(WorkerStatus::Success);
            let (status, error) = cut.map_or((status, error), |(status, error)| (status, Some(error)));
            return Self {
                status,
                answer: said.answer,
                key_points: said.key_points,
                result_type: said.result_type,
                suggested_actions: said.suggested_actions,
                error,
                ui_hints: said.ui_hints,
            };
        }
        let (status, error) = cut.map_or((WorkerStatus::Success, None), |(status, error)| (status, Some(error)));
        let (key_points, result_type, suggested_actions, ui_hints) = (None, None, None, None);
        Self { status, answer: text, key_points, result_type, suggested_actions, error, ui_hints }
    }
}

/// What cut a message short.
fn interruption(message: &Message) -> Option<(WorkerStatus, OutputError)> {
    let (Some(ItemStatus::Incomplete | ItemStatus::Failed), reason) = (message.status, message.reason) else {
        return None;
    };
    Some(match reason {
        Some(IncompleteReason::Limit) => {
            (WorkerStatus::PartialSuccess, OutputError::new(ErrorCode::Limit, "A limit cut the answer short"))
        }
        Some(IncompleteReason::Cancelled) => {
            let error = OutputError { retryable: Some(true), ..OutputError::new(ErrorCode::Cancelled, "Cancelled") };
            (WorkerStatus::PartialSuccess, error)
        }
        Some(IncompleteReason::Recovered) => (
            WorkerStatus::Failed,
            OutputError::new(ErrorCode::Recovered, "The server restarted; the turn is done again"),
        ),
        Some(IncompleteReason::Failed) | None => {
            (WorkerStatus::Failed, OutputError::new(ErrorCode::Failed, "The model failed in the middle of the answer"))
        }
    })
}

impl ToolAgentOutput {
    /// What a call of this task amounts to, now that it has its result.
    #[must_use]
    pub fn from_result(run: &RunFold, task: &TaskFold, result: &ToolResult) -> Self {
        let status = result.status.unwrap_or(ResultStatus::Completed);
        let error = result.error.as_ref().map(OutputError::from).or_else(|| default_error(status));
        let summary = result.summary.clone().unwrap_or_else(|| result_text(run, result));
        let summary = match &error {
            Some(error) if summary.is_empty() => error.message.clone(),
            _ => summary,
        };
        Self {
            // Whatever did not succeed is a failure: `partial` would promise that something follows.
            status: if status == ResultStatus::Completed { ToolStatus::Success } else { ToolStatus::Failure },
            result_summary: truncate_summary(&summary),
            ui_hints: result.ui_hints.clone(),
            error,
            ..Self::pending(task, &result.call_id)
        }
    }

    /// What a call of this task is while it has no result.
    #[must_use]
    pub fn pending(task: &TaskFold, call: &CallId) -> Self {
        let found = task.call(call);
        let arguments = found.and_then(|(fold, call)| match &fold.started {
            Some(started) => Some(started.arguments.as_str()),
            None => call.arguments.as_deref(),
        });
        Self {
            tool_name: found.map(|(_, call)| call.name.clone()).unwrap_or_default(),
            tool_call_id: call.as_str().to_owned(),
            tool_call_args: arguments.and_then(parse_object),
            status: ToolStatus::Partial,
            result_summary: String::new(),
            ui_hints: None,
            error: None,
        }
    }

    /// What a tool gave that the provider ran itself. It has no call beside it, so that its own name stands for that.
    #[must_use]
    pub fn from_hosted_call(item: &HostedCall) -> Self {
        let whole = !matches!(item.status, Some(ItemStatus::Incomplete | ItemStatus::Failed));
        let error = (!whole).then(|| OutputError::new(ErrorCode::Incomplete, "The call did not end well"));
        Self {
            tool_name: item.name.clone(),
            tool_call_id: item.id.as_str().to_owned(),
            tool_call_args: item.action.as_ref().and_then(Value::as_object).cloned(),
            status: if whole { ToolStatus::Success } else { ToolStatus::Failure },
            result_summary: truncate_summary(&plain_text(item.block_list.as_deref().unwrap_or_default())),
            ui_hints: None,
            error,
        }
    }
}

/// The call as a client that is to run it needs it.
#[must_use]
pub(super) fn client_tool_call(call: &ToolCall) -> Value {
    let arguments = call.arguments.as_deref().unwrap_or_default();
    serde_json::json!({ "call_id": call.call_id, "name": call.name, "arguments": arguments })
}

/// What there is to say about a result that says nothing itself.
fn default_error(status: ResultStatus) -> Option<OutputError> {
    let (code, message) = match status {
        ResultStatus::Completed => return None,
        ResultStatus::Failed => (ErrorCode::Failed, "The tool failed"),
        ResultStatus::Rejected => (ErrorCode::Rejected, "The call was not approved"),
        ResultStatus::Incomplete | ResultStatus::InProgress => (ErrorCode::Incomplete, "The call was not finished"),
        ResultStatus::Unknown => (ErrorCode::OutcomeUnknown, "Nobody knows what became of the call"),
    };
    Some(OutputError::new(code, message))
}

/// The plain text of a result; of a sub-agent's, its last message.
fn result_text(run: &RunFold, result: &ToolResult) -> String {
    let Some(child) = run.task(&result.call_id.child_task_id()) else {
        return plain_text(result.block_list.as_deref().unwrap_or_default());
    };
    let last = child.items.iter().rev().filter(|fold| !fold.superseded).find_map(|fold| match &fold.item {
        Item::Message(message) => Some(message.text()),
        _ => None,
    });
    last.unwrap_or_default()
}

fn parse_object(text: &str) -> Option<JsonObject> {
    serde_json::from_str(text).ok()
}

fn truncate_summary(text: &str) -> String {
    text.chars().take(SUMMARY_CHARS_MAX).collect()
}
