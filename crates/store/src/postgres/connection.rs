//! Connections, transactions and errors.
//!
//! Every statement is unnamed (`query_typed`): a transaction pooler such as PgBouncer may give each transaction another
//! connection, on which a prepared statement would not exist. Settings are made per transaction for the same reason.

use super::commit_token::commit_with_token;
use super::pool::DatabasePool;
use deadpool_postgres::Object;
use model::ports::{StoreError, StoreResult};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::error::Error as _;
use std::io;
use std::time::Duration;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{FromSql, ToSql, Type};
use tokio_postgres::{Client, Error, Row};

pub(super) type Params<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

/// A transaction waits this long for a lock, and holds its own no longer than this after its node fell silent: a node that is
/// stopped or cut off in the middle of a transaction must not block others. A commit is durable even where the server's
/// default says otherwise.
pub(super) const BEGIN: &str = "BEGIN;
    SET LOCAL lock_timeout = '5s'; SET LOCAL statement_timeout = '8s';
    SET LOCAL idle_in_transaction_session_timeout = '4s';
    SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'";

/// For a transaction that may delete millions of rows.
const LONG_STATEMENTS: &str = "SET LOCAL statement_timeout = '300s'";

/// The server ends a statement earlier; one that does not answer at all is given up together with its connection.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(9);
const LONG_ANSWER_TIMEOUT: Duration = Duration::from_secs(310);
const ROLLBACK_TIMEOUT: Duration = Duration::from_secs(1);

/// A transaction that is not committed yet. Dropping it closes the connection, which rolls it back: a connection with an open
/// transaction never returns to the pool.
pub(super) struct OpenTransaction<'a> {
    pool: &'a DatabasePool,
    connection: Option<Object>,
    answer_timeout: Duration,
}

impl<'a> OpenTransaction<'a> {
    pub(super) async fn begin(pool: &'a DatabasePool) -> StoreResult<Self> {
        let connection = pool.get().await?;
        let open = Self { pool, connection: Some(connection), answer_timeout: ANSWER_TIMEOUT };
        open.run(open.client().batch_execute(BEGIN)).await?;
        Ok(open)
    }

    /// A transaction whose statements may take minutes.
    pub(super) async fn begin_long(pool: &'a DatabasePool) -> StoreResult<Self> {
        let mut open = Self::begin(pool).await?;
        open.answer_timeout = LONG_ANSWER_TIMEOUT;
        open.run(open.client().batch_execute(LONG_STATEMENTS)).await?;
        Ok(open)
    }

    /// # Panics
    /// Never: the connection is taken only by methods that consume the transaction.
    pub(super) fn client(&self) -> &Client {
        #[expect(clippy::expect_used, reason = "only methods that consume the transaction take the connection")]
        self.connection.as_ref().expect("the transaction has a connection")
    }

    /// Waits for an answer, but not forever.
    async fn run<T>(&self, statement: impl Future<Output = Result<T, Error>>) -> StoreResult<T> {
        match tokio::time::timeout(self.answer_timeout, statement).await {
            Ok(answer) => answer.map_err(|error| self.pool.store_error(&error)),
            Err(_) => Err(no_answer(self.answer_timeout)),
        }
    }

    pub(super) async fn query(&self, sql: &str, params: Params<'_>) -> StoreResult<Vec<Row>> {
        self.run(self.client().query_typed(sql, params)).await
    }

    /// For a query with at most one row.
    pub(super) async fn query_opt(&self, sql: &str, params: Params<'_>) -> StoreResult<Option<Row>> {
        self.run(self.client().query_typed_opt(sql, params)).await
    }

    /// For a query with exactly one row.
    pub(super) async fn query_one(&self, sql: &str, params: Params<'_>) -> StoreResult<Row> {
        self.run(self.client().query_typed_one(sql, params)).await
    }

    /// Returns the number of rows that changed.
    pub(super) async fn execute(&self, sql: &str, params: Params<'_>) -> StoreResult<u64> {
        self.run(self.client().execute_typed(sql, params)).await
    }

