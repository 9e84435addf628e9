//! `[providers.NAME]`. [`http_service`] has those behind a URL, also those that the environment enables.

mod http_service;

use super::diagnostics::Diagnostics;
use super::names::check_name;
use super::source::{ConfigBase, read_bounded};
use super::suggest;
use super::table::{ConfigTable, ConfigValue, quote_text};
use engine::SystemClock;
use http_service::HttpClients;
use model::ports::ModelClient;
use providers::ProviderRouter;
use providers::cassette::{CassetteProvider, PlaybackSpeed};
use providers::http::{HttpProviderSettings, ProviderClient, UpstreamDialect as Dialect};
use providers::scripted::{SCENARIO_FILE_BYTES_MAX, ScenarioError, Scenarios, ScriptedProvider};
use std::path::PathBuf;
use std::sync::Arc;

/// Keys of a scripted provider, in addition to `kind`.
const SCRIPTED_KEYS: [&str; 3] = ["file", "cassettes", "speed"];
const SPEEDS: [(&str, PlaybackSpeed); 2] = [("original", PlaybackSpeed::Original), ("fast", PlaybackSpeed::Fast)];

#[derive(Clone, Copy)]
enum ProviderKind {
    Scripted,
    Service(Dialect),
}

const KINDS: [(&str, ProviderKind); 4] = [
    ("scripted", ProviderKind::Scripted),
    (Dialect::Responses.config_name(), ProviderKind::Service(Dialect::Responses)),
    (Dialect::Messages.config_name(), ProviderKind::Service(Dialect::Messages)),
    (Dialect::Chat.config_name(), ProviderKind::Service(Dialect::Chat)),
];
/// Kinds that are planned and get an error message of their own.
const PLANNED_KINDS: [&str; 4] = ["ag-ui", "responses", "ui-stream", "task"];

/// Providers that the environment enables, by name.
pub(super) type EnvProviders = Vec<(&'static str, HttpProviderSettings)>;

/// The variable that enables a provider without a table of its own.
pub(super) fn env_key_of_provider(provider: &str) -> Option<&'static str> {
    http_service::env_key_of_provider(provider)
}

/// Skips providers that the file defines.
pub(super) fn providers_from_env(
    environment: Option<fn(&str) -> Option<String>>,
    tables: &ConfigTable<'_>,
    findings: &Diagnostics<'_>,
) -> EnvProviders {
    environment
        .map(|environment| http_service::services_from_env(environment, &tables.names(), findings))
        .unwrap_or_default()
}

pub(super) fn read_providers(
    tables: &ConfigTable<'_>,
    env_providers: EnvProviders,
    record: Option<PathBuf>,
    findings: &Diagnostics<'_>,
) -> ProviderRouter {
    let mut router = ProviderRouter::new();
    let mut clients = HttpClients { record_dir: record, ..HttpClients::default() };
    for (name, item) in tables.items() {
        check_name(name, &item);
        if let Some(provider) = read_provider(name, &item, &mut clients) {
            router = router.with_provider(name, provider);
        }
    }
    for (name, settings) in env_providers {
        match clients.build_upstream(settings, ProviderClient::CONNECT_TIMEOUT) {
            Ok(service) => router = router.with_provider(name, Arc::new(service)),
            Err(error) => findings.push(error.into()),
        }
    }
    router
}

fn read_provider(name: &str, item: &ConfigValue<'_>, clients: &mut HttpClients) -> Option<Arc<dyn ModelClient>> {
    let keys: Vec<&str> = ["kind"].into_iter().chain(SCRIPTED_KEYS).chain(http_service::KEYS).collect();
    let table = item.table(&keys)?;
    match read_kind(&table)? {
        ProviderKind::Scripted => {
            reject_keys(&table, &http_service::KEYS, "does not apply to a scripted provider; only to HTTP services");
            match table.get("cassettes") {
                Some(folder) => Some(Arc::new(read_cassettes(&folder, &table)?)),
                None => {
                    reject_keys(&table, &["speed"], "applies to `cassettes` only");
                    Some(Arc::new(read_scripted(item, &table)?))
                }
            }
        }
        ProviderKind::Service(dialect) => {
            reject_keys(&table, &SCRIPTED_KEYS, "does not apply to this kind of provider; only to `scripted`");
            let (settings, connect) = http_service::read_service(name, dialect, &table)?;
            match clients.build_upstream(settings, connect) {
                Ok(service) => Some(Arc::new(service)),
                Err(error) => {
                    item.findings().push(error.into());
                    None
                }
            }
        }
    }
}

