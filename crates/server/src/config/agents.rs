//! `[agents.NAME]`, and what an agent may refer to.

use super::near;
use super::table::{Item, Table, shown};
use super::tools::{self, LONGEST_MS};
use model::block::JsonObject;
use model::definition::{
    Agent, CompactionPolicy, Handoff, HandoffHistory, HistoryWindow, InputHook, handoff_tool_name,
};
use model::id::is_valid_id;
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
const KEEP_TURNS: usize = 4;
/// How long a hook has.
const HOOK_TIMEOUT_MS: u64 = 10_000;
/// What the tools that hand over are called begins with this.
pub(super) const TRANSFER: &str = "transfer_to_";
/// The longest name of a tool that providers take.
const TOOL_NAME_BYTES_MAX: usize = 64;

const HISTORIES: [(&str, HandoffHistory); 3] =
    [("all", HandoffHistory::All), ("messages", HandoffHistory::Messages), ("input", HandoffHistory::Input)];

/// What there is in the file, right or wrong: a mistake in one table is not a mistake of those that refer to it.
pub(super) struct Names<'a> {
    pub(super) agents: Vec<&'a str>,
    pub(super) tools: Vec<&'a str>,
    pub(super) providers: Vec<&'a str>,
}

pub(super) fn read(tables: &Table<'_>, names: &Names<'_>) -> BTreeMap<String, Agent> {
    tables.items().filter_map(|(name, item)| Some((name.to_owned(), agent(name, &item, names)?))).collect()
}

/// Whether this may be the name of an agent, a tool or a provider. If not, that is said.
pub(super) fn named(name: &str, item: &Item<'_>) {
    if !is_valid_id(name) {
        item.refuse("a name has 1 to 64 letters, digits, `_` or `-`; choose another");
    }
    if name.starts_with(TRANSFER) {
        item.refuse(format!("names that begin with `{TRANSFER}` are those of hand-offs; choose another"));
    }
}

fn agent(name: &str, item: &Item<'_>, names: &Names<'_>) -> Option<Agent> {
    named(name, item);
    let table = item.table(&KEYS)?;
    let upstream = table.get("upstream");
    if let Some(upstream) = &upstream {
        upstream.refuse("agents that run elsewhere are not supported yet; give it a `model`");
    } else if table.get("model").is_none() {
        table.refuse("`model` is missing; write `model = \"provider/model\"`");
    }
    let models = table.get("model").and_then(|models| models.one_or_more()).unwrap_or_default();
    for (item, model) in &models {
        known_model(item, model, names);
    }
    Some(Agent {
        name: name.to_owned(),
        description: table.text("description").unwrap_or_default().to_owned(),
        models: models.into_iter().map(|(_, model)| model.to_owned()).collect(),
        instructions: table.text("instructions").unwrap_or_default().to_owned(),
        options: table.get("options").and_then(|item| options(&item)).unwrap_or_default(),
        tools: tools_of(name, &table, names),
        handoffs: handoffs(name, &table, names),
        history: table.get("history").and_then(|item| history(&item)).unwrap_or_default(),
        compaction: table.get("compaction").and_then(|item| compaction(&item, names)),
        input_hook: table.get("input_hook").and_then(|item| hook(&item)),
    })
}

/// What is said to the provider in its own words.
pub(super) fn options(item: &Item<'_>) -> Option<Arc<JsonObject>> {
    match item.json()? {
        Value::Object(options) => Some(Arc::new(options)),
        _ => {
            item.refuse("has to be a table, such as `{ temperature = 0.2 }`");
            None
        }
    }
}

/// Is there a provider for it? If not, that is said.
pub(super) fn known_model(item: &Item<'_>, model: &str, names: &Names<'_>) {
    match model.split_once('/') {
        Some((provider, rest)) if !rest.is_empty() => {
            if !names.providers.contains(&provider) {
                let instead = near::instead(provider, &names.providers);
                item.refuse(format!("no provider answers {}; {instead}", shown(model)));
            }
        }
        _ => item.refuse(format!(
            "no provider answers {}; write provider/model; there is {}",
            shown(model),
            near::list(&names.providers)
        )),
    }
}

