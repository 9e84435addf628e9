//! Which appends fit: the part of the law that needs no storage, hence the same in every backend.
//!
//! A backend asks in this order, and writes only when nothing spoke against the batch: [`flaw`] (of the batch alone;
//! may be asked before it queues), [`standing`] (term and place), then [`moved`] for every change of a run.

use model::defects::Defect;
use model::object::TaskStatus;
use model::ports::{Batch, Change, Verdict};
use model::seq::Epoch;
use model::{Seq, TaskId};

/// What a batch of a thread that is not there gets, or of somebody else's.
pub(crate) const NO_THREAD: &str = "no such thread";

/// What fits no log, whatever is in it.
pub(crate) fn flaw(batch: &Batch) -> Option<String> {
    let mut seq = batch.head;
    for record in &batch.records {
        seq = seq.next();
        if record.seq != seq {
            return Some(format!("record {} stands where {seq} belongs", record.seq));
        }
        if record.epoch != batch.epoch {
            return Some(format!("record {seq} is of epoch {}, its batch of {}", record.epoch, batch.epoch));
        }
        if !record.is_sound(&batch.thread) {
            return Some(format!("record {seq} does not have the checksum of its bytes"));
        }
    }
    let new = batch.head.next()..=seq;
    let mut consumed = Vec::new();
    for change in &batch.changes {
        match change {
            Change::RunStarted { run, first: at, .. } | Change::RunStatus { run, last: at, .. }
                if !new.contains(at) =>
            {
                return Some(format!("run {run} changes with record {at}, which is not in the batch"));
            }
            Change::Consume { row } if consumed.contains(row) => {
                return Some(format!("inbox row {row} is consumed twice"));
            }
            Change::Consume { row } => consumed.push(*row),
            Change::Checkpoint(checkpoint) if checkpoint.seq > seq => {
                return Some(format!("a checkpoint of record {} comes before the record", checkpoint.seq));
            }
            Change::RunStarted { .. }
            | Change::RunStatus { .. }
            | Change::RunDropped { .. }
            | Change::Checkpoint(_) => {}
        }
    }
    None
}

/// Does the batch have the thread's term and place?
pub(crate) fn standing(epoch: Option<Epoch>, head: Seq, batch: &Batch) -> Result<(), Verdict> {
    if epoch != Some(batch.epoch) && !Defect::EpochUnchecked.planted() {
        return Err(Verdict::Fenced);
    }
    if batch.head != head {
        return Err(Verdict::Refused(format!("the log ends at {head}, not at {}", batch.head)));
    }
    Ok(())
}

/// The run that a change is about.
pub(crate) fn run_of(change: &Change) -> Option<&TaskId> {
    match change {
        Change::RunStarted { run, .. } | Change::RunStatus { run, .. } | Change::RunDropped { run, .. } => Some(run),
        Change::Consume { .. } | Change::Checkpoint(_) => None,
    }
}

/// Where a change takes a run that is at `status`; `None` is a run that the thread does not have yet.
pub(crate) fn moved(status: Option<TaskStatus>, run: &TaskId, change: &Change) -> Result<TaskStatus, Verdict> {
    let begun = matches!(status, Some(TaskStatus::Running | TaskStatus::Paused));
    match (change, status) {
        (Change::RunStarted { .. }, None | Some(TaskStatus::Queued)) => Ok(TaskStatus::Running),
        (Change::RunDropped { .. }, Some(TaskStatus::Queued)) => Ok(TaskStatus::Cancelled),
        (Change::RunStatus { status: next, .. }, Some(_)) if begun && *next != TaskStatus::Queued => Ok(*next),
        (_, None) => Err(unknown_run(run)),
        (_, Some(status)) => {
            Err(Verdict::Refused(format!("run {run} is {}, so this change does not fit", status.as_str())))
        }
    }
}

/// The verdict on a run that the thread does not have.
pub(crate) fn unknown_run(run: &TaskId) -> Verdict {
    Verdict::Refused(format!("the thread has no run {run}"))
}

/// The verdict on an inbox row that is not there, or no longer.
pub(crate) fn unknown_row(row: u64) -> Verdict {
    Verdict::Refused(format!("the inbox has no row {row}"))
}
