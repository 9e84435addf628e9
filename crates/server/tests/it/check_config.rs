//! `headwater check-config`, the JSON Schema of the file and its documentation agree.

use crate::harness::headwater_command;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

const PAGE: &str = include_str!("../../../../docs/configuration.md");
const SCHEMA: &str = include_str!("../../headwater.schema.json");
const SCENARIOS: &str = include_str!("../../demo/scenarios.toml");

/// The file that tests of single keys extend.
const AROUND: &str =
    "[agents.other]\nmodel = \"mine/a\"\n[providers.mine]\nkind = \"scripted\"\nfile = \"scenarios.toml\"\n";

/// The output for a file, and the exit code.
fn check(text: &str) -> (String, i32) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("scenarios.toml"), SCENARIOS).unwrap();
    fs::write(dir.path().join("c.toml"), text).unwrap();
    let program = dir.path().join("place-order");
    fs::write(&program, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let output = headwater_command(dir.path())
        .args(["check-config", "--config", "c.toml"])
        .env("QUOTES_TOKEN", "s3cret-value")
        .env("BROKER_KEY", "s3cret-value")
        .env("MODEL_KEY", "s3cret-value")
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "headwater: config: c.toml\n");
    assert!(!said.contains("s3cret"), "{said}");
    (said, output.status.code().unwrap())
}

fn schema() -> Value {
    serde_json::from_str(SCHEMA).unwrap()
}

fn fits_schema(text: &str) -> Result<(), String> {
    let file: Value = toml::from_str(text).unwrap();
    let validator = jsonschema::validator_for(&schema()).unwrap();
    validator.validate(&file).map_err(|error| format!("{}: {error}", error.instance_path()))
}

fn examples() -> Vec<&'static str> {
    PAGE.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

#[test]
fn a_valid_file_is_summarised() {
    let dir = tempfile::tempdir().unwrap();
    let output = headwater_command(dir.path()).args(["check-config"]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.starts_with("ok: ") && said.ends_with(", 1 provider\n"), "{said}");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(check(AROUND), ("ok: 1 agent, 0 tools, 1 provider\n".to_owned(), 0));
}

