//! `[providers.NAME]`: whom runs ask. `service` are those behind an address; what the environment says of them is read
//! there, too.

mod service;

use super::agents::named;
use super::findings::Findings;
use super::near;
use super::source::{Beside, read_bounded};
use super::table::{Item, Table, shown};
use engine::SystemClock;
use model::ports::ModelClient;
use providers::ProviderRouter;
use providers::cassette::{CassetteProvider, PlaybackSpeed};
use providers::http::{HttpProviderSettings, ProviderClient, UpstreamDialect as Dialect};
use providers::scripted::{SCENARIO_FILE_BYTES_MAX, ScenarioError, Scenarios, ScriptedProvider};
use service::Clients;
use std::path::PathBuf;
use std::sync::Arc;

/// What has a place in the table of a scripted provider, beside `kind`.
const SCRIPTED_KEYS: [&str; 3] = ["file", "cassettes", "speed"];
const SPEEDS: [(&str, PlaybackSpeed); 2] = [("original", PlaybackSpeed::Original), ("fast", PlaybackSpeed::Fast)];

#[derive(Clone, Copy)]
enum Kind {
    Scripted,
    Service(Dialect),
}

const KINDS: [(&str, Kind); 4] = [
    ("scripted", Kind::Scripted),
    (Dialect::Responses.config_name(), Kind::Service(Dialect::Responses)),
    (Dialect::Messages.config_name(), Kind::Service(Dialect::Messages)),
    (Dialect::Chat.config_name(), Kind::Service(Dialect::Chat)),
];
/// Kinds that are to come: a config that names one is right, only early.
const KINDS_TO_COME: [&str; 4] = ["ag-ui", "responses", "ui-stream", "task"];

/// Providers that the environment switches on, by name.
pub(super) type Told = Vec<(&'static str, HttpProviderSettings)>;

/// What the environment says of providers that the file does not name.
pub(super) fn told(
    environment: Option<fn(&str) -> Option<String>>,
    tables: &Table<'_>,
    findings: &Findings<'_>,
) -> Told {
    environment.map(|environment| service::told(environment, &tables.names(), findings)).unwrap_or_default()
}

pub(super) fn read(tables: &Table<'_>, told: Told, record: Option<PathBuf>, findings: &Findings<'_>) -> ProviderRouter {
    let mut router = ProviderRouter::new();
    let mut clients = Clients { record, ..Clients::default() };
    for (name, item) in tables.items() {
        named(name, &item);
        if let Some(provider) = provider(name, &item, &mut clients) {
            router = router.with_provider(name, provider);
        }
    }
    for (name, settings) in told {
        match clients.service(settings, ProviderClient::CONNECT_TIMEOUT) {
            Ok(service) => router = router.with_provider(name, Arc::new(service)),
            Err(error) => findings.push(error.into()),
        }
    }
    router
}

fn provider(name: &str, item: &Item<'_>, clients: &mut Clients) -> Option<Arc<dyn ModelClient>> {
    let keys: Vec<&str> = ["kind"].into_iter().chain(SCRIPTED_KEYS).chain(service::KEYS).collect();
    let table = item.table(&keys)?;
    match kind(&table)? {
        Kind::Scripted => {
            refuse(&table, &service::KEYS, "has no place in a scripted provider; it is for those behind an address");
            match table.get("cassettes") {
                Some(folder) => Some(Arc::new(cassettes(&folder, &table)?)),
                None => {
                    refuse(&table, &["speed"], "is how fast `cassettes` are played, and there are none");
                    Some(Arc::new(scripted(item, &table)?))
                }
            }
        }
        Kind::Service(dialect) => {
            refuse(&table, &SCRIPTED_KEYS, "has no place in a provider of this kind; it is for `scripted`");
            let (settings, connect) = service::read(name, dialect, &table)?;
            match clients.service(settings, connect) {
                Ok(service) => Some(Arc::new(service)),
                Err(error) => {
                    item.findings().push(error.into());
                    None
                }
            }
        }
    }
}

fn refuse(table: &Table<'_>, keys: &[&str], why: &str) {
    for item in keys.iter().filter_map(|key| table.get(key)) {
        item.refuse(why);
    }
}

fn kind(table: &Table<'_>) -> Option<Kind> {
    let words: Vec<&str> = KINDS.iter().map(|(word, _)| *word).collect();
    let Some(item) = table.get("kind") else {
        table.refuse(format!("`kind` is missing; there is {}", near::list(&words)));
        return None;
    };
    let word = item.text()?;
    let found = KINDS.iter().find(|(known, _)| *known == word).map(|(_, kind)| *kind);
    if found.is_none() {
        let what = if KINDS_TO_COME.contains(&word) { "is not supported yet" } else { "does not exist" };
        item.refuse(format!("the kind {} {what}; there is {}", shown(word), near::list(&words)));
    }
    found
}

fn scripted(item: &Item<'_>, table: &Table<'_>) -> Option<ScriptedProvider> {
    let (text, origin) = scenario_text(table)?;
    match Scenarios::parse(&text, &origin) {
        Ok(scenarios) => Some(ScriptedProvider::new(scenarios, Arc::new(|| SystemClock.now_us()))),
        Err(error) => {
            item.findings().push(error.into());
            None
        }
    }
}

/// What was recorded is played in place of a scenario file.
fn cassettes(item: &Item<'_>, table: &Table<'_>) -> Option<CassetteProvider> {
    refuse(table, &["file"], "has no place beside `cassettes`; a provider plays one or the other");
    let speed = match table.get("speed") {
        None => PlaybackSpeed::default(),
        Some(item) => {
            let word = item.text()?;
            let known = SPEEDS.iter().find(|(known, _)| *known == word);
            if known.is_none() {
                let words: Vec<&str> = SPEEDS.iter().map(|(word, _)| *word).collect();
                item.refuse(format!("the speed {} does not exist; there is {}", shown(word), near::list(&words)));
            }
            known?.1
        }
    };
    let wanted = item.text()?;
    let Beside::Folder(folder) = &item.source().beside else {
        item.refuse("there is no such folder");
        return None;
    };
    match CassetteProvider::open(&folder.join(wanted), speed) {
        Ok(cassettes) => Some(cassettes),
        Err(error) => {
            item.refuse(error.to_string());
            None
        }
    }
}

fn scenario_text(table: &Table<'_>) -> Option<(String, String)> {
    let Some(file) = table.get("file") else {
        table.refuse("`file` is missing; a scripted provider plays a scenario file, or `cassettes`");
        return None;
    };
    let wanted = file.text()?;
    match &file.source().beside {
        Beside::Embedded(files) => {
            let found = files.iter().find(|(name, _)| *name == wanted);
            if found.is_none() {
                file.refuse("there is no such file");
            }
            found.map(|(name, text)| ((*text).to_owned(), (*name).to_owned()))
        }
        Beside::Folder(folder) => {
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
