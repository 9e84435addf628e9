//! Checks of appends and decisions that need no storage and are the same in every backend.
//!
//! A backend checks in this order and writes only when every check passes: [`validate_batch`] (the batch alone; may run
//! before it is queued), [`check_epoch`] (lease and head), then [`next_run_status`] for every change of a run. Every
//! run in [`runs_in_batch`] must then belong to the thread. [`closed_approval_result`] checks submitted decisions.

use crate::command::{AnswerBody, AnswerCommand, CancelCause, CancelCommand, ClientToolResult, Command};
use crate::defects::Defect;
use crate::event::{ApprovalDecision, ApprovalDecisionKind, Initiator};
use crate::ports::{
    AppendBatch, AppendOutcome, ApprovalAnswer, ApprovalRow, DirectoryChange, StoreError, Submission, SubmitError,
    Submitted,
};
use crate::seq::{Epoch, Millis};
use crate::task::TaskStatus;
use crate::{ApprovalKey, Seq, TaskId};
use sha2::{Digest as _, Sha256};

/// The reason for rejecting a batch for a missing thread or another owner's.
pub const THREAD_NOT_FOUND: &str = "no such thread";

/// Instead of the digest of a submitted result: the run gave the call its result itself.
pub const CLOSED_BY_RECORDS: &str = "";

/// Returns the reason if no log can accept the batch.
pub fn validate_batch(batch: &AppendBatch) -> Option<String> {
    let mut seq = batch.head;
    for record in batch.records.iter() {
        seq = seq.next();
        if record.seq != seq {
            return Some(format!("record {} stands where {seq} belongs", record.seq));
        }
        if record.epoch != batch.epoch {
            return Some(format!("record {seq} is of epoch {}, its batch of {}", record.epoch, batch.epoch));
        }
        if !record.has_valid_checksum(&batch.thread) {
            return Some(format!("record {seq} does not have the checksum of its bytes"));
        }
    }
    let new = batch.head.next()..=seq;
    let mut consumed = Vec::new();
    for change in batch.changes.iter() {
        match change {
            DirectoryChange::RunStarted { run, first: at, .. } | DirectoryChange::RunStatus { run, last: at, .. }
                if !new.contains(at) =>
            {
                return Some(format!("run {run} changes with record {at}, which is not in the batch"));
            }
            DirectoryChange::ConsumeInboxRow { row } if consumed.contains(row) => {
                return Some(format!("inbox row {row} is consumed twice"));
            }
            DirectoryChange::ConsumeInboxRow { row } => consumed.push(*row),
            DirectoryChange::Checkpoint(checkpoint) if checkpoint.seq > seq => {
                return Some(format!("a checkpoint of record {} comes before the record", checkpoint.seq));
            }
            DirectoryChange::ApprovalRequested(question) if question.thread_id != batch.thread => {
                return Some(format!("question {} is of another thread", question.key));
            }
            DirectoryChange::RunStarted { .. }
            | DirectoryChange::RunStatus { .. }
            | DirectoryChange::RunDropped { .. }
            | DirectoryChange::Checkpoint(_)
            | DirectoryChange::ApprovalRequested(_)
            | DirectoryChange::ApprovalResolved { .. }
            | DirectoryChange::ClientCallClosed { .. }
            | DirectoryChange::AddSpend { .. }
            | DirectoryChange::ScheduleWakeup { .. } => {}
        }
    }
    None
}

/// Checks the epoch and the head of a batch against the thread's.
pub fn check_epoch(epoch: Option<Epoch>, head: Seq, batch: &AppendBatch) -> Result<(), AppendOutcome> {
    if epoch != Some(batch.epoch) && !Defect::EpochUnchecked.is_planted() {
        return Err(AppendOutcome::Fenced);
    }
    if batch.head != head {
        return Err(AppendOutcome::Rejected(format!("the log ends at {head}, not at {}", batch.head)));
    }
    Ok(())
}

