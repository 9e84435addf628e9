//! The events that tools send.

use crate::calls::{self, CallState};
use crate::effect::{Effect, EffectId};
use crate::output::{RunWriter, json_size};
use crate::tool_stream::ResultRoom;
use crate::{open_results, questions, recovery, tool_result, tool_stream};
use model::error::ErrorInfo;
use model::event::{CustomEvent, Event, StateDelta, StateSnapshot, ToolProgress};
use model::limits::{RECORD_BYTES_MAX, STATE_BYTES_MAX};
use model::tool::{ProgressUpdate, StateChange, ToolEvent};
use model::{CallId, TaskId};

/// What a model is told of a call whose tool was lost.
const LOST_CALL: &str = "It may or may not have done its work: find out before it is run again.";

/// Handles an event of a tool. An event of another attempt is ignored.
pub(crate) fn on_tool_event(writer: &mut RunWriter<'_>, id: &EffectId, event: ToolEvent) {
    let EffectId::Tool { call, attempt } = id else { return };
    let Some(task) = writer.run.task_of_call(call) else { return };
    let Some((fold, item)) = task.call(call) else { return };
    let is_current = fold.attempts == *attempt && fold.started.is_some() && !task.status.is_terminal();
    match calls::call_state(task, fold, item) {
        CallState::Running if is_current => {}
        CallState::AwaitingAnswer(_) if is_current => return on_event_while_asking(writer, call, event),
        _ => return, // after a time-out or a cancel the call has its result
    }
    let task_id = task.id.clone();
    match event {
        ToolEvent::Progress(ProgressUpdate { message, progress, total }) => {
            let call_id = call.clone();
            writer.emit_if_fits(Event::ToolProgress(ToolProgress { task_id, call_id, message, progress, total }));
        }
        ToolEvent::State(change) => apply_state_change(writer, task_id, call, change),
        ToolEvent::Piece { piece, place } => {
            if tool_stream::write_piece(writer, call, piece, place) == ResultRoom::Exceeded {
                writer.out.push_effect(Effect::Abort(id.clone()));
                tool_result::finish_oversized_call(writer, call);
            }
        }
        ToolEvent::Custom { name, value } => writer.emit_if_fits(Event::Custom(CustomEvent { task_id, name, value })),
        ToolEvent::Question(asked) => questions::on_live_question(writer, call, asked),
        ToolEvent::QuestionWithdrawn => {}
        ToolEvent::InputRequired(input) => {
            open_results::close_open_block(writer, call);
            questions::on_input_required(writer, call, input);
        }
        ToolEvent::End(output) => tool_result::finish_call(writer, call, output),
        ToolEvent::Lost(error) => on_lost_call(writer, call, &error),
    }
}

/// Handles an event of a tool whose question is open. What the tool reports meanwhile is not shown.
fn on_event_while_asking(writer: &mut RunWriter<'_>, call: &CallId, event: ToolEvent) {
    match event {
        ToolEvent::Progress(_)
        | ToolEvent::State(_)
        | ToolEvent::Custom { .. }
        | ToolEvent::Piece { .. }
        | ToolEvent::Question(_) => {}
        ToolEvent::QuestionWithdrawn => questions::withdraw_live_question(writer, call),
        ToolEvent::InputRequired(input) => {
            questions::withdraw_live_question(writer, call);
            questions::on_input_required(writer, call, input);
        }
        ToolEvent::End(output) => {
            questions::withdraw_live_question(writer, call);
            tool_result::finish_call(writer, call, output);
        }
        ToolEvent::Lost(error) => {
            questions::withdraw_live_question(writer, call);
            on_lost_call(writer, call, &error);
        }
    }
}

/// Nobody knows what the tool did: its rule for a crash decides.
fn on_lost_call(writer: &mut RunWriter<'_>, call: &CallId, error: &ErrorInfo) {
    let message = format!("{} {LOST_CALL}", error.message);
    recovery::recover_call(writer, call, calls::outcome_unknown_error(Some(&message)));
}

/// Applies a change of the shared state. One that cannot be applied is a mistake of the tool: it must not reach the log,
/// and its progress says so.
fn apply_state_change(writer: &mut RunWriter<'_>, task_id: TaskId, call: &CallId, change: StateChange) {
    let event = match change {
        StateChange::Snapshot(state) => Event::StateSnapshot(StateSnapshot { task_id: task_id.clone(), state }),
        StateChange::Delta(delta) => Event::StateDelta(StateDelta { task_id: task_id.clone(), delta }),
    };
    let message = match writer.run.fold.state_after(&event) {
        // The first record of the next run has to hold it.
        Ok(Some(state)) if json_size(&state) > STATE_BYTES_MAX => {
            format!("The change of the state was refused: the state would have more than {STATE_BYTES_MAX} bytes.")
        }
        Ok(_) if json_size(&event) <= RECORD_BYTES_MAX => return writer.emit(event),
        Ok(_) => format!("The change of the state was refused: it has more than {RECORD_BYTES_MAX} bytes."),
        Err(_) => "The change of the state was refused: the patch does not apply to it.".to_owned(),
    };
    let (call_id, message) = (call.clone(), Some(message));
    writer.emit(Event::ToolProgress(ToolProgress { task_id, call_id, message, progress: None, total: None }));
}
