//! What the model is given of what was said and done.

use crate::state::RunState;
use model::definition::HandoffHistory;
use model::fold::{HandoffFold, TaskFold};
use model::history::HistoryEntry;
use model::thread::split_history_entries;

/// What a task's next turn is given: the thread's past, and what the task has done. Whoever took over was given what the
/// hand-over says of that, and can give no more to the next.
pub(crate) fn history_for_turn(run: &RunState, task: &TaskFold) -> Vec<HistoryEntry> {
    let mut given = prior_entries(run, task);
    let mut told = 0;
    for handover in &task.handoffs {
        let (own, _) = split_history_entries(task, handover.after_steps);
        let before = std::mem::replace(&mut told, own.len());
        given.extend(own.into_iter().skip(before));
        given = filter_for_handoff(given, handoff_history(run, handover));
    }
    // A turn that is asked again is given what it was given first: what was said meanwhile is for the next one.
    let before = task.steps.len() - usize::from(task.open_step().is_some());
    given.extend(split_history_entries(task, before).0.into_iter().skip(told));
    given
}

fn handoff_history(run: &RunState, handover: &HandoffFold) -> HandoffHistory {
    let heirs = run.definitions.agents.get(&handover.from_agent).map(|agent| agent.handoffs.as_slice());
    let heir = heirs.unwrap_or_default().iter().find(|heir| heir.agent == handover.to_agent);
    heir.map(|heir| heir.history).unwrap_or_default()
}

/// A sub-agent knows only what it was asked.
fn prior_entries(run: &RunState, task: &TaskFold) -> Vec<HistoryEntry> {
    if task.spec.parent_task_id.is_some() {
        return Vec::new();
    }
    // The agent that the run began with says how much: whoever takes over is given what was there.
    let window = run.definitions.resolve_agent(&task.spec.agent).map(|agent| agent.history).unwrap_or_default();
    let before = task.prior_history.as_ref().map_or(&[][..], |before| &before.entries);
    let said = || {
        let past = run.thread_fold.history(task.spec.previous.as_ref(), window).into_iter();
        past.chain(task.entries_with_file_contents(before)).collect()
    };
    task.rewritten_history.as_ref().map_or_else(said, |history| task.entries_with_file_contents(history))
}

fn filter_for_handoff(mut entries: Vec<HistoryEntry>, history: HandoffHistory) -> Vec<HistoryEntry> {
    let is_said = |entry: &HistoryEntry| match entry {
        HistoryEntry::System { .. }
        | HistoryEntry::User { .. }
        | HistoryEntry::Assistant { .. }
        | HistoryEntry::GeneratedImages { .. } => true,
        HistoryEntry::Summary { .. } => true,
        HistoryEntry::Reasoning { .. }
        | HistoryEntry::Call { .. }
        | HistoryEntry::Hosted { .. }
        | HistoryEntry::Result { .. } => false,
    };
    match history {
        HandoffHistory::All => {}
        HandoffHistory::Messages => entries.retain(is_said),
        HandoffHistory::Input => {
            let last = entries.iter().rposition(|entry| matches!(entry, HistoryEntry::User { .. }));
            entries = last.map(|place| entries.swap_remove(place)).into_iter().collect();
        }
    }
    // What was said without its thoughts is given as plain words: a provider would miss what it had thought.
    if history != HandoffHistory::All {
        for entry in &mut entries {
            if let HistoryEntry::Assistant { raw, .. } = entry {
                *raw = None;
            }
        }
    }
    entries
}
