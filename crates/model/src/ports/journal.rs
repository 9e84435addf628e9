//! The log of every thread.

use super::{BoxFuture, DirectoryChange};
use crate::id::{NodeId, ThreadId, UserId};
use crate::record::Record;
use crate::seq::{Epoch, Seq};
use std::sync::Arc;

/// The log of every thread.
///
/// ```text
///   seq     1   2   3   4   5   6
///           ├───┴───┴───┤   ·   ·
///           durable     head    in flight
/// ```
///
/// 1. `append` gives exactly the seqs that the caller asked for, from `head` on, or changes nothing.
/// 2. When it returns [`Verdict::Durable`] the records survive a power cut, and so do the batch's changes to the
///    [`super::Directory`]: both were one transaction.
/// 3. A reader never sees a record that is not durable.
/// 4. An append with an epoch other than the thread's newest is [`Verdict::Fenced`], and `claim` gives a newer epoch
///    than any before it, also across restarts.
/// 5. A page has the records after `after` without a gap, and is empty only at the head.
/// 6. Records come back with the bytes with which they went in. Bytes that changed are an error that names the record,
///    never a wrong record.
/// 7. A thread of another owner does not exist.
///
/// `store::conformance` is this contract as tests; every backend runs it.
pub trait Journal: Send + Sync {
    /// Takes the thread over: whoever held it before can no longer append.
    fn claim<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
        node: &'a NodeId,
    ) -> BoxFuture<'a, Result<Lease, StoreError>>;

    /// Logs records and changes the directory, together or not at all.
    fn append(&self, batch: AppendBatch) -> BoxFuture<'_, AppendOutcome> {
        self.append_with_callback(batch, OnCommit::default())
    }

    /// The same for somebody who has something to do with the verdict at once and nothing to wait for: the append goes its
    /// way and `landed` hears of it, whether the future is polled or not.
    fn append_with_callback(&self, batch: AppendBatch, landed: OnCommit) -> BoxFuture<'_, AppendOutcome>;

    /// Reads on from `after`.
    fn read_page<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
        after: Seq,
        limit: PageLimit,
    ) -> BoxFuture<'a, Result<RecordPage, StoreError>>;
}

/// The right to append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The term.
    pub epoch: Epoch,
    /// The last durable record.
    pub head: Seq,
}

/// What is appended at once.
#[derive(Clone, Debug)]
pub struct AppendBatch {
    /// Whose thread it is.
    pub owner: UserId,
    /// Which.
    pub thread: ThreadId,
    /// The appender's term.
    pub epoch: Epoch,
    /// The last record that the appender knows; the first new one is the next.
    pub head: Seq,
    /// The records. May be empty, when only the directory changes.
    pub records: Arc<[Record]>,
    /// What changes in the directory with them.
    pub changes: Vec<DirectoryChange>,
}

/// What became of an append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppendOutcome {
    /// It survives a power cut.
    Durable,
    /// Somebody else holds the thread. Nothing changed.
    Fenced,
    /// It does not fit the log or the thread is gone. Nothing changed.
    Rejected(String),
    /// Nobody knows. Read back before anything else.
    Unknown(String),
}

/// What is to be done with a verdict, wherever it becomes known: on the store's own thread, so it must be short. It is
/// done exactly once; when the store lost the append, with [`Verdict::Unknown`].
#[derive(Default)]
pub struct OnCommit(Option<CommitCallback>);

type CommitCallback = Box<dyn FnOnce(&AppendOutcome) + Send>;

impl OnCommit {
    /// Does this.
    pub fn new(then: impl FnOnce(&AppendOutcome) + Send + 'static) -> Self {
        Self(Some(Box::new(then)))
    }

    /// The verdict is known.
    pub fn call(mut self, verdict: &AppendOutcome) {
        if let Some(then) = self.0.take() {
            then(verdict);
        }
    }
}

impl Drop for OnCommit {
    fn drop(&mut self) {
        if let Some(then) = self.0.take() {
            then(&AppendOutcome::Unknown("the store lost the append".to_owned()));
        }
    }
}

impl std::fmt::Debug for OnCommit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Landed")
    }
}

/// How much a page may hold. At least one record comes, however large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimit {
    /// At most so many records.
    pub records_max: usize,
    /// And about so many bytes.
    pub bytes_max: usize,
}

impl PageLimit {
    /// One record.
    pub const ONE: Self = Self { records_max: 1, bytes_max: usize::MAX };
    /// A page for somebody who reads everything.
    pub const WIDE: Self = Self { records_max: 4096, bytes_max: 1024 * 1024 };
}

/// Some records and where the log ends.
#[derive(Clone, Debug, Default)]
pub struct RecordPage {
    /// The records after the asked-for place.
    pub records: Vec<Record>,
    /// The last durable record when the page was read.
    pub head: Seq,
}

/// Why the store could not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Missing, or of another owner: to the caller that is the same.
    #[error("no such thread")]
    ThreadNotFound,
    /// Stored bytes are not those that were written.
    #[error(
        "the log of {thread} is damaged at record {seq}: restore it from a backup; `headwater verify` lists all damage"
    )]
    Corrupt {
        /// The thread.
        thread: ThreadId,
        /// The first record that cannot be trusted.
        seq: Seq,
    },
    /// The disk or the database refuses.
    #[error("the store is not available: {0}")]
    Unavailable(String),
}
