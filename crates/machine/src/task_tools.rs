//! The tools of a task: those of its agent, and those that the caller declared.

use crate::state::RunState;
use model::definition::{Tool, ToolExecutor, ToolSpec};
use model::event::ClientTool;
use model::fold::TaskFold;

/// The tools that the model may call, but for the search. One that the caller declared stands in for the agent's own of that
/// name, in its place.
pub(crate) fn task_tools(run: &RunState, task: &TaskFold) -> Vec<Tool> {
    let agent = run.agent_of_task(task);
    let mut tools = run.definitions.agent_tools(&agent);
    for declared in &task.client_tools {
        match tools.iter_mut().find(|tool| tool.spec.name == declared.name) {
            Some(own) if agent.allows_stand_in(own) => *own = client_tool(declared),
            Some(_) => {}
            None => tools.push(client_tool(declared)),
        }
    }
    tools
}

/// The declared tool of this name.
pub(crate) fn find_declared(tools: &[ClientTool], name: &str) -> Option<Tool> {
    tools.iter().find(|tool| tool.name == name).map(client_tool)
}

fn client_tool(declared: &ClientTool) -> Tool {
    let (name, description) = (declared.name.clone(), declared.description.clone());
    let spec = ToolSpec { name, description, parameters: declared.parameters.clone() };
    Tool::new(spec, ToolExecutor::Client)
}
