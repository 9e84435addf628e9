//! Starts runs.

use super::Engine;
use super::on_busy::BusyOutcome;
use crate::actor_registry::WakeReason;
use crate::read_records::log_head;
use crate::session::ClaimedThread;
use model::command::{CancelCause, CancelCommand, Command, StartCommand};
use model::content::ContentPart;
use model::context::ContextEntry;
use model::event::{CancelMode, ClientIds, ClientTool, DisplayMode};
use model::history::PriorHistory;
use model::json::ExactObject;
use model::limits::RECORD_BYTES_MAX;
use model::mcp_credentials::McpCredentials;
use model::model_settings::ModelSettings;
use model::ports::{IdempotencyKey, InboxRow, StoreError, Submission, SubmitError, Submitted, ThreadMode};
use model::{Seq, TaskId, ThreadId, UserId};
use serde_json::Value;
use uuid::Uuid;

#[derive(Clone, Debug, Default)]
pub struct NewRun {
    /// The agent, or `provider/model`.
    pub agent: String,
    pub input: Vec<ContentPart>,
    /// The thread to continue; a new one when absent.
    pub thread: Option<ThreadId>,
    pub previous: RunPredecessor,
    /// Tools that the caller runs itself.
    pub tools: Vec<ClientTool>,
    pub metadata: ExactObject,
    pub on_busy: OnBusy,
    pub idempotency: Option<IdempotencyKey>,
    /// `thread` is an id that was handed out before and may not exist yet: then it is created.
    pub create_if_missing: bool,
    /// This request has made the id, so nobody has to look whether the thread exists.
    pub is_new_thread: bool,
    pub display_mode: DisplayMode,
    /// The ids under which a client of another protocol knows the run.
    pub client: Option<ClientIds>,
    /// Where the thread was forked from.
    pub origin: Option<Value>,
    /// History before the run that the log of the thread does not have.
    pub prior_history: Option<PriorHistory>,
    pub model_settings: ModelSettings,
    /// What the caller's protocol echoes of the request.
    pub request_echo: Option<Value>,
    /// The user's own, for MCP servers.
    pub mcp_credentials: McpCredentials,
    /// The client's copy of the thread's state; `None`, `null` and `{}` leave the thread's as it is.
    pub state: Option<Value>,
    /// `None` if the request says nothing about it.
    pub context: Option<Vec<ContextEntry>>,
}

/// The run that a new run continues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RunPredecessor {
    /// The thread's last one.
    #[default]
    Latest,
    After(TaskId),
    /// None: the model reads nothing of the thread's earlier runs.
    None,
}

impl RunPredecessor {
    /// The run that it names.
    pub const fn run(&self) -> Option<&TaskId> {
        match self {
            Self::After(run) => Some(run),
            Self::Latest | Self::None => None,
        }
    }

    fn into_task_id(self) -> Option<TaskId> {
        match self {
            Self::Latest => None,
            Self::After(run) => Some(run),
            Self::None => Some(TaskId::no_run()),
        }
    }
}

impl From<Option<TaskId>> for RunPredecessor {
    fn from(run: Option<TaskId>) -> Self {
        run.map_or(Self::Latest, Self::After)
    }
}

/// What to do with a request for a thread that has an active run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnBusy {
    /// Start after the active run.
    #[default]
    Enqueue,
    Reject,
    /// Cancel the active run, then start.
    Interrupt,
    /// Add the input to the active run.
    Steer,
}

/// The run that a request started, or an earlier request with the same idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedRun {
    pub task: TaskId,
    pub thread: ThreadId,
    /// A record of the thread before all of the run's, or zero. `None` for a run that this request did not start.
    pub after: Option<Seq>,
}

