//! Inboxes and runs: commands to threads, and the state of the runs that they start.

use super::{ApprovalRow, Lease, ListPage, StoreError, StoreResult};
use crate::command::Command;
use crate::id::{CallId, TaskId, ThreadId, UserId};
use crate::seq::{Millis, Seq};
use crate::task::TaskStatus;
use async_trait::async_trait;

/// How many rows of an inbox are read and decoded at once.
pub const INBOX_PAGE_ROWS: usize = 64;

/// Queued commands of threads, and the runs that they started.
///
/// 1. [`InboxWriter::submit`] writes a command into its thread's inbox. A [`Command::Start`] also creates its run as
///    `queued`, and its thread with [`ThreadMode::CreateNew`]. If nobody executes the thread, the store may grant the submitter
///    a lease at once ([`Submitted::Claimed`]); that of a new thread it always grants.
/// 2. An idempotency key is bound to one body and one run by the same transaction. Submitting it again with that body
///    returns that run and changes nothing; another body is [`SubmitError::KeyReused`].
/// 3. Rows leave an inbox in the order in which they entered it, when an append consumes them
///    ([`super::DirectoryChange::ConsumeInboxRow`]).
/// 4. A run's row changes only together with the records that change the run ([`super::DirectoryChange`]).
/// 5. A submitted decision or result is checked against its question: see [`super::PendingQuestions`].
#[warn(missing_docs)]
#[async_trait]
pub trait Inbox: Send + Sync {
    /// The result that `submit` would return for a known key, without writing anything. `None` for a new key.
    async fn find_submission(
        &self,
        owner: &UserId,
        idempotency: &IdempotencyKey,
    ) -> Result<Option<Submitted>, SubmitError>;

    /// The oldest rows of a thread's inbox with larger ids than this one; zero is smaller than all. Rows become visible in the
    /// order of their ids, so who has seen one has seen all before it.
    async fn inbox_page(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        after: u64,
        rows_max: usize,
    ) -> StoreResult<Vec<InboxRow>>;

    /// All rows of a thread's inbox, oldest first.
    async fn inbox(&self, owner: &UserId, thread: &ThreadId) -> StoreResult<Vec<InboxRow>> {
        let (mut rows, mut after) = (Vec::new(), 0);
        loop {
            let page = self.inbox_page(owner, thread, after, INBOX_PAGE_ROWS).await?;
            let is_last = page.len() < INBOX_PAGE_ROWS;
            after = page.last().map_or(after, |row| row.id);
            rows.extend(page);
            if is_last {
                return Ok(rows);
            }
        }
    }

    /// Threads of all owners that an executor should claim: those with a run that is neither terminal nor paused, or
    /// with a non-empty inbox.
    async fn claimable_threads(&self) -> StoreResult<Vec<(UserId, ThreadId)>>;

    /// Threads of all owners with a scheduled wake-up ([`super::DirectoryChange::ScheduleWakeup`]), the earliest first.
    async fn scheduled_wakeups(&self) -> StoreResult<Vec<ScheduledWakeup>>;

    /// A user's runs. Those of unlisted threads ([`ThreadId::unlisted`]) only if the filter names the thread.
    async fn runs(&self, owner: &UserId, filter: RunFilter, page: ListPage) -> StoreResult<Vec<RunRow>>;

    /// One run.
    async fn run(&self, owner: &UserId, run: &TaskId) -> StoreResult<Option<RunRow>>;

    /// The newest checkpoint of a thread. It is a cache: without one, folding the log gives the same state more slowly.
    async fn checkpoint(&self, owner: &UserId, thread: &ThreadId) -> StoreResult<Option<Checkpoint>>;
}

/// Writes to inboxes. The law is [`Inbox`]'s.
#[warn(missing_docs)]
#[async_trait]
pub trait InboxWriter: Send + Sync {
    /// Writes a command into its thread's inbox.
    async fn submit(&self, owner: &UserId, submission: Submission) -> Result<Submitted, SubmitError>;
}

