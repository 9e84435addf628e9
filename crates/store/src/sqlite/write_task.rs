//! Tasks for the writer thread: closures over its transaction, each with a reply channel.
//!
//! A task replies after the commit. When the commit fails, every task of the group replies with the error, in the
//! result type of its operation ([`FromWriterError`]).

use super::transaction::WriteTransaction;
use model::ports::{AppendBatch, AppendOutcome, OnCommit, StoreError, SubmitError, Submitted};
use std::fmt;
use tokio::sync::oneshot;

pub(crate) type ReplySender<T> = oneshot::Sender<T>;

pub(crate) enum WriterMessage {
    Run {
        task: Box<dyn WriteTask>,
        cost: TaskCost,
    },
    /// Finish and release the folder.
    Close {
        reply: ReplySender<()>,
    },
}

impl WriterMessage {
    /// Replies that the task was not executed.
    pub(crate) fn fail(self, why: &'static str) {
        match self {
            Self::Run { task, .. } => task.finish(Err(&WriteFailure::from(why))),
            Self::Close { reply } => drop(reply),
        }
    }
}

/// Why a group was not committed.
#[derive(Debug)]
pub(crate) enum WriteFailure {
    /// There is no room. Nothing of the group is in the database.
    NoSpace,
    Failed(String),
}

impl From<&'static str> for WriteFailure {
    fn from(why: &'static str) -> Self {
        Self::Failed(why.to_owned())
    }
}

impl fmt::Display for WriteFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSpace => f.write_str("the disk is full"),
            Self::Failed(why) => f.write_str(why),
        }
    }
}

/// How much a task adds to a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskCost {
    /// A row at most, in order to delete, revoke or stop something: it is executed also when the disk is full.
    Relief,
    /// Nothing: the task only reads and does not wait for commit spacing.
    Query,
    /// About this many bytes.
    Bytes(usize),
}

impl TaskCost {
    /// A row with a few short columns.
    pub(crate) const ROW: Self = Self::Bytes(256);

    /// A row with a text of this length.
    pub(crate) const fn row_with_text(text: &str) -> Self {
        Self::Bytes(256 + text.len())
    }

    /// Whether the task is executed while new data is refused.
    pub(crate) const fn is_allowed_when_full(self) -> bool {
        matches!(self, Self::Query | Self::Relief)
    }

    pub(crate) const fn estimated_bytes(self) -> usize {
        match self {
            Self::Query | Self::Relief => 256,
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// One operation in a group.
pub(crate) trait WriteTask: Send {
    /// Executes the operation and keeps its result. An error rolls back the whole group.
    fn apply(&mut self, transaction: &mut WriteTransaction<'_>) -> rusqlite::Result<()>;

    /// Whether it usually only appends to the log, and reads. Its group takes no lock of the database then.
    fn only_logs(&self) -> bool {
        false
    }

    /// Replies with the result after the commit, or with the error.
    fn finish(self: Box<Self>, committed: Result<(), &WriteFailure>);
}

/// A closure with the channel for its result, in one allocation.
pub(crate) struct ClosureTask<T, W> {
    pub(crate) work: Option<W>,
    pub(crate) result: Option<T>,
    pub(crate) reply: ReplySender<T>,
}

impl<T, W> WriteTask for ClosureTask<T, W>
where
    T: FromWriterError + Send,
    W: FnOnce(&mut WriteTransaction<'_>) -> rusqlite::Result<T> + Send,
{
    fn apply(&mut self, transaction: &mut WriteTransaction<'_>) -> rusqlite::Result<()> {
        if let Some(work) = self.work.take() {
            self.result = Some(work(transaction)?);
        }
        Ok(())
    }

    fn finish(self: Box<Self>, committed: Result<(), &WriteFailure>) {
        let Self { result, reply, .. } = *self;
        let result = match (committed, result) {
            (Ok(()), Some(result)) => result,
            (Ok(()), None) => T::from_write_failure(&"the operation was not executed".into()),
            (Err(failure), _) => T::from_write_failure(failure),
        };
        // The caller may have stopped waiting.
        let _ = reply.send(result);
    }
}

/// An append. It has no reply: its callback is told the outcome.
pub(crate) struct AppendTask {
    pub(crate) batch: AppendBatch,
    /// Why no log can accept the batch.
    pub(crate) invalid_reason: Option<String>,
    pub(crate) outcome: Option<AppendOutcome>,
    pub(crate) on_commit: OnCommit,
}

impl WriteTask for AppendTask {
    fn apply(&mut self, transaction: &mut WriteTransaction<'_>) -> rusqlite::Result<()> {
        self.outcome = Some(transaction.append(&self.batch, self.invalid_reason.as_deref())?);
        Ok(())
    }

    fn only_logs(&self) -> bool {
        self.batch.changes.is_empty()
    }

    fn finish(self: Box<Self>, committed: Result<(), &WriteFailure>) {
        let outcome = match committed {
            Ok(()) => self.outcome.unwrap_or_else(|| AppendOutcome::from_writer_error("the append was not executed")),
            Err(failure) => AppendOutcome::from_write_failure(failure),
        };
        self.on_commit.call(&outcome);
    }
}

/// Conversion of a writer failure to the result type of an operation.
pub(crate) trait FromWriterError: Sized {
    fn from_write_failure(failure: &WriteFailure) -> Self;

    fn from_writer_error(why: &'static str) -> Self {
        Self::from_write_failure(&why.into())
    }
}

impl FromWriterError for AppendOutcome {
    fn from_write_failure(failure: &WriteFailure) -> Self {
        match failure {
            WriteFailure::NoSpace => Self::NoSpace,
            WriteFailure::Failed(why) => Self::Unknown(why.clone()),
        }
    }
}

impl<T> FromWriterError for Result<T, StoreError> {
    fn from_write_failure(failure: &WriteFailure) -> Self {
        Err(store_error(failure))
    }
}

impl FromWriterError for Result<Submitted, SubmitError> {
    fn from_write_failure(failure: &WriteFailure) -> Self {
        Err(SubmitError::Store(store_error(failure)))
    }
}

fn store_error(failure: &WriteFailure) -> StoreError {
    match failure {
        WriteFailure::NoSpace => StoreError::NoSpace,
        WriteFailure::Failed(why) => StoreError::Unavailable(why.clone()),
    }
}
