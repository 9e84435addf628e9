//! `[agents.NAME]`, and what an agent may refer to.

use super::suggest;
use super::table::{ConfigTable, ConfigValue, quote_text};
use super::tools::{self, DURATION_MS_MAX};
use model::definition::{
    Agent, CompactionPolicy, Handoff, HandoffHistory, HistoryWindow, InputHook, handoff_tool_name,
};
use model::id::is_valid_id;
use model::json::JsonObject;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

const KEYS: [&str; 10] = [
    "model",
    "description",
    "instructions",
    "tools",
    "handoffs",
    "history",
    "compaction",
    "input_hook",
    "upstream",
    "options",
];
/// So many of the last runs stay as they are when the past is summed up.
const KEEP_TURNS_DEFAULT: usize = 4;
/// How long a hook has.
const HOOK_TIMEOUT_MS: u64 = 10_000;
/// What the tools that hand over are called begins with this.
pub(super) const HANDOFF_PREFIX: &str = "transfer_to_";
/// The longest name of a tool that providers take.
const TOOL_NAME_BYTES_MAX: usize = 64;

const HANDOFF_HISTORIES: [(&str, HandoffHistory); 3] =
    [("all", HandoffHistory::All), ("messages", HandoffHistory::Messages), ("input", HandoffHistory::Input)];

/// What there is in the file, right or wrong: a mistake in one table is not a mistake of those that refer to it.
pub(super) struct DefinedNames<'a> {
    pub(super) agents: Vec<&'a str>,
    pub(super) tools: Vec<&'a str>,
    pub(super) providers: Vec<&'a str>,
}

pub(super) fn read_agents(tables: &ConfigTable<'_>, names: &DefinedNames<'_>) -> BTreeMap<String, Agent> {
    tables.items().filter_map(|(name, item)| Some((name.to_owned(), read_agent(name, &item, names)?))).collect()
}

/// Whether this may be the name of an agent, a tool or a provider. If not, that is said.
pub(super) fn check_name(name: &str, item: &ConfigValue<'_>) {
    if !is_valid_id(name) {
        item.report_error("a name has 1 to 64 letters, digits, `_` or `-`; choose another");
    }
    if name.starts_with(HANDOFF_PREFIX) {
        item.report_error(format!("names that begin with `{HANDOFF_PREFIX}` are those of hand-offs; choose another"));
    }
}

fn read_agent(name: &str, item: &ConfigValue<'_>, names: &DefinedNames<'_>) -> Option<Agent> {
    check_name(name, item);
    let table = item.table(&KEYS)?;
    let upstream = table.get("upstream");
    if let Some(upstream) = &upstream {
        upstream.report_error("agents that run elsewhere are not supported yet; give it a `model`");
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
        options: table.get("options").and_then(|item| read_options(&item)).unwrap_or_default(),
        tools: read_tool_names(name, &table, names),
        handoffs: read_handoffs(name, &table, names),
        history: table.get("history").and_then(|item| read_history(&item)).unwrap_or_default(),
        compaction: table.get("compaction").and_then(|item| read_compaction(&item, names)),
        input_hook: table.get("input_hook").and_then(|item| read_hook(&item)),
    })
}

/// What is said to the provider in its own words.
pub(super) fn read_options(item: &ConfigValue<'_>) -> Option<Arc<JsonObject>> {
    match item.json()? {
        Value::Object(options) => Some(Arc::new(options)),
        _ => {
            item.report_error("has to be a table, such as `{ temperature = 0.2 }`");
            None
        }
    }
}

/// Is there a provider for it? If not, that is said.
pub(super) fn check_model_exists(item: &ConfigValue<'_>, model: &str, names: &DefinedNames<'_>) {
    match model.split_once('/') {
        Some((provider, rest)) if !rest.is_empty() => {
            if !names.providers.contains(&provider) {
                let instead = suggest::suggest_name(provider, &names.providers);
                item.report_error(format!("no provider answers {}; {instead}", quote_text(model)));
            }
        }
        _ => item.report_error(format!(
            "no provider answers {}; write provider/model; there is {}",
            quote_text(model),
            suggest::list_names(&names.providers)
        )),
    }
}

fn read_tool_names(name: &str, table: &ConfigTable<'_>, names: &DefinedNames<'_>) -> Vec<String> {
    let mut tools: Vec<String> = Vec::new();
    for (item, wanted) in table.get("tools").and_then(|item| item.text_list()).unwrap_or_default() {
        if tools.iter().any(|tool| tool == wanted) {
            item.report_error(format!("agent `{name}` has {} twice; leave one out", quote_text(wanted)));
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

fn read_handoffs(name: &str, table: &ConfigTable<'_>, names: &DefinedNames<'_>) -> Vec<Handoff> {
    let mut handoffs: Vec<Handoff> = Vec::new();
    for item in table.get("handoffs").and_then(|item| item.list()).unwrap_or_default() {
        let Some(handoff) = read_handoff(&item) else { continue };
        let heir = handoff.agent.as_str();
        let tool = handoff_tool_name(heir);
        if heir == name {
            item.report_error(format!("agent `{name}` cannot hand over to itself; leave it out"));
        } else if !names.agents.contains(&heir) {
            let others: Vec<&str> = names.agents.iter().copied().filter(|other| *other != name).collect();
            let instead = suggest::suggest_name(heir, &others);
            item.report_error(format!(
                "agent `{name}` hands over to {}, which is not defined; {instead}",
                quote_text(heir)
            ));
        } else if tool.len() > TOOL_NAME_BYTES_MAX {
            let most = TOOL_NAME_BYTES_MAX;
            item.report_error(format!(
                "`{tool}` has more than {most} letters, which providers refuse; shorten the agent's name"
            ));
        } else if handoffs.iter().any(|other| handoff_tool_name(&other.agent) == tool) {
            item.report_error(format!("agent `{name}` has `{tool}` twice; leave one out, or rename an agent"));
        }
        handoffs.push(handoff);
    }
    handoffs
}

/// A name, or a table with more than that.
fn read_handoff(item: &ConfigValue<'_>) -> Option<Handoff> {
    if !item.is_table() {
        return Some(Handoff { agent: item.text()?.to_owned(), history: HandoffHistory::default() });
    }
    let table = item.table(&["agent", "history"])?;
    let history = table.get("history").and_then(|history| history.one_of(&HANDOFF_HISTORIES)).unwrap_or_default();
    if table.get("agent").is_none() {
        table.report_error("`agent` is missing; write the name of the agent that takes over");
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
        table.report_error("`after_tokens` is missing; write after how many tokens the past is summed up");
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

fn read_hook(item: &ConfigValue<'_>) -> Option<InputHook> {
    let table = item.table(&["url", "command", "timeout_ms"])?;
    let url = table.get("url");
    let command = table.get("command");
    if url.is_some() == command.is_some() {
        table.report_error("a hook has either a `url` or a `command`; write one of them");
    }
    Some(InputHook {
        url: url.and_then(|url| super::http_tool::check_url(&url, url.text()?)),
        command: command.and_then(|command| tools::read_command(&command)).unwrap_or_default(),
        timeout_ms: table.number("timeout_ms", 1..=DURATION_MS_MAX).unwrap_or(HOOK_TIMEOUT_MS),
    })
}
