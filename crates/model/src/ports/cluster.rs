//! What the nodes that share a store tell each other.

use super::{BoxFuture, StoreResult};
use crate::id::{ThreadId, UserId};
use crate::record::Record;
use crate::seq::{Millis, Seq};
use async_trait::async_trait;
use std::future::pending;

/// The other nodes of a store.
///
/// 1. A signal is a hint: it may be lost, late, repeated, or meant for another thread. Who waits for a change therefore also
///    polls. Signals are sent in groups, beside the writes that they tell of.
/// 2. A signal is sent after what it tells of is durable, and not to the node that sends it.
/// 3. [`Cluster::holds_leases`] is false from the moment on at which another node may take this node's threads over.
#[warn(missing_docs)]
#[async_trait]
pub trait Cluster: Send + Sync {
    /// Whether there may be other nodes.
    fn is_shared(&self) -> bool;

    /// Tells the other nodes.
    fn ring(&self, signal: ClusterSignal);

    /// Waits for signals of other nodes. For a single caller.
    fn next_signals(&self) -> BoxFuture<'_, Vec<ClusterSignal>>;

    /// The next records of several threads and their heads, in any order. A thread that does not exist is missing.
    async fn read_tails(&self, tails: &[TailRequest]) -> StoreResult<Vec<TailPage>>;

    /// Threads with work, or a wake-up that is due at `now`, that no node holds.
    async fn orphaned_threads(&self, now: Millis, limit: usize) -> StoreResult<Vec<(UserId, ThreadId)>>;

    /// Whether this node's leases are valid for certain. A node that was stopped for long has to ask before it acts.
    fn holds_leases(&self) -> bool;

    /// The number of a user's threads that other nodes execute, apart from one.
    async fn live_threads_elsewhere(&self, owner: &UserId, except: Option<&ThreadId>) -> StoreResult<usize>;

    /// Takes requests out of a user's allowance, which all nodes share: `per_minute` at once, and then as many per minute.
    /// Returns false, and takes none, if there are fewer.
    async fn take_requests(&self, owner: &UserId, requests: u32, per_minute: u32) -> StoreResult<bool>;
}

/// What has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClusterSignal {
    /// A log has grown, or is deleted.
    Records(ThreadTag),
    /// An inbox has a new row.
    Inbox(ThreadTag),
    /// Access keys or shares have changed.
    Credentials,
}

/// A short name of a thread. Different threads may have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadTag(pub u32);

impl ThreadTag {
    /// The tag of a thread.
    pub fn new(thread: &ThreadId) -> Self {
        Self(crc32fast::hash(thread.as_str().as_bytes()))
    }
}

/// Where to go on in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TailRequest {
    pub thread: ThreadId,
    /// Only records after this one.
    pub after: Seq,
}

/// The next records of a log. There may be more, up to the head.
#[derive(Clone, Debug)]
pub struct TailPage {
    pub thread: ThreadId,
    pub head: Seq,
    pub records: Vec<Record>,
}

/// The only node of a store.
#[derive(Clone, Copy, Debug, Default)]
pub struct SingleNode;

#[async_trait]
impl Cluster for SingleNode {
    fn is_shared(&self) -> bool {
        false
    }

    fn ring(&self, _signal: ClusterSignal) {}

    fn next_signals(&self) -> BoxFuture<'_, Vec<ClusterSignal>> {
        Box::pin(pending())
    }

    async fn read_tails(&self, _tails: &[TailRequest]) -> StoreResult<Vec<TailPage>> {
        Ok(Vec::new())
    }

    async fn orphaned_threads(&self, _now: Millis, _limit: usize) -> StoreResult<Vec<(UserId, ThreadId)>> {
        Ok(Vec::new())
    }

    fn holds_leases(&self) -> bool {
        true
    }

    async fn live_threads_elsewhere(&self, _owner: &UserId, _except: Option<&ThreadId>) -> StoreResult<usize> {
        Ok(0)
    }

    async fn take_requests(&self, _owner: &UserId, _requests: u32, _per_minute: u32) -> StoreResult<bool> {
        Ok(true)
    }
}
