//! What a request finds in its thread: is a run in its way, and what is to be done about that?

use super::Engine;
use super::start::{NewRun, OnBusy, StartError, StartedRun};
use model::ports::{ListPage, RunFilter, StoreError, SubmitError};
use model::task::TaskStatus;
use model::{TaskId, ThreadId, UserId};

/// Runs are looked at so many at a time.
const RUNS_PAGE_SIZE: usize = 100;

/// What a request finds in its thread.
pub(crate) enum BusyOutcome {
    /// Nothing that it would have to care about.
    Proceed,
    /// A run that is to be stopped for it.
    Interrupt(TaskId),
    /// The run that has it now.
    Handled(StartedRun),
}

impl Engine {
    /// Looks whether a run is in the way, and what `on_busy` says to do about it.
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
                Ok(BusyOutcome::Handled(StartedRun { task: busy, thread: thread.clone() }))
            }
        }
    }

    /// The run that has a thread: the oldest that has not ended.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub async fn active_run(&self, user: &UserId, thread: &ThreadId) -> Result<Option<TaskId>, StoreError> {
        let status = vec![TaskStatus::Queued, TaskStatus::Running, TaskStatus::Paused];
        let filter = RunFilter { status, thread: Some(thread.clone()) };
        // Newest first: the one that goes on is the oldest that has not ended.
        let mut oldest: Option<TaskId> = None;
        loop {
            let page = ListPage { before: oldest.as_ref().map(ToString::to_string), limit: RUNS_PAGE_SIZE };
            let runs = self.ports().directory.runs(user, filter.clone(), page).await?;
            let Some(last) = runs.last() else { return Ok(oldest) };
            oldest = Some(last.id.clone());
        }
    }
}