fn tools_of(name: &str, table: &Table<'_>, names: &Names<'_>) -> Vec<String> {
    let mut tools: Vec<String> = Vec::new();
    for (item, wanted) in table.get("tools").and_then(|item| item.texts()).unwrap_or_default() {
        if tools.iter().any(|tool| tool == wanted) {
            item.refuse(format!("agent `{name}` has {} twice; leave one out", shown(wanted)));
        } else if !names.tools.contains(&wanted) && !names.agents.contains(&wanted) {
            let known: Vec<&str> = names.tools.iter().chain(&names.agents).copied().collect();
            let instead = near::instead(wanted, &known);
            item.refuse(format!("agent `{name}` has the tool {}, which is not defined; {instead}", shown(wanted)));
        }
        tools.push(wanted.to_owned());
    }
    tools
}

fn handoffs(name: &str, table: &Table<'_>, names: &Names<'_>) -> Vec<Handoff> {
    let mut handoffs: Vec<Handoff> = Vec::new();
    for item in table.get("handoffs").and_then(|item| item.list()).unwrap_or_default() {
        let Some(handoff) = handoff(&item) else { continue };
        let heir = handoff.agent.as_str();
        let tool = handoff_tool_name(heir);
        if heir == name {
            item.refuse(format!("agent `{name}` cannot hand over to itself; leave it out"));
        } else if !names.agents.contains(&heir) {
            let others: Vec<&str> = names.agents.iter().copied().filter(|other| *other != name).collect();
            let instead = near::instead(heir, &others);
            item.refuse(format!("agent `{name}` hands over to {}, which is not defined; {instead}", shown(heir)));
        } else if tool.len() > TOOL_NAME_BYTES_MAX {
            let most = TOOL_NAME_BYTES_MAX;
            item.refuse(format!(
                "`{tool}` has more than {most} letters, which providers refuse; shorten the agent's name"
            ));
        } else if handoffs.iter().any(|other| handoff_tool_name(&other.agent) == tool) {
            item.refuse(format!("agent `{name}` has `{tool}` twice; leave one out, or rename an agent"));
        }
        handoffs.push(handoff);
    }
    handoffs
}

/// A name, or a table with more than that.
fn handoff(item: &Item<'_>) -> Option<Handoff> {
    if !item.is_table() {
        return Some(Handoff { agent: item.text()?.to_owned(), history: HandoffHistory::default() });
    }
    let table = item.table(&["agent", "history"])?;
    let history = table.get("history").and_then(|history| history.one_of(&HISTORIES)).unwrap_or_default();
    if table.get("agent").is_none() {
        table.refuse("`agent` is missing; write the name of the agent that takes over");
    }
    Some(Handoff { agent: table.text("agent")?.to_owned(), history })
}

fn history(item: &Item<'_>) -> Option<HistoryWindow> {
    let table = item.table(&["turns", "tokens"])?;
    Some(HistoryWindow { turns: table.size("turns"), tokens: table.number("tokens", 0..=u64::MAX) })
}

fn compaction(item: &Item<'_>, names: &Names<'_>) -> Option<CompactionPolicy> {
    let table = item.table(&["after_tokens", "keep_turns", "model"])?;
    if table.get("after_tokens").is_none() {
        table.refuse("`after_tokens` is missing; write after how many tokens the past is summed up");
    }
    let model = table.get("model").and_then(|model| Some((model.clone(), model.text()?)));
    if let Some((item, model)) = &model {
        known_model(item, model, names);
    }
    Some(CompactionPolicy {
        after_tokens: table.number("after_tokens", 1..=u64::MAX)?,
        keep_turns: table.size("keep_turns").unwrap_or(KEEP_TURNS),
        model: model.map(|(_, model)| model.to_owned()),
    })
}

fn hook(item: &Item<'_>) -> Option<InputHook> {
    let table = item.table(&["url", "command", "timeout_ms"])?;
    let url = table.get("url");
    let command = table.get("command");
    if url.is_some() == command.is_some() {
        table.refuse("a hook has either a `url` or a `command`; write one of them");
    }
    Some(InputHook {
        url: url.and_then(|url| super::http_tool::address(&url, url.text()?)),
        command: command.and_then(|command| tools::command(&command)).unwrap_or_default(),
        timeout_ms: table.number("timeout_ms", 1..=LONGEST_MS).unwrap_or(HOOK_TIMEOUT_MS),
    })
}
