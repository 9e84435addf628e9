//! Tool search: of many tools, the model is given a few, the names of the others, and a tool that loads them.
//!
//! Which tools a turn has is computed from the definitions and from the history that the turn reads: a tool is loaded if a
//! search in that history has found it, or if a call in it names it. So a restart changes nothing, and a tool is forgotten
//! together with the search that found it. A call of a tool that was not loaded runs like any other.

mod index;
mod ranking;

use crate::state::RunState;
use crate::task_tools::task_tools;
use index::tool_index;
use model::CallId;
use model::content::{ContentPart, TextBlock};
use model::definition::{Tool, ToolExecutor, ToolSearchPolicy, ToolSpec};
use model::fold::TaskFold;
use model::history::{HistoryEntry, SharedHistory};
use model::item::Block;
use model::model_settings::{ModelSettings, ToolChoice};
use model::tool::ToolOutput;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The name under which the model calls the search. A tool of this name takes its place, and nothing is searched.
pub(crate) const TOOL_SEARCH: &str = "tool_search";
/// More tools than this, or longer schemas than the next, are searched.
const DECLARED_TOOLS_MAX: usize = 24;
const DECLARED_SCHEMA_BYTES_MAX: usize = 48 * 1024;
/// How many tools without a namespace are always declared.
const DIRECT_TOOLS_MAX: usize = 12;
/// How many found tools are declared: those that were found or called last.
const LOADED_TOOLS_MAX: usize = 16;
/// How many tools one search finds.
const FOUND_TOOLS_DEFAULT: usize = 5;
const FOUND_TOOLS_MAX: usize = 8;
/// For the schemas in a result, which front ends are shown. The model gets them as declarations, whatever their size.
const FOUND_SCHEMA_BYTES_MAX: usize = 32 * 1024;
/// Of a description in a result.
const FOUND_DESCRIPTION_CHARS_MAX: usize = 600;

/// What a turn declares to the model.
pub(crate) struct TurnTools {
    pub(crate) specs: Vec<ToolSpec>,
    /// Those that the provider's own search is to load.
    pub(crate) deferred: BTreeSet<String>,
    /// What the instructions say about tools that are not declared.
    pub(crate) instructions: Option<String>,
}

/// The tools of a task that has a search.
pub(crate) struct SearchableTools {
    /// Always declared.
    direct: Vec<Tool>,
    /// Declared when they are found.
    deferred: Vec<Tool>,
}

/// `None` if all tools of the task are declared.
pub(crate) fn searchable_tools(run: &RunState, task: &TaskFold) -> Option<SearchableTools> {
    let policy = run.agent_of_task(task).tool_search;
    if matches!(policy, ToolSearchPolicy::Off | ToolSearchPolicy::Hosted) {
        return None;
    }
    let tools = task_tools(run, task);
    let is_many = || tools.len() > DECLARED_TOOLS_MAX || schema_bytes(&tools) > DECLARED_SCHEMA_BYTES_MAX;
    let is_taken = tools.iter().any(|tool| tool.spec.name == TOOL_SEARCH);
    if is_taken || !(policy == ToolSearchPolicy::On || is_many()) {
        return None;
    }
    let searchable = split_tools(tools);
    (!searchable.deferred.is_empty()).then_some(searchable)
}

/// The search of a task, if it has one.
pub(crate) fn find_search_tool(run: &RunState, task: &TaskFold, name: &str) -> Option<Tool> {
    if name != TOOL_SEARCH {
        return None;
    }
    searchable_tools(run, task).map(|_| search_tool())
}

/// The tools of a turn that reads this history.
pub(crate) fn tools_for_turn(
    run: &RunState,
    task: &TaskFold,
    history: &SharedHistory,
    settings: &ModelSettings,
) -> TurnTools {
    let forced = match &settings.tool_choice {
        Some(ToolChoice::Tool { name }) => Some(name.as_str()),
        _ => None,
    };
    let Some(SearchableTools { direct, deferred }) = searchable_tools(run, task) else {
        return declare_all(run, task, forced);
    };
    let instructions = Some(tool_index(&deferred));
    let loaded = loaded_names(history, &deferred);
    let mut specs: Vec<ToolSpec> = direct.into_iter().map(|tool| tool.spec).collect();
    specs.push(search_tool().spec);
    let mut deferred: BTreeMap<String, ToolSpec> =
        deferred.into_iter().map(|tool| (tool.spec.name.clone(), tool.spec)).collect();
    let declared = loaded.iter().map(String::as_str).chain(forced);
    specs.extend(declared.filter_map(|name| deferred.remove(name)));
    TurnTools { specs, deferred: BTreeSet::new(), instructions }
}

