//! The user's last message in a turn's history, by which scenarios and cassettes are selected.

use model::content::ContentPart;
use model::history::{HistoryEntry, SharedHistory};
use std::sync::Arc;

/// The user's last message and the entries after it.
pub(crate) struct LastUserMessage<'a> {
    pub(crate) text: String,
    pub(crate) has_image: bool,
    pub(crate) entries_since: &'a [Arc<HistoryEntry>],
}

/// An empty message before the whole history, if it has none of the user.
pub(crate) fn last_user_message(history: &SharedHistory) -> LastUserMessage<'_> {
    let last = history.iter().enumerate().rev().find_map(|(index, entry)| match entry {
        HistoryEntry::User { content } => Some((index, content)),
        _ => None,
    });
    let Some((index, content)) = last else {
        return LastUserMessage { text: String::new(), has_image: false, entries_since: history.entries() };
    };
    LastUserMessage {
        text: untagged_text(content),
        has_image: content.iter().any(|part| matches!(part, ContentPart::ImageUrl { .. })),
        entries_since: history.entries().get(index + 1..).unwrap_or_default(),
    }
}

/// Tags mark text that the server inserted.
pub(crate) fn untagged_text(content: &[ContentPart]) -> String {
    let texts = content.iter().filter_map(|part| match part {
        ContentPart::Text { text, tags, .. } if tags.is_empty() => Some(text.as_str()),
        ContentPart::Text { .. } | ContentPart::ImageUrl { .. } | ContentPart::File { .. } => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}
