//! The connections to the database.

use super::commit_token::{CommitToken, TokenSource};
use super::connection::{OpenTransaction, Params, store_error};
use super::database_url::{CONNECT_TIMEOUT, DatabaseUrl};
use super::open_error::PostgresOpenError;
use crate::space_state::SpaceState;
use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime, Timeouts};
use model::ports::{StorageSpace, StoreError, StoreResult};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Error, Row};

/// How long an operation waits for a connection.
const WAIT_TIMEOUT: Duration = Duration::from_secs(5);
/// A query that takes longer is given up together with its connection.
pub(super) const QUERY_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub(super) struct DatabasePool {
    pool: Pool,
    space: Arc<SpaceState>,
    tokens: Arc<TokenSource>,
    /// Connections that were opened before this are closed: a connection keeps the access mode that it was opened with, also if
    /// the database is read-only no longer.
    stale_before: Arc<Mutex<Option<Instant>>>,
}

impl DatabasePool {
    /// Makes a pool; connections are opened on demand.
    pub(super) fn new(
        url: &DatabaseUrl,
        connections_max: usize,
        space: Arc<SpaceState>,
    ) -> Result<Self, PostgresOpenError> {
        let config = url.connect_config();
        let settings = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(config, url.tls_connector()?, settings);
        let timeouts =
            Timeouts { wait: Some(WAIT_TIMEOUT), create: Some(CONNECT_TIMEOUT), recycle: Some(WAIT_TIMEOUT) };
        let pool = Pool::builder(manager).max_size(connections_max.max(1)).runtime(Runtime::Tokio1).timeouts(timeouts);
        let pool = pool.build().map_err(|error| PostgresOpenError::Failed(error.to_string()))?;
        Ok(Self { pool, space, tokens: Arc::new(TokenSource::new()), stale_before: Arc::default() })
    }

    pub(super) async fn get(&self) -> StoreResult<Object> {
        loop {
            let connection = self.pool.get().await.map_err(|error| match error {
                PoolError::Backend(error) => self.store_error(&error),
                PoolError::Timeout(_) => StoreError::Unavailable("the database gives no connection in time".to_owned()),
                error => StoreError::Unavailable(error.to_string()),
            })?;
            let stale_before = *self.stale_before.lock().unwrap_or_else(PoisonError::into_inner);
            if stale_before.is_none_or(|time| Object::metrics(&connection).created >= time) {
                return Ok(connection);
            }
            drop(Object::take(connection));
        }
    }

    /// Opens a connection and tells why that is not possible.
    pub(super) async fn check(&self, place: &str) -> Result<Object, PostgresOpenError> {
        self.pool.get().await.map_err(|error| match error {
            PoolError::Backend(error) => PostgresOpenError::connecting(place, &error),
            PoolError::Timeout(_) => PostgresOpenError::no_answer(place),
            error => PostgresOpenError::Failed(error.to_string()),
        })
    }

    /// Runs a query outside a transaction.
    pub(super) async fn query(&self, sql: &str, params: Params<'_>) -> StoreResult<Vec<Row>> {
        let connection = self.get().await?;
        match tokio::time::timeout(QUERY_TIMEOUT, connection.query_typed(sql, params)).await {
            Ok(rows) => rows.map_err(|error| self.store_error(&error)),
            Err(_) => {
                // Its answer may still come, so that the next query would wait for it, too.
                drop(Object::take(connection));
                Err(StoreError::Unavailable(format!("the database did not answer in {} s", QUERY_TIMEOUT.as_secs())))
            }
        }
    }

    /// Runs a query with at most one row.
    pub(super) async fn query_opt(&self, sql: &str, params: Params<'_>) -> StoreResult<Option<Row>> {
        Ok(self.query(sql, params).await?.into_iter().next())
    }

    /// Runs a statement in a transaction of its own. Returns the number of rows that changed.
    pub(super) async fn execute(&self, sql: &str, params: Params<'_>) -> StoreResult<u64> {
        let tx = OpenTransaction::begin(self).await?;
        let changed = tx.execute(sql, params).await?;
        tx.commit().await?;
        Ok(changed)
    }

    /// Converts an error for the caller of a port. A full disk is noted before the caller learns of it.
    pub(super) fn store_error(&self, error: &Error) -> StoreError {
        if error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION) {
            *self.stale_before.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        let error = store_error(error);
        if error == StoreError::NoSpace {
            self.space.set(StorageSpace::Full);
        }
        error
    }

    pub(super) fn is_full(&self) -> bool {
        self.space.is_full()
    }

    pub(super) fn next_token(&self) -> CommitToken {
        self.tokens.next()
    }

    pub(super) fn close(&self) {
        self.pool.close();
    }
}
