//! What a thread keeps of its conversation between turns: the list of the first entries, and the text that they have in the
//! requests to a provider. So a turn lists and writes what is new, and copies the rest.
//!
//! A cache: without it every request is the same. Entries never change once they are shared, so they are compared by their
//! addresses; the text keeps its entries, so that no other entry can get the address of one of them.

use crate::history::HistoryEntry;
use crate::limits::HISTORY_TEXT_BYTES_MAX;
use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What an entry and its id take beside their text.
const ENTRY_BYTES: usize = 16;
const CALL_ID_BYTES: usize = 96;
/// A text that grows gets room for a further eighth.
const GROWTH_SHARE: usize = 8;

/// The text of the first entries of a history.
#[derive(Debug, Default)]
pub struct HistoryText {
    format: String,
    entries: Vec<Arc<HistoryEntry>>,
    elements: Vec<u8>,
    call_ids: HashSet<String>,
}

impl HistoryText {
    /// The text of no entries. `format` names what the text of an entry depends on besides the entry.
    pub fn new(format: String) -> Self {
        Self { format, ..Self::default() }
    }

    /// The number of entries that it is the text of.
    pub const fn entry_count(&self) -> usize {
        self.entries.len()
    }

    /// The elements of a JSON array, separated by commas.
    pub fn elements(&self) -> &[u8] {
        &self.elements
    }

    /// Whether a call or a result among the entries has this id, in the history or in the text.
    pub fn has_call_id(&self, id: &str) -> bool {
        self.call_ids.contains(id)
    }

    /// Whether a history begins with its entries.
    fn is_prefix_of(&self, history: &[Arc<HistoryEntry>]) -> bool {
        let same = |(ours, theirs): (&Arc<HistoryEntry>, &Arc<HistoryEntry>)| {
            // A summary is made anew for each turn.
            Arc::ptr_eq(ours, theirs) || (matches!(**ours, HistoryEntry::Summary { .. }) && ours == theirs)
        };
        self.entries.len() <= history.len() && self.entries.iter().zip(history).all(same)
    }

    /// Adds the next entries.
    pub fn append(&mut self, entries: &[Arc<HistoryEntry>], elements: &[u8], call_ids: HashSet<String>) {
        let length = self.elements.len() + 1 + elements.len();
        if length > self.elements.capacity() {
            // Twice as much, as a vector grows by itself, would be wasted on most threads.
            self.elements.reserve_exact(elements.len() + 1 + self.elements.len() / GROWTH_SHARE);
        }
        if !self.elements.is_empty() && !elements.is_empty() {
            self.elements.push(b',');
        }
        self.elements.extend_from_slice(elements);
        self.entries.extend_from_slice(entries);
        self.call_ids.extend(call_ids);
    }

    /// About how much memory it takes, without the entries.
    fn size_bytes(&self) -> usize {
        self.elements.capacity() + self.entries.len() * ENTRY_BYTES + self.call_ids.len() * CALL_ID_BYTES
    }
}

/// What a thread keeps for its next turn. Clones share it.
#[derive(Clone, Default)]
pub struct HistoryCache(Arc<Mutex<KeptHistory>>);

#[derive(Default)]
struct KeptHistory {
    text: Option<HistoryText>,
    entries: Vec<Arc<HistoryEntry>>,
}

impl HistoryCache {
    /// Takes the text out, if it is of this format and the history begins with its entries.
    pub fn take_text(&self, format: &str, history: &[Arc<HistoryEntry>]) -> Option<HistoryText> {
        // Outside of the lock: a history may be long.
        let text = self.lock().text.take()?;
        (text.format == format && text.is_prefix_of(history)).then_some(text)
    }

    /// Keeps a text for the next turn, unless it is too long.
    pub fn put_text(&self, text: HistoryText) {
        if text.size_bytes() <= HISTORY_TEXT_BYTES_MAX {
            self.lock().text = Some(text);
        }
    }

