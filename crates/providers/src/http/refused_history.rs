//! What services did not take back, remembered, so that the next turns of a thread need no refusal to find it out again.
//!
//! A refusal does not say which of its words a service can no longer read, so all that were in the request count as
//! unreadable. What the service says afterwards is new, and goes back whole. This is kept in memory alone: a process that
//! restarts is refused once more, and knows again.

use model::ThreadId;
use model::history::HistoryEntry;
use model::history::RawItem;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Of so many threads it is remembered; which was not asked about for longest is forgotten first.
const MARKS_MAX: usize = 4096;
/// What is left of a refused item: how its call was named and what kind of message it was. Without its type no service is
/// given it as it came.
const KEPT_FIELDS: [&str; 2] = ["id", "phase"];

/// How much of what a service said it may refuse to take back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefusalScope {
    /// Its thoughts alone.
    Reasoning,
    /// Every item: it looks each up by its id, or a thought may be in any.
    AllItems,
}

/// What the services did not take back.
#[derive(Debug, Default)]
pub(super) struct RefusedHistory(Mutex<RefusalMarks>);

impl RefusedHistory {
    /// A request with this history was refused.
    pub(super) fn record_refusal(&self, thread: &ThreadId, origin: &str, history: &[HistoryEntry]) {
        if let Some(newest) = newest_entry_id(history, origin) {
            self.lock_marks().set((thread.clone(), origin.to_owned()), newest.to_owned());
        }
    }

    /// The history as the service will take it. Without a refusal that is the history itself.
    pub(super) fn strip_refused(
        &self,
        thread: &ThreadId,
        origin: &str,
        history: &Arc<[HistoryEntry]>,
        what: RefusalScope,
    ) -> Arc<[HistoryEntry]> {
        let mark = self.lock_marks().get(&(thread.clone(), origin.to_owned()));
        mark.map_or_else(|| Arc::clone(history), |mark| strip_up_to(history, origin, &mark, what))
    }

    fn lock_marks(&self) -> MutexGuard<'_, RefusalMarks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread, and where its items are from.
type RefusalKey = (ThreadId, String);

/// The newest refused element of each place.
#[derive(Debug, Default)]
struct RefusalMarks {
    marks: HashMap<RefusalKey, RefusalMark>,
    /// Counts what is asked and told: a clock without time.
    tick: u64,
}

#[derive(Debug)]
struct RefusalMark {
    entry_id: String,
    last_used: u64,
}

impl RefusalMarks {
    fn get(&mut self, place: &RefusalKey) -> Option<String> {
        self.tick += 1;
        let mark = self.marks.get_mut(place)?;
        mark.last_used = self.tick;
        Some(mark.entry_id.clone())
    }

    fn set(&mut self, place: RefusalKey, element: String) {
        self.tick += 1;
        self.marks.insert(place, RefusalMark { entry_id: element, last_used: self.tick });
        // Refusals are rare and dear: looking through all of them then costs nothing beside it.
        if self.marks.len() > MARKS_MAX
            && let Some(oldest) =
                self.marks.iter().min_by_key(|(_, mark)| mark.last_used).map(|(place, _)| place.clone())
        {
            self.marks.remove(&oldest);
        }
    }
}

/// The newest element that came from this origin.
fn newest_entry_id<'a>(history: &'a [HistoryEntry], origin: &str) -> Option<&'a str> {
    let came = |entry: &&HistoryEntry| raw_item(entry).is_some_and(|raw| raw.origin == origin);
    history.iter().rfind(came).and_then(entry_id)
}

/// The history in which nothing up to the element `mark` goes back as it came: the items are still from there, but empty.
/// Words, calls and results stay. Where the mark is not in the history, this is another branch of it, and nobody knows.
fn strip_up_to(history: &Arc<[HistoryEntry]>, origin: &str, mark: &str, what: RefusalScope) -> Arc<[HistoryEntry]> {
    let Some(last) = history.iter().rposition(|entry| entry_id(entry) == Some(mark)) else {
        return Arc::clone(history);
    };
    let mut entries = history.to_vec();
    for entry in entries.iter_mut().take(last + 1) {
        let refused = what == RefusalScope::AllItems || matches!(entry, HistoryEntry::Reasoning { .. });
        if let Some(raw) = raw_item_mut(entry).filter(|raw| refused && raw.origin == origin) {
            strip_raw_item(&mut raw.item);
        }
    }
    entries.into()
}

fn strip_raw_item(item: &mut Value) {
    match item {
        Value::Object(fields) => fields.retain(|name, _| KEPT_FIELDS.contains(&name.as_str())),
        other => *other = Value::Null,
    }
}

/// What an element is called by.
fn entry_id(entry: &HistoryEntry) -> Option<&str> {
    match entry {
        HistoryEntry::Reasoning { id, .. } | HistoryEntry::Assistant { id, .. } | HistoryEntry::Hosted { id, .. } => {
            Some(id.as_str())
        }
        HistoryEntry::Call { call_id, .. } => Some(call_id.as_str()),
        HistoryEntry::Summary { .. }
        | HistoryEntry::System { .. }
        | HistoryEntry::User { .. }
        | HistoryEntry::GeneratedImages { .. }
        | HistoryEntry::Result { .. } => None,
    }
}

const fn raw_item(entry: &HistoryEntry) -> Option<&RawItem> {
    match entry {
        HistoryEntry::Reasoning { raw, .. } | HistoryEntry::Hosted { raw, .. } => Some(raw),
        HistoryEntry::Assistant { raw, .. } | HistoryEntry::Call { raw, .. } => raw.as_ref(),
        HistoryEntry::Summary { .. }
        | HistoryEntry::System { .. }
        | HistoryEntry::User { .. }
        | HistoryEntry::GeneratedImages { .. }
        | HistoryEntry::Result { .. } => None,
    }
}

const fn raw_item_mut(entry: &mut HistoryEntry) -> Option<&mut RawItem> {
    match entry {
        HistoryEntry::Reasoning { raw, .. } | HistoryEntry::Hosted { raw, .. } => Some(raw),
        HistoryEntry::Assistant { raw, .. } | HistoryEntry::Call { raw, .. } => raw.as_mut(),
        HistoryEntry::Summary { .. }
        | HistoryEntry::System { .. }
        | HistoryEntry::User { .. }
        | HistoryEntry::GeneratedImages { .. }
        | HistoryEntry::Result { .. } => None,
    }
}

#[cfg(test)]
#[path = "refused_tests.rs"]
mod tests;
