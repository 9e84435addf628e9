//! What the writer can be asked, and how it answers.
//!
//! Every question carries where its answer goes. An answer is held back until the commit that makes it true; when the
//! commit fails, everybody in it is told so, in the words of their own question ([`Lost`]).

use super::names::Place;
use super::shares::Which;
use super::uses::Use;
use model::ports::{
    AccessKeyRow, AliasRow, AppendBatch, AppendOutcome, AttachmentOutcome, AttachmentRow, Lease, OnCommit, ShareRow,
    StoreError, Submission, SubmitError, Submitted,
};
use model::seq::{Millis, Seq};
use model::{ThreadId, UserId};
use tokio::sync::oneshot;

/// Where an answer goes.
pub(crate) type Reply<T> = oneshot::Sender<T>;

/// One question to the writer.
pub(crate) enum Op {
    /// [`model::ports::Journal::append`].
    Append {
        /// What.
        batch: Box<AppendBatch>,
        /// What is wrong with it, whatever the log is.
        flaw: Option<String>,
        /// Who hears of it first.
        landed: OnCommit,
        /// The answer.
        reply: Reply<AppendOutcome>,
    },
    /// [`model::ports::Journal::claim`].
    Claim {
        /// By whom.
        owner: UserId,
        /// Which thread.
        thread: ThreadId,
        /// The answer.
        reply: Reply<Result<Lease, StoreError>>,
    },
    /// Where does the thread end, and is it whole? For a reader in doubt.
    Head {
        /// Which thread.
        thread: ThreadId,
        /// The answer.
        reply: Reply<Result<Seq, StoreError>>,
    },
    /// [`model::ports::Directory::submit`].
    Submit {
        /// By whom.
        owner: UserId,
        /// What.
        submission: Box<Submission>,
        /// The answer.
        reply: Reply<Result<Submitted, SubmitError>>,
    },
    /// [`model::ports::Directory::delete_thread`].
    Delete {
        /// By whom.
        owner: UserId,
        /// Which.
        thread: ThreadId,
        /// The answer.
        reply: Reply<Result<bool, StoreError>>,
    },
    /// [`model::ports::Directory::create_key`].
    CreateKey {
        /// The key.
        key: Box<AccessKeyRow>,
        /// The answer.
        reply: Reply<Result<(), StoreError>>,
    },
    /// [`model::ports::Directory::revoke_key`].
    RevokeKey {
        /// Its name.
        id: String,
        /// When.
        at: Millis,
        /// The answer.
        reply: Reply<Result<bool, StoreError>>,
    },
    /// [`model::ports::Directory::give_name`].
    GiveName {
        /// By whom.
        owner: UserId,
        /// What it stands for.
        row: Box<AliasRow>,
        /// The answer.
        reply: Reply<Result<AliasRow, StoreError>>,
    },
    /// [`model::ports::Directory::note_name`], or [`model::ports::Directory::forget_name`].
    ChangeName {
        /// Which.
        place: Box<Place>,
        /// What is noted beside it now; `None` frees it.
        note: Option<String>,
        /// The answer.
        reply: Reply<Result<bool, StoreError>>,
    },
    /// [`model::ports::Directory::create_share`].
    CreateShare {
        /// The share.
        share: Box<ShareRow>,
        /// The answer.
        reply: Reply<Result<(), StoreError>>,
    },
    /// [`model::ports::Directory::revoke_share`].
    RevokeShare {
        /// Which.
        which: Box<Which>,
        /// When.
        at: Millis,
        /// The answer.
        reply: Reply<Result<bool, StoreError>>,
    },
    /// [`model::ports::Attachments::expect_attachment`].
    ExpectFile {
        /// By whom, and where.
        place: Box<(UserId, String)>,
        /// When.
        at: Millis,
        /// The answer.
        reply: Reply<Result<(), StoreError>>,
    },
    /// [`model::ports::Attachments::put_attachment`].
    PutFile {
        /// By whom, and what.
        file: Box<(UserId, AttachmentRow)>,
        /// The bound.
        bytes_max: Option<u64>,
        /// The answer.
        reply: Reply<Result<AttachmentOutcome, StoreError>>,
    },
    /// [`model::ports::Attachments::put_blob`].
    PutBlob {
        /// By whom, for which thread, and what.
        blob: Box<(UserId, ThreadId, AttachmentRow)>,
        /// The bound.
        bytes_max: Option<u64>,
        /// The answer.
        reply: Reply<Result<AttachmentOutcome, StoreError>>,
    },
    /// [`model::ports::Attachments::use_attachment`], or [`model::ports::Attachments::use_blob`].
    UseFile {
        /// What.
        wanted: Box<Use>,
        /// The answer.
        reply: Reply<Result<Option<AttachmentRow>, StoreError>>,
    },
    /// [`model::ports::Attachments::delete_attachment`].
    DeleteFile {
        /// By whom, and where.
        place: Box<(UserId, String)>,
        /// The answer.
        reply: Reply<Result<bool, StoreError>>,
    },
    /// [`model::ports::Directory::keep_definitions`].
    KeepDefinitions {
        /// Their digest, and what they say.
        kept: Box<(String, String)>,
        /// The answer.
        reply: Reply<Result<(), StoreError>>,
    },
    /// Finish and let the folder go.
    Close {
        /// Told when that is done.
        reply: Reply<()>,
    },
}

