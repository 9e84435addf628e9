//! `[tools.NAME]`: the keys of all kinds of tools.

use super::http_tool;
use super::limits::{DURATION_MS_MAX, DURATION_SECONDS_MAX};
use super::names::{DefinedNames, check_name};
use super::program;
use super::secrets;
use super::suggest;
use super::table::{ConfigTable, ConfigValue, quote_text};
use gateway::json_schema;
use model::approval_rule::ApprovalRule;
use model::definition::OnCrash;
use model::definition::ToolSpec;
use model::definition::{Agent, ApprovalOnTimeout, ApprovalPolicy, CommandTool, Tool, ToolExecutor};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const KEYS: [&str; 23] = [
    "kind",
    "description",
    "parameters",
    "display_name",
    "group",
    "approval",
    "approval_timeout_seconds",
    "approval_on_timeout",
    "idempotent",
    "on_crash",
    "timeout",
    "timeout_ms",
    "output_bytes_max",
    "url",
    "method",
    "headers",
    "body",
    "result",
    "command",
    "dir",
    "env_pass",
    "env",
    "agent",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ToolKind {
    Builtin,
    Http,
    Command,
    Client,
    Agent,
}

const KINDS: [(&str, ToolKind); 5] = [
    ("builtin", ToolKind::Builtin),
    ("http", ToolKind::Http),
    ("command", ToolKind::Command),
    ("client", ToolKind::Client),
    ("agent", ToolKind::Agent),
];

/// Keys of some kinds only; the others apply to all kinds.
const KEY_KINDS: [(&str, &[ToolKind]); 13] = [
    ("parameters", &[ToolKind::Http, ToolKind::Command, ToolKind::Client, ToolKind::Agent]),
    ("idempotent", &[ToolKind::Builtin, ToolKind::Http, ToolKind::Command]),
    ("on_crash", &[ToolKind::Builtin, ToolKind::Http, ToolKind::Command]),
    ("url", &[ToolKind::Http]),
    ("method", &[ToolKind::Http]),
    ("headers", &[ToolKind::Http]),
    ("body", &[ToolKind::Http]),
    ("result", &[ToolKind::Http]),
    ("command", &[ToolKind::Command]),
    ("dir", &[ToolKind::Command]),
    ("env_pass", &[ToolKind::Command]),
    ("env", &[ToolKind::Command]),
    ("agent", &[ToolKind::Agent]),
];

pub(super) const ON_CRASH: [(&str, OnCrash); 3] =
    [("unknown", OnCrash::Unknown), ("fail", OnCrash::Fail), ("ask", OnCrash::Ask)];
const ON_TIMEOUT: [(&str, ApprovalOnTimeout); 2] =
    [("reject", ApprovalOnTimeout::Reject), ("approve", ApprovalOnTimeout::Approve)];

pub(super) fn read_tools(
    tables: &ConfigTable<'_>,
    agents: &BTreeMap<String, Agent>,
    names: &DefinedNames<'_>,
) -> BTreeMap<String, Tool> {
    tables.items().filter_map(|(name, item)| Some((name.to_owned(), read_tool(name, &item, agents, names)?))).collect()
}

fn read_tool(
    name: &str,
    item: &ConfigValue<'_>,
    agents: &BTreeMap<String, Agent>,
    names: &DefinedNames<'_>,
) -> Option<Tool> {
    check_name(name, item);
    if names.agents.contains(&name) {
        item.report_error(format!("an agent is called `{name}`, too; rename one of them"));
    }
    let table = item.table(&KEYS)?;
    let kind = read_kind(&table)?;
    for (key, kinds) in KEY_KINDS.iter().filter(|(_, kinds)| !kinds.contains(&kind)) {
        if let Some(item) = table.get(key) {
            let places: Vec<&str> =
                KINDS.iter().filter(|(_, kind)| kinds.contains(kind)).map(|(word, _)| *word).collect();
            item.report_error(format!("does not apply to this kind of tool; only to {}", suggest::list_names(&places)));
        }
    }
    let parameters = match table.get("parameters").filter(|_| kind != ToolKind::Builtin) {
        Some(item) => read_parameters(&item).map_or(ToolParameters::Invalid, ToolParameters::Declared),
        None => ToolParameters::Default,
    };
    let spec = || ToolSpec {
        name: name.to_owned(),
        description: String::new(),
        parameters: parameters.declared().cloned().unwrap_or_else(empty_parameters),
    };
    let base = match kind {
        ToolKind::Builtin => builtin_tool(name, &table)?,
        ToolKind::Http => {
            let spec = spec();
            let known = parameters.known_names(&spec.parameters);
            Tool::new(spec.clone(), ToolExecutor::Http(http_tool::read_http_tool(&table, known.as_deref())?))
        }
        ToolKind::Command => Tool::new(spec(), ToolExecutor::Command(read_command_tool(&table)?)),
        ToolKind::Client => Tool::new(spec(), ToolExecutor::Client),
        ToolKind::Agent => agent_tool(name, &table, &parameters, agents, names)?,
    };
    Some(apply_common_keys(base, &table, &parameters))
}

/// The `parameters` of a tool's table.
enum ToolParameters {
    Default,
    Declared(Value),
    /// Reported. What refers to them is not checked then, so that one cause is one finding.
    Invalid,
}

impl ToolParameters {
    const fn declared(&self) -> Option<&Value> {
        match self {
            Self::Declared(schema) => Some(schema),
            Self::Default | Self::Invalid => None,
        }
    }

    /// The names that rules and templates may use; `None` if they are unknown.
    fn known_names<'a>(&self, schema: &'a Value) -> Option<Vec<&'a str>> {
        match self {
            Self::Default | Self::Declared(_) => Some(property_names(schema)),
            Self::Invalid => None,
        }
    }
}

