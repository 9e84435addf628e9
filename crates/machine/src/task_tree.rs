//! Queries about the tasks of a run: a root and the sub-agents below it.

use crate::state::RunState;
use model::error::ErrorCode;
use model::fold::{RunFold, TaskFold};
use model::item::ToolCall;
use model::tool::ToolOutput;
use model::{Millis, TaskId};

/// The tasks that have not ended, oldest first.
pub(crate) fn open_tasks(run: &RunFold) -> impl DoubleEndedIterator<Item = &TaskFold> {
    run.tasks.iter().filter(|task| !task.status.is_terminal())
}

/// A task and those above it, up to the root.
pub(crate) fn ancestors_and_self<'a>(
    run: &'a RunFold,
    task: Option<&'a TaskFold>,
) -> impl Iterator<Item = &'a TaskFold> {
    std::iter::successors(task, |task| run.task(task.spec.parent_task_id.as_ref()?))
}

/// Whether a task is `ancestor` or below it.
pub(crate) fn is_in_subtree(run: &RunState, task: &TaskId, ancestor: &TaskId) -> bool {
    ancestors_and_self(&run.fold, run.fold.task(task)).any(|task| task.id == *ancestor)
}

/// The tasks at or below `top` that wait before they call their model: for a retry or for files.
pub(crate) fn tasks_waiting_to_call(run: &RunState, top: &TaskId, now: Millis) -> Vec<TaskId> {
    let retries_later = |task: &TaskFold| task.open_step().and_then(|open| open.not_before).is_some_and(|at| at > now);
    let waiting = open_tasks(&run.fold).filter(|task| retries_later(task) || task.open_file_processing().is_some());
    waiting.map(|task| task.id.clone()).filter(|task| is_in_subtree(run, task, top)).collect()
}

pub(crate) fn has_sub_agent_ended(run: &RunState, call: &ToolCall) -> bool {
    run.fold.task(&call.call_id.child_task_id()).is_some_and(|child| child.status.is_terminal())
}

/// Why a task may not start this sub-agent now.
pub(crate) fn sub_agent_refusal(run: &RunState, task: &TaskFold, agent: &str) -> Option<ToolOutput> {
    let limits = &run.definitions.limits;
    if !run.definitions.agents.contains_key(agent) {
        return Some(ToolOutput::failed(ErrorCode::UnknownAgent, format!("There is no agent `{agent}`.")));
    }
    let depth = ancestors_and_self(&run.fold, Some(task)).skip(1).count();
    if depth >= limits.depth_max as usize {
        let message = format!("Agents may ask agents {} deep: this one answers itself.", limits.depth_max);
        return Some(ToolOutput::failed(ErrorCode::DepthLimit, message));
    }
    let descendants = run.fold.tasks.len().saturating_sub(1);
    let message = || format!("A run may ask {} agents, and has.", limits.descendants_max);
    (descendants >= limits.descendants_max).then(|| ToolOutput::failed(ErrorCode::DescendantsLimit, message()))
}
