//! Tools that the server runs: how they start, and the events that they send.

use crate::calls::{self, CallState};
use crate::effect::{Effect, EffectId};
use crate::output::{RunWriter, json_size};
use crate::state::RunState;
use crate::tool_stream::ResultRoom;
use crate::{open_results, questions, recovery, tool_result, tool_stream};
use model::definition::{DeclaredParameters, Tool};
use model::error::ErrorInfo;
use model::event::{CustomEvent, Event, StateDelta, StateSnapshot, ToolProgress, ToolStarted};
use model::limits::{RECORD_BYTES_MAX, STATE_BYTES_MAX};
use model::record::PrivatePayload;
use model::tool::{ProgressUpdate, StateChange, ToolEvent, ToolRequest};
use model::{CallId, TaskId};
use std::sync::Arc;

/// What a model is told of a call whose tool was lost.
const LOST_CALL: &str = "It may or may not have done its work: find out before it is run again.";

/// Starts a tool with validated arguments. The tool does not run before this record is durable (law 10).
pub(crate) fn start_tool(writer: &mut RunWriter<'_>, call: &CallId, tool: &Tool, arguments: String) {
    let attempt = attempts_of_call(writer.run, call) + 1;
    run_attempt(writer, call, tool, arguments, attempt);
}

/// Calls a tool again that has ended with questions: with the answers, and as the same attempt.
pub(crate) fn continue_tool(writer: &mut RunWriter<'_>, call: &CallId, tool: &Tool, arguments: String) {
    let attempt = attempts_of_call(writer.run, call);
    run_attempt(writer, call, tool, arguments, attempt);
}

fn attempts_of_call(run: &RunState, call: &CallId) -> u32 {
    run.task_of_call(call).and_then(|task| task.call(call)).map_or(0, |(fold, _)| fold.attempts)
}

fn run_attempt(writer: &mut RunWriter<'_>, call: &CallId, tool: &Tool, arguments: String, attempt: u32) {
    let Some(task) = writer.run.task_of_call(call) else { return };
    let task_id = task.id.clone();
    let answers = task.call(call).and_then(|(fold, _)| calls::tool_answers(task, fold));
    let limits = &writer.run.definitions.limits;
    let output_bytes_max = tool.output_bytes_max.unwrap_or(limits.tool_output_bytes_max);
    let deadline = writer.out.now().saturating_add(tool.timeout_ms.unwrap_or(limits.tool_timeout_ms));
    let private = PrivatePayload {
        idempotent: Some(tool.idempotent),
        on_crash: Some(tool.on_crash),
        deadline: Some(deadline),
        ..PrivatePayload::default()
    };
    emit_attempt(writer, &task_id, call, (arguments.clone(), attempt), Some(private));
    let request = ToolRequest {
        user: writer.run.user.clone(),
        thread: writer.run.thread.clone(),
        run: writer.run.root_id(),
        task: task_id,
        call_id: call.clone(),
        attempt,
        name: tool.spec.name.clone(),
        arguments,
        deadline,
        executor: Arc::new(tool.executor.clone()),
        parameters: DeclaredParameters::from_schema(&tool.spec.parameters),
        output_bytes_max,
        answers,
    };
    writer.out.push_effect(Effect::CallTool { id: EffectId::tool(call, attempt), request: Box::new(request) });
}

/// Records that a call starts, and returns the number of the attempt.
pub(crate) fn emit_tool_started(
    writer: &mut RunWriter<'_>,
    task: &TaskId,
    call: &CallId,
    arguments: String,
    private: Option<PrivatePayload>,
) -> u32 {
    let attempt = attempts_of_call(writer.run, call) + 1;
    emit_attempt(writer, task, call, (arguments, attempt), private);
    attempt
}

fn emit_attempt(
    writer: &mut RunWriter<'_>,
    task: &TaskId,
    call: &CallId,
    (arguments, attempt): (String, u32),
    private: Option<PrivatePayload>,
) {
    let call_fold = writer.run.fold.task(task).and_then(|task| task.call(call));
    let written = call_fold.and_then(|(_, call)| call.written_arguments());
    let original_arguments = written.filter(|written| *written != arguments).map(str::to_owned);
    let started = ToolStarted { task_id: task.clone(), call_id: call.clone(), arguments, original_arguments, attempt };
    writer.emit_with_private(Event::ToolStarted(started), private);
}

/// Handles an event of a tool. An event of another attempt is ignored.
pub(crate) fn on_tool_event(writer: &mut RunWriter<'_>, id: &EffectId, event: ToolEvent) {
    let EffectId::Tool { call, attempt } = id else { return };
    let Some(task) = writer.run.task_of_call(call) else { return };
    let Some((fold, item)) = task.call(call) else { return };
    let is_current = fold.attempts == *attempt && fold.started.is_some() && !task.status.is_terminal();
    match calls::call_state(task, fold, item) {
        CallState::Running if is_current => {}
        CallState::AwaitingAnswer(_) if is_current => return questions::on_event_while_asking(writer, call, event),
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

/// Nobody knows what the tool did: its rule for a crash decides.
pub(crate) fn on_lost_call(writer: &mut RunWriter<'_>, call: &CallId, error: &ErrorInfo) {
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
