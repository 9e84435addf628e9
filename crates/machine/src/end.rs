//! How tasks end: by themselves, at a limit, by failure, by a cancel, by a crash.
//!
//! A cut goes newest task first: open parts and items are closed `incomplete`, then the step, then every call without a
//! result gets one, then the terminal event. So no item stays open and no call unanswered, whatever happened.

use crate::effect::Effect;
use crate::input::CancelTask;
use crate::state::RunState;
use crate::{Out, ask, budget, calls, child, close, files, outstanding_of, people, result, turn};
use model::event::{
    CancelMode, ErrorInfo, Event, Initiator, LimitReason, StopReason, TaskCancelled, TaskCancelling, TaskCompleted,
    TaskFailed, TaskIncomplete,
};
use model::item::{IncompleteReason, ResultStatus};
use model::usage::Usage;
use model::{CallId, TaskId};

/// A task did what it was asked.
pub(crate) fn complete(run: &mut RunState, task: &TaskId, out: &mut Out) {
    let (usage, duration_ms) = sums(run, task, out);
    let cost = budget::cost(run, |id| child::is_at_or_below(run, id, task));
    out.emit(run, Event::Completed(TaskCompleted { task_id: task.clone(), usage, cost, duration_ms }));
}

/// A limit ended a task between two turns. Calls of a limited turn never ran.
pub(crate) fn limited(run: &mut RunState, task: &TaskId, reason: LimitReason, out: &mut Out) {
    for call in unanswered(run, task) {
        let error = ErrorInfo::new("limit", "The turn ran into a limit: the call was not run.");
        result::give_up(run, &call, ResultStatus::Incomplete, error, out);
    }
    let (usage, duration_ms) = sums(run, task, out);
    out.emit(run, Event::Incomplete(TaskIncomplete { task_id: task.clone(), reason, usage, duration_ms }));
}

/// The provider failed, and nothing more is tried.
pub(crate) fn provider_failed(run: &mut RunState, task: &TaskId, mut error: ErrorInfo, out: &mut Out) {
    let attempts = run.fold.task(task).and_then(|fold| fold.open_step()).map_or(1, |open| open.attempt);
    let details = error.details.get_or_insert_with(|| serde_json::json!({}));
    if let Some(details) = details.as_object_mut().filter(|_| attempts > 1) {
        details.insert("attempts".to_owned(), attempts.into());
    }
    close::all(run, task, Some(IncompleteReason::Failed), out);
    turn::step_done(run, task, StopReason::Error, None, out);
    failed(run, task, error, out);
}

/// A task fails, with nothing open.
pub(crate) fn failed(run: &mut RunState, task: &TaskId, mut error: ErrorInfo, out: &mut Out) {
    error.details.get_or_insert_with(|| serde_json::json!({}));
    let (usage, duration_ms) = sums(run, task, out);
    out.emit(run, Event::Failed(TaskFailed { task_id: task.clone(), error, usage, duration_ms }));
}

/// Somebody stops a task with all below it, which for the root is the run: now, or when each has finished its turn. What
/// a sub-agent's end makes of the call that asked for it is for `drive` to see.
pub(crate) fn cancel(run: &mut RunState, cancel: CancelTask, out: &mut Out) {
    let CancelTask { task_id, mode, by } = cancel;
    let Some(task) = run.fold.task(&task_id).filter(|task| !task.status.is_terminal()) else { return };
    match mode {
        CancelMode::Immediate => cut_short(run, &task_id, mode, by, out),
        CancelMode::AfterTurn if run.is_cancelling(task) => {}
        CancelMode::AfterTurn => {
            people::resume(run, Initiator::Cancel, out);
            out.emit(run, Event::Cancelling(TaskCancelling { task_id: task_id.clone(), mode, by }));
            // To ask, or to ask again, would begin something new.
            for waiting in ask::waiting(run, &task_id, out) {
                cut_short(run, &waiting, mode, by, out);
            }
        }
    }
}