/// The run whose state a change affects.
pub fn changed_run(change: &DirectoryChange) -> Option<&TaskId> {
    match change {
        DirectoryChange::RunStarted { run, .. }
        | DirectoryChange::RunStatus { run, .. }
        | DirectoryChange::RunDropped { run, .. } => Some(run),
        DirectoryChange::ConsumeInboxRow { .. }
        | DirectoryChange::Checkpoint(_)
        | DirectoryChange::ApprovalRequested(_)
        | DirectoryChange::ApprovalResolved { .. }
        | DirectoryChange::ClientCallClosed { .. }
        | DirectoryChange::AddSpend { .. }
        | DirectoryChange::ScheduleWakeup { .. } => None,
    }
}

/// The runs that a batch adds records or questions to.
pub fn runs_in_batch(batch: &AppendBatch) -> impl Iterator<Item = &TaskId> {
    let asking = batch.changes.iter().filter_map(|change| match change {
        DirectoryChange::ApprovalRequested(question) => Some(&question.run_id),
        _ => None,
    });
    batch.records.iter().map(|record| &record.run).chain(asking)
}

/// The state of a run after a change. `None` is a run that the thread does not have yet.
pub fn next_run_status(
    status: Option<TaskStatus>,
    run: &TaskId,
    change: &DirectoryChange,
) -> Result<TaskStatus, AppendOutcome> {
    let begun = matches!(status, Some(TaskStatus::Running | TaskStatus::Paused));
    match (change, status) {
        (DirectoryChange::RunStarted { .. }, None | Some(TaskStatus::Queued)) => Ok(TaskStatus::Running),
        (DirectoryChange::RunDropped { .. }, Some(TaskStatus::Queued)) => Ok(TaskStatus::Cancelled),
        (DirectoryChange::RunStatus { status: next, .. }, Some(_)) if begun && *next != TaskStatus::Queued => Ok(*next),
        (_, None) => Err(unknown_run(run)),
        (_, Some(status)) => {
            Err(AppendOutcome::Rejected(format!("run {run} is {}, so this change does not fit", status.as_str())))
        }
    }
}

/// The question that a command decides, the decision, and who decided.
pub fn approval_decision(command: &Command) -> Option<(&ApprovalKey, &ApprovalDecision, Initiator)> {
    match command {
        Command::Answer(answer) => match &answer.body {
            AnswerBody::Approval { key, decision, by } => Some((key, decision, *by)),
            AnswerBody::ClientTools { .. } => None,
        },
        Command::Start(_) | Command::Cancel(_) | Command::Steer(_) => None,
    }
}

/// The results of client tools that a command brings.
pub fn client_results(command: &Command) -> &[ClientToolResult] {
    match command {
        Command::Answer(AnswerCommand { body: AnswerBody::ClientTools { results }, .. }) => results,
        Command::Answer(_) | Command::Start(_) | Command::Cancel(_) | Command::Steer(_) => &[],
    }
}

