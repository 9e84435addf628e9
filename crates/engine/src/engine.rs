//! What `server` calls.

use crate::actor::NewThread;
use crate::hub::Hub;
use crate::on_busy::BusyOutcome;
use crate::shared::{Ports, Shared, StopMode};
use crate::viewer::{View, Viewer};
use model::command::{CancelCommand, Command, StartCommand};
use model::content::ContentPart;
use model::cursor::{Cursor, CursorError};
use model::event::{CancelMode, ClientIds, ClientTool, DisplayMode};
use model::history::PriorHistory;
use model::json::JsonObject;
use model::limits::RECORD_BYTES_MAX;
use model::model_settings::ModelSettings;
use model::ports::{
    Frames, IdempotencyKey, InboxRow, PageLimit, Projection, StoreError, Submission, SubmitError, Submitted, ThreadMode,
};
use model::{Record, Seq, TaskId, ThreadId, UserId};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// The engine. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

/// A run that somebody asks for.
#[derive(Clone, Debug, Default)]
pub struct NewRun {
    /// The agent, or `provider/model`.
    pub agent: String,
    /// What the user says.
    pub input: Vec<ContentPart>,
    /// The thread to go on in; a new one when absent.
    pub thread: Option<ThreadId>,
    /// The run after which to go on.
    pub previous: Option<TaskId>,
    /// Tools that the caller will run itself.
    pub tools: Vec<ClientTool>,
    /// The caller's own notes.
    pub metadata: JsonObject,
    /// What to do when the thread is busy.
    pub on_busy: OnBusy,
    /// The caller's key against doing it twice.
    pub idempotency: Option<IdempotencyKey>,
    /// The thread is one that was promised, and may not be there yet: then it is made.
    pub create_if_missing: bool,
    /// How much a front end shows.
    pub display_mode: DisplayMode,
    /// The names under which a client of another protocol knows it.
    pub client: Option<ClientIds>,
    /// Where its thread came from, where that was not nothing.
    pub origin: Option<Value>,
    /// What was said before it that the thread's log does not have.
    pub prior_history: Option<PriorHistory>,
    /// What the caller asks of the model.
    pub model_settings: ModelSettings,
    /// What the caller's protocol shows back of the request.
    pub request_echo: Option<Value>,
}

/// What to do with a request for a thread that is busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnBusy {
    /// Wait for its turn.
    #[default]
    Enqueue,
    /// Refuse it.
    Reject,
    /// Stop what runs, then begin.
    Interrupt,
    /// Say it to what runs.
    Steer,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedRun {
    /// The run.
    pub task: TaskId,
    /// Its thread.
    pub thread: ThreadId,
}

/// Why a request was refused. `server::problem` gives each its status and code.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No such agent.
    #[error("there is no agent `{0}`")]
    UnknownAgent(String),
    /// No such run to go on after.
    #[error("there is no run `{0}` in this thread to go on after")]
    UnknownPrevious(TaskId),
    /// Nothing was said, and there is nothing to go on from.
    #[error("there is no input, and nothing in this thread to go on from")]
    NoInput,
    /// The request would not fit the log.
    #[error("the request is too large: input, tools and metadata together may be {0} bytes")]
    TooLarge(usize),
    /// The thread is busy.
    #[error("the thread is busy with `{0}`")]
    Busy(TaskId),
    /// It was not taken.
    #[error(transparent)]
    Submit(#[from] SubmitError),
}

