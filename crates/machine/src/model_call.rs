//! A model is asked: for a turn that begins, or again when its provider failed.
//!
//! While nothing of a turn has been shown, a provider that may succeed later is asked again after a while. When that does
//! not help, or it cannot be used at all, the agent's next model is asked at once. All of it is decided from the log: the
//! open step knows who is asked and how often that was, and a wait's jitter is a hash. Only a crash forgets it: the step
//! is lost, and its next attempt begins with the agent's first model.

use crate::effect::{Effect, EffectId};
use crate::state::RunState;
use crate::{MachineOutput, calls, history, model_turn, sub_agent, task_end};
use model::error::{ErrorCode, ErrorInfo};
use model::event::{Event, StepRetrying, StepStarted, StopReason};
use model::fold::{StepFold, TaskFold};
use model::model_settings::ModelSettings;
use model::model_turn::{ModelFailure, ModelRequest};
use model::{Millis, TaskId};
use std::sync::Arc;

/// The first wait; each one after it is twice as long.
const BACKOFF_FIRST_MS: u64 = 500;
/// The longest wait that no provider asked for.
const BACKOFF_MAX_MS: u64 = 20_000;
/// A provider that fails so is of no use, whatever it is asked and when.
const UNUSABLE_ERROR_CODES: [ErrorCode; 3] =
    [ErrorCode::UnknownProvider, ErrorCode::ProviderAuth, ErrorCode::UpstreamUnreachable];
/// The same, when it says that time does not help: the fault is not in what was asked.
const UNUSABLE_UNLESS_RETRYABLE: [ErrorCode; 3] =
    [ErrorCode::RateLimited, ErrorCode::Overloaded, ErrorCode::ProviderError];

/// A turn begins, or one that was lost begins again.
pub(crate) fn begin_step(run: &mut RunState, id: &TaskId, out: &mut MachineOutput) {
    let Some(task) = run.fold.task(id) else { return };
    let (step, attempt) = match task.steps.last() {
        Some(lost) if lost.stop_reason == Some(StopReason::Lost) => (lost.step, lost.attempt + 1),
        last => (last.map_or(0, |step| step.step) + 1, 1),
    };
    out.emit(run, Event::StepStarted(StepStarted { task_id: id.clone(), step, attempt }));
    call_model(run, id, None, out);
}

/// The model that a step asks.
pub(crate) fn step_model(run: &RunState, task: &TaskFold, step: &StepFold) -> String {
    run.agent_of_task(task).models.get(step.model_index).cloned().unwrap_or_default()
}

/// Asks whom the open step says.
fn call_model(run: &mut RunState, id: &TaskId, not_before: Option<Millis>, out: &mut MachineOutput) {
    let Some(task) = run.fold.task(id) else { return };
    let Some(open) = task.open_step() else { return };
    let (step, attempt) = (open.step, open.attempt);
    let agent = run.agent_of_task(task);
    let request = ModelRequest {
        user: run.user.clone(),
        thread: run.thread.clone(),
        task: id.clone(),
        step,
        attempt,
        model: step_model(run, task, open),
        instructions: agent.instructions.clone(),
        history: history::history_for_turn(run, task).into(),
        tools: calls::tool_specs(run, task).into(),
        provider_options: Arc::clone(&agent.options),
        model_settings: Arc::new(turn_settings(task, step)),
    };
    model_turn::begin_turn(run, id, &request.model);
    let id = EffectId::model(id, step, attempt);
    out.push_effect(Effect::CallModel { id, request: Box::new(request), not_before });
}

/// What the caller asks of this turn.
fn turn_settings(task: &TaskFold, step: u32) -> ModelSettings {
    let mut wishes = task.model_settings.clone();
    if step > 1 {
        wishes.tool_choice = None;
    }
    wishes
}

/// The provider failed.
pub(crate) fn on_model_failure(run: &mut RunState, id: &TaskId, failure: ModelFailure, out: &mut MachineOutput) {
    match choose_retry(run, id, &failure, out) {
        Some(next) => retry_model_call(run, id, failure.error, next, out),
        None => task_end::fail_on_provider_error(run, id, failure.error, out),
    }
}

