//! Tools that the server runs: how they start.

use crate::calls;
use crate::effect::{Effect, EffectId};
use crate::output::RunWriter;
use crate::state::RunState;
use model::definition::{DeclaredParameters, Tool};
use model::event::{Event, ToolStarted};
use model::record::PrivatePayload;
use model::tool::ToolRequest;
use model::{CallId, TaskId};
use std::sync::Arc;

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
