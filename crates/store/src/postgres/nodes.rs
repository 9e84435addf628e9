//! This node's lease. It covers every thread that the node holds, so renewing it is one statement, however many there are.
//!
//! All times are the database's: a node's own clock does not matter.

use super::PostgresOptions;
use super::connection::{OpenTransaction, Params, column, u64_column};
use super::pool::DatabasePool;
use model::defects::Defect;
use model::ports::{ClaimOutcome, Lease, StoreError, StoreResult};
use model::seq::{Epoch, Millis, Seq};
use model::{NodeId, ThreadId, UserId};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio_postgres::types::Type;

/// A lease is renewed this many times before it would expire.
const RENEWALS_PER_LEASE: u32 = 3;
/// How often a renewal that failed is tried again in the time of a lease.
const RETRIES_PER_LEASE: u32 = 20;
/// Nodes that have not been heard of for this long are removed.
const FORGET_NODES_AFTER: &str = "1 day";

/// Also returns the database's time and the number of nodes.
const RENEW: &str = "
    INSERT INTO headwater.nodes VALUES ($1, $2, clock_timestamp(), clock_timestamp() + $3 * interval '1 ms', $4, $5)
    ON CONFLICT (id) DO UPDATE SET host = excluded.host, lease_until = excluded.lease_until
    RETURNING (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
              (SELECT count(*) FROM headwater.nodes WHERE lease_until > clock_timestamp() AND id <> $1)";

/// What the last renewal told.
#[derive(Debug)]
pub(super) struct LeaseState {
    /// Until then no other node takes this node's threads over.
    valid_until: Mutex<Instant>,
    /// The database's time at a moment of the monotonic clock: this machine's wall clock may be set at any time.
    measured: Mutex<(Millis, Instant)>,
    other_nodes: AtomicU64,
}

impl LeaseState {
    pub(super) fn is_valid(&self) -> bool {
        Instant::now() < *self.valid_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time of the database, as far as it is known.
    pub(super) fn database_time(&self) -> Millis {
        let (time, at) = *self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        time.saturating_add(u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn has_other_nodes(&self) -> bool {
        self.other_nodes.load(Ordering::Relaxed) > 0
    }
}

/// Renews the node's lease until it is dropped.
#[derive(Debug)]
pub(super) struct NodeLease {
    pool: DatabasePool,
    node: NodeId,
    pub(super) state: Arc<LeaseState>,
    renewal: JoinHandle<()>,
}

impl NodeLease {
    /// The pool is the lease's own, so that operations that wait for connections do not let it expire.
    pub(super) async fn register(pool: DatabasePool, options: &PostgresOptions) -> StoreResult<Self> {
        let (node, lease) = (options.node.clone(), options.lease);
        if let Some(predecessors) = &options.predecessors {
            let sql = "DELETE FROM headwater.nodes WHERE starts_with(id, $1)";
            pool.execute(sql, &[(predecessors, Type::TEXT)]).await?;
        }
        let sql = format!(
            "DELETE FROM headwater.nodes WHERE lease_until < clock_timestamp() - interval '{FORGET_NODES_AFTER}'"
        );
        pool.execute(&sql, &[]).await?;
        let state = Arc::new(LeaseState {
            valid_until: Mutex::new(Instant::now()),
            // The first renewal, which follows, measures it.
            measured: Mutex::new((0, Instant::now())),
            other_nodes: AtomicU64::new(0),
        });
        let renewal = Renewal { pool: pool.clone(), options: options.clone(), state: Arc::clone(&state) };
        renewal.renew().await?;
        let renewal = tokio::spawn(renewal.run(lease));
        Ok(Self { pool, node, state, renewal })
    }

    /// Ends the lease, so that other nodes need not wait for it to expire.
    pub(super) async fn give_up(&self) {
        self.renewal.abort();
        let sql = "DELETE FROM headwater.nodes WHERE id = $1";
        if let Err(error) = self.pool.execute(sql, &[(&self.node.as_str(), Type::TEXT)]).await {
            tracing::warn!(%error, "the node's lease stays until it expires");
        }
    }
}

impl Drop for NodeLease {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

/// What renews the lease of a node.
struct Renewal {
    pool: DatabasePool,
    options: PostgresOptions,
    state: Arc<LeaseState>,
}

impl Renewal {
    async fn run(self, lease: Duration) {
        let interval = lease / RENEWALS_PER_LEASE;
        let (mut delay, mut is_failing) = (interval, false);
        loop {
            tokio::time::sleep(delay).await;
            let renewed = tokio::time::timeout(interval, self.renew()).await;
            let no_answer = |_| Err(StoreError::Unavailable("the database does not answer".to_owned()));
            delay = match renewed.unwrap_or_else(no_answer) {
                Ok(()) => {
                    if std::mem::take(&mut is_failing) {
                        tracing::info!("the database is back: the node's lease is renewed");
                    }
                    interval
                }
                Err(error) => {
                    if !std::mem::replace(&mut is_failing, true) {
                        tracing::warn!(%error, "the database cannot be used: the node's lease is not renewed");
                    }
                    lease / RETRIES_PER_LEASE
                }
            };
        }
    }

    /// The lease counts from before the request: the database may have been slow to answer.
    async fn renew(&self) -> StoreResult<()> {
        let Self { pool, options: PostgresOptions { node, host, lease, agents, archive, .. }, state } = self;
        let lease_ms = f64::from(u32::try_from(lease.as_millis()).unwrap_or(u32::MAX));
        let params: Params<'_> = &[
            (&node.as_str(), Type::TEXT),
            (host, Type::TEXT),
            (&lease_ms, Type::FLOAT8),
            (agents, Type::TEXT_ARRAY),
            (&archive.is_some(), Type::BOOL),
        ];
        let begun = Instant::now();
        let tx = OpenTransaction::begin(pool).await?;
        let asked = Instant::now();
        let row = tx.query_one(RENEW, params).await?;
        let middle = asked + asked.elapsed() / 2;
        let (database_time, other_nodes): (i64, i64) = (column(&row, 0)?, column(&row, 1)?);
        tx.commit().await?;
        *state.measured.lock().unwrap_or_else(PoisonError::into_inner) = (database_time.cast_unsigned(), middle);
        state.other_nodes.store(other_nodes.cast_unsigned(), Ordering::Relaxed);
        *state.valid_until.lock().unwrap_or_else(PoisonError::into_inner) = begun + *lease;
        Ok(())
    }
}

/// Nodes that have the same agents, and not those of this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DifferingNodes {
    pub hosts: Vec<String>,
    pub agents: Vec<String>,
}

/// The other nodes that live and have other agents.
pub(super) async fn differing_nodes(pool: &DatabasePool, node: &NodeId) -> StoreResult<Vec<DifferingNodes>> {
    let sql =
        "SELECT array_agg(DISTINCT n.host), n.agents FROM headwater.nodes n JOIN headwater.nodes own ON own.id = $1
               WHERE n.agents <> own.agents AND n.lease_until > clock_timestamp() GROUP BY n.agents ORDER BY n.agents";
    let rows = pool.query(sql, &[(&node.as_str(), Type::TEXT)]).await?;
    rows.iter().map(|row| Ok(DifferingNodes { hosts: column(row, 0)?, agents: column(row, 1)? })).collect()
}

/// Takes a thread over unless another node with a valid lease holds it.
pub(super) async fn claim_thread(
    pool: &DatabasePool,
    owner: &UserId,
    thread: &ThreadId,
    node: &NodeId,
) -> StoreResult<ClaimOutcome> {
    let tx = OpenTransaction::begin(pool).await?;
    let outcome = claim_in(&tx, owner, thread, node).await;
    match &outcome {
        Ok(ClaimOutcome::Granted(_)) => tx.commit().await?,
        Ok(ClaimOutcome::Held { .. }) | Err(_) => tx.rollback().await,
    }
    outcome
}

async fn claim_in(
    tx: &OpenTransaction<'_>,
    owner: &UserId,
    thread: &ThreadId,
    node: &NodeId,
) -> StoreResult<ClaimOutcome> {
    let sql = "SELECT num, node FROM headwater.threads WHERE id = $1 AND owner = $2 FOR UPDATE";
    let found = tx.query_opt(sql, &[(&thread.as_str(), Type::TEXT), (&owner.as_str(), Type::TEXT)]).await?;
    let row = found.ok_or(StoreError::ThreadNotFound)?;
    let (num, holder): (i64, Option<&str>) = (column(&row, 0)?, column(&row, 1)?);
    if let Some(holder) = holder.filter(|holder| *holder != node.as_str() && !Defect::ClaimIgnoresLease.is_planted()) {
        let sql = "SELECT (extract(epoch FROM lease_until) * 1000)::bigint FROM headwater.nodes
                   WHERE id = $1 AND lease_until > clock_timestamp()";
        if let Some(row) = tx.query_opt(sql, &[(&holder, Type::TEXT)]).await? {
            return Ok(ClaimOutcome::Held { node: NodeId::from(holder), until: u64_column(&row, 0)? });
        }
    }
    let sql = "UPDATE headwater.threads SET node = $2, epoch = nextval('headwater.epochs') WHERE num = $1
               RETURNING epoch, head";
    let row = tx.query_one(sql, &[(&num, Type::INT8), (&node.as_str(), Type::TEXT)]).await?;
    let (epoch, head) = (Epoch(u64_column(&row, 0)?), Seq(u64_column(&row, 1)?));
    Ok(ClaimOutcome::Granted(Lease { epoch, head }))
}
