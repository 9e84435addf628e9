//! Whether a commit took place whose answer was lost.
//!
//! A connection may break between a COMMIT and its answer. The server's transaction ids cannot tell the outcome: after a
//! crash it gives out again those of transactions that it has forgotten. Therefore every transaction inserts a token of its
//! own right before its COMMIT. Who looks a commit up inserts the same token, marked as void: the unique index makes that wait
//! while the transaction is in progress, and fails a transaction whose last statements are still on their way.

use super::connection::{OpenTransaction, Params, column};
use super::pool::DatabasePool;
use futures_util::future::join;
use model::ports::{StoreError, StoreResult};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

/// How long a lost commit is looked up before the caller gets an error.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(8);
const LOOKUP_INTERVAL: Duration = Duration::from_millis(200);
/// Far longer than a lookup, in case that the process is stopped meanwhile.
const TOKEN_TTL: Duration = Duration::from_secs(600);
const EXPIRE_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of tokens that one deletion removes.
const EXPIRE_MAX: i64 = 50_000;

const INSERT: &str = "INSERT INTO headwater.commit_tokens (source, number) VALUES ($1, $2)";
const INSERT_VOID: &str =
    "INSERT INTO headwater.commit_tokens (source, number, is_void) VALUES ($1, $2, true) ON CONFLICT DO NOTHING";
const IS_VOID: &str = "SELECT is_void FROM headwater.commit_tokens WHERE source = $1 AND number = $2";

/// Makes tokens.
#[derive(Debug)]
pub(super) struct TokenSource {
    /// Random.
    source: i64,
    next: AtomicI64,
}

impl TokenSource {
    pub(super) fn new() -> Self {
        Self { source: RandomState::new().hash_one("token source").cast_signed(), next: AtomicI64::new(0) }
    }

    pub(super) fn next(&self) -> CommitToken {
        CommitToken { source: self.source, number: self.next.fetch_add(1, Ordering::Relaxed), created: Instant::now() }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct CommitToken {
    source: i64,
    number: i64,
    created: Instant,
}

/// Commits, in one round trip.
pub(super) async fn commit_with_token(client: &Client, token: Option<CommitToken>) -> Result<(), Error> {
    let insert = async {
        let Some(CommitToken { source, number, .. }) = token else { return Ok(0) };
        client.execute_typed(INSERT, &[(&source, Type::INT8), (&number, Type::INT8)]).await
    };
    let (inserted, committed) = join(insert, client.batch_execute("COMMIT")).await;
    // After an error the commit is a rollback, and succeeds.
    inserted.and(committed)
}

impl CommitToken {
    /// Asks whether the transaction with this token was committed. If not, it cannot be any more.
    ///
    /// # Errors
    /// When the database does not answer in time.
    pub(super) async fn is_committed(self, pool: &DatabasePool) -> StoreResult<bool> {
        let unknown =
            |why: &str| StoreError::Unavailable(format!("it is not known whether the change was made: {why}"));
        let lookup = async {
            loop {
                match self.void_or_find(pool).await {
                    Ok(is_committed) => return is_committed,
                    // The server is not reachable, or the transaction is still in progress.
                    Err(error) => tracing::debug!(%error, "a lost commit is looked up"),
                }
                tokio::time::sleep(LOOKUP_INTERVAL).await;
            }
        };
        let found = tokio::time::timeout(LOOKUP_TIMEOUT, lookup).await;
        match found {
            Ok(_) if self.created.elapsed() > TOKEN_TTL / 2 => Err(unknown("this process was stopped meanwhile")),
            Ok(is_committed) => Ok(is_committed),
            Err(_) => Err(unknown("the connection to the database broke, and it does not come back")),
        }
    }

    /// Voids the token, or returns true if its transaction was committed.
    async fn void_or_find(self, pool: &DatabasePool) -> StoreResult<bool> {
        let tx = OpenTransaction::begin(pool).await?;
        let params: Params<'_> = &[(&self.source, Type::INT8), (&self.number, Type::INT8)];
        tx.execute(INSERT_VOID, params).await?;
        // An earlier lookup may have voided it without having been told.
        let is_void: bool = column(&tx.query_one(IS_VOID, params).await?, 0)?;
        tx.commit_without_token().await?;
        Ok(!is_void)
    }
}

/// Deletes old tokens from time to time.
pub(super) async fn expire_tokens(pool: DatabasePool) {
    let sql = "DELETE FROM headwater.commit_tokens WHERE ctid IN
               (SELECT ctid FROM headwater.commit_tokens WHERE at < clock_timestamp() - $1 * interval '1 s'
                LIMIT $2 FOR UPDATE SKIP LOCKED)";
    loop {
        tokio::time::sleep(EXPIRE_INTERVAL).await;
        let params: Params<'_> = &[(&TOKEN_TTL.as_secs_f64(), Type::FLOAT8), (&EXPIRE_MAX, Type::INT8)];
        if let Err(error) = pool.execute(sql, params).await {
            tracing::debug!(%error, "old commit tokens stay for now");
        }
    }
}
