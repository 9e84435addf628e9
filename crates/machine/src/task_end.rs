//! How tasks end: by themselves, at a limit, by failure, by a cancel, by a crash.
//!
//! A cut goes newest task first: open parts and items are closed `incomplete`, then the step, then every call without a
//! result gets one, then the terminal event. So no item stays open and no call unanswered, whatever happened.

use crate::effect::Effect;
use crate::input::CancelTask;
use crate::state::RunState;
use crate::{
    MachineOutput, budget, calls, close_items, file_processing, model_call, model_turn, outstanding_effects_of_task,
    pending, sub_agent, tool_result,
};
use model::error::{ErrorCode, ErrorInfo};
use model::event::{
    CancelMode, Event, Initiator, LimitReason, StopReason, TaskCancelled, TaskCancelling, TaskCompleted, TaskFailed,
    TaskIncomplete,
};
use model::item::{IncompleteReason, ResultStatus};
use model::usage::Usage;
use model::{CallId, TaskId};

/// A task did what it was asked.
pub(crate) fn complete_task(run: &mut RunState, task: &TaskId, out: &mut MachineOutput) {
    let (usage, duration_ms) = task_totals(run, task, out);
    let cost = budget::subtree_cost(run, |id| sub_agent::is_in_subtree(run, id, task));
    out.emit(run, Event::Completed(TaskCompleted { task_id: task.clone(), usage, cost, duration_ms }));
}

/// A limit ended a task between two turns. Calls of a limited turn never ran.
pub(crate) fn stop_at_limit(run: &mut RunState, task: &TaskId, reason: LimitReason, out: &mut MachineOutput) {
    for call in calls_without_result(run, task) {
        let error = ErrorInfo::new(ErrorCode::Limit, "The turn ran into a limit: the call was not run.");
        tool_result::write_error_result(run, &call, ResultStatus::Incomplete, error, out);
    }
    let (usage, duration_ms) = task_totals(run, task, out);
    out.emit(run, Event::Incomplete(TaskIncomplete { task_id: task.clone(), reason, usage, duration_ms }));
}

/// The provider failed, and nothing more is tried.
pub(crate) fn fail_on_provider_error(run: &mut RunState, task: &TaskId, mut error: ErrorInfo, out: &mut MachineOutput) {
    let attempts = run.fold.task(task).and_then(|fold| fold.open_step()).map_or(1, |open| open.attempt);
    let details = error.details.get_or_insert_with(|| serde_json::json!({}));
    if let Some(details) = details.as_object_mut().filter(|_| attempts > 1) {
        details.insert("attempts".to_owned(), attempts.into());
    }
    close_items::close_open_items(run, task, Some(IncompleteReason::Failed), out);
    model_turn::finish_step(run, task, StopReason::Error, None, out);
    fail_task(run, task, error, out);
}

/// A task fails, with nothing open.
pub(crate) fn fail_task(run: &mut RunState, task: &TaskId, mut error: ErrorInfo, out: &mut MachineOutput) {
    error.details.get_or_insert_with(|| serde_json::json!({}));
    let (usage, duration_ms) = task_totals(run, task, out);
    out.emit(run, Event::Failed(TaskFailed { task_id: task.clone(), error, usage, duration_ms }));
}

/// Somebody stops a task with all below it, which for the root is the run: now, or when each has finished its turn. What
/// a sub-agent's end makes of the call that asked for it is for `drive` to see.
pub(crate) fn cancel_task(run: &mut RunState, cancel: CancelTask, out: &mut MachineOutput) {
    let CancelTask { task_id, mode, by } = cancel;
    let Some(task) = run.fold.task(&task_id).filter(|task| !task.status.is_terminal()) else { return };
    match mode {
        CancelMode::Immediate => cancel_subtree(run, &task_id, mode, by, out),
        CancelMode::AfterTurn if run.is_cancelling(task) => {}
        CancelMode::AfterTurn => {
            pending::resume_run(run, Initiator::Cancel, out);
            out.emit(run, Event::Cancelling(TaskCancelling { task_id: task_id.clone(), mode, by }));
            // To ask, or to ask again, would begin something new.
            for waiting in model_call::tasks_waiting_to_call(run, &task_id, out) {
                cancel_subtree(run, &waiting, mode, by, out);
            }
        }
    }
}

