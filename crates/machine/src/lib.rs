//! The run loop, pure: (state, input) → events + effects.
//!
//! [`step`] is the only way a run moves on. It folds what it decides into the state at once ([`Out::emit`]) and asks the
//! engine for what it cannot do itself ([`Effect`]). After every input but a piece of a model's answer, `drive` looks at
//! the state alone and lets everything go on that can: nothing is remembered that the log does not say, so recovery is
//! the fold of the log and one more input.
//!
//! Invariant: no clock, no randomness, no I/O. Time comes in through [`Ctx`]; ids are numbered from the log.

mod args;
mod ask;
mod budget;
mod calls;
mod child;
mod close;
mod drive;
mod effect;
mod end;
mod files;
mod handover;
mod history;
mod input;
mod out;
mod people;
mod recover;
mod result;
mod state;
mod tools;
mod turn;

pub use budget::millionths;
pub use effect::{Effect, EffectId, TimerId};
pub use input::{CancelTask, Input};
pub use out::Out;
pub use people::{at_timeout, pending};
pub use state::RunState;

use calls::CallState;
use model::Millis;
use model::fold::TaskFold;

/// What an input is answered with, beside the state: the moment.
#[derive(Clone, Copy, Debug)]
pub struct Ctx {
    /// Now.
    pub now: Millis,
}

/// Answers one input. Everything that it causes stands in `out`, to be appended together.
pub fn step(run: &mut RunState, input: Input, ctx: Ctx, out: &mut Out) {
    out.at(ctx.now);
    match input {
        Input::Start(start) => drive::start(run, *start, ctx, out),
        Input::Model { id, event } => {
            let is_delta = matches!(event, model::model_turn::ModelEvent::Delta(_));
            turn::heard(run, &id, event, out);
            if is_delta {
                return;
            }
        }
        Input::Tool { id, event } => tools::heard(run, &id, event, out),
        Input::File { id, answer } => files::heard(run, &id, answer, out),
        Input::Steer(steer) => drive::steer(run, steer, out),
        Input::Cancel(cancel) => end::cancel(run, cancel, out),
        Input::Answers(answers) => people::answered(run, answers, out),
        Input::Timer(TimerId::Run(task)) => end::deadline(run, &task, out),
        // Somebody may have decided just before: the clock's answer ([`at_timeout`]) comes by way of the inbox, too.
        Input::Timer(TimerId::Approval(_)) => {}
        Input::Recovered => recover::recover(run, ctx, out),
    }
    drive::drive(run, ctx, out);
}

/// When a timer fires.
#[must_use]
pub fn moment_of(run: &RunState, timer: &TimerId) -> Option<Millis> {
    match timer {
        TimerId::Run(task) => run.fold.task(task).and_then(|task| task.deadline),
        TimerId::Approval(key) => {
            let asked = run.fold.tasks.iter().flat_map(|task| &task.approvals);
            asked.rev().find(|(asked, _)| asked.key == *key).map(|(asked, _)| asked.expires_at)
        }
    }
}

/// What was asked for and has not ended, from the state alone.
#[must_use]
pub fn outstanding(run: &RunState) -> Vec<EffectId> {
    let going = run.fold.tasks.iter().filter(|task| !task.status.is_terminal());
    going.flat_map(outstanding_of).collect()
}

/// The same for a task that has not ended.
fn outstanding_of(task: &TaskFold) -> Vec<EffectId> {
    let open = task.open_step();
    let mut ids: Vec<_> = open.map(|step| EffectId::model(&task.id, step.step, step.attempt)).into_iter().collect();
    ids.extend(files::outstanding(task));
    for (fold, call) in task.calls() {
        match calls::state(task, fold, call) {
            CallState::Running => ids.push(EffectId::tool(&call.call_id, fold.attempts)),
            CallState::Asked => ids.push(EffectId::Timer(TimerId::Approval(call.call_id.approval_key()))),
            _ => {}
        }
    }
    // Only a run as a whole has one.
    if task.deadline.is_some() {
        ids.push(EffectId::Timer(TimerId::Run(task.id.clone())));
    }
    ids
}
