//! The run loop, pure: (state, input) → events + effects.
//!
//! [`apply_input`] is the only way to change a run. It folds every event into the state at once and returns, in a
//! [`MachineOutput`], the records to append and the [`Effect`]s that the engine has to carry out. After every input except
//! a model delta, `drive` looks at the state alone and advances whatever can advance: the machine remembers nothing that is
//! not in the log, so recovery is the fold of the log and one more input. [`apply_thread_input`] does the same for a
//! thread between two runs.
//!
//! Layers, each importing only those before it: `effect`, `input`, `turn_state`; `state`; `budget`, `output`, `positions`;
//! queries (`task_tree`, `history`, `tool_lookup`, `calls`, `outstanding`); writers (`close_items`, `step`, `tool_result`,
//! `tool_execution`, `file_processing`, `sub_agent`, `handoff`, `pending`, `questions`); `task_end`; `model_call`, `model_turn`;
//! `recovery`, `tool_events`, `drive`.
//!
//! Invariant: no clock, no randomness, no I/O. Time enters through [`MachineOutput::new`]; ids are numbered from the log.

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
mod mcp_lists;
mod model_call;
mod model_turn;
mod open_results;
mod output;
mod outstanding;
mod pending;
mod positions;
mod questions;
mod recovery;
mod state;
mod step;
mod sub_agent;
mod task_end;
mod task_tools;
mod task_tree;
mod tool_events;
mod tool_execution;
mod tool_lookup;
mod tool_result;
mod tool_search;
mod tool_stream;
mod turn_state;

pub use budget::{exclude_own_spend, user_spend_today};
pub use calls::has_open_calls;
pub use compaction::{ThreadInput, ThreadState, apply_thread_input};
pub use effect::{Effect, EffectId, TimerId};
pub use input::{CancelTask, MachineInput};
pub use output::MachineOutput;
pub use outstanding::{outstanding_effects, timer_deadline};
pub use pending::{answered_tasks, pending_requests, timeout_answer};
pub use state::RunState;

use model::model_turn::ModelEvent;
use output::RunWriter;

/// Applies one input to a run. Everything that it causes is in `out`, to be appended in one batch.
pub fn apply_input(run: &mut RunState, input: MachineInput, out: &mut MachineOutput) {
    let writer = &mut RunWriter { run, out };
    match input {
        MachineInput::Start(start) => drive::start_run(writer, *start),
        MachineInput::Model { id, event } => {
            let is_delta = matches!(event, ModelEvent::Delta(_));
            model_turn::on_model_event(writer, &id, event);
            if is_delta {
                return;
            }
        }
        MachineInput::Tool { id, event } => tool_events::on_tool_event(writer, &id, event),
        MachineInput::File { id, answer } => file_processing::on_file_event(writer, &id, answer),
        MachineInput::Steer(steer) => drive::add_steering_input(writer, steer),
        MachineInput::Cancel(cancel) => task_end::cancel_task(writer, cancel),
        MachineInput::Answers { answers, inputs } => {
            if pending::on_answers(writer, answers) {
                inputs.into_iter().for_each(|input| drive::add_steering_input(writer, input));
            }
        }
        MachineInput::Timer(TimerId::Run(task)) => task_end::on_run_deadline(writer, &task),
        // Somebody may have decided just before. The answer of the clock (`timeout_answer`) comes through the inbox, too.
        MachineInput::Timer(TimerId::Approval(_)) => {}
        MachineInput::Recovered => recovery::recover_run(writer),
        MachineInput::RecoveryFailed(error) => task_end::fail_run(writer, &error),
    }
    drive::advance_run(writer);
}
