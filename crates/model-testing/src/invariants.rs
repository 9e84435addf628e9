//! Laws as checks over a log. Independent of the fold on purpose: they are computed from the events themselves.

use super::json_fold::JsonFold;
use model::history::HistoryEntry;
use model::id::{CallId, TaskId};
use model::record::Record;
use std::collections::HashSet;

/// Law 3: every field that a `*.done` event carries equals the concatenation of its deltas.
pub fn check_done_matches_deltas(records: &[Record]) -> Result<(), String> {
    let mut sums = JsonFold::default();
    records.iter().try_for_each(|record| sums.apply(record).map(|_| ()))
}

/// Law 9: every task has one terminal event, which is its last; the root's is the last of the run. The runs of the log
/// must have ended.
pub fn check_one_terminal_event(records: &[Record]) -> Result<(), String> {
    let mut ended: HashSet<TaskId> = HashSet::new();
    let mut begun: HashSet<TaskId> = HashSet::new();
    for record in records {
        let event = record.event();
        let Some(task) = event.task_id() else { continue };
        if ended.contains(task) || ended.contains(&record.run) {
            return Err(format!("record {} ({}) comes after the end of {task}", record.seq, record.event_type()));
        }
        begun.insert(task.clone());
        if event.is_terminal() {
            ended.insert(task.clone());
        }
    }
    match begun.difference(&ended).next() {
        Some(task) => Err(format!("{task} has no terminal event")),
        None => Ok(()),
    }
}

/// Law 12: every call in a history has exactly one result, and nothing is empty.
pub fn check_history<'a>(entries: impl IntoIterator<Item = &'a HistoryEntry>) -> Result<(), String> {
    let mut open: Vec<&CallId> = Vec::new();
    for entry in entries {
        match entry {
            HistoryEntry::Call { call_id, .. } => open.push(call_id),
            HistoryEntry::Result { call_id, content, .. } => {
                let index = open.iter().position(|open| *open == call_id);
                let index = index.ok_or_else(|| format!("{call_id} has a result without a call, or a second one"))?;
                open.remove(index);
                if content.is_empty() {
                    return Err(format!("the result of {call_id} is empty"));
                }
            }
            // Items of the same turn may come between a call and its result; a user's message may not.
            HistoryEntry::User { .. } | HistoryEntry::System { .. } | HistoryEntry::Summary { .. }
                if !open.is_empty() =>
            {
                return Err(format!("{open:?} have no result before the next turn"));
            }
            HistoryEntry::Assistant { text, .. } if text.is_empty() => return Err("an empty message".to_owned()),
            HistoryEntry::GeneratedImages { content } if content.is_empty() => {
                return Err("nothing is drawn".to_owned());
            }
            HistoryEntry::Summary { .. }
            | HistoryEntry::System { .. }
            | HistoryEntry::User { .. }
            | HistoryEntry::Assistant { .. }
            | HistoryEntry::GeneratedImages { .. }
            | HistoryEntry::Reasoning { .. }
            | HistoryEntry::Hosted { .. } => {}
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("{open:?} have no result")) }
}
