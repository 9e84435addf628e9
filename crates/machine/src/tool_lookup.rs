//! Which tools a task has: those of its agent, and those that the caller declared.

use crate::state::RunState;
use model::CallId;
use model::definition::{ApprovalPolicy, Tool, ToolExecutor, ToolSpec};
use model::error::ErrorCode;
use model::event::ClientTool;
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
        let names: Vec<String> = tool_specs(run, task).into_iter().map(|spec| spec.name).collect();
        let message = match names.as_slice() {
            [] => format!("There is no tool `{}`: {} has none.", call.name, agent.name),
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

fn client_tool(declared: &ClientTool) -> Tool {
    let (name, description) = (declared.name.clone(), declared.description.clone());
    let spec = ToolSpec { name, description, parameters: declared.parameters.clone() };
    Tool::new(spec, ToolExecutor::Client)
}

/// The tools that the model may call.
pub(crate) fn tool_specs(run: &RunState, task: &TaskFold) -> Vec<ToolSpec> {
    let mut specs = run.definitions.tool_specs(&run.agent_of_task(task));
    for tool in &task.client_tools {
        if !specs.iter().any(|spec| spec.name == tool.name) {
            specs.extend(find_tool(run, task, &tool.name).map(|tool| tool.spec));
        }
    }
    specs
}

pub(crate) fn tool_output_bytes_max(run: &RunState, call: &CallId) -> usize {
    let task = run.task_of_call(call);
    let tool = task.and_then(|task| task.call(call).and_then(|(_, call)| find_tool(run, task, &call.name)));
    tool.and_then(|tool| tool.output_bytes_max).unwrap_or(run.definitions.limits.tool_output_bytes_max)
}
