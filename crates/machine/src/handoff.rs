//! Hand-overs: another agent goes on in the same task.

use crate::state::RunState;
use crate::{MachineOutput, tool_result};
use model::CallId;
use model::content::ContentPart;
use model::event::{AgentUpdated, Event, ToolStarted};
use model::item::ResultStatus;
use model::tool::ToolOutput;

/// An agent takes over: the call gets its result, then the agent changes.
pub(crate) fn hand_off(run: &mut RunState, call: &CallId, agent: &str, arguments: String, out: &mut MachineOutput) {
    let Some(task) = run.task_of_call(call) else { return };
    let (task_id, from) = (task.id.clone(), task.agent.clone());
    let attempt = task.call(call).map_or(0, |(fold, _)| fold.attempts) + 1;
    let started = ToolStarted { task_id: task_id.clone(), call_id: call.clone(), arguments, attempt };
    out.emit(run, Event::ToolStarted(started));
    let said = serde_json::json!({ "assistant": agent }).to_string();
    let output = ToolOutput { message_content: vec![ContentPart::text(said)], ..ToolOutput::default() };
    tool_result::write_uncited_result(run, call, ResultStatus::Completed, output, out);
    out.emit(run, Event::AgentUpdated(AgentUpdated { task_id, agent: agent.to_owned(), from }));
}
