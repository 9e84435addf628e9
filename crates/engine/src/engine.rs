//! The interface of the engine. Submodules add to [`Engine`]: `start` and `on_busy` start runs, `commands` sends to runs that
//! have started, `queries` reads what is durable.

mod commands;
mod on_busy;
mod queries;
mod start;

pub use commands::{AnswerError, AnsweringRequest};
pub use start::{NewRun, OnBusy, REQUEST_BYTES_MAX, RunPredecessor, StartError, StartedRun};

use crate::actor_registry::{ActorRegistry, StartReservation};
use crate::cluster;
use crate::ports::Ports;
use crate::read_records::log_head;
use crate::recovery;
use crate::shared::{Shared, StopMode};
use crate::viewer::{View, Viewer};
use crate::wake_schedule::DueThread;
use model::command::Command;
use model::cursor::{Cursor, CursorError};
use model::ports::{
    ClusterSignal, IdempotencyKey, PageLimit, ScheduledWakeup, StoreError, StoreResult, Submission, SubmitError,
    Submitted, ThreadMode, ThreadTag,
};
use model::task::TaskStatus;
use model::{Millis, Record, Seq, TaskId, ThreadId, UserId};
use schema::SchemaCache;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// Recovery does not wait until all waits have been checked.
const WAITS_CHECKED_AT_START: usize = 256;

/// Executes runs and streams their records. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    registry: Arc<ActorRegistry>,
}

