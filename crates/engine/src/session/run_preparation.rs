//! What happens before a run starts: the input hook of its agent may rewrite what the model will see, and the MCP servers of
//! its agents are asked for their tools.
//!
//! Until both have answered nothing is recorded and the run is still queued: its row is consumed together with its first
//! records. So both happen again after a crash, and the log has the input as the hook rewrote it. The definitions with the
//! tools are stored before the run starts: it has them wherever it goes on.

use super::ThreadSession;
use crate::recovery_tracker::recovery_error;
use crate::shared::ThreadContext;
use machine::{MachineInput, ThreadInput};
use model::UserId;
use model::command::StartCommand;
use model::context::context_message;
use model::definition::{Agent, Definitions};
use model::error::{ErrorCode, ErrorInfo};
use model::history::{HistoryEntry, to_owned_entries};
use model::limits::RECORD_BYTES_MAX;
use model::ports::{
    BoxFuture, Directory, DirectoryChange, HookRequest, HookResponse, Journal, ResolveRequest, StorageSpace, StoreError,
};
use std::sync::Arc;
use std::task::{Context, Poll};

/// A run that waits for its hook or for the tools of MCP servers.
pub(crate) struct PendingStart {
    pub(crate) start: Box<StartCommand>,
    pub(crate) row: u64,
    preparation: BoxFuture<'static, RunPreparation>,
}

/// What a run starts with.
struct RunPreparation {
    /// `None` if the agent has no hook.
    hook: Option<Result<HookResponse, ErrorInfo>>,
    /// `None` if the definitions are complete as they are.
    definitions: Option<Result<Arc<Definitions>, PreparationError>>,
}

enum PreparationError {
    /// The run cannot start without what is missing.
    Run(ErrorInfo),
    /// The run stays queued, and the next term tries again.
    Store(StoreError),
}

impl ThreadSession<'_> {
    /// Starts a run, at once or when it has been prepared.
    pub(crate) fn start_run(&mut self, mut start: StartCommand, row: u64) {
        let definitions = self.context.shared.ports.definitions.get();
        if std::mem::take(&mut self.gives_up) {
            start.hook_error = Some(recovery_error());
            return self.start_run_now(start, row, definitions);
        }
        self.step_thread(ThreadInput::RunStarting);
        let agent = definitions.resolve_agent(&start.agent);
        let hook = agent.and_then(|agent| self.call_hook(&agent, &start));
        let needs_tools = !definitions.mcp_servers_of(&start.agent).is_empty();
        if hook.is_none() && !needs_tools {
            return self.start_run_now(start, row, definitions);
        }
        let resolving = needs_tools.then(|| resolve_definitions(self.context, &start, definitions));
        let preparation = Box::pin(async move {
            let (hook, definitions) = tokio::join!(run_optional(hook), run_optional(resolving));
            RunPreparation { hook, definitions }
        });
        self.pending_start = Some(PendingStart { start: Box::new(start), row, preparation });
    }

    fn call_hook(
        &self,
        agent: &Agent,
        start: &StartCommand,
    ) -> Option<BoxFuture<'static, Result<HookResponse, ErrorInfo>>> {
        let hook = agent.input_hook.as_ref()?;
        let context = self.context;
        let past = self.thread.fold.history(start.previous.as_ref(), agent.history);
        let request = HookRequest {
            user: context.owner.clone(),
            thread: context.thread.clone(),
            run: start.task_id.clone(),
            agent: agent.name.clone(),
            history: [to_owned_entries(&past), prior_entries(start), Vec::from_iter(context_message(&start.context))]
                .concat(),
            input: start.input.clone(),
        };
        Some(context.shared.ports.hooks.run_hook(hook, request))
    }

    /// Starts the run when it has been prepared.
    pub(crate) fn poll_start(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StoreError>> {
        let Some(pending) = &mut self.pending_start else { return Poll::Pending };
        let Poll::Ready(preparation) = pending.preparation.as_mut().poll(cx) else { return Poll::Pending };
        let Some(PendingStart { mut start, row, .. }) = self.pending_start.take() else { return Poll::Pending };
        match preparation.hook.map(|answer| answer.and_then(check_hook_answer_size)) {
            Some(Ok(HookResponse { history, input })) => {
                start.rewritten_history = history;
                start.input = input.unwrap_or(start.input);
            }
            Some(Err(error)) => start.hook_error = Some(error),
            None => {}
        }
        let current = || self.context.shared.ports.definitions.get();
        let definitions = match preparation.definitions {
            Some(Ok(definitions)) => definitions,
            Some(Err(PreparationError::Run(error))) => {
                start.hook_error.get_or_insert(error);
                current()
            }
            Some(Err(PreparationError::Store(error))) => return Poll::Ready(Err(error)),
            None => current(),
        };
        self.start_run_now(*start, row, definitions);
        Poll::Ready(Ok(()))
    }

    fn start_run_now(&mut self, start: StartCommand, row: u64, definitions: Arc<Definitions>) {
        let ports = &self.context.shared.ports;
        let (run, agent, at) = (start.task_id.clone(), start.agent.clone(), ports.clock.now());
        if self.in_flight.is_none() && self.next_batch.records.is_empty() {
            // Otherwise records of the run before are on their way, and their frames are as long as it was.
            self.run_bytes = 0;
        }
        self.run = Some(self.new_run_state(definitions, None));
        self.consume_row(row);
        self.next_batch.changes.push(DirectoryChange::RunStarted {
            run,
            agent,
            first: self.thread.fold.seq.next(),
            at,
        });
        metrics::counter!("headwater_runs_started_total").increment(1);
        self.step(MachineInput::Start(Box::new(start)));
    }
}

