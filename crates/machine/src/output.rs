//! What an input causes: events, already folded, and effects.

use crate::budget;
use crate::effect::Effect;
use crate::state::RunState;
use model::defects::Defect;
use model::limits::{DELTA_BYTES_MAX, RECORD_BYTES_MAX};
use model::ports::Spend;
use model::record::{PrivatePayload, RecordDraft};
use model::{Event, Millis, Seq};

/// What one input, or several at the same time, caused.
#[derive(Debug)]
pub struct MachineOutput {
    /// Records in order.
    pub drafts: Vec<RecordDraft>,
    /// Requests to the world.
    pub effects: Vec<Effect>,
    /// What the model calls that ended here cost: it counts for the owner's day.
    pub spend: Spend,
    now: Millis,
}

impl MachineOutput {
    /// The one place where time enters the machine: `now` is what the clock says when the input arrives.
    pub fn new(now: Millis) -> Self {
        Self { drafts: Vec::new(), effects: Vec::new(), spend: Spend::default(), now }
    }

    pub(crate) const fn now(&self) -> Millis {
        self.now
    }

    /// The time of the next record. Time in the log never goes back, whatever the clock does.
    pub(crate) fn next_record_time(&self, run: &RunState) -> Millis {
        self.now.max(run.fold.at)
    }

    pub(crate) fn add_spend(&mut self, spend: Spend) {
        self.spend = self.spend.saturating_add(spend);
    }

    pub(crate) fn push_effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }
}

/// Writes the events of a run: folds each at once, and queues it for the log.
pub(crate) struct RunWriter<'a> {
    pub(crate) run: &'a mut RunState,
    pub(crate) out: &'a mut MachineOutput,
}

impl RunWriter<'_> {
    /// Folds an event and queues it for the log.
    pub(crate) fn emit(&mut self, event: Event) {
        self.emit_with_private(event, None);
    }

    /// Emits an event whose content came from outside; one that is too large for a record is dropped.
    pub(crate) fn emit_if_fits(&mut self, event: Event) {
        if json_size(&event) <= RECORD_BYTES_MAX {
            self.emit(event);
        }
    }

    /// Emits an event together with what only the server may read.
    pub(crate) fn emit_with_private(&mut self, event: Event, private: Option<PrivatePayload>) {
        let seq = self.run.fold.seq.next();
        let at = self.out.next_record_time(self.run);
        let private = match self.run.take_unlogged_usage(&event) {
            Some(usage) => Some(PrivatePayload { usage: Some(usage), ..private.unwrap_or_default() }),
            None => private,
        };
        if let Event::StepDone(done) = &event {
            self.out.add_spend(budget::model_spend(&self.run.definitions, &done.model, done.usage));
        }
        // An error would be a defect of this machine; the fold counts it and the engine parks the thread.
        let _counted = self.run.fold.apply_event(seq, at, &event, private.as_ref());
        let private = private.map(Box::new);
        if Defect::DeltaDropped.is_planted() && matches!(event, Event::TextDelta(_)) && seq.0.is_multiple_of(3) {
            self.run.fold.seq = Seq(seq.0 - 1);
            return;
        }
        if Defect::TerminalTwice.is_planted() && event.is_terminal() {
            self.out.drafts.push(RecordDraft { seq, at, event: event.clone(), private: None });
            self.run.fold.seq = seq.next();
            self.out.drafts.push(RecordDraft { seq: seq.next(), at, event, private });
            return;
        }
        self.out.drafts.push(RecordDraft { seq, at, event, private });
    }
}

/// Splits a text into pieces that fit a record.
pub(crate) fn split_delta(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, tail) = rest.split_at(rest.floor_char_boundary(DELTA_BYTES_MAX));
        rest = tail;
        Some(piece)
    })
}

pub(crate) fn json_size(value: &impl serde::Serialize) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |bytes| bytes.len())
}
