//! The log of every thread.

use super::{ApprovalRow, Checkpoint, Day, SpaceWatch, Spend, StoreResult};
use crate::event::{ApprovalDecision, Initiator};
use crate::id::{ApprovalKey, CallId, NodeId, TaskId, ThreadId, UserId};
use crate::record::Record;
use crate::seq::{Epoch, Millis, Seq};
use crate::task::TaskStatus;
use async_trait::async_trait;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// The log of every thread.
///
/// ```text
///   seq     1   2   3   4   5   6
///           ├───┴───┴───┤   ·   ·
///           durable     head    in flight
/// ```
///
/// 1. `append` assigns exactly the seqs that the caller asked for, starting after `head`, or changes nothing.
/// 2. When it returns [`AppendOutcome::Durable`], the records and the batch's changes to the [`super::Directory`]
///    survive a power cut: both are one transaction.
/// 3. A reader never sees a record that is not durable.
/// 4. A granted claim has a newer epoch than every earlier one, also across restarts, and an append with an older epoch
///    than the thread's newest is [`AppendOutcome::Fenced`].
/// 5. A store that several nodes share may refuse a claim while another node's lease is valid: [`ClaimOutcome::Held`]
///    names the node and the expiry and changes nothing, so the holder's appends continue to succeed. The caller
///    retries at the expiry. A store that one process opens always grants.
/// 6. A page contains the records after `after` without a gap, and is empty only at the head.
/// 7. A read returns the bytes that were written, or an error that names the damaged record; never a wrong record.
/// 8. A thread of another owner does not exist.
/// 9. An append for which there is no room is [`AppendOutcome::NoSpace`]: it changed nothing and may be repeated as it
///    is ([`SpaceWatch`]).
/// 10. A condensed page reads like a page, except that some of its records stand for several ([`crate::condense`]). None of
///     them reaches back to `after` or beyond `until`, and it is empty only at the head or at `until`.
///
/// `store_conformance` contains this law as tests; every backend runs them.
#[warn(missing_docs)]
#[async_trait]
pub trait Journal: SpaceWatch {
    /// Takes the thread over for this node: the previous holder can no longer append.
    async fn claim(&self, owner: &UserId, thread: &ThreadId, node: &NodeId) -> StoreResult<ClaimOutcome>;

    /// Gives a claimed thread back, so that another node may claim it at once, or the next start with its submission
    /// ([`super::Submitted::Claimed`]). The caller appends nothing with this lease any more. A hint: it may be lost, and does
    /// nothing when the lease is not the newest.
    fn release(&self, _thread: &ThreadId, _lease: Lease) {}

    /// Starts to append records and to change the directory, together or not at all, and calls back with the outcome.
    fn start_append(&self, batch: AppendBatch, on_commit: OnCommit);

    /// Like [`Self::start_append`], for a caller that waits. The append proceeds even if the future is dropped.
    fn append(&self, batch: AppendBatch) -> AwaitedOutcome {
        let awaited = AwaitedOutcome::default();
        self.start_append(batch, OnCommit::shared(Arc::clone(&awaited.0) as _));
        awaited
    }

    /// Reads the records after `after`.
    async fn read_page(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        after: Seq,
        limit: PageLimit,
    ) -> StoreResult<RecordPage>;

    /// Reads the records after `after` up to `until` in condensed form, for readers that need a state and no frames. Where a
    /// store has none, the records themselves.
    async fn read_condensed_page(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        after: Seq,
        until: Seq,
        limit: PageLimit,
    ) -> StoreResult<RecordPage> {
        let mut page = self.read_page(owner, thread, after, limit).await?;
        page.records.retain(|record| record.seq <= until);
        Ok(page)
    }
}

/// The right to append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The epoch that every append of the holder carries.
    pub epoch: Epoch,
    /// The last durable record.
    pub head: Seq,
}

/// The result of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimOutcome {
    /// The caller holds the thread.
    Granted(Lease),
    /// Another node holds the thread. Nothing changed.
    Held {
        node: NodeId,
        /// When its lease expires, unless it is renewed.
        until: Millis,
    },
}

impl ClaimOutcome {
    /// The lease, if the claim was granted.
    pub fn lease(self) -> Option<Lease> {
        match self {
            Self::Granted(lease) => Some(lease),
            Self::Held { .. } => None,
        }
    }
}

/// Records and changes that are appended in one transaction.
#[derive(Clone, Debug)]
pub struct AppendBatch {
    pub owner: UserId,
    pub thread: ThreadId,
    /// The epoch of the caller's lease.
    pub epoch: Epoch,
    /// The last record that the caller knows; the first new one follows it.
    pub head: Seq,
    /// The records. Empty when only the directory changes.
    pub records: Arc<[Record]>,
    /// Shared like the records: an append for which there is no room is repeated.
    pub changes: Arc<[DirectoryChange]>,
}

