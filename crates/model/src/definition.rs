//! Agents and tools as the operator configured them.
//!
//! A run keeps the definitions that it started with, whatever the configuration says later. They are stored under their
//! digest, so they must be serialisable. Secrets appear only as references (`env:NAME`, `file:PATH`).

mod call_rules;
mod mcp;
mod mcp_auth;
mod mcp_endpoint;
mod mcp_list;
mod parameters;
mod tool;
mod tool_search;

pub use call_rules::{AllowedUsers, CallRules};
pub use mcp::{McpPin, McpProgram, McpScope, McpServer, McpTarget, McpTool, McpToolRef, mcp_tool_name, tool_hash};
pub use mcp_auth::{McpAuth, OAuthClient};
pub use mcp_endpoint::{McpEndpoint, McpTransport};
pub use mcp_list::{McpList, mcp_list_digest};
pub use parameters::DeclaredParameters;
pub use tool::{ApprovalOnTimeout, ApprovalPolicy, CommandTool, HttpTool, OnCrash, Tool, ToolExecutor, ToolSpec};
pub use tool_search::ToolSearchPolicy;

use crate::json::JsonObject;
use crate::limits::RunLimits;
use crate::usage::Usage;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Everything that a run may refer to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Definitions {
    pub agents: BTreeMap<String, Agent>,
    pub tools: BTreeMap<String, Tool>,
    /// Servers whose tools are added when a run starts. The definitions that a run keeps have their tools instead.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub mcp: BTreeMap<String, McpServer>,
    /// What these servers answered, in the definitions that a run keeps.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub mcp_lists: BTreeMap<String, McpList>,
    /// The providers that a bare `provider/model` may name.
    pub providers: BTreeSet<String>,
    pub limits: RunLimits,
    /// By `provider/model`.
    pub prices: BTreeMap<String, Price>,
    /// Who may call what; without rules, everyone everything. Not part of what a run keeps.
    #[serde(skip)]
    pub call_rules: Option<CallRules>,
    /// The digest of the definitions, recorded with every run.
    #[serde(skip)]
    pub digest: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Agent {
    pub name: String,
    /// Shown to agents that may call it or hand over to it.
    pub description: String,
    /// Each a `provider/model`; later ones are fallbacks.
    pub models: Vec<String>,
    pub instructions: String,
    /// The operator's provider-specific options, merged into the upstream request.
    pub options: Arc<JsonObject>,
    /// Names of tools, of agents (sub-agents), and of MCP servers or their tools ([`McpToolRef`]).
    pub tools: Vec<String>,
    pub handoffs: Vec<Handoff>,
    pub history: HistoryWindow,
    pub compaction: Option<CompactionPolicy>,
    /// Rewrites the input before the model reads it.
    pub input_hook: Option<InputHook>,
    #[serde(skip_serializing_if = "ReferencePolicy::is_default")]
    pub references: ReferencePolicy,
    #[serde(skip_serializing_if = "ClientInstructions::is_default")]
    pub client_instructions: ClientInstructions,
    #[serde(skip_serializing_if = "ClientTools::is_default")]
    pub client_tools: ClientTools,
    #[serde(skip_serializing_if = "ToolSearchPolicy::is_default")]
    pub tool_search: ToolSearchPolicy,
}

/// What happens to a tool that a client declares under the name of one of the agent's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientTools {
    /// It stands in for the agent's own, in that run and for the root agent.
    #[default]
    StandIn,
    /// The request is refused.
    Refuse,
}

impl ClientTools {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_default(&self) -> bool {
        *self == Self::StandIn
    }
}

/// Whether clients may instruct the model: `instructions`, and messages of the roles `system` and `developer`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientInstructions {
    #[default]
    Allowed,
    Forbidden,
}

impl ClientInstructions {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_default(&self) -> bool {
        *self == Self::Allowed
    }
}

impl Agent {
    /// A model without instructions, tools, references and search: it gets what the client declares.
    #[must_use]
    pub fn bare(name: &str, model: &str) -> Self {
        let (name, models) = (name.to_owned(), vec![model.to_owned()]);
        let (references, tool_search) = (ReferencePolicy::Off, ToolSearchPolicy::Off);
        Self { name, models, references, tool_search, ..Self::default() }
    }
}

impl Agent {
    /// Whether a tool that a client declares may stand in for this one of the agent's. Other agents are not tools that a
    /// client could run.
    #[must_use]
    pub fn allows_stand_in(&self, own: &Tool) -> bool {
        let is_agent = matches!(own.executor, ToolExecutor::Agent { .. } | ToolExecutor::Handoff { .. });
        self.client_tools == ClientTools::StandIn && !is_agent
    }

    /// The agent as it writes a summary: its models, and whether clients may instruct it.
    #[must_use]
    pub fn into_summarizer(self) -> Self {
        let Self { name, models, client_instructions, compaction, .. } = self;
        let summary_model = compaction.and_then(|policy| policy.model);
        let models = summary_model.map_or(models, |model| vec![model]);
        Self { name, models, client_instructions, references: ReferencePolicy::Off, ..Self::default() }
    }
}