/// Who is asked when one has failed.
#[derive(Clone, Copy, Debug)]
enum RetryTarget {
    /// The same one, after so many milliseconds.
    SameModel(u64),
    /// The agent's next, at once.
    NextModel,
}

/// `None` when nothing more is tried.
fn choose_retry(run: &RunState, id: &TaskId, failure: &ModelFailure, out: &MachineOutput) -> Option<RetryTarget> {
    let task = run.fold.task(id)?;
    let open = task.open_step()?;
    let place = task.steps.len().checked_sub(1);
    let shown = task.items.iter().any(|item| item.step_index == place);
    if shown || run.is_cancelling(task) {
        return None;
    }
    let has_code = |codes: [ErrorCode; 3]| codes.iter().any(|code| failure.error.has_code(*code));
    let later = failure.error.retryable == Some(true);
    let useless = has_code(UNUSABLE_ERROR_CODES) || (!later && has_code(UNUSABLE_UNLESS_RETRYABLE));
    let other = run.agent_of_task(task).models.len() > open.model_index + 1;
    if later && !(useless && other) {
        let left = open.model_attempt <= run.definitions.limits.model_retries_max;
        let wait = backoff_ms(run, id, open, failure.retry_after_ms)
            .filter(|wait| left && is_before_deadline(run, *wait, out));
        if let Some(wait) = wait {
            return Some(RetryTarget::SameModel(wait));
        }
    }
    ((later || useless) && other).then_some(RetryTarget::NextModel)
}

/// How long a model that failed is left alone. `None` when its provider asks for more time than it is given.
fn backoff_ms(run: &RunState, id: &TaskId, open: &StepFold, asked_for: Option<u64>) -> Option<u64> {
    let doubled = BACKOFF_FIRST_MS.saturating_mul(2_u64.saturating_pow(open.model_attempt.saturating_sub(1)));
    let wait = with_jitter(doubled.min(BACKOFF_MAX_MS), id, open).min(BACKOFF_MAX_MS);
    let asked_for = asked_for.unwrap_or_default();
    (asked_for <= run.definitions.limits.retry_after_max_ms).then(|| wait.max(asked_for))
}

/// Between three and five quarters of it, the same whoever asks: FNV-1a of the try that failed.
fn with_jitter(wait: u64, id: &TaskId, open: &StepFold) -> u64 {
    let try_of = format!("{id}/{}/{}", open.step, open.attempt);
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = try_of.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
    wait.saturating_mul(750 + hash % 501) / 1000
}

/// Would the run still go on then?
fn is_before_deadline(run: &RunState, wait: u64, out: &MachineOutput) -> bool {
    let deadline = run.fold.root().and_then(|root| root.deadline);
    deadline.is_none_or(|deadline| out.next_record_time(run).saturating_add(wait) < deadline)
}

fn retry_model_call(run: &mut RunState, id: &TaskId, error: ErrorInfo, next: RetryTarget, out: &mut MachineOutput) {
    let Some(open) = run.fold.task(id).and_then(|task| task.open_step()) else { return };
    let (step, attempt) = (open.step, open.attempt.saturating_add(1));
    let wait = match next {
        RetryTarget::SameModel(wait) => wait,
        RetryTarget::NextModel => 0,
    };
    let not_before = out.next_record_time(run).saturating_add(wait);
    out.emit(run, Event::Retrying(StepRetrying { task_id: id.clone(), step, attempt, not_before, error }));
    // The log's time may be ahead of the clock that the wait is measured by.
    let at = matches!(next, RetryTarget::SameModel(_)).then(|| out.now().saturating_add(wait));
    call_model(run, id, at, out);
}

/// The tasks at or below one that wait before they ask, for a moment or for files.
pub(crate) fn tasks_waiting_to_call(run: &RunState, top: &TaskId, out: &MachineOutput) -> Vec<TaskId> {
    let now = out.next_record_time(run);
    let later = |task: &TaskFold| task.open_step().and_then(|open| open.not_before).is_some_and(|at| at > now);
    let waits = |task: &&TaskFold| later(task) || task.open_file_processing().is_some();
    let going = run.fold.tasks.iter().filter(|task| !task.status.is_terminal());
    let waiting = going.filter(waits).map(|task| task.id.clone());
    waiting.filter(|task| sub_agent::is_in_subtree(run, task, top)).collect()
}
