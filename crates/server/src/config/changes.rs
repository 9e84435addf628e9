//! What a changed file changes: for the log line of a reload.

use super::limits::HTTP_KEYS;
use super::source::ConfigSource;
use model::definition::Definitions;
use std::collections::{BTreeMap, BTreeSet};
use toml::Table;

/// Tables that are read when the server starts, and not again.
const RESTART_TABLES: [&str; 8] = ["server", "auth", "store", "database", "files", "fetch", "metrics", "retention"];

/// One phrase for each kind of definition that differs; empty if nothing does.
pub(crate) fn describe_changes(old: &Definitions, new: &Definitions) -> String {
    let mut changes = vec![
        compare_names("agents", &old.agents, &new.agents),
        compare_names("tools", &old.tools, &new.tools),
        compare_names("mcp", &old.mcp, &new.mcp),
        compare_names("prices", &old.prices, &new.prices),
    ];
    if old.limits != new.limits {
        changes.push("limits changed".to_owned());
    }
    if old.providers != new.providers {
        changes.push("providers changed".to_owned());
    }
    changes.retain(|change| !change.is_empty());
    changes.join("; ")
}

fn compare_names<T: PartialEq>(what: &str, old: &BTreeMap<String, T>, new: &BTreeMap<String, T>) -> String {
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let mut marked = Vec::new();
    for name in names {
        match (old.get(name), new.get(name)) {
            (None, _) => marked.push(format!("+{name}")),
            (_, None) => marked.push(format!("-{name}")),
            (old, new) if old != new => marked.push(format!("~{name}")),
            _ => {}
        }
    }
    if marked.is_empty() { String::new() } else { format!("{what} {}", marked.join(" ")) }
}

/// The keys that differ and take effect only when the server is restarted.
pub(crate) fn keys_that_need_restart(old: &ConfigSource, new: &ConfigSource) -> Vec<String> {
    let parse = |source: &ConfigSource| toml::from_str::<Table>(&source.text).unwrap_or_default();
    let (old, new) = (parse(old), parse(new));
    let mut keys = Vec::new();
    for table in RESTART_TABLES.into_iter().chain(["limits"]) {
        let entries = |file: &Table| file.get(table).and_then(|value| value.as_table()).cloned().unwrap_or_default();
        let (old, new) = (entries(&old), entries(&new));
        let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        let is_read_once = |key: &str| match table {
            "limits" => HTTP_KEYS.contains(&key),
            // Who may call which model is part of the definitions.
            "auth" => key != "models",
            _ => true,
        };
        let changed = names.into_iter().filter(|key| is_read_once(key) && old.get(*key) != new.get(*key));
        keys.extend(changed.map(|key| format!("{table}.{key}")));
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::source::ConfigBase;

    fn source(text: &str) -> ConfigSource {
        ConfigSource { origin: "c".to_owned(), text: text.to_owned(), base: ConfigBase::Embedded(&[]) }
    }

    #[test]
    fn what_needs_a_restart_is_named_with_its_table() {
        let old =
            source("[server]\nlisten = \"127.0.0.1:1\"\nhosts = [\"a\"]\n[limits]\nsteps_max = 1\nheartbeat_ms = 1\n");
        let new = source(
            "[server]\nlisten = \"127.0.0.1:2\"\nhosts = [\"a\"]\n[limits]\nsteps_max = 2\n[auth]\nmode = \"keys\"\n",
        );
        assert_eq!(keys_that_need_restart(&old, &new), ["server.listen", "auth.mode", "limits.heartbeat_ms"]);
        assert_eq!(keys_that_need_restart(&old, &old), [""; 0]);
    }
}
