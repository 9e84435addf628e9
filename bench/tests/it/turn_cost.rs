//! What the start of a turn costs in a long thread, in allocations: the same figure on every machine, busy or not.
//!
//! The request to the model has the whole history, whose entries are the thread's own: nothing depends on the length of the
//! thread but one list of pointers. A bound is a little above what was counted when it was set.

use machine::{Effect, MachineInput, MachineOutput, RunState, apply_input};
use model::command::Command;
use model::content::ContentPart;
use model::definition::{Agent, Definitions};
use model::history::HistoryEntry;
use model::thread::{PastRun, ThreadFold};
use model::{ItemId, Seq, TaskId};
use std::sync::Arc;
use store_conformance::fixtures::{nth_run, nth_thread, start_command, test_user};

/// The lists of pointers grow by doubling.
const ALLOCATIONS_PER_TURN_MAX: f64 = 0.02;

/// A thread of turns with a message and an answer each.
fn thread_of_turns(turns: u64) -> Arc<ThreadFold> {
    let past = |n: u64| PastRun {
        run: TaskId::from(format!("task_past_{n}")),
        previous: n.checked_sub(1).map(|before| TaskId::from(format!("task_past_{before}"))),
        last_seq: Seq(n + 1),
        entries: vec![
            Arc::new(HistoryEntry::User { content: vec![ContentPart::text("x".repeat(500))] }),
            Arc::new(HistoryEntry::Assistant { id: ItemId::from("msg_1"), text: "y".repeat(500), raw: None }),
        ],
    };
    let runs = (0..turns).map(|n| Arc::new(past(n))).collect();
    Arc::new(ThreadFold { seq: Seq(turns + 1), runs, ..ThreadFold::default() })
}

/// The allocations of a new run's state, and of its first step, which calls the model.
fn count_start(turns: u64) -> (u64, u64) {
    let thread = thread_of_turns(turns);
    let agent = Agent::bare("demo", "scripted/story");
    let definitions = Definitions { agents: [("demo".to_owned(), agent)].into(), ..Definitions::default() };
    let (definitions, mut state) = (Arc::new(definitions), None);
    let created = allocation_counter::measure(|| {
        let thread_fold = Arc::clone(&thread);
        state = Some(RunState::new(test_user(), nth_thread(1), Arc::clone(&definitions), thread_fold, None));
    });
    let (mut run, mut out) = (state.unwrap(), MachineOutput::new(5));
    let Command::Start(start) = start_command(&nth_run(1)) else { unreachable!() };
    let started = allocation_counter::measure(|| apply_input(&mut run, MachineInput::Start(start), &mut out));
    let request = out.effects.iter().find_map(|effect| match effect {
        Effect::CallModel { request, .. } => Some(request),
        _ => None,
    });
    assert_eq!(request.unwrap().history.len() as u64, 2 * turns + 1);
    (created.count_total, started.count_total)
}

#[test]
fn the_start_of_a_turn_copies_nothing_of_its_history() {
    let ((created_short, started_short), (created_long, started_long)) = (count_start(100), count_start(1_100));
    assert_eq!(created_long, created_short, "the state of a run shares the thread");
    let per_turn = (started_long - started_short) as f64 / 1_000.0;
    assert!(per_turn <= ALLOCATIONS_PER_TURN_MAX, "{per_turn} allocations per turn of history");
}
