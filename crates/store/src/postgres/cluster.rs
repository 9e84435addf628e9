//! What the nodes of a database tell each other: signals by NOTIFY, tails, orphaned threads, released threads.
//!
//! Signals and releases are gathered and sent by one task, at most every 10 ms, beside the appends: a transaction with a
//! NOTIFY takes a lock of the whole database. They are hints; who waits for a change polls as well. Behind a transaction pooler
//! there is no LISTEN, and polling is all there is.

use super::connection::{Params, column, u64_column};
use super::database_url::CONNECT_TIMEOUT;
use super::nodes::LeaseState;
use super::pool::DatabasePool;
use super::{DatabaseUrl, PostgresOpenError, PostgresStore, records};
use async_trait::async_trait;
use model::ports::{
    BoxFuture, Clock, Cluster, ClusterSignal, Lease, StoreError, StoreResult, TailPage, TailRequest, ThreadTag,
};
use model::seq::{Millis, Seq};
use model::{NodeId, ThreadId, UserId};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio_postgres::AsyncMessage;
use tokio_postgres::types::Type;

const CHANNEL: &str = "headwater";
/// The least time between two notifications of a node.
const RING_INTERVAL: Duration = Duration::from_millis(10);
/// A payload has at most 8,000 bytes; a signal takes nine.
const SIGNALS_PER_PAYLOAD: usize = 800;
/// Signals that wait for a slow database: beyond these, nodes find out by polling.
const SIGNALS_WAITING_MAX: usize = 65_536;
const LISTEN_RETRY: Duration = Duration::from_secs(1);
/// Records of one thread that a tail reads at once, and their approximate bytes: one query reads hundreds of threads.
const TAIL_RECORDS_MAX: i64 = 256;
const TAIL_BYTES_MAX: i64 = 64 * 1024;

/// The link of a node to the others.
#[derive(Debug)]
pub struct PostgresCluster {
    pool: DatabasePool,
    node: NodeId,
    lease: Arc<LeaseState>,
    outbox: Arc<Outbox>,
    received: tokio::sync::Mutex<mpsc::Receiver<Vec<ClusterSignal>>>,
    tasks: [JoinHandle<()>; 2],
}

/// What waits to be sent.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: Mutex<Waiting>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    signals: BTreeSet<ClusterSignal>,
    /// The epochs of threads that this node no longer needs.
    released: HashMap<ThreadId, i64>,
}