impl StartedRun {
    /// A run that another request has started.
    pub const fn earlier(task: TaskId, thread: ThreadId) -> Self {
        Self { task, thread, after: None }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("there is no agent `{0}`")]
    UnknownAgent(String),
    #[error("there is no run `{0}` in this thread to go on after")]
    UnknownPrevious(TaskId),
    #[error("there is no input, and nothing in this thread to go on from")]
    NoInput,
    #[error("the request is too large: input, tools and metadata together may be {0} bytes")]
    TooLarge(usize),
    #[error("the thread is busy with `{0}`")]
    Busy(TaskId),
    #[error(transparent)]
    Submit(#[from] SubmitError),
}

/// The largest request, as JSON: its record has to hold it.
pub const REQUEST_BYTES_MAX: usize = RECORD_BYTES_MAX / 4 * 3;

impl NewRun {
    /// Rejects a request that does not fit a record of the log.
    pub fn check_size(&self) -> Result<(), StartError> {
        let Self { input, tools, metadata, prior_history, model_settings, request_echo, state, context, .. } = self;
        let request = (input, tools, metadata, prior_history, model_settings, request_echo, state, context);
        let size = serde_json::to_vec(&request).map_or(usize::MAX, |text| text.len());
        if size > REQUEST_BYTES_MAX { Err(StartError::TooLarge(REQUEST_BYTES_MAX)) } else { Ok(()) }
    }

    /// The command that starts the run, and what is not part of it.
    fn into_command(self, task: TaskId) -> (Command, Option<IdempotencyKey>, McpCredentials) {
        let start = StartCommand {
            task_id: task,
            agent: self.agent,
            input: self.input,
            previous: self.previous.into_task_id(),
            tools: self.tools,
            metadata: self.metadata,
            display_mode: self.display_mode,
            client: self.client,
            origin: self.origin,
            prior_history: self.prior_history,
            model_settings: self.model_settings,
            request_echo: self.request_echo,
            mcp_credentials: self.mcp_credentials.servers().map(str::to_owned).collect(),
            state: self.state,
            context: self.context.unwrap_or_default(),
            rewritten_history: None,
            hook_error: None,
        };
        (Command::Start(Box::new(start)), self.idempotency, self.mcp_credentials)
    }
}

impl Engine {
    /// Starts a run, or enqueues it in its thread. An error changes nothing.
    pub async fn start(&self, user: &UserId, new: NewRun) -> Result<StartedRun, StartError> {
        // Before any other check: whatever has changed since, the same request returns the same run.
        if let Some(known) = self.find_submission(user, new.idempotency.as_ref()).await? {
            return Ok(known);
        }
        self.check_request(&new)?;
        let retry = new.create_if_missing.then(|| new.clone());
        // Before the run is submitted, so its records come after this one.
        let head = self.find_head(user, new.thread.as_ref().filter(|_| !new.is_new_thread)).await?;
        let (thread, thread_mode) = choose_thread(&new, head)?;
        let mut interrupted = None;
        if thread_mode == ThreadMode::MustExist {
            self.check_previous(user, &thread, &new.previous).await?;
            match self.resolve_busy(user, &thread, &new).await? {
                BusyOutcome::Proceed => {}
                BusyOutcome::Interrupt(busy) => interrupted = Some(busy),
                BusyOutcome::Handled(steered) => return Ok(steered),
            }
        } else if new.input.is_empty() && new.prior_history.is_none() {
            return Err(StartError::NoInput);
        }
        let task = TaskId::from_uuid(Uuid::now_v7());
        let (command, idempotency, credentials) = new.into_command(task.clone());
        let submission = self.new_submission(thread.clone(), thread_mode, command.clone(), idempotency);
        let at = submission.at;
        let written = self.write_start(user, &task, submission, credentials).await;
        let submitted = match (written, retry) {
            // Another request has created the thread meanwhile.
            (Err(SubmitError::ThreadExists), Some(retry)) => {
                return Box::pin(self.start(user, NewRun { create_if_missing: false, ..retry })).await;
            }
            // The thread was deleted while its executor put it among the idle ones.
            (Err(SubmitError::Store(StoreError::ThreadNotFound)), Some(retry))
                if self.registry.shared.idle_threads.forget(&thread) =>
            {
                return Box::pin(self.start(user, retry)).await;
            }
            (submitted, _) => submitted?,
        };
        match submitted {
            Submitted::Duplicate { task, thread } => return Ok(StartedRun::earlier(task, thread)),
            Submitted::Queued => self.wake_executor(user, &thread),
            Submitted::Claimed { lease, row } => {
                self.registry.spawn_or_wake(
                    user,
                    &thread,
                    WakeReason::Claimed(ClaimedThread { lease, first_row: InboxRow { id: row, at, command } }),
                );
            }
        }
        if let Some(busy) = interrupted {
            // After the start, so that a request that is sent twice at once cannot cancel its own run.
            let cancel =
                Command::Cancel(CancelCommand { task_id: busy, mode: CancelMode::Immediate, cause: CancelCause::User });
            self.submit(user, &thread, cancel, None).await?;
        }
        Ok(StartedRun { task, thread, after: Some(head.unwrap_or_default()) })
    }

