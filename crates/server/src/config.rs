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
mod error;
mod fetch;
mod files;
mod findings;
mod http_tool;
mod limits;
mod near;
mod providers;
mod secret;
mod source;
mod table;
#[cfg(test)]
mod tests;
mod tools;

pub(crate) use error::ConfigError;
pub(crate) use fetch::FetchConfig;
pub(crate) use files::FilesConfig;
pub(crate) use findings::{Finding, Weight};
pub(crate) use secret::environment;

use crate::body::LargeBodies;
use ::providers::ProviderRouter;
use ::tools::Toolbox;
use engine::SystemClock;
use model::definition::Definitions;
use source::Source;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Where the server listens unless it is told otherwise.
const LISTEN: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8787));
/// Where everything is kept unless it is told otherwise.
pub(crate) const DATA_DIR: &str = "headwater-data";

/// What the command line and the environment say. They win over the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides {
    /// Where to listen.
    pub(crate) listen: Option<String>,
    /// The data folder.
    pub(crate) data_dir: Option<PathBuf>,
    /// Where exchanges with providers are kept.
    pub(crate) record: Option<PathBuf>,
    /// Where providers may be switched on that the file does not name.
    pub(crate) environment: Option<fn(&str) -> Option<String>>,
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
    pub(crate) stop_grace: Duration,
    /// Least time between two commits.
    pub(crate) commit_spacing: Duration,
    /// Where the files of users are.
    pub(crate) files: FilesConfig,
    /// How files are read that people point at.
    pub(crate) fetch: FetchConfig,
    /// The bounds of requests and connections.
    pub(crate) http: HttpLimits,
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
    pub(crate) body_read: Duration,
    /// How long a request's head may take to come.
    pub(crate) header_read: Duration,
    /// A reader that takes nothing for so long is closed.
    pub(crate) write_stall: Duration,
    /// A silent stream says so often that it is there.
    pub(crate) heartbeat: Duration,
    /// Streams that one user may have open.
    pub(crate) streams_per_user_max: usize,
    /// Connections that the server has open; more wait in the system's queue.
    pub(crate) connections_max: usize,
    /// Parts of one input.
    pub(crate) input_parts_max: usize,
    /// Files by web address in one input.
    pub(crate) input_files_max: usize,
    /// Tools that one request may declare.
    pub(crate) tools_max: usize,
    /// Room for bodies that are large.
    pub(crate) large_bodies: LargeBodies,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            body_bytes_max: 32 * 1024 * 1024,
            body_read: Duration::from_secs(30),
            header_read: Duration::from_secs(10),
            write_stall: Duration::from_secs(30),
            heartbeat: Duration::from_secs(15),
            streams_per_user_max: 10_000,
            connections_max: 16_384,
            input_parts_max: 64,
            input_files_max: 10,
            tools_max: 64,
            large_bodies: LargeBodies::new(16),
        }
    }
}

/// Reads the file, or the embedded demo where none is named.
pub(crate) fn load(path: Option<&Path>, overrides: Overrides) -> Result<Config, ConfigError> {
    let (config, findings) = check(path, overrides)?;
    match findings.into_iter().find(|finding| finding.weight == Weight::Error) {
        None => Ok(config),
        Some(finding) => Err(finding.error),
    }
}

/// The same, with all that is wrong. The settings are good for nothing if an error is among that.
pub(crate) fn check(path: Option<&Path>, overrides: Overrides) -> Result<(Config, Vec<Finding>), ConfigError> {
    let source = path.map_or_else(|| Ok(Source::demo()), Source::read)?;
    let tools = Arc::new(Toolbox::new(Arc::new(environment), Arc::new(SystemClock))?);
    Ok(build::config(&source, overrides, tools))
}
