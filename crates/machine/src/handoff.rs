//! Hand-offs: another agent continues the same task.

use crate::output::RunWriter;
use crate::tool_execution;
use crate::tool_result::{CitationGroups, write_numbered_result};
use model::CallId;
use model::content::ContentPart;
use model::event::{AgentUpdated, Event};
use model::item::ResultStatus;
use model::tool::ToolOutput;

/// The call gets its result, then the agent of the task changes.
pub(crate) fn hand_off(writer: &mut RunWriter<'_>, call: &CallId, agent: &str, arguments: String) {
    let Some(task) = writer.run.task_of_call(call) else { return };
    let (task_id, from) = (task.id.clone(), task.agent.clone());
    tool_execution::emit_tool_started(writer, &task_id, call, arguments, None);
    let text = serde_json::json!({ "assistant": agent }).to_string();
    let output = ToolOutput { message_content: vec![ContentPart::text(text)], ..ToolOutput::default() };
    write_numbered_result(writer, call, ResultStatus::Completed, output, CitationGroups::None);
    writer.emit(Event::AgentUpdated(AgentUpdated { task_id, agent: agent.to_owned(), from }));
}
