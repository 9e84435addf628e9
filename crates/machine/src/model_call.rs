//! Calls a model: for a step that begins, or again when its provider failed.
//!
//! While no item of a step has been shown, a failure that may pass is retried after a backoff. When that does not help, or
//! the provider cannot be used at all, the agent's next model is called at once. All of it is decided from the log: the
//! open step knows which model is called and how often, and the jitter is a hash. Only a crash resets it: the step is
//! lost, and its next attempt begins with the agent's first model.

use crate::effect::{Effect, EffectId};
use crate::output::{MachineOutput, RunWriter};
use crate::state::RunState;
use crate::tool_search::TurnTools;
use crate::{history, mcp_lists, task_end, tool_search};
use model::definition::{Agent, ClientInstructions};
use model::error::{ErrorCode, ErrorInfo};
use model::event::{Event, StepRetrying, StepStarted, StopReason};
use model::fold::{StepFold, TaskFold};
use model::model_settings::ModelSettings;
use model::model_turn::{ModelFailure, ModelRequest};
use model::reference::shown_references;
use model::{Millis, TaskId};
use std::sync::Arc;

/// The first backoff; it doubles with every attempt.
const BACKOFF_FIRST_MS: u64 = 500;
/// The longest backoff, unless a provider asks for more.
const BACKOFF_MAX_MS: u64 = 20_000;
/// Errors of a provider that cannot be used, whatever the request.
const UNUSABLE_ERROR_CODES: [ErrorCode; 3] =
    [ErrorCode::UnknownProvider, ErrorCode::ProviderAuth, ErrorCode::UpstreamUnreachable];
/// Errors that mean the same unless they are retryable: the fault is not in the request.
const UNUSABLE_UNLESS_RETRYABLE: [ErrorCode; 3] =
    [ErrorCode::RateLimited, ErrorCode::Overloaded, ErrorCode::ProviderError];

/// Whether another provider may succeed where this one failed for good.
fn is_provider_unusable(error: &ErrorInfo) -> bool {
    let Some(code) = error.known_code() else { return false };
    UNUSABLE_ERROR_CODES.contains(&code) || (error.retryable != Some(true) && UNUSABLE_UNLESS_RETRYABLE.contains(&code))
}

/// Starts the next step, or one that was lost once more.
pub(crate) fn begin_step(writer: &mut RunWriter<'_>, id: &TaskId) {
    mcp_lists::write_new_lists(writer, id);
    let Some(task) = writer.run.fold.task(id) else { return };
    let (step, attempt) = match task.steps.last() {
        Some(lost) if lost.stop_reason == Some(StopReason::Lost) => (lost.step, lost.attempt + 1),
        last => (last.map_or(0, |step| step.step) + 1, 1),
    };
    writer.emit(Event::StepStarted(StepStarted { task_id: id.clone(), step, attempt }));
    call_model(writer, id, None);
}

/// Calls the model of the open step.
fn call_model(writer: &mut RunWriter<'_>, id: &TaskId, not_before: Option<Millis>) {
    let Some(task) = writer.run.fold.task(id) else { return };
    let Some(open) = task.open_step() else { return };
    let (step, attempt) = (open.step, open.attempt);
    let agent = writer.run.agent_of_task(task);
    let history = history::history_for_turn(writer.run, task);
    let model_settings = turn_settings(&agent, task, step);
    let shown = shown_references(&history);
    let TurnTools { specs, deferred, instructions: tool_index } =
        tool_search::tools_for_turn(writer.run, task, &history, &model_settings);
    let request = ModelRequest {
        user: writer.run.user.clone(),
        thread: writer.run.thread.clone(),
        task: id.clone(),
        step,
        attempt,
        model: writer.run.step_model(task, open),
        instructions: instructions_for_turn(&agent, !shown.is_empty(), tool_index.as_deref()),
        history,
        tools: specs.into(),
        deferred_tools: Arc::new(deferred),
        provider_options: Arc::clone(&agent.options),
        model_settings: Arc::new(model_settings),
    };
    writer.run.begin_turn(id, request.model.clone(), shown);
    let id = EffectId::model(id, step, attempt);
    writer.out.push_effect(Effect::CallModel { id, request: Box::new(request), not_before });
}

/// The agent's instructions, the tools that it may search, and what it is told about references if it has or may get any.
fn instructions_for_turn(agent: &Agent, shows_references: bool, tool_index: Option<&str>) -> String {
    let may_cite = shows_references || !agent.tools.is_empty();
    let references = agent.references.instructions().filter(|_| may_cite);
    let texts = [Some(agent.instructions.as_str()), tool_index, references];
    texts.into_iter().flatten().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n")
}

