//! The database as the commands see it that run beside nodes, such as `headwater verify`: without a lease, so that nobody
//! takes them for a node, and without migrating a schema that nodes of an older version may use.

use super::archive::{ArchiveOptions, ArchivePlace, SegmentReader, check_place};
use super::connection::{Params, store_error};
use super::database_url::DatabaseUrl;
use super::open_error::PostgresOpenError;
use super::pool::DatabasePool;
use super::records::LogReader;
use super::schema::{self, SchemaState};
use super::server_check::check_server;
use crate::space_state::SpaceState;
use async_trait::async_trait;
use deadpool_postgres::Object;
use model::ports::{AccessKeyRow, Accounts, StoreResult};
use model::seq::Millis;
use std::sync::Arc;
use tokio_postgres::{Client, Error, Row, RowStream};

/// A command does one thing after the other, and some read a second table meanwhile.
const CONNECTIONS_MAX: usize = 2;

/// Reading a large table takes as long as it takes. A client that fell silent does not keep its snapshot, which would keep
/// the server from removing dead rows.
const BEGIN_SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
    SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = '60s'";

/// A connection to the database of a cluster.
#[derive(Debug)]
pub struct PostgresClient {
    pub(super) pool: DatabasePool,
    pub(super) segments: Option<Arc<SegmentReader>>,
}

impl PostgresClient {
    /// Connects to a database that has data, also to a standby: for reading alone.
    ///
    /// # Errors
    /// When the database cannot be read, or has another schema than this version's.
    pub async fn open_for_reading(url: &DatabaseUrl) -> Result<Self, PostgresOpenError> {
        let client = Self::new(url)?;
        match check_server(&client.pool, &url.place()).await {
            Ok(()) | Err(PostgresOpenError::Standby | PostgresOpenError::ReadOnly) => {}
            Err(error) => return Err(error),
        }
        client.check_schema(url).await?;
        Ok(client)
    }

    /// Connects to a database that has data.
    ///
    /// # Errors
    /// When the database cannot be used, or has another schema than this version's.
    pub async fn open(url: &DatabaseUrl) -> Result<Self, PostgresOpenError> {
        let client = Self::new(url)?;
        check_server(&client.pool, &url.place()).await?;
        client.check_schema(url).await?;
        Ok(client)
    }

    /// Connects, and creates the schema in a database that has none.
    ///
    /// # Errors
    /// When the database cannot be used, or has another schema than this version's.
    pub async fn open_or_create(url: &DatabaseUrl) -> Result<Self, PostgresOpenError> {
        let client = Self::new(url)?;
        check_server(&client.pool, &url.place()).await?;
        match client.check_schema(url).await {
            Err(PostgresOpenError::NoSchema { .. }) => schema::create(&client.pool).await?,
            checked => checked?,
        }
        Ok(client)
    }

    fn new(url: &DatabaseUrl) -> Result<Self, PostgresOpenError> {
        let pool = DatabasePool::new(url, CONNECTIONS_MAX, Arc::<SpaceState>::default())?;
        Ok(Self { pool, segments: None })
    }

    /// Reads archived records, too.
    ///
    /// # Errors
    /// When the database has archived records in another place.
    pub async fn with_archive(mut self, place: Option<&ArchivePlace>) -> Result<Self, PostgresOpenError> {
        check_place(&self.pool, place).await?;
        let open =
            |place: &ArchivePlace| SegmentReader::new(Arc::clone(&place.archive), ArchiveOptions::CACHE_BYTES_MAX);
        self.segments = place.map(|place| Arc::new(open(place)));
        Ok(self)
    }

    pub(super) fn log_reader(&self) -> LogReader {
        LogReader { pool: self.pool.clone(), segments: self.segments.clone() }
    }

    async fn check_schema(&self, url: &DatabaseUrl) -> Result<(), PostgresOpenError> {
        let connection = self.pool.get().await?;
        match schema::find_state(&connection).await? {
            SchemaState::Missing => Err(PostgresOpenError::NoSchema { place: url.place() }),
            SchemaState::Older { found, known } => Err(PostgresOpenError::Older { found, known }),
            SchemaState::Usable => Ok(()),
        }
    }
}

#[async_trait]
impl Accounts for PostgresClient {
    async fn access_keys(&self) -> StoreResult<Vec<AccessKeyRow>> {
        self.pool.access_keys().await
    }

    async fn create_access_key(&self, key: AccessKeyRow) -> StoreResult<()> {
        self.pool.create_access_key(key).await
    }

    async fn revoke_access_key(&self, id: &str, at: Millis) -> StoreResult<bool> {
        self.pool.revoke_access_key(id, at).await
    }
}

/// A read-only transaction whose queries all see the same rows. Dropping it closes the connection.
pub(super) struct Snapshot {
    connection: Option<Object>,
}

impl Snapshot {
    pub(super) async fn begin(pool: &DatabasePool) -> StoreResult<Self> {
        let snapshot = Self { connection: Some(pool.get().await?) };
        snapshot.client().batch_execute(BEGIN_SNAPSHOT).await.map_err(|error| store_error(&error))?;
        Ok(snapshot)
    }

    /// # Panics
    /// Never: the connection is taken only by methods that consume the snapshot.
    fn client(&self) -> &Client {
        #[expect(clippy::expect_used, reason = "only methods that consume the snapshot take the connection")]
        self.connection.as_ref().expect("the snapshot has a connection")
    }

    pub(super) async fn query(&self, sql: &str, params: Params<'_>) -> Result<Vec<Row>, Error> {
        self.client().query_typed(sql, params).await
    }

    /// The rows of a query, with few of them in memory at a time.
    pub(super) async fn stream(&self, sql: &str, params: Params<'_>) -> Result<RowStream, Error> {
        self.client().query_typed_raw(sql, params.iter().map(|(value, kind)| (*value, kind.clone()))).await
    }

    /// Ends the transaction and returns the connection to the pool.
    pub(super) async fn end(mut self) {
        if self.client().batch_execute("ROLLBACK").await.is_ok() {
            drop(self.connection.take());
        }
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        drop(self.connection.take().map(Object::take));
    }
}
