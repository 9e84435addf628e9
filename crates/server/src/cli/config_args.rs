//! Which config file and which data folder a command uses: the same rule for all of them.

use crate::config::{self, AuthMode, ConfigError, ConfigSource};
use clap::Args;
use std::path::PathBuf;

#[derive(Clone, Debug, Args)]
pub(crate) struct ConfigArg {
    /// The config file [default: ./headwater.toml if it exists, or else the embedded demo].
    #[arg(long, env = "HEADWATER_CONFIG")]
    config: Option<PathBuf>,
}

impl ConfigArg {
    pub(super) fn find(&self) -> Result<ConfigSource, ConfigError> {
        ConfigSource::find(self.config.as_deref())
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct DataDirArgs {
    #[command(flatten)]
    pub(super) config: ConfigArg,
    /// The data folder [default: that of the config file, or headwater-data].
    #[arg(long, env = "HEADWATER_DATA_DIR")]
    pub(super) data_dir: Option<PathBuf>,
}

/// The data folder of a command.
pub(super) struct DataDir {
    pub(super) path: PathBuf,
    /// `None` if the command line names the folder: then no config is read.
    pub(super) auth: Option<AuthMode>,
}

impl DataDirArgs {
    pub(super) fn resolve(self) -> Result<DataDir, ConfigError> {
        if let Some(path) = self.data_dir {
            return Ok(DataDir { path, auth: None });
        }
        let source = self.config.find()?;
        let storage = config::load_storage_config(&source, None)?;
        announce_config(&source);
        Ok(DataDir { path: storage.data_dir, auth: Some(storage.auth) })
    }
}

/// Tells on stderr which config is in use.
pub(super) fn announce_config(source: &ConfigSource) {
    let hint = if source.is_demo() { " (there is no ./headwater.toml; name another file with --config)" } else { "" };
    eprintln!("headwater: config: {}{hint}", source.origin);
}
