//! What the writer's thread is sent: closures over its transaction.
//!
//! A task carries its own reply channel. The result is held back until the commit that makes it true; when the commit
//! fails, every task of the group replies with the error, in the type of its own operation ([`FromWriterError`]).

use super::transaction::WriteTransaction;
use model::ports::{AppendOutcome, StoreError, SubmitError, Submitted};
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
    pub(crate) fn fail(self, why: &str) {
        match self {
            Self::Run { task, .. } => task.finish(Err(why)),
            Self::Close { reply } => drop(reply),
        }
    }
}

/// How much a task adds to a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskCost {
    /// Nothing: the task only reads, and need not wait for the next commit's turn.
    Query,
    /// About this many bytes.
    Bytes(usize),
}

impl TaskCost {
    /// A few short columns.
    pub(crate) const ROW: Self = Self::Bytes(256);

    /// A row with a text of this length.
    pub(crate) const fn row_with_text(text: &str) -> Self {
        Self::Bytes(256 + text.len())
    }

    pub(crate) const fn estimated_bytes(self) -> usize {
        match self {
            Self::Query => 256,
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// One operation in a group.
pub(crate) trait WriteTask: Send {
    /// Executes the operation and keeps its result. An error ends the transaction for the whole group.
    fn apply(&mut self, transaction: &mut WriteTransaction<'_>) -> rusqlite::Result<()>;

    /// Replies, after the commit or with the reason why there was none.
    fn finish(self: Box<Self>, committed: Result<(), &str>);
}

/// A closure with the channel for its result. One allocation holds the operation on its way to the writer and the reply
/// on its way back.
pub(crate) struct ClosureTask<T, W, C> {
    pub(crate) work: Option<W>,
    pub(crate) result: Option<T>,
    /// Called with the result before the reply is sent.
    pub(crate) callback: C,
    pub(crate) reply: ReplySender<T>,
}

impl<T, W, C> WriteTask for ClosureTask<T, W, C>
where
    T: FromWriterError + Send,
    W: FnOnce(&mut WriteTransaction<'_>) -> rusqlite::Result<T> + Send,
    C: FnOnce(&T) + Send,
{
    fn apply(&mut self, transaction: &mut WriteTransaction<'_>) -> rusqlite::Result<()> {
        if let Some(work) = self.work.take() {
            self.result = Some(work(transaction)?);
        }
        Ok(())
    }

    fn finish(self: Box<Self>, committed: Result<(), &str>) {
        let Self { result, callback, reply, .. } = *self;
        let result = match (committed, result) {
            (Ok(()), Some(result)) => result,
            (Ok(()), None) => T::from_writer_error("the operation was not executed"),
            (Err(why), _) => T::from_writer_error(why),
        };
        callback(&result);
        // A caller that stopped waiting needs no reply.
        let _ = reply.send(result);
    }
}

/// How a result says that the writer failed.
pub(crate) trait FromWriterError {
    fn from_writer_error(why: &str) -> Self;
}

impl FromWriterError for AppendOutcome {
    fn from_writer_error(why: &str) -> Self {
        Self::Unknown(why.to_owned())
    }
}

impl<T> FromWriterError for Result<T, StoreError> {
    fn from_writer_error(why: &str) -> Self {
        Err(StoreError::Unavailable(why.to_owned()))
    }
}

impl FromWriterError for Result<Submitted, SubmitError> {
    fn from_writer_error(why: &str) -> Self {
        Err(SubmitError::Store(StoreError::Unavailable(why.to_owned())))
    }
}
