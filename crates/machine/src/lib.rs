//! The run loop, pure: (state, input) → events + effects.
//!
//! [`step`] is the only way a run moves on. It folds what it decides into the state at once ([`Out::emit`]) and asks the
//! engine for what it cannot do itself ([`Effect`]). After every input but a piece of a model's answer, `drive` looks at
//! the state alone and lets everything go on that can: nothing is remembered that the log does not say, so recovery is
//! the fold of the log and one more input.
//!
//! Invariant: no clock, no randomness, no I/O. Time comes in through [`MachineOutput::new`]; ids are numbered from the log.

mod arguments;
mod budget;
mod calls;
mod close_items;
mod compaction;
mod drive;
mod effect;
mod file_processing;
mod handoff;
mod history;
mod input;
mod model_call;
mod model_turn;
mod output;
mod pending;
mod recovery;
mod state;
mod sub_agent;
mod task_end;
mod tool_execution;
mod tool_result;

pub use budget::{add_spend, exclude_own_spend, user_spend_today};
pub use compaction::{ThreadInput, ThreadState, apply_thread_input};
pub use effect::{Effect, EffectId, TimerId};
pub use input::{CancelTask, MachineInput};
pub use output::MachineOutput;
pub use pending::{pending_requests, timeout_answer};
pub use state::RunState;

use calls::CallState;
use model::Millis;
use model::fold::TaskFold;

/// Answers one input. Everything that it causes stands in `out`, to be appended together.
pub fn apply_input(run: &mut RunState, input: MachineInput, out: &mut MachineOutput) {
    match input {
        MachineInput::Start(start) => drive::start_run(run, *start, out),
        MachineInput::Model { id, event } => {
            let is_delta = matches!(event, model::model_turn::ModelEvent::Delta(_));
            model_turn::on_model_event(run, &id, event, out);
            if is_delta {
                return;
            }
        }
        MachineInput::Tool { id, event } => tool_execution::on_tool_event(run, &id, event, out),
        MachineInput::File { id, answer } => file_processing::on_file_event(run, &id, answer, out),
        MachineInput::Steer(steer) => drive::add_steering_input(run, steer, out),
        MachineInput::Cancel(cancel) => task_end::cancel_task(run, cancel, out),
        MachineInput::Answers(answers) => pending::on_answers(run, answers, out),
        MachineInput::Timer(TimerId::Run(task)) => task_end::on_run_deadline(run, &task, out),
        // Somebody may have decided just before: the clock's answer ([`at_timeout`]) comes by way of the inbox, too.
        MachineInput::Timer(TimerId::Approval(_)) => {}
        MachineInput::Recovered => recovery::recover_run(run, out),
    }
    drive::advance_run(run, out);
}

/// When a timer fires.
#[must_use]
pub fn timer_deadline(run: &RunState, timer: &TimerId) -> Option<Millis> {
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
pub fn outstanding_effects(run: &RunState) -> Vec<EffectId> {
    let going = run.fold.tasks.iter().filter(|task| !task.status.is_terminal());
    going.flat_map(outstanding_effects_of_task).collect()
}

/// The same for a task that has not ended.
fn outstanding_effects_of_task(task: &TaskFold) -> Vec<EffectId> {
    let open = task.open_step();
    let mut ids: Vec<_> = open.map(|step| EffectId::model(&task.id, step.step, step.attempt)).into_iter().collect();
    ids.extend(file_processing::outstanding_file_reads(task));
    for (fold, call) in task.calls() {
        match calls::call_state(task, fold, call) {
            CallState::Running => ids.push(EffectId::tool(&call.call_id, fold.attempts)),
            CallState::AwaitingApproval => ids.push(EffectId::Timer(TimerId::Approval(call.call_id.approval_key()))),
            _ => {}
        }
    }
    // Only a run as a whole has one.
    if task.deadline.is_some() {
        ids.push(EffectId::Timer(TimerId::Run(task.id.clone())));
    }
    ids
}
