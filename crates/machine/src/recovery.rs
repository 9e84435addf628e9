//! The process died. This one has folded the log and goes on.
//!
//! Newest task first: what was being said is closed as lost and done again; a tool that ran is started again when it may
//! be, else nobody knows what became of it, and its rule says what follows from that. Files are read again. A paused run
//! notices nothing.

use crate::calls::{self, CallState};
use crate::state::RunState;
use crate::{MachineOutput, close_items, file_processing, model_turn, pending, task_end, tool_execution, tool_result};
use model::definition::OnCrash;
use model::error::ErrorInfo;
use model::event::{CancelMode, Event, StopReason, TaskCancelling, TaskFailed, TaskRecovered};
use model::fold::TaskFold;
use model::item::{IncompleteReason, ResultStatus};
use model::task::TaskStatus;
use model::{CallId, ItemId, TaskId};

/// A turn, a tool or a file that was lost so often is not tried again: it may be what kills the process.
const CRASH_ATTEMPTS_MAX: usize = 3;

/// Goes on from what the log says.
pub(crate) fn recover_run(run: &mut RunState, out: &mut MachineOutput) {
    if run.fold.root().is_none_or(|root| root.status != TaskStatus::Running) {
        return;
    }
    // Who was to stop after a turn stops now, before anything of it is taken up.
    let going = run.fold.tasks.iter().filter(|task| !task.status.is_terminal());
    for TaskCancelling { task_id, by, .. } in going.filter_map(|task| task.cancelling.clone()).collect::<Vec<_>>() {
        task_end::cancel_subtree(run, &task_id, CancelMode::AfterTurn, by, out);
    }
    let tasks: Vec<TaskId> = run.fold.tasks.iter().rev().map(|task| task.id.clone()).collect();
    for task in tasks {
        if run.fold.task(&task).is_some_and(|fold| fold.status == TaskStatus::Running) {
            recover_task(run, &task, out);
        }
    }
}

fn recover_task(run: &mut RunState, task: &TaskId, out: &mut MachineOutput) {
    file_processing::restart_file_reads(run, task, CRASH_ATTEMPTS_MAX, out);
    let Some(fold) = run.fold.task(task) else { return };
    let running = interrupted_calls(fold);
    let Some(open) = fold.open_step().cloned() else {
        if let Some(step) = fold.steps.last().cloned().filter(|_| !running.is_empty()) {
            emit_recovered(run, task, (step.step, step.attempt), Vec::new(), out);
        }
        for call in running {
            recover_call(run, &call, out);
        }
        return;
    };
    close_items::close_open_items(run, task, Some(IncompleteReason::Recovered), out);
    model_turn::finish_step(run, task, StopReason::Lost, None, out);
    let Some(fold) = run.fold.task(task) else { return };
    let place = fold.steps.len().checked_sub(1);
    let cut = fold.items.iter().filter(|item| item.step_index == place).map(|item| item.item.id().clone()).collect();
    let lost =
        fold.steps.iter().filter(|step| step.step == open.step && step.stop_reason == Some(StopReason::Lost)).count();
    if lost >= CRASH_ATTEMPTS_MAX {
        fail_interrupted_task(run, task, out);
    } else {
        emit_recovered(run, task, (open.step, open.attempt + 1), cut, out);
    }
}

fn emit_recovered(
    run: &mut RunState,
    task: &TaskId,
    (step, attempt): (u32, u32),
    cut: Vec<ItemId>,
    out: &mut MachineOutput,
) {
    out.emit(run, Event::Recovered(TaskRecovered { task_id: task.clone(), step, attempt, cut }));
}

fn fail_interrupted_task(run: &mut RunState, task: &TaskId, out: &mut MachineOutput) {
    let message =
        format!("The server stopped {CRASH_ATTEMPTS_MAX} times in the middle of this turn. What was shown is kept.");
    let error = ErrorInfo {
        retryable: Some(true),
        details: Some(serde_json::json!({})),
        ..ErrorInfo::new("interrupted", message)
    };
    let (usage, duration_ms) = task_end::task_totals(run, task, out);
    out.emit(run, Event::Failed(TaskFailed { task_id: task.clone(), error, usage, duration_ms }));
}

/// The calls that ran when the process died.
fn interrupted_calls(task: &TaskFold) -> Vec<CallId> {
    let running =
        calls::due_calls(task).filter(|(fold, call)| matches!(calls::call_state(task, fold, call), CallState::Running));
    running.map(|(_, call)| call.call_id.clone()).collect()
}

/// Nobody knows what became of a call, or only what a person says.
pub(crate) fn outcome_unknown_error(said: Option<&str>) -> ErrorInfo {
    const UNKNOWN: &str =
        "The server stopped while the tool ran. It may or may not have done its work: find out before it is run again.";
    ErrorInfo::new("outcome_unknown", said.unwrap_or(UNKNOWN))
}

/// A call ran when the process died.
fn recover_call(run: &mut RunState, call: &CallId, out: &mut MachineOutput) {
    let Some(task) = run.task_of_call(call) else { return };
    let Some((fold, held)) = task.call(call) else { return };
    let Some(started) = fold.started.clone() else { return };
    let tool = calls::find_tool(run, task, &held.name);
    let again = started.idempotent && (started.attempt as usize) < CRASH_ATTEMPTS_MAX;
    let unknown = outcome_unknown_error(None);
    match (tool, started.on_crash) {
        (Some(tool), _) if again => tool_execution::start_tool(run, call, &tool, started.arguments, out),
        (Some(tool), OnCrash::Ask) => pending::request_approval(run, call, &tool, &started.arguments, out),
        (_, OnCrash::Fail) => tool_result::write_error_result(run, call, ResultStatus::Failed, unknown, out),
        (_, OnCrash::Unknown | OnCrash::Ask) => {
            tool_result::write_error_result(run, call, ResultStatus::Unknown, unknown, out)
        }
    }
}
