//! Hand-overs: another agent goes on in the same task.

use crate::state::RunState;
use crate::{Out, result};
use model::CallId;
use model::block::ContentPart;
use model::event::{AgentUpdated, Event, ToolStarted};
use model::item::ResultStatus;
use model::tool::ToolOutput;

/// An agent takes over: the call gets its result, then the agent changes.
pub(crate) fn hand_over(run: &mut RunState, call: &CallId, agent: &str, arguments: String, out: &mut Out) {
    let Some(task) = run.task_of_call(call) else { return };
    let (task_id, from) = (task.id.clone(), task.agent.clone());
    let attempt = task.call(call).map_or(0, |(fold, _)| fold.attempts) + 1;
    let started = ToolStarted { task_id: task_id.clone(), call_id: call.clone(), arguments, attempt };
    out.emit(run, Event::ToolStarted(started));
    let said = serde_json::json!({ "assistant": agent }).to_string();
    let output = ToolOutput { message_content: vec![ContentPart::text(said)], ..ToolOutput::default() };
    result::say(run, call, ResultStatus::Completed, output, out);
    out.emit(run, Event::AgentUpdated(AgentUpdated { task_id, agent: agent.to_owned(), from }));
}
