//! What a request does when its thread has an active run.

use super::Engine;
use super::start::{NewRun, OnBusy, StartError, StartedRun};
use model::ports::{ListPage, RunFilter, StoreError, SubmitError};
use model::task::TaskStatus;
use model::{TaskId, ThreadId, UserId};

const RUNS_PAGE_SIZE: usize = 100;

pub(crate) enum BusyOutcome {
    /// Start or enqueue the run.
    Proceed,
    /// Start the run and cancel this one.
    Interrupt(TaskId),
    /// The request is part of this run already.
    Handled(StartedRun),
}

impl Engine {
    /// Applies `on_busy` if the thread has an active run.
    pub(crate) async fn resolve_busy(
        &self,
        user: &UserId,
        thread: &ThreadId,
        new: &NewRun,
    ) -> Result<BusyOutcome, StartError> {
        if new.on_busy == OnBusy::Enqueue {
            return Ok(BusyOutcome::Proceed);
        }
        let Some(busy) = self.active_run(user, thread).await.map_err(SubmitError::from)? else {
            return Ok(BusyOutcome::Proceed);
        };
        match new.on_busy {
            OnBusy::Enqueue => Ok(BusyOutcome::Proceed),
            OnBusy::Interrupt => Ok(BusyOutcome::Interrupt(busy)),
            // The same request, sent twice at once, may be what keeps the thread busy.
            OnBusy::Reject => match self.find_submission(user, new.idempotency.as_ref()).await? {
                Some(known) => Ok(BusyOutcome::Handled(known)),
                None => Err(StartError::Busy(busy)),
            },
            OnBusy::Steer => {
                self.steer(user, thread, busy.clone(), new.input.clone(), new.idempotency.clone()).await?;
                Ok(BusyOutcome::Handled(StartedRun::earlier(busy, thread.clone())))
            }
        }
    }

    /// The active run of a thread: the oldest that has not ended.
    pub async fn active_run(&self, user: &UserId, thread: &ThreadId) -> Result<Option<TaskId>, StoreError> {
        let status = vec![TaskStatus::Queued, TaskStatus::Running, TaskStatus::Paused];
        let filter = RunFilter { status, thread: Some(thread.clone()) };
        // The listing is newest first: the last page has the oldest.
        let mut oldest: Option<TaskId> = None;
        loop {
            let page = ListPage { before: oldest.as_ref().map(ToString::to_string), limit: RUNS_PAGE_SIZE };
            let runs = self.ports().directory.runs(user, filter.clone(), page).await?;
            let Some(last) = runs.last() else { return Ok(oldest) };
            oldest = Some(last.id.clone());
        }
    }
}
