//! Everything that an operator can say: one TOML file, and flags that win over it.
//!
//! - [`file`]: the file as it is written; serde refuses what it does not know.
//! - [`build`]: the file as definitions, providers and tools; names that lead nowhere are refused here.
//!
//! A refusal is one line: file, line, key, what is wrong, and what would be right. Without a file it is the embedded
//! demo, which is a file like any other. `docs/configuration.md` lists every key.

mod build;
mod error;
mod file;
#[cfg(test)]
mod tests;

pub(crate) use error::ConfigError;

use model::definition::Definitions;
use model::ports::Tools;
use providers::Router;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Where the server listens unless it is told otherwise.
pub(crate) const LISTEN: &str = "127.0.0.1:8787";
/// Where everything is kept unless it is told otherwise.
pub(crate) const DATA_DIR: &str = "headwater-data";

/// What the command line and the environment say. They win over the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides {
    /// Where to listen.
    pub(crate) listen: Option<String>,
    /// The data folder.
    pub(crate) data_dir: Option<PathBuf>,
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
    /// The bounds of requests and connections.
    pub(crate) http: HttpLimits,
    /// Agents and tools.
    pub(crate) definitions: Definitions,
    /// Whom runs ask.
    pub(crate) models: Router,
    /// What runs have done.
    pub(crate) tools: Arc<dyn Tools>,
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
    /// Tools that one request may declare.
    pub(crate) tools_max: usize,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            body_bytes_max: 1024 * 1024,
            body_read: Duration::from_secs(30),
            header_read: Duration::from_secs(10),
            write_stall: Duration::from_secs(30),
            heartbeat: Duration::from_secs(15),
            streams_per_user_max: 10_000,
            connections_max: 16_384,
            input_parts_max: 64,
            tools_max: 64,
        }
    }
}

/// Reads the file, or the embedded demo where none is named.
pub(crate) fn load(path: Option<&Path>, overrides: Overrides) -> Result<Config, ConfigError> {
    match path {
        None => build::config(&file::Source::demo(), overrides),
        Some(path) => build::config(&file::Source::read(path)?, overrides),
    }
}
