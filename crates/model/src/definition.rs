//! Agents and tools as an operator declared them.

use crate::item::{CallKind, Gate};
use crate::limits::RunLimits;
use crate::record::OnCrash;
use crate::tool::ToolSpec;
use std::collections::{BTreeMap, BTreeSet};

/// Everything that a run may refer to. A run keeps those that it started with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Definitions {
    /// The agents, by name.
    pub agents: BTreeMap<String, Agent>,
    /// The tools, by name.
    pub tools: BTreeMap<String, Tool>,
    /// The providers that a bare `provider/model` may name.
    pub providers: BTreeSet<String>,
    /// What a run may use up.
    pub limits: RunLimits,
    /// The digest of all of this, recorded with every run.
    pub digest: String,
}

/// Somebody who can answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agent {
    /// Its name.
    pub name: String,
    /// `provider/model`, the next when one is down.
    pub models: Vec<String>,
    /// The operator's words to the model.
    pub instructions: String,
    /// The tools that it may ask for. An agent's name is a sub-agent.
    pub tools: Vec<String>,
    /// The agents that it may hand over to.
    pub handoffs: Vec<String>,
}

/// Something that an agent may ask for.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// What the model is told of it.
    pub spec: ToolSpec,
    /// Who answers.
    pub kind: CallKind,
    /// Its name for people.
    pub display_name: Option<String>,
    /// Whether a person is asked first.
    pub gate: Gate,
    /// May it be started again after a crash?
    pub idempotent: bool,
    /// What its result is after a crash, when it may not.
    pub on_crash: OnCrash,
    /// How long it has; `None` is [`RunLimits::tool_timeout_ms`].
    pub timeout_ms: Option<u64>,
}

impl Definitions {
    /// The agent that a request's `model` means: one by that name, or a bare model of a provider that there is.
    #[must_use]
    pub fn resolve(&self, name: &str) -> Option<Agent> {
        if let Some(agent) = self.agents.get(name) {
            return Some(agent.clone());
        }
        let (provider, model) = name.split_once('/')?;
        let known = self.providers.contains(provider) && !model.is_empty();
        known.then(|| Agent { name: name.to_owned(), models: vec![name.to_owned()], ..Agent::default() })
    }

    /// What the model is told that this agent may ask for.
    #[must_use]
    pub fn specs(&self, agent: &Agent) -> Vec<ToolSpec> {
        agent.tools.iter().filter_map(|name| self.tools.get(name)).map(|tool| tool.spec.clone()).collect()
    }
}
