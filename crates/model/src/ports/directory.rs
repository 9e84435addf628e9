//! What there is, and what waits to be done: threads, runs, inboxes, keys.

use super::{Attachments, BoxFuture, Lease, ShareRow, StoreError};
use crate::command::Command;
use crate::event::{ActionRequest, ApprovalDecision, Initiator};
use crate::id::{ApprovalKey, CallId, TaskId, ThreadId, UserId};
use crate::limits::CostMicros;
use crate::seq::{Millis, Seq};
use crate::task::TaskStatus;
use crate::usage::Usage;
use serde::{Deserialize, Serialize};

/// Threads, runs, inboxes and keys: the rows beside the log. Those of files have a law of their own ([`Attachments`]).
///
/// 1. `submit` writes a command into its thread's inbox; when it returns, the row survives a power cut. A [`Command::Start`]
///    also makes its run (`queued`), and its thread where that is new; who made a thread has claimed it by that.
/// 2. An idempotency key is bound to one body and one run by the same transaction: submitted again with that body it
///    gives that run and changes nothing, with another it is [`SubmitError::KeyReused`].
/// 3. Rows come out of an inbox in the order in which they went in, until an append consumes them ([`Change::Consume`]).
/// 4. A run's row changes only with the records that change the run ([`Change`]).
/// 5. What belongs to another owner does not exist.
/// 6. A question to a person is open from the records that ask it ([`Change::Asked`]) until a submitted decision or the
///    records that close it ([`Change::Answered`]). The decision that comes first is written with the row that carries it,
///    be it a person's or the clock's: the same one again is [`Submitted::Repeated`], another one [`SubmitError::Decided`],
///    and one to a question that is not there [`SubmitError::NoQuestion`]; none of these writes a row.
///    From a question's moment on no person decides it, also before the clock has; the clock finds room in any inbox.
///    Records have the last word: a run that was cancelled did not do what somebody said meanwhile.
/// 7. Listings are newest first, which the names tell by themselves (they begin with their time); so a place in one stays
///    good whatever is deleted meanwhile. Questions stand in the order in which they were asked: a place among them stays
///    good whatever is answered, and one that was deleted with its thread is no place, so that the listing begins anew.
/// 8. A name of a thread is its owner's and its protocol's, and belongs to whoever gave it first: who gives it again learns
///    what it stands for. What a call changed of it survives a power cut. A name may be older than its thread, and goes
///    with it.
/// 9. A share is its thread's and goes with it. Its owner alone lists it and takes it back, once and for all.
///
/// `store::conformance` is this contract as tests; every backend runs it.
pub trait Directory: Attachments {
    /// Writes a command down.
    fn submit<'a>(&'a self, owner: &'a UserId, submission: Submission)
    -> BoxFuture<'a, Result<Submitted, SubmitError>>;

