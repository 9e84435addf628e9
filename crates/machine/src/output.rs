//! What an input causes: events, already folded, and effects.

use crate::budget;
use crate::effect::Effect;
use crate::state::RunState;
use model::defects::Defect;
use model::limits::RECORD_BYTES_MAX;
use model::ports::Spend;
use model::record::{PrivatePayload, RecordDraft};
use model::{Event, Millis, Seq};

/// What an input, or several, caused.
#[derive(Debug)]
pub struct MachineOutput {
    /// Events in order, each at its place.
    pub drafts: Vec<RecordDraft>,
    /// What the world is asked for.
    pub effects: Vec<Effect>,
    /// What the model calls that ended here cost: it counts for the owner's day.
    pub spend: Spend,
    now: Millis,
}

impl MachineOutput {
    /// The one place where time enters the machine: `now` is what the clock says when the input arrives.
    #[must_use]
    pub fn new(now: Millis) -> Self {
        Self { drafts: Vec::new(), effects: Vec::new(), spend: Spend::default(), now }
    }

    pub(crate) const fn now(&self) -> Millis {
        self.now
    }

    /// The moment that the next record carries. The log's time never goes back, whatever the clock does.
    pub(crate) fn next_record_time(&self, run: &RunState) -> Millis {
        self.now.max(run.fold.at)
    }

    /// An event happens: it is folded at once and queued for the log.
    pub(crate) fn emit(&mut self, run: &mut RunState, event: Event) {
        self.emit_with_private(run, event, None);
    }

    /// The same for what somebody else made up: what fits no record is left out.
    pub(crate) fn emit_if_fits(&mut self, run: &mut RunState, event: Event) {
        if serde_json::to_vec(&event).is_ok_and(|bytes| bytes.len() <= RECORD_BYTES_MAX) {
            self.emit(run, event);
        }
    }

    /// The same, with what only the server may know.
    pub(crate) fn emit_with_private(&mut self, run: &mut RunState, event: Event, private: Option<PrivatePayload>) {
        let seq = run.fold.seq.next();
        let at = self.next_record_time(run);
        let private = match run.take_unlogged_usage(&event) {
            Some(usage) => Some(PrivatePayload { usage: Some(usage), ..private.unwrap_or_default() }),
            None => private,
        };
        if let Event::StepDone(done) = &event {
            self.add_spend(budget::model_spend(&run.definitions, &done.model, done.usage));
        }
        // A misfit would be a defect of this machine; the fold counts it and the engine parks the thread.
        let _counted = run.fold.apply_event(seq, at, &event, private.as_ref());
        let private = private.map(Box::new);
        if Defect::DeltaDropped.is_planted() && matches!(event, Event::TextDelta(_)) && seq.0.is_multiple_of(3) {
            run.fold.seq = Seq(seq.0 - 1);
            return;
        }
        if Defect::TerminalTwice.is_planted() && event.is_terminal() {
            self.drafts.push(RecordDraft { seq, at, event: event.clone(), private: None });
            run.fold.seq = seq.next();
            self.drafts.push(RecordDraft { seq: seq.next(), at, event, private });
            return;
        }
        self.drafts.push(RecordDraft { seq, at, event, private });
    }

    pub(crate) fn add_spend(&mut self, spend: Spend) {
        self.spend = budget::add_spend(self.spend, spend);
    }

    /// The world is asked for something.
    pub(crate) fn push_effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }
}
