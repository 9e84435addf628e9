//! The PostgreSQL store: any number of nodes on one database.
//!
//! - `database_url`, `tls`, `pool`, `connection`, `open_error`: how the database is reached, and what can go wrong.
//!   `commit_token`: the outcome of a commit whose answer was lost.
//! - `schema`: the tables and their migrations. `nodes`: this node's lease, which covers all threads that it holds.
//!   `cluster`: signals between nodes.
//! - `writer`, `append_group`, `group_write`, `group_columns`: appends of all threads in one transaction.
//! - `records`: reading. `archive`: records of runs that ended long ago, in object storage. `inbox`, `submission`,
//!   `questions`, `threads`, `aliases`, `shares`, `accounts`, `attachments`, `attachment_rows`, `orphaned_links`,
//!   `definitions`, `retention`, `recovery_attempts`: one module per port or table.
//! - `client`: the database as commands see it that run beside nodes. `verify`, `logged_runs`, `import`: what they do.
//!
//! Invariant: a transaction that changes rows of a thread holds the lock of the thread's row in `threads`. Epoch, head, runs, questions and inbox
//! are therefore consistent without a stricter isolation than the default, and inbox rows become visible in their order.

mod accounts;
mod aliases;
mod append_group;
mod archive;
mod attachment_rows;
mod attachments;
mod client;
mod cluster;
mod commit_token;
mod connection;
mod database_url;
mod definitions;
mod group_columns;
mod group_write;
pub mod import;
mod inbox;
mod logged_runs;
mod mcp_pins;
mod nodes;
mod open_error;
mod orphaned_links;
mod pool;
mod questions;
mod records;
mod recovery_attempts;
mod retention;
mod schema;
mod server_check;
mod shares;
mod space_probe;
mod submission;
mod threads;
mod tickets;
mod tls;
mod user_secrets;
mod verify;
mod writer;

pub use archive::{ArchiveOptions, ArchivePlace, ArchiveStats};
pub use client::PostgresClient;
pub use cluster::PostgresCluster;
pub use database_url::DatabaseUrl;
pub use nodes::DifferingNodes;
pub use open_error::PostgresOpenError;
pub use tickets::StoredTicket;

use crate::space_state::SpaceState;
use crate::sqlite::WriterStats;
use archive::Archiver;
use async_trait::async_trait;
use connection::{OpenTransaction, u64_column};
use model::condense::{CondenseRecords, condense_records};
use model::ports::validation;
use model::ports::{
    AppendBatch, AppendOutcome, BoxFuture, ClaimOutcome, DirectoryWriter, Journal, Lease, OnCommit, PageLimit,
    RecordPage, SpaceWatch, StorageSpace, StoreError, StoreResult, WriteAccess,
};
use model::seq::Seq;
use model::{NodeId, ThreadId, UserId};
use nodes::NodeLease;
use pool::DatabasePool;
use records::LogReader;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_postgres::types::Type;
use writer::{AppendTask, GroupLimits, PostgresWriter, WriterMessage};

/// How long a database that cannot be reached keeps a store from closing.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub struct PostgresOptions {
    pub url: DatabaseUrl,
    /// This node. Threads that it holds are refused to other nodes while its lease is valid.
    pub node: NodeId,
    /// Where the node runs, for operators.
    pub host: String,
    /// The names of the node's agents, in order: nodes of one cluster have the same.
    pub agents: Vec<String>,
    /// The ids of the node's earlier processes begin with this. They have ended, so their leases are void.
    pub predecessors: Option<String>,
    /// The maximum number of connections, besides that of the writer and that of the lease.
    pub connections_max: usize,
    /// The maximum number of appends in one commit.
    pub group_ops_max: usize,
    /// The approximate maximum number of bytes in one commit.
    pub group_bytes_max: usize,
    /// The maximum number of rows in an inbox.
    pub inbox_rows_max: usize,
    /// The size of a user's log beyond which no run starts.
    pub log_bytes_per_user_max: Option<u64>,
    /// How long other nodes respect this node's threads after it fell silent.
    pub lease: Duration,
    /// Condenses records for readers of the state.
    pub condense: CondenseRecords,
    /// Where runs are archived; `None` keeps them in the database.
    pub archive: Option<ArchiveOptions>,
}

impl PostgresOptions {
    pub const LEASE: Duration = Duration::from_secs(10);
    pub const CONNECTIONS_MAX: usize = 16;

    pub fn new(url: DatabaseUrl, node: NodeId) -> Self {
        Self {
            url,
            node,
            host: String::new(),
            agents: Vec::new(),
            predecessors: None,
            connections_max: Self::CONNECTIONS_MAX,
            group_ops_max: 1_024,
            group_bytes_max: 4 * 1024 * 1024,
            inbox_rows_max: 1_000,
            log_bytes_per_user_max: None,
            lease: Self::LEASE,
            condense: condense_records,
            archive: None,
        }
    }
}

