//! Where the data is: a folder with SQLite, or a PostgreSQL database that several nodes may share.

use crate::archive::{location_identity, open_archive};
use crate::config::{ArchiveConfig, Config, DatabaseConfig};
use crate::storage_backend::StorageBackend;
use anyhow::Context as _;
use engine::SystemClock;
use files::{StorageLocation, UrlSigner, read_or_create_folder_id};
use gateway::attachments::default_location;
use gateway::recovery_file::RecoveryFile;
use gateway::secret_token::encode_hex;
use model::NodeId;
use model::ports::{Clock, Cluster, RecoveryAttempts, SingleNode};
use std::path::Path;
use std::sync::Arc;
use store::{
    ArchiveOptions, NodeFolder, PostgresCluster, PostgresOptions, PostgresStore, SqliteOptions, SqliteStore, TickLoad,
};

/// The key of signed URLs: a file of the folder, or a secret of the database.
pub(crate) const SIGNING_KEY_FILE: &str = "files.key";
pub(crate) const SIGNING_KEY_SECRET: &str = "url_signing_key";
/// Where the files of a cluster are.
const FILES_PLACE: &str = "files_place";

/// The open store and what else the nodes of a cluster share.
pub(crate) struct Storage {
    pub(crate) store: Arc<dyn StorageBackend>,
    pub(crate) node: NodeId,
    /// The same store, if it is a database.
    pub(crate) database: Option<Arc<PostgresStore>>,
    pub(crate) url_signer: UrlSigner,
    /// The other nodes store files elsewhere.
    pub(crate) has_foreign_files: bool,
    pub(crate) cluster: Arc<dyn Cluster>,
    pub(crate) recovery_attempts: Arc<dyn RecoveryAttempts>,
    /// The database's time, if there is one.
    pub(crate) clock: Arc<dyn Clock>,
    /// Locked for as long as the process runs.
    _node_folder: Option<NodeFolder>,
}

impl Storage {
    pub(crate) async fn open(config: &Config) -> anyhow::Result<Self> {
        match &config.database {
            None => Self::open_folder(config).await,
            Some(database) => Self::open_database(config, database).await,
        }
    }

    async fn open_folder(config: &Config) -> anyhow::Result<Self> {
        let options = SqliteOptions {
            commit_spacing: config.commit_spacing,
            log_bytes_per_user_max: config.http_limits.log_bytes_per_user_max,
            disk_reserve_bytes: Some(config.disk_reserve_bytes),
            ticks: Some(TickLoad::default()),
            ..SqliteOptions::default()
        };
        let dir = config.data_dir.clone();
        let opening = tokio::task::spawn_blocking(move || {
            let store = SqliteStore::open(&dir, &options)?;
            let path = dir.join(SIGNING_KEY_FILE);
            let signer = UrlSigner::load_or_create(&path).with_context(|| path.display().to_string())?;
            Ok::<_, anyhow::Error>((store, signer))
        });
        let (store, url_signer) = opening.await.context("no thread")??;
        let node = NodeId::from(format!("node-{}", std::process::id()));
        let (cluster, clock) = (Arc::new(SingleNode), Arc::new(SystemClock));
        Ok(Self {
            store: Arc::new(store),
            node,
            database: None,
            url_signer,
            has_foreign_files: false,
            cluster,
            recovery_attempts: Arc::new(RecoveryFile::new(&config.data_dir)),
            clock,
            _node_folder: None,
        })
    }

