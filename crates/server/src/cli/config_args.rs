//! Which config file and which data a command uses: the same rule for all of them.

use crate::config::{self, ArchiveConfig, AuthMode, ConfigError, ConfigSource, DatabaseConfig, StorageConfig};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, value_parser};
use gateway::attachments::AttachmentSettings;
use std::path::PathBuf;
use store::DatabaseUrl;

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
    #[command(flatten)]
    pub(super) data_dir: DataDirArg,
    #[command(flatten)]
    pub(super) database: DatabaseArg,
}

/// The data folder. The variable of the environment says where the folder of a node is, and images and units set it: only the
/// flag means the folder itself instead of the database of the config file.
#[derive(Clone, Debug)]
pub(crate) struct DataDirArg {
    pub(super) path: Option<PathBuf>,
    pub(super) is_flag: bool,
}

impl DataDirArg {
    const ID: &str = "data_dir";

    fn arg() -> Arg {
        Arg::new(Self::ID)
            .long("data-dir")
            .value_name("DATA_DIR")
            .env("HEADWATER_DATA_DIR")
            .value_parser(value_parser!(PathBuf))
            .help(
                "The data folder, also if the config file names a database [default: that of the config file, or \
                 headwater-data]",
            )
    }
}

impl FromArgMatches for DataDirArg {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let is_flag = matches.value_source(Self::ID) == Some(ValueSource::CommandLine);
        Ok(Self { path: matches.get_one(Self::ID).cloned(), is_flag })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for DataDirArg {
    fn augment_args(command: Command) -> Command {
        command.arg(Self::arg())
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct DatabaseArg {
    /// A PostgreSQL database that holds the data instead of the folder: postgres://user:password@host:5432/database
    /// [default: that of the config file].
    #[arg(long, env = "HEADWATER_DATABASE_URL", hide_env_values = true)]
    pub(super) database_url: Option<String>,
}

/// Where the data of a command is.
pub(super) enum DataPlace {
    Folder {
        path: PathBuf,
        /// `None` if the command line names the folder: then no config is read.
        auth: Option<AuthMode>,
    },
    Database(Box<DatabasePlace>),
}

/// A database, and what the config says besides.
pub(super) struct DatabasePlace {
    pub(super) url: DatabaseUrl,
    pub(super) archive: Option<ArchiveConfig>,
    pub(super) auth: AuthMode,
    /// The node's own folder, which may have files.
    pub(super) data_dir: PathBuf,
    pub(super) files: AttachmentSettings,
}

impl DataDirArgs {
    /// A folder on the command line precedes the database of a config, and a database on the command line precedes both.
    pub(super) fn resolve(self) -> Result<DataPlace, ConfigError> {
        let database_url = self.database.database_url;
        if let (DataDirArg { path: Some(path), is_flag: true }, None) = (&self.data_dir, &database_url) {
            return Ok(DataPlace::Folder { path: path.clone(), auth: None });
        }
        let source = self.config.find()?;
        let StorageConfig { data_dir, database, auth, files } =
            config::load_storage_config(&source, self.data_dir.path, database_url)?;
        announce_config(&source);
        Ok(match database {
            None => DataPlace::Folder { path: data_dir, auth: Some(auth) },
            Some(DatabaseConfig { url, archive, .. }) => {
                DataPlace::Database(Box::new(DatabasePlace { url, archive, auth, data_dir, files }))
            }
        })
    }
}

/// Tells on stderr which config is in use.
pub(super) fn announce_config(source: &ConfigSource) {
    let hint = if source.is_demo() { " (there is no ./headwater.toml; name another file with --config)" } else { "" };
    eprintln!("headwater: config: {}{hint}", source.origin);
}
