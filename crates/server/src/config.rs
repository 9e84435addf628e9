//! The configuration: a TOML file, and flags that take precedence over it.
//!
//! - [`source`] is the file as text, [`table`] as tables and values that know their line and their key.
//! - [`build`] assembles the settings; each larger table has a module of its own.
//! - [`diagnostics`] collects errors; [`suggest`] finds the name that was probably meant; [`secrets`] resolves references
//!   to secrets.
//!
//! A diagnostic is one line: file, line, key, what is wrong, and what to write instead. `serve` prints the first,
//! `check-config` all. [`ConfigSource::find`] says which file that is. `docs/configuration.md` and
//! `headwater.schema.json` (for editors) list every key.

mod agent_calls;
mod agents;
mod build;
mod call_rules;
mod changes;
mod database;
mod diagnostics;
mod error;
mod fetch;
mod files;
mod headers;
mod http_tool;
mod input_hook;
mod limits;
mod mcp;
mod mcp_auth;
mod names;
mod program;
mod providers;
mod retention;
mod secrets;
mod source;
mod suggest;
mod table;
#[cfg(test)]
mod tests;
mod tools;
mod urls;

pub(crate) use changes::{describe_changes, keys_that_need_restart};
pub(crate) use diagnostics::{Diagnostic, Severity};
pub(crate) use error::ConfigError;
pub(crate) use fetch::FetchConfig;
pub(crate) use secrets::{read_env, resolve_secret};
pub(crate) use source::{ConfigSource, DEFAULT_FILE};

use ::files::StorageLocation;
use ::providers::ProviderRouter;
use ::tools::Toolbox;
use engine::SystemClock;
use gateway::attachments::AttachmentSettings;
use gateway::body_budget::{BodyBudget, BodyLimits};
use gateway::descriptors::connections_that_fit;
use gateway::limits::InputLimits;
use gateway::retention::RetentionPolicy;
use model::definition::Definitions;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use store::DatabaseUrl;

const DEFAULT_LISTEN: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8787));
const DEFAULT_DATA_DIR: &str = "headwater-data";
const STREAMS_PER_USER_MAX: usize = 10_000;
/// The least memory for all bodies, unless the file says otherwise.
const BODY_MEMORY_MIN: usize = 256 * 1024 * 1024;

/// Settings of the command line and the environment, which take precedence over the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides {
    pub(crate) listen: Option<String>,
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) database_url: Option<String>,
    /// Where cassettes are recorded.
    pub(crate) record_dir: Option<PathBuf>,
    /// Enables providers that the file does not name.
    pub(crate) env: Option<fn(&str) -> Option<String>>,
}

pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    pub(crate) data_dir: PathBuf,
    /// `None` keeps the data in the folder.
    pub(crate) database: Option<DatabaseConfig>,
    pub(crate) auth: AuthMode,
    /// Host names of the server, in addition to its address.
    pub(crate) hosts: Vec<String>,
    /// Origins whose pages may use the server.
    pub(crate) origins: Vec<String>,
    /// How long runs may continue after the shutdown signal.
    pub(crate) shutdown_grace: Duration,
    /// Minimum time between two commits.
    pub(crate) commit_spacing: Duration,
    /// What is kept for deletions on a full disk.
    pub(crate) disk_reserve_bytes: u64,
    pub(crate) files: AttachmentSettings,
    /// The origin under which clients reach the server.
    pub(crate) public_url: Option<String>,
    /// Limits on fetching files that users name by URL.
    pub(crate) fetch: FetchConfig,
    pub(crate) http_limits: HttpLimits,
    /// What is deleted when it is old.
    pub(crate) retention: RetentionPolicy,
    /// The digest of the token with which another machine may read `/metrics`.
    pub(crate) metrics_token_digest: Option<String>,
    pub(crate) definitions: Definitions,
    pub(crate) models: ProviderRouter,
    pub(crate) tools: Arc<Toolbox>,
}

#[derive(Clone, Debug)]
pub(crate) struct DatabaseConfig {
    pub(crate) url: DatabaseUrl,
    pub(crate) connections_max: usize,
    /// `None` keeps all runs in the database.
    pub(crate) archive: Option<ArchiveConfig>,
}