/// A task stops now, with all below it.
pub(crate) fn cut_short(run: &mut RunState, top: &TaskId, mode: CancelMode, by: Initiator, out: &mut Out) {
    let who = if run.root_id() == *top { "run" } else { "agent" };
    let error = ErrorInfo::new("cancelled", format!("The {who} was cancelled."));
    people::resume(run, Initiator::Cancel, out);
    let (reason, stop) = (IncompleteReason::Cancelled, StopReason::Cancelled);
    cut(run, &Cut { top, reason, stop, error }, out, |task_id, sums| {
        let (usage, duration_ms) = sums;
        Event::Cancelled(TaskCancelled { task_id, mode, by, usage, duration_ms })
    });
}

/// A task has finished its turn, and nothing new begins.
pub(crate) fn cancelled(run: &mut RunState, task: &TaskId, out: &mut Out) {
    let Some(cancelling) = run.fold.task(task).and_then(|task| run.cancelling(task)) else { return };
    let (usage, duration_ms) = sums(run, task, out);
    let (task_id, mode, by) = (task.clone(), cancelling.mode, cancelling.by);
    out.emit(run, Event::Cancelled(TaskCancelled { task_id, mode, by, usage, duration_ms }));
}

/// The run's time is up.
pub(crate) fn deadline(run: &mut RunState, task: &TaskId, out: &mut Out) {
    if run.root_id() != *task {
        return; // another run's
    }
    let error = ErrorInfo::new("deadline", "The run's time was up.");
    people::resume(run, Initiator::Timeout, out);
    let (reason, stop) = (IncompleteReason::Limit, StopReason::Cancelled);
    cut(run, &Cut { top: task, reason, stop, error }, out, |task_id, sums| {
        let (usage, duration_ms) = sums;
        Event::Incomplete(TaskIncomplete { task_id, reason: LimitReason::Deadline, usage, duration_ms })
    });
}

/// What cuts a task short.
struct Cut<'a> {
    /// The task, and all below it.
    top: &'a TaskId,
    reason: IncompleteReason,
    stop: StopReason,
    error: ErrorInfo,
}

fn cut(run: &mut RunState, cut: &Cut<'_>, out: &mut Out, terminal: impl Fn(TaskId, (Usage, u64)) -> Event) {
    let going = run.fold.tasks.iter().filter(|task| !task.status.is_terminal());
    let mut tasks: Vec<TaskId> = going.map(|task| task.id.clone()).collect();
    tasks.retain(|task| child::is_at_or_below(run, task, cut.top));
    for task in tasks.iter().filter_map(|task| run.fold.task(task)) {
        outstanding_of(task).into_iter().for_each(|id| out.effect(Effect::Abort(id)));
    }
    for task in tasks.into_iter().rev() {
        files::stop(run, &task, out);
        close::all(run, &task, Some(cut.reason), out);
        turn::step_done(run, &task, cut.stop, None, out);
        for call in unanswered(run, &task) {
            // A sub-agent has ended before its parent: what it made of the call is known.
            if run.fold.task(&call.child_task_id()).is_some() {
                child::end(run, &call, out);
            } else {
                people::close(run, &call, ResultStatus::Incomplete, cut.error.clone(), out);
            }
        }
        let sums = sums(run, &task, out);
        out.emit(run, terminal(task, sums));
    }
}

/// Calls of whole or limited steps that have no result. Calls of cut steps never ran and get none.
fn unanswered(run: &RunState, task: &TaskId) -> Vec<CallId> {
    let Some(task) = run.fold.task(task) else { return Vec::new() };
    let uncut = |step: Option<usize>| {
        step.and_then(|step| task.steps.get(step))
            .and_then(|step| step.stop_reason)
            .is_some_and(|end| !end.is_interrupted())
    };
    let due = task.calls().filter(|(fold, _)| fold.arguments_complete && uncut(fold.step_index));
    let due = due.filter(|(_, call)| !calls::is_answered(task, &call.call_id));
    due.map(|(_, call)| call.call_id.clone()).collect()
}

/// What a task cost, descendants included, and how long it took until now.
pub(crate) fn sums(run: &RunState, task: &TaskId, out: &Out) -> (Usage, u64) {
    let Some(fold) = run.fold.task(task) else { return Default::default() };
    (run.fold.total_usage(fold), out.moment(run).saturating_sub(fold.created_at))
}