    /// What was submitted with this key, if anything was: what `submit` would say, and nothing is changed. For those who
    /// must know before they look at anything that has moved on since.
    fn find_submission<'a>(
        &'a self,
        owner: &'a UserId,
        idempotency: &'a IdempotencyKey,
    ) -> BoxFuture<'a, Result<Option<Submitted>, SubmitError>>;

    /// What waits for a thread's executor, oldest first.
    fn inbox<'a>(&'a self, owner: &'a UserId, thread: &'a ThreadId)
    -> BoxFuture<'a, Result<Vec<InboxRow>, StoreError>>;

    /// Threads that an executor should take up: a run that has not ended and is not paused, or an inbox that is not
    /// empty. For the engine alone, hence of all owners.
    fn claimable_threads(&self) -> BoxFuture<'_, Result<Vec<(UserId, ThreadId)>, StoreError>>;

    /// A user's threads.
    fn threads<'a>(&'a self, owner: &'a UserId, page: ListPage) -> BoxFuture<'a, Result<Vec<ThreadRow>, StoreError>>;

    /// One of them.
    fn thread<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
    ) -> BoxFuture<'a, Result<Option<ThreadRow>, StoreError>>;

    /// Removes a thread with everything in it. False when there is none.
    fn delete_thread<'a>(&'a self, owner: &'a UserId, thread: &'a ThreadId) -> BoxFuture<'a, Result<bool, StoreError>>;

    /// A user's runs.
    fn runs<'a>(
        &'a self,
        owner: &'a UserId,
        filter: RunFilter,
        page: ListPage,
    ) -> BoxFuture<'a, Result<Vec<RunRow>, StoreError>>;

    /// One of them.
    fn run<'a>(&'a self, owner: &'a UserId, run: &'a TaskId) -> BoxFuture<'a, Result<Option<RunRow>, StoreError>>;

    /// The newest checkpoint of a thread, if there is any. A cache: without it the same comes out, later.
    fn checkpoint<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
    ) -> BoxFuture<'a, Result<Option<Checkpoint>, StoreError>>;

    /// A user's questions, those that wait for an answer or all.
    fn approvals<'a>(
        &'a self,
        owner: &'a UserId,
        pending: bool,
        page: ListPage,
    ) -> BoxFuture<'a, Result<Vec<ApprovalRow>, StoreError>>;

    /// One of them.
    fn approval<'a>(
        &'a self,
        owner: &'a UserId,
        key: &'a ApprovalKey,
    ) -> BoxFuture<'a, Result<Option<ApprovalRow>, StoreError>>;

    /// What a user has spent on a day, also in threads that are gone since.
    fn daily_spend<'a>(&'a self, owner: &'a UserId, day: Day) -> BoxFuture<'a, Result<Spend, StoreError>>;

    /// Threads that nobody need execute before a moment ([`Change::Wake`]), with that moment, the soonest first. For the
    /// engine alone, hence of all owners.
    fn scheduled_wakeups(&self) -> BoxFuture<'_, Result<Vec<ScheduledWakeup>, StoreError>>;

    /// Gives a thread a name, unless that is taken: the row that is there now.
    fn create_alias<'a>(&'a self, owner: &'a UserId, row: AliasRow) -> BoxFuture<'a, Result<AliasRow, StoreError>>;

    /// What a name stands for.
    fn alias<'a>(
        &'a self,
        owner: &'a UserId,
        protocol: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<AliasRow>, StoreError>>;

    /// Changes what is noted beside a name. False when there is none.
    fn update_alias<'a>(
        &'a self,
        owner: &'a UserId,
        protocol: &'a str,
        name: &'a str,
        note: String,
    ) -> BoxFuture<'a, Result<bool, StoreError>>;

    /// Frees a name; its thread stays. False when there is none.
    fn delete_alias<'a>(
        &'a self,
        owner: &'a UserId,
        protocol: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<bool, StoreError>>;

    /// Shows a thread to others.
    fn create_share(&self, share: ShareRow) -> BoxFuture<'_, Result<(), StoreError>>;

    /// A thread's shares, the oldest first, those that let nobody in any more included.
    fn shares<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
    ) -> BoxFuture<'a, Result<Vec<ShareRow>, StoreError>>;

    /// Takes a share back. False when the thread has none of that name.
    fn revoke_share<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
        id: &'a str,
        at: Millis,
    ) -> BoxFuture<'a, Result<bool, StoreError>>;

    /// The shares that let somebody in at a moment. For whoever lets them in, hence of all owners.
    fn active_shares(&self, at: Millis) -> BoxFuture<'_, Result<Vec<ShareRow>, StoreError>>;

    /// Keeps definitions under their digest, for the runs that start with them. Brought again, they are there already.
    fn put_definitions<'a>(&'a self, digest: &'a str, body: &'a str) -> BoxFuture<'a, Result<(), StoreError>>;

    /// The definitions of this digest.
    fn definitions<'a>(&'a self, digest: &'a str) -> BoxFuture<'a, Result<Option<String>, StoreError>>;

    /// Lets somebody in.
    fn create_access_key(&self, key: AccessKeyRow) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Who has been let in.
    fn access_keys(&self) -> BoxFuture<'_, Result<Vec<AccessKeyRow>, StoreError>>;

    /// Lets a key in no longer. False when there is none of that name.
    fn revoke_access_key<'a>(&'a self, id: &'a str, at: Millis) -> BoxFuture<'a, Result<bool, StoreError>>;
}

/// A command on its way into an inbox.
#[derive(Clone, Debug, PartialEq)]
pub struct Submission {
    /// Which thread.
    pub thread: ThreadId,
    /// Is the thread made by this?
    pub new_thread: bool,
    /// When it was asked.
    pub at: Millis,
    /// What is asked.
    pub command: Command,
    /// The caller's key against doing it twice.
    pub idempotency_key: Option<IdempotencyKey>,
}

/// A caller's key against doing something twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The key, with the route that it was used on.
    pub key: String,
    /// The digest of what was asked.
    pub request_digest: String,
}

/// What became of a submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// It is in the inbox.
    Queued,
    /// It made its thread and is all that there is in it, so whoever asked has the thread's first term and may begin.
    ThreadCreated {
        /// The right to append.
        lease: Lease,
        /// The row in the inbox.
        row: u64,
    },
    /// It was there before: this is what it made.
    Duplicate {
        /// The run.
        task: TaskId,
        /// Its thread.
        thread: ThreadId,
    },
}

/// Why a submission was not taken.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SubmitError {
    /// The key was used for something else.
    #[error("this Idempotency-Key was used with another request: use a new key for a new request")]
    KeyReused,
    /// The thread that was to be made is there, and the caller's.
    #[error("there is a thread of this name already")]
    ThreadExists,
    /// The question was answered before, and otherwise.
    #[error("this was decided before")]
    AlreadyDecided(Box<ApprovalRow>),
    /// There is no such question.
    #[error("there is no such question")]
    ApprovalNotFound,
    /// The inbox is full.
    #[error("{0} commands wait for this thread already: let it work some off, or use another thread")]
    InboxFull(usize),
    /// The store could not.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A row of an inbox.
#[derive(Clone, Debug, PartialEq)]
pub struct InboxRow {
    /// Its number.
    pub id: u64,
    /// When it was asked.
    pub at: Millis,
    /// What.
    pub command: Command,
}