/// The store in a database.
#[derive(Debug)]
pub struct PostgresStore {
    pool: DatabasePool,
    writer: mpsc::UnboundedSender<WriterMessage>,
    /// When the writer stops to wait for the database.
    close_deadline: watch::Sender<Option<Instant>>,
    lease: NodeLease,
    outbox: Arc<cluster::Outbox>,
    space: Arc<SpaceState>,
    /// `None` without an archive.
    archiver: Option<Arc<Archiver>>,
    tasks: Vec<JoinHandle<()>>,
    stats: Arc<Mutex<WriterStats>>,
    node: NodeId,
    inbox_rows_max: usize,
    log_bytes_per_user_max: Option<u64>,
    condense: CondenseRecords,
}

impl PostgresStore {
    /// Connects, migrates the schema if it is older, and registers the node.
    ///
    /// # Errors
    /// When the database cannot be used. It is unchanged then, unless it was migrated.
    pub async fn open(options: PostgresOptions) -> Result<Self, PostgresOpenError> {
        let space = Arc::<SpaceState>::default();
        let place = options.url.place();
        let [pool, writer_pool, lease_pool] = [options.connections_max, 1, 1]
            .map(|connections_max| DatabasePool::new(&options.url, connections_max, Arc::clone(&space)));
        let (pool, writer_pool, lease_pool) = (pool?, writer_pool?, lease_pool?);
        server_check::check_server(&pool, &place).await?;
        // Fails now if the server has no connection left for the writer.
        drop(writer_pool.check(&place).await?);
        let tx = OpenTransaction::begin(&pool).await?;
        schema::migrate(&tx).await?;
        tx.commit_without_token().await?;
        inbox::expire_idempotency_keys(&pool).await?;
        drop(lease_pool.check(&place).await?);
        let lease = NodeLease::register(lease_pool, &options).await?;
        let archiver = match open_archive(&pool, &options, &space).await {
            Ok(archiver) => archiver,
            Err(error) => {
                lease.give_up().await;
                return Err(error);
            }
        };
        let stats = Arc::<Mutex<WriterStats>>::default();
        let limits = GroupLimits { ops_max: options.group_ops_max.max(1), bytes_max: options.group_bytes_max.max(1) };
        let (writer, messages) = mpsc::unbounded_channel();
        let (close_deadline, deadline) = watch::channel(None);
        let group_writer =
            PostgresWriter::new(writer_pool, options.node.clone(), limits, Arc::clone(&stats), Arc::clone(&space));
        tokio::spawn(group_writer.run(messages, deadline));
        let mut tasks = vec![
            tokio::spawn(space_probe::probe_space(pool.clone(), Arc::clone(&space))),
            tokio::spawn(commit_token::expire_tokens(pool.clone())),
            tokio::spawn(orphaned_links::remove_orphaned_links(pool.clone())),
        ];
        tasks.extend(archiver.clone().map(|archiver| tokio::spawn(archiver.run())));
        Ok(Self {
            pool,
            writer,
            close_deadline,
            lease,
            outbox: Arc::default(),
            space,
            archiver,
            tasks,
            stats,
            node: options.node,
            inbox_rows_max: options.inbox_rows_max,
            log_bytes_per_user_max: options.log_bytes_per_user_max,
            condense: options.condense,
        })
    }

    /// The secret with this name that all nodes share; the proposed one if there is none yet.
    ///
    /// # Errors
    /// When the database cannot be used.
    pub async fn shared_secret(&self, name: &str, proposed: &[u8]) -> StoreResult<Vec<u8>> {
        let insert = "INSERT INTO headwater.secrets VALUES ($1, $2) ON CONFLICT DO NOTHING";
        self.pool.execute(insert, &[(&name, Type::TEXT), (&proposed, Type::BYTEA)]).await?;
        let row =
            self.pool.query_opt("SELECT value FROM headwater.secrets WHERE name = $1", &[(&name, Type::TEXT)]).await?;
        row.map_or_else(|| Ok(proposed.to_vec()), |row| connection::column(&row, 0))
    }

    /// Replaces a secret that all nodes share.
    ///
    /// # Errors
    /// When the database cannot be used.
    pub async fn replace_shared_secret(&self, name: &str, value: &[u8]) -> StoreResult<()> {
        let sql =
            "INSERT INTO headwater.secrets VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value";
        self.pool.execute(sql, &[(&name, Type::TEXT), (&value, Type::BYTEA)]).await.map(drop)
    }

    /// Whether other nodes were there when the lease of this one was renewed last.
    pub fn has_other_nodes(&self) -> bool {
        self.lease.state.has_other_nodes()
    }

