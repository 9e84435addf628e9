//! The run loop, pure: (state, input) → events + effects.
//!
//! [`step`] is the only way a run moves on. It folds what it decides into the state at once ([`Out::emit`]) and asks the
//! engine for what it cannot do itself ([`Effect`]). After every input but a piece of a model's answer, `drive` looks at
//! the state alone and lets everything go on that can: nothing is remembered that the log does not say, so recovery is
//! the fold of the log and one more input.
//!
//! Invariant: no clock, no randomness, no I/O. Time comes in through [`Ctx`]; ids are numbered from the log.

mod close;
mod drive;
mod effect;
mod end;
mod input;
mod out;
mod state;
mod tools;
mod turn;

pub use effect::{Effect, EffectId, HookRequest, TimerId};
pub use input::{CancelRun, HookEnd, Input};
pub use out::Out;
pub use state::RunState;

use model::Millis;

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
            let is_delta = matches!(event, model::delta::ModelEvent::Delta(_));
            turn::heard(run, &id, event, out);
            if is_delta {
                return;
            }
        }
        Input::Tool { id, event } => tools::heard(run, &id, event, out),
        Input::Steer(steer) => drive::steer(run, steer, out),
        Input::Cancel(cancel) => end::cancel(run, cancel, out),
        Input::Timer(TimerId::Run(_)) => end::deadline(run, out),
        Input::Recovered => end::interrupted(run, out),
        // Nothing asks for these yet, so nothing outstanding is answered by them.
        Input::Answers(_) | Input::Hook(_) | Input::Timer(TimerId::Approval(_)) => {}
    }
    drive::drive(run, ctx, out);
}

/// What was asked for and has not ended, from the state alone.
#[must_use]
pub fn outstanding(run: &RunState) -> Vec<EffectId> {
    let mut ids = Vec::new();
    if run.fold.is_over() {
        return ids;
    }
    for task in run.fold.tasks.iter().filter(|task| !task.status.is_terminal()) {
        let open = task.open_step();
        ids.extend(open.map(|step| EffectId::model(&task.id, step.step, step.attempt)));
        for (fold, call) in task.calls() {
            let running = fold.started.as_ref().filter(|_| !tools::is_answered(task, &call.call_id));
            ids.extend(running.map(|started| EffectId::tool(&call.call_id, started.attempt)));
        }
        if task.spec.parent_task_id.is_none() && task.deadline.is_some() {
            ids.push(EffectId::Timer(TimerId::Run(task.id.clone())));
        }
    }
    ids
}