/// The caller's settings for a step. A forced tool choice holds for their first step only: forced again, it would never
/// end.
fn turn_settings(agent: &Agent, task: &TaskFold, step: u32) -> ModelSettings {
    let mut settings = task.model_settings.clone();
    // The agent may have taken over from one that allows them.
    if agent.client_instructions == ClientInstructions::Forbidden {
        settings.instructions = None;
    }
    if step > task.settings_since_step + 1 {
        settings.tool_choice = None;
    }
    settings
}

pub(crate) fn on_model_failure(writer: &mut RunWriter<'_>, id: &TaskId, failure: ModelFailure) {
    match choose_retry(writer.run, id, &failure, writer.out) {
        Some(next) => retry_model_call(writer, id, failure.error, next),
        None => task_end::fail_on_provider_error(writer, id, failure.error),
    }
}

/// Which model is called after a failure.
#[derive(Clone, Copy, Debug)]
enum RetryTarget {
    /// The same one, after this many milliseconds.
    SameModel(u64),
    /// The agent's next one, at once.
    NextModel,
}

/// `None` when no further attempt is made.
fn choose_retry(run: &RunState, id: &TaskId, failure: &ModelFailure, out: &MachineOutput) -> Option<RetryTarget> {
    let task = run.fold.task(id)?;
    let open = task.open_step()?;
    let index = task.steps.len().checked_sub(1);
    let has_items = task.items.iter().any(|item| item.step_index == index);
    if has_items || run.is_cancelling(task) {
        return None;
    }
    let retryable = failure.error.retryable == Some(true);
    let unusable = is_provider_unusable(&failure.error);
    let has_next = run.agent_of_task(task).models.len() > open.model_index + 1;
    if retryable && !(unusable && has_next) {
        let may_retry = open.model_attempt <= run.definitions.limits.model_retries_max;
        let wait = backoff_ms(run, id, open, failure.retry_after_ms)
            .filter(|wait| may_retry && is_before_deadline(run, *wait, out));
        if let Some(wait) = wait {
            return Some(RetryTarget::SameModel(wait));
        }
    }
    ((retryable || unusable) && has_next).then_some(RetryTarget::NextModel)
}

/// The wait before the next attempt. `None` when the provider asks for a longer one than the limit allows.
fn backoff_ms(run: &RunState, id: &TaskId, open: &StepFold, retry_after: Option<u64>) -> Option<u64> {
    let doubled = BACKOFF_FIRST_MS.saturating_mul(2_u64.saturating_pow(open.model_attempt.saturating_sub(1)));
    let wait = with_jitter(doubled.min(BACKOFF_MAX_MS), id, open).min(BACKOFF_MAX_MS);
    let retry_after = retry_after.unwrap_or_default();
    (retry_after <= run.definitions.limits.retry_after_max_ms).then(|| wait.max(retry_after))
}

/// 75 % to 125 % of the wait, the same in every process: FNV-1a of the attempt that failed.
fn with_jitter(wait: u64, id: &TaskId, open: &StepFold) -> u64 {
    let attempt = format!("{id}/{}/{}", open.step, open.attempt);
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = attempt.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
    wait.saturating_mul(750 + hash % 501) / 1000
}

fn is_before_deadline(run: &RunState, wait: u64, out: &MachineOutput) -> bool {
    let deadline = run.fold.root().and_then(|root| root.deadline);
    deadline.is_none_or(|deadline| out.next_record_time(run).saturating_add(wait) < deadline)
}

fn retry_model_call(writer: &mut RunWriter<'_>, id: &TaskId, error: ErrorInfo, next: RetryTarget) {
    let Some(open) = writer.run.fold.task(id).and_then(|task| task.open_step()) else { return };
    let (step, attempt) = (open.step, open.attempt.saturating_add(1));
    let wait = match next {
        RetryTarget::SameModel(wait) => wait,
        RetryTarget::NextModel => 0,
    };
    let not_before = writer.out.next_record_time(writer.run).saturating_add(wait);
    writer.emit(Event::Retrying(Box::new(StepRetrying { task_id: id.clone(), step, attempt, not_before, error })));
    // The time of the log may be ahead of the clock that measures the wait.
    let at = matches!(next, RetryTarget::SameModel(_)).then(|| writer.out.now().saturating_add(wait));
    call_model(writer, id, at);
}
