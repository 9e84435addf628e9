//! Everything that an operator can say: one TOML file, and flags that win over it.
//!
//! - [`source`] is the file as text, [`table`] as tables and values that know their line and their key.
//! - [`build`] puts the settings together; one module for each table that has much to say.
//! - [`findings`] keeps all that is wrong; [`near`] knows what was probably meant; [`secret`] looks, and tells nothing.
//!
//! A finding is one line: file, line, key, what is wrong, and what to do. `serve` says the first, `check-config` all.
//! Without a file it is the embedded demo, which is a file like any other. `docs/configuration.md` lists every key, and
//! so does `headwater.schema.json`, for editors.

mod agents;
mod build;
mod diagnostics;
mod error;
mod fetch;
mod files;
mod http_tool;
mod limits;
mod providers;
mod secrets;
mod source;
mod suggest;
mod table;
#[cfg(test)]
mod tests;
mod tools;

pub(crate) use diagnostics::{Diagnostic, Severity};
pub(crate) use error::ConfigError;
pub(crate) use fetch::FetchConfig;
pub(crate) use secrets::read_env;

use crate::json_body::LargeBodySemaphore;
use ::providers::ProviderRouter;
use ::tools::Toolbox;
use engine::SystemClock;
use gateway::attachments::AttachmentSettings;
use gateway::limits::InputLimits;
use model::definition::Definitions;
use source::ConfigSource;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Where the server listens unless it is told otherwise.
const DEFAULT_LISTEN: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8787));
/// Where everything is kept unless it is told otherwise.
pub(crate) const DEFAULT_DATA_DIR: &str = "headwater-data";

/// What the command line and the environment say. They win over the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides {
    /// Where to listen.
    pub(crate) listen: Option<String>,
    /// The data folder.
    pub(crate) data_dir: Option<PathBuf>,
    /// Where exchanges with providers are kept.
    pub(crate) record_dir: Option<PathBuf>,
    /// Where providers may be switched on that the file does not name.
    pub(crate) env: Option<fn(&str) -> Option<String>>,
}

/// All settings of a server.
pub(crate) struct Config {
    /// Where to listen.
    pub(crate) listen: SocketAddr,
    /// The data folder.
    pub(crate) data_dir: PathBuf,
    /// Who is let in.
    pub(crate) auth: AuthMode,
    /// Names under which the server is reached, beside its address.
    pub(crate) hosts: Vec<String>,
    /// Pages of other origins that may use the server.
    pub(crate) origins: Vec<String>,
    /// How long runs have to end when the server is asked to stop.
    pub(crate) shutdown_grace: Duration,
    /// Least time between two commits.
    pub(crate) commit_spacing: Duration,
    /// Where the files of users are.
    pub(crate) files: AttachmentSettings,
    /// The origin under which clients reach the server.
    pub(crate) public_url: Option<String>,
    /// How files are read that people point at.
    pub(crate) fetch: FetchConfig,
    /// The bounds of requests and connections.
    pub(crate) http_limits: HttpLimits,
    /// Agents and tools.
    pub(crate) definitions: Definitions,
    /// Whom runs ask.
    pub(crate) models: ProviderRouter,
    /// What runs have done.
    pub(crate) tools: Arc<Toolbox>,
}

/// Who is let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthMode {
    /// Everybody on this machine, as the user `local`.
    None,
    /// Whoever holds a key.
    Keys,
}

/// The bounds of requests and connections.
#[derive(Clone, Debug)]
pub(crate) struct HttpLimits {
    /// The longest body.
    pub(crate) body_bytes_max: usize,
    /// How long a body may take to come.
    pub(crate) body_read_timeout: Duration,
    /// How long a request's head may take to come.
    pub(crate) header_read_timeout: Duration,
    /// A reader that takes nothing for so long is closed.
    pub(crate) write_timeout: Duration,
    /// A silent stream says so often that it is there.
    pub(crate) heartbeat_interval: Duration,
    /// Streams that one user may have open.
    pub(crate) streams_per_user_max: usize,
    /// Connections that the server has open; more wait in the system's queue.
    pub(crate) connections_max: usize,
    pub(crate) input: InputLimits,
    /// Room for bodies that are large.
    pub(crate) large_bodies: LargeBodySemaphore,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            body_bytes_max: 32 * 1024 * 1024,
            body_read_timeout: Duration::from_secs(30),
            header_read_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(30),
            heartbeat_interval: Duration::from_secs(15),
            streams_per_user_max: 10_000,
            connections_max: 16_384,
            input: InputLimits { parts_max: 64, web_files_max: 10, tools_max: 64 },
            large_bodies: LargeBodySemaphore::new(16),
        }
    }
}

/// Reads the file, or the embedded demo where none is named.
pub(crate) fn load_config(path: Option<&Path>, overrides: Overrides) -> Result<Config, ConfigError> {
    let (config, findings) = check_config(path, overrides)?;
    match findings.into_iter().find(|finding| finding.severity == Severity::Error) {
        None => Ok(config),
        Some(finding) => Err(finding.error),
    }
}

/// The same, with all that is wrong. The settings are good for nothing if an error is among that.
pub(crate) fn check_config(
    path: Option<&Path>,
    overrides: Overrides,
) -> Result<(Config, Vec<Diagnostic>), ConfigError> {
    let source = path.map_or_else(|| Ok(ConfigSource::demo()), ConfigSource::read)?;
    let tools = Arc::new(Toolbox::new(Arc::new(read_env), Arc::new(SystemClock))?);
    Ok(build::build_config(&source, overrides, tools))
}
