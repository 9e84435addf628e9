//! `[database]`: a PostgreSQL database instead of the folder's own, and where its old runs go.

use super::diagnostics::Diagnostics;
use super::files::{read_env_vars, read_location};
use super::limits::DURATION_SECONDS_MAX;
use super::secrets;
use super::table::ConfigTable;
use super::{ArchiveConfig, ConfigError, DatabaseConfig};
use ::files::StorageLocation;
use std::time::Duration;
use store::{ArchiveOptions, DatabaseUrl, PostgresOptions};

pub(super) const KEYS: [&str; 4] = ["url", "connections_max", "archive", "archive_after_seconds"];
const CONNECTIONS_LIMIT: usize = 1_000;

/// What is not in the table.
pub(super) struct DatabaseContext<'a> {
    pub(super) flag: Option<&'a str>,
    pub(super) environment: Option<fn(&str) -> Option<String>>,
    /// Where the files of users are.
    pub(super) files: &'a StorageLocation,
}

/// The flag precedes the file. `None` keeps the data in the folder.
pub(super) fn read_database(
    table: &ConfigTable<'_>,
    findings: &Diagnostics<'_>,
    context: &DatabaseContext<'_>,
) -> Option<DatabaseConfig> {
    let archive = read_archive(table, findings, context);
    let connections_max = table.number("connections_max", 2..=CONNECTIONS_LIMIT as u64);
    let connections_max =
        connections_max.and_then(|number| usize::try_from(number).ok()).unwrap_or(PostgresOptions::CONNECTIONS_MAX);
    let url = match context.flag {
        Some(text) => match text.parse() {
            Ok(url) => Some(url),
            Err(error) => {
                findings.push(ConfigError::Database(error));
                None
            }
        },
        None => read_url(table),
    };
    url.map(|url| DatabaseConfig { url, connections_max, archive })
}

fn read_archive(
    table: &ConfigTable<'_>,
    findings: &Diagnostics<'_>,
    context: &DatabaseContext<'_>,
) -> Option<ArchiveConfig> {
    let after = table.number("archive_after_seconds", 0..=DURATION_SECONDS_MAX);
    let Some(item) = table.get("archive") else {
        if let Some(item) = table.get("archive_after_seconds") {
            item.report_warning("has no effect without `archive`, which says where runs are archived");
        }
        return None;
    };
    let location = read_location(table, "archive", findings)?;
    // `headwater verify` could not tell the archive's objects from files of users.
    if location.overlaps(context.files) {
        item.report_error("the files of users are there, too; name another folder or prefix");
    }
    let env_vars = read_env_vars(&location, context.environment);
    Some(ArchiveConfig { location, env_vars, after: after.map_or(ArchiveOptions::AFTER, Duration::from_secs) })
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
