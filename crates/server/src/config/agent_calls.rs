//! Agents that call each other.

use super::table::ConfigTable;
use model::definition::{Agent, Tool, ToolExecutor};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Warns of every circle of sub-agents once, at the agent whose name sorts first. Hand-offs may go back and forth.
pub(super) fn check_call_cycles(
    tables: &ConfigTable<'_>,
    agents: &BTreeMap<String, Agent>,
    tools: &BTreeMap<String, Tool>,
) {
    for (name, item) in tables.items() {
        let Some(cycle) = find_cycle(name, agents, tools) else { continue };
        let who = match cycle.as_slice() {
            [only] => format!("agent `{only}` calls itself"),
            several => format!("the agents `{}` call each other", several.join("`, `")),
        };
        let at = item.free_table().and_then(|table| table.get("tools")).unwrap_or(item);
        at.report_warning(format!("{who}, which only `[limits] depth_max` ends; remove a tool, or use `handoffs`"));
    }
}

/// The shortest way from `start` back to it through agents whose names sort later.
fn find_cycle<'a>(
    start: &'a str,
    agents: &'a BTreeMap<String, Agent>,
    tools: &'a BTreeMap<String, Tool>,
) -> Option<Vec<&'a str>> {
    let mut paths = VecDeque::from([vec![start]]);
    let mut seen = BTreeSet::new();
    while let Some(path) = paths.pop_front() {
        let caller = path.last().and_then(|name| agents.get(*name));
        for callee in caller.iter().flat_map(|agent| called_agents(agent, tools)) {
            if callee == start {
                return Some(path);
            }
            if callee > start && seen.insert(callee) {
                paths.push_back(path.iter().copied().chain([callee]).collect());
            }
        }
    }
    None
}

/// The agents that an agent may call: each a tool of its own, or of a tool that names it.
fn called_agents<'a>(agent: &'a Agent, tools: &'a BTreeMap<String, Tool>) -> Vec<&'a str> {
    let called = |name: &'a String| match tools.get(name).map(|tool| &tool.executor) {
        Some(ToolExecutor::Agent { agent, others }) => {
            std::iter::once(agent).chain(others).map(String::as_str).collect()
        }
        Some(_) => Vec::new(),
        None => vec![name.as_str()],
    };
    agent.tools.iter().flat_map(called).collect()
}