fn read_kind(table: &ConfigTable<'_>) -> Option<ToolKind> {
    let words: Vec<&str> = KINDS.iter().map(|(word, _)| *word).collect();
    let Some(item) = table.get("kind") else {
        table.report_error(format!("`kind` is missing; expected one of {}", suggest::list_names(&words)));
        return None;
    };
    if item.is_text("mcp") {
        item.report_error("an MCP server is not a tool; write `[mcp.NAME]`, and `mcp:NAME` in an agent's `tools`");
        return None;
    }
    item.one_of(&KINDS)
}

/// Keys of all kinds, which take precedence over the defaults of the kind.
fn apply_common_keys(base: Tool, table: &ConfigTable<'_>, parameters: &ToolParameters) -> Tool {
    let spec =
        ToolSpec { description: table.text("description").map_or(base.spec.description, str::to_owned), ..base.spec };
    let approval = table.get("approval").and_then(|item| {
        let known = parameters.known_names(&spec.parameters);
        read_approval(&item, known.as_deref())
    });
    Tool {
        display_name: table.text("display_name").map(str::to_owned).or(base.display_name),
        group: table.get("group").and_then(|item| read_group(&item)).or(base.group),
        approval: approval.unwrap_or(base.approval),
        approval_timeout_seconds: table
            .number("approval_timeout_seconds", 1..=DURATION_SECONDS_MAX)
            .unwrap_or(base.approval_timeout_seconds),
        approval_on_timeout: table
            .get("approval_on_timeout")
            .and_then(|item| item.one_of(&ON_TIMEOUT))
            .unwrap_or(base.approval_on_timeout),
        idempotent: table.flag("idempotent").unwrap_or(base.idempotent),
        on_crash: table.get("on_crash").and_then(|item| item.one_of(&ON_CRASH)).unwrap_or(base.on_crash),
        timeout_ms: read_timeout_ms(table).or(base.timeout_ms),
        output_bytes_max: table.size("output_bytes_max").or(base.output_bytes_max),
        spec,
        executor: base.executor,
    }
}

/// A namespace, which models read and write as they do the name of a tool.
fn read_group(item: &ConfigValue<'_>) -> Option<String> {
    let group = item.text()?;
    check_name(group, item);
    Some(group.to_owned())
}

fn read_timeout_ms(table: &ConfigTable<'_>) -> Option<u64> {
    let seconds = table.get("timeout");
    if let (Some(seconds), Some(_)) = (&seconds, table.get("timeout_ms")) {
        seconds.report_error("`timeout` and `timeout_ms` are the same setting; remove one");
    }
    match seconds {
        Some(seconds) => seconds.scaled(1000, 1..=DURATION_MS_MAX),
        None => table.number("timeout_ms", 1..=DURATION_MS_MAX),
    }
}

pub(super) fn read_approval(item: &ConfigValue<'_>, known: Option<&[&str]>) -> Option<ApprovalPolicy> {
    let text = item.text()?;
    match text {
        "never" => return Some(ApprovalPolicy::Never),
        "always" => return Some(ApprovalPolicy::Always),
        _ => {}
    }
    match ApprovalRule::parse(text) {
        Ok(rule) => {
            let is_unknown = |name: &&str| known.is_some_and(|known| !known.contains(name));
            for name in rule.argument_names().filter(is_unknown) {
                let instead = suggest::suggest_name(name, known.unwrap_or_default());
                item.report_warning(format!(
                    "{} is not a parameter, so every call may need approval; {instead}",
                    quote_text(name)
                ));
            }
            Some(ApprovalPolicy::When(rule))
        }
        Err(error) => {
            item.report_error(format!(
                "invalid rule: {error}; write `never`, `always`, or a rule like `quantity > 100`"
            ));
            None
        }
    }
}

