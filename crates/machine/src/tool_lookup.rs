//! Which tool a call names.

use crate::state::RunState;
use crate::task_tools::{client_tool, task_tools};
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
    // A call that waits for the client keeps its tool, also when a later request does not declare it any more.
    let retired = || {
        let is_client = call.kind == Some(CallKind::Client);
        task.retired_client_tools.iter().find(|tool| is_client && tool.name == call.name).map(client_tool)
    };
    find_tool(run, task, &call.name).or_else(retired).or_else(|| undeclared_computer(call)).ok_or_else(|| {
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

/// The tool of this name, as the agent of the task knows it. Tools that the caller declared belong to the root task.
pub(crate) fn find_tool(run: &RunState, task: &TaskFold, name: &str) -> Option<Tool> {
    run.definitions
        .resolve_tool(&run.agent_of_task(task), name)
        .or_else(|| task.client_tools.iter().find(|tool| tool.name == name).map(client_tool))
        .or_else(|| tool_search::find_search_tool(run, task, name))
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
    let tool = task.and_then(|task| task.call(call).and_then(|(_, call)| find_tool(run, task, &call.name)));
    tool.and_then(|tool| tool.output_bytes_max).unwrap_or(run.definitions.limits.tool_output_bytes_max)
}
