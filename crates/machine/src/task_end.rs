//! How tasks end: by themselves, at a limit, by failure, by a cancel, by a crash.
//!
//! An interruption goes newest task first: open parts and items are closed `incomplete`, then the step, then every call
//! without a result gets one, then comes the terminal event. So no item stays open and no call without a result.

use crate::effect::Effect;
use crate::input::CancelTask;
use crate::output::{MachineOutput, RunWriter};
use crate::state::RunState;
use crate::task_tree::{is_in_subtree, open_tasks, tasks_waiting_to_call};
use crate::{budget, calls, close_items, file_processing, outstanding, pending, step, sub_agent, tool_result};
use model::error::{ErrorCode, ErrorInfo};
use model::event::{
    CancelMode, Event, Initiator, LimitReason, StopReason, TaskCancelled, TaskCancelling, TaskCompleted, TaskFailed,
    TaskIncomplete,
};
use model::item::{IncompleteReason, ResultStatus};
use model::usage::Usage;
use model::{CallId, TaskId};

pub(crate) fn complete_task(writer: &mut RunWriter<'_>, task: &TaskId) {
    let TaskTotals { usage, duration_ms } = task_totals(writer.run, task, writer.out);
    let cost = budget::subtree_cost(writer.run, |id| is_in_subtree(writer.run, id, task));
    writer.emit(Event::Completed(TaskCompleted { task_id: task.clone(), usage, cost, duration_ms }));
}

/// A limit ends a task between two turns. The calls of a limited turn never ran.
pub(crate) fn stop_at_limit(writer: &mut RunWriter<'_>, task: &TaskId, reason: LimitReason) {
    for call in calls_without_result(writer.run, task) {
        let error = ErrorInfo::new(ErrorCode::Limit, "The turn ran into a limit: the call was not run.");
        tool_result::write_error_result(writer, &call, ResultStatus::Incomplete, error);
    }
    let TaskTotals { usage, duration_ms } = task_totals(writer.run, task, writer.out);
    writer.emit(Event::Incomplete(TaskIncomplete { task_id: task.clone(), reason, usage, duration_ms }));
}

/// Ends a task whose provider failed for good.
pub(crate) fn fail_on_provider_error(writer: &mut RunWriter<'_>, task: &TaskId, mut error: ErrorInfo) {
    let attempts = writer.run.fold.task(task).and_then(|fold| fold.open_step()).map_or(1, |open| open.attempt);
    let details = error.details.get_or_insert_with(|| serde_json::json!({}));
    if let Some(details) = details.as_object_mut().filter(|_| attempts > 1) {
        details.insert("attempts".to_owned(), attempts.into());
    }
    close_items::close_open_items(writer, task, Some(IncompleteReason::Failed));
    step::finish_step(writer, task, StopReason::Error, None);
    fail_task(writer, task, error);
}

/// Fails a task that has no open step.
pub(crate) fn fail_task(writer: &mut RunWriter<'_>, task: &TaskId, mut error: ErrorInfo) {
    error.details.get_or_insert_with(|| serde_json::json!({}));
    let TaskTotals { usage, duration_ms } = task_totals(writer.run, task, writer.out);
    writer.emit(Event::Failed(Box::new(TaskFailed { task_id: task.clone(), error, usage, duration_ms })));
}

/// Stops a task and all tasks below it: now, or when each of them has finished its turn. `drive` answers the call of a
/// sub-agent that ended so.
pub(crate) fn cancel_task(writer: &mut RunWriter<'_>, cancel: CancelTask) {
    let CancelTask { task_id, mode, by } = cancel;
    let Some(task) = writer.run.fold.task(&task_id).filter(|task| !task.status.is_terminal()) else { return };
    match mode {
        CancelMode::Immediate => cancel_subtree(writer, &task_id, mode, by),
        CancelMode::AfterTurn if writer.run.is_cancelling(task) => {}
        CancelMode::AfterTurn => {
            pending::resume_run(writer, Initiator::Cancel);
            writer.emit(Event::Cancelling(TaskCancelling { task_id: task_id.clone(), mode, by }));
            // A model call, or a retry, would begin something new.
            for waiting in tasks_waiting_to_call(writer.run, &task_id, writer.out.next_record_time(writer.run)) {
                cancel_subtree(writer, &waiting, mode, by);
            }
        }
    }
}

/// Stops a task and all tasks below it now.
pub(crate) fn cancel_subtree(writer: &mut RunWriter<'_>, top: &TaskId, mode: CancelMode, by: Initiator) {
    let name = if writer.run.root_id() == *top { "run" } else { "agent" };
    let error = ErrorInfo::new(ErrorCode::Cancelled, format!("The {name} was cancelled."));
    pending::resume_run(writer, Initiator::Cancel);
    let (reason, stop) = (IncompleteReason::Cancelled, StopReason::Cancelled);
    interrupt_subtree(writer, &Interruption { top, reason, stop, error }, |task_id, totals| {
        let TaskTotals { usage, duration_ms } = totals;
        Event::Cancelled(TaskCancelled { task_id, mode, by, usage, duration_ms })
    });
}

