//! The end of a step, however it ends.

use crate::output::RunWriter;
use model::TaskId;
use model::event::{Event, StepDone, StopReason};

/// Ends the open step of a task, if there is one.
pub(crate) fn finish_step(
    writer: &mut RunWriter<'_>,
    task: &TaskId,
    stop_reason: StopReason,
    service_tier: Option<String>,
) {
    let turn = writer.run.turns.remove(task);
    let Some(fold) = writer.run.fold.task(task) else { return };
    let Some(open) = fold.open_step() else { return };
    let (usage, model) = match turn {
        Some(turn) => (turn.total_usage(), turn.model),
        // Another process received the turn: the log has what that process knew of the usage.
        None => (open.usage, writer.run.step_model(fold, open)),
    };
    let (task_id, step) = (task.clone(), open.step);
    writer.emit(Event::StepDone(Box::new(StepDone { task_id, step, model, stop_reason, usage, service_tier })));
}