    /// Keeps the credentials before the run can start, and forgets them if it does not.
    async fn write_start(
        &self,
        user: &UserId,
        task: &TaskId,
        submission: Submission,
        credentials: McpCredentials,
    ) -> Result<Submitted, SubmitError> {
        self.keep_credentials(task, credentials);
        let written = self.write_submission(user, submission).await;
        if !matches!(written, Ok(Submitted::Queued | Submitted::Claimed { .. })) {
            self.ports().resolver.forget_credentials(task);
        }
        written
    }

    /// Keeps the user's credentials for MCP servers until the run ends. The caller knows that it is the user's run.
    pub fn keep_credentials(&self, run: &TaskId, credentials: McpCredentials) {
        if !credentials.is_empty() {
            self.ports().resolver.keep_credentials(run, credentials);
        }
    }

    /// The run of an earlier request with this key.
    pub async fn find_submission(
        &self,
        user: &UserId,
        idempotency: Option<&IdempotencyKey>,
    ) -> Result<Option<StartedRun>, SubmitError> {
        let Some(idempotency) = idempotency else { return Ok(None) };
        match self.ports().directory.find_submission(user, idempotency).await? {
            Some(Submitted::Duplicate { task, thread }) => Ok(Some(StartedRun::earlier(task, thread))),
            Some(Submitted::Queued | Submitted::Claimed { .. }) | None => Ok(None),
        }
    }

    fn check_request(&self, new: &NewRun) -> Result<(), StartError> {
        let agent = self.ports().definitions.get().resolve_agent(&new.agent);
        if agent.is_none() {
            return Err(StartError::UnknownAgent(new.agent.clone()));
        }
        new.check_size()
    }

    /// The last record of a thread; `None` if there is no such thread. A thread that is deleted meanwhile is refused by the
    /// store.
    async fn find_head(&self, user: &UserId, thread: Option<&ThreadId>) -> Result<Option<Seq>, StartError> {
        let Some(thread) = thread else { return Ok(None) };
        // Another node may have continued or deleted a thread that is idle here.
        let is_alone = !self.ports().cluster.is_shared();
        if let Some(head) = self.registry.shared.idle_threads.find_head(user, thread).filter(|_| is_alone) {
            return Ok(Some(head));
        }
        match log_head(&*self.ports().journal, user, thread).await {
            Ok(head) => Ok(Some(head)),
            Err(StoreError::ThreadNotFound) => Ok(None),
            Err(error) => Err(SubmitError::from(error).into()),
        }
    }

    async fn check_previous(
        &self,
        user: &UserId,
        thread: &ThreadId,
        previous: &RunPredecessor,
    ) -> Result<(), StartError> {
        if let Some(previous) = previous.run() {
            let row = self.ports().directory.run(user, previous).await.map_err(SubmitError::from)?;
            if row.is_none_or(|row| row.thread != *thread) {
                return Err(StartError::UnknownPrevious(previous.clone()));
            }
        }
        Ok(())
    }
}

/// The thread of a run, and whether it has to be created. `head` is the last record of the thread that the request names.
fn choose_thread(new: &NewRun, head: Option<Seq>) -> Result<(ThreadId, ThreadMode), StartError> {
    match (&new.thread, head) {
        (Some(thread), Some(_)) => Ok((thread.clone(), ThreadMode::MustExist)),
        (Some(thread), None) if new.create_if_missing => Ok((thread.clone(), ThreadMode::CreateNew)),
        (Some(_), None) => Err(SubmitError::from(StoreError::ThreadNotFound).into()),
        (None, _) => Ok((ThreadId::from_uuid(Uuid::now_v7()), ThreadMode::CreateNew)),
    }
}
