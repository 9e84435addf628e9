//! Answers in a request of a client that resends its history: which of them count, and which segment of the run they open.

use crate::approvals::check_decision;
use crate::context::Gateway;
use crate::known_items::ConversationRef;
use crate::rejection::Rejection;
use crate::run_lookup::{find_run_start, for_each_record_of_run};
use model::command::{AnswerBody, ClientToolResult};
use model::error::{ErrorCode, ErrorInfo};
use model::event::{ApprovalDecision, ApprovalDecisionKind, Event, Initiator, PendingKind, PendingRequest};
use model::item::Item;
use model::json::{ExactValue, parse_exact_object};
use model::ports::{ApprovalRow, RunRow, SubmitError};
use model::{ApprovalKey, CallId, Seq, TaskId, ThreadId, UserId};
use protocol::client_input::{ClientInput, InputKind};
use std::ops::ControlFlow;

/// The run that answers a request, and which of its segments does.
pub struct ResolvedRun {
    pub thread: ThreadId,
    pub run: TaskId,
    /// Counted from 1; each pause starts another.
    pub segment: u32,
    /// Whether this request started the run.
    pub is_new: bool,
    /// A record of the thread before all of the run's, if this request started it: then nothing needs to be looked up.
    pub after: Option<Seq>,
}

impl ResolvedRun {
    pub(crate) fn existing(run: &RunRow, segment: u32) -> Self {
        Self { thread: run.thread.clone(), run: run.id.clone(), segment, is_new: false, after: None }
    }

    pub(crate) async fn find_start(&self, gateway: &Gateway, user: &UserId) -> Result<ResolvedStart, Rejection> {
        if let Some(before) = self.after {
            return Ok(ResolvedStart { before, queued_run: Some(self.run.clone()), row: None });
        }
        let found = find_run_start(gateway, user, &self.run).await?;
        Ok(ResolvedStart { before: found.before, queued_run: found.queued_run(), row: Some(found.run) })
    }
}

/// Where the run of a request starts.
pub(crate) struct ResolvedStart {
    /// The record before its first one.
    pub(crate) before: Seq,
    /// The run, if it has not started.
    pub(crate) queued_run: Option<TaskId>,
    /// Not read for a run that the request started.
    pub(crate) row: Option<RunRow>,
}

pub(crate) fn is_answer(item: &ClientInput) -> bool {
    matches!(item.kind, InputKind::ToolResult { .. } | InputKind::ApprovalDecision { .. })
}

/// The answers to pending requests. Equal duplicates count once; conflicting ones are rejected before any is submitted.
pub(crate) fn match_answers(items: &[ClientInput], pending: &[PendingRequest]) -> Result<Vec<AnswerBody>, Rejection> {
    let (mut answers, mut results): (Vec<AnswerBody>, Vec<ClientToolResult>) = (Vec::new(), Vec::new());
    for item in items {
        match &item.kind {
            InputKind::ApprovalDecision { key, decision } => {
                let is_key = |pending: &&PendingRequest| pending.key.as_ref().is_some_and(|id| id.as_str() == key);
                if let Some(pending) = pending.iter().find(is_key) {
                    let decision = complete_decision(decision, pending.kind);
                    let (key, by) = (ApprovalKey::from(key.as_str()), Initiator::User);
                    push_unique_answer(&mut answers, AnswerBody::Approval { key, decision, by }, is_same_approval)?;
                }
            }
            InputKind::ToolResult { call_id, content, failed, acknowledged_checks } => {
                let is_call = |pending: &PendingRequest| {
                    pending.kind == PendingKind::ClientTool && pending.call_id.as_str() == call_id
                };
                if pending.iter().any(is_call) {
                    let error = failed.then(|| ErrorInfo::new(ErrorCode::ToolFailed, "the client's tool failed"));
                    let call_id = CallId::from(call_id.as_str());
                    let (content, acknowledged_checks) = (content.clone(), acknowledged_checks.clone());
                    let result = ClientToolResult { call_id, content, error, acknowledged_checks };
                    push_unique_answer(&mut results, result, |one, other| one.call_id == other.call_id)?;
                }
            }
            InputKind::System(_)
            | InputKind::User(_)
            | InputKind::Assistant(_)
            | InputKind::GeneratedImages(_)
            | InputKind::ToolCall { .. }
            | InputKind::SealedSummary { .. }
            | InputKind::Summary { .. }
            | InputKind::ItemReference => {}
        }
    }
    if !results.is_empty() {
        answers.push(AnswerBody::ClientTools { results });
    }
    Ok(answers)
}

