//! Questions that wait for people.

use super::{ListPage, StoreFuture};
use crate::event::{ActionRequest, ApprovalDecision, Initiator};
use crate::id::{ApprovalKey, CallId, TaskId, ThreadId, UserId};
use crate::seq::Millis;
use serde::{Deserialize, Serialize};

/// Questions that a run asks a person, and their answers. Approvals are the only kind that has rows of its own; the results
/// of client tools arrive through the inbox without a row here.
///
/// 1. A question is open from the records that ask it ([`super::DirectoryChange::ApprovalRequested`]) until a decision is
///    submitted or records close it ([`super::DirectoryChange::ApprovalResolved`]). Asked again, it is open again.
/// 2. The first decision wins, a person's or the clock's; it is stored together with the inbox row that carries it. The same
///    decision again is [`super::Submitted::Duplicate`], another one [`super::SubmitError::AlreadyDecided`], one for a
///    question that does not exist [`super::SubmitError::ApprovalNotFound`]; none of these writes a row.
/// 3. From the moment that a question expires only the clock decides it. The clock's decision is accepted by a full inbox.
/// 4. Records have the last word: where a run was cancelled, the question says so whatever was submitted meanwhile.
/// 5. Listings are newest first, by the time of asking. A position stays valid whatever is answered; when the question at
///    the position was deleted with its thread, the listing starts again.
pub trait PendingQuestions: Send + Sync {
    /// A user's approvals.
    fn approvals<'a>(
        &'a self,
        owner: &'a UserId,
        filter: ApprovalFilter,
        page: ListPage,
    ) -> StoreFuture<'a, Vec<ApprovalRow>>;

    /// One approval.
    fn approval<'a>(&'a self, owner: &'a UserId, key: &'a ApprovalKey) -> StoreFuture<'a, Option<ApprovalRow>>;
}

/// Selects approvals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalFilter {
    /// Those without an answer.
    Pending,
    /// All.
    All,
}

impl ApprovalFilter {
    /// Does the filter select this row?
    #[must_use]
    pub const fn matches(self, row: &ApprovalRow) -> bool {
        match self {
            Self::Pending => row.answer.is_none(),
            Self::All => true,
        }
    }
}

/// A request for approval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovalRow {
    /// Identifies the question among its owner's.
    pub key: ApprovalKey,
    /// The thread.
    pub thread_id: ThreadId,
    /// The run.
    pub run_id: TaskId,
    /// The task whose call is to be approved.
    pub task_id: TaskId,
    /// The call.
    pub call_id: CallId,
    /// What the call would do.
    pub action: ActionRequest,
    /// When it was asked.
    pub requested_at: Millis,
    /// Until when people can answer.
    pub expires_at: Millis,
    /// The answer, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<ApprovalAnswer>,
}

/// The answer to an approval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovalAnswer {
    /// The decision.
    pub decision: ApprovalDecision,
    /// Who decided.
    pub by: Initiator,
    /// When.
    pub at: Millis,
}