/// All tools of a task. A provider that searches them itself is told which it may load later.
fn declare_all(run: &RunState, task: &TaskFold, forced: Option<&str>) -> TurnTools {
    let tools = task_tools(run, task);
    let specs = tools.iter().map(|tool| tool.spec.clone()).collect();
    let deferred = match run.agent_of_task(task).tool_search {
        ToolSearchPolicy::Hosted => split_tools(tools).deferred,
        ToolSearchPolicy::Auto | ToolSearchPolicy::On | ToolSearchPolicy::Off => Vec::new(),
    };
    let names = deferred.into_iter().map(|tool| tool.spec.name).filter(|name| Some(name.as_str()) != forced);
    TurnTools { specs, deferred: names.collect(), instructions: None }
}

/// Searches the tools of a task that are not declared, with validated arguments.
pub(crate) fn search_tools(run: &RunState, task: &TaskFold, arguments: &str) -> ToolOutput {
    let deferred = searchable_tools(run, task).map(|tools| tools.deferred).unwrap_or_default();
    let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
    let text = |name: &str| arguments.get(name).and_then(Value::as_str).map(str::trim).unwrap_or_default();
    let limit = arguments.get("limit").and_then(Value::as_u64).and_then(|limit| usize::try_from(limit).ok());
    let limit = limit.unwrap_or(FOUND_TOOLS_DEFAULT).clamp(1, FOUND_TOOLS_MAX);
    let namespace = Some(text("namespace")).filter(|namespace| !namespace.is_empty());
    let is_searched = |tool: &&Tool| {
        let of_tool = tool.namespace().unwrap_or_default();
        namespace.is_none_or(|wanted| of_tool.eq_ignore_ascii_case(wanted))
    };
    let searched: Vec<&Tool> = deferred.iter().filter(is_searched).collect();
    let found = ranking::rank_tools(&searched, text("query"), limit);
    search_output(&found, &deferred)
}

/// What a search tells the model and shows to people.
fn search_output(found: &[&Tool], deferred: &[Tool]) -> ToolOutput {
    let message = match found {
        [] => {
            let names = index::namespaces(deferred).into_keys().flatten().collect::<Vec<_>>().join(", ");
            let hint = if names.is_empty() { String::new() } else { format!(" The namespaces are: {names}.") };
            format!("No tool matches. Search with other words.{hint}")
        }
        _ => "These tools are loaded: call them from your next turn on.".to_owned(),
    };
    let told: Vec<Value> = found.iter().map(|tool| describe_found_tool(tool)).collect();
    let content = json!({ "tools": told, "message": message }).to_string();
    let lines = found.iter().map(|tool| index::index_line(tool));
    let shown = if found.is_empty() { message } else { lines.collect::<Vec<_>>().join("\n") };
    ToolOutput {
        message_content: vec![ContentPart::text(content)],
        block_list: vec![Block::Text(TextBlock::new(shown))],
        artifact: Some(json!({ "tools": found_schemas(found) })),
        ..ToolOutput::default()
    }
}

fn describe_found_tool(tool: &Tool) -> Value {
    let description: String = tool.spec.description.chars().take(FOUND_DESCRIPTION_CHARS_MAX).collect();
    let mut told = json!({ "name": tool.spec.name, "description": description });
    if let (Some(told), Some(namespace)) = (told.as_object_mut(), tool.namespace()) {
        told.insert("namespace".to_owned(), namespace.into());
    }
    told
}

/// The found tools with their schemas, as far as a record has room for them.
fn found_schemas(found: &[&Tool]) -> Vec<Value> {
    let mut bytes_left = FOUND_SCHEMA_BYTES_MAX;
    let describe = |tool: &&Tool| {
        let mut described = describe_found_tool(tool);
        let bytes = crate::output::json_size(&tool.spec.parameters);
        if let (Some(described), Some(left)) = (described.as_object_mut(), bytes_left.checked_sub(bytes)) {
            bytes_left = left;
            described.insert("parameters".to_owned(), tool.spec.parameters.clone());
        }
        described
    };
    found.iter().map(describe).collect()
}