#[test]
fn every_finding_is_one_line() {
    let (said, code) = check("[agents.a]\nmodel = \"x/y\"\ntools = [\"t\"]\n\n[limit]\nsteps_max = 1\n");
    let wanted = "c.toml:2: agents.a.model: no provider for `x/y`; none is defined\n\
                  c.toml:3: agents.a.tools: agent `a` has the tool `t`, which is not defined; did you mean `a`?\n\
                  c.toml:5: limit: unknown key `limit`; did you mean `limits`?\n";
    assert_eq!((said.as_str(), code), (wanted, 1));
    let dir = tempfile::tempdir().unwrap();
    let output = headwater_command(dir.path()).args(["check-config", "--config", "none.toml"]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.starts_with("none.toml: ") && said.lines().count() == 1, "{said}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn tools_of_several_agents_and_references_are_checked() {
    let tool = "[agents.second]\nmodel = \"mine/b\"\n[tools.t]\nkind = \"agent\"\nagent = [\"other\", \"second\"]\n";
    assert_eq!(check(&format!("{AROUND}{tool}")), ("ok: 2 agents, 1 tool, 1 provider\n".to_owned(), 0));
    let cases = [
        (tool.replace("\"second\"]", "\"secnd\"]"), "unknown agent `secnd`; did you mean `second`?"),
        (tool.replace("[\"other\", \"second\"]", "[]"), "the list must not be empty"),
        (
            format!(
                "{tool}parameters = {{ type = \"object\", properties = {{ prompt = {{ type = \"string\" }} }} }}\n"
            ),
            "tools.t.parameters: the property `name` is missing",
        ),
        (
            "[agents.a]\nmodel = \"mine/a\"\nreferences = false\nreference_instructions = \"Cite.\"\n".to_owned(),
            "agents.a.reference_instructions: has no effect, because `references` is false",
        ),
        ("[agents.a]\nmodel = \"mine/a\"\nreferences = \"no\"\n".to_owned(), "agents.a.references: "),
    ];
    for (text, wanted) in cases {
        let (said, code) = check(&format!("{AROUND}{text}"));
        assert!(said.contains(wanted) && said.lines().count() == 1 && code == 1, "{said}");
    }
}

#[test]
fn mcp_servers_are_checked_and_not_started() {
    let server = "[mcp.files]\ncommand = [\"sh\", \"-c\", \"touch started\"]\n[agents.a]\nmodel = \"mine/a\"\n";
    let tools = "tools = [\"mcp:files\", \"mcp:files/read\"]\n";
    let ok = "ok: 2 agents, 0 tools, 1 provider, 1 MCP server\n";
    assert_eq!(check(&format!("{AROUND}{server}{tools}")), (ok.to_owned(), 0));
    let keys = "[mcp.files]\ncommand = \"sh\"\n";
    let cases = [
        (
            format!("{server}tools = [\"mcp:fils\"]"),
            "has the MCP server `fils`, which is not defined; did you mean `files`?",
        ),
        (format!("{server}tools = [\"mcp:fils/read\"]"), "has the MCP server `fils`, which is not defined"),
        (format!("{server}tools = [\"mcp:files/\"]"), "the tool is missing; write `mcp:files`, or `mcp:files/TOOL`"),
        (
            "[mcp.files]\nurl = \"ftp://example.org/mcp\"".to_owned(),
            "mcp.files.url: not an HTTP URL; it must start with `http://` or `https://`",
        ),
        (
            "[mcp.files]\nurl = \"https://me:s3cret@example.org/mcp\"".to_owned(),
            "mcp.files.url: do not put credentials into the URL; use `headers` and `env:NAME`",
        ),
        (
            "[mcp.files]\nurl = \"https://example.org/mcp\"\ncommand = \"sh\"".to_owned(),
            "mcp.files.command: has no meaning for a server with `url`",
        ),
        (
            format!("{keys}headers = {{ X-Key = \"k\" }}"),
            "mcp.files.headers: has no meaning for a server with `command`",
        ),
        (
            "[mcp.files]\nurl = \"https://example.org/mcp\"\nheaders = { Mcp-Session-Id = \"k\" }".to_owned(),
            "mcp.files.headers.Mcp-Session-Id: this header belongs to the protocol",
        ),
        (
            "[mcp.files]\nscope = \"user\"".to_owned(),
            "mcp.files: write `command = [\"program\", \"argument\"]` or `url = ",
        ),
        (format!("{keys}allow = [\"a*b\"]"), "mcp.files.allow: `a*b` is not a tool's name"),
        (format!("{keys}approval = \"a >\""), "mcp.files.approval: invalid rule"),
        (format!("{keys}approval = {{ read = \"sometimes >\" }}"), "mcp.files.approval.read: invalid rule"),
        (format!("{keys}scope = \"run\""), "mcp.files.scope: unknown value `run`"),
        (format!("[mcp.{}]\ncommand = \"sh\"", "x".repeat(33)), "use at most 32 characters"),
    ];
    for (text, wanted) in cases {
        let (said, code) = check(&format!("{AROUND}{text}\n"));
        assert!(said.contains(wanted) && said.lines().count() == 1 && code == 1, "{said}\n{text}");
    }
}

#[test]
fn credentials_of_mcp_servers_are_checked() {
    let server = |keys: &str| format!("{AROUND}[mcp.files]\nurl = \"https://example.org/mcp\"\n{keys}\n");
    for auth in ["\"oauth\"", "\"user\"", "{ kind = \"oauth\", client_id = \"hw\", scopes = [\"files:read\"] }"] {
        let ok = "ok: 1 agent, 0 tools, 1 provider, 1 MCP server\n";
        assert_eq!(check(&server(&format!("auth = {auth}"))), (ok.to_owned(), 0), "{auth}");
    }
    let cases = [
        ("auth = \"oidc\"", "mcp.files.auth: unknown value `oidc`"),
        ("auth = {}", "mcp.files.auth: the kind is missing"),
        ("auth = { kind = \"oauth\", client = \"x\" }", "mcp.files.auth.client: unknown key"),
        (
            "auth = { kind = \"oauth\", client_id = \"hw\", client_secret = \"s3cret\" }",
            "mcp.files.auth.client_secret: do not write secrets into this file",
        ),
        ("auth = { kind = \"oauth\", scopes = [\"a b\"] }", "mcp.files.auth.scopes: `a b` is not a scope"),
        ("auth = { kind = \"oauth\", redirect_url = \"app:done\" }", "mcp.files.auth.redirect_url: not an HTTP URL"),
        ("auth = \"client_credentials\"", "write a table with `kind`, `client_id` and `client_secret`"),
        ("auth = { kind = \"client_credentials\" }", "`client_credentials` needs `client_id` and `client_secret`"),
        ("auth = { kind = \"user\", scopes = [] }", "mcp.files.auth.scopes: has no meaning for `kind = \"user\"`"),
        ("auth = \"oauth\"\nscope = \"shared\"", "mcp.files.scope: a server that gets credentials of users"),
    ];
    for (keys, wanted) in cases {
        let (said, code) = check(&server(keys));
        assert!(said.contains(wanted) && said.lines().count() == 1 && code == 1, "{said}\n{keys}");
    }
    let (said, _) = check(&format!("{AROUND}[mcp.files]\ncommand = \"sh\"\nauth = \"oauth\"\n"));
    assert!(said.contains("mcp.files.auth: has no meaning for a server with `command`"), "{said}");
}

#[test]
fn a_warning_is_printed_and_changes_nothing() {
    let tool = "[tools.t]\nkind = \"http\"\nurl = \"http://h/\"\nheaders = { Authorization = \"Bearer s3cret\" }\n";
    let (said, code) = check(&format!("{AROUND}{tool}"));
    assert_eq!(code, 0);
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("c.toml:9: tools.t.headers.Authorization: warning: "), "{said}");
    assert_eq!(lines[1..], ["ok: 1 agent, 1 tool, 1 provider"]);
}

