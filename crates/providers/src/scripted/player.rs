//! Plays one turn: a stream that produces each event on demand, and not before its time.
//!
//! Nothing is produced ahead, so a million deltas take no more memory than one, and a slow consumer delays the stream. A
//! delta is due at a fixed offset from its step's first one: a late delta does not delay the next, and overdue deltas are
//! emitted immediately. Nothing runs besides the stream, so dropping it ends the turn.

use super::scenario::{EmitStep, ItemStart, ScenarioStep, StepDeltas};
use super::select::{SelectedTurn, StepTiming};
use super::template::{ClockUs, Template, TemplateEscaping};
use futures_core::Stream;
use model::history::RawItem;
use model::model_turn::{ModelDelta, ModelEvent, ModelFailure, ModelItemKind, ModelTurnEnd};
use model::usage::Usage;
use serde_json::json;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::task::coop;
use tokio::time::{Instant, Sleep, sleep_until};

/// The origin of its items, which nobody gets back.
const RAW_ORIGIN: &str = "scripted";

pub(super) struct ScriptedStream {
    selected: SelectedTurn,
    clock: ClockUs,
    state: PlaybackState,
    /// Reset for each wait.
    timer: Option<Pin<Box<Sleep>>>,
    is_waiting: bool,
}

impl ScriptedStream {
    pub(super) fn new(selected: SelectedTurn, clock: ClockUs) -> Self {
        Self { selected, clock, state: PlaybackState::default(), timer: None, is_waiting: false }
    }

    fn wait_until(&mut self, due: Instant) {
        self.is_waiting = true;
        match &mut self.timer {
            Some(timer) => timer.as_mut().reset(due),
            None => self.timer = Some(Box::pin(sleep_until(due))),
        }
    }
}

impl Stream for ScriptedStream {
    type Item = ModelEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ModelEvent>> {
        let this = &mut *self;
        // A turn without pauses is always ready, and still has to yield to other tasks.
        let budget = ready!(coop::poll_proceed(cx));
        loop {
            if this.is_waiting
                && let Some(timer) = &mut this.timer
            {
                ready!(timer.as_mut().poll(cx));
                this.is_waiting = false;
                this.state.is_due = true;
            }
            match this.state.next(&this.selected, &this.clock) {
                PlaybackStep::Wait(due) => this.wait_until(due),
                PlaybackStep::Event(event) => {
                    budget.made_progress();
                    return Poll::Ready(Some(event));
                }
                PlaybackStep::Done => return Poll::Ready(None),
            }
        }
    }
}

#[derive(Default)]
struct PlaybackState {
    step: usize,
    /// What precedes the step's deltas was sent.
    is_entered: bool,
    /// In this step.
    deltas_sent: u64,
    /// Start of the step's first delta, or of its pause.
    started_at: Option<Instant>,
    /// The wait is over.
    is_due: bool,
    is_finished: bool,
    /// For the estimated usage.
    text_chars: u64,
    reasoning_chars: u64,
}

enum PlaybackStep {
    Event(ModelEvent),
    Wait(Instant),
    Done,
}

impl PlaybackState {
    fn next(&mut self, selected: &SelectedTurn, clock: &ClockUs) -> PlaybackStep {
        if self.is_finished {
            return PlaybackStep::Done;
        }
        while let Some(step) = selected.turn.steps.get(self.step) {
            let timing = selected.timings.get(self.step).copied().unwrap_or_default();
            let next = match step {
                ScenarioStep::Pause(_) => self.wait_for_nth(timing, 1),
                ScenarioStep::Emit(step) => self.emit_next(step, timing, selected, clock),
                ScenarioStep::Fail { times: Some(times), .. } if u64::from(selected.attempt) > *times => None,
                ScenarioStep::Fail { failure, message, .. } => Some(self.fail(failure, message, selected, clock)),
            };
            match next {
                Some(next) => return next,
                None => self.advance(),
            }
        }
        self.is_finished = true;
        let usage = selected.turn.usage.unwrap_or_else(|| self.estimated_usage(selected.prompt_chars));
        PlaybackStep::Event(ModelEvent::End(ModelTurnEnd {
            stop_reason: selected.turn.stop,
            usage,
            model: None,
            service_tier: None,
        }))
    }

    fn advance(&mut self) {
        self.step += 1;
        self.is_entered = false;
        self.deltas_sent = 0;
        self.started_at = None;
        self.is_due = false;
    }

    /// The wait before the `nth` delta of this step, if it is too early.
    fn wait_for_nth(&mut self, timing: StepTiming, nth: u64) -> Option<PlaybackStep> {
        if timing.interval.is_zero() || std::mem::take(&mut self.is_due) {
            return None;
        }
        let now = Instant::now();
        let started_at = *self.started_at.get_or_insert(now);
        let offset = timing.interval.saturating_mul(u32::try_from(nth).unwrap_or(u32::MAX));
        started_at.checked_add(offset).filter(|due| *due > now).map(PlaybackStep::Wait)
    }

