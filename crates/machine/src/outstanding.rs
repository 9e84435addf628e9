//! Effects that were requested and have not ended, read from the state alone.

use crate::calls::{self, CallState};
use crate::effect::{EffectId, TimerId};
use crate::state::RunState;
use crate::task_tree::open_tasks;
use model::fold::TaskFold;
use model::item::{FileStatus, ProcessedFile};
use model::{CallId, Millis};

/// The effects that a run waits for.
pub fn outstanding_effects(run: &RunState) -> Vec<EffectId> {
    open_tasks(&run.fold).flat_map(outstanding_effects_of_task).collect()
}

/// The effects that an open task waits for.
pub(crate) fn outstanding_effects_of_task(task: &TaskFold) -> Vec<EffectId> {
    let open = task.open_step();
    let mut ids: Vec<_> = open.map(|step| EffectId::model(&task.id, step.step, step.attempt)).into_iter().collect();
    ids.extend(outstanding_file_reads(task));
    for (fold, call) in task.calls() {
        match calls::call_state(task, fold, call) {
            CallState::Running => ids.push(EffectId::tool(&call.call_id, fold.attempts)),
            CallState::AwaitingApproval => ids.push(EffectId::Timer(TimerId::Approval(call.call_id.approval_key()))),
            CallState::AwaitingAnswer(request) => {
                ids.push(EffectId::Timer(TimerId::Approval(request.key.clone())));
                if fold.started.is_some() {
                    ids.push(EffectId::tool(&call.call_id, fold.attempts));
                }
            }
            _ => {}
        }
    }
    // Only the root task of a run has a deadline.
    if task.deadline.is_some() {
        ids.push(EffectId::Timer(TimerId::Run(task.id.clone())));
    }
    ids
}

/// Whether anything goes on without people: a model, a tool that does not wait for an answer, a file.
pub(crate) fn is_busy(run: &RunState) -> bool {
    let is_asking = |call: &CallId| {
        let task = run.task_of_call(call);
        let state = task.and_then(|task| task.call(call).map(|(fold, item)| calls::call_state(task, fold, item)));
        matches!(state, Some(CallState::AwaitingAnswer(_)))
    };
    outstanding_effects(run).iter().any(|id| match id {
        EffectId::Timer(_) => false,
        EffectId::Tool { call, .. } => !is_asking(call),
        _ => true,
    })
}

/// The tool of a call, if it runs, perhaps waiting for an answer.
pub(crate) fn started_tool(run: &RunState, call: &CallId) -> Option<EffectId> {
    let (fold, _) = run.task_of_call(call)?.call(call)?;
    fold.started.as_ref().map(|_| EffectId::tool(call, fold.attempts))
}

pub(crate) fn outstanding_file_reads(task: &TaskFold) -> Vec<EffectId> {
    let Some((_, fold, item)) = task.open_file_processing() else { return Vec::new() };
    let id = |file: &ProcessedFile| {
        let attempt = fold.files.get(&file.url).map_or(0, |file| file.attempts);
        EffectId::file(&item.id, &file.url, attempt)
    };
    item.files.iter().filter(|file| file.status == FileStatus::Processing).map(id).collect()
}

/// When a timer fires.
pub fn timer_deadline(run: &RunState, timer: &TimerId) -> Option<Millis> {
    match timer {
        TimerId::Run(task) => run.fold.task(task).and_then(|task| task.deadline),
        TimerId::Approval(key) => {
            let approvals = run.fold.tasks.iter().flat_map(|task| &task.approvals);
            approvals.rev().find(|(request, _)| request.key == *key).map(|(request, _)| request.expires_at)
        }
    }
}
