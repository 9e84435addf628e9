//! Assembles the settings. Every table is read, also after an error, so that all errors are reported.

use super::database::DatabaseContext;
use super::diagnostics::{Diagnostic, Diagnostics};
use super::names::DefinedNames;
use super::source::ConfigSource;
use super::suggest;
use super::table::{ConfigTable, ConfigValue, quote_text};
use super::urls::{is_host, is_origin};
use super::{
    AuthMode, Config, ConfigError, DEFAULT_DATA_DIR, DEFAULT_LISTEN, DatabaseConfig, Overrides, StorageConfig,
};
use super::{
    agent_calls, agents, call_rules, database, fetch, files, limits, mcp, providers, retention, secrets, tools,
};
use ::tools::Toolbox;
use gateway::attachments::{AttachmentSettings, default_location};
use gateway::secret_token::{encode_hex, secret_digest};
use model::definition::Definitions;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store::SqliteOptions;
use toml::de::DeTable;

const KEYS: [&str; 14] = [
    "agents",
    "tools",
    "mcp",
    "providers",
    "prices",
    "auth",
    "server",
    "limits",
    "metrics",
    "store",
    "database",
    "files",
    "fetch",
    "retention",
];
const AUTH_KEYS: [&str; 2] = ["mode", "models"];
const METRICS_KEYS: [&str; 1] = ["token"];
const SERVER_KEYS: [&str; 5] = ["listen", "data_dir", "hosts", "origins", "stop_grace_ms"];
const STORE_KEYS: [&str; 2] = ["commit_spacing_ms", "disk_reserve_bytes"];
/// What is kept for deletions on a full disk.
const DISK_RESERVE_BYTES: u64 = 16 * 1024 * 1024;

pub(super) fn build_config(
    source: &ConfigSource,
    overrides: Overrides,
    tools: Arc<Toolbox>,
) -> (Config, Vec<Diagnostic>) {
    let findings = Diagnostics::new(source);
    let entries = parse_tables(source, &findings);
    let config = read_settings(&ConfigTable::root(&findings, &entries, &KEYS), &findings, overrides, tools);
    (config, findings.into_sorted())
}

pub(super) fn build_storage_config(source: &ConfigSource, overrides: &Overrides) -> (StorageConfig, Vec<Diagnostic>) {
    let findings = Diagnostics::new(source);
    let entries = parse_tables(source, &findings);
    let file = ConfigTable::root(&findings, &entries, &KEYS);
    let auth = read_auth_mode(&file.table("auth", &AUTH_KEYS)).unwrap_or(AuthMode::None);
    let data_dir = read_data_dir(&file.table("server", &SERVER_KEYS), overrides.data_dir.clone());
    let files = files::read_files(&file.table("files", &files::KEYS), &findings, overrides.env, auth);
    let database = read_database(&file, &findings, overrides, (&files, &data_dir));
    let config = StorageConfig { data_dir, database, auth, files };
    (config, findings.into_sorted())
}

/// An invalid TOML file is empty: the rest of it would only repeat the same error.
fn parse_tables<'a>(source: &'a ConfigSource, findings: &Diagnostics<'_>) -> DeTable<'a> {
    let (tree, errors) = DeTable::parse_recoverable(&source.text);
    for error in &errors {
        let at = error.span().unwrap_or(0..0).start;
        let key = source.key_on_line(source.line_at(at));
        findings.push_at(super::Severity::Error, at, key, error.message());
    }
    if errors.is_empty() { tree.into_inner() } else { DeTable::new() }
}

fn read_database(
    file: &ConfigTable<'_>,
    findings: &Diagnostics<'_>,
    overrides: &Overrides,
    (files, data_dir): (&AttachmentSettings, &Path),
) -> Option<DatabaseConfig> {
    let files = files.location.clone().unwrap_or_else(|| default_location(data_dir));
    let context =
        DatabaseContext { flag: overrides.database_url.as_deref(), environment: overrides.env, files: &files };
    database::read_database(&file.table("database", &database::KEYS), findings, &context)
}

fn read_data_dir(server: &ConfigTable<'_>, flag: Option<PathBuf>) -> PathBuf {
    let setting = || server.text("data_dir").map(PathBuf::from);
    flag.or_else(setting).unwrap_or_else(|| PathBuf::from(DEFAULT_DATA_DIR))
}

