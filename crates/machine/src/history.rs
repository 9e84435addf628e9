//! The history that a model turn reads.

use crate::state::RunState;
use model::context::context_message;
use model::definition::{ClientInstructions, HandoffHistory};
use model::fold::{HandoffFold, TaskFold};
use model::history::{HistoryEntry, SharedHistory};
use model::thread::split_history_entries;
use std::sync::Arc;

/// The history of a task's next turn: the thread's entries, then the task's. Each hand-off filters the entries before it, and
/// the next agent reads the filtered ones only.
pub(crate) fn history_for_turn(run: &RunState, task: &TaskFold) -> SharedHistory {
    let PriorEntries { mut entries, past_count } = prior_entries(run, task);
    // A hook has seen the context and has written what the model shall read of it.
    if task.rewritten_history.is_none() {
        entries.extend(context_message(&task.context).map(Arc::new));
    }
    let mut included = 0;
    for handoff in &task.handoffs {
        let (own, _) = split_history_entries(task, handoff.after_steps);
        let before = std::mem::replace(&mut included, own.len());
        entries.extend(own.into_iter().skip(before).map(Arc::new));
        entries = filter_for_handoff(entries, handoff_history(run, handoff));
    }
    // A retry reads what the first attempt read: input that came meanwhile is for the next turn.
    let before = task.steps.len() - usize::from(task.open_step().is_some());
    entries.extend(split_history_entries(task, before).0.into_iter().skip(included).map(Arc::new));
    // Of an earlier run, or of another agent, that allows them. What an input hook has written is the operator's.
    if run.agent_of_task(task).client_instructions == ClientInstructions::Forbidden && task.rewritten_history.is_none()
    {
        entries.retain(|entry| !matches!(**entry, HistoryEntry::System { .. }));
    }
    // What a hand-off leaves out, the next run has.
    if past_count == 0 || !task.handoffs.is_empty() {
        return entries.into();
    }
    SharedHistory::in_thread(entries, past_count, run.thread_fold.history_cache.clone())
}

struct PriorEntries {
    entries: Vec<Arc<HistoryEntry>>,
    /// The first ones are those of the thread.
    past_count: usize,
}

fn handoff_history(run: &RunState, handoff: &HandoffFold) -> HandoffHistory {
    let targets = run.definitions.agents.get(&handoff.from_agent).map(|agent| agent.handoffs.as_slice());
    let target = targets.unwrap_or_default().iter().find(|target| target.agent == handoff.to_agent);
    target.map(|target| target.history).unwrap_or_default()
}

/// A sub-agent knows only its own input.
fn prior_entries(run: &RunState, task: &TaskFold) -> PriorEntries {
    if task.spec.parent_task_id.is_some() {
        return PriorEntries { entries: Vec::new(), past_count: 0 };
    }
    // The agent that started the run sets the window, also after a hand-off.
    let window = run.definitions.resolve_agent(&task.spec.agent).map(|agent| agent.history).unwrap_or_default();
    let before = task.prior_history.as_ref().map_or(&[][..], |before| &before.entries);
    let as_read = |entries: &[HistoryEntry]| task.entries_with_file_contents(entries).into_iter().map(Arc::new);
    if let Some(history) = &task.rewritten_history {
        return PriorEntries { entries: as_read(history).collect(), past_count: 0 };
    }
    let mut entries = run.thread_fold.turn_history(task.spec.previous.as_ref(), window);
    let past_count = entries.len();
    entries.extend(as_read(before));
    PriorEntries { entries, past_count }
}

fn filter_for_handoff(mut entries: Vec<Arc<HistoryEntry>>, history: HandoffHistory) -> Vec<Arc<HistoryEntry>> {
    let is_message = |entry: &Arc<HistoryEntry>| match **entry {
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
        HandoffHistory::Messages => entries.retain(is_message),
        HandoffHistory::Input => {
            let last = entries.iter().rposition(|entry| matches!(**entry, HistoryEntry::User { .. }));
            entries = last.map(|index| entries.swap_remove(index)).into_iter().collect();
        }
    }
    // A raw message refers to its reasoning, which is gone: the provider gets the plain text.
    if history != HandoffHistory::All {
        for entry in &mut entries {
            if matches!(**entry, HistoryEntry::Assistant { raw: Some(_), .. })
                && let HistoryEntry::Assistant { raw, .. } = Arc::make_mut(entry)
            {
                *raw = None;
            }
        }
    }
    entries
}
