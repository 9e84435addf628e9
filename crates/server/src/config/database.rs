//! `[database]`: a PostgreSQL database instead of the folder's own.

use super::diagnostics::Diagnostics;
use super::secrets;
use super::table::ConfigTable;
use super::{ConfigError, DatabaseConfig};
use store::{DatabaseUrl, PostgresOptions};

pub(super) const KEYS: [&str; 2] = ["url", "connections_max"];
const CONNECTIONS_LIMIT: usize = 1_000;

/// The flag precedes the file. `None` keeps the data in the folder.
pub(super) fn read_database(
    table: &ConfigTable<'_>,
    findings: &Diagnostics<'_>,
    flag: Option<&str>,
) -> Option<DatabaseConfig> {
    let connections_max = table.number("connections_max", 2..=CONNECTIONS_LIMIT as u64);
    let connections_max =
        connections_max.and_then(|number| usize::try_from(number).ok()).unwrap_or(PostgresOptions::CONNECTIONS_MAX);
    let url = match flag {
        Some(text) => match text.parse() {
            Ok(url) => Some(url),
            Err(error) => {
                findings.push(ConfigError::Database(error));
                None
            }
        },
        None => read_url(table),
    };
    url.map(|url| DatabaseConfig { url, connections_max })
}

fn read_url(table: &ConfigTable<'_>) -> Option<DatabaseUrl> {
    let item = table.get("url")?;
    let text = item.text()?;
    if !secrets::is_secret_ref(text) {
        item.report_error("a URL with a password does not belong into this file; write `env:NAME` or `file:PATH`");
        return None;
    }
    // What cannot be resolved has been reported.
    let resolved = secrets::resolve_secrets_blocking(&secrets::check_secrets(&item, text)).ok()?;
    match resolved.text.parse() {
        Ok(url) => Some(url),
        Err(error) => {
            item.report_error(format!("{error}"));
            None
        }
    }
}