    /// The other nodes that have other agents than this one.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn differing_nodes(&self) -> StoreResult<Vec<DifferingNodes>> {
        nodes::differing_nodes(&self.pool, &self.node).await
    }

    fn log_reader(&self) -> LogReader {
        LogReader { pool: self.pool.clone(), segments: self.archiver.as_ref().map(|archiver| archiver.reader()) }
    }

    fn lease_state(&self) -> Arc<nodes::LeaseState> {
        Arc::clone(&self.lease.state)
    }

    /// Counts since the store was opened.
    pub fn stats(&self) -> WriterStats {
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes queued appends, gives the node's lease up and closes the connections. Later operations fail. Appends that a
    /// database does not answer meanwhile are [`AppendOutcome::Unknown`].
    pub async fn close(&self) {
        let (reply, closed) = oneshot::channel();
        self.close_deadline.send_replace(Some(Instant::now() + CLOSE_TIMEOUT));
        if self.writer.send(WriterMessage::Close { reply }).is_ok() {
            // An error means that the writer has stopped already.
            let _ = closed.await;
        }
        if tokio::time::timeout(CLOSE_TIMEOUT, self.lease.give_up()).await.is_err() {
            tracing::warn!("the node's lease stays until it expires: the database does not answer");
        }
        self.tasks.iter().for_each(JoinHandle::abort);
        self.archiver.iter().for_each(|archiver| archiver.close());
        self.pool.close();
    }
}

/// Connections of its own, so that archiving does not delay readers.
const ARCHIVE_CONNECTIONS_MAX: usize = 2;

async fn open_archive(
    pool: &DatabasePool,
    options: &PostgresOptions,
    space: &Arc<SpaceState>,
) -> Result<Option<Arc<Archiver>>, PostgresOpenError> {
    let place = options.archive.as_ref().map(|archive| &archive.place);
    archive::register_place(pool, &options.node, place).await?;
    let Some(archive) = &options.archive else { return Ok(None) };
    let pool = DatabasePool::new(&options.url, ARCHIVE_CONNECTIONS_MAX, Arc::clone(space))?;
    Ok(Some(Arc::new(Archiver::new(pool, archive))))
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl WriteAccess for PostgresStore {
    fn writer(&self, _user: &UserId) -> Result<&dyn DirectoryWriter, StoreError> {
        Ok(self)
    }
}

impl SpaceWatch for PostgresStore {
    fn space(&self) -> StorageSpace {
        self.space.get()
    }

    fn space_changed(&self, known: StorageSpace) -> BoxFuture<'static, ()> {
        self.space.changed_from(known)
    }
}

#[async_trait]
impl Journal for PostgresStore {
    async fn claim(&self, owner: &UserId, thread: &ThreadId, node: &NodeId) -> StoreResult<ClaimOutcome> {
        nodes::claim_thread(&self.pool, owner, thread, node).await
    }

    fn release(&self, thread: &ThreadId, lease: Lease) {
        self.outbox.release(thread, lease);
    }

    fn start_append(&self, batch: AppendBatch, on_commit: OnCommit) {
        let invalid_reason = validation::validate_batch(&batch);
        // The queue needs no bound of its own: a thread has one append in flight.
        if let Err(mpsc::error::SendError(WriterMessage::Append(task))) =
            self.writer.send(WriterMessage::Append(AppendTask { batch, invalid_reason, on_commit }))
        {
            task.on_commit.call(&AppendOutcome::Unknown("the store is closed".to_owned()));
        }
    }

    async fn read_page(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        after: Seq,
        limit: PageLimit,
    ) -> StoreResult<RecordPage> {
        self.log_reader().read_page((owner, thread), after..Seq::MAX, limit).await
    }

    async fn read_condensed_page(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        after: Seq,
        until: Seq,
        limit: PageLimit,
    ) -> StoreResult<RecordPage> {
        let mut page = self.log_reader().read_page((owner, thread), after..until, limit).await?;
        page.records = (self.condense)(page.records);
        Ok(page)
    }
}

/// What all users together hold.
impl PostgresStore {
    /// # Errors
    /// When the database cannot be read.
    pub async fn storage_use(&self) -> StoreResult<crate::sqlite::StorageUse> {
        let sql = "SELECT (SELECT coalesce(sum(log_bytes), 0)::bigint FROM headwater.threads),
                   (SELECT coalesce(sum(bytes), 0)::bigint FROM headwater.attachment_sums)";
        let row = self.pool.query_opt(sql, &[]).await?;
        let row = row.ok_or_else(|| StoreError::Unavailable("no row".to_owned()))?;
        Ok(crate::sqlite::StorageUse { log_bytes: u64_column(&row, 0)?, file_bytes: u64_column(&row, 1)? })
    }
}