impl Outbox {
    pub(super) fn release(&self, thread: &ThreadId, lease: Lease) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.released.insert(thread.clone(), lease.epoch.0.cast_signed());
        drop(waiting);
        self.changed.notify_one();
    }

    fn ring(&self, signal: ClusterSignal) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.signals.len() < SIGNALS_WAITING_MAX {
            waiting.signals.insert(signal);
        }
        drop(waiting);
        self.changed.notify_one();
    }

    fn take(&self) -> Waiting {
        std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl PostgresCluster {
    /// Starts to send and to listen.
    ///
    /// # Errors
    /// When the URL's TLS settings cannot be used.
    pub fn start(store: &PostgresStore, url: &DatabaseUrl) -> Result<Self, PostgresOpenError> {
        // Connections of its own: what others read must not delay it.
        let pool = DatabasePool::new(url, 2, Arc::clone(&store.space))?;
        let (sender, receiver) = mpsc::channel(64);
        let (outbox, lease) = (Arc::clone(&store.outbox), Arc::clone(&store.lease_state()));
        let sending =
            tokio::spawn(send_signals(pool.clone(), store.node.clone(), Arc::clone(&outbox), Arc::clone(&lease)));
        let listening = tokio::spawn(listen(url.clone(), store.node.clone(), sender));
        let (node, received) = (store.node.clone(), tokio::sync::Mutex::new(receiver));
        Ok(Self { pool, node, lease, outbox, received, tasks: [sending, listening] })
    }
}

impl Drop for PostgresCluster {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// The time of the database, by this machine's clock and the offset that the last renewal measured.
impl Clock for PostgresCluster {
    fn now(&self) -> Millis {
        self.lease.database_time()
    }
}

#[async_trait]
impl Cluster for PostgresCluster {
    fn is_shared(&self) -> bool {
        true
    }

    fn ring(&self, signal: ClusterSignal) {
        if self.lease.has_other_nodes() {
            self.outbox.ring(signal);
        }
    }

    fn next_signals(&self) -> BoxFuture<'_, Vec<ClusterSignal>> {
        Box::pin(async {
            let received = self.received.lock().await.recv().await;
            match received {
                Some(signals) => signals,
                None => std::future::pending().await,
            }
        })
    }

    async fn read_tails(&self, tails: &[TailRequest]) -> StoreResult<Vec<TailPage>> {
        let ids: Vec<&str> = tails.iter().map(|tail| tail.thread.as_str()).collect();
        let after: Vec<i64> = tails.iter().map(|tail| i64::try_from(tail.after.0).unwrap_or(i64::MAX)).collect();
        let params: Params<'_> = &[
            (&ids, Type::TEXT_ARRAY),
            (&after, Type::INT8_ARRAY),
            (&TAIL_RECORDS_MAX, Type::INT8),
            (&TAIL_BYTES_MAX, Type::INT8),
        ];
        let rows = self.pool.query(READ_TAILS, params).await?;
        let mut pages: Vec<TailPage> = Vec::new();
        let mut next = Seq::ZERO;
        for row in &rows {
            let thread = ThreadId::from(column::<&str>(row, 9)?);
            if pages.last().is_none_or(|page| page.thread != thread) {
                next = Seq(u64_column(row, 10)?).next();
                let head = Seq(u64_column(row, 0)?);
                pages.push(TailPage { thread: thread.clone(), head, records: Vec::new() });
            }
            let Some(page) = pages.last_mut() else { continue };
            // A damaged, missing or archived record ends the page: viewers who read the log get it, or the error.
            if let Some(record) = records::decode_any_record(row)?
                && record.seq == next
                && record.has_valid_checksum(&thread)
            {
                next = next.next();
                page.records.push(record);
            }
        }
        Ok(pages)
    }

    async fn orphaned_threads(&self, now: Millis, limit: usize) -> StoreResult<Vec<(UserId, ThreadId)>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let params: Params<'_> = &[(&now.cast_signed(), Type::INT8), (&limit, Type::INT8)];
        let rows = self.pool.query(FIND_ORPHANS, params).await?;
        rows.iter().map(|row| Ok((column::<&str>(row, 0)?.into(), column::<&str>(row, 1)?.into()))).collect()
    }

    fn holds_leases(&self) -> bool {
        self.lease.is_valid()
    }

    async fn live_threads_elsewhere(&self, owner: &UserId, except: Option<&ThreadId>) -> StoreResult<usize> {
        if !self.lease.has_other_nodes() {
            return Ok(0);
        }
        let params: Params<'_> = &[
            (&owner.as_str(), Type::TEXT),
            (&self.node.as_str(), Type::TEXT),
            (&except.map(ThreadId::as_str), Type::TEXT),
        ];
        let row = self.pool.query_opt(COUNT_LIVE_ELSEWHERE, params).await?;
        row.map_or(Ok(0), |row| Ok(usize::try_from(u64_column(&row, 0)?).unwrap_or(usize::MAX)))
    }

    async fn take_requests(&self, owner: &UserId, requests: u32, per_minute: u32) -> StoreResult<bool> {
        if !self.lease.has_other_nodes() {
            return Ok(true);
        }
        let seconds = 60.0 * f64::from(requests) / f64::from(per_minute.max(1));
        let params: Params<'_> = &[(&owner.as_str(), Type::TEXT), (&seconds, Type::FLOAT8)];
        Ok(self.pool.execute(TAKE_REQUESTS, params).await? > 0)
    }
}

/// One row per thread without new records.
const READ_TAILS: &str = "
    SELECT t.head, p.seq, p.at, p.epoch, p.format, p.checksum, p.public, p.private, r.id, t.id, u.after
    FROM unnest($1, $2) AS u(id, after) JOIN headwater.threads t ON t.id = u.id
    LEFT JOIN LATERAL (
        SELECT *, sum(octet_length(public) + coalesce(octet_length(private), 0)) OVER (ORDER BY seq) AS bytes
        FROM (SELECT * FROM headwater.records WHERE thread = t.num AND seq > u.after ORDER BY seq LIMIT $3) first
    ) p ON p.bytes - octet_length(p.public) - coalesce(octet_length(p.private), 0) < $4
    LEFT JOIN headwater.runs r ON r.num = p.run
    ORDER BY t.num, p.seq";