fn reject_keys(table: &ConfigTable<'_>, keys: &[&str], why: &str) {
    for item in keys.iter().filter_map(|key| table.get(key)) {
        item.report_error(why);
    }
}

fn read_kind(table: &ConfigTable<'_>) -> Option<ProviderKind> {
    let words: Vec<&str> = KINDS.iter().map(|(word, _)| *word).collect();
    let Some(item) = table.get("kind") else {
        table.report_error(format!("`kind` is missing; expected one of {}", suggest::list_names(&words)));
        return None;
    };
    let word = item.text()?;
    let found = KINDS.iter().find(|(known, _)| *known == word).map(|(_, kind)| *kind);
    if found.is_none() {
        let what = if PLANNED_KINDS.contains(&word) { "is not supported yet" } else { "does not exist" };
        item.report_error(format!(
            "the kind {} {what}; expected one of {}",
            quote_text(word),
            suggest::list_names(&words)
        ));
    }
    found
}

fn read_scripted(item: &ConfigValue<'_>, table: &ConfigTable<'_>) -> Option<ScriptedProvider> {
    let (text, origin) = read_scenario_text(table)?;
    match Scenarios::parse(&text, &origin) {
        Ok(scenarios) => Some(ScriptedProvider::new(scenarios, Arc::new(|| SystemClock.now_us()))),
        Err(error) => {
            item.findings().push(error.into());
            None
        }
    }
}

/// Recorded responses instead of a scenario file.
fn read_cassettes(item: &ConfigValue<'_>, table: &ConfigTable<'_>) -> Option<CassetteProvider> {
    reject_keys(table, &["file"], "cannot be combined with `cassettes`");
    let speed = match table.get("speed") {
        None => PlaybackSpeed::default(),
        Some(item) => {
            let word = item.text()?;
            let known = SPEEDS.iter().find(|(known, _)| *known == word);
            if known.is_none() {
                let words: Vec<&str> = SPEEDS.iter().map(|(word, _)| *word).collect();
                item.report_error(format!(
                    "unknown value {}; expected one of {}",
                    quote_text(word),
                    suggest::list_names(&words)
                ));
            }
            known?.1
        }
    };
    let wanted = item.text()?;
    let ConfigBase::Folder(folder) = &item.source().base else {
        item.report_error("no such folder");
        return None;
    };
    match CassetteProvider::open(&folder.join(wanted), speed) {
        Ok(cassettes) => Some(cassettes),
        Err(error) => {
            item.report_error(error.to_string());
            None
        }
    }
}

fn read_scenario_text(table: &ConfigTable<'_>) -> Option<(String, String)> {
    let Some(file) = table.get("file") else {
        table.report_error("`file` is missing; a scripted provider plays a scenario file, or `cassettes`");
        return None;
    };
    let wanted = file.text()?;
    match &file.source().base {
        ConfigBase::Embedded(files) => {
            let found = files.iter().find(|(name, _)| *name == wanted);
            if found.is_none() {
                file.report_error("no such file");
            }
            found.map(|(name, text)| ((*text).to_owned(), (*name).to_owned()))
        }
        ConfigBase::Folder(folder) => {
            let path = folder.join(wanted);
            let origin = path.display().to_string();
            match read_bounded(&path, SCENARIO_FILE_BYTES_MAX) {
                Ok(text) => Some((text, origin)),
                Err(source) => {
                    file.findings().push(ScenarioError::Read { origin, source }.into());
                    None
                }
            }
        }
    }
}
