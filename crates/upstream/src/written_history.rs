//! The history of a request as text: what the thread's last request has written of it, and the rest.
//!
//! Most of what a dialect writes depends on a few entries. What depends on more decides where a text may end and another one
//! begin ([`is_turn_start`], [`is_self_contained`]), and that two texts have no call in common: an id that repeats is
//! replaced wherever it stands. Then the two texts together are the text of all entries.

use crate::content_parts::is_blank_part;
use crate::generated_image::generated_image;
use crate::request_list::{ListText, write_body};
use model::history::{HistoryEntry, HistoryText, SharedHistory};
use model::json::JsonObject;
use model::limits::HISTORY_TEXT_BYTES_MAX;
use std::collections::HashSet;
use std::sync::Arc;

/// Consecutive entries of a history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HistorySegment<'a> {
    pub(crate) entries: &'a [Arc<HistoryEntry>],
    /// The history begins with it.
    pub(crate) is_first: bool,
    /// The history ends with it.
    pub(crate) is_last: bool,
}

impl<'a> HistorySegment<'a> {
    pub(crate) const fn whole(entries: &'a [Arc<HistoryEntry>]) -> Self {
        Self { entries, is_first: true, is_last: true }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &'a HistoryEntry> {
        self.entries.iter().map(AsRef::as_ref)
    }
}

/// How a dialect writes a history.
pub(crate) trait SegmentWriter {
    /// The provider and model. Their own items need no others.
    fn origin(&self) -> &str;

    /// Names what the text of an entry depends on besides the entry.
    fn format(&self) -> String;

    /// Writes a segment, and returns the ids that its calls have in the text.
    fn write_segment(&self, segment: HistorySegment<'_>, out: &mut ListText) -> Vec<String>;
}

/// The history of a request.
pub(crate) struct WrittenHistory {
    past: HistoryText,
    rest: ListText,
}

impl WrittenHistory {
    /// The number of entries that are not written here, but by earlier requests or for later ones.
    pub(crate) const fn past_count(&self) -> usize {
        self.past.entry_count()
    }

    /// The body of a request that has the history as a member, after the elements of `head`.
    pub(crate) fn write_body(&self, name: &str, head: &ListText, fields: &JsonObject) -> Vec<u8> {
        write_body(name, &[head.elements(), self.past.elements(), self.rest.elements()], fields)
    }

    /// Keeps what the next turn of the thread has to write, too.
    pub(crate) fn keep_past(self, history: &SharedHistory) {
        keep_text(self.past, history);
    }
}

/// Writes a history.
pub(crate) fn write_history(history: &SharedHistory, writer: &impl SegmentWriter) -> WrittenHistory {
    let mut past = take_past(history, writer);
    extend_past(&mut past, history, writer);
    let entries = history.entries().get(past.entry_count()..).unwrap_or_default();
    let (mut rest, is_first) = (ListText::default(), past.entry_count() == 0);
    let ids = writer.write_segment(HistorySegment { entries, is_first, is_last: true }, &mut rest);
    if !is_first && call_ids(entries, ids).iter().any(|id| past.has_call_id(id)) {
        (past, rest) = (HistoryText::default(), ListText::default());
        writer.write_segment(HistorySegment::whole(history.entries()), &mut rest);
    }
    WrittenHistory { past, rest }
}

/// The entries that a request has to write because the last one of the thread did not.
pub(crate) fn unwritten_entries<'a>(
    history: &'a SharedHistory,
    writer: &impl SegmentWriter,
) -> &'a [Arc<HistoryEntry>] {
    let past = take_past(history, writer);
    let entries = history.entries().get(past.entry_count()..).unwrap_or_default();
    keep_text(past, history);
    entries
}

fn keep_text(past: HistoryText, history: &SharedHistory) {
    if let Some(cache) = history.cache().filter(|_| past.entry_count() > 0) {
        cache.put_text(past);
    }
}

/// The text that the last request of the thread has left.
fn take_past(history: &SharedHistory, writer: &impl SegmentWriter) -> HistoryText {
    let format = writer.format();
    let past = history.cache().and_then(|cache| cache.take_text(&format, history.entries()));
    past.filter(|past| is_turn_start(history.entries(), past.entry_count())).unwrap_or_else(|| HistoryText::new(format))
}

/// Adds the turns that the thread will repeat in its next request.
fn extend_past(past: &mut HistoryText, history: &SharedHistory, writer: &impl SegmentWriter) {
    let written = past.entry_count();
    let last = (written + 1..=history.past_count()).rev().find(|end| is_turn_start(history.entries(), *end));
    let Some(entries) = last.and_then(|end| history.entries().get(written..end)) else { return };
    if past.elements().len() > HISTORY_TEXT_BYTES_MAX / 2 || !is_self_contained(entries, writer.origin()) {
        return;
    }
    let mut elements = ListText::default();
    let ids = writer.write_segment(HistorySegment { entries, is_first: written == 0, is_last: false }, &mut elements);
    let ids = call_ids(entries, ids);
    if ids.iter().any(|id| past.has_call_id(id)) {
        *past = HistoryText::new(writer.format());
        return extend_past(past, history, writer);
    }
    past.append(entries, elements.elements(), ids);
}

/// Whether the user begins here after the assistant has finished: their messages are never joined.
fn is_turn_start(entries: &[Arc<HistoryEntry>], index: usize) -> bool {
    let before = index.checked_sub(1).and_then(|before| entries.get(before)).map(AsRef::as_ref);
    let has_text = matches!(before, Some(HistoryEntry::Assistant { text, .. }) if !text.trim().is_empty());
    let is_user = |entry: &Arc<HistoryEntry>| matches!(&**entry, HistoryEntry::User { content } if !content.iter().all(is_blank_part));
    has_text && entries.get(index).is_some_and(is_user)
}

/// Whether nothing of a segment has its place in a later one, or in the instructions before the first.
fn is_self_contained(entries: &[Arc<HistoryEntry>], origin: &str) -> bool {
    let results = entries.iter().filter_map(|entry| match &**entry {
        HistoryEntry::Result { call_id, .. } => Some(call_id),
        _ => None,
    });
    let results: HashSet<_> = results.collect();
    let (mut has_images, mut has_open_calls) = (false, false);
    for entry in entries {
        match &**entry {
            HistoryEntry::System { .. } => return false,
            // Images follow in the next message of the user.
            HistoryEntry::User { .. } => (has_images, has_open_calls) = (false, false),
            HistoryEntry::GeneratedImages { .. } => has_images = true,
            HistoryEntry::Hosted { raw, .. } => {
                has_images |= raw.origin != origin && generated_image(&raw.item).is_some();
            }
            HistoryEntry::Call { call_id, .. } if !results.contains(call_id) => return false,
            HistoryEntry::Call { .. } => has_open_calls = true,
            HistoryEntry::Summary { .. } | HistoryEntry::Result { .. } => has_open_calls = false,
            HistoryEntry::Reasoning { .. } | HistoryEntry::Assistant { .. } => {}
        }
    }
    !has_images && !has_open_calls
}

/// All names of the calls in a segment, with the ids that it has in the text.
fn call_ids(entries: &[Arc<HistoryEntry>], ids: Vec<String>) -> HashSet<String> {
    let mut ids = HashSet::from_iter(ids);
    for entry in entries {
        match &**entry {
            HistoryEntry::Call { call_id, provider_call_id, .. } => {
                ids.insert(call_id.to_string());
                ids.extend(provider_call_id.clone());
            }
            HistoryEntry::Result { call_id, .. } => drop(ids.insert(call_id.to_string())),
            _ => {}
        }
    }
    ids
}