fn builtin_tool(name: &str, table: &ConfigTable<'_>) -> Option<Tool> {
    let found = ::tools::builtin::builtin_definition(name);
    if found.is_none() {
        let instead = suggest::suggest_name(name, &::tools::builtin::builtin_names());
        table.report_error(format!("unknown builtin tool {}; {instead}", quote_text(name)));
    }
    found
}

fn agent_tool(
    name: &str,
    table: &ConfigTable<'_>,
    parameters: &ToolParameters,
    agents: &BTreeMap<String, Agent>,
    names: &DefinedNames<'_>,
) -> Option<Tool> {
    let Some(item) = table.get("agent") else {
        table.report_error("`agent` is missing; write the name of the agent to call");
        return None;
    };
    let wanted = item.string_or_list()?;
    for (item, wanted) in wanted.iter().filter(|(_, wanted)| !names.agents.contains(wanted)) {
        item.report_error(format!(
            "unknown agent {}; {}",
            quote_text(wanted),
            suggest::suggest_name(wanted, &names.agents)
        ));
    }
    // An agent with an error of its own is missing here.
    let called: Vec<&Agent> = wanted.iter().filter_map(|(_, wanted)| agents.get(*wanted)).collect();
    let mut tool = Tool::for_sub_agents(&called)?;
    tool.spec.name = name.to_owned();
    if let Some(declared) = parameters.declared() {
        let misses_name = wanted.len() > 1 && declared.pointer("/properties/name").is_none();
        if let Some(item) = table.get("parameters").filter(|_| misses_name) {
            item.report_error("the property `name` is missing; it selects one of the agents");
        }
        tool.spec.parameters = declared.clone();
    }
    Some(tool)
}

pub(super) fn read_command_tool(table: &ConfigTable<'_>) -> Option<CommandTool> {
    let Some(item) = table.get("command") else {
        table.report_error("`command` is missing; write `command = [\"program\", \"argument\"]`");
        return None;
    };
    let env_pass = table.get("env_pass").and_then(|item| item.text_list()).unwrap_or_default();
    for (item, name) in &env_pass {
        check_variable_name(item, name);
    }
    let mut env = BTreeMap::new();
    for (name, item) in table.free_table("env").items() {
        check_variable_name(&item, name);
        if let Some(text) = item.text() {
            env.insert(name.to_owned(), secrets::check_secrets(&item, text));
        }
    }
    let dir = table.get("dir").and_then(|item| Some(item.source().resolve_path(item.text()?).display().to_string()));
    let env_pass = env_pass.into_iter().map(|(_, name)| name.to_owned()).collect();
    Some(CommandTool { command: read_command(&item)?, dir, env_pass, env })
}

/// A program and its arguments. A path is relative to the config file.
pub(super) fn read_command(item: &ConfigValue<'_>) -> Option<Vec<String>> {
    let words = item.string_or_list()?;
    if let Some((item, _)) = words.iter().find(|(_, word)| word.contains('\0')) {
        item.report_error("arguments cannot contain NUL characters");
    }
    let mut words: Vec<String> = words.into_iter().map(|(_, word)| word.to_owned()).collect();
    let program = words.first_mut()?;
    if program.is_empty() {
        item.report_error("the program name must not be empty");
    } else if program.contains('/') {
        *program = item.source().resolve_path(program).display().to_string();
    }
    if !program.is_empty() && !program.contains('\0') {
        program::check_program(item, program);
    }
    Some(words)
}

fn check_variable_name(item: &ConfigValue<'_>, name: &str) {
    if name.is_empty() || name.contains(['=', '\0']) {
        item.report_error(format!("{} is not a variable name; remove `=`", quote_text(name)));
    }
}

/// The JSON Schema of a tool's arguments, which are always an object.
fn read_parameters(item: &ConfigValue<'_>) -> Option<Value> {
    item.free_table()?;
    let mut parameters = item.json()?;
    if parameters.get("type") != Some(&json!("object")) {
        item.report_error("arguments are an object; write `type = \"object\"` and describe them under `properties`");
        return None;
    }
    if let Err(why) = json_schema::check_object_schema(&parameters) {
        item.report_error(why);
        return None;
    }
    // Some providers require it even if it is empty.
    let members = parameters.as_object_mut()?;
    members.entry("properties").or_insert_with(|| json!({}));
    let known = property_names(&parameters);
    let required = parameters.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    for name in required.filter(|name| !known.contains(name)) {
        let instead = suggest::suggest_name(name, &known);
        item.report_warning(format!(
            "`required` names {}, which is not under `properties`; {instead}",
            quote_text(name)
        ));
    }
    Some(parameters)
}

fn empty_parameters() -> Value {
    json!({"type": "object", "properties": {}})
}

fn property_names(parameters: &Value) -> Vec<&str> {
    let properties = parameters.get("properties").and_then(Value::as_object);
    properties.into_iter().flat_map(|properties| properties.keys().map(String::as_str)).collect()
}