/// Ends a task that was to stop after its turn.
pub(crate) fn finish_cancelled_task(writer: &mut RunWriter<'_>, task: &TaskId) {
    let Some(cancelling) = writer.run.fold.task(task).and_then(|task| writer.run.pending_cancel(task)) else { return };
    let TaskTotals { usage, duration_ms } = task_totals(writer.run, task, writer.out);
    let (task_id, mode, by) = (task.clone(), cancelling.mode, cancelling.by);
    writer.emit(Event::Cancelled(TaskCancelled { task_id, mode, by, usage, duration_ms }));
}

pub(crate) fn on_run_deadline(writer: &mut RunWriter<'_>, task: &TaskId) {
    if writer.run.root_id() != *task {
        return; // a timer of another run
    }
    let error = ErrorInfo::new(ErrorCode::Deadline, "The run's time was up.");
    pending::resume_run(writer, Initiator::Timeout);
    let (reason, stop) = (IncompleteReason::Limit, StopReason::Cancelled);
    interrupt_subtree(writer, &Interruption { top: task, reason, stop, error }, |task_id, totals| {
        let TaskTotals { usage, duration_ms } = totals;
        Event::Incomplete(TaskIncomplete { task_id, reason: LimitReason::Deadline, usage, duration_ms })
    });
}

/// Ends the run with an error, whatever it was doing.
pub(crate) fn fail_run(writer: &mut RunWriter<'_>, error: &ErrorInfo) {
    let top = writer.run.root_id();
    pending::resume_run(writer, Initiator::System);
    let (reason, stop) = (IncompleteReason::Failed, StopReason::Lost);
    interrupt_subtree(writer, &Interruption { top: &top, reason, stop, error: error.clone() }, |task_id, totals| {
        let TaskTotals { usage, duration_ms } = totals;
        let error = ErrorInfo { details: Some(serde_json::json!({})), ..error.clone() };
        Event::Failed(Box::new(TaskFailed { task_id, error, usage, duration_ms }))
    });
}

/// Why a task and those below it end before they are done.
struct Interruption<'a> {
    top: &'a TaskId,
    reason: IncompleteReason,
    stop: StopReason,
    error: ErrorInfo,
}

fn interrupt_subtree(
    writer: &mut RunWriter<'_>,
    interruption: &Interruption<'_>,
    terminal: impl Fn(TaskId, TaskTotals) -> Event,
) {
    let tasks: Vec<_> =
        open_tasks(&writer.run.fold).filter(|task| is_in_subtree(writer.run, &task.id, interruption.top)).collect();
    for id in tasks.iter().flat_map(|task| outstanding::outstanding_effects_of_task(task)) {
        writer.out.push_effect(Effect::Abort(id));
    }
    let tasks: Vec<TaskId> = tasks.into_iter().rev().map(|task| task.id.clone()).collect();
    for task in tasks {
        file_processing::stop_file_reads(writer, &task);
        close_items::close_open_items(writer, &task, Some(interruption.reason));
        step::finish_step(writer, &task, interruption.stop, None);
        for call in calls_without_result(writer.run, &task) {
            // A sub-agent ends before its parent: the call has its outcome.
            if writer.run.fold.task(&call.child_task_id()).is_some() {
                sub_agent::finish_sub_agent(writer, &call);
            } else {
                close_call(writer, &call, interruption.error.clone());
            }
        }
        let totals = task_totals(writer.run, &task, writer.out);
        writer.emit(terminal(task, totals));
    }
}

/// Answers a call with an error, and withdraws its approval request if that is open.
fn close_call(writer: &mut RunWriter<'_>, call: &CallId, error: ErrorInfo) {
    let approval = writer.run.task_of_call(call).and_then(|task| task.last_approval(call));
    if approval.is_some_and(|(_, answer)| answer.is_none()) {
        pending::withdraw_approval(writer, call);
    }
    tool_result::write_error_result(writer, call, ResultStatus::Incomplete, error);
}

/// Calls of complete or limited steps that have no result. Calls of interrupted steps never ran and get none.
fn calls_without_result(run: &RunState, task: &TaskId) -> Vec<CallId> {
    let Some(task) = run.fold.task(task) else { return Vec::new() };
    let was_due = |step: Option<usize>| {
        let step = step.and_then(|step| task.steps.get(step));
        step.and_then(|step| step.stop_reason).is_some_and(|reason| !reason.is_interrupted())
    };
    let due = task.calls().filter(|(fold, _)| fold.arguments_complete && was_due(fold.step_index));
    let due = due.filter(|(_, call)| !calls::has_result(task, &call.call_id));
    due.map(|(_, call)| call.call_id.clone()).collect()
}

/// What a task used, sub-agents included, and how long it took until now.
#[derive(Default)]
struct TaskTotals {
    usage: Usage,
    duration_ms: u64,
}

fn task_totals(run: &RunState, task: &TaskId, out: &MachineOutput) -> TaskTotals {
    let Some(fold) = run.fold.task(task) else { return TaskTotals::default() };
    let duration_ms = out.next_record_time(run).saturating_sub(fold.created_at);
    TaskTotals { usage: run.fold.total_usage(fold), duration_ms }
}
