//! The vocabulary of these tests: agents, tools, model output, and the answers of tools and people.

use model::content::{ContentPart, ImageBlock, ImageUrl, TextBlock};
use model::definition::ToolSpec;
use model::definition::{Agent, ApprovalPolicy, Definitions, Handoff, HandoffHistory, Tool, ToolExecutor};
use model::event::{ApprovalDecision, ApprovalDecisionKind};
use model::item::Block;
use model::tool::ToolOutput;
use model::{ApprovalKey, CallId, TaskId};
use serde_json::{Value, json};
use uuid::Uuid;

/// The run of these tests. Traces write its suffix as `R`.
pub(crate) fn run_id() -> TaskId {
    TaskId::from_uuid(Uuid::from_u128(0xabc))
}

/// Expands the `R` of a trace: `call_R2`, `apr_R2`.
fn expand_label(label: &str) -> String {
    label.replacen("_R", &format!("_{}", run_id().run_suffix()), 1)
}

pub(crate) fn call_id(label: &str) -> CallId {
    CallId::from(expand_label(label))
}

pub(crate) fn approval_key(label: &str) -> ApprovalKey {
    ApprovalKey::from(expand_label(label))
}

pub(crate) fn task_id(label: &str) -> TaskId {
    TaskId::from(expand_label(label))
}

pub(crate) fn agent(name: &str, tools: &[&str]) -> Agent {
    Agent {
        name: name.to_owned(),
        models: vec![format!("scripted/{name}")],
        tools: tools.iter().map(|tool| (*tool).to_owned()).collect(),
        ..Agent::default()
    }
}

/// The same agent, which may hand off.
pub(crate) fn with_handoffs(agent: Agent, heirs: &[(&str, HandoffHistory)]) -> Agent {
    let handoff = |(agent, history): &(&str, HandoffHistory)| Handoff { agent: (*agent).to_owned(), history: *history };
    Agent { handoffs: heirs.iter().map(handoff).collect(), ..agent }
}

/// A tool that takes an object with an optional number `n`.
pub(crate) fn tool(name: &str) -> Tool {
    let parameters = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let spec = ToolSpec { name: name.to_owned(), description: String::new(), parameters };
    Tool::new(spec, ToolExecutor::Builtin)
}

pub(crate) fn needs_approval(tool: Tool) -> Tool {
    Tool { approval: ApprovalPolicy::Always, ..tool }
}

pub(crate) fn idempotent(tool: Tool) -> Tool {
    Tool { idempotent: true, ..tool }
}

pub(crate) fn with_kind(tool: Tool, how: ToolExecutor) -> Tool {
    Tool { executor: how, ..tool }
}

/// A tool that calls an agent.
pub(crate) fn agent_tool(name: &str, agent: &str) -> Tool {
    with_kind(tool(name), ToolExecutor::Agent { agent: agent.to_owned(), others: Vec::new() })
}

pub(crate) fn build_definitions(
    agents: impl IntoIterator<Item = Agent>,
    tools: impl IntoIterator<Item = Tool>,
) -> Definitions {
    Definitions {
        agents: agents.into_iter().map(|agent| (agent.name.clone(), agent)).collect(),
        tools: tools.into_iter().map(|tool| (tool.spec.name.clone(), tool)).collect(),
        ..Definitions::default()
    }
}

/// One agent with these tools.
pub(crate) fn demo_definitions(tools: impl IntoIterator<Item = Tool>) -> Definitions {
    let tools: Vec<Tool> = tools.into_iter().collect();
    let names: Vec<&str> = tools.iter().map(|tool| tool.spec.name.as_str()).collect();
    build_definitions([agent("demo", &names)], tools.clone())
}

/// One output item of a model turn.
#[derive(Clone, Debug)]
pub(crate) enum ModelOutput {
    Text(String),
    Reasoning(String),
    Call {
        name: String,
        arguments: String,
        provider: Option<String>,
    },
    /// The provider asks whether it may call a tool of its own.
    Approval {
        name: String,
        server: String,
        provider: Option<String>,
    },
    /// Actions on a computer.
    Computer(String),
}

pub(crate) fn model_approval(server: &str, name: &str, provider: &str) -> ModelOutput {
    ModelOutput::Approval { name: name.to_owned(), server: server.to_owned(), provider: Some(provider.to_owned()) }
}

pub(crate) fn model_text(words: &str) -> ModelOutput {
    ModelOutput::Text(words.to_owned())
}

pub(crate) fn model_call(name: &str, arguments: &str) -> ModelOutput {
    ModelOutput::Call { name: name.to_owned(), arguments: arguments.to_owned(), provider: None }
}

/// A call with the provider's own id.
pub(crate) fn model_call_with_id(provider: &str, name: &str, arguments: &str) -> ModelOutput {
    ModelOutput::Call { name: name.to_owned(), arguments: arguments.to_owned(), provider: Some(provider.to_owned()) }
}

/// A tool result of plain text.
pub(crate) fn tool_text(words: &str) -> ToolOutput {
    ToolOutput { message_content: vec![ContentPart::text(words)], ..ToolOutput::default() }
}

pub(crate) fn weather_output() -> ToolOutput {
    let image = ImageBlock { image_url: ImageUrl::new("data:image/png;base64,iV"), id: None };
    let words = TextBlock::new(r#"{"temperature":"15C","condition":"Sunny"}"#);
    ToolOutput { block_list: vec![Block::Text(words), Block::Image(image)], ..ToolOutput::default() }
}

pub(crate) fn approve() -> ApprovalDecision {
    ApprovalDecision { kind: ApprovalDecisionKind::Approve, always: false, message: None, args: None }
}

pub(crate) fn reject(why: &str) -> ApprovalDecision {
    ApprovalDecision { kind: ApprovalDecisionKind::Reject, message: Some(why.to_owned()), ..approve() }
}

pub(crate) fn edit(args: Value) -> ApprovalDecision {
    ApprovalDecision { kind: ApprovalDecisionKind::Edit, args: Some(args.into()), ..approve() }
}

pub(crate) fn always(decision: ApprovalDecision) -> ApprovalDecision {
    ApprovalDecision { always: true, ..decision }
}