/// The digest by which a repeated result is recognised.
pub fn result_digest(result: &ClientToolResult) -> String {
    let text = serde_json::to_vec(&(&result.content, &result.error)).unwrap_or_default();
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a command of the inbox closes what the submission answers.
pub fn is_cancel_of_question(waiting: &Command, submission: &Submission) -> bool {
    match waiting {
        Command::Cancel(CancelCommand { task_id, .. }) => {
            task_id == submission.command.task_id() || submission.task_path.contains(task_id)
        }
        Command::Start(_) | Command::Steer(_) | Command::Answer(_) => false,
    }
}

/// The result of submitting client results of which some calls are closed; `None` when all are open. `stored` has the digest
/// of each call that is closed: [`CLOSED_BY_RECORDS`] or that of the submitted result.
pub fn closed_calls_result(
    submission: &Submission,
    stored: &[Option<String>],
    is_cancelled: bool,
) -> Option<Result<Submitted, SubmitError>> {
    let results = client_results(&submission.command);
    let is_repeated =
        |(result, stored): (&ClientToolResult, &Option<String>)| stored.as_ref() == Some(&result_digest(result));
    if !results.is_empty() && results.iter().zip(stored).all(is_repeated) {
        let (task, thread) = (submission.command.task_id().clone(), submission.thread.clone());
        return Some(Ok(Submitted::Duplicate { task, thread }));
    }
    let mut closed = results.iter().zip(stored).filter(|(_, stored)| is_cancelled || stored.is_some());
    closed.next().map(|(result, _)| Err(SubmitError::CallClosed(result.call_id.clone())))
}

/// The question as the cancel that waits in the inbox will close it.
pub fn withdrawn_approval(question: ApprovalRow, at: Millis) -> SubmitError {
    let decision = ApprovalDecision { kind: ApprovalDecisionKind::Reject, always: false, message: None, args: None };
    let answer = Some(ApprovalAnswer { decision, by: Initiator::System, at });
    SubmitError::AlreadyDecided(Box::new(ApprovalRow { answer, ..question }))
}

/// The result of a decision on a closed question; `None` when the question is open. `cancelled_at` is the time of a cancel
/// that waits in the inbox and closes it.
pub fn closed_approval_result(
    question: &ApprovalRow,
    (decision, by): (&ApprovalDecision, Initiator),
    at: Millis,
    cancelled_at: Option<Millis>,
) -> Option<Result<Submitted, SubmitError>> {
    match &question.answer {
        None if cancelled_at.is_some() => {
            Some(Err(withdrawn_approval(question.clone(), cancelled_at.unwrap_or_default())))
        }
        Some(answer) if answer.decision == *decision && answer.by == by => {
            let (task, thread) = (question.run_id.clone(), question.thread_id.clone());
            Some(Ok(Submitted::Duplicate { task, thread }))
        }
        // After the expiry only the time-out decides.
        None if by == Initiator::Timeout || at < question.expires_at => None,
        Some(_) | None => Some(Err(SubmitError::AlreadyDecided(Box::new(question.clone())))),
    }
}

/// Whether the answers differ at most in their time. The stored one is then kept.
pub fn is_same_answer(known: &ApprovalAnswer, answer: &ApprovalAnswer) -> bool {
    known.decision == answer.decision && known.by == answer.by
}

/// Whether the command starts a run, or continues one that could have ended: what a user whose log is full may not do.
pub const fn adds_input(command: &Command) -> bool {
    match command {
        Command::Start(_) | Command::Steer(_) => true,
        Command::Cancel(_) | Command::Answer(_) => false,
    }
}

/// A full inbox accepts time-outs, because the queued commands may wait for one.
pub fn bypasses_inbox_limit(command: &Command) -> bool {
    match command {
        Command::Cancel(cancel) => cancel.cause == CancelCause::Deadline,
        Command::Start(_) | Command::Steer(_) | Command::Answer(_) => {
            approval_decision(command).is_some_and(|(.., by)| by == Initiator::Timeout)
        }
    }
}

pub fn unknown_approval(key: &ApprovalKey) -> AppendOutcome {
    AppendOutcome::Rejected(format!("the thread has no question {key}"))
}

pub fn unknown_run(run: &TaskId) -> AppendOutcome {
    AppendOutcome::Rejected(format!("the thread has no run {run}"))
}

pub fn unknown_inbox_row(row: u64) -> AppendOutcome {
    AppendOutcome::Rejected(format!("the inbox has no row {row}"))
}

/// Paths are long and random: a collision is a bug of the caller, and a retry uses another path.
pub fn path_taken_error(path: &str) -> StoreError {
    StoreError::Unavailable(format!("{path} is taken: use another path"))
}

pub fn blob_without_thread_error(path: &str) -> StoreError {
    StoreError::Unavailable(format!("{path} is a blob: a thread has to use it"))
}

pub fn blob_without_hash_error(path: &str) -> StoreError {
    StoreError::Unavailable(format!("{path} is not a blob: it has no hash"))
}

pub fn key_exists_error(id: &str) -> StoreError {
    StoreError::Unavailable(format!("there is a key named {id} already"))
}

pub fn share_exists_error(id: &str) -> StoreError {
    StoreError::Unavailable(format!("there is a share named {id} already"))
}

/// Ids are long and random: a collision is a bug of the caller, and a retry uses another id.
pub fn id_taken_error(id: &str) -> SubmitError {
    SubmitError::Store(StoreError::Unavailable(format!("{id} is taken: use another name")))
}
