//! The file as settings. Every table is read to its end, whatever was wrong before it.

use super::agents::{self, Names};
use super::findings::{Finding, Findings};
use super::near;
use super::source::Source;
use super::table::{Item, Table, shown};
use super::{AuthMode, Config, ConfigError, DATA_DIR, LISTEN, Overrides};
use super::{fetch, files, limits, providers, tools};
use crate::hex::hex;
use ::tools::Toolbox;
use model::definition::Definitions;
use sha2::{Digest as _, Sha256};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use toml::de::DeTable;

const KEYS: [&str; 10] =
    ["agents", "tools", "providers", "prices", "auth", "server", "limits", "store", "files", "fetch"];
const AUTH_KEYS: [&str; 1] = ["mode"];
const SERVER_KEYS: [&str; 5] = ["listen", "data_dir", "hosts", "origins", "stop_grace_ms"];
const STORE_KEYS: [&str; 1] = ["commit_spacing_ms"];

/// Turns a file into settings, with all that is wrong in it. With an error among that, the settings are good for nothing.
pub(super) fn config(source: &Source, overrides: Overrides, tools: Arc<Toolbox>) -> (Config, Vec<Finding>) {
    let findings = Findings::new(source);
    let (tree, errors) = DeTable::parse_recoverable(&source.text);
    for error in &errors {
        let at = error.span().unwrap_or(0..0).start;
        let key = source.key(source.line(at));
        findings.at(super::Weight::Error, at, key, error.message());
    }
    // What can be made out of a text that is no TOML would only be refused for the same mistake again.
    let nothing = DeTable::new();
    let entries = if errors.is_empty() { tree.get_ref() } else { &nothing };
    let config = settings(&Table::whole(&findings, entries, &KEYS), &findings, overrides, tools);
    (config, findings.sorted())
}

fn settings(file: &Table<'_>, findings: &Findings<'_>, overrides: Overrides, tools: Arc<Toolbox>) -> Config {
    let server = file.table("server", &SERVER_KEYS);
    let limits = file.table("limits", &limits::KEYS);
    let providers = file.named("providers");
    let told = providers::told(overrides.environment, &providers, findings);
    let names = providers.names().into_iter().chain(told.iter().map(|(name, _)| *name)).collect();
    let definitions = definitions(file, &limits, names);
    let auth = auth(&file.table("auth", &AUTH_KEYS));
    let listen = listen(&server, findings, overrides.listen);
    if auth == AuthMode::None && !listen.ip().is_loopback() {
        findings.push(ConfigError::Exposed(listen));
    }
    let ms = |table: &Table<'_>, key| table.number(key, 0..=u64::MAX).map(Duration::from_millis);
    Config {
        listen,
        data_dir: overrides
            .data_dir
            .or_else(|| server.text("data_dir").map(PathBuf::from))
            .unwrap_or_else(|| PathBuf::from(DATA_DIR)),
        auth,
        hosts: checked(&server, "hosts", is_host, "a host name, with or without a port"),
        origins: checked(&server, "origins", is_origin, "an origin; write it like https://example.com"),
        stop_grace: ms(&server, "stop_grace_ms").unwrap_or(Duration::from_secs(5)),
        commit_spacing: ms(&file.table("store", &STORE_KEYS), "commit_spacing_ms").unwrap_or_default(),
        files: files::read(&file.table("files", &files::KEYS), findings, overrides.environment),
        fetch: fetch::read(&file.table("fetch", &fetch::KEYS)),
        http: limits::http(&limits),
        definitions,
        models: providers::read(&providers, told, overrides.record, findings),
        tools,
    }
}

fn definitions(file: &Table<'_>, limits: &Table<'_>, providers: Vec<&str>) -> Definitions {
    let (agents, tools) = (file.named("agents"), file.named("tools"));
    let names = Names { agents: agents.names(), tools: tools.names(), providers };
    let agents = agents::read(&agents, &names);
    let tools = tools::read(&tools, &agents, &names);
    let mut definitions = Definitions {
        providers: names.providers.iter().map(|&name| name.to_owned()).collect(),
        limits: limits::run(limits),
        prices: limits::prices(&file.named("prices"), &names),
        agents,
        tools,
        digest: String::new(),
    };
    definitions.digest = digest(&definitions);
    definitions
}

/// The same definitions have the same digest, however the file is written: all maps in them are sorted.
fn digest(definitions: &Definitions) -> String {
    // Names are texts and numbers are finite, so this is always JSON.
    let json = serde_json::to_vec(definitions).unwrap_or_default();
    hex(&Sha256::digest(&json))
}

fn listen(server: &Table<'_>, findings: &Findings<'_>, told: Option<String>) -> SocketAddr {
    let parse = |text: &str| {
        let local = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
        local.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))).or_else(|| text.parse().ok())
    };
    let written = server.get("listen").and_then(|item| {
        let address = parse(item.text()?);
        if address.is_none() {
            item.refuse("not an address; write ip:port, like 127.0.0.1:8787");
        }
        address
    });
    let told = told.and_then(|text| {
        let address = parse(&text);
        if address.is_none() {
            findings.push(ConfigError::Listen(text));
        }
        address
    });
    told.or(written).unwrap_or(LISTEN)
}

fn auth(table: &Table<'_>) -> AuthMode {
    const MODES: [(&str, AuthMode); 2] = [("none", AuthMode::None), ("keys", AuthMode::Keys)];
    let Some(item) = table.get("mode") else { return AuthMode::None };
    if item.is("jwt") {
        let known: Vec<&str> = MODES.iter().map(|(word, _)| *word).collect();
        item.refuse(format!("`jwt` is not supported yet; write one of {}", near::list(&known)));
        return AuthMode::None;
    }
    item.one_of(&MODES).unwrap_or(AuthMode::None)
}

fn checked(table: &Table<'_>, key: &str, fits: fn(&str) -> bool, wanted: &str) -> Vec<String> {
    let texts = table.get(key).and_then(|item| item.texts()).unwrap_or_default();
    let check = |(item, text): (Item<'_>, &str)| {
        if !fits(text) {
            item.refuse(format!("{} is not {wanted}", shown(text)));
        }
        text.to_ascii_lowercase()
    };
    texts.into_iter().map(check).collect()
}

pub(super) fn is_host(text: &str) -> bool {
    !text.contains('@') && text.parse::<axum::http::uri::Authority>().is_ok()
}

fn is_origin(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    rest.is_some_and(is_host)
}
