//! Remembers which items services refused, so that later turns of a thread omit them from the start.
//!
//! A refusal does not say which items the service can no longer read, so all items of the request count as refused. Later
//! output of the service is accepted again. This is only in memory: after a restart, one more refusal restores it.

use crate::dialect::RefusalScope;
use model::ThreadId;
use model::history::{HistoryEntry, RawItem, SharedHistory};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The least recently used mark is evicted first.
const MARKS_MAX: usize = 4096;
/// What is left of a refused item: the id of its call and the phase of its message. Without its type, the item is never
/// sent back verbatim.
const KEPT_FIELDS: [&str; 2] = ["id", "phase"];
/// A request for approval keeps its type, without which it would become a call of a function. It is not sent back without
/// its name.
const APPROVAL_REQUEST_TYPE: &str = "mcp_approval_request";

#[derive(Debug, Default)]
pub(super) struct RefusedHistory(Mutex<RefusalMarks>);

impl RefusedHistory {
    /// Marks the newest item of a refused history.
    pub(super) fn record_refusal(&self, thread: &ThreadId, origin: &str, history: &SharedHistory) {
        if let Some(newest) = newest_entry_id(history, origin) {
            self.lock_marks().set((thread.clone(), origin.to_owned()), newest.to_owned());
        }
    }

    /// The history as the service accepts it. Without a refusal, that is the history itself.
    pub(super) fn strip_refused(
        &self,
        thread: &ThreadId,
        origin: &str,
        history: &SharedHistory,
        scope: RefusalScope,
    ) -> SharedHistory {
        let mark = self.lock_marks().get(&(thread.clone(), origin.to_owned()));
        mark.map_or_else(|| history.clone(), |mark| strip_up_to(history, origin, &mark, scope))
    }

    fn lock_marks(&self) -> MutexGuard<'_, RefusalMarks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread and the origin of the items.
type RefusalKey = (ThreadId, String);

#[derive(Debug, Default)]
struct RefusalMarks {
    marks: HashMap<RefusalKey, RefusalMark>,
    /// Logical time of the last use.
    tick: u64,
}

#[derive(Debug)]
struct RefusalMark {
    entry_id: String,
    last_used: u64,
}

impl RefusalMarks {
    fn get(&mut self, key: &RefusalKey) -> Option<String> {
        self.tick += 1;
        let mark = self.marks.get_mut(key)?;
        mark.last_used = self.tick;
        Some(mark.entry_id.clone())
    }

    fn set(&mut self, key: RefusalKey, entry_id: String) {
        self.tick += 1;
        self.marks.insert(key, RefusalMark { entry_id, last_used: self.tick });
        // Refusals are rare and slow, so a scan does not matter.
        if self.marks.len() > MARKS_MAX
            && let Some(oldest) = self.marks.iter().min_by_key(|(_, mark)| mark.last_used).map(|(key, _)| key.clone())
        {
            self.marks.remove(&oldest);
        }
    }
}

fn newest_entry_id<'a>(history: &'a SharedHistory, origin: &str) -> Option<&'a str> {
    let is_from_origin = |entry: &&HistoryEntry| raw_item(entry).is_some_and(|raw| raw.origin == origin);
    history.iter().rfind(is_from_origin).and_then(entry_id)
}

/// Empties the raw items up to the entry `mark`; text, calls and results stay. If the history does not have the mark, it is
/// another branch, for which nothing is known.
fn strip_up_to(history: &SharedHistory, origin: &str, mark: &str, scope: RefusalScope) -> SharedHistory {
    let Some(last) = history.iter().rposition(|entry| entry_id(entry) == Some(mark)) else {
        return history.clone();
    };
    let mut entries = history.entries().to_vec();
    for entry in entries.iter_mut().take(last + 1) {
        let is_refused = scope == RefusalScope::AllItems || matches!(**entry, HistoryEntry::Reasoning { .. });
        if is_refused
            && raw_item(entry).is_some_and(|raw| raw.origin == origin)
            && let Some(raw) = raw_item_mut(Arc::make_mut(entry))
        {
            strip_raw_item(&mut raw.item);
        }
    }
    entries.into()
}

fn strip_raw_item(item: &mut Value) {
    match item {
        Value::Object(fields) => {
            let is_question = fields.get("type").and_then(Value::as_str) == Some(APPROVAL_REQUEST_TYPE);
            fields.retain(|name, _| KEPT_FIELDS.contains(&name.as_str()) || (is_question && name == "type"));
        }
        other => *other = Value::Null,
    }
}

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