    async fn open_database(config: &Config, database: &DatabaseConfig) -> anyhow::Result<Self> {
        let (dir, proposed) = (config.data_dir.clone(), format!("node-{}", random_hex::<8>()?));
        let opening = tokio::task::spawn_blocking(move || {
            warn_of_unused_database(&dir);
            NodeFolder::open(&dir, &proposed)
        });
        let folder = opening.await.context("no thread")??;
        let predecessors = format!("{}/", folder.name());
        let node = NodeId::from(format!("{predecessors}{}", random_hex::<4>()?));
        let agents: Vec<String> = config.definitions.agents.keys().cloned().collect();
        let options = PostgresOptions {
            host: host_name(),
            agents: agents.clone(),
            predecessors: Some(predecessors),
            connections_max: database.connections_max,
            log_bytes_per_user_max: config.http_limits.log_bytes_per_user_max,
            archive: match database.archive.clone() {
                Some(archive) => Some(open_archive_options(archive).await?),
                None => None,
            },
            ..PostgresOptions::new(database.url.clone(), node.clone())
        };
        let store = PostgresStore::open(options).await?;
        let proposed_key = UrlSigner::generate_key().context("no key for signed URLs")?;
        let key =
            store.shared_secret(SIGNING_KEY_SECRET, &proposed_key).await.context("cannot read the signing key")?;
        let url_signer = UrlSigner::from_key(&key).context("the database's key of signed URLs is damaged")?;
        let has_foreign_files = has_foreign_files(config, &store).await?;
        warn_of_differing_nodes(&store, &agents).await?;
        tracing::info!(%node, database = database.url.place(), "connected to the database");
        let cluster = Arc::new(PostgresCluster::start(&store, &database.url)?);
        let clock = Arc::clone(&cluster) as Arc<dyn Clock>;
        let store = Arc::new(store);
        let database = Some(Arc::clone(&store));
        Ok(Self {
            recovery_attempts: Arc::clone(&store) as _,
            store,
            node,
            database,
            url_signer,
            has_foreign_files,
            cluster,
            clock,
            _node_folder: Some(folder),
        })
    }
}

async fn open_archive_options(config: ArchiveConfig) -> anyhow::Result<ArchiveOptions> {
    let after = config.after;
    let place = tokio::task::spawn_blocking(move || open_archive(&config)).await.context("no thread")??;
    tracing::info!(archive = place.identity, after_seconds = after.as_secs(), "runs are archived");
    Ok(ArchiveOptions::new(place, after))
}

/// Whether the files of the cluster are not where this node would store them. The first node decides where they are; a node that
/// is alone may say that they were moved.
async fn has_foreign_files(config: &Config, store: &PostgresStore) -> anyhow::Result<bool> {
    let location = config.files.location.clone().unwrap_or_else(|| default_location(&config.data_dir));
    let folder_id = match location.clone() {
        StorageLocation::Bucket { .. } => None,
        StorageLocation::Folder(folder) => {
            let reading = tokio::task::spawn_blocking(move || {
                read_or_create_folder_id(&folder).with_context(|| format!("the folder of files {}", folder.display()))
            });
            Some(reading.await.context("no thread")??)
        }
    };
    let place = location_identity(&location, folder_id.as_deref());
    let known = store.shared_secret(FILES_PLACE, place.as_bytes()).await.context("cannot read where files are")?;
    let is_elsewhere = known != place.as_bytes();
    let is_foreign = is_elsewhere && store.has_other_nodes();
    if is_elsewhere && !is_foreign {
        store.replace_shared_secret(FILES_PLACE, place.as_bytes()).await.context("cannot store where files are")?;
        tracing::warn!(
            "files are stored in another place than before: files that were stored until now have to be there, too"
        );
    }
    if is_foreign {
        tracing::error!(
            "this node does not store files: those of the other nodes are elsewhere; set [files] url to the same bucket or \
             shared folder on every node; to move the files, stop all nodes first"
        );
    } else if config.files.location.is_none() {
        tracing::warn!(
            "files are in the data folder of this node: before you start another one, set [files] url to a bucket or a shared \
             folder"
        );
    }
    Ok(is_foreign)
}

/// During a rolling upgrade that is as it should be; two clusters on one database would take over each other's runs.
async fn warn_of_differing_nodes(store: &PostgresStore, agents: &[String]) -> anyhow::Result<()> {
    for other in store.differing_nodes().await.context("cannot read which other nodes there are")? {
        tracing::warn!(
            hosts = other.hosts.join(", "),
            agents = other.agents.join(", "),
            agents_here = agents.join(", "),
            "another node on this database has other agents: unless you are upgrading, give each cluster a database of its own"
        );
    }
    Ok(())
}

fn warn_of_unused_database(dir: &Path) {
    if store::has_sqlite_database(dir) {
        tracing::warn!(
            folder = %dir.display(),
            "the data folder has a database of its own, which is not used: `headwater import` copies it"
        );
    }
}

fn random_hex<const BYTES: usize>() -> anyhow::Result<String> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("the system has no random numbers: {error}"))?;
    Ok(encode_hex(&bytes))
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
