//! `[agents.NAME]`.

use super::input_hook::read_hook;
use super::names::{DefinedNames, check_model_exists, check_name};
use super::suggest;
use super::table::{ConfigTable, ConfigValue, quote_text};
use model::definition::{
    Agent, ClientInstructions, ClientTools, CompactionPolicy, Handoff, HandoffHistory, HistoryWindow, McpToolRef,
    ReferencePolicy, ToolSearchPolicy, handoff_tool_name,
};
use std::collections::BTreeMap;
use std::sync::Arc;

const KEYS: [&str; 16] = [
    "model",
    "description",
    "instructions",
    "tools",
    "handoffs",
    "history",
    "compaction",
    "input_hook",
    "references",
    "reference_instructions",
    "client_instructions",
    "client_tools",
    "tool_search",
    "callable",
    "upstream",
    "options",
];
/// Number of runs that compaction keeps.
const KEEP_TURNS_DEFAULT: usize = 4;
/// The limit of providers.
const TOOL_NAME_BYTES_MAX: usize = 64;

const TOOL_SEARCHES: [(&str, ToolSearchPolicy); 4] = [
    ("auto", ToolSearchPolicy::Auto),
    ("on", ToolSearchPolicy::On),
    ("off", ToolSearchPolicy::Off),
    ("hosted", ToolSearchPolicy::Hosted),
];

const HANDOFF_HISTORIES: [(&str, HandoffHistory); 3] =
    [("all", HandoffHistory::All), ("messages", HandoffHistory::Messages), ("input", HandoffHistory::Input)];

const CLIENT_TOOLS: [(&str, ClientTools); 2] = [("allow", ClientTools::StandIn), ("refuse", ClientTools::Refuse)];

pub(super) fn read_agents(tables: &ConfigTable<'_>, names: &DefinedNames<'_>) -> BTreeMap<String, Agent> {
    tables.items().filter_map(|(name, item)| Some((name.to_owned(), read_agent(name, &item, names)?))).collect()
}

fn read_agent(name: &str, item: &ConfigValue<'_>, names: &DefinedNames<'_>) -> Option<Agent> {
    check_name(name, item);
    let table = item.table(&KEYS)?;
    let upstream = table.get("upstream");
    if let Some(upstream) = &upstream {
        upstream.report_error("remote agents are not supported yet; set `model`");
    } else if table.get("model").is_none() {
        table.report_error("`model` is missing; write `model = \"provider/model\"`");
    }
    let models = table.get("model").and_then(|models| models.string_or_list()).unwrap_or_default();
    for (item, model) in &models {
        check_model_exists(item, model, names);
    }
    Some(Agent {
        name: name.to_owned(),
        description: table.text("description").unwrap_or_default().to_owned(),
        models: models.into_iter().map(|(_, model)| model.to_owned()).collect(),
        instructions: table.text("instructions").unwrap_or_default().to_owned(),
        options: table.get("options").and_then(|item| item.json_object()).map(Arc::new).unwrap_or_default(),
        tools: read_tool_names(name, &table, names),
        handoffs: read_handoffs(name, &table, names),
        history: table.get("history").and_then(|item| read_history(&item)).unwrap_or_default(),
        compaction: table.get("compaction").and_then(|item| read_compaction(&item, names)),
        input_hook: table.get("input_hook").and_then(|item| read_hook(&item)),
        references: read_references(&table),
        client_instructions: match table.get("client_instructions").and_then(|item| item.flag()) {
            Some(false) => ClientInstructions::Forbidden,
            Some(true) | None => ClientInstructions::Allowed,
        },
        client_tools: table.get("client_tools").and_then(|item| item.one_of(&CLIENT_TOOLS)).unwrap_or_default(),
        tool_search: table.get("tool_search").and_then(|item| item.one_of(&TOOL_SEARCHES)).unwrap_or_default(),
    })
}

fn read_references(table: &ConfigTable<'_>) -> ReferencePolicy {
    let wanted = table.get("references").and_then(|item| item.flag()).unwrap_or(true);
    let instructions = table.get("reference_instructions");
    match (wanted, instructions) {
        (true, Some(item)) => item.text().map(|text| ReferencePolicy::OnWith(text.to_owned())).unwrap_or_default(),
        (true, None) => ReferencePolicy::On,
        (false, Some(item)) => {
            item.report_error("has no effect, because `references` is false; remove one");
            ReferencePolicy::Off
        }
        (false, None) => ReferencePolicy::Off,
    }
}