fn read_settings(
    file: &ConfigTable<'_>,
    findings: &Diagnostics<'_>,
    overrides: Overrides,
    tools: Arc<Toolbox>,
) -> Config {
    let server = file.table("server", &SERVER_KEYS);
    let limits = file.table("limits", &limits::limit_keys());
    let providers = file.free_table("providers");
    let env_providers = providers::providers_from_env(overrides.env, &providers, findings);
    let names = providers.names().into_iter().chain(env_providers.iter().map(|(name, _)| *name)).collect();
    let mut definitions = read_definitions(file, &limits, names);
    let auth_table = file.table("auth", &AUTH_KEYS);
    let auth = read_auth_mode(&auth_table);
    let call_rules = call_rules::read_call_rules(&auth_table, &file.free_table("agents"), &definitions);
    definitions.call_rules = Some(call_rules).filter(|_| auth == Some(AuthMode::Keys));
    let listen = read_listen(&server, findings, overrides.listen.clone());
    if auth == Some(AuthMode::None) && !listen.ip().is_loopback() {
        findings.push(ConfigError::ExposedWithoutAuth(listen));
    }
    let auth = auth.unwrap_or(AuthMode::None);
    let files = file.table("files", &files::KEYS);
    let store = file.table("store", &STORE_KEYS);
    let ms = |table: &ConfigTable<'_>, key| table.number(key, 0..=u64::MAX).map(Duration::from_millis);
    let data_dir = read_data_dir(&server, overrides.data_dir.clone());
    let attachments = files::read_files(&files, findings, overrides.env, auth);
    let database = read_database(file, findings, &overrides, (&attachments, &data_dir));
    Config {
        listen,
        data_dir,
        database,
        auth,
        hosts: read_checked_list(&server, "hosts", is_host, "a host name, with or without a port"),
        origins: read_checked_list(&server, "origins", is_origin, "an origin such as https://example.com"),
        shutdown_grace: ms(&server, "stop_grace_ms").unwrap_or(Duration::from_secs(5)),
        commit_spacing: ms(&store, "commit_spacing_ms").unwrap_or(SqliteOptions::COMMIT_SPACING),
        disk_reserve_bytes: store.number("disk_reserve_bytes", 0..=u64::MAX).unwrap_or(DISK_RESERVE_BYTES),
        public_url: files::read_public_url(&files),
        files: attachments,
        fetch: fetch::read_fetch(&file.table("fetch", &fetch::KEYS)),
        http_limits: limits::read_http_limits(&limits, auth),
        retention: retention::read_retention(&file.table("retention", &retention::KEYS)),
        metrics_token_digest: read_metrics_token(&file.table("metrics", &METRICS_KEYS)),
        definitions,
        models: providers::read_providers(&providers, env_providers, overrides.record_dir, findings),
        tools,
    }
}

fn read_definitions(file: &ConfigTable<'_>, limits: &ConfigTable<'_>, providers: Vec<&str>) -> Definitions {
    let (agent_tables, tools, servers) = (file.free_table("agents"), file.free_table("tools"), file.free_table("mcp"));
    let names = DefinedNames { agents: agent_tables.names(), tools: tools.names(), mcp: servers.names(), providers };
    let agents = agents::read_agents(&agent_tables, &names);
    let tools = tools::read_tools(&tools, &agents, &names);
    agent_calls::check_call_cycles(&agent_tables, &agents, &tools);
    let mut definitions = Definitions {
        providers: names.providers.iter().map(|&name| name.to_owned()).collect(),
        limits: limits::read_run_limits(limits),
        prices: limits::read_prices(&file.free_table("prices"), &names, &agents),
        agents,
        tools,
        mcp: mcp::read_servers(&servers),
        mcp_lists: BTreeMap::new(),
        call_rules: None,
        digest: String::new(),
    };
    definitions.digest = definitions_digest(&definitions);
    definitions
}

/// Equal definitions have equal digests, however the file is formatted: all their maps are sorted.
fn definitions_digest(definitions: &Definitions) -> String {
    // Keys are strings and numbers are finite, so serialization cannot fail.
    let json = serde_json::to_vec(definitions).unwrap_or_default();
    encode_hex(&Sha256::digest(&json))
}

fn read_listen(server: &ConfigTable<'_>, findings: &Diagnostics<'_>, flag: Option<String>) -> SocketAddr {
    let parse = |text: &str| {
        let local = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
        local.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))).or_else(|| text.parse().ok())
    };
    let setting = server.get("listen").and_then(|item| {
        let address = parse(item.text()?);
        if address.is_none() {
            item.report_error("not a socket address; write ip:port, such as 127.0.0.1:8787");
        }
        address
    });
    let flag = flag.and_then(|text| {
        let address = parse(&text);
        if address.is_none() {
            findings.push(ConfigError::Listen(text));
        }
        address
    });
    flag.or(setting).unwrap_or(DEFAULT_LISTEN)
}

/// `None` if the setting is invalid.
fn read_auth_mode(table: &ConfigTable<'_>) -> Option<AuthMode> {
    const MODES: [(&str, AuthMode); 2] = [("none", AuthMode::None), ("keys", AuthMode::Keys)];
    let Some(item) = table.get("mode") else { return Some(AuthMode::None) };
    if item.is_text("jwt") {
        let known: Vec<&str> = MODES.iter().map(|(word, _)| *word).collect();
        item.report_error(format!("`jwt` is not supported yet; expected one of {}", suggest::list_names(&known)));
        return None;
    }
    item.one_of(&MODES)
}

/// The digest of the token, which is read once.
fn read_metrics_token(table: &ConfigTable<'_>) -> Option<String> {
    let item = table.get("token")?;
    let text = item.text()?;
    if !secrets::is_secret_ref(text) {
        item.report_error("a token does not belong into this file; write `env:NAME` or `file:PATH`");
        return None;
    }
    // What cannot be resolved has been reported.
    let resolved = secrets::resolve_secrets_blocking(&secrets::check_secrets(&item, text)).ok()?;
    Some(secret_digest(&resolved.text))
}

fn read_checked_list(table: &ConfigTable<'_>, key: &str, fits: fn(&str) -> bool, wanted: &str) -> Vec<String> {
    let texts = table.get(key).and_then(|item| item.text_list()).unwrap_or_default();
    let check = |(item, text): (ConfigValue<'_>, &str)| {
        if !fits(text) {
            item.report_error(format!("{} is not {wanted}", quote_text(text)));
        }
        text.to_ascii_lowercase()
    };
    texts.into_iter().map(check).collect()
}