/// A change to the directory that is part of an append.
#[derive(Clone, Debug, PartialEq)]
pub enum DirectoryChange {
    /// A queued run starts, or a new one does (for a steering message that arrived after its run had ended).
    RunStarted { run: TaskId, agent: String, first: Seq, at: Millis },
    /// A run's state changes.
    RunStatus {
        run: TaskId,
        status: TaskStatus,
        /// The record that changed it.
        last: Seq,
        at: Millis,
    },
    /// A queued run is cancelled before it started.
    RunDropped { run: TaskId, at: Millis },
    /// An inbox row was handled.
    ConsumeInboxRow { row: u64 },
    /// Replaces the body of the thread's checkpoint and adds runs to it. A run with a known index replaces that one.
    Checkpoint(Checkpoint),
    /// Opens a question, or reopens it.
    ApprovalRequested(Box<ApprovalRow>),
    /// Closes a question. A submitted decision that this repeats stays unchanged.
    ApprovalResolved { key: ApprovalKey, decision: ApprovalDecision, by: Initiator, at: Millis },
    /// A call of a client tool has its result: a submitted one, or one that the run gave itself.
    ClientCallClosed { call: CallId },
    /// Adds to the owner's spending.
    AddSpend { day: Day, spent: Spend },
    /// Schedules the thread's wake-up, or removes it.
    ScheduleWakeup {
        /// When the thread has to be executed again, even with an empty inbox.
        at: Option<Millis>,
    },
}

/// The result of an append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppendOutcome {
    /// The batch survives a power cut.
    Durable,
    /// The caller's lease is not the newest. Nothing changed.
    Fenced,
    /// The batch does not fit the log, or there is no such thread. Nothing changed.
    Rejected(String),
    /// There is no room for it. Nothing changed, and the same batch may be appended again when there is.
    NoSpace,
    /// The batch may or may not be durable. The caller has to read the log before it continues.
    Unknown(String),
}

/// Is told the outcome of an append. The store calls it on its own thread, so it must be short.
pub trait CommitListener: Send + Sync {
    /// The append is done, one way or the other.
    fn on_commit(&self, outcome: &AppendOutcome);
}

impl<F: Fn(&AppendOutcome) + Send + Sync> CommitListener for F {
    fn on_commit(&self, outcome: &AppendOutcome) {
        self(outcome);
    }
}

/// Calls a [`CommitListener`] exactly once; if the store loses the append, with [`AppendOutcome::Unknown`].
pub struct OnCommit(Option<Arc<dyn CommitListener>>);

impl OnCommit {
    /// Wraps a callback.
    pub fn new(callback: impl Fn(&AppendOutcome) + Send + Sync + 'static) -> Self {
        Self::shared(Arc::new(callback))
    }

    /// Calls a listener that its owner also looks at.
    pub fn shared(listener: Arc<dyn CommitListener>) -> Self {
        Self(Some(listener))
    }

    /// Calls it with the outcome.
    pub fn call(mut self, outcome: &AppendOutcome) {
        if let Some(listener) = self.0.take() {
            listener.on_commit(outcome);
        }
    }
}

impl Drop for OnCommit {
    fn drop(&mut self) {
        if let Some(listener) = self.0.take() {
            listener.on_commit(&AppendOutcome::Unknown("the store lost the append".to_owned()));
        }
    }
}

/// The outcome of an append, as a future.
#[derive(Debug, Default)]
pub struct AwaitedOutcome(Arc<Mutex<OutcomeSlot>>);

#[derive(Debug, Default)]
struct OutcomeSlot {
    outcome: Option<AppendOutcome>,
    waker: Option<Waker>,
}

impl CommitListener for Mutex<OutcomeSlot> {
    fn on_commit(&self, outcome: &AppendOutcome) {
        let mut slot = self.lock().unwrap_or_else(PoisonError::into_inner);
        slot.outcome = Some(outcome.clone());
        let waker = slot.waker.take();
        drop(slot);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Future for AwaitedOutcome {
    type Output = AppendOutcome;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<AppendOutcome> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(outcome) = slot.outcome.take() {
            return Poll::Ready(outcome);
        }
        slot.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl std::fmt::Debug for OnCommit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnCommit")
    }
}

/// The maximum size of a page. A page has at least one record, even if it exceeds the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimit {
    pub records_max: usize,
    /// The approximate maximum number of bytes.
    pub bytes_max: usize,
}

impl PageLimit {
    /// One record.
    pub const ONE: Self = Self { records_max: 1, bytes_max: usize::MAX };
    /// For a reader of the entire log.
    pub const WIDE: Self = Self { records_max: 4096, bytes_max: 1024 * 1024 };
}

/// Consecutive records and the head of the log.
#[derive(Clone, Debug, Default)]
pub struct RecordPage {
    pub records: Vec<Record>,
    /// The last durable record when the page was read.
    pub head: Seq,
}

/// Why a store operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The thread is missing or belongs to another owner: callers cannot tell which.
    #[error("no such thread")]
    ThreadNotFound,
    /// Stored bytes differ from those that were written.
    #[error(
        "the log of {thread} is damaged at record {seq}: restore it from a backup; `headwater verify` lists all damage"
    )]
    Corrupt {
        thread: ThreadId,
        /// The first record that cannot be trusted.
        seq: Seq,
    },
    /// There is no room for new data. Nothing changed.
    #[error("the disk is full")]
    NoSpace,
    /// The disk or the database failed.
    #[error("the store is not available: {0}")]
    Unavailable(String),
}