/// Where runs are archived that ended long ago.
#[derive(Clone, Debug)]
pub(crate) struct ArchiveConfig {
    pub(crate) location: StorageLocation,
    /// Variables of the location's provider that are set.
    pub(crate) env_vars: Vec<(String, String)>,
    /// How long after its end a run is archived.
    pub(crate) after: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthMode {
    /// Every caller is the user `local`; the server listens on the loopback interface only.
    None,
    Keys,
}

#[derive(Clone)]
pub(crate) struct HttpLimits {
    pub(crate) body_bytes_max: usize,
    pub(crate) body_read_timeout: Duration,
    pub(crate) header_read_timeout: Duration,
    /// A client that reads nothing for this long is disconnected.
    pub(crate) write_timeout: Duration,
    pub(crate) heartbeat_interval: Duration,
    /// A Responses socket that is older ends after its response.
    pub(crate) socket_lifetime: Duration,
    pub(crate) streams_per_user_max: usize,
    /// Requests of one user that are received or handled at a time.
    pub(crate) requests_per_user_max: usize,
    /// 0 is no limit.
    pub(crate) requests_per_user_minute_max: u32,
    /// For one more, an idle connection makes room.
    /// The size of a user's log beyond which no run starts.
    pub(crate) log_bytes_per_user_max: Option<u64>,
    pub(crate) connections_max: usize,
    pub(crate) input: InputLimits,
    /// The memory of request bodies and socket messages.
    pub(crate) bodies: Arc<BodyBudget>,
    /// What the file says about connections.
    settings: ConnectionSettings,
}

#[derive(Clone, Copy, Default)]
struct ConnectionSettings {
    connections_max: Option<usize>,
    streams_per_user_max: Option<usize>,
    /// Whether there are several users.
    has_users: bool,
}

impl HttpLimits {
    /// Derives the limits of connections from the number of descriptors. Streams leave some to other requests, and those of
    /// one user leave some to others.
    pub(crate) fn fit_connections(&mut self, descriptors: usize) {
        self.connections_max = connections_that_fit(self.settings.connections_max, descriptors).max(1);
        let part = |parts: usize| (self.connections_max.saturating_mul(parts) / 8).max(1);
        let streams = self.settings.streams_per_user_max;
        let stream_part = part(if self.settings.has_users { 5 } else { 7 });
        self.streams_per_user_max = streams.unwrap_or(stream_part.min(STREAMS_PER_USER_MAX));
        self.requests_per_user_max = if self.settings.has_users { part(2) } else { usize::MAX };
    }
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            body_bytes_max: 32 * 1024 * 1024,
            body_read_timeout: Duration::from_secs(30),
            header_read_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(30),
            heartbeat_interval: Duration::from_secs(15),
            socket_lifetime: Duration::from_hours(1),
            streams_per_user_max: STREAMS_PER_USER_MAX,
            requests_per_user_max: usize::MAX,
            requests_per_user_minute_max: 0,
            log_bytes_per_user_max: None,
            connections_max: 1,
            input: InputLimits { parts_max: 64, web_files_max: 10, tools_max: 64, runs_per_user_max: usize::MAX },
            bodies: BodyBudget::new(BodyLimits {
                bytes_max: BODY_MEMORY_MIN,
                user_bytes_max: BODY_MEMORY_MIN,
                large_max: 16,
                user_large_max: 16,
            }),
            settings: ConnectionSettings::default(),
        }
    }
}

/// Returns the first error.
pub(crate) fn load_config(source: &ConfigSource, overrides: Overrides) -> Result<Config, ConfigError> {
    let (config, findings) = check_config(source, overrides)?;
    match first_error(findings) {
        None => Ok(config),
        Some(error) => Err(error),
    }
}

/// Returns all diagnostics. If one of them is an error, the settings are incomplete.
pub(crate) fn check_config(
    source: &ConfigSource,
    overrides: Overrides,
) -> Result<(Config, Vec<Diagnostic>), ConfigError> {
    let tools = Arc::new(Toolbox::new(Arc::new(read_env), Arc::new(SystemClock))?);
    Ok(build::build_config(source, overrides, tools))
}

/// Where the data is: the settings for commands that work on a data folder. They ignore errors in other settings, such as
/// a secret that only the server's environment has.
pub(crate) struct StorageConfig {
    pub(crate) data_dir: PathBuf,
    pub(crate) database: Option<DatabaseConfig>,
    pub(crate) auth: AuthMode,
    pub(crate) files: AttachmentSettings,
}

pub(crate) fn load_storage_config(
    source: &ConfigSource,
    data_dir: Option<PathBuf>,
    database_url: Option<String>,
) -> Result<StorageConfig, ConfigError> {
    let overrides = Overrides { data_dir, database_url, env: Some(read_env), ..Overrides::default() };
    let (config, findings) = build::build_storage_config(source, &overrides);
    match first_error(findings) {
        None => Ok(config),
        Some(error) => Err(error),
    }
}

fn first_error(findings: Vec<Diagnostic>) -> Option<ConfigError> {
    findings.into_iter().find(|finding| finding.severity == Severity::Error).map(|finding| finding.error)
}
