//! What services did not take back, remembered, so that the next turns of a thread need no refusal to find it out again.
//!
//! A refusal does not say which of its words a service can no longer read, so all that were in the request count as
//! unreadable. What the service says afterwards is new, and goes back whole. This is kept in memory alone: a process that
//! restarts is refused once more, and knows again.

use model::ThreadId;
use model::history::HistoryEntry;
use model::record::RawItem;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Of so many threads it is remembered; which was not asked about for longest is forgotten first.
const REMEMBERED_MAX: usize = 4096;
/// What is left of a refused item: how its call was named and what kind of message it was. Without its type no service is
/// given it as it came.
const LEFT: [&str; 2] = ["id", "phase"];

/// How much of what a service said it may refuse to take back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusable {
    /// Its thoughts alone.
    Thoughts,
    /// Every item: it looks each up by its id, or a thought may be in any.
    Items,
}

/// What the services did not take back.
#[derive(Debug, Default)]
pub(super) struct Refused(Mutex<Marks>);

impl Refused {
    /// A request with this history was refused.
    pub(super) fn remember(&self, thread: &ThreadId, origin: &str, history: &[HistoryEntry]) {
        if let Some(newest) = newest(history, origin) {
            self.marks().set((thread.clone(), origin.to_owned()), newest.to_owned());
        }
    }

    /// The history as the service will take it. Without a refusal that is the history itself.
    pub(super) fn readable(
        &self,
        thread: &ThreadId,
        origin: &str,
        history: &Arc<[HistoryEntry]>,
        what: Refusable,
    ) -> Arc<[HistoryEntry]> {
        let mark = self.marks().get(&(thread.clone(), origin.to_owned()));
        mark.map_or_else(|| Arc::clone(history), |mark| emptied(history, origin, &mark, what))
    }

    fn marks(&self) -> MutexGuard<'_, Marks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread, and where its items are from.
type Place = (ThreadId, String);

/// The newest refused element of each place.
#[derive(Debug, Default)]
struct Marks {
    marks: HashMap<Place, Mark>,
    /// Counts what is asked and told: a clock without time.
    now: u64,
}

#[derive(Debug)]
struct Mark {
    element: String,
    used: u64,
}

impl Marks {
    fn get(&mut self, place: &Place) -> Option<String> {
        self.now += 1;
        let mark = self.marks.get_mut(place)?;
        mark.used = self.now;
        Some(mark.element.clone())
    }

    fn set(&mut self, place: Place, element: String) {
        self.now += 1;
        self.marks.insert(place, Mark { element, used: self.now });
        // Refusals are rare and dear: looking through all of them then costs nothing beside it.
        if self.marks.len() > REMEMBERED_MAX
            && let Some(oldest) = self.marks.iter().min_by_key(|(_, mark)| mark.used).map(|(place, _)| place.clone())
        {
            self.marks.remove(&oldest);
        }
    }
}

/// The newest element that came from this origin.
fn newest<'a>(history: &'a [HistoryEntry], origin: &str) -> Option<&'a str> {
    let came = |entry: &&HistoryEntry| raw(entry).is_some_and(|raw| raw.origin == origin);
    history.iter().rfind(came).and_then(name)
}

/// The history in which nothing up to the element `mark` goes back as it came: the items are still from there, but empty.
/// Words, calls and results stay. Where the mark is not in the history, this is another branch of it, and nobody knows.
fn emptied(history: &Arc<[HistoryEntry]>, origin: &str, mark: &str, what: Refusable) -> Arc<[HistoryEntry]> {
    let Some(last) = history.iter().rposition(|entry| name(entry) == Some(mark)) else { return Arc::clone(history) };
    let mut entries = history.to_vec();
    for entry in entries.iter_mut().take(last + 1) {
        let refused = what == Refusable::Items || matches!(entry, HistoryEntry::Reasoning { .. });
        if let Some(raw) = raw_mut(entry).filter(|raw| refused && raw.origin == origin) {
            empty(&mut raw.item);
        }
    }
    entries.into()
}

fn empty(item: &mut Value) {
    match item {
        Value::Object(fields) => fields.retain(|name, _| LEFT.contains(&name.as_str())),
        other => *other = Value::Null,
    }
}

/// What an element is called by.
fn name(entry: &HistoryEntry) -> Option<&str> {
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

const fn raw(entry: &HistoryEntry) -> Option<&RawItem> {
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

const fn raw_mut(entry: &mut HistoryEntry) -> Option<&mut RawItem> {
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
