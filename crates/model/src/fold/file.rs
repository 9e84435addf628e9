//! Files that are read before the model is called: their progress, and the content that replaces them.

use super::task::{ItemFold, TaskFold};
use crate::content::ContentPart;
use crate::history::HistoryEntry;
use crate::item::{FileProcessing, FileStatus, Item, ProcessedFile};
use crate::limits::TASK_FILES_MAX;

/// The server's private state of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileFold {
    /// Number of attempts to read it.
    pub attempts: u32,
    /// What the model reads, once the file was read.
    pub content: Option<Vec<ContentPart>>,
}

impl TaskFold {
    /// The item whose files are being read, and its index in the output.
    pub fn open_file_processing(&self) -> Option<(usize, &ItemFold, &FileProcessing)> {
        let open = self.items.iter().enumerate().filter(|(_, fold)| !fold.done);
        open.filter_map(|(index, fold)| Some((index, fold, as_file_processing(fold)?))).next()
    }

    /// The URLs of files in the input that nobody has started to read, without duplicates. The current input comes
    /// before the history of a client or a hook, of which the newest files count: there may be more than
    /// `TASK_FILES_MAX`.
    pub fn unread_files(&self) -> Vec<&str> {
        let later = self.inputs.iter().map(|input| &input.message);
        let current = self.spec.input.iter().chain(later).flat_map(|message| &message.content);
        let before = self.prior_history.iter().flat_map(|before| &before.entries);
        let past: Vec<&ContentPart> =
            self.rewritten_history.iter().flatten().chain(before).flat_map(user_content).collect();
        let left = TASK_FILES_MAX.saturating_sub(self.file_count());
        let mut unread: Vec<&str> = Vec::new();
        self.collect_unread(current, left, &mut unread);
        let current_count = unread.len();
        self.collect_unread(past.into_iter().rev(), left, &mut unread);
        if let Some(past) = unread.get_mut(current_count..) {
            past.reverse();
        }
        unread
    }

    fn collect_unread<'a>(
        &self,
        parts: impl Iterator<Item = &'a ContentPart>,
        files_max: usize,
        unread: &mut Vec<&'a str>,
    ) {
        for url in parts.filter_map(part_web_url) {
            if unread.len() == files_max {
                break;
            }
            if self.find_file(url).is_none() && !unread.contains(&url) {
                unread.push(url);
            }
        }
    }

    /// The content as the model reads it: each file that was read is replaced by its content, each file that could not
    /// be read by a note. A file that may still be read stays.
    #[must_use]
    pub fn with_file_contents(&self, content: &[ContentPart]) -> Vec<ContentPart> {
        content.iter().flat_map(|part| self.file_replacement(part).unwrap_or_else(|| vec![part.clone()])).collect()
    }

    /// The same for the prior history.
    #[must_use]
    pub fn entries_with_file_contents(&self, entries: &[HistoryEntry]) -> Vec<HistoryEntry> {
        let as_read = |entry: &HistoryEntry| match entry {
            HistoryEntry::User { content } => HistoryEntry::User { content: self.with_file_contents(content) },
            other => other.clone(),
        };
        entries.iter().map(as_read).collect()
    }

    fn file_replacement(&self, part: &ContentPart) -> Option<Vec<ContentPart>> {
        let url = part_web_url(part)?;
        let why = match self.find_file(url) {
            Some((FileFold { content: Some(content), .. }, _)) => return Some(content.clone()),
            Some((_, file)) if file.status != FileStatus::Processing => {
                file.message.as_deref().unwrap_or("There is nothing in it to read.")
            }
            _ if self.status.is_terminal() => "The run ended before that.",
            None if self.file_count() >= TASK_FILES_MAX => "There were too many files.",
            _ => return None,
        };
        Some(vec![ContentPart::text(format!("[The file {url} could not be read: {why}]"))])
    }

    fn find_file(&self, url: &str) -> Option<(&FileFold, &ProcessedFile)> {
        let listed = self.items.iter().filter_map(|fold| Some((fold, as_file_processing(fold)?)));
        let mut found = listed
            .filter_map(|(fold, item)| Some((fold.files.get(url)?, item.files.iter().find(|file| file.url == url)?)));
        found.next()
    }

    fn file_count(&self) -> usize {
        self.items.iter().map(|fold| fold.files.len()).sum()
    }
}

const fn as_file_processing(fold: &ItemFold) -> Option<&FileProcessing> {
    match &fold.item {
        Item::FileProcessing(item) => Some(item),
        _ => None,
    }
}

/// The content whose files are read. Tool results are passed on unchanged.
fn user_content(entry: &HistoryEntry) -> &[ContentPart] {
    match entry {
        HistoryEntry::User { content } => content,
        _ => &[],
    }
}

fn part_web_url(part: &ContentPart) -> Option<&str> {
    match part {
        ContentPart::File { file } => file.web_url(),
        ContentPart::Text { .. } | ContentPart::ImageUrl { .. } => None,
    }
}
