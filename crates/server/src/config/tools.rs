//! `[tools.NAME]`: what all kinds have in common, and what belongs to which.

use super::agents::{Names, named};
use super::http_tool;
use super::near;
use super::secret;
use super::table::{Item, Table, shown};
use crate::schema;
use model::approval_rule::ApprovalRule;
use model::definition::{Agent, ApprovalOnTimeout, ApprovalPolicy, CommandTool, Tool, ToolExecutor};
use model::record::OnCrash;
use model::tool::ToolSpec;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The longest time that can be set: a year.
pub(super) const LONGEST_MS: u64 = LONGEST_SECONDS * 1000;
const LONGEST_SECONDS: u64 = 365 * 24 * 60 * 60;

const KEYS: [&str; 22] = [
    "kind",
    "description",
    "parameters",
    "display_name",
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
enum Kind {
    Builtin,
    Http,
    Command,
    Client,
    Agent,
}

const KINDS: [(&str, Kind); 5] = [
    ("builtin", Kind::Builtin),
    ("http", Kind::Http),
    ("command", Kind::Command),
    ("client", Kind::Client),
    ("agent", Kind::Agent),
];

/// What has a place in some kinds only. What is not here has one in all.
const PLACES: [(&str, &[Kind]); 13] = [
    ("parameters", &[Kind::Http, Kind::Command, Kind::Client, Kind::Agent]),
    ("idempotent", &[Kind::Builtin, Kind::Http, Kind::Command]),
    ("on_crash", &[Kind::Builtin, Kind::Http, Kind::Command]),
    ("url", &[Kind::Http]),
    ("method", &[Kind::Http]),
    ("headers", &[Kind::Http]),
    ("body", &[Kind::Http]),
    ("result", &[Kind::Http]),
    ("command", &[Kind::Command]),
    ("dir", &[Kind::Command]),
    ("env_pass", &[Kind::Command]),
    ("env", &[Kind::Command]),
    ("agent", &[Kind::Agent]),
];

const ON_CRASH: [(&str, OnCrash); 3] = [("unknown", OnCrash::Unknown), ("fail", OnCrash::Fail), ("ask", OnCrash::Ask)];
const ON_TIMEOUT: [(&str, ApprovalOnTimeout); 2] =
    [("reject", ApprovalOnTimeout::Reject), ("approve", ApprovalOnTimeout::Approve)];

pub(super) fn read(tables: &Table<'_>, agents: &BTreeMap<String, Agent>, names: &Names<'_>) -> BTreeMap<String, Tool> {
    tables.items().filter_map(|(name, item)| Some((name.to_owned(), tool(name, &item, agents, names)?))).collect()
}

fn tool(name: &str, item: &Item<'_>, agents: &BTreeMap<String, Agent>, names: &Names<'_>) -> Option<Tool> {
    named(name, item);
    if names.agents.contains(&name) {
        item.refuse(format!("there is an agent `{name}`, too, and both would be called so; rename one"));
    }
    let table = item.table(&KEYS)?;
    let kind = kind(&table)?;
    for (key, kinds) in PLACES.iter().filter(|(_, kinds)| !kinds.contains(&kind)) {
        if let Some(item) = table.get(key) {
            let places: Vec<&str> =
                KINDS.iter().filter(|(_, kind)| kinds.contains(kind)).map(|(word, _)| *word).collect();
            item.refuse(format!("has no place in a tool of this kind; it is for {}", near::list(&places)));
        }
    }
    let spec = || ToolSpec {
        name: name.to_owned(),
        description: String::new(),
        parameters: table.get("parameters").and_then(|item| parameters(&item)).unwrap_or_else(no_parameters),
    };
    let base = match kind {
        Kind::Builtin => builtin(name, &table)?,
        Kind::Http => {
            let spec = spec();
            let http = http_tool::read(&table, &spec.parameters)?;
            Tool::new(spec, ToolExecutor::Http(http))
        }
        Kind::Command => Tool::new(spec(), ToolExecutor::Command(command_tool(&table)?)),
        Kind::Client => Tool::new(spec(), ToolExecutor::Client),
        Kind::Agent => asking(name, &table, agents, names)?,
    };
    Some(with_common(base, &table))
}

fn kind(table: &Table<'_>) -> Option<Kind> {
    let words: Vec<&str> = KINDS.iter().map(|(word, _)| *word).collect();
    let Some(item) = table.get("kind") else {
        table.refuse(format!("`kind` is missing; write one of {}", near::list(&words)));
        return None;
    };
    if item.is("mcp") {
        item.refuse(format!("the kind `mcp` is not supported yet; there is {}", near::list(&words)));
        return None;
    }
    item.one_of(&KINDS)
}

/// What every kind may say of itself. It wins over what the kind says.
fn with_common(base: Tool, table: &Table<'_>) -> Tool {
    let spec =
        ToolSpec { description: table.text("description").map_or(base.spec.description, str::to_owned), ..base.spec };
    let approval = table.get("approval").and_then(|item| approval(&item, &spec.parameters));
    Tool {
        display_name: table.text("display_name").map(str::to_owned).or(base.display_name),
        approval: approval.unwrap_or(base.approval),
        approval_timeout_seconds: table
            .number("approval_timeout_seconds", 1..=LONGEST_SECONDS)
            .unwrap_or(base.approval_timeout_seconds),
        approval_on_timeout: table
            .get("approval_on_timeout")
            .and_then(|item| item.one_of(&ON_TIMEOUT))
            .unwrap_or(base.approval_on_timeout),
        idempotent: table.flag("idempotent").unwrap_or(base.idempotent),
        on_crash: table.get("on_crash").and_then(|item| item.one_of(&ON_CRASH)).unwrap_or(base.on_crash),
        timeout_ms: timeout(table).or(base.timeout_ms),
        output_bytes_max: table.size("output_bytes_max").or(base.output_bytes_max),
        spec,
        executor: base.executor,
    }
}

fn timeout(table: &Table<'_>) -> Option<u64> {
    let seconds = table.get("timeout");
    if let (Some(seconds), Some(_)) = (&seconds, table.get("timeout_ms")) {
        seconds.refuse("`timeout` and `timeout_ms` say the same; leave one out");
    }
    match seconds {
        Some(seconds) => seconds.parts(1000, 1..=LONGEST_MS),
        None => table.number("timeout_ms", 1..=LONGEST_MS),
    }
}

fn approval(item: &Item<'_>, parameters: &Value) -> Option<ApprovalPolicy> {
    let text = item.text()?;
    match text {
        "never" => return Some(ApprovalPolicy::Never),
        "always" => return Some(ApprovalPolicy::Always),
        _ => {}
    }
    match ApprovalRule::parse(text) {
        Ok(rule) => {
            let known = property_names(parameters);
            for name in rule.argument_names().filter(|name| !known.contains(name)) {
                let instead = near::instead(name, &known);
                item.warn(format!("{} is no parameter, so this may ask every time; {instead}", shown(name)));
            }
            Some(ApprovalPolicy::When(rule))
        }
        Err(error) => {
            item.refuse(format!("not a rule: {error}; write `never`, `always`, or a rule like `quantity > 100`"));
            None
        }
    }
}

fn builtin(name: &str, table: &Table<'_>) -> Option<Tool> {
    let found = ::tools::builtin::builtin_definition(name);
    if found.is_none() {
        let instead = near::instead(name, ::tools::builtin::builtin_names());
        table.refuse(format!("there is no builtin tool {}; {instead}", shown(name)));
    }
    found
}

fn asking(name: &str, table: &Table<'_>, agents: &BTreeMap<String, Agent>, names: &Names<'_>) -> Option<Tool> {
    let Some(item) = table.get("agent") else {
        table.refuse("`agent` is missing; write the name of the agent that is asked");
        return None;
    };
    let wanted = item.text()?;
    if !names.agents.contains(&wanted) {
        item.refuse(format!("there is no agent {}; {}", shown(wanted), near::instead(wanted, &names.agents)));
    }
    // One that is there and has a mistake of its own is missing here.
    let mut tool = agents.get(wanted).map(Tool::for_sub_agent)?;
    tool.spec.name = name.to_owned();
    if let Some(parameters) = table.get("parameters").and_then(|item| parameters(&item)) {
        tool.spec.parameters = parameters;
    }
    Some(tool)
}

fn command_tool(table: &Table<'_>) -> Option<CommandTool> {
    let Some(item) = table.get("command") else {
        table.refuse("`command` is missing; write `command = [\"program\", \"argument\"]`");
        return None;
    };
    let env_pass = table.get("env_pass").and_then(|item| item.texts()).unwrap_or_default();
    for (item, name) in &env_pass {
        variable(item, name);
    }
    let mut env = BTreeMap::new();
    for (name, item) in table.named("env").items() {
        variable(&item, name);
        if let Some(text) = item.text() {
            env.insert(name.to_owned(), secret::checked(&item, text));
        }
    }
    let dir = table.get("dir").and_then(|item| Some(item.source().path(item.text()?).display().to_string()));
    let env_pass = env_pass.into_iter().map(|(_, name)| name.to_owned()).collect();
    Some(CommandTool { command: command(&item)?, dir, env_pass, env })
}

/// A program and its arguments. A program that is a path is one beside the file.
pub(super) fn command(item: &Item<'_>) -> Option<Vec<String>> {
    let words = item.one_or_more()?;
    if let Some((item, _)) = words.iter().find(|(_, word)| word.contains('\0')) {
        item.refuse("a program is not given NUL characters; leave it out");
    }
    let mut words: Vec<String> = words.into_iter().map(|(_, word)| word.to_owned()).collect();
    let program = words.first_mut()?;
    if program.is_empty() {
        item.refuse("the program has no name; write one");
    } else if program.contains('/') {
        *program = item.source().path(program).display().to_string();
    }
    Some(words)
}

fn variable(item: &Item<'_>, name: &str) {
    if name.is_empty() || name.contains(['=', '\0']) {
        item.refuse(format!("{} is not the name of a variable; leave out `=`", shown(name)));
    }
}

/// The JSON Schema of a tool's arguments, which are always an object.
fn parameters(item: &Item<'_>) -> Option<Value> {
    item.open()?;
    let mut parameters = item.json()?;
    if parameters.get("type") != Some(&json!("object")) {
        item.refuse("arguments are always an object; write `type = \"object\"`, and what they are under `properties`");
        return None;
    }
    if let Err(why) = schema::declare(&parameters) {
        item.refuse(why);
        return None;
    }
    // Some providers want it even if it is empty.
    let members = parameters.as_object_mut()?;
    members.entry("properties").or_insert_with(|| json!({}));
    Some(parameters)
}

fn no_parameters() -> Value {
    json!({"type": "object", "properties": {}})
}

/// What the arguments are called.
pub(super) fn property_names(parameters: &Value) -> Vec<&str> {
    let properties = parameters.get("properties").and_then(Value::as_object);
    properties.into_iter().flat_map(|properties| properties.keys().map(String::as_str)).collect()
}
