//! Which tool a call names.

use crate::state::RunState;
use crate::task_tools::{find_declared, task_tools};
use crate::tool_search;
use model::CallId;
use model::definition::{ApprovalPolicy, Tool, ToolExecutor, ToolSpec};
use model::error::ErrorCode;
use model::fold::TaskFold;
use model::item::{COMPUTER_TOOL, CallKind, ToolCall};
use model::json::JsonObject;
use model::tool::ToolOutput;

/// The tool that a call names, or the error result for the model.
pub(crate) fn resolve_tool(run: &RunState, task: &TaskFold, call: &ToolCall) -> Result<Tool, Box<ToolOutput>> {
    tool_of_call(run, task, call).or_else(|| undeclared_computer(call)).ok_or_else(|| {
        let agent = run.agent_of_task(task);
        let names: Vec<String> = task_tools(run, task).into_iter().map(|tool| tool.spec.name).collect();
        let message = match names.as_slice() {
            [] => format!("There is no tool `{}`: {} has none.", call.name, agent.name),
            _ if tool_search::searchable_tools(run, task).is_some() => {
                format!("There is no tool `{}` here. Find one with `{}`.", call.name, tool_search::TOOL_SEARCH)
            }
            names => format!("There is no tool `{}` here. There are: {}.", call.name, names.join(", ")),
        };
        Box::new(ToolOutput::failed(ErrorCode::UnknownTool, message))
    })
}

/// The tool of a call that the model has made. A call for the client stays one, and one for the server, too, whatever tools a
/// later request declares.
pub(crate) fn tool_of_call(run: &RunState, task: &TaskFold, call: &ToolCall) -> Option<Tool> {
    let own = || run.definitions.resolve_tool(&run.agent_of_task(task), &call.name);
    let declared = || find_declared(&task.client_tools, &call.name);
    match call.kind {
        Some(CallKind::Client) => {
            declared().or_else(|| find_declared(&task.retired_client_tools, &call.name)).or_else(own)
        }
        _ => own().or_else(declared).or_else(|| tool_search::find_search_tool(run, task, &call.name)),
    }
}

/// The tool of this name, as the agent of the task knows it. Tools that the caller declared belong to the root task, and stand
/// in for the agent's own unless its operator refuses that. They never stand in for other agents.
pub(crate) fn find_tool(run: &RunState, task: &TaskFold, name: &str) -> Option<Tool> {
    let agent = run.agent_of_task(task);
    let own = run.definitions.resolve_tool(&agent, name);
    let declared = find_declared(&task.client_tools, name);
    match (own, declared) {
        (Some(own), Some(_)) if !agent.allows_stand_in(&own) => Some(own),
        (own, declared) => declared.or(own).or_else(|| tool_search::find_search_tool(run, task, name)),
    }
}

/// Without a tool of that name, the client operates the computer. It declares none: the operator's options do.
fn undeclared_computer(call: &ToolCall) -> Option<Tool> {
    let is_clients = call.kind == Some(CallKind::Client) && call.name == COMPUTER_TOOL;
    is_clients.then(|| Tool::new(spec_of_call(call), ToolExecutor::Client))
}

/// The tool that a provider asks to call. It is not run here; the defaults of approvals apply to it.
pub(crate) fn hosted_tool(call: &ToolCall) -> Tool {
    Tool { approval: ApprovalPolicy::Always, ..Tool::new(spec_of_call(call), ToolExecutor::Client) }
}

/// The declaration of a tool whose arguments nobody has declared.
fn spec_of_call(call: &ToolCall) -> ToolSpec {
    let parameters = serde_json::Value::Object(JsonObject::new());
    ToolSpec { name: call.name.clone(), description: String::new(), parameters }
}

pub(crate) fn tool_output_bytes_max(run: &RunState, call: &CallId) -> usize {
    let task = run.task_of_call(call);
    let tool = task.and_then(|task| task.call(call).and_then(|(_, call)| tool_of_call(run, task, call)));
    tool.and_then(|tool| tool.output_bytes_max).unwrap_or(run.definitions.limits.tool_output_bytes_max)
}
