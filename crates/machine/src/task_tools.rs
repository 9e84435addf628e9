//! The tools of a task: those of its agent, and those that the caller declared.

use crate::state::RunState;
use model::definition::{Tool, ToolExecutor, ToolSpec};
use model::event::ClientTool;
use model::fold::TaskFold;

/// The tools that the model may call, but for the search.
pub(crate) fn task_tools(run: &RunState, task: &TaskFold) -> Vec<Tool> {
    let mut tools = run.definitions.agent_tools(&run.agent_of_task(task));
    for declared in &task.client_tools {
        if !tools.iter().any(|tool| tool.spec.name == declared.name) {
            tools.push(client_tool(declared));
        }
    }
    tools
}

pub(crate) fn client_tool(declared: &ClientTool) -> Tool {
    let (name, description) = (declared.name.clone(), declared.description.clone());
    let spec = ToolSpec { name, description, parameters: declared.parameters.clone() };
    Tool::new(spec, ToolExecutor::Client)
}
