//! `[providers.NAME]`: whom runs ask.

use super::agents::named;
use super::near;
use super::source::{Beside, read_bounded};
use super::table::{Item, Table, shown};
use engine::SystemClock;
use providers::Router;
use providers::scripted::{FILE_BYTES_MAX, ScenarioError, Scenarios, Scripted};
use std::sync::Arc;

const KEYS: [&str; 2] = ["kind", "file"];
const KINDS: [&str; 1] = ["scripted"];
/// Kinds that are to come: a config that names one is right, only early.
const KINDS_TO_COME: [&str; 7] =
    ["openai-responses", "anthropic", "openai-chat", "ag-ui", "responses", "ui-stream", "task"];

pub(super) fn read(tables: &Table<'_>) -> Router {
    let mut router = Router::new();
    for (name, item) in tables.items() {
        named(name, &item);
        if let Some(scripted) = provider(&item) {
            router = router.with(name, Arc::new(scripted));
        }
    }
    router
}

fn provider(item: &Item<'_>) -> Option<Scripted> {
    let table = item.table(&KEYS)?;
    let Some(kind) = table.get("kind") else {
        table.refuse(format!("`kind` is missing; there is {}", near::list(&KINDS)));
        return None;
    };
    let word = kind.text()?;
    if !KINDS.contains(&word) {
        let what = if KINDS_TO_COME.contains(&word) { "is not supported yet" } else { "does not exist" };
        kind.refuse(format!("the kind {} {what}; there is {}", shown(word), near::list(&KINDS)));
        return None;
    }
    let (text, origin) = scenario_text(&table)?;
    match Scenarios::parse(&text, &origin) {
        Ok(scenarios) => Some(Scripted::new(scenarios, Arc::new(|| SystemClock.now_us()))),
        Err(error) => {
            item.findings().push(error.into());
            None
        }
    }
}

fn scenario_text(table: &Table<'_>) -> Option<(String, String)> {
    let Some(file) = table.get("file") else {
        table.refuse("`file` is missing; a scripted provider plays a scenario file");
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
            match read_bounded(&path, FILE_BYTES_MAX) {
                Ok(text) => Some((text, origin)),
                Err(source) => {
                    file.findings().push(ScenarioError::Read { origin, source }.into());
                    None
                }
            }
        }
    }
}