    /// Commits. If the answer is lost, finds out whether the transaction was committed.
    pub(super) async fn commit(mut self) -> StoreResult<()> {
        // A full disk may have no room for the token, and must not keep anybody from deleting.
        let token = (!self.pool.is_full()).then(|| self.pool.next_token());
        let committed = commit_with_token(self.client(), token);
        let lost = match tokio::time::timeout(self.answer_timeout, committed).await {
            Ok(Ok(())) => {
                self.release();
                return Ok(());
            }
            Ok(Err(error)) if is_disconnect(&error) => store_error(&error),
            Ok(Err(error)) => return Err(self.pool.store_error(&error)),
            Err(_) => no_answer(self.answer_timeout),
        };
        drop(self.connection.take().map(Object::take));
        match token {
            Some(token) if token.is_committed(self.pool).await? => Ok(()),
            Some(_) | None => Err(lost),
        }
    }

    /// Commits what may be repeated if the answer is lost.
    pub(super) async fn commit_without_token(mut self) -> StoreResult<()> {
        self.run(self.client().batch_execute("COMMIT")).await?;
        self.release();
        Ok(())
    }

    /// Ends the transaction without changes.
    pub(super) async fn rollback(mut self) {
        let ended = tokio::time::timeout(ROLLBACK_TIMEOUT, self.client().batch_execute("ROLLBACK")).await;
        if matches!(ended, Ok(Ok(()))) {
            self.release();
        }
    }

    /// Returns the connection, which has no open transaction any more, to the pool.
    fn release(&mut self) {
        drop(self.connection.take());
    }
}

impl Drop for OpenTransaction<'_> {
    fn drop(&mut self) {
        drop(self.connection.take().map(Object::take));
    }
}

fn no_answer(limit: Duration) -> StoreError {
    StoreError::Unavailable(format!("the database did not answer in {} s", limit.as_secs()))
}

/// Whether the connection broke, so that the server may or may not have done what was asked. A server that shuts down or
/// crashes says so before it closes the connection.
pub(super) fn is_disconnect(error: &Error) -> bool {
    match error.code() {
        Some(code) => {
            [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN, SqlState::CANNOT_CONNECT_NOW].contains(code)
                || code.code().starts_with("08")
        }
        // A value that is too large to be sent is an invalid input.
        None => {
            let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
            error.is_closed() || source.is_some_and(|source| source.kind() != io::ErrorKind::InvalidInput)
        }
    }
}

/// Converts an error for the caller of a port.
pub(super) fn store_error(error: &Error) -> StoreError {
    match error.code() {
        Some(code) if *code == SqlState::DISK_FULL => StoreError::NoSpace,
        // A text with a NUL, which no column can hold: nothing has that name.
        Some(code) if *code == SqlState::CHARACTER_NOT_IN_REPERTOIRE => StoreError::ThreadNotFound,
        _ => StoreError::Unavailable(describe(error)),
    }
}

/// The error in one line, without parameters of the connection. What a server says is not trusted to be one.
pub(super) fn describe(error: &Error) -> String {
    let text = match (error.as_db_error(), error.source()) {
        (Some(database), _) => format!("{} (SQLSTATE {})", database.message(), database.code().code()),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    };
    text.split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// A column of a row, for callers of ports.
pub(super) fn column<'a, T: FromSql<'a>>(row: &'a Row, index: usize) -> StoreResult<T> {
    row.try_get(index).map_err(|error| store_error(&error))
}

/// A number that is stored as its signed twin.
pub(super) fn u64_column(row: &Row, index: usize) -> StoreResult<u64> {
    column::<i64>(row, index).map(i64::cast_unsigned)
}

pub(super) fn opt_u64_column(row: &Row, index: usize) -> StoreResult<Option<u64>> {
    column::<Option<i64>>(row, index).map(|number| number.map(i64::cast_unsigned))
}

/// A text that users chose, stored as bytes.
pub(super) fn bytes_text_column(row: &Row, index: usize) -> StoreResult<String> {
    column::<&[u8]>(row, index).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

pub(super) fn json_column<T: DeserializeOwned>(text: &str) -> StoreResult<T> {
    serde_json::from_str(text).map_err(|error| StoreError::Unavailable(format!("a stored value is damaged: {error}")))
}

pub(super) fn to_json<T: Serialize>(value: &T) -> StoreResult<String> {
    serde_json::to_string(value).map_err(|error| StoreError::Unavailable(error.to_string()))
}

/// The `LIMIT` of a page.
pub(super) fn limit_param(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
