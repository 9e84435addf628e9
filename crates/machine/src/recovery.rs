//! The process died; this one has folded the log and continues.
//!
//! Newest task first: an open step is closed as lost and started again. A tool that was running is started again when it is
//! idempotent; otherwise its outcome is unknown, and its `on_crash` rule decides. What it has shown of its result stays. Files
//! are read again. Nothing happens to a paused run, unless a tool that ran waited for an answer: its question is withdrawn.

use crate::calls::{self, CallState};
use crate::output::RunWriter;
use crate::task_tree::open_tasks;
use crate::{
    close_items, file_processing, open_results, pending, questions, step, task_end, tool_execution, tool_lookup,
    tool_result,
};
use model::definition::OnCrash;
use model::error::{ErrorCode, ErrorInfo};
use model::event::{CancelMode, Event, StopReason, TaskCancelling, TaskRecovered};
use model::fold::{ItemFold, StepFold, TaskFold};
use model::item::{IncompleteReason, ResultStatus, ToolCall};
use model::task::TaskStatus;
use model::{CallId, TaskId};

/// A step, a tool or a file that was lost this often is not tried again: it may be what kills the process.
const CRASH_ATTEMPTS_MAX: usize = 3;

pub(crate) fn recover_run(writer: &mut RunWriter<'_>) {
    withdraw_lost_questions(writer);
    if writer.run.fold.root().is_none_or(|root| root.status != TaskStatus::Running) {
        return;
    }
    // A task that was to stop after its turn stops now, before anything of it is started again.
    let cancelling: Vec<_> = open_tasks(&writer.run.fold).filter_map(|task| task.cancelling.clone()).collect();
    for TaskCancelling { task_id, by, .. } in cancelling {
        task_end::cancel_subtree(writer, &task_id, CancelMode::AfterTurn, by);
    }
    let tasks: Vec<TaskId> = writer.run.fold.tasks.iter().rev().map(|task| task.id.clone()).collect();
    for task in tasks {
        if writer.run.fold.task(&task).is_some_and(|fold| fold.status == TaskStatus::Running) {
            recover_task(writer, &task);
        }
    }
}

/// Questions of tools that waited for the answer while they ran: nobody is there to hear it, also if the run is paused.
fn withdraw_lost_questions(writer: &mut RunWriter<'_>) {
    let lost: Vec<CallId> = open_tasks(&writer.run.fold).flat_map(lost_questions).collect();
    for call in lost {
        questions::withdraw_live_question(writer, &call);
    }
}

fn lost_questions(task: &TaskFold) -> impl Iterator<Item = CallId> {
    let is_lost = |fold: &ItemFold, call: &ToolCall| {
        fold.started.is_some() && matches!(calls::call_state(task, fold, call), CallState::AwaitingAnswer(_))
    };
    calls::due_calls(task).filter(move |(fold, call)| is_lost(fold, call)).map(|(_, call)| call.call_id.clone())
}

fn recover_task(writer: &mut RunWriter<'_>, task: &TaskId) {
    file_processing::restart_file_reads(writer, task, CRASH_ATTEMPTS_MAX);
    let Some(fold) = writer.run.fold.task(task) else { return };
    let running = interrupted_calls(fold);
    let Some(open) = fold.open_step().cloned() else {
        if let Some(step) = fold.steps.last().cloned().filter(|_| !running.is_empty()) {
            let (task_id, step, attempt) = (task.clone(), step.step, step.attempt);
            writer.emit(Event::Recovered(TaskRecovered { task_id, step, attempt, cut: Vec::new() }));
        }
        for call in running {
            recover_call(writer, &call, calls::outcome_unknown_error(None));
        }
        return;
    };
    close_items::close_open_items(writer, task, Some(IncompleteReason::Recovered));
    step::finish_step(writer, task, StopReason::Lost, None);
    let Some(fold) = writer.run.fold.task(task) else { return };
    let index = fold.steps.len().checked_sub(1);
    let cut = fold.items.iter().filter(|item| item.step_index == index).map(|item| item.item.id().clone()).collect();
    let is_lost = |step: &&StepFold| step.step == open.step && step.stop_reason == Some(StopReason::Lost);
    if fold.steps.iter().filter(is_lost).count() >= CRASH_ATTEMPTS_MAX {
        let message = format!(
            "The server stopped {CRASH_ATTEMPTS_MAX} times in the middle of this turn. What was shown is kept."
        );
        let error = ErrorInfo { retryable: Some(true), ..ErrorInfo::new(ErrorCode::Interrupted, message) };
        task_end::fail_task(writer, task, error);
    } else {
        let (task_id, step, attempt) = (task.clone(), open.step, open.attempt + 1);
        writer.emit(Event::Recovered(TaskRecovered { task_id, step, attempt, cut }));
    }
}

fn interrupted_calls(task: &TaskFold) -> Vec<CallId> {
    let running =
        calls::due_calls(task).filter(|(fold, call)| matches!(calls::call_state(task, fold, call), CallState::Running));
    running.map(|(_, call)| call.call_id.clone()).collect()
}

/// The process or the tool's connection was lost in the middle of a call: the rule of its tool decides.
pub(crate) fn recover_call(writer: &mut RunWriter<'_>, call: &CallId, unknown: ErrorInfo) {
    open_results::close_open_block(writer, call);
    let Some(task) = writer.run.task_of_call(call) else { return };
    let Some((fold, item)) = task.call(call) else { return };
    let Some(started) = fold.started.clone() else { return };
    // A task that stops after its turn starts nothing more.
    let may_start = !writer.run.is_cancelling(task);
    let tool = tool_lookup::tool_of_call(writer.run, task, item).filter(|_| may_start);
    let again = started.idempotent && (started.attempt as usize) < CRASH_ATTEMPTS_MAX;
    match (tool, started.on_crash) {
        (Some(tool), _) if again => tool_execution::start_tool(writer, call, &tool, started.arguments),
        (Some(tool), OnCrash::Ask) => pending::request_approval(writer, call, &tool, &started.arguments),
        (_, OnCrash::Fail) => tool_result::write_error_result(writer, call, ResultStatus::Failed, unknown),
        (_, OnCrash::Unknown | OnCrash::Ask) => {
            tool_result::write_error_result(writer, call, ResultStatus::Unknown, unknown);
        }
    }
}
