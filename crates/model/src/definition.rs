//! Agents and tools as an operator declared them.
//!
//! A run keeps the definitions that it started with, whatever the file says later: they are stored under their digest, so
//! all of this can be written down. Secrets are only named here (`env:NAME`, `file:PATH`), never held.

mod tool;

pub use tool::{ApprovalOnTimeout, ApprovalPolicy, CommandTool, HttpTool, OnCrash, Tool, ToolExecutor, ToolSpec};

use crate::json::JsonObject;
use crate::limits::RunLimits;
use crate::usage::Usage;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Everything that a run may refer to. A run keeps those that it started with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Definitions {
    /// The agents, by name.
    pub agents: BTreeMap<String, Agent>,
    /// The tools, by name.
    pub tools: BTreeMap<String, Tool>,
    /// The providers that a bare `provider/model` may name.
    pub providers: BTreeSet<String>,
    /// What a run may use up.
    pub limits: RunLimits,
    /// What models cost, by `provider/model`.
    pub prices: BTreeMap<String, Price>,
    /// The digest of all of this, recorded with every run.
    #[serde(skip)]
    pub digest: String,
}

/// Somebody who can answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Agent {
    /// Its name.
    pub name: String,
    /// What it is good for: what others are told who may ask it or hand over to it.
    pub description: String,
    /// `provider/model`, the next when one is down.
    pub models: Vec<String>,
    /// The operator's words to the model.
    pub instructions: String,
    /// The operator's wishes, in the provider's own words: they go into its request.
    pub options: Arc<JsonObject>,
    /// The tools that it may ask for. An agent's name is a sub-agent.
    pub tools: Vec<String>,
    /// The agents that it may hand over to.
    pub handoffs: Vec<Handoff>,
    /// How much of the past the model is given.
    pub history: HistoryWindow,
    /// When the past is summed up.
    pub compaction: Option<CompactionPolicy>,
    /// Who may rewrite what is said before the model sees it.
    pub input_hook: Option<InputHook>,
}

/// An agent that may be handed over to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handoff {
    /// Which.
    pub agent: String,
    /// What it is given of what was said before.
    #[serde(default)]
    pub history: HandoffHistory,
}

/// What the agent that takes over is given of what was said before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandoffHistory {
    /// Everything.
    #[default]
    All,
    /// What was said, without calls, results and thoughts.
    Messages,
    /// What the user said last.
    Input,
}

/// How much of the past the model is given. Whole runs: a call is never parted from its result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HistoryWindow {
    /// At most so many runs before this one.
    pub turns: Option<usize>,
    /// At most about so many tokens of them.
    pub tokens: Option<u64>,
}

/// When the past is summed up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionPolicy {
    /// When the runs that are not summed up yet have about so many tokens.
    pub after_tokens: u64,
    /// So many of the last runs stay as they are.
    pub keep_turns: usize,
    /// The model that sums up; the agent's own when there is none.
    pub model: Option<String>,
}

/// A program or an address that is asked before the model is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputHook {
    /// The address, or…
    pub url: Option<String>,
    /// …the program with its arguments.
    pub command: Vec<String>,
    /// How long it has.
    pub timeout_ms: u64,
}

/// What a million tokens cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Price {
    /// Read.
    pub input: f64,
    /// Read from the provider's cache; as `input` when it is not given.
    pub cached: Option<f64>,
    /// Written to the provider's cache; as `input` when it is not given.
    pub cache_write: Option<f64>,
    /// Written.
    pub output: f64,
}

impl Price {
    /// What these tokens cost.
    #[must_use]
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
    /// The agent that a request's `model` means: one by that name, or a bare model of a provider that there is.
    #[must_use]
    pub fn resolve_agent(&self, name: &str) -> Option<Agent> {
        if let Some(agent) = self.agents.get(name) {
            return Some(agent.clone());
        }
        let (provider, model) = name.split_once('/')?;
        let known = self.providers.contains(provider) && !model.is_empty();
        known.then(|| Agent { name: name.to_owned(), models: vec![name.to_owned()], ..Agent::default() })
    }

    /// The tool that an agent means by a name: one of its tools, or an agent that it may ask or hand over to.
    #[must_use]
    pub fn resolve_tool(&self, agent: &Agent, name: &str) -> Option<Tool> {
        if agent.tools.iter().any(|tool| tool == name) {
            let asked = || self.agents.get(name).map(Tool::for_sub_agent);
            return self.tools.get(name).cloned().or_else(asked);
        }
        let heir = agent.handoffs.iter().find(|handoff| handoff_tool_name(&handoff.agent) == name)?;
        self.agents.get(&heir.agent).map(Tool::for_handoff)
    }

    /// What the model is told that this agent may ask for.
    #[must_use]
    pub fn tool_specs(&self, agent: &Agent) -> Vec<ToolSpec> {
        let own = agent.tools.iter().cloned();
        let heirs = agent.handoffs.iter().map(|handoff| handoff_tool_name(&handoff.agent));
        own.chain(heirs).filter_map(|name| self.resolve_tool(agent, &name)).map(|tool| tool.spec).collect()
    }

    /// What these tokens of a model cost, where its price is known.
    #[must_use]
    pub fn cost(&self, model: &str, usage: Usage) -> Option<f64> {
        // A provider may answer with the model's bare name.
        let bare = || self.prices.iter().find(|(name, _)| name.split_once('/').is_some_and(|(_, bare)| bare == model));
        let price = self.prices.get(model).or_else(|| bare().map(|(_, price)| price));
        price.map(|price| price.cost(usage))
    }
}

/// The name of the tool that hands over to an agent: `transfer_to_` and the agent's name in snake case.
#[must_use]
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