fn read_tool_names(name: &str, table: &ConfigTable<'_>, names: &DefinedNames<'_>) -> Vec<String> {
    let mut tools: Vec<String> = Vec::new();
    for (item, wanted) in table.get("tools").and_then(|item| item.text_list()).unwrap_or_default() {
        if tools.iter().any(|tool| tool == wanted) {
            item.report_error(format!("agent `{name}` has {} twice; remove one", quote_text(wanted)));
        } else if let Some(wanted) = McpToolRef::parse(wanted) {
            check_mcp_server(name, &item, wanted, names);
        } else if !names.tools.contains(&wanted) && !names.agents.contains(&wanted) {
            let known: Vec<&str> = names.tools.iter().chain(&names.agents).copied().collect();
            let instead = suggest::suggest_name(wanted, &known);
            item.report_error(format!(
                "agent `{name}` has the tool {}, which is not defined; {instead}",
                quote_text(wanted)
            ));
        }
        tools.push(wanted.to_owned());
    }
    tools
}

fn check_mcp_server(agent: &str, item: &ConfigValue<'_>, wanted: McpToolRef<'_>, names: &DefinedNames<'_>) {
    if !names.mcp.contains(&wanted.server) {
        let instead = suggest::suggest_name(wanted.server, &names.mcp);
        let server = quote_text(wanted.server);
        item.report_error(format!("agent `{agent}` has the MCP server {server}, which is not defined; {instead}"));
    } else if wanted.tool == Some("") {
        item.report_error(format!("the tool is missing; write `mcp:{0}`, or `mcp:{0}/TOOL`", wanted.server));
    }
}

fn read_handoffs(name: &str, table: &ConfigTable<'_>, names: &DefinedNames<'_>) -> Vec<Handoff> {
    let mut handoffs: Vec<Handoff> = Vec::new();
    for item in table.get("handoffs").and_then(|item| item.list()).unwrap_or_default() {
        let Some(handoff) = read_handoff(&item) else { continue };
        let target = handoff.agent.as_str();
        let tool = handoff_tool_name(target);
        if target == name {
            item.report_error(format!("agent `{name}` cannot hand over to itself"));
        } else if !names.agents.contains(&target) {
            let others: Vec<&str> = names.agents.iter().copied().filter(|other| *other != name).collect();
            let instead = suggest::suggest_name(target, &others);
            item.report_error(format!(
                "agent `{name}` hands over to {}, which is not defined; {instead}",
                quote_text(target)
            ));
        } else if tool.len() > TOOL_NAME_BYTES_MAX {
            let most = TOOL_NAME_BYTES_MAX;
            item.report_error(format!(
                "`{tool}` is longer than {most} characters, which providers reject; shorten the agent's name"
            ));
        } else if handoffs.iter().any(|other| handoff_tool_name(&other.agent) == tool) {
            item.report_error(format!("agent `{name}` has `{tool}` twice; remove one, or rename an agent"));
        }
        handoffs.push(handoff);
    }
    handoffs
}

/// A name or a table.
fn read_handoff(item: &ConfigValue<'_>) -> Option<Handoff> {
    if !item.is_table() {
        return Some(Handoff { agent: item.text()?.to_owned(), history: HandoffHistory::default() });
    }
    let table = item.table(&["agent", "history"])?;
    let history = table.get("history").and_then(|history| history.one_of(&HANDOFF_HISTORIES)).unwrap_or_default();
    if table.get("agent").is_none() {
        table.report_error("`agent` is missing; write the name of the agent to hand over to");
    }
    Some(Handoff { agent: table.text("agent")?.to_owned(), history })
}

fn read_history(item: &ConfigValue<'_>) -> Option<HistoryWindow> {
    let table = item.table(&["turns", "tokens"])?;
    Some(HistoryWindow { turns: table.size("turns"), tokens: table.number("tokens", 0..=u64::MAX) })
}

fn read_compaction(item: &ConfigValue<'_>, names: &DefinedNames<'_>) -> Option<CompactionPolicy> {
    let table = item.table(&["after_tokens", "keep_turns", "model"])?;
    if table.get("after_tokens").is_none() {
        table.report_error("`after_tokens` is missing; write the number of tokens that triggers compaction");
    }
    let model = table.get("model").and_then(|model| Some((model.clone(), model.text()?)));
    if let Some((item, model)) = &model {
        check_model_exists(item, model, names);
    }
    Some(CompactionPolicy {
        after_tokens: table.number("after_tokens", 1..=u64::MAX)?,
        keep_turns: table.size("keep_turns").unwrap_or(KEEP_TURNS_DEFAULT),
        model: model.map(|(_, model)| model.to_owned()),
    })
}
