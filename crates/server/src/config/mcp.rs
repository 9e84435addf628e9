//! `[mcp.NAME]`: MCP servers.

use super::headers::read_headers;
use super::limits::DURATION_MS_MAX;
use super::mcp_auth::read_auth;
use super::names::check_name;
use super::table::{ConfigTable, ConfigValue, quote_text};
use super::tools::{ON_CRASH, read_approval, read_command_tool};
use super::urls::check_http_url;
use model::definition::{ApprovalPolicy, McpAuth, McpEndpoint, McpPin, McpProgram, McpScope, McpServer, McpTransport};
use std::collections::BTreeMap;
use std::sync::Arc;

const KEYS: [&str; 20] = [
    "command",
    "dir",
    "env_pass",
    "env",
    "url",
    "headers",
    "auth",
    "allow",
    "deny",
    "approval",
    "timeout_ms",
    "start_timeout_ms",
    "output_bytes_max",
    "required",
    "scope",
    "idempotent",
    "on_crash",
    "resources",
    "prompts",
    "pin",
];
/// Keys of a server that is a program.
const PROGRAM_KEYS: [&str; 4] = ["command", "dir", "env_pass", "env"];
/// Keys of a server with a URL.
const ENDPOINT_KEYS: [&str; 2] = ["headers", "auth"];
/// Besides those that begin with `Mcp-`.
const PROTOCOL_HEADERS: [&str; 6] =
    ["accept", "content-type", "content-length", "host", "last-event-id", "transfer-encoding"];
const SCOPES: [(&str, McpScope); 3] =
    [("user", McpScope::User), ("thread", McpScope::Thread), ("shared", McpScope::Shared)];
const START_TIMEOUT_MS: u64 = 10_000;
/// A name of a tool has 64 bytes, of which this leaves some to the tool.
const NAME_BYTES_MAX: usize = 32;
/// Matches every tool.
const ANY_TOOL: &str = "*";

pub(super) fn read_servers(tables: &ConfigTable<'_>) -> BTreeMap<String, McpServer> {
    tables.items().filter_map(|(name, item)| Some((name.to_owned(), read_server(name, &item)?))).collect()
}

fn read_server(name: &str, item: &ConfigValue<'_>) -> Option<McpServer> {
    check_name(name, item);
    if name.len() > NAME_BYTES_MAX {
        item.report_error(format!("the name begins the names of its tools; use at most {NAME_BYTES_MAX} characters"));
    }
    let table = item.table(&KEYS)?;
    let allow = table.get("allow").map(|item| read_patterns(&item));
    let deny = table.get("deny").map(|item| read_patterns(&item)).unwrap_or_default();
    let approval = table.get("approval").map(|item| read_approvals(&item)).unwrap_or_default();
    let scope = table.get("scope").and_then(|item| item.one_of(&SCOPES)).unwrap_or_default();
    let start_timeout_ms = table.number("start_timeout_ms", 1..=DURATION_MS_MAX).unwrap_or(START_TIMEOUT_MS);
    let (timeout_ms, output_bytes_max) =
        (table.number("timeout_ms", 1..=DURATION_MS_MAX), table.size("output_bytes_max"));
    let required = table.flag("required").unwrap_or(false);
    let program = McpProgram { transport: read_transport(&table)?, scope, start_timeout_ms };
    if let (Some(item), McpTransport::Endpoint(endpoint)) = (table.get("scope"), &program.transport)
        && scope == McpScope::Shared
        && matches!(endpoint.auth.as_deref(), Some(McpAuth::User | McpAuth::OAuth(_)))
    {
        item.report_error("a server that gets credentials of users cannot be shared by them");
    }
    let idempotent = table.get("idempotent").map(|item| read_patterns(&item)).unwrap_or_default();
    let on_crash = table.get("on_crash").and_then(|item| item.one_of(&ON_CRASH)).unwrap_or_default();
    let (resources, prompts) = (table.flag("resources").unwrap_or(false), table.flag("prompts").unwrap_or(false));
    Some(McpServer {
        program,
        allow,
        deny,
        approval,
        timeout_ms,
        output_bytes_max,
        required,
        idempotent,
        on_crash,
        resources,
        prompts,
        pin: table.get("pin").and_then(|item| read_pin(&item)).unwrap_or_default(),
    })
}