    /// Takes the list of entries out: with those of the last turn, or empty.
    pub fn take_entries(&self) -> Vec<Arc<HistoryEntry>> {
        std::mem::take(&mut self.lock().entries)
    }

    /// Keeps the longer list for the next turn: a turn with files has a second one, the thread's own only up to the first file.
    pub(super) fn put_entries(&self, mut entries: Vec<Arc<HistoryEntry>>) {
        let mut kept = self.lock();
        if entries.len() > kept.entries.len() {
            std::mem::swap(&mut kept.entries, &mut entries);
        }
        // The other one is dropped outside of the lock: it may be long, too.
        drop(kept);
    }

    /// About how much memory it takes, without the entries, which the thread has anyway.
    pub fn size_bytes(&self) -> usize {
        let kept = self.lock();
        kept.text.as_ref().map_or(0, HistoryText::size_bytes) + kept.entries.capacity() * ENTRY_BYTES
    }

    fn lock(&self) -> MutexGuard<'_, KeptHistory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A text may be long, and is private.
impl fmt::Debug for HistoryCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HistoryCache").finish_non_exhaustive()
    }
}

/// A cache is no part of a state.
impl PartialEq for HistoryCache {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::ContentPart;

    fn user(text: &str) -> Arc<HistoryEntry> {
        Arc::new(HistoryEntry::User { content: vec![ContentPart::text(text)] })
    }

    fn summary(text: &str) -> Arc<HistoryEntry> {
        Arc::new(HistoryEntry::Summary { text: text.to_owned() })
    }

    fn text_of(entries: &[Arc<HistoryEntry>], elements: &[u8]) -> HistoryText {
        let mut text = HistoryText::new("f".to_owned());
        text.append(entries, elements, HashSet::from(["call_1".to_owned()]));
        text
    }

    #[test]
    fn a_text_is_found_once_and_only_for_a_history_that_begins_with_its_entries() {
        let (cache, first, second) = (HistoryCache::default(), user("a"), user("b"));
        let kept = [summary("s"), Arc::clone(&first)];
        let long = [summary("s"), Arc::clone(&first), second];
        for (format, history, is_found) in [
            ("f", &long[..], true),
            ("f", &kept[..], true),
            ("g", &long[..], false),
            ("f", &kept[..1], false),
            ("f", &[summary("s"), user("a")][..], false),
            ("f", &[summary("t"), first][..], false),
        ] {
            cache.put_text(text_of(&kept, b"1,2"));
            assert_eq!(cache.take_text(format, history).is_some(), is_found, "{format} {history:?}");
            assert!(cache.take_text("f", &long).is_none(), "it is gone either way");
        }
    }

    #[test]
    fn a_text_grows_by_elements_and_ids() {
        let mut text = text_of(&[user("a")], b"1");
        text.append(&[user("b")], b"", HashSet::new());
        text.append(&[user("c")], b"2,3", HashSet::from(["call_2".to_owned()]));
        assert_eq!((text.entry_count(), text.elements()), (3, &b"1,2,3"[..]));
        assert!(text.has_call_id("call_1") && text.has_call_id("call_2") && !text.has_call_id("call_3"));
    }

    #[test]
    fn a_text_beyond_the_bound_is_not_kept() {
        let (cache, entry) = (HistoryCache::default(), user("a"));
        cache.put_text(text_of(&[Arc::clone(&entry)], &vec![b'1'; HISTORY_TEXT_BYTES_MAX - 1000]));
        assert!((HISTORY_TEXT_BYTES_MAX - 1000..=HISTORY_TEXT_BYTES_MAX).contains(&cache.size_bytes()));
        assert!(cache.take_text("f", &[Arc::clone(&entry)]).is_some());
        cache.put_text(text_of(&[Arc::clone(&entry)], &vec![b'1'; HISTORY_TEXT_BYTES_MAX]));
        assert!(cache.take_text("f", &[entry]).is_none());
        assert_eq!(cache.size_bytes(), 0);
    }
}
