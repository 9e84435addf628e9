//! The interface of the engine. Submodules add to [`Engine`]: `start` and `on_busy` start runs, `commands` sends to runs that
//! have started, `queries` reads what is durable.

mod commands;
mod on_busy;
mod queries;
mod start;

pub use commands::{AnswerError, AnsweringRequest};
pub use start::{NewRun, OnBusy, REQUEST_BYTES_MAX, StartError, StartedRun};

use crate::actor_registry::ActorRegistry;
use crate::ports::Ports;
use crate::recovery;
use crate::shared::{Shared, StopMode};
use crate::viewer::{View, Viewer};
use model::command::Command;
use model::cursor::{Cursor, CursorError};
use model::event::Event;
use model::ports::{
    Frames, IdempotencyKey, PageLimit, Projection, StoreError, Submission, SubmitError, Submitted, ThreadMode,
};
use model::{Record, Seq, TaskId, ThreadId, UserId};
use schema::SchemaCache;
use std::sync::Arc;
use std::time::Duration;

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

    /// The compiled schemas of tools. Whoever accepts a request compiles them, and its run finds them here.
    pub fn schemas(&self) -> &SchemaCache {
        &self.registry.shared.schemas
    }

    /// Resumes what an earlier process left: runs that have not ended and commands that were not handled. Returns the number
    /// of threads.
    pub async fn recover(&self) -> Result<usize, StoreError> {
        let claimable = self.ports().directory.claimable_threads().await?;
        let count = claimable.len();
        recovery::recover_threads(&self.registry, claimable).await;
        for wake in self.ports().directory.scheduled_wakeups().await? {
            self.registry.shared.wake_schedule.schedule(&wake.owner, &wake.thread, wake.at);
        }
        tokio::spawn(Arc::clone(&self.registry).run_wake_loop());
        Ok(count)
    }

    pub(crate) async fn submit(
        &self,
        user: &UserId,
        thread: &ThreadId,
        command: Command,
        idempotency: Option<IdempotencyKey>,
    ) -> Result<Submitted, SubmitError> {
        let submitted = self.submit_without_wake(user, thread, command, idempotency).await?;
        self.registry.wake_thread(user, thread);
        Ok(submitted)
    }

    /// Stores a command without waking the actor.
    pub(crate) async fn submit_without_wake(
        &self,
        user: &UserId,
        thread: &ThreadId,
        command: Command,
        idempotency: Option<IdempotencyKey>,
    ) -> Result<Submitted, SubmitError> {
        let submission = self.new_submission(thread.clone(), ThreadMode::MustExist, command, idempotency);
        self.write_submission(user, submission).await
    }

    async fn write_submission(&self, user: &UserId, submission: Submission) -> Result<Submitted, SubmitError> {
        self.ports().directory.writer(user)?.submit(user, submission).await
    }

    fn new_submission(
        &self,
        thread: ThreadId,
        thread_mode: ThreadMode,
        command: Command,
        idempotency: Option<IdempotencyKey>,
    ) -> Submission {
        Submission { thread, thread_mode, at: self.ports().clock.now(), command, idempotency_key: idempotency }
    }

    /// Waits until a run has ended or waits for people.
    pub async fn wait_settled(&self, user: &UserId, run: &TaskId, thread: &ThreadId) -> Result<(), StoreError> {
        let row = self.ports().directory.run(user, run).await?;
        // From the last change of its status: an earlier pause is over.
        let from = row.and_then(|row| row.last_seq.or(row.first_seq)).map_or(Seq::ZERO, Seq::prev);
        let view = View {
            lane: format!("settled:{run}").into(),
            projection: Box::new(SettledProjection { run: run.clone() }),
            history_start: from,
            skip_frames: 0,
        };
        let mut viewer = self.watch_from(user, thread, view, from);
        viewer.next().await.map(|_| ())
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
        if deleted {
            // A live run notices when its next append is rejected.
            self.registry.wake_thread(user, thread);
            self.registry.shared.hub.close(thread);
        }
        Ok(deleted)
    }

    /// The number of threads that are being executed.
    pub fn live_threads(&self) -> usize {
        self.registry.live_threads()
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
    }
}

/// Ends when a run has ended or paused.
#[derive(Clone)]
struct SettledProjection {
    run: TaskId,
}

impl Projection for SettledProjection {
    fn project(&mut self, record: &Record, out: &mut Frames) {
        let event = record.event();
        let is_settled = event.is_terminal() || matches!(event, Event::Paused(_));
        if is_settled && record.run == self.run && event.task_id() == Some(&self.run) {
            out.finish();
        }
    }

    fn needs_history(&self) -> bool {
        false
    }

    fn boxed_clone(&self) -> Box<dyn Projection> {
        Box::new(self.clone())
    }
}