    /// `None` at the end of the step.
    fn emit_next(
        &mut self,
        step: &EmitStep,
        timing: StepTiming,
        selected: &SelectedTurn,
        clock: &ClockUs,
    ) -> Option<PlaybackStep> {
        if !std::mem::replace(&mut self.is_entered, true)
            && let Some(start) = &step.starts
        {
            return delta_step(ModelDelta::Started { slot: step.slot, item: item_of_start(start, selected, clock) });
        }
        if self.deltas_sent < timing.delta_count {
            if let Some(wait) = self.wait_for_nth(timing, self.deltas_sent) {
                return Some(wait);
            }
            self.deltas_sent += 1;
            return delta_step(self.next_delta(step, selected, clock)?);
        }
        if !step.is_last {
            return None;
        }
        self.advance();
        delta_step(ModelDelta::Done { slot: step.slot, raw: raw_of_step(step) })
    }

    /// The delta with the number `deltas_sent`, counted from 1.
    fn next_delta(&mut self, step: &EmitStep, selected: &SelectedTurn, clock: &ClockUs) -> Option<ModelDelta> {
        let slot = step.slot;
        let index = usize::try_from(self.deltas_sent.saturating_sub(1)).ok()?;
        let render = |templates: &[Template], escaping| {
            let template = templates.get(index.checked_rem(templates.len())?)?;
            Some(selected.render(template, self.deltas_sent, clock, escaping))
        };
        Some(match &step.deltas {
            StepDeltas::Reasoning { part, pieces } => {
                let text = render(pieces, TemplateEscaping::Plain)?;
                self.reasoning_chars += count_chars(&text);
                ModelDelta::Reasoning { slot, part: *part, text }
            }
            StepDeltas::Text(pieces) => {
                let text = render(pieces, TemplateEscaping::Plain)?;
                self.text_chars += count_chars(&text);
                ModelDelta::Text { slot, part: 0, text, logprobs: None }
            }
            StepDeltas::Arguments(pieces) => {
                let text = render(pieces, TemplateEscaping::Json)?;
                self.text_chars += count_chars(&text);
                ModelDelta::Arguments { slot, text }
            }
            StepDeltas::Hosted { states, images } => match states.get(index) {
                Some(state) => ModelDelta::Hosted { slot, state: state.clone(), action: None },
                None => image_delta(slot, images, index.checked_sub(states.len())?)?,
            },
        })
    }

    /// The file's usage comes first, because a failure carries none.
    fn fail(
        &mut self,
        failure: &ModelFailure,
        message: &Template,
        selected: &SelectedTurn,
        clock: &ClockUs,
    ) -> PlaybackStep {
        if !std::mem::replace(&mut self.is_entered, true)
            && let Some(usage) = selected.turn.usage
        {
            return PlaybackStep::Event(ModelEvent::Delta(ModelDelta::Usage(usage)));
        }
        self.is_finished = true;
        let mut failure = failure.clone();
        failure.error.message = selected.render(message, 1, clock, TemplateEscaping::Plain);
        PlaybackStep::Event(ModelEvent::Failed(failure))
    }

    /// Four characters per token: not accurate, but reproducible.
    fn estimated_usage(&self, prompt_chars: u64) -> Usage {
        Usage {
            input_tokens: prompt_chars.div_ceil(4),
            output_tokens: (self.text_chars + self.reasoning_chars).div_ceil(4),
            reasoning_tokens: self.reasoning_chars.div_ceil(4),
            ..Usage::default()
        }
    }
}

fn delta_step(delta: ModelDelta) -> Option<PlaybackStep> {
    Some(PlaybackStep::Event(ModelEvent::Delta(delta)))
}

fn item_of_start(start: &ItemStart, selected: &SelectedTurn, clock: &ClockUs) -> ModelItemKind {
    match start {
        ItemStart::Message => ModelItemKind::Message { phase: None },
        ItemStart::Reasoning => ModelItemKind::Reasoning,
        ItemStart::Hosted(name) => ModelItemKind::HostedCall { name: name.clone(), action: None },
        ItemStart::Call(name) => {
            let name = selected.render(name, 1, clock, TemplateEscaping::Plain);
            ModelItemKind::ToolCall { name, provider_call_id: None }
        }
        ItemStart::Approval { name, server_label } => {
            let (name, server_label) = (name.clone(), server_label.clone());
            ModelItemKind::HostedApproval { name, server_label, provider_call_id: None }
        }
        ItemStart::Computer => ModelItemKind::ComputerCall { provider_call_id: None },
    }
}

/// What a provider would get back. Only a request for approval is nothing without it: the history leaves it out.
fn raw_of_step(step: &EmitStep) -> Option<RawItem> {
    let Some(ItemStart::Approval { name, server_label }) = &step.starts else { return None };
    let item = json!({ "type": "mcp_approval_request", "name": name, "server_label": server_label });
    Some(RawItem { origin: RAW_ORIGIN.to_owned(), item })
}

/// Every image but the last is partial.
fn image_delta(slot: u32, images: &[String], index: usize) -> Option<ModelDelta> {
    let partial = if index + 1 < images.len() { Some(u32::try_from(index).ok()?) } else { None };
    Some(ModelDelta::Image { slot, part: 0, partial, url: images.get(index)?.clone() })
}

fn count_chars(text: &str) -> u64 {
    u64::try_from(text.chars().count()).unwrap_or(u64::MAX)
}
