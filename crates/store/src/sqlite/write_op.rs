//! What the writer can be asked, and how it answers.
//!
//! Every question carries where its answer goes. An answer is held back until the commit that makes it true; when the
//! commit fails, everybody in it is told so, in the words of their own question ([`Lost`]).

use super::aliases::AliasKey;
use super::attachment_links::AttachmentLink;
use super::shares::ShareKey;
use model::ports::{
    AccessKeyRow, AliasRow, AppendBatch, AppendOutcome, AttachmentOutcome, AttachmentRow, Lease, OnCommit, ShareRow,
    StoreError, Submission, SubmitError, Submitted,
};
use model::seq::{Millis, Seq};
use model::{ThreadId, UserId};
use tokio::sync::oneshot;

/// Where an answer goes.
pub(crate) type ReplySender<T> = oneshot::Sender<T>;

/// One question to the writer.
pub(crate) enum WriteOp {
    /// [`model::ports::Journal::append`].
    Append {
        /// What.
        batch: Box<AppendBatch>,
        /// What is wrong with it, whatever the log is.
        invalid_reason: Option<String>,
        /// Who hears of it first.
        on_commit: OnCommit,
        /// The answer.
        reply: ReplySender<AppendOutcome>,
    },
    /// [`model::ports::Journal::claim`].
    Claim {
        /// By whom.
        owner: UserId,
        /// Which thread.
        thread: ThreadId,
        /// The answer.
        reply: ReplySender<Result<Lease, StoreError>>,
    },
    /// Where does the thread end, and is it whole? For a reader in doubt.
    CheckHead {
        /// Which thread.
        thread: ThreadId,
        /// The answer.
        reply: ReplySender<Result<Seq, StoreError>>,
    },
    /// [`model::ports::Directory::submit`].
    Submit {
        /// By whom.
        owner: UserId,
        /// What.
        submission: Box<Submission>,
        /// The answer.
        reply: ReplySender<Result<Submitted, SubmitError>>,
    },
    /// [`model::ports::Directory::delete_thread`].
    DeleteThread {
        /// By whom.
        owner: UserId,
        /// Which.
        thread: ThreadId,
        /// The answer.
        reply: ReplySender<Result<bool, StoreError>>,
    },
    /// [`model::ports::Directory::create_key`].
    CreateAccessKey {
        /// The key.
        key: Box<AccessKeyRow>,
        /// The answer.
        reply: ReplySender<Result<(), StoreError>>,
    },
    /// [`model::ports::Directory::revoke_key`].
    RevokeAccessKey {
        /// Its name.
        id: String,
        /// When.
        at: Millis,
        /// The answer.
        reply: ReplySender<Result<bool, StoreError>>,
    },
    /// [`model::ports::Directory::give_name`].
    CreateAlias {
        /// By whom.
        owner: UserId,
        /// What it stands for.
        row: Box<AliasRow>,
        /// The answer.
        reply: ReplySender<Result<AliasRow, StoreError>>,
    },
    /// [`model::ports::Directory::note_name`], or [`model::ports::Directory::forget_name`].
    ChangeAlias {
        /// Which.
        key: Box<AliasKey>,
        /// What is noted beside it now; `None` frees it.
        note: Option<String>,
        /// The answer.
        reply: ReplySender<Result<bool, StoreError>>,
    },
    /// [`model::ports::Directory::create_share`].
    CreateShare {
        /// The share.
        share: Box<ShareRow>,
        /// The answer.
        reply: ReplySender<Result<(), StoreError>>,
    },
    /// [`model::ports::Directory::revoke_share`].
    RevokeShare {
        /// Which.
        key: Box<ShareKey>,
        /// When.
        at: Millis,
        /// The answer.
        reply: ReplySender<Result<bool, StoreError>>,
    },
    /// [`model::ports::Attachments::expect_attachment`].
    ReserveAttachment {
        /// By whom, and where.
        key: Box<(UserId, String)>,
        /// When.
        at: Millis,
        /// The answer.
        reply: ReplySender<Result<(), StoreError>>,
    },
    /// [`model::ports::Attachments::put_attachment`].
    CommitAttachment {
        /// By whom, and what.
        file: Box<(UserId, AttachmentRow)>,
        /// The bound.
        bytes_max: Option<u64>,
        /// The answer.
        reply: ReplySender<Result<AttachmentOutcome, StoreError>>,
    },
    /// [`model::ports::Attachments::put_blob`].
    CommitBlob {
        /// By whom, for which thread, and what.
        blob: Box<(UserId, ThreadId, AttachmentRow)>,
        /// The bound.
        bytes_max: Option<u64>,
        /// The answer.
        reply: ReplySender<Result<AttachmentOutcome, StoreError>>,
    },
    /// [`model::ports::Attachments::use_attachment`], or [`model::ports::Attachments::use_blob`].
    LinkAttachment {
        /// What.
        link: Box<AttachmentLink>,
        /// The answer.
        reply: ReplySender<Result<Option<AttachmentRow>, StoreError>>,
    },
    /// [`model::ports::Attachments::delete_attachment`].
    DeleteAttachment {
        /// By whom, and where.
        key: Box<(UserId, String)>,
        /// The answer.
        reply: ReplySender<Result<bool, StoreError>>,
    },
    /// [`model::ports::Directory::keep_definitions`].
    StoreDefinitions {
        /// Their digest, and what they say.
        definitions: Box<(String, String)>,
        /// The answer.
        reply: ReplySender<Result<(), StoreError>>,
    },
    /// Finish and let the folder go.
    Close {
        /// Told when that is done.
        reply: ReplySender<()>,
    },
}