/// What changes in the directory together with records.
#[derive(Clone, Debug, PartialEq)]
pub enum DirectoryChange {
    /// A run begins with the record at `first`. It was queued, or is made by this (a steer that came too late).
    RunStarted {
        /// The run.
        run: TaskId,
        /// The agent that answers.
        agent: String,
        /// Its first record.
        first: Seq,
        /// When.
        at: Millis,
    },
    /// A run moved on.
    RunStatus {
        /// The run.
        run: TaskId,
        /// Where it is now.
        status: TaskStatus,
        /// Its newest record.
        last: Seq,
        /// When.
        at: Millis,
    },
    /// A queued run was given up before it began.
    RunDropped {
        /// The run.
        run: TaskId,
        /// When.
        at: Millis,
    },
    /// A row was answered.
    ConsumeInboxRow {
        /// The row's number.
        row: u64,
    },
    /// A new checkpoint.
    Checkpoint(Checkpoint),
    /// A person is asked. Asked again, the question is open again.
    ApprovalRequested(Box<ApprovalRow>),
    /// A question is closed by the records at hand. Where they repeat a submitted decision, that one stays as it came.
    ApprovalResolved {
        /// The question.
        key: ApprovalKey,
        /// The answer.
        decision: ApprovalDecision,
        /// Whose.
        by: Initiator,
        /// When.
        at: Millis,
    },
    /// Tokens and money were used up on a day.
    AddSpend {
        /// When.
        day: Day,
        /// How much.
        spent: Spend,
    },
    /// The thread need not be executed before a moment, unless something comes in; `None` takes that back.
    ScheduleWakeup {
        /// The moment.
        at: Option<Millis>,
    },
}

/// A question to a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovalRow {
    /// Its name.
    pub key: ApprovalKey,
    /// The thread.
    pub thread_id: ThreadId,
    /// The run.
    pub run_id: TaskId,
    /// The task whose call it is.
    pub task_id: TaskId,
    /// The call.
    pub call_id: CallId,
    /// What would be done.
    pub action: ActionRequest,
    /// When it was asked.
    pub requested_at: Millis,
    /// Until when it can be answered.
    pub expires_at: Millis,
    /// The answer, and when it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<ApprovalAnswer>,
}

/// An answer to a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovalAnswer {
    /// The answer.
    pub decision: ApprovalDecision,
    /// Whose.
    pub by: Initiator,
    /// When it came.
    pub at: Millis,
}

/// A name under which somebody knows a thread: a client's own, or one that a protocol gave. The thread may not be there
/// yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AliasRow {
    /// Where the name is one.
    pub protocol: String,
    /// The name.
    pub name: String,
    /// What it stands for.
    pub thread: ThreadId,
    /// What the protocol keeps beside it, in its own words.
    pub note: String,
    /// When it was given.
    pub created_at: Millis,
}

/// A thread that need not be executed before a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduledWakeup {
    /// Whose.
    pub owner: UserId,
    /// Which.
    pub thread: ThreadId,
    /// The moment.
    pub at: Millis,
}

/// A day (UTC): days since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Day(pub u32);

impl Day {
    /// The day of a moment.
    #[must_use]
    pub fn from_millis(at: Millis) -> Self {
        Self(u32::try_from(at / (24 * 60 * 60 * 1000)).unwrap_or(u32::MAX))
    }
}

/// What was used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spend {
    /// Tokens.
    pub usage: Usage,
    /// Money.
    pub cost: CostMicros,
}

/// A `ThreadFold` as it was after a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The last record in it.
    pub seq: Seq,
    /// The fold, as JSON.
    pub body: String,
}

/// Which part of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListPage {
    /// Only what is older than the thing of this name.
    pub before: Option<String>,
    /// At most so many.
    pub limit: usize,
}

/// Which runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Only these states; empty is all.
    pub status: Vec<TaskStatus>,
    /// Only this thread's.
    pub thread: Option<ThreadId>,
}

/// A thread's row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadRow {
    /// Its name.
    pub id: ThreadId,
    /// When it was made.
    pub created_at: Millis,
    /// When a run of it last began or ended.
    pub updated_at: Millis,
}

/// A run's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRow {
    /// Its name.
    pub id: TaskId,
    /// Its thread.
    pub thread: ThreadId,
    /// The agent that answers.
    pub agent: String,
    /// Where it is.
    pub status: TaskStatus,
    /// Its first record, once it has begun.
    pub first_seq: Option<Seq>,
    /// Its newest record that changed its state.
    pub last_seq: Option<Seq>,
    /// When it was asked for.
    pub created_at: Millis,
    /// When it ended.
    pub ended_at: Option<Millis>,
}

/// A key that lets a user in. The secret itself is nowhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessKeyRow {
    /// Its name, which is no secret.
    pub id: String,
    /// Whom it lets in.
    pub user: UserId,
    /// The digest of the secret.
    pub digest: String,
    /// Since when.
    pub created_at: Millis,
    /// Until when.
    pub revoked_at: Option<Millis>,
}
