//! How tasks end: by themselves, at a limit, by failure, by a cancel, by a crash.
//!
//! A cut goes newest task first: open parts and items are closed `incomplete`, then the step, then every call without a
//! result gets one, then the terminal event. So no item stays open and no call unanswered, whatever happened.

use crate::effect::Effect;
use crate::input::CancelRun;
use crate::state::RunState;
use crate::{Out, close, outstanding, tools, turn};
use model::event::{Cancelled, Completed, ErrorInfo, Event, Failed, Incomplete, LimitReason, StopReason};
use model::item::{IncompleteReason, ResultStatus};
use model::record::OnCrash;
use model::usage::Usage;
use model::{CallId, TaskId};

/// A task did what it was asked.
pub(crate) fn complete(run: &mut RunState, task: &TaskId, out: &mut Out) {
    let (usage, duration_ms) = sums(run, task, out);
    out.emit(run, Event::Completed(Completed { task_id: task.clone(), usage, cost: None, duration_ms }));
}

/// A limit ended a task between two turns. Calls of a limited turn never ran.
pub(crate) fn limited(run: &mut RunState, task: &TaskId, reason: LimitReason, out: &mut Out) {
    for call in unanswered(run, task) {
        let error = ErrorInfo::new("limit", "The turn ran into a limit: the call was not run.");
        tools::give_up(run, &call, ResultStatus::Incomplete, error, out);
    }
    let (usage, duration_ms) = sums(run, task, out);
    out.emit(run, Event::Incomplete(Incomplete { task_id: task.clone(), reason, usage, duration_ms }));
}

/// The provider failed, and nothing more is tried.
pub(crate) fn provider_failed(run: &mut RunState, task: &TaskId, mut error: ErrorInfo, out: &mut Out) {
    error.details.get_or_insert_with(|| serde_json::json!({}));
    close::all(run, task, Some(IncompleteReason::Failed), out);
    turn::step_done(run, task, StopReason::Error, None, out);
    let (usage, duration_ms) = sums(run, task, out);
    out.emit(run, Event::Failed(Failed { task_id: task.clone(), error, usage, duration_ms }));
}

/// Somebody stops the run.
pub(crate) fn cancel(run: &mut RunState, cancel: CancelRun, out: &mut Out) {
    let error = ErrorInfo::new("cancelled", "The run was cancelled.");
    cut(run, &Cut { reason: IncompleteReason::Cancelled, stop: StopReason::Cancelled, error }, out, |task_id, sums| {
        let (usage, duration_ms) = sums;
        Event::Cancelled(Cancelled { task_id, mode: cancel.mode, by: cancel.by, usage, duration_ms })
    });
}

/// The run's time is up.
pub(crate) fn deadline(run: &mut RunState, out: &mut Out) {
    let error = ErrorInfo::new("deadline", "The run's time was up.");
    cut(run, &Cut { reason: IncompleteReason::Limit, stop: StopReason::Cancelled, error }, out, |task_id, sums| {
        let (usage, duration_ms) = sums;
        Event::Incomplete(Incomplete { task_id, reason: LimitReason::Deadline, usage, duration_ms })
    });
}

/// The process died in the middle. The run ends here, and says so.
pub(crate) fn interrupted(run: &mut RunState, out: &mut Out) {
    let error = ErrorInfo::new("interrupted", "The server stopped while the call ran: nobody knows how it ended.");
    cut(run, &Cut { reason: IncompleteReason::Failed, stop: StopReason::Lost, error }, out, |task_id, sums| {
        let (usage, duration_ms) = sums;
        let error = ErrorInfo {
            code: "interrupted".to_owned(),
            message: "The server stopped in the middle of this run. What was shown is kept; ask again to go on."
                .to_owned(),
            retryable: Some(true),
            details: Some(serde_json::json!({})),
        };
        Event::Failed(Failed { task_id, error, usage, duration_ms })
    });
}

/// What cuts a run short.
struct Cut {
    reason: IncompleteReason,
    stop: StopReason,
    error: ErrorInfo,
}

fn cut(run: &mut RunState, cut: &Cut, out: &mut Out, terminal: impl Fn(TaskId, (Usage, u64)) -> Event) {
    if run.fold.is_over() {
        return;
    }
    for id in outstanding(run) {
        out.effect(Effect::Abort(id));
    }
    let tasks: Vec<TaskId> = run.fold.tasks.iter().rev().map(|task| task.id.clone()).collect();
    for task in tasks {
        if run.fold.task(&task).is_none_or(|fold| fold.status.is_terminal()) {
            continue;
        }
        close::all(run, &task, Some(cut.reason), out);
        turn::step_done(run, &task, cut.stop, None, out);
        for call in unanswered(run, &task) {
            let status = status_of(run, &task, &call, cut.stop);
            tools::give_up(run, &call, status, cut.error.clone(), out);
        }
        let sums = sums(run, &task, out);
        out.emit(run, terminal(task, sums));
    }
}

/// Calls of whole or limited steps that have no result. Calls of cut steps never ran and get none.
fn unanswered(run: &RunState, task: &TaskId) -> Vec<CallId> {
    let Some(task) = run.fold.task(task) else { return Vec::new() };
    let uncut = |step: Option<usize>| {
        step.and_then(|step| task.steps.get(step)).and_then(|step| step.end).is_some_and(|end| !end.is_cut())
    };
    let due = task.calls().filter(|(fold, _)| fold.arguments_whole && uncut(fold.step));
    let due = due.filter(|(_, call)| !tools::is_answered(task, &call.call_id));
    due.map(|(_, call)| call.call_id.clone()).collect()
}

fn status_of(run: &RunState, task: &TaskId, call: &CallId, stop: StopReason) -> ResultStatus {
    let started = run.fold.task(task).and_then(|task| task.call(call)).and_then(|(fold, _)| fold.started.as_ref());
    match (stop, started.map(|started| started.on_crash)) {
        (StopReason::Lost, Some(OnCrash::Unknown)) => ResultStatus::Unknown,
        (StopReason::Lost, Some(OnCrash::Fail)) => ResultStatus::Failed,
        _ => ResultStatus::Incomplete,
    }
}

/// What a task cost, descendants included, and how long it took until now.
fn sums(run: &RunState, task: &TaskId, out: &Out) -> (Usage, u64) {
    let Some(fold) = run.fold.task(task) else { return Default::default() };
    (run.fold.usage(fold), out.moment(run).saturating_sub(fold.created_at))
}
