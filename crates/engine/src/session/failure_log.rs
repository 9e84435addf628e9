//! One log line for each failure that an operator can do something about: the record has the rest.
//!
//! A line has ids, the code and the cause. The cause is what the server says of the failure: the output of a tool is left
//! out, because it may contain what users wrote.

use model::error::{ErrorCode, ErrorInfo, ErrorScope, truncate_text};
use model::event::Event;
use model::item::{Item, ToolResult};
use model::{TaskId, ThreadId};
use serde_json::Value;

const CAUSE_CHARS_MAX: usize = 300;

/// Codes of tool results that are no failure of the tool: the model or a person is the cause.
const EXPECTED_TOOL_CODES: [ErrorCode; 9] = [
    ErrorCode::UnknownTool,
    ErrorCode::InvalidArguments,
    ErrorCode::Rejected,
    ErrorCode::ApprovalTimeout,
    ErrorCode::ClientError,
    ErrorCode::CalculationFailed,
    ErrorCode::DuplicateCallId,
    ErrorCode::HandoffIgnored,
    ErrorCode::ToolFailed,
];

pub(super) fn log_failure(thread: &ThreadId, run: &TaskId, event: &Event) {
    match event {
        Event::Retrying(e) => {
            let (task, code, cause) = (&e.task_id, &e.error.code, failure_cause(&e.error));
            tracing::warn!(%thread, %run, %task, step = e.step, attempt = e.attempt, code, cause, "a model call failed and is repeated");
        }
        Event::Failed(e) => {
            let (task, code, cause) = (&e.task_id, &e.error.code, failure_cause(&e.error));
            tracing::warn!(%thread, %run, %task, code, cause, "a task failed");
        }
        Event::ItemDone(e) => {
            if let Item::ToolResult(ToolResult { call_id, error: Some(error), .. }) = &e.item
                && let Some(cause) = tool_cause(error)
            {
                tracing::warn!(%thread, %run, task = %e.task_id, call = %call_id, code = error.code, cause, "a tool call failed");
            }
        }
        _ => {}
    }
}

/// `None` if it is not for the operator.
fn tool_cause(error: &ErrorInfo) -> Option<String> {
    let code = ErrorCode::parse(&error.code).filter(|code| code.scope() == ErrorScope::Tool)?;
    if EXPECTED_TOOL_CODES.contains(&code) {
        return None;
    }
    Some(failure_cause(error))
}

/// What a model's service says is kept: without it nobody knows which setting is wrong.
fn failure_cause(error: &ErrorInfo) -> String {
    let is_model = ErrorCode::parse(&error.code).is_some_and(|code| code.scope() == ErrorScope::Model);
    // After the status of a tool or a hook comes its own output.
    let has_status = |details: &Value| details.get("status").is_some() || details.get("signal").is_some();
    let message = match error.message.split_once(": ") {
        Some((status, _)) if !is_model && error.details.as_ref().is_some_and(has_status) => status,
        _ => &error.message,
    };
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    truncate_text(&line, CAUSE_CHARS_MAX).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_tools_output_is_not_part_of_the_cause() {
        let failed = |code: ErrorCode, message: &str, details: Option<Value>| {
            tool_cause(&ErrorInfo { details, ..ErrorInfo::new(code, message) })
        };
        let said = "the program exited with status 3: Ann's diary";
        let cause = failed(ErrorCode::CommandFailed, said, Some(json!({"status": 3})));
        assert_eq!(cause.as_deref(), Some("the program exited with status 3"));
        let cause = failed(ErrorCode::CommandFailed, "cannot start `x`: No such\nfile", None);
        assert_eq!(cause.as_deref(), Some("cannot start `x`: No such file"));
        assert_eq!(failed(ErrorCode::Rejected, "no", None), None);
        assert_eq!(tool_cause(&ErrorInfo::external("of_the_tool", "Ann's diary")), None);
    }
}