/// Threads with work, or a wake-up that is due, that no node with a valid lease holds. Those that another node is claiming
/// are left out.
const FIND_ORPHANS: &str = "
    SELECT t.owner, t.id FROM headwater.threads t
    WHERE (t.num IN (SELECT thread FROM headwater.runs WHERE ended_at IS NULL AND status <> 'paused'
                     UNION SELECT thread FROM headwater.inbox)
           OR t.wake_at <= $1)
      AND NOT EXISTS (SELECT 1 FROM headwater.nodes n WHERE n.id = t.node AND n.lease_until > clock_timestamp())
    ORDER BY t.num LIMIT $2 FOR UPDATE OF t SKIP LOCKED";

const COUNT_LIVE_ELSEWHERE: &str = "
    SELECT count(*) FROM headwater.threads t JOIN headwater.nodes n ON n.id = t.node
    WHERE t.owner = $1 AND t.node IS NOT NULL AND t.node <> $2 AND n.lease_until > clock_timestamp()
      AND ($3::text IS NULL OR t.id <> $3)";

/// `full_at` is the time at which the user's allowance is full again: it may be at most a minute ahead.
const TAKE_REQUESTS: &str = "
    INSERT INTO headwater.request_allowances AS a VALUES ($1, clock_timestamp() + $2 * interval '1 s')
    ON CONFLICT (owner) DO UPDATE SET full_at = greatest(a.full_at, clock_timestamp()) + $2 * interval '1 s'
    WHERE greatest(a.full_at, clock_timestamp()) + $2 * interval '1 s' <= clock_timestamp() + interval '60 s'";

/// Locks the threads in the order in which appends do.
const RELEASE: &str = "
    WITH released AS (
        SELECT t.num FROM unnest($1, $2) AS u(id, epoch) JOIN headwater.threads t ON t.id = u.id
        WHERE t.epoch = u.epoch AND t.node = $3 ORDER BY t.num FOR UPDATE OF t
    )
    UPDATE headwater.threads t SET node = NULL FROM released r WHERE t.num = r.num";

/// Sends what waits, at most every [`RING_INTERVAL`].
async fn send_signals(pool: DatabasePool, node: NodeId, outbox: Arc<Outbox>, lease: Arc<LeaseState>) {
    loop {
        outbox.changed.notified().await;
        let Waiting { signals, released } = outbox.take();
        if let Err(error) = release_threads(&pool, &node, &released).await {
            tracing::debug!(%error, "threads stay claimed until the lease of this node ends");
        }
        if lease.has_other_nodes()
            && let Err(error) = notify_nodes(&pool, &node, &signals).await
        {
            tracing::debug!(%error, "a notification was not sent");
        }
        tokio::time::sleep(RING_INTERVAL).await;
    }
}

async fn release_threads(pool: &DatabasePool, node: &NodeId, released: &HashMap<ThreadId, i64>) -> StoreResult<()> {
    if released.is_empty() {
        return Ok(());
    }
    let (ids, epochs): (Vec<&str>, Vec<i64>) = released.iter().map(|(id, epoch)| (id.as_str(), *epoch)).unzip();
    let params: Params<'_> = &[(&ids, Type::TEXT_ARRAY), (&epochs, Type::INT8_ARRAY), (&node.as_str(), Type::TEXT)];
    pool.execute(RELEASE, params).await.map(drop)
}

async fn notify_nodes(pool: &DatabasePool, node: &NodeId, signals: &BTreeSet<ClusterSignal>) -> StoreResult<()> {
    let signals: Vec<ClusterSignal> = signals.iter().copied().collect();
    for group in signals.chunks(SIGNALS_PER_PAYLOAD) {
        let payload = encode_signals(node, group);
        let params: Params<'_> = &[(&CHANNEL, Type::TEXT), (&payload, Type::TEXT)];
        pool.query("SELECT pg_notify($1, $2)", params).await?;
    }
    Ok(())
}