#[test]
fn the_documented_examples_pass_parser_and_schema() {
    assert!(examples().len() >= 2);
    for example in examples() {
        assert_eq!(fits_schema(example), Ok(()), "{example}");
        let (said, code) = check(example);
        assert!(code == 0 && said.lines().count() == 1, "{said}\n{example}");
    }
    assert_eq!(check(examples()[0]).0, "ok: 2 agents, 2 tools, 1 provider\n");
    let demo = include_str!("../../demo/headwater.toml");
    assert_eq!(fits_schema(demo), Ok(()));
}

#[test]
fn the_documented_error_example_gives_the_documented_message() {
    let at = examples()[0].replacen("\"quote\"", "\"qoute\"", 1);
    let (said, _) = check(&at);
    let (line, rest) = said.split_once(": ").unwrap();
    assert_eq!(line, "c.toml:5");
    assert!(PAGE.contains(&format!("```text\nheadwater.toml:5: {}\n```", rest.trim_end())), "{said}");
}

#[test]
fn the_schema_is_printed() {
    let dir = tempfile::tempdir().unwrap();
    let output = headwater_command(dir.path()).args(["check-config", "--schema"]).output().unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap(), schema());
    assert!(jsonschema::meta::is_valid(&schema()));
}

/// Every table of the file, with an unknown key.
const TABLES: &str = r#"
"?" = 1
[agents.a]
"?" = 1
handoffs = [{ "?" = 1 }]
history = { "?" = 1 }
compaction = { "?" = 1 }
input_hook = { "?" = 1 }
[tools.t]
"?" = 1
[mcp.s]
"?" = 1
url = "http://h/"
auth = { "?" = 1 }
[providers.p]
"?" = 1
[prices."p/m"]
"?" = 1
[auth]
"?" = 1
[server]
"?" = 1
[limits]
"?" = 1
[metrics]
"?" = 1
[store]
"?" = 1
[database]
"?" = 1
[files]
"?" = 1
[fetch]
"?" = 1
[retention]
"?" = 1
"#;

/// The keys of every table, as the parser lists them in the error for an unknown key.
fn keys_of_the_parser() -> BTreeMap<String, BTreeSet<String>> {
    let (said, _) = check(TABLES);
    let unknown = said.lines().filter_map(|line| line.split_once(": unknown key `?`; expected one of "));
    unknown
        .map(|(place, keys)| {
            let table = place.split_once(": ").unwrap().1.trim_end_matches("\"?\"").trim_end_matches('.');
            assert!(!keys.ends_with(" more"), "{keys}");
            (table.to_owned(), keys.trim_matches('`').split("`, `").map(str::to_owned).collect())
        })
        .collect()
}

/// The schema of a table of [`TABLES`].
fn table_in_schema(path: &str) -> Value {
    let schema = schema();
    let resolve = |value: &Value| match value["$ref"].as_str() {
        Some(reference) => schema.pointer(reference.trim_start_matches('#')).unwrap().clone(),
        None => value.clone(),
    };
    let mut here = schema.clone();
    for name in path.split('.').filter(|name| !name.is_empty()) {
        let next = here["properties"].get(name).unwrap_or(&here["additionalProperties"]).clone();
        here = resolve(&next);
        if here["type"] == "array" {
            let choices = here["items"]["anyOf"].as_array().unwrap().clone();
            here = choices.iter().map(resolve).find(|choice| choice["type"] == "object").unwrap();
        }
        if let Some(choices) = here["anyOf"].as_array().filter(|_| here["properties"].is_null()) {
            here = choices.iter().map(resolve).find(|choice| choice["type"] == "object").unwrap();
        }
    }
    here
}

#[test]
fn parser_and_schema_know_the_same_keys() {
    let parser = keys_of_the_parser();
    assert_eq!(parser.len(), TABLES.matches('?').count());
    for (table, keys) in &parser {
        let properties = table_in_schema(table)["properties"].as_object().unwrap().clone();
        assert_eq!(&properties.keys().cloned().collect::<BTreeSet<_>>(), keys, "{table}");
    }
    // Every table that the schema closes is one of these, so none was forgotten.
    assert_eq!(SCHEMA.matches("\"additionalProperties\": false").count(), parser.len());
}

