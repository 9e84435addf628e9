//! Plays one turn: a stream that makes each event when it is asked for it, and not before its time.
//!
//! Nothing is made ahead, so a million deltas take no more memory than one, and a consumer that waits holds the play
//! up. A delta is due at a fixed distance from its step's first one: when one is late the next is not later for it, and
//! what is overdue is given at once. Dropping the stream is the end of it; nothing runs beside it.

use super::ClockUs;
use super::cast::{Cast, Pace};
use super::script::{Deltas, Opening, Say, Step};
use super::template::{Filling, Form, Template};
use futures_core::Stream;
use model::model_turn::{ModelDelta, ModelEvent, ModelFailure, ModelItemKind, ModelTurnEnd};
use model::usage::Usage;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::task::coop;
use tokio::time::{Instant, Sleep, sleep_until};

/// One turn that is being played.
pub(super) struct Play {
    cast: Cast,
    clock: ClockUs,
    walk: Walk,
    /// The one timer of this play, set anew for each wait.
    timer: Option<Pin<Box<Sleep>>>,
    waits: bool,
}

impl Play {
    pub(super) fn new(cast: Cast, clock: ClockUs) -> Self {
        Self { cast, clock, walk: Walk::default(), timer: None, waits: false }
    }

    fn wait_until(&mut self, due: Instant) {
        self.waits = true;
        match &mut self.timer {
            Some(timer) => timer.as_mut().reset(due),
            None => self.timer = Some(Box::pin(sleep_until(due))),
        }
    }
}

impl Stream for Play {
    type Item = ModelEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ModelEvent>> {
        let this = &mut *self;
        // A turn without pauses is always ready: it takes its turns with the runtime's other tasks all the same.
        let budget = ready!(coop::poll_proceed(cx));
        loop {
            if this.waits
                && let Some(timer) = &mut this.timer
            {
                ready!(timer.as_mut().poll(cx));
                this.waits = false;
                this.walk.is_time = true;
            }
            match this.walk.next(&this.cast, &this.clock) {
                Next::Wait(due) => this.wait_until(due),
                Next::Event(event) => {
                    budget.made_progress();
                    return Poll::Ready(Some(event));
                }
                Next::Nothing => return Poll::Ready(None),
            }
        }
    }
}

/// How far the turn is.
#[derive(Default)]
struct Walk {
    step: usize,
    /// Was what stands before the step's deltas sent?
    entered: bool,
    /// Deltas of this step so far.
    deltas: u64,
    /// When the step's first delta, or its pause, began.
    began: Option<Instant>,
    /// What was waited for is due.
    is_time: bool,
    over: bool,
    /// Characters so far, for the usage that the file does not give.
    said_chars: u64,
    thought_chars: u64,
}

enum Next {
    Event(ModelEvent),
    Wait(Instant),
    Nothing,
}

impl Walk {
    fn next(&mut self, cast: &Cast, clock: &ClockUs) -> Next {
        if self.over {
            return Next::Nothing;
        }
        while let Some(step) = cast.turn.steps.get(self.step) {
            let pace = cast.paces.get(self.step).copied().unwrap_or_default();
            let next = match step {
                Step::Pause(_) => self.wait(pace, 1),
                Step::Say(say) => self.say(say, pace, cast, clock),
                Step::Fail { times: Some(times), .. } if u64::from(cast.attempt) > *times => None,
                Step::Fail { failure, message, .. } => Some(self.fail(failure, message, cast, clock)),
            };
            match next {
                Some(next) => return next,
                None => self.advance(),
            }
        }
        self.over = true;
        let usage = cast.turn.usage.unwrap_or_else(|| self.counted(cast.read_chars));
        Next::Event(ModelEvent::End(ModelTurnEnd {
            stop_reason: cast.turn.stop,
            usage,
            model: None,
            service_tier: None,
        }))
    }

    fn advance(&mut self) {
        self.step += 1;
        self.entered = false;
        self.deltas = 0;
        self.began = None;
        self.is_time = false;
    }

    /// Until when, if it is too early for what comes `nth` in this step.
    fn wait(&mut self, pace: Pace, nth: u64) -> Option<Next> {
        if pace.every.is_zero() || std::mem::take(&mut self.is_time) {
            return None;
        }
        let now = Instant::now();
        let began = *self.began.get_or_insert(now);
        let after = pace.every.saturating_mul(u32::try_from(nth).unwrap_or(u32::MAX));
        began.checked_add(after).filter(|due| *due > now).map(Next::Wait)
    }

