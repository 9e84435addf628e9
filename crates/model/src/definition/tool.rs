//! A tool: its declaration for the model, its executor and its policies.

use super::{Agent, McpTool, handoff_tool_name};
use crate::approval_rule::ApprovalRule;
use crate::item::{ApprovalGate, CallKind};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

const APPROVAL_TIMEOUT_SECONDS: u64 = 300;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    pub spec: ToolSpec,
    #[serde(rename = "how")]
    pub executor: ToolExecutor,
    /// For people.
    pub display_name: Option<String>,
    /// The namespace in which a search finds it. A tool of an MCP server without one has its server's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    pub approval: ApprovalPolicy,
    pub approval_timeout_seconds: u64,
    pub approval_on_timeout: ApprovalOnTimeout,
    /// Whether it may be run again after a crash.
    pub idempotent: bool,
    /// Its result after a crash, when it is not idempotent.
    pub on_crash: OnCrash,
    /// `None` is [`crate::limits::RunLimits::tool_timeout_ms`].
    pub timeout_ms: Option<u64>,
    /// `None` is [`crate::limits::RunLimits::tool_output_bytes_max`].
    pub output_bytes_max: Option<usize>,
}

/// What runs a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ToolExecutor {
    /// Built into the server, by the tool's name.
    Builtin,
    Http(HttpTool),
    Command(CommandTool),
    /// A tool of an MCP server.
    Mcp(McpTool),
    /// The run loop, which searches the tools that the model was not given. Never declared.
    ToolSearch,
    /// The client that started the run.
    Client,
    /// A sub-agent. With `others`, the argument `name` picks one of them all.
    Agent {
        agent: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        others: Vec<String>,
    },
    /// Another agent that takes over the task.
    Handoff {
        agent: String,
    },
}

/// An HTTP request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HttpTool {
    pub method: String,
    /// `{name}` is replaced by the argument of that name.
    pub url: String,
    /// A value may be, or contain, a reference to a secret.
    pub headers: BTreeMap<String, String>,
    /// `None` sends all arguments that the URL does not use.
    pub body: Option<Value>,
    /// A JSON pointer to the result in the response; `None` is the whole response.
    pub result: Option<String>,
}

/// A program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CommandTool {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The working directory; `None` is the server's.
    pub dir: Option<String>,
    /// Variables that are passed on from the server's environment. No others are.
    pub env_pass: Vec<String>,
    /// More variables; a value may be, or contain, a reference to a secret.
    pub env: BTreeMap<String, String>,
}

/// When a person must approve a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalPolicy {
    #[default]
    Never,
    Always,
    /// If the rule requires it or cannot be evaluated.
    When(ApprovalRule),
}

/// The decision when nobody answers in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalOnTimeout {
    #[default]
    Reject,
    Approve,
}

impl Tool {
    /// A tool with default policies.
    pub const fn new(spec: ToolSpec, how: ToolExecutor) -> Self {
        Self {
            spec,
            executor: how,
            display_name: None,
            group: None,
            approval: ApprovalPolicy::Never,
            approval_timeout_seconds: APPROVAL_TIMEOUT_SECONDS,
            approval_on_timeout: ApprovalOnTimeout::Reject,
            idempotent: false,
            on_crash: OnCrash::Unknown,
            timeout_ms: None,
            output_bytes_max: None,
        }
    }

    /// The tool that calls an agent, under the agent's own name.
    pub fn for_sub_agent(agent: &Agent) -> Self {
        let description = match agent.description.as_str() {
            "" => format!("Ask the agent {}.", agent.name),
            words => words.to_owned(),
        };
        let parameters = serde_json::json!({
            "type": "object",
            "properties": {"prompt": {"type": "string", "description": "What it is to do, with all that it must know."}},
            "required": ["prompt"],
        });
        let spec = ToolSpec { name: agent.name.clone(), description, parameters };
        Self::new(spec, ToolExecutor::Agent { agent: agent.name.clone(), others: Vec::new() })
    }

    /// The tool that calls one of several agents: its argument `name` says which.
    #[must_use]
    pub fn for_sub_agents(agents: &[&Agent]) -> Option<Self> {
        let (first, others) = agents.split_first()?;
        let mut tool = Self::for_sub_agent(first);
        if others.is_empty() {
            return Some(tool);
        }
        let describe = |agent: &&Agent| match agent.description.as_str() {
            "" => format!("- {}", agent.name),
            words => format!("- {}: {words}", agent.name),
        };
        let list = agents.iter().map(describe).collect::<Vec<_>>().join("\n");
        tool.spec.description = format!("Ask one of these agents:\n{list}");
        let names: Vec<&str> = agents.iter().map(|agent| agent.name.as_str()).collect();
        tool.spec.parameters = serde_json::json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": format!("The agent: {}.", names.join(", "))},
                "prompt": {"type": "string", "description": "What it is to do, with all that it must know."},
            },
            "required": ["name", "prompt"],
        });
        let others = others.iter().map(|agent| agent.name.clone()).collect();
        tool.executor = ToolExecutor::Agent { agent: first.name.clone(), others };
        Some(tool)
    }

    pub fn for_handoff(agent: &Agent) -> Self {
        let description = format!("Hand over to {}. {}", agent.name, agent.description).trim_end().to_owned();
        let parameters = serde_json::json!({"type": "object", "properties": {}});
        let spec = ToolSpec { name: handoff_tool_name(&agent.name), description, parameters };
        Self::new(spec, ToolExecutor::Handoff { agent: agent.name.clone() })
    }

    pub const fn call_kind(&self) -> CallKind {
        match self.executor {
            ToolExecutor::Builtin | ToolExecutor::Http(_) | ToolExecutor::Command(_) | ToolExecutor::Mcp(_) => {
                CallKind::Tool
            }
            ToolExecutor::ToolSearch => CallKind::ToolSearch,
            ToolExecutor::Client => CallKind::Client,
            ToolExecutor::Agent { .. } => CallKind::Agent,
            ToolExecutor::Handoff { .. } => CallKind::Handoff,
        }
    }

    /// The namespace in which a search finds it.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        let server = match &self.executor {
            ToolExecutor::Mcp(tool) => Some(tool.server.as_str()),
            _ => None,
        };
        self.group.as_deref().or(server)
    }

    /// What is known about approval before the arguments are.
    pub const fn approval_gate(&self) -> ApprovalGate {
        match self.approval {
            ApprovalPolicy::Never => ApprovalGate::Never,
            ApprovalPolicy::Always => ApprovalGate::Always,
            ApprovalPolicy::When(_) => ApprovalGate::Maybe,
        }
    }
}

/// The result of a tool that was running when the process crashed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnCrash {
    /// The outcome is unknown, and the result says so.
    #[default]
    Unknown,
    Fail,
    /// A person decides: run it again, or supply the outcome.
    Ask,
}

impl OnCrash {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A tool as declared to the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    pub name: String,
    pub description: String,
    /// JSON Schema of the arguments.
    pub parameters: Value,
}
