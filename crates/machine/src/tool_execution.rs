//! Tools that the server runs: how they start, and what they say on the way.

use crate::calls::{self, CallState};
use crate::effect::{Effect, EffectId};
use crate::state::RunState;
use crate::{MachineOutput, tool_result};
use model::definition::Tool;
use model::event::{CustomEvent, Event, StateDelta, StateSnapshot, ToolProgress, ToolStarted};
use model::record::PrivatePayload;
use model::tool::{StateChange, ToolEvent, ToolRequest};
use model::{CallId, TaskId};
use std::sync::Arc;

/// Starts a tool, with the arguments that were found good. Nothing runs before this record is durable (law 10).
pub(crate) fn start_tool(run: &mut RunState, call: &CallId, tool: &Tool, arguments: String, out: &mut MachineOutput) {
    let Some(task) = run.task_of_call(call) else { return };
    let Some((fold, _)) = task.call(call) else { return };
    let (task_id, attempt) = (task.id.clone(), fold.attempts + 1);
    let limits = &run.definitions.limits;
    let deadline = out.now().saturating_add(tool.timeout_ms.unwrap_or(limits.tool_timeout_ms));
    let request = ToolRequest {
        user: run.user.clone(),
        thread: run.thread.clone(),
        run: run.root_id(),
        task: task_id.clone(),
        call_id: call.clone(),
        attempt,
        name: tool.spec.name.clone(),
        arguments: arguments.clone(),
        deadline,
        executor: Arc::new(tool.executor.clone()),
        output_bytes_max: tool.output_bytes_max.unwrap_or(limits.tool_output_bytes_max),
    };
    let private = PrivatePayload {
        idempotent: Some(tool.idempotent),
        on_crash: Some(tool.on_crash),
        deadline: Some(deadline),
        ..PrivatePayload::default()
    };
    let started = ToolStarted { task_id, call_id: call.clone(), arguments, attempt };
    out.emit_with_private(run, Event::ToolStarted(started), Some(private));
    out.push_effect(Effect::CallTool { id: EffectId::tool(call, attempt), request: Box::new(request) });
}

/// A tool said something. What answers nothing outstanding is ignored.
pub(crate) fn on_tool_event(run: &mut RunState, id: &EffectId, event: ToolEvent, out: &mut MachineOutput) {
    let EffectId::Tool { call, attempt } = id else { return };
    let Some(task) = run.task_of_call(call) else { return };
    let Some((fold, held)) = task.call(call) else { return };
    let runs = matches!(calls::call_state(task, fold, held), CallState::Running) && fold.attempts == *attempt;
    if !runs || task.status.is_terminal() {
        return; // a result after a time-out or a cancel: already answered
    }
    let task_id = task.id.clone();
    match event {
        ToolEvent::Progress(progress) => {
            let model::tool::ProgressUpdate { message, progress, total } = progress;
            let call_id = call.clone();
            out.emit_if_fits(run, Event::ToolProgress(ToolProgress { task_id, call_id, message, progress, total }));
        }
        ToolEvent::State(change) => apply_state_change(run, task_id, change, out),
        ToolEvent::Custom { name, value } => out.emit_if_fits(run, Event::Custom(CustomEvent { task_id, name, value })),
        ToolEvent::End(output) => tool_result::finish_call(run, call, output, out),
    }
}

fn apply_state_change(run: &mut RunState, task_id: TaskId, change: StateChange, out: &mut MachineOutput) {
    match change {
        StateChange::Snapshot(state) => {
            out.emit_if_fits(run, Event::StateSnapshot(StateSnapshot { task_id, state }));
        }
        StateChange::Delta(delta) => {
            let delta = StateDelta { task_id, delta };
            // A change that does not apply is the tool's mistake, not the log's.
            if run.fold.can_apply_state_delta(&delta) {
                out.emit_if_fits(run, Event::StateDelta(delta));
            }
        }
    }
}