    /// The next of this step; `None` when there is no more of it.
    fn say(&mut self, say: &Say, pace: Pace, cast: &Cast, clock: &ClockUs) -> Option<Next> {
        if !std::mem::replace(&mut self.entered, true)
            && let Some(opening) = &say.opens
        {
            return delta(ModelDelta::Started { slot: say.slot, item: item(opening, cast, clock) });
        }
        if self.deltas < pace.deltas {
            if let Some(wait) = self.wait(pace, self.deltas) {
                return Some(wait);
            }
            self.deltas += 1;
            return delta(self.delta(say, cast, clock)?);
        }
        if !say.closes {
            return None;
        }
        self.advance();
        delta(ModelDelta::Done { slot: say.slot, raw: None })
    }

    /// The delta with the number that [`Self::deltas`] has just reached.
    fn delta(&mut self, say: &Say, cast: &Cast, clock: &ClockUs) -> Option<ModelDelta> {
        let slot = say.slot;
        let place = usize::try_from(self.deltas.saturating_sub(1)).ok()?;
        let fill = |pieces: &[Template], form| {
            let piece = pieces.get(place.checked_rem(pieces.len())?)?;
            Some(piece.fill(&Filling { values: &cast.values, index: self.deltas, clock, form }))
        };
        Some(match &say.deltas {
            Deltas::Reasoning { part, pieces } => {
                let text = fill(pieces, Form::Words)?;
                self.thought_chars += chars(&text);
                ModelDelta::Reasoning { slot, part: *part, text }
            }
            Deltas::Text(pieces) => {
                let text = fill(pieces, Form::Words)?;
                self.said_chars += chars(&text);
                ModelDelta::Text { slot, part: 0, text, logprobs: None }
            }
            Deltas::Arguments(pieces) => {
                let text = fill(pieces, Form::Json)?;
                self.said_chars += chars(&text);
                ModelDelta::Arguments { slot, text }
            }
            Deltas::Hosted { states, images } => match states.get(place) {
                Some(state) => ModelDelta::Hosted { slot, state: state.clone(), action: None },
                None => image(slot, images, place.checked_sub(states.len())?)?,
            },
        })
    }

    /// The usage that the file gives comes first, because a failure carries none.
    fn fail(&mut self, failure: &ModelFailure, message: &Template, cast: &Cast, clock: &ClockUs) -> Next {
        if !std::mem::replace(&mut self.entered, true)
            && let Some(usage) = cast.turn.usage
        {
            return Next::Event(ModelEvent::Delta(ModelDelta::Usage(usage)));
        }
        self.over = true;
        let mut failure = failure.clone();
        failure.error.message = message.fill(&Filling { values: &cast.values, index: 1, clock, form: Form::Words });
        Next::Event(ModelEvent::Failed(failure))
    }

    /// Four characters are a token. It need not be true, it need be the same every time.
    fn counted(&self, read_chars: u64) -> Usage {
        Usage {
            input_tokens: read_chars.div_ceil(4),
            output_tokens: (self.said_chars + self.thought_chars).div_ceil(4),
            reasoning_tokens: self.thought_chars.div_ceil(4),
            ..Usage::default()
        }
    }
}

fn delta(delta: ModelDelta) -> Option<Next> {
    Some(Next::Event(ModelEvent::Delta(delta)))
}

fn item(opening: &Opening, cast: &Cast, clock: &ClockUs) -> ModelItemKind {
    match opening {
        Opening::Message => ModelItemKind::Message { phase: None },
        Opening::Reasoning => ModelItemKind::Reasoning,
        Opening::Hosted(name) => ModelItemKind::HostedCall { name: name.clone() },
        Opening::Call(name) => {
            let name = name.fill(&Filling { values: &cast.values, index: 1, clock, form: Form::Words });
            ModelItemKind::ToolCall { name, provider_call_id: None }
        }
    }
}

/// Every picture but the last is a partial one.
fn image(slot: u32, images: &[String], place: usize) -> Option<ModelDelta> {
    let partial = if place + 1 < images.len() { Some(u32::try_from(place).ok()?) } else { None };
    Some(ModelDelta::Image { slot, part: 0, partial, url: images.get(place)?.clone() })
}

fn chars(text: &str) -> u64 {
    u64::try_from(text.chars().count()).unwrap_or(u64::MAX)
}