/// A program or a URL.
fn read_transport(table: &ConfigTable<'_>) -> Option<McpTransport> {
    let Some(url) = table.get("url") else {
        if table.get("command").is_none() {
            table.report_error("write `command = [\"program\", \"argument\"]` or `url = \"https://example.com/mcp\"`");
            return None;
        }
        report_keys_of_other(table, &ENDPOINT_KEYS, "`command`");
        return read_command_tool(table).map(McpTransport::Command);
    };
    report_keys_of_other(table, &PROGRAM_KEYS, "`url`");
    let headers = read_headers(table);
    for (name, item) in table.free_table("headers").items() {
        if PROTOCOL_HEADERS.iter().any(|own| own.eq_ignore_ascii_case(name))
            || name.to_ascii_lowercase().starts_with("mcp-")
        {
            item.report_error("this header belongs to the protocol and is set with every request");
        }
    }
    let url = check_http_url(&url, url.text()?)?;
    let auth = table.get("auth").and_then(|item| {
        if headers.keys().any(|name| name.eq_ignore_ascii_case("authorization")) {
            item.report_error("the header `Authorization` is written above; use one of both");
        }
        read_auth(&item).map(Arc::new)
    });
    Some(McpTransport::Endpoint(McpEndpoint { url, headers, auth }))
}

fn report_keys_of_other(table: &ConfigTable<'_>, keys: &[&str], written: &str) {
    for key in keys {
        if let Some(item) = table.get(key) {
            item.report_error(format!("has no meaning for a server with {written}"));
        }
    }
}

/// Names of tools; a `*` at the end stands for any rest.
fn read_patterns(item: &ConfigValue<'_>) -> Vec<String> {
    let patterns = item.text_list().unwrap_or_default();
    for (item, pattern) in &patterns {
        check_pattern(item, pattern);
    }
    patterns.into_iter().map(|(_, pattern)| pattern.to_owned()).collect()
}

fn check_pattern(item: &ConfigValue<'_>, pattern: &str) {
    let beginning = pattern.strip_suffix(ANY_TOOL).unwrap_or(pattern);
    if pattern.is_empty() || beginning.contains(ANY_TOOL) {
        item.report_error(format!("{} is not a tool's name; `*` may only be its end", quote_text(pattern)));
    }
}

/// A word, or a table of hashes by tool.
fn read_pin(item: &ConfigValue<'_>) -> Option<McpPin> {
    if !item.is_table() {
        let is_off = item.one_of(&[("ask", false), ("off", true)])?;
        return Some(if is_off { McpPin::Off } else { McpPin::Ask });
    }
    let pins = item.free_table()?;
    let hashes = pins.items().filter_map(|(tool, item)| {
        let hash = item.text()?;
        let digest = hash.strip_prefix("sha256:").unwrap_or_default();
        let is_hash = digest.len() == 64 && digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if !is_hash {
            item.report_error("expected `sha256:` and 64 hexadecimal digits, as `headwater mcp pin NAME` prints them");
        }
        is_hash.then(|| (tool.to_owned(), hash.to_owned()))
    });
    Some(McpPin::Tools(hashes.collect()))
}

/// One policy for all tools, or a table of them.
fn read_approvals(item: &ConfigValue<'_>) -> BTreeMap<String, ApprovalPolicy> {
    if !item.is_table() {
        return read_approval(item, None).map(|policy| (ANY_TOOL.to_owned(), policy)).into_iter().collect();
    }
    let Some(table) = item.free_table() else { return BTreeMap::new() };
    let policies = table.items().filter_map(|(pattern, item)| {
        check_pattern(&item, pattern);
        Some((pattern.to_owned(), read_approval(&item, None)?))
    });
    policies.collect()
}
