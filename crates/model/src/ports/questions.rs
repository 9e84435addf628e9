//! Pending questions to users.

use super::{ListPage, StoreResult};
use crate::command::ClientToolResult;
use crate::event::{ActionRequest, ApprovalDecision, Initiator, Question};
use crate::id::{ApprovalKey, CallId, TaskId, ThreadId, UserId};
use crate::json::ExactValue;
use crate::seq::Millis;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Questions of runs to users, with their answers: approvals, and results of client tools. The transaction that accepts an
/// answer decides whether it counts, so what its sender is told is what the log will say.
///
/// 1. A question is open from the records that ask it ([`super::DirectoryChange::ApprovalRequested`]) until a decision is
///    submitted or records close it ([`super::DirectoryChange::ApprovalResolved`]). Asked again, it is open again.
/// 2. The first decision wins, a person's or the clock's; it is stored together with the inbox row that carries it. The same
///    decision again is [`super::Submitted::Duplicate`], another one [`super::SubmitError::AlreadyDecided`], one for a
///    question that does not exist [`super::SubmitError::ApprovalNotFound`]; none of these writes a row.
/// 3. From the moment that a question expires only the clock decides it. The clock's decision is accepted by a full inbox.
/// 4. A cancel that waits in the inbox, also the one with which a run whose time is up ends, has closed the questions of its task and of those below it, also questions that are
///    asked after it: a decision is [`super::SubmitError::AlreadyDecided`] with the rejection that the log will have, a result
///    [`super::SubmitError::CallClosed`].
/// 5. Records override submissions: the questions of a run that fails or exceeds a limit end so, even after a submitted
///    decision.
/// 6. A call of a client tool has no row before its first result; the run knows whether it waits. The first result wins:
///    the same again is [`super::Submitted::Duplicate`], another one, or one for a call that records closed
///    ([`super::DirectoryChange::ClientCallClosed`]), is [`super::SubmitError::CallClosed`]. Of the results of one submission
///    all count or none.
/// 7. Listings are newest first, by the time of asking. A cursor stays valid when questions are answered; when its
///    question was deleted with the thread, the listing starts from the beginning.
#[warn(missing_docs)]
#[async_trait]
pub trait PendingQuestions: Send + Sync {
    /// A user's approvals.
    async fn approvals(&self, owner: &UserId, filter: ApprovalFilter, page: ListPage) -> StoreResult<Vec<ApprovalRow>>;

    /// One approval.
    async fn approval(&self, owner: &UserId, key: &ApprovalKey) -> StoreResult<Option<ApprovalRow>>;

    /// Whether exactly this result of a client tool was submitted.
    async fn has_client_result(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        result: &ClientToolResult,
    ) -> StoreResult<bool>;
}

/// Selects approvals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalFilter {
    /// Approvals without an answer.
    Pending,
    All,
}

impl ApprovalFilter {
    /// Whether the filter selects this row.
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
    pub thread_id: ThreadId,
    pub run_id: TaskId,
    /// The task whose call is to be approved.
    pub task_id: TaskId,
    pub call_id: CallId,
    /// The action that the call would perform.
    pub action: ActionRequest,
    pub requested_at: Millis,
    /// When it expires; users can answer until then.
    pub expires_at: Millis,
    /// What the tool of the call asks; `None` if the call is to be approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<Question>,
    /// The answer, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<ApprovalAnswer>,
}

/// What is asked of people, as stores keep it: one JSON text.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredAction {
    name: String,
    args: ExactValue,
    server_label: Option<String>,
    editable: Option<bool>,
    #[serde(default)]
    note: Option<String>,
    #[serde(default)]
    question: Option<Question>,
}

impl StoredAction {
    /// What a row asks.
    pub fn from_row(row: &ApprovalRow) -> Self {
        let ActionRequest { name, args, server_label, editable, note } = row.action.clone();
        Self { name, args, server_label, editable, note, question: row.question.clone() }
    }

    /// The columns of a row.
    pub fn into_parts(self) -> (ActionRequest, Option<Question>) {
        let Self { name, args, server_label, editable, note, question } = self;
        (ActionRequest { name, args, server_label, editable, note }, question)
    }
}

/// The answer to an approval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovalAnswer {
    pub decision: ApprovalDecision,
    pub by: Initiator,
    pub at: Millis,
}