/// A command to be written into an inbox.
#[derive(Clone, Debug, PartialEq)]
pub struct Submission {
    pub thread: ThreadId,
    /// Whether the thread has to exist or is created.
    pub thread_mode: ThreadMode,
    pub at: Millis,
    pub command: Command,
    pub idempotency_key: Option<IdempotencyKey>,
    /// For an answer to sub-agents: the tasks that asked, and all above them. A cancel of one of them, or of the run, that
    /// waits in the inbox has closed the question.
    pub task_path: Vec<TaskId>,
}

/// What a submission expects of its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadMode {
    MustExist,
    /// The submission creates the thread and fails if it exists. Only a [`Command::Start`] can.
    CreateNew,
}

/// A client's idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The key, qualified by its route.
    pub key: String,
    /// The digest of the request body.
    pub request_digest: String,
}

/// The result of a submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// The command is in the inbox.
    Queued,
    /// The command is the only row of its thread's inbox, and nobody else executes the thread: the caller holds its newest
    /// lease. So it is with a thread that the command created, and, if the store can tell, with one that its last executor has
    /// released ([`super::Journal::release`]).
    Claimed { lease: Lease, row: u64 },
    /// An earlier submission was the same.
    Duplicate {
        /// The run of the first submission.
        task: TaskId,
        thread: ThreadId,
    },
}

/// Why a submission was refused. Nothing was written.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SubmitError {
    /// The idempotency key was used with another body.
    #[error("this Idempotency-Key was used with another request: use a new key for a new request")]
    KeyReused,
    /// The thread to be created exists and belongs to the caller.
    #[error("there is a thread of this name already")]
    ThreadExists,
    /// The question has a different answer already.
    #[error("this was decided before")]
    AlreadyDecided(Box<ApprovalRow>),
    /// The call has another result, or none is wanted any more.
    #[error("the run does not wait for a result of `{0}`")]
    CallClosed(CallId),
    /// There is no such question.
    #[error("there is no such question")]
    ApprovalNotFound,
    /// The inbox is full.
    #[error("{0} commands wait for this thread already: let it work some off, or use another thread")]
    InboxFull(usize),
    /// The user's log is full: no run starts, and none gets more input. Answers and cancels are accepted.
    #[error("your conversations hold {used} bytes, and may hold {max}: delete some of them to go on")]
    LogQuotaExceeded { used: u64, max: u64 },
    /// The executor does not resume the thread any more, because that crashed it each time. It can be read and deleted.
    #[error("the server failed each time that it resumed this thread: start a new thread, or delete this one")]
    ThreadParked,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A row of an inbox.
#[derive(Clone, Debug, PartialEq)]
pub struct InboxRow {
    /// Unique in the store, and increasing.
    pub id: u64,
    pub at: Millis,
    pub command: Command,
}

/// A thread with a scheduled wake-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduledWakeup {
    pub owner: UserId,
    pub thread: ThreadId,
    pub at: Millis,
}

/// A serialized `ThreadFold`. The runs are apart from the rest, because a run that has ended does not change: the end of
/// a run replaces a small body and adds one row, however long the thread is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The last record that the fold includes.
    pub seq: Seq,
    /// The fold without its runs, as JSON. Older versions stored the runs here.
    pub body: String,
    /// In a change the runs to add; in the directory all of them, oldest first.
    pub runs: Vec<CheckpointRun>,
}

/// A run in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointRun {
    /// Its place among the runs of its thread, from 0.
    pub index: u64,
    /// The run as JSON.
    pub body: String,
}

/// Selects runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Only runs with one of these states; empty selects all.
    pub status: Vec<TaskStatus>,
    pub thread: Option<ThreadId>,
}

/// A run's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRow {
    /// The run's id: that of its root task.
    pub id: TaskId,
    pub thread: ThreadId,
    pub agent: String,
    pub status: TaskStatus,
    /// Its first record, once it has started.
    pub first_seq: Option<Seq>,
    /// The newest record that changed its state.
    pub last_seq: Option<Seq>,
    pub created_at: Millis,
    pub ended_at: Option<Millis>,
}
