//! Plays one turn: a stream that makes each event when it is asked for it, and not before its time.
//!
//! Nothing is made ahead, so a million deltas take no more memory than one, and a consumer that waits holds the play
//! up. A delta is due at a fixed distance from its step's first one: when one is late the next is not later for it, and
//! what is overdue is given at once. Dropping the stream is the end of it; nothing runs beside it.

use super::ClockUs;
use super::scenario::{EmitStep, ItemStart, ScenarioStep, StepDeltas};
use super::select::{SelectedTurn, StepTiming};
use super::template::{Template, TemplateContext, TemplateEscaping};
use futures_core::Stream;
use model::model_turn::{ModelDelta, ModelEvent, ModelFailure, ModelItemKind, ModelTurnEnd};
use model::usage::Usage;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::task::coop;
use tokio::time::{Instant, Sleep, sleep_until};

/// One turn that is being played.
pub(super) struct ScriptedStream {
    selected: SelectedTurn,
    clock: ClockUs,
    state: PlaybackState,
    /// The one timer of this play, set anew for each wait.
    timer: Option<Pin<Box<Sleep>>>,
    is_waiting: bool,
}

impl ScriptedStream {
    pub(super) fn new(cast: SelectedTurn, clock: ClockUs) -> Self {
        Self { selected: cast, clock, state: PlaybackState::default(), timer: None, is_waiting: false }
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
        // A turn without pauses is always ready: it takes its turns with the runtime's other tasks all the same.
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

/// How far the turn is.
#[derive(Default)]
struct PlaybackState {
    step: usize,
    /// Was what stands before the step's deltas sent?
    is_entered: bool,
    /// Deltas of this step so far.
    deltas_sent: u64,
    /// When the step's first delta, or its pause, began.
    started_at: Option<Instant>,
    /// What was waited for is due.
    is_due: bool,
    is_finished: bool,
    /// Characters so far, for the usage that the file does not give.
    text_chars: u64,
    reasoning_chars: u64,
}

enum PlaybackStep {
    Event(ModelEvent),
    Wait(Instant),
    Done,
}

impl PlaybackState {
    fn next(&mut self, cast: &SelectedTurn, clock: &ClockUs) -> PlaybackStep {
        if self.is_finished {
            return PlaybackStep::Done;
        }
        while let Some(step) = cast.turn.steps.get(self.step) {
            let pace = cast.timings.get(self.step).copied().unwrap_or_default();
            let next = match step {
                ScenarioStep::Pause(_) => self.wait_for_nth(pace, 1),
                ScenarioStep::Emit(say) => self.emit_next(say, pace, cast, clock),
                ScenarioStep::Fail { times: Some(times), .. } if u64::from(cast.attempt) > *times => None,
                ScenarioStep::Fail { failure, message, .. } => Some(self.fail(failure, message, cast, clock)),
            };
            match next {
                Some(next) => return next,
                None => self.advance(),
            }
        }
        self.is_finished = true;
        let usage = cast.turn.usage.unwrap_or_else(|| self.estimated_usage(cast.prompt_chars));
        PlaybackStep::Event(ModelEvent::End(ModelTurnEnd {
            stop_reason: cast.turn.stop,
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

    /// Until when, if it is too early for what comes `nth` in this step.
    fn wait_for_nth(&mut self, pace: StepTiming, nth: u64) -> Option<PlaybackStep> {
        if pace.interval.is_zero() || std::mem::take(&mut self.is_due) {
            return None;
        }
        let now = Instant::now();
        let began = *self.started_at.get_or_insert(now);
        let after = pace.interval.saturating_mul(u32::try_from(nth).unwrap_or(u32::MAX));
        began.checked_add(after).filter(|due| *due > now).map(PlaybackStep::Wait)
    }

    /// The next of this step; `None` when there is no more of it.
    fn emit_next(
        &mut self,
        say: &EmitStep,
        pace: StepTiming,
        cast: &SelectedTurn,
        clock: &ClockUs,
    ) -> Option<PlaybackStep> {
        if !std::mem::replace(&mut self.is_entered, true)
            && let Some(opening) = &say.starts
        {
            return delta_step(ModelDelta::Started { slot: say.slot, item: item_of_start(opening, cast, clock) });
        }
        if self.deltas_sent < pace.delta_count {
            if let Some(wait) = self.wait_for_nth(pace, self.deltas_sent) {
                return Some(wait);
            }
            self.deltas_sent += 1;
            return delta_step(self.next_delta(say, cast, clock)?);
        }
        if !say.is_last {
            return None;
        }
        self.advance();
        delta_step(ModelDelta::Done { slot: say.slot, raw: None })
    }

    /// The delta with the number that [`Self::deltas`] has just reached.
    fn next_delta(&mut self, say: &EmitStep, cast: &SelectedTurn, clock: &ClockUs) -> Option<ModelDelta> {
        let slot = say.slot;
        let place = usize::try_from(self.deltas_sent.saturating_sub(1)).ok()?;
        let fill = |pieces: &[Template], form| {
            let piece = pieces.get(place.checked_rem(pieces.len())?)?;
            Some(piece.render(&TemplateContext {
                values: &cast.values,
                index: self.deltas_sent,
                clock,
                escaping: form,
            }))
        };
        Some(match &say.deltas {
            StepDeltas::Reasoning { part, pieces } => {
                let text = fill(pieces, TemplateEscaping::Plain)?;
                self.reasoning_chars += count_chars(&text);
                ModelDelta::Reasoning { slot, part: *part, text }
            }
            StepDeltas::Text(pieces) => {
                let text = fill(pieces, TemplateEscaping::Plain)?;
                self.text_chars += count_chars(&text);
                ModelDelta::Text { slot, part: 0, text, logprobs: None }
            }
            StepDeltas::Arguments(pieces) => {
                let text = fill(pieces, TemplateEscaping::Json)?;
                self.text_chars += count_chars(&text);
                ModelDelta::Arguments { slot, text }
            }
            StepDeltas::Hosted { states, images } => match states.get(place) {
                Some(state) => ModelDelta::Hosted { slot, state: state.clone(), action: None },
                None => image_delta(slot, images, place.checked_sub(states.len())?)?,
            },
        })
    }

    /// The usage that the file gives comes first, because a failure carries none.
    fn fail(
        &mut self,
        failure: &ModelFailure,
        message: &Template,
        cast: &SelectedTurn,
        clock: &ClockUs,
    ) -> PlaybackStep {
        if !std::mem::replace(&mut self.is_entered, true)
            && let Some(usage) = cast.turn.usage
        {
            return PlaybackStep::Event(ModelEvent::Delta(ModelDelta::Usage(usage)));
        }
        self.is_finished = true;
        let mut failure = failure.clone();
        failure.error.message = message.render(&TemplateContext {
            values: &cast.values,
            index: 1,
            clock,
            escaping: TemplateEscaping::Plain,
        });
        PlaybackStep::Event(ModelEvent::Failed(failure))
    }

    /// Four characters are a token. It need not be true, it need be the same every time.
    fn estimated_usage(&self, read_chars: u64) -> Usage {
        Usage {
            input_tokens: read_chars.div_ceil(4),
            output_tokens: (self.text_chars + self.reasoning_chars).div_ceil(4),
            reasoning_tokens: self.reasoning_chars.div_ceil(4),
            ..Usage::default()
        }
    }
}

fn delta_step(delta: ModelDelta) -> Option<PlaybackStep> {
    Some(PlaybackStep::Event(ModelEvent::Delta(delta)))
}

fn item_of_start(opening: &ItemStart, cast: &SelectedTurn, clock: &ClockUs) -> ModelItemKind {
    match opening {
        ItemStart::Message => ModelItemKind::Message { phase: None },
        ItemStart::Reasoning => ModelItemKind::Reasoning,
        ItemStart::Hosted(name) => ModelItemKind::HostedCall { name: name.clone() },
        ItemStart::Call(name) => {
            let name = name.render(&TemplateContext {
                values: &cast.values,
                index: 1,
                clock,
                escaping: TemplateEscaping::Plain,
            });
            ModelItemKind::ToolCall { name, provider_call_id: None }
        }
    }
}

/// Every picture but the last is a partial one.
fn image_delta(slot: u32, images: &[String], place: usize) -> Option<ModelDelta> {
    let partial = if place + 1 < images.len() { Some(u32::try_from(place).ok()?) } else { None };
    Some(ModelDelta::Image { slot, part: 0, partial, url: images.get(place)?.clone() })
}

fn count_chars(text: &str) -> u64 {
    u64::try_from(text.chars().count()).unwrap_or(u64::MAX)
}
