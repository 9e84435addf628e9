//! Before a run starts, the input hook of its agent may rewrite what the model will see.
//!
//! Until the hook has answered nothing is recorded and the run is still queued: its row is consumed together with its first
//! records. So the hook runs again after a crash, and the log has the input as the hook rewrote it.

use super::ThreadSession;
use crate::recovery_tracker::recovery_error;
use machine::{MachineInput, ThreadInput};
use model::command::StartCommand;
use model::error::{ErrorCode, ErrorInfo};
use model::history::{HistoryEntry, to_owned_entries};
use model::limits::RECORD_BYTES_MAX;
use model::ports::{BoxFuture, DirectoryChange, HookRequest, HookResponse};
use std::task::{Context, Poll};

/// A run that waits for its hook.
pub(crate) struct PendingHook {
    pub(crate) start: Box<StartCommand>,
    pub(crate) row: u64,
    answer: BoxFuture<'static, Result<HookResponse, ErrorInfo>>,
}

impl ThreadSession<'_> {
    /// Starts a run, at once or when its hook has answered.
    pub(crate) fn start_run(&mut self, mut start: StartCommand, row: u64) {
        if std::mem::take(&mut self.gives_up) {
            start.hook_error = Some(recovery_error());
            return self.start_run_now(start, row);
        }
        let context = self.context;
        let ports = &context.shared.ports;
        self.step_thread(ThreadInput::RunStarting);
        let agent = ports.definitions.get().resolve_agent(&start.agent);
        let Some((agent, hook)) = agent.and_then(|agent| agent.input_hook.clone().map(|hook| (agent, hook))) else {
            self.start_run_now(start, row);
            return;
        };
        let past = self.thread.fold.history(start.previous.as_ref(), agent.history);
        let request = HookRequest {
            user: context.owner.clone(),
            thread: context.thread.clone(),
            run: start.task_id.clone(),
            agent: agent.name,
            history: [to_owned_entries(&past), prior_entries(&start)].concat(),
            input: start.input.clone(),
        };
        let answer = ports.hooks.run_hook(&hook, request);
        self.pending_hook = Some(PendingHook { start: Box::new(start), row, answer });
    }

    /// Starts the run when its hook has answered.
    pub(crate) fn poll_hook(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(hook) = &mut self.pending_hook else { return Poll::Pending };
        let Poll::Ready(answer) = hook.answer.as_mut().poll(cx) else { return Poll::Pending };
        let Some(PendingHook { mut start, row, .. }) = self.pending_hook.take() else { return Poll::Pending };
        match answer.and_then(check_hook_answer_size) {
            Ok(HookResponse { history, input }) => {
                start.rewritten_history = history;
                start.input = input.unwrap_or(start.input);
            }
            Err(error) => start.hook_error = Some(error),
        }
        self.start_run_now(*start, row);
        Poll::Ready(())
    }

    fn start_run_now(&mut self, start: StartCommand, row: u64) {
        let ports = &self.context.shared.ports;
        let (run, agent, at) = (start.task_id.clone(), start.agent.clone(), ports.clock.now());
        if self.in_flight.is_none() && self.next_batch.records.is_empty() {
            // Otherwise records of the run before are on their way, and their frames are as long as it was.
            self.run_bytes = 0;
        }
        self.run = Some(self.new_run_state(ports.definitions.get(), None));
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