impl WriteOp {
    /// How much it adds to a commit, roughly.
    pub(crate) fn estimated_bytes(&self) -> usize {
        match self {
            Self::Append { batch, .. } => batch.records.iter().map(|record| record.size_bytes() + 64).sum(),
            Self::StoreDefinitions { definitions: kept, .. } => kept.1.len(),
            Self::CreateAlias { row, .. } => row.note.len() + 256,
            Self::ChangeAlias { note, .. } => note.as_ref().map_or(0, String::len) + 256,
            _ => 256,
        }
    }

    /// Does it write? What only asks need not wait for the next commit's turn.
    pub(crate) const fn is_write(&self) -> bool {
        !matches!(self, Self::Claim { .. } | Self::CheckHead { .. } | Self::Close { .. })
    }

    /// Nothing came of it, or nobody knows what.
    pub(crate) fn fail(self, why: &str) {
        match self {
            Self::Append { on_commit: landed, reply, .. } => {
                landed.call(&AppendOutcome::from_writer_error(why));
                send_failure(reply, why);
            }
            Self::Claim { reply, .. } => send_failure(reply, why),
            Self::CheckHead { reply, .. } => send_failure(reply, why),
            Self::Submit { reply, .. } => send_failure(reply, why),
            Self::DeleteThread { reply, .. }
            | Self::RevokeAccessKey { reply, .. }
            | Self::RevokeShare { reply, .. }
            | Self::ChangeAlias { reply, .. }
            | Self::DeleteAttachment { reply, .. } => send_failure(reply, why),
            Self::CommitAttachment { reply, .. } | Self::CommitBlob { reply, .. } => send_failure(reply, why),
            Self::LinkAttachment { reply, .. } => send_failure(reply, why),
            Self::CreateAlias { reply, .. } => send_failure(reply, why),
            Self::CreateAccessKey { reply, .. }
            | Self::CreateShare { reply, .. }
            | Self::ReserveAttachment { reply, .. }
            | Self::StoreDefinitions { reply, .. } => send_failure(reply, why),
            Self::Close { reply } => drop(reply),
        }
    }
}

fn send_failure<T: FromWriterError>(reply: ReplySender<T>, why: &str) {
    // Who no longer waits needs no answer.
    let _ = reply.send(T::from_writer_error(why));
}

/// An answer that waits for its commit. Called with the reason when that failed.
pub(crate) type PendingReply = Box<dyn FnOnce(Result<(), &str>)>;

/// Holds an answer back.
pub(crate) fn reply_after_commit<T: FromWriterError + 'static>(reply: ReplySender<T>, value: T) -> PendingReply {
    notify_and_reply_after_commit(|_| (), reply, value)
}

/// Holds an answer back that somebody hears before it is given.
pub(crate) fn notify_and_reply_after_commit<T: FromWriterError + 'static>(
    hear: impl FnOnce(&T) + 'static,
    reply: ReplySender<T>,
    value: T,
) -> PendingReply {
    Box::new(move |committed| {
        let answer = committed.map_or_else(T::from_writer_error, |()| value);
        hear(&answer);
        // Who no longer waits needs no answer.
        let _ = reply.send(answer);
    })
}

/// How an answer says that the writer could not do it.
pub(crate) trait FromWriterError {
    /// Says it.
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