/// A task stops now, with all below it.
pub(crate) fn cancel_subtree(
    run: &mut RunState,
    top: &TaskId,
    mode: CancelMode,
    by: Initiator,
    out: &mut MachineOutput,
) {
    let who = if run.root_id() == *top { "run" } else { "agent" };
    let error = ErrorInfo::new(ErrorCode::Cancelled, format!("The {who} was cancelled."));
    pending::resume_run(run, Initiator::Cancel, out);
    let (reason, stop) = (IncompleteReason::Cancelled, StopReason::Cancelled);
    interrupt_subtree(run, &Interruption { top, reason, stop, error }, out, |task_id, sums| {
        let (usage, duration_ms) = sums;
        Event::Cancelled(TaskCancelled { task_id, mode, by, usage, duration_ms })
    });
}

/// A task has finished its turn, and nothing new begins.
pub(crate) fn finish_cancelled_task(run: &mut RunState, task: &TaskId, out: &mut MachineOutput) {
    let Some(cancelling) = run.fold.task(task).and_then(|task| run.pending_cancel(task)) else { return };
    let (usage, duration_ms) = task_totals(run, task, out);
    let (task_id, mode, by) = (task.clone(), cancelling.mode, cancelling.by);
    out.emit(run, Event::Cancelled(TaskCancelled { task_id, mode, by, usage, duration_ms }));
}

/// The run's time is up.
pub(crate) fn on_run_deadline(run: &mut RunState, task: &TaskId, out: &mut MachineOutput) {
    if run.root_id() != *task {
        return; // another run's
    }
    let error = ErrorInfo::new(ErrorCode::Deadline, "The run's time was up.");
    pending::resume_run(run, Initiator::Timeout, out);
    let (reason, stop) = (IncompleteReason::Limit, StopReason::Cancelled);
    interrupt_subtree(run, &Interruption { top: task, reason, stop, error }, out, |task_id, sums| {
        let (usage, duration_ms) = sums;
        Event::Incomplete(TaskIncomplete { task_id, reason: LimitReason::Deadline, usage, duration_ms })
    });
}

/// What cuts a task short.
struct Interruption<'a> {
    /// The task, and all below it.
    top: &'a TaskId,
    reason: IncompleteReason,
    stop: StopReason,
    error: ErrorInfo,
}

fn interrupt_subtree(
    run: &mut RunState,
    cut: &Interruption<'_>,
    out: &mut MachineOutput,
    terminal: impl Fn(TaskId, (Usage, u64)) -> Event,
) {
    let going = run.fold.tasks.iter().filter(|task| !task.status.is_terminal());
    let mut tasks: Vec<TaskId> = going.map(|task| task.id.clone()).collect();
    tasks.retain(|task| sub_agent::is_in_subtree(run, task, cut.top));
    for task in tasks.iter().filter_map(|task| run.fold.task(task)) {
        outstanding_effects_of_task(task).into_iter().for_each(|id| out.push_effect(Effect::Abort(id)));
    }
    for task in tasks.into_iter().rev() {
        file_processing::stop_file_reads(run, &task, out);
        close_items::close_open_items(run, &task, Some(cut.reason), out);
        model_turn::finish_step(run, &task, cut.stop, None, out);
        for call in calls_without_result(run, &task) {
            // A sub-agent has ended before its parent: what it made of the call is known.
            if run.fold.task(&call.child_task_id()).is_some() {
                sub_agent::finish_sub_agent(run, &call, out);
            } else {
                pending::close_call(run, &call, ResultStatus::Incomplete, cut.error.clone(), out);
            }
        }
        let sums = task_totals(run, &task, out);
        out.emit(run, terminal(task, sums));
    }
}

/// Calls of whole or limited steps that have no result. Calls of cut steps never ran and get none.
fn calls_without_result(run: &RunState, task: &TaskId) -> Vec<CallId> {
    let Some(task) = run.fold.task(task) else { return Vec::new() };
    let uncut = |step: Option<usize>| {
        step.and_then(|step| task.steps.get(step))
            .and_then(|step| step.stop_reason)
            .is_some_and(|end| !end.is_interrupted())
    };
    let due = task.calls().filter(|(fold, _)| fold.arguments_complete && uncut(fold.step_index));
    let due = due.filter(|(_, call)| !calls::has_result(task, &call.call_id));
    due.map(|(_, call)| call.call_id.clone()).collect()
}

/// What a task cost, descendants included, and how long it took until now.
pub(crate) fn task_totals(run: &RunState, task: &TaskId, out: &MachineOutput) -> (Usage, u64) {
    let Some(fold) = run.fold.task(task) else { return Default::default() };
    (run.fold.total_usage(fold), out.next_record_time(run).saturating_sub(fold.created_at))
}