impl Op {
    /// How much it adds to a commit, roughly.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Append { batch, .. } => batch.records.iter().map(|record| record.size_bytes() + 64).sum(),
            Self::KeepDefinitions { kept, .. } => kept.1.len(),
            Self::GiveName { row, .. } => row.note.len() + 256,
            Self::ChangeName { note, .. } => note.as_ref().map_or(0, String::len) + 256,
            _ => 256,
        }
    }

    /// Does it write? What only asks need not wait for the next commit's turn.
    pub(crate) const fn writes(&self) -> bool {
        !matches!(self, Self::Claim { .. } | Self::Head { .. } | Self::Close { .. })
    }

    /// Nothing came of it, or nobody knows what.
    pub(crate) fn lose(self, why: &str) {
        match self {
            Self::Append { landed, reply, .. } => {
                landed.call(&AppendOutcome::lost(why));
                lose(reply, why);
            }
            Self::Claim { reply, .. } => lose(reply, why),
            Self::Head { reply, .. } => lose(reply, why),
            Self::Submit { reply, .. } => lose(reply, why),
            Self::Delete { reply, .. }
            | Self::RevokeKey { reply, .. }
            | Self::RevokeShare { reply, .. }
            | Self::ChangeName { reply, .. }
            | Self::DeleteFile { reply, .. } => lose(reply, why),
            Self::PutFile { reply, .. } | Self::PutBlob { reply, .. } => lose(reply, why),
            Self::UseFile { reply, .. } => lose(reply, why),
            Self::GiveName { reply, .. } => lose(reply, why),
            Self::CreateKey { reply, .. }
            | Self::CreateShare { reply, .. }
            | Self::ExpectFile { reply, .. }
            | Self::KeepDefinitions { reply, .. } => lose(reply, why),
            Self::Close { reply } => drop(reply),
        }
    }
}

fn lose<T: Lost>(reply: Reply<T>, why: &str) {
    // Who no longer waits needs no answer.
    let _ = reply.send(T::lost(why));
}

/// An answer that waits for its commit. Called with the reason when that failed.
pub(crate) type Answer = Box<dyn FnOnce(Result<(), &str>)>;

/// Holds an answer back.
pub(crate) fn held<T: Lost + 'static>(reply: Reply<T>, value: T) -> Answer {
    held_for(|_| (), reply, value)
}

/// Holds an answer back that somebody hears before it is given.
pub(crate) fn held_for<T: Lost + 'static>(hear: impl FnOnce(&T) + 'static, reply: Reply<T>, value: T) -> Answer {
    Box::new(move |committed| {
        let answer = committed.map_or_else(T::lost, |()| value);
        hear(&answer);
        // Who no longer waits needs no answer.
        let _ = reply.send(answer);
    })
}

/// How an answer says that the writer could not do it.
pub(crate) trait Lost {
    /// Says it.
    fn lost(why: &str) -> Self;
}

impl Lost for AppendOutcome {
    fn lost(why: &str) -> Self {
        Self::Unknown(why.to_owned())
    }
}

impl<T> Lost for Result<T, StoreError> {
    fn lost(why: &str) -> Self {
        Err(StoreError::Unavailable(why.to_owned()))
    }
}

impl Lost for Result<Submitted, SubmitError> {
    fn lost(why: &str) -> Self {
        Err(SubmitError::Store(StoreError::Unavailable(why.to_owned())))
    }
}