/// A decision about what was asked. The answer to a question is in its arguments; clients whose types have no such field
/// write it as JSON into the reason. An approval has none: those beside it are the call's own.
fn complete_decision(decision: &ApprovalDecision, asked: PendingKind) -> ApprovalDecision {
    let decision = decision.clone();
    match (decision.kind, asked) {
        (ApprovalDecisionKind::Edit, _) => decision,
        (ApprovalDecisionKind::Approve, PendingKind::Question) if decision.args.is_none() => {
            let answer = decision.message.as_deref().and_then(|reason| parse_exact_object(reason).ok());
            // A reason that is the answer is not repeated beside it.
            let message = decision.message.filter(|_| answer.is_none());
            ApprovalDecision { message, args: answer.map(ExactValue::Object), ..decision }
        }
        (ApprovalDecisionKind::Approve, PendingKind::Question) => decision,
        (ApprovalDecisionKind::Approve | ApprovalDecisionKind::Reject, _) => {
            ApprovalDecision { args: None, ..decision }
        }
    }
}

/// Checks answers to questions before any answer is submitted.
pub(crate) async fn check_answers(gateway: &Gateway, user: &UserId, answers: &[AnswerBody]) -> Result<(), Rejection> {
    for answer in answers {
        let AnswerBody::Approval { key, decision, .. } = answer else { continue };
        if let Some(row) = gateway.engine.ports().directory.approval(user, key).await? {
            check_decision(gateway, user, &row, decision, "arguments").await?;
        }
    }
    Ok(())
}

fn push_unique_answer<T: PartialEq>(
    all: &mut Vec<T>,
    one: T,
    is_same: impl Fn(&T, &T) -> bool,
) -> Result<(), Rejection> {
    match all.iter().find(|other| is_same(&one, other)) {
        None => all.push(one),
        Some(other) if *other == one => {}
        Some(_) => return Err(Rejection::invalid_body("one thing is answered twice, and not in the same way")),
    }
    Ok(())
}

fn is_same_approval(one: &AnswerBody, other: &AnswerBody) -> bool {
    matches!((one, other), (AnswerBody::Approval { key: one, .. }, AnswerBody::Approval { key: other, .. }) if one == other)
}

/// Resolves a request whose last item repeats an earlier answer: it is that request again, and gets the same segment. A
/// different answer comes too late and is rejected; before other items it is only history.
pub(crate) async fn resolve_earlier_answer(
    gateway: &Gateway,
    user: &UserId,
    items: &[ClientInput],
    conversation: &ConversationRef,
) -> Result<Option<ResolvedRun>, Rejection> {
    let Some(last) = items.last().filter(|item| is_answer(item)) else { return Ok(None) };
    let run = match (run_of_answer(gateway, user, last, conversation).await?, conversation, &last.kind) {
        (Some(run), _, _) => run,
        (
            None,
            ConversationRef::AfterRun(_) | ConversationRef::InThread(_),
            InputKind::ApprovalDecision { key, .. },
        ) => return Err(approval_not_found(key)),
        (None, ConversationRef::AfterRun(_), InputKind::ToolResult { call_id, .. }) => {
            return Err(call_not_found(call_id));
        }
        // The request may contain its call.
        (None, _, _) => return Ok(None),
    };
    if let InputKind::ApprovalDecision { key, decision } = &last.kind {
        let row = gateway.engine.ports().directory.approval(user, &ApprovalKey::from(key.as_str())).await?;
        let Some(row) = row else { return Err(approval_not_found(key)) };
        if !is_recorded_decision(&row, decision) {
            return Err(SubmitError::AlreadyDecided(Box::new(row)).into());
        }
    }
    match (segment_opened_by(gateway, user, &run, last).await?, &last.kind) {
        (Some(segment), _) => Ok(Some(ResolvedRun::existing(&run, segment))),
        (None, InputKind::ToolResult { call_id, .. }) => Err(call_not_found(call_id)),
        (None, _) => Ok(None),
    }
}

