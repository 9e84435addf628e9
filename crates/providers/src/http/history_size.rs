//! Whether a history is long enough to be written beside the async workers.

use model::content::ContentPart;
use model::history::HistoryEntry;
use std::sync::Arc;

/// A history of more entries or text is long; so is one with images, files, or items whose size only their JSON tells.
const SHORT_HISTORY_ENTRIES: usize = 32;
const SHORT_HISTORY_BYTES: usize = 32 * 1024;

pub(super) fn is_long_history(history: &[Arc<HistoryEntry>]) -> bool {
    if history.len() > SHORT_HISTORY_ENTRIES {
        return true;
    }
    let bytes = history.iter().try_fold(0_usize, |sum, entry| Some(sum.saturating_add(text_bytes(entry)?)));
    bytes.is_none_or(|bytes| bytes > SHORT_HISTORY_BYTES)
}

/// `None` when it cannot be told quickly.
fn text_bytes(entry: &HistoryEntry) -> Option<usize> {
    match entry {
        HistoryEntry::Summary { text } | HistoryEntry::System { text } | HistoryEntry::Assistant { text, .. } => {
            Some(text.len())
        }
        HistoryEntry::Call { arguments, .. } => Some(arguments.len()),
        HistoryEntry::User { content } | HistoryEntry::Result { content, .. } => {
            content.iter().try_fold(0_usize, |sum, part| match part {
                ContentPart::Text { text, .. } => Some(sum.saturating_add(text.len())),
                ContentPart::ImageUrl { .. } | ContentPart::File { .. } => None,
            })
        }
        HistoryEntry::Reasoning { .. } | HistoryEntry::GeneratedImages { .. } | HistoryEntry::Hosted { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(parts: Vec<ContentPart>) -> Arc<HistoryEntry> {
        Arc::new(HistoryEntry::User { content: parts })
    }

    #[test]
    fn a_history_is_long_by_its_entries_its_text_or_an_image() {
        let hello = || user(vec![ContentPart::text("hello")]);
        assert!(!is_long_history(&[]));
        assert!(!is_long_history(&vec![hello(); SHORT_HISTORY_ENTRIES]));
        assert!(is_long_history(&vec![hello(); SHORT_HISTORY_ENTRIES + 1]));
        let half = || ContentPart::text("x".repeat(SHORT_HISTORY_BYTES / 2));
        assert!(!is_long_history(&[user(vec![half()]), user(vec![half()])]));
        assert!(is_long_history(&[user(vec![half(), half()]), hello()]));
        assert!(is_long_history(&[user(vec![ContentPart::image("data:image/png;base64,AA==")])]));
    }
}
