//! A tool: what the model is told, who does it, and under which conditions.

use super::{Agent, handoff_tool_name};
use crate::approval_rule::ApprovalRule;
use crate::item::{ApprovalGate, CallKind};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// How long people have to decide, when nothing else is said.
const APPROVAL_TIMEOUT_SECONDS: u64 = 300;

/// Something that an agent may ask for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// What the model is told of it.
    pub spec: ToolSpec,
    /// Who does it.
    #[serde(rename = "how")]
    pub executor: ToolExecutor,
    /// Its name for people.
    pub display_name: Option<String>,
    /// Whether a person is asked first.
    pub approval: ApprovalPolicy,
    /// How long that person has.
    pub approval_timeout_seconds: u64,
    /// What counts as the answer when nobody gave one.
    pub approval_on_timeout: ApprovalOnTimeout,
    /// May it be started again after a crash?
    pub idempotent: bool,
    /// What its result is after a crash, when it may not.
    pub on_crash: OnCrash,
    /// How long it has; `None` is [`crate::limits::RunLimits::tool_timeout_ms`].
    pub timeout_ms: Option<u64>,
    /// How much it may give; `None` is [`crate::limits::RunLimits::tool_output_bytes_max`].
    pub output_bytes_max: Option<usize>,
}

/// Who does what a tool is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ToolExecutor {
    /// Headwater itself; the tool's name says what.
    Builtin,
    /// Somebody behind an address.
    Http(HttpTool),
    /// A program on this machine.
    Command(CommandTool),
    /// The client that asked for the run.
    Client,
    /// A sub-agent.
    Agent {
        /// Which.
        agent: String,
    },
    /// Another agent, which takes over.
    Handoff {
        /// Which.
        agent: String,
    },
}

/// A tool behind an address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HttpTool {
    /// `GET`, `POST`, …
    pub method: String,
    /// The address; `{name}` is the argument of that name.
    pub url: String,
    /// Headers; a value may be, or hold, a secret's name.
    pub headers: BTreeMap<String, String>,
    /// The body; `None` is all arguments that the address does not use.
    pub body: Option<Value>,
    /// Where in the answer the result is: a JSON pointer. `None` is all of it.
    pub result: Option<String>,
}

/// A tool that is a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CommandTool {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Where it runs; `None` is the server's own folder.
    pub dir: Option<String>,
    /// What it has of the server's environment, by name. Nothing else.
    pub env_pass: Vec<String>,
    /// What it has beside that; a value may be, or hold, a secret's name.
    pub env: BTreeMap<String, String>,
}

/// Whether a person is asked first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalPolicy {
    /// Never.
    #[default]
    Never,
    /// Before every call.
    Always,
    /// When the rule says so of the arguments, or cannot read them.
    When(ApprovalRule),
}

/// What counts as the answer when nobody gave one in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalOnTimeout {
    /// No.
    #[default]
    Reject,
    /// Yes.
    Approve,
}

impl Tool {
    /// A tool that nothing special is said of.
    #[must_use]
    pub const fn new(spec: ToolSpec, how: ToolExecutor) -> Self {
        Self {
            spec,
            executor: how,
            display_name: None,
            approval: ApprovalPolicy::Never,
            approval_timeout_seconds: APPROVAL_TIMEOUT_SECONDS,
            approval_on_timeout: ApprovalOnTimeout::Reject,
            idempotent: false,
            on_crash: OnCrash::Unknown,
            timeout_ms: None,
            output_bytes_max: None,
        }
    }

    /// Asking an agent, by its own name.
    #[must_use]
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
        Self::new(spec, ToolExecutor::Agent { agent: agent.name.clone() })
    }

    /// Handing over to an agent.
    #[must_use]
    pub fn for_handoff(agent: &Agent) -> Self {
        let description = format!("Hand over to {}. {}", agent.name, agent.description).trim_end().to_owned();
        let parameters = serde_json::json!({"type": "object", "properties": {}});
        let spec = ToolSpec { name: handoff_tool_name(&agent.name), description, parameters };
        Self::new(spec, ToolExecutor::Handoff { agent: agent.name.clone() })
    }

    /// What people see it as.
    #[must_use]
    pub const fn call_kind(&self) -> CallKind {
        match self.executor {
            ToolExecutor::Builtin | ToolExecutor::Http(_) | ToolExecutor::Command(_) => CallKind::Tool,
            ToolExecutor::Client => CallKind::Client,
            ToolExecutor::Agent { .. } => CallKind::Agent,
            ToolExecutor::Handoff { .. } => CallKind::Handoff,
        }
    }

    /// Whether people are asked, as far as that is known before the arguments are.
    #[must_use]
    pub const fn approval_gate(&self) -> ApprovalGate {
        match self.approval {
            ApprovalPolicy::Never => ApprovalGate::Never,
            ApprovalPolicy::Always => ApprovalGate::Always,
            ApprovalPolicy::When(_) => ApprovalGate::Maybe,
        }
    }
}

/// What becomes of a tool that was running when the process died.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnCrash {
    /// Nobody knows: the result says so.
    #[default]
    Unknown,
    /// It counts as failed.
    Fail,
    /// A person is asked: run it again, or say what became of it.
    Ask,
}

/// A tool as the model sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub parameters: Value,
}