/// Whether a request was decided as this decision says. The arguments of an approval may be left out.
pub(crate) fn is_recorded_decision(row: &ApprovalRow, decision: &ApprovalDecision) -> bool {
    let asked = if row.question.is_some() { PendingKind::Question } else { PendingKind::Approval };
    let decision = complete_decision(decision, asked);
    let Some(recorded) = row.answer.as_ref().map(|answer| &answer.decision) else { return false };
    let is_rejected = |decision: &ApprovalDecision| decision.kind == ApprovalDecisionKind::Reject;
    let is_same_args = decision.args.is_none() || recorded.args == decision.args;
    is_rejected(recorded) == is_rejected(&decision) && is_same_args
}

/// The run that this answers, if it belongs to the request's conversation.
async fn run_of_answer(
    gateway: &Gateway,
    user: &UserId,
    answer: &ClientInput,
    conversation: &ConversationRef,
) -> Result<Option<RunRow>, Rejection> {
    let Some(run) = answer.run_id() else { return Ok(None) };
    let row = gateway.engine.run_of_task(user, &run).await?;
    Ok(row.filter(|row| match conversation {
        ConversationRef::Unspecified => false,
        ConversationRef::AfterRun(run) => run.id == row.id,
        ConversationRef::InThread(thread) => row.thread == *thread,
    }))
}

pub(crate) fn approval_not_found(key: &str) -> Rejection {
    let detail = format!("No approval request found with id {key}.");
    Rejection::new(ErrorCode::UnmatchedApproval, detail)
}

pub(crate) fn call_not_found(call_id: &str) -> Rejection {
    let detail = format!("No tool call found for function call output with call_id {call_id}.");
    Rejection::new(ErrorCode::CallNotFound, detail)
}

/// The number of a run's pauses.
pub(crate) async fn count_pauses(gateway: &Gateway, user: &UserId, run: &RunRow) -> Result<u32, Rejection> {
    let mut pauses = 0;
    for_each_record_of_run(gateway, user, run, |record| {
        pauses += u32::from(matches!(record.event(), Event::Paused(_)));
        ControlFlow::<()>::Continue(())
    })
    .await?;
    Ok(pauses)
}

pub(crate) async fn segment_opened_by(
    gateway: &Gateway,
    user: &UserId,
    run: &RunRow,
    answer: &ClientInput,
) -> Result<Option<u32>, Rejection> {
    let mut segment = 1;
    let found = for_each_record_of_run(gateway, user, run, |record| {
        let event = record.event();
        segment += u32::from(matches!(event, Event::Resumed(_)));
        let is_answer = match (event, &answer.kind) {
            (Event::ApprovalResolved(resolved), InputKind::ApprovalDecision { key, .. }) => {
                resolved.key.as_str() == key
            }
            (Event::ItemAdded(added), InputKind::ToolResult { call_id, .. }) => {
                matches!(&added.item, Item::ToolResult(result) if result.call_id.as_str() == call_id)
            }
            _ => false,
        };
        if is_answer { ControlFlow::Break(segment) } else { ControlFlow::Continue(()) }
    });
    Ok(found.await?)
}
