//! Which appends and decisions fit: the part of the law that needs no storage, hence the same in every backend.
//!
//! A backend asks in this order, and writes only when nothing spoke against the batch: [`flaw`] (of the batch alone;
//! may be asked before it queues), [`standing`] (term and place), then [`moved`] for every change of a run. Every run that
//! the batch names ([`named`]) must be the thread's after it. [`decided`] is for submitted decisions. Of files only the words
//! of refusals are here.

use model::command::{AnswerBody, Command};
use model::defects::Defect;
use model::event::{ApprovalDecision, Initiator};
use model::limits::CostMicros;
use model::ports::{
    AppendBatch, AppendOutcome, ApprovalAnswer, ApprovalRow, DirectoryChange, Spend, StoreError, SubmitError, Submitted,
};
use model::seq::{Epoch, Millis};
use model::task::TaskStatus;
use model::{ApprovalKey, Seq, TaskId};

/// What a batch of a thread that is not there gets, or of somebody else's.
pub(crate) const THREAD_NOT_FOUND: &str = "no such thread";

/// What fits no log, whatever is in it.
pub(crate) fn validate_batch(batch: &AppendBatch) -> Option<String> {
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
    for change in &batch.changes {
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
            | DirectoryChange::AddSpend { .. }
            | DirectoryChange::ScheduleWakeup { .. } => {}
        }
    }
    None
}

/// Does the batch have the thread's term and place?
pub(crate) fn check_epoch(epoch: Option<Epoch>, head: Seq, batch: &AppendBatch) -> Result<(), AppendOutcome> {
    if epoch != Some(batch.epoch) && !Defect::EpochUnchecked.is_planted() {
        return Err(AppendOutcome::Fenced);
    }
    if batch.head != head {
        return Err(AppendOutcome::Rejected(format!("the log ends at {head}, not at {}", batch.head)));
    }
    Ok(())
}

/// The run that a change moves.
pub(crate) fn changed_run(change: &DirectoryChange) -> Option<&TaskId> {
    match change {
        DirectoryChange::RunStarted { run, .. }
        | DirectoryChange::RunStatus { run, .. }
        | DirectoryChange::RunDropped { run, .. } => Some(run),
        DirectoryChange::ConsumeInboxRow { .. }
        | DirectoryChange::Checkpoint(_)
        | DirectoryChange::ApprovalRequested(_)
        | DirectoryChange::ApprovalResolved { .. }
        | DirectoryChange::AddSpend { .. }
        | DirectoryChange::ScheduleWakeup { .. } => None,
    }
}

/// The runs that a batch adds something to: records, questions.
pub(crate) fn runs_in_batch(batch: &AppendBatch) -> impl Iterator<Item = &TaskId> {
    let asking = batch.changes.iter().filter_map(|change| match change {
        DirectoryChange::ApprovalRequested(question) => Some(&question.run_id),
        _ => None,
    });
    batch.records.iter().map(|record| &record.run).chain(asking)
}

/// Where a change takes a run that is at `status`; `None` is a run that the thread does not have yet.
pub(crate) fn next_run_status(
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

/// The question that a command decides, how, and who says so.
pub(crate) fn approval_decision(command: &Command) -> Option<(&ApprovalKey, &ApprovalDecision, Initiator)> {
    match command {
        Command::Answer(answer) => match &answer.body {
            AnswerBody::Approval { key, decision, by } => Some((key, decision, *by)),
            AnswerBody::ClientTools { .. } => None,
        },
        Command::Start(_) | Command::Cancel(_) | Command::Steer(_) => None,
    }
}

/// What a decision gets whose question is no longer open; `None` when it is, and the decision counts.
pub(crate) fn closed_approval_result(
    question: &ApprovalRow,
    (decision, by): (&ApprovalDecision, Initiator),
    at: Millis,
) -> Option<Result<Submitted, SubmitError>> {
    match &question.answer {
        Some(answer) if answer.decision == *decision && answer.by == by => {
            let (task, thread) = (question.run_id.clone(), question.thread_id.clone());
            Some(Ok(Submitted::Duplicate { task, thread }))
        }
        // When its time is up only the clock may say so, and will.
        None if by == Initiator::Timeout || at < question.expires_at => None,
        Some(_) | None => Some(Err(SubmitError::AlreadyDecided(Box::new(question.clone())))),
    }
}

/// Is this what was answered before? Then the answer stays as it came.
pub(crate) fn is_same_answer(known: &ApprovalAnswer, answer: &ApprovalAnswer) -> bool {
    known.decision == answer.decision && known.by == answer.by
}

/// Does a command find room in a full inbox? What the clock ends may be all that the rest waits for.
pub(crate) fn bypasses_inbox_limit(command: &Command) -> bool {
    approval_decision(command).is_some_and(|(.., by)| by == Initiator::Timeout)
}

/// What was spent in all. Where it would overflow it stays: a limit is not got round by counting on.
pub(crate) fn sum_spend(one: Spend, other: Spend) -> Spend {
    let mut usage = one.usage;
    usage.add(other.usage);
    Spend { usage, cost: CostMicros(one.cost.0.saturating_add(other.cost.0)) }
}

/// The verdict on a question that the thread does not have.
pub(crate) fn unknown_approval(key: &ApprovalKey) -> AppendOutcome {
    AppendOutcome::Rejected(format!("the thread has no question {key}"))
}

/// The verdict on a run that the thread does not have.
pub(crate) fn unknown_run(run: &TaskId) -> AppendOutcome {
    AppendOutcome::Rejected(format!("the thread has no run {run}"))
}

/// The verdict on an inbox row that is not there, or no longer.
pub(crate) fn unknown_inbox_row(row: u64) -> AppendOutcome {
    AppendOutcome::Rejected(format!("the inbox has no row {row}"))
}

/// Paths are random and long: one that is taken is a caller's mistake, and another try takes another path.
pub(crate) fn path_taken_error(path: &str) -> StoreError {
    StoreError::Unavailable(format!("{path} is taken: use another path"))
}

/// A blob was put as if it were no blob: nobody would use it.
pub(crate) fn blob_without_thread_error(path: &str) -> StoreError {
    StoreError::Unavailable(format!("{path} is a blob: a thread has to use it"))
}

/// Something was put as a blob that is none.
pub(crate) fn blob_without_hash_error(path: &str) -> StoreError {
    StoreError::Unavailable(format!("{path} is not a blob: it has no hash"))
}