/// Tools without a namespace come first, and of these hand-offs and sub-agents, which instructions speak of.
fn split_tools(tools: Vec<Tool>) -> SearchableTools {
    let rank = |tool: &Tool| match tool.executor {
        ToolExecutor::Handoff { .. } => 0,
        ToolExecutor::Agent { .. } => 1,
        _ => 2,
    };
    let mut plain: Vec<usize> = (0..).zip(&tools).filter(|(_, t)| t.namespace().is_none()).map(|(at, _)| at).collect();
    plain.sort_by_key(|at| tools.get(*at).map(&rank));
    plain.truncate(DIRECT_TOOLS_MAX);
    let (direct, deferred): (Vec<_>, Vec<_>) = (0..).zip(tools).partition(|(at, _)| plain.contains(at));
    let without_place = |list: Vec<(usize, Tool)>| list.into_iter().map(|(_, tool)| tool).collect();
    SearchableTools { direct: without_place(direct), deferred: without_place(deferred) }
}

fn schema_bytes(tools: &[Tool]) -> usize {
    tools.iter().map(|tool| crate::output::json_size(&tool.spec)).sum()
}

/// Where in a history a tool was found or called first and last.
#[derive(Clone, Copy)]
struct ToolUse {
    first: usize,
    last: usize,
}

/// The loaded tools, in the order in which they were loaded: the declarations of a turn begin like those of the one before.
fn loaded_names(history: &SharedHistory, deferred: &[Tool]) -> Vec<String> {
    let mut searches: Vec<&CallId> = Vec::new();
    let mut uses: BTreeMap<String, ToolUse> = BTreeMap::new();
    let mut count = 0;
    for entry in history {
        let names = match entry {
            HistoryEntry::Call { call_id, name, .. } if name == TOOL_SEARCH => {
                searches.push(call_id);
                continue;
            }
            HistoryEntry::Call { name, .. } => vec![name.clone()],
            HistoryEntry::Result { call_id, content, .. } if searches.contains(&call_id) => found_names(content),
            _ => continue,
        };
        for name in names.into_iter().filter(|name| deferred.iter().any(|tool| tool.spec.name == *name)) {
            count += 1;
            uses.entry(name).or_insert(ToolUse { first: count, last: count }).last = count;
        }
    }
    let mut uses: Vec<(String, ToolUse)> = uses.into_iter().collect();
    uses.sort_by_key(|(_, tool_use)| std::cmp::Reverse(tool_use.last));
    uses.truncate(LOADED_TOOLS_MAX);
    uses.sort_by_key(|(_, tool_use)| tool_use.first);
    uses.into_iter().map(|(name, _)| name).collect()
}

/// The tools that a search found, as its result tells the model.
fn found_names(content: &[ContentPart]) -> Vec<String> {
    let parsed = content.iter().find_map(|part| match part {
        ContentPart::Text { text, .. } => serde_json::from_str::<Value>(text).ok(),
        ContentPart::ImageUrl { .. } | ContentPart::File { .. } => None,
    });
    let tools = parsed.as_ref().and_then(|parsed| parsed.get("tools")).and_then(Value::as_array);
    let name = |tool: &Value| tool.get("name").and_then(Value::as_str).map(str::to_owned);
    tools.into_iter().flatten().filter_map(name).take(FOUND_TOOLS_MAX).collect()
}

fn search_tool() -> Tool {
    let parameters = json!({
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "description": "Words that say what the tool does, or names of tools."
            },
            "namespace": {"type": "string", "description": "Searches this namespace alone."},
            "limit": {
                "type": "integer", "minimum": 1, "maximum": FOUND_TOOLS_MAX,
                "description": format!("How many tools to load; {FOUND_TOOLS_DEFAULT} by default."),
            },
        },
        "required": ["query"],
    });
    let description = "Finds tools that are not declared yet and loads them, so that they can be called from the next \
        turn on. The instructions list them."
        .to_owned();
    let spec = ToolSpec { name: TOOL_SEARCH.to_owned(), description, parameters };
    Tool { display_name: Some("Tool search".to_owned()), ..Tool::new(spec, ToolExecutor::ToolSearch) }
}