#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    #[error(transparent)]
    Cursor(#[from] CursorError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Engine {
    /// Nothing runs before [`Engine::recover`] or the first command.
    pub fn new(ports: Ports) -> Self {
        Self { registry: Arc::new(ActorRegistry::new(Shared::new(ports))) }
    }

    pub fn ports(&self) -> &Ports {
        &self.registry.shared.ports
    }

    /// The compiled schemas of tools. A request compiles those that it declares, and its run takes them from here.
    pub fn schemas(&self) -> &SchemaCache {
        &self.registry.shared.schemas
    }

    /// Resumes what an earlier process left: runs that have not ended and commands that were not handled. Returns the number
    /// of threads.
    pub async fn recover(&self) -> Result<usize, StoreError> {
        let claimable = self.ports().directory.claimable_threads().await?;
        let count = claimable.len();
        recovery::recover_threads(&self.registry, claimable).await;
        let mut wakeups = self.ports().directory.scheduled_wakeups().await?;
        for wake in &wakeups {
            self.registry.shared.wake_schedule.schedule(&wake.owner, &wake.thread, wake.at);
        }
        tokio::spawn(Arc::clone(&self.registry).run_wake_loop());
        if self.ports().cluster.is_shared() {
            tokio::spawn(cluster::run_cluster_loop(Arc::clone(&self.registry)));
        }
        let later = wakeups.split_off(wakeups.len().min(WAITS_CHECKED_AT_START));
        self.shorten_waits(wakeups).await;
        let engine = self.clone();
        tokio::spawn(async move { engine.shorten_waits(later).await });
        Ok(count)
    }

    /// If the clock was set back while no process ran, what waits has recorded times that are still to come. From now on it
    /// waits as long as it would have waited when its last record was written, and no longer.
    async fn shorten_waits(&self, wakeups: Vec<ScheduledWakeup>) {
        let journal = &self.ports().journal;
        for ScheduledWakeup { owner, thread, at } in wakeups {
            let Ok(head) = log_head(&**journal, &owner, &thread).await else { continue };
            let Ok(page) = journal.read_page(&owner, &thread, head.prev(), PageLimit::ONE).await else { continue };
            let (now, last) = (self.ports().clock.now(), page.records.first().map_or(0, |last| last.at));
            if last > now {
                let wakes_at = now.saturating_add(at.saturating_sub(last));
                let due = DueThread { owner, thread, timer_at: at };
                self.registry.shared.wake_schedule.schedule_at(due, wakes_at);
            }
        }
    }

    pub(crate) async fn submit(
        &self,
        user: &UserId,
        thread: &ThreadId,
        command: Command,
        idempotency: Option<IdempotencyKey>,
    ) -> Result<Submitted, SubmitError> {
        let submission = self.new_submission(thread.clone(), ThreadMode::MustExist, command, idempotency);
        let submitted = self.write_submission(user, submission).await?;
        self.wake_executor(user, thread);
        Ok(submitted)
    }

    /// A thread's inbox has a new row. If another node holds the thread, it is told; else this one executes it.
    pub(crate) fn wake_executor(&self, user: &UserId, thread: &ThreadId) {
        self.ports().cluster.ring(ClusterSignal::Inbox(ThreadTag::new(thread)));
        self.registry.wake_thread(user, thread);
    }

    /// Waits until another node has changed access keys or shares.
    pub async fn credentials_changed(&self) {
        self.registry.shared.credentials_changed.notified().await;
    }

    pub(crate) async fn write_submission(
        &self,
        user: &UserId,
        submission: Submission,
    ) -> Result<Submitted, SubmitError> {
        let writer = self.ports().directory.writer(user)?;
        if self.registry.shared.recovery.is_parked(&submission.thread)
            && self.ports().directory.thread(user, &submission.thread).await?.is_some()
        {
            return Err(SubmitError::ThreadParked);
        }
        let submitted = writer.submit(user, submission).await;
        if let Err(SubmitError::LogQuotaExceeded { used, max }) = &submitted {
            metrics::counter!("headwater_quota_rejections_total", "quota" => "log").increment(1);
            tracing::warn!(%user, used, max, "the conversations of a user hold as much as they may: no run starts");
        }
        submitted
    }

    fn new_submission(
        &self,
        thread: ThreadId,
        thread_mode: ThreadMode,
        command: Command,
        idempotency: Option<IdempotencyKey>,
    ) -> Submission {
        let at = self.ports().clock.now();
        Submission { thread, thread_mode, at, command, idempotency_key: idempotency, task_path: Vec::new() }
    }

    /// Waits until a run has ended or waits for people. Returns also when there is no such run, and when the process
    /// halts.
    pub async fn wait_settled(&self, user: &UserId, run: &TaskId, thread: &ThreadId) -> Result<(), StoreError> {
        let shared = &self.registry.shared;
        let waiter = shared.run_waiters.register(thread, run);
        loop {
            let mut changed = pin!(waiter.changed.notified());
            // Before the row is read: what changes from here on is noticed.
            changed.as_mut().enable();
            let row = shared.ports.directory.run(user, run).await?;
            let waits = row.is_some_and(|row| !row.status.is_terminal() && row.status != TaskStatus::Paused);
            if !waits || shared.stop_mode() == StopMode::Halted {
                return Ok(());
            }
            changed.await;
        }
    }

    /// Streams a thread from a cursor on.
    pub async fn watch(
        &self,
        user: &UserId,
        thread: &ThreadId,
        view: View,
        cursor: &Cursor,
    ) -> Result<Viewer, WatchError> {
        self.check_cursor(user, thread, cursor).await?;
        Ok(self.watch_from(user, thread, view, cursor.seq))
    }

    /// Streams a thread from a record that is known to be in its log.
    pub fn watch_from(&self, user: &UserId, thread: &ThreadId, view: View, cursor: Seq) -> Viewer {
        let (hub, journal) = (&self.registry.shared.hub, Arc::clone(&self.ports().journal));
        Viewer::new(hub, journal, user.clone(), thread.clone(), view, cursor)
    }

    /// Checks that a cursor belongs to this log.
    pub async fn check_cursor(&self, user: &UserId, thread: &ThreadId, cursor: &Cursor) -> Result<(), WatchError> {
        let journal = &self.ports().journal;
        let page = journal.read_page(user, thread, cursor.seq.prev(), PageLimit::ONE).await?;
        let (asked, head) = (cursor.seq, page.head);
        if asked > head {
            return Err(CursorError::Ahead { asked, head }.into());
        }
        let fits = |record: &Record| asked == Seq::ZERO || cursor.matches(record);
        if page.records.first().is_none_or(fits) { Ok(()) } else { Err(CursorError::Mismatch.into()) }
    }

    /// Deletes a thread with everything in it and ends its streams. Returns false when there is no such thread.
    pub async fn delete_thread(&self, user: &UserId, thread: &ThreadId) -> Result<bool, StoreError> {
        let deleted = self.ports().directory.writer(user)?.delete_thread(user, thread).await?;
        self.forget_thread(user, thread, deleted).await;
        Ok(deleted)
    }

    /// Deletes a thread like [`Self::delete_thread`], if it has been idle since before this time.
    pub async fn delete_idle_thread(
        &self,
        user: &UserId,
        thread: &ThreadId,
        since: Millis,
    ) -> Result<bool, StoreError> {
        let deleted = self.ports().directory.writer(user)?.delete_idle_thread(user, thread, since).await?;
        self.forget_thread(user, thread, deleted).await;
        Ok(deleted)
    }

    async fn forget_thread(&self, user: &UserId, thread: &ThreadId, is_deleted: bool) {
        if !is_deleted {
            return;
        }
        let shared = &self.registry.shared;
        shared.idle_threads.forget(thread);
        if shared.recovery.forget(thread) {
            recovery::save_list(shared).await;
        }
        // A live run notices when its next append is rejected.
        self.registry.wake_thread(user, thread);
        shared.hub.close(thread);
        shared.run_waiters.wake_thread(thread);
        self.ports().cluster.ring(ClusterSignal::Records(ThreadTag::new(thread)));
    }

    /// The number of threads that are being executed.
    pub fn live_threads(&self) -> usize {
        self.registry.live_threads()
    }

    /// Reserves a place among the `max` threads of a user that are executed at once, for a run in this thread or a new one.
    /// `None` if all are taken. The places of other nodes are those that they execute at this moment.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn reserve_start(
        &self,
        user: &UserId,
        thread: Option<&ThreadId>,
        max: usize,
    ) -> StoreResult<Option<StartReservation>> {
        let elsewhere = self.registry.shared.ports.cluster.live_threads_elsewhere(user, thread).await?;
        Ok(self.registry.reserve_start(user, thread, max.saturating_sub(elsewhere)))
    }

    /// Stops the process: no run starts, running ones have `grace` to end, then everything halts where it is.
    pub async fn stop(&self, grace: Duration) {
        self.registry.stop(StopMode::Draining);
        let drained = async {
            while self.live_threads() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        // A run that cannot end in time halts; the log tells how far it was.
        let _in_time = tokio::time::timeout(grace, drained).await.is_ok();
        self.registry.stop(StopMode::Halted);
        self.registry.shared.hub.close_all();
        self.registry.shared.run_waiters.wake_all();
        recovery::clear_suspicion(&self.registry.shared).await;
    }
}
