//! The end of a step, however it ends.

use crate::output::MachineOutput;
use crate::state::RunState;
use model::TaskId;
use model::event::{Event, StepDone, StopReason};

/// Ends the open step of a task, if there is one.
pub(crate) fn finish_step(
    run: &mut RunState,
    task: &TaskId,
    stop_reason: StopReason,
    service_tier: Option<String>,
    out: &mut MachineOutput,
) {
    let turn = run.turns.remove(task);
    let Some(fold) = run.fold.task(task) else { return };
    let Some(open) = fold.open_step() else { return };
    let (usage, model) = match turn {
        Some(turn) => (turn.total_usage(), turn.model),
        // Another process received the turn: the log has what that process knew of the usage.
        None => (open.usage, run.step_model(fold, open)),
    };
    let (task_id, step) = (task.clone(), open.step);
    out.emit(run, Event::StepDone(StepDone { task_id, step, model, stop_reason, usage, service_tier }));
}