/// The other keys that a table needs for the tested key to be parsed.
fn beside(table: &str, key: &str) -> Vec<(&'static str, &'static str)> {
    const HTTP: [&str; 5] = ["url", "method", "headers", "body", "result"];
    match table {
        "agents.a" => vec![("model", "\"mine/a\"")],
        "tools.t" if HTTP.contains(&key) => vec![("kind", "\"http\""), ("url", "\"http://h/\"")],
        "tools.t" if key == "agent" => vec![("kind", "\"agent\""), ("agent", "\"other\"")],
        "tools.t" if key != "kind" => vec![("kind", "\"command\""), ("command", "\"x\"")],
        "mcp.s" => vec![("command", "\"x\"")],
        "mcp.s.auth" => vec![("kind", "\"oauth\"")],
        "agents.a.handoffs" => vec![("agent", "\"other\"")],
        "agents.a.compaction" => vec![("after_tokens", "1")],
        "agents.a.input_hook" if key != "command" => vec![("url", "\"http://h/\"")],
        "providers.q" if ["file", "cassettes", "speed"].contains(&key) => vec![("kind", "\"scripted\"")],
        "providers.q" => vec![("kind", "\"openai-chat\"")],
        "prices.\"mine/m\"" => vec![("input", "1"), ("output", "1")],
        _ => Vec::new(),
    }
}

/// A file whose only unusual value is this one.
fn with(table: &str, key: &str, value: &str) -> String {
    let mut entries: Vec<(&str, &str)> = beside(table, key).into_iter().filter(|(name, _)| *name != key).collect();
    entries.push((key, value));
    let inner: Vec<String> = entries.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    match table {
        "" => format!("{}\n", inner.join("\n")),
        "agents.a.handoffs" => {
            format!("{AROUND}[agents.a]\nmodel = \"mine/a\"\nhandoffs = [{{ {} }}]\n", inner.join(", "))
        }
        "mcp.s.auth" => format!("{AROUND}[mcp.s]\nurl = \"http://h/\"\nauth = {{ {} }}\n", inner.join(", ")),
        _ if table.matches('.').count() == 2 => {
            let name = table.rsplit('.').next().unwrap();
            format!("{AROUND}[agents.a]\nmodel = \"mine/a\"\n{name} = {{ {} }}\n", inner.join(", "))
        }
        _ => format!("{AROUND}[{table}]\n{}\n", inner.join("\n")),
    }
}

#[test]
fn every_key_is_parsed_and_a_wrong_type_is_refused_by_both() {
    for (table, keys) in keys_of_the_parser() {
        let table = table.replace("p/m", "mine/m").replace("providers.p", "providers.q");
        for key in keys {
            // Any JSON may be a body.
            if key == "body" {
                continue;
            }
            let text = with(&table, &key, "[[true]]");
            let (said, code) = check(&text);
            let full = format!(": {table}.{key}: ").replace(": .", ": ");
            let line = said.lines().find(|line| line.contains(&full));
            assert!(code == 1 && line.is_some(), "{full}\n{said}\n{text}");
            assert!(!said.contains("does not apply") && !said.contains("unknown key"), "{said}\n{text}");
            assert!(fits_schema(&text).is_err(), "{text}");
        }
    }
}

#[test]
fn the_documentation_names_every_key() {
    for (table, keys) in keys_of_the_parser() {
        for key in keys {
            // A table has a heading of its own; small tables are inline.
            let named = ["`K`", "`[K", "`K = ", " K ", " K,", " K`"].map(|form| form.replace('K', &key));
            assert!(named.iter().any(|named| PAGE.contains(named.as_str())), "{table}.{key}");
        }
    }
}

#[test]
fn an_archive_has_a_place_of_its_own() {
    let check_archive = |tables: &str| check(&format!("{AROUND}{tables}"));
    for tables in [
        "[database]\narchive = \"old\"\narchive_after_seconds = 0\n",
        "[files]\nurl = \"s3://bucket/files\"\n[database]\narchive = \"s3://bucket/archive\"\n",
    ] {
        let (said, code) = check_archive(tables);
        assert_eq!(code, 0, "{tables}: {said}");
    }
    for (tables, expected) in [
        ("[files]\nurl = \"shared\"\n[database]\narchive = \"shared/old\"\n", "the files of users are there, too"),
        ("[files]\nurl = \"s3://bucket\"\n[database]\narchive = \"s3://bucket/old\"\n", "the files of users are there"),
        ("[database]\narchive = \"ftp://bucket\"\n", "is not known"),
        ("[database]\narchive = \"old\"\narchive_after_seconds = 99999999\n", "out of range"),
        ("[database]\narchive_after_seconds = 60\n", "has no effect without `archive`"),
    ] {
        let (said, _) = check_archive(tables);
        assert!(said.contains("database.archive") && said.contains(expected), "{tables}: {said}");
    }
}