async fn run_optional<T>(future: Option<BoxFuture<'static, T>>) -> Option<T> {
    match future {
        Some(future) => Some(future.await),
        None => None,
    }
}

/// Adds the tools of MCP servers, and stores the result under its digest.
fn resolve_definitions(
    context: &ThreadContext,
    start: &StartCommand,
    definitions: Arc<Definitions>,
) -> BoxFuture<'static, Result<Arc<Definitions>, PreparationError>> {
    let ports = &context.shared.ports;
    let (user, thread) = (context.owner.clone(), context.thread.clone());
    let resolving = ports.resolver.resolve_definitions(ResolveRequest {
        user: user.clone(),
        thread,
        run: start.task_id.clone(),
        credentials: start.mcp_credentials.clone(),
        agent: start.agent.clone(),
        definitions,
    });
    let (directory, journal) = (Arc::clone(&ports.directory), Arc::clone(&ports.journal));
    Box::pin(async move {
        let resolved = resolving.await.map_err(PreparationError::Run)?;
        let stored = store_definitions(&*directory, &*journal, &user, &resolved).await;
        stored.map(|()| resolved).map_err(PreparationError::Store)
    })
}

/// Waits for room: without it, no run can start either.
async fn store_definitions(
    directory: &dyn Directory,
    journal: &dyn Journal,
    user: &UserId,
    definitions: &Definitions,
) -> Result<(), StoreError> {
    let digest = definitions.digest.as_str();
    if directory.definitions(digest).await?.is_some() {
        return Ok(());
    }
    let body = serde_json::to_string(definitions).map_err(|error| StoreError::Unavailable(error.to_string()))?;
    loop {
        match directory.writer(user)?.put_definitions(digest, &body).await {
            Err(StoreError::NoSpace) => journal.space_changed(StorageSpace::Full).await,
            stored => return stored,
        }
    }
}

fn prior_entries(start: &StartCommand) -> Vec<HistoryEntry> {
    start.prior_history.as_ref().map(|prior| prior.entries.clone()).unwrap_or_default()
}

/// One record has to hold the answer of a hook.
fn check_hook_answer_size(answer: HookResponse) -> Result<HookResponse, ErrorInfo> {
    let size = serde_json::to_vec(&answer).map_or(usize::MAX, |text| text.len());
    if size <= RECORD_BYTES_MAX / 2 {
        return Ok(answer);
    }
    let message = format!("The input hook returned {size} bytes; the limit is {}.", RECORD_BYTES_MAX / 2);
    Err(ErrorInfo::new(ErrorCode::HookFailed, message))
}