/// The sender, then nine characters per signal.
fn encode_signals(node: &NodeId, signals: &[ClusterSignal]) -> String {
    let mut payload = format!("{node} ");
    for signal in signals {
        match signal {
            ClusterSignal::Records(ThreadTag(tag)) => payload.push_str(&format!("r{tag:08x}")),
            ClusterSignal::Inbox(ThreadTag(tag)) => payload.push_str(&format!("i{tag:08x}")),
            ClusterSignal::Credentials => payload.push_str("c00000000"),
        }
    }
    payload
}

/// The signals of a payload; `None` for the node's own. What a newer version sends is skipped.
fn decode_signals(node: &NodeId, payload: &str) -> Option<Vec<ClusterSignal>> {
    let (sender, text) = payload.split_once(' ')?;
    if sender == node.as_str() {
        return None;
    }
    let signals = text.as_bytes().chunks_exact(9).filter_map(|signal| {
        let (kind, tag) = signal.split_first()?;
        let tag = ThreadTag(u32::from_str_radix(std::str::from_utf8(tag).ok()?, 16).ok()?);
        match kind {
            b'r' => Some(ClusterSignal::Records(tag)),
            b'i' => Some(ClusterSignal::Inbox(tag)),
            b'c' => Some(ClusterSignal::Credentials),
            _ => None,
        }
    });
    Some(signals.collect())
}

/// Listens for as long as the node runs, and connects again when the connection breaks.
async fn listen(url: DatabaseUrl, node: NodeId, sender: mpsc::Sender<Vec<ClusterSignal>>) {
    loop {
        if let Err(error) = listen_once(&url, &node, &sender).await {
            tracing::debug!(%error, "no notifications of other nodes: changes are found by polling");
        }
        tokio::time::sleep(LISTEN_RETRY).await;
    }
}

async fn listen_once(
    url: &DatabaseUrl,
    node: &NodeId,
    sender: &mpsc::Sender<Vec<ClusterSignal>>,
) -> Result<(), StoreError> {
    let failed = |error: &dyn std::fmt::Display| StoreError::Unavailable(error.to_string());
    let tls = url.tls_connector().map_err(|error| failed(&error))?;
    let connecting = tokio::time::timeout(CONNECT_TIMEOUT, url.connect_config().connect(tls)).await;
    let connected = connecting.map_err(|_| failed(&"the database does not answer"))?;
    let (client, mut connection) = connected.map_err(|error| failed(&error))?;
    let listening =
        tokio::spawn(async move { client.batch_execute(&format!("LISTEN {CHANNEL}")).await.map(|()| client) });
    let result = loop {
        match std::future::poll_fn(|cx| connection.poll_message(cx)).await {
            Some(Ok(AsyncMessage::Notification(notification))) => {
                let signals = decode_signals(node, notification.payload());
                // A full queue means that the receiver is behind: it polls.
                if let Some(signals) = signals.filter(|signals| !signals.is_empty()) {
                    let _ = sender.try_send(signals);
                }
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => break Err(failed(&error)),
            None => break Ok(()),
        }
    };
    listening.abort();
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_of_other_nodes_arrive_and_unknown_ones_are_skipped() {
        let (mine, other) = (NodeId::from("node-1/a"), NodeId::from("node-2/b"));
        let signals = [
            ClusterSignal::Records(ThreadTag(7)),
            ClusterSignal::Inbox(ThreadTag(u32::MAX)),
            ClusterSignal::Credentials,
        ];
        let payload = encode_signals(&other, &signals);
        assert_eq!(decode_signals(&mine, &payload).as_deref(), Some(&signals[..]));
        assert_eq!(decode_signals(&other, &payload), None);
        assert_eq!(
            decode_signals(&mine, "node-2/b x00000001r00000002"),
            Some(vec![ClusterSignal::Records(ThreadTag(2))])
        );
        assert_eq!(decode_signals(&mine, "garbage"), None);
        let many = vec![ClusterSignal::Records(ThreadTag(u32::MAX)); SIGNALS_PER_PAYLOAD];
        assert!(encode_signals(&NodeId::from("n".repeat(128)), &many).len() < 8_000);
    }
}