/// Whether results of the server's tools are numbered, so that the model can cite them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReferencePolicy {
    /// With [`crate::reference::REFERENCE_INSTRUCTIONS`].
    #[default]
    On,
    /// With instructions of the operator.
    OnWith(String),
    Off,
}

impl ReferencePolicy {
    /// What the model is told about references; `None` where there are none.
    #[must_use]
    pub fn instructions(&self) -> Option<&str> {
        match self {
            Self::On => Some(crate::reference::REFERENCE_INSTRUCTIONS),
            Self::OnWith(text) => Some(text),
            Self::Off => None,
        }
    }

    fn is_default(&self) -> bool {
        *self == Self::On
    }
}

/// An agent that may take over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handoff {
    pub agent: String,
    #[serde(default)]
    pub history: HandoffHistory,
}

/// The part of the history that the next agent reads after a handoff.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandoffHistory {
    #[default]
    All,
    /// Messages, without calls, results and reasoning.
    Messages,
    /// The last input alone.
    Input,
}

/// How much history the model reads. In whole runs, so that no call loses its result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HistoryWindow {
    /// Maximum number of earlier runs.
    pub turns: Option<usize>,
    /// Approximate maximum number of tokens.
    pub tokens: Option<u64>,
}

/// When older history is replaced by a summary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionPolicy {
    /// Compacts when the runs outside the summary exceed about this many tokens.
    pub after_tokens: u64,
    /// Number of recent runs that are never summarised.
    pub keep_turns: usize,
    /// The model that writes the summary; the agent's own by default.
    pub model: Option<String>,
}

/// A program or a URL that is called before the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputHook {
    pub url: Option<String>,
    /// The program with its arguments, when there is no `url`.
    pub command: Vec<String>,
    pub timeout_ms: u64,
}

/// The price of a million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Price {
    pub input: f64,
    /// Tokens read from the provider's cache; defaults to `input`.
    pub cached: Option<f64>,
    /// Tokens written to the provider's cache; defaults to `input`.
    pub cache_write: Option<f64>,
    pub output: f64,
}

impl Price {
    #[expect(clippy::cast_precision_loss, reason = "tokens are far fewer than 2^52, and a price is not exact anyway")]
    pub fn cost(&self, usage: Usage) -> f64 {
        let plain = usage.input_tokens.saturating_sub(usage.cached_tokens).saturating_sub(usage.cache_write_tokens);
        let million = 1_000_000.0;
        (plain as f64 * self.input
            + usage.cached_tokens as f64 * self.cached.unwrap_or(self.input)
            + usage.cache_write_tokens as f64 * self.cache_write.unwrap_or(self.input)
            + usage.output_tokens as f64 * self.output)
            / million
    }
}

impl Definitions {
    /// Resolves the `model` of a request: an agent's name, or a bare model of a configured provider.
    pub fn resolve_agent(&self, name: &str) -> Option<Agent> {
        if let Some(agent) = self.agents.get(name) {
            return Some(agent.clone());
        }
        let (provider, model) = name.split_once('/')?;
        let known = self.providers.contains(provider) && !model.is_empty();
        known.then(|| Agent::bare(name, name))
    }

    /// Resolves a tool's name for an agent: a tool, a sub-agent or a handoff.
    pub fn resolve_tool(&self, agent: &Agent, name: &str) -> Option<Tool> {
        if agent.tools.iter().any(|tool| tool == name) {
            let sub_agent = || self.agents.get(name).map(Tool::for_sub_agent);
            return self.tools.get(name).cloned().or_else(sub_agent);
        }
        let heir = agent.handoffs.iter().find(|handoff| handoff_tool_name(&handoff.agent) == name)?;
        self.agents.get(&heir.agent).map(Tool::for_handoff)
    }

    /// The tools of an agent, with those that call or hand over to other agents.
    pub fn agent_tools(&self, agent: &Agent) -> Vec<Tool> {
        let own = agent.tools.iter().cloned();
        let heirs = agent.handoffs.iter().map(|handoff| handoff_tool_name(&handoff.agent));
        own.chain(heirs).filter_map(|name| self.resolve_tool(agent, &name)).collect()
    }

    /// The cost of a model's tokens, where its price is known.
    pub fn cost(&self, model: &str, usage: Usage) -> Option<f64> {
        // A provider may report the model's bare name.
        let bare = || self.prices.iter().find(|(name, _)| name.split_once('/').is_some_and(|(_, bare)| bare == model));
        let price = self.prices.get(model).or_else(|| bare().map(|(_, price)| price));
        price.map(|price| price.cost(usage))
    }
}

/// The name of the tool that hands over to an agent: `transfer_to_` and the agent's name in snake case.
pub fn handoff_tool_name(agent: &str) -> String {
    let mut name = "transfer_to_".to_owned();
    let mut lower = false;
    for letter in agent.chars() {
        if letter.is_ascii_uppercase() && lower {
            name.push('_');
        }
        lower = letter.is_ascii_lowercase() || letter.is_ascii_digit();
        name.push(if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '_' });
    }
    name
}