/// Why a stream was refused. `server::problem` gives each its status and code.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The cursor does not fit.
    #[error(transparent)]
    Cursor(#[from] CursorError),
    /// The log could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a request may take up in the log.
pub const REQUEST_BYTES_MAX: usize = RECORD_BYTES_MAX / 4 * 3;

impl Engine {
    /// An engine on these ports. Nothing runs yet.
    #[must_use]
    pub fn new(ports: Ports) -> Self {
        Self { shared: Arc::new(Shared::new(ports)) }
    }

    /// What it stands on.
    #[must_use]
    pub fn ports(&self) -> &Ports {
        &self.shared.ports
    }

    /// Takes up everything that an earlier process left: runs that did not end, commands that were not answered.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub async fn recover(&self) -> Result<usize, StoreError> {
        let claimable = self.ports().directory.claimable_threads().await?;
        for (owner, thread) in &claimable {
            self.shared.wake_thread(owner, thread);
        }
        for wake in self.ports().directory.scheduled_wakeups().await? {
            self.shared.wake_schedule.schedule(&wake.owner, &wake.thread, wake.at);
        }
        tokio::spawn(Arc::clone(&self.shared).run_wake_loop());
        Ok(claimable.len())
    }

    /// Begins a run, or puts it into its thread's queue.
    ///
    /// # Errors
    /// See [`StartError`]. Nothing was changed then.
    pub async fn start(&self, user: &UserId, new: NewRun) -> Result<StartedRun, StartError> {
        // First of all: whatever has changed since, the same request gives the same run.
        if let Some(known) = self.find_submission(user, new.idempotency.as_ref()).await? {
            return Ok(known);
        }
        self.check_request(&new)?;
        let again = new.create_if_missing.then(|| NewRun { create_if_missing: false, ..new.clone() });
        let (thread, thread_mode) = match &new.thread {
            Some(thread) if new.create_if_missing && !self.has_thread(user, thread).await? => {
                (thread.clone(), ThreadMode::CreateNew)
            }
            Some(thread) => (thread.clone(), ThreadMode::MustExist),
            None => (ThreadId::from_uuid(Uuid::now_v7()), ThreadMode::CreateNew),
        };
        let mut in_the_way = None;
        if thread_mode == ThreadMode::MustExist {
            self.check_thread(user, &thread, &new).await?;
            match self.resolve_busy(user, &thread, &new).await? {
                BusyOutcome::Proceed => {}
                BusyOutcome::Interrupt(busy) => in_the_way = Some(busy),
                BusyOutcome::Handled(steered) => return Ok(steered),
            }
        } else if new.input.is_empty() && new.prior_history.is_none() {
            return Err(StartError::NoInput);
        }
        let task = TaskId::from_uuid(Uuid::now_v7());
        let start = StartCommand {
            task_id: task.clone(),
            agent: new.agent,
            input: new.input,
            previous: new.previous,
            tools: new.tools,
            metadata: new.metadata,
            display_mode: new.display_mode,
            client: new.client,
            origin: new.origin,
            prior_history: new.prior_history,
            model_settings: new.model_settings,
            request_echo: new.request_echo,
            rewritten_history: None,
            hook_error: None,
        };
        let command = Command::Start(Box::new(start));
        let submission = self.new_submission(thread.clone(), thread_mode, command.clone(), new.idempotency);
        let at = submission.at;
        let submitted = match (self.write_submission(user, submission).await, again) {
            // Somebody else made the promised thread meanwhile.
            (Err(SubmitError::ThreadExists), Some(again)) => return Box::pin(self.start(user, again)).await,
            (submitted, _) => submitted?,
        };
        match submitted {
            Submitted::Duplicate { task, thread } => return Ok(StartedRun { task, thread }),
            Submitted::Queued => self.shared.wake_thread(user, &thread),
            Submitted::ThreadCreated { lease, row } => {
                self.shared.spawn_or_wake(
                    user,
                    &thread,
                    Some(NewThread { lease, first_row: InboxRow { id: row, at, command } }),
                );
            }
        }
        if let Some(busy) = in_the_way {
            // After the start, so that a request that is sent twice at once cannot stop its own run.
            let cancel = Command::Cancel(CancelCommand { task_id: busy, mode: CancelMode::Immediate });
            self.submit(user, &thread, cancel, None).await?;
        }
        Ok(StartedRun { task, thread })
    }

    /// What a request with this key began, if there was one.
    ///
    /// # Errors
    /// When the key was used for something else, or the directory cannot be read.
    pub async fn find_submission(
        &self,
        user: &UserId,
        idempotency: Option<&IdempotencyKey>,
    ) -> Result<Option<StartedRun>, SubmitError> {
        let Some(idempotency) = idempotency else { return Ok(None) };
        match self.ports().directory.find_submission(user, idempotency).await? {
            Some(Submitted::Duplicate { task, thread }) => Ok(Some(StartedRun { task, thread })),
            Some(Submitted::Queued | Submitted::ThreadCreated { .. }) | None => Ok(None),
        }
    }

    fn check_request(&self, new: &NewRun) -> Result<(), StartError> {
        let agent = self.ports().definitions.resolve_agent(&new.agent);
        if agent.is_none() {
            return Err(StartError::UnknownAgent(new.agent.clone()));
        }
        let size = serde_json::to_vec(&(
            &new.input,
            &new.tools,
            &new.metadata,
            &new.prior_history,
            &new.model_settings,
            &new.request_echo,
        ))
        .map_or(usize::MAX, |text| text.len());
        if size > REQUEST_BYTES_MAX { Err(StartError::TooLarge(REQUEST_BYTES_MAX)) } else { Ok(()) }
    }

    async fn has_thread(&self, user: &UserId, thread: &ThreadId) -> Result<bool, StartError> {
        let row = self.ports().directory.thread(user, thread).await.map_err(SubmitError::from)?;
        Ok(row.is_some())
    }

    async fn check_thread(&self, user: &UserId, thread: &ThreadId, new: &NewRun) -> Result<(), StartError> {
        let directory = &self.ports().directory;
        if !self.has_thread(user, thread).await? {
            return Err(SubmitError::from(StoreError::ThreadNotFound).into());
        }
        if let Some(previous) = &new.previous {
            let row = directory.run(user, previous).await.map_err(SubmitError::from)?;
            if row.is_none_or(|row| row.thread != *thread) {
                return Err(StartError::UnknownPrevious(previous.clone()));
            }
        }
        Ok(())
    }

    pub(crate) async fn submit(
        &self,
        user: &UserId,
        thread: &ThreadId,
        command: Command,
        idempotency: Option<IdempotencyKey>,
    ) -> Result<Submitted, SubmitError> {
        let submitted = self.submit_without_wake(user, thread, command, idempotency).await?;
        self.wake_thread(user, thread);
        Ok(submitted)
    }

    /// Writes a command down; nobody is woken for it.
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

    /// There is something in the thread's inbox.
    pub(crate) fn wake_thread(&self, user: &UserId, thread: &ThreadId) {
        self.shared.wake_thread(user, thread);
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
    ///
    /// # Errors
    /// When the log cannot be read.
    pub async fn wait_settled(&self, user: &UserId, run: &TaskId, thread: &ThreadId) -> Result<(), StoreError> {
        let row = self.ports().directory.run(user, run).await?;
        // From its newest change of state on: an earlier pause is over.
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

    /// Watches a thread from a cursor on.
    ///
    /// # Errors
    /// When the cursor does not fit the log.
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

    /// Watches a thread from a place on that is known to be in its log.
    #[must_use]
    pub fn watch_from(&self, user: &UserId, thread: &ThreadId, view: View, cursor: Seq) -> Viewer {
        let hub: &Arc<Hub> = &self.shared.hub;
        Viewer::new(hub, Arc::clone(&self.ports().journal), (user.clone(), thread.clone()), view, cursor)
    }

    /// Is the cursor one of this log?
    ///
    /// # Errors
    /// When it is not, or the log cannot be read.
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

    /// Removes a thread with everything in it; whoever watches it is let go. False when there is none.
    ///
    /// # Errors
    /// When the store cannot.
    pub async fn delete_thread(&self, user: &UserId, thread: &ThreadId) -> Result<bool, StoreError> {
        let deleted = self.ports().directory.writer(user)?.delete_thread(user, thread).await?;
        if deleted {
            // A live run notices at its next append, which is refused.
            self.shared.wake_thread(user, thread);
            self.shared.hub.close(thread);
        }
        Ok(deleted)
    }

    /// How many threads are being executed.
    #[must_use]
    pub fn live_threads(&self) -> usize {
        self.shared.live_threads()
    }

    /// Stops: nothing new begins, what runs has `grace` to end, then everything halts where it is.
    pub async fn stop(&self, grace: Duration) {
        self.shared.stop(StopMode::Draining);
        let drained = async {
            while self.live_threads() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        // Who cannot end in time halts where it is; the log says how far that was.
        let _in_time = tokio::time::timeout(grace, drained).await.is_ok();
        self.shared.stop(StopMode::Halted);
        self.shared.hub.close_all();
    }
}

/// Ends when a run has ended or paused.
#[derive(Clone)]
struct SettledProjection {
    run: TaskId,
}

impl Projection for SettledProjection {
    fn project(&mut self, record: &Record, out: &mut Frames) {
        let kinds = ["task.completed", "task.incomplete", "task.failed", "task.cancelled", "task.paused"];
        let mine = record.run == self.run && kinds.contains(&record.event_type());
        if mine && record.event().task_id() == Some(&self.run) {
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
