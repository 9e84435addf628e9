//! Files that are read before the model is asked: how far each is, and what the model reads in its place.

use super::task::{ItemFold, TaskFold};
use crate::block::Part;
use crate::history::Entry;
use crate::item::{FileProcessing, FileStatus, Item, ProcessedFile};

/// A task has so many files read. Of those beyond it the model is told that they were not.
pub const FILES_MAX: usize = 32;

/// What only the server knows of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileFold {
    /// How often somebody began to read it.
    pub tries: u32,
    /// What the model reads of it, once it was read.
    pub content: Option<Vec<Part>>,
}

impl TaskFold {
    /// The item whose files are being read, and its place in the output.
    #[must_use]
    pub fn reading(&self) -> Option<(usize, &ItemFold, &FileProcessing)> {
        let open = self.items.iter().enumerate().filter(|(_, fold)| !fold.closed);
        open.filter_map(|(place, fold)| Some((place, fold, processing(fold)?))).next()
    }

    /// The addresses in what was said that are to be read and that nobody began to read, each once. What is said now goes
    /// before what a client or a hook tells of the past, and of that the newest counts: there may be more than are read.
    #[must_use]
    pub fn unread_files(&self) -> Vec<&str> {
        let later = self.inputs.iter().map(|input| &input.message);
        let now = self.spec.input.iter().chain(later).flat_map(|message| &message.content);
        let before = self.before.iter().flat_map(|before| &before.entries);
        let past: Vec<&Part> = self.history.iter().flatten().chain(before).flat_map(said_by_user).collect();
        let left = FILES_MAX.saturating_sub(self.files_listed());
        let mut unread: Vec<&str> = Vec::new();
        self.note_unread(now, left, &mut unread);
        let said_now = unread.len();
        self.note_unread(past.into_iter().rev(), left, &mut unread);
        if let Some(past) = unread.get_mut(said_now..) {
            past.reverse();
        }
        unread
    }

    fn note_unread<'a>(&self, said: impl Iterator<Item = &'a Part>, most: usize, unread: &mut Vec<&'a str>) {
        for url in said.filter_map(web) {
            if unread.len() == most {
                break;
            }
            if self.file(url).is_none() && !unread.contains(&url) {
                unread.push(url);
            }
        }
    }

    /// What a user said, as the model reads it: in place of each file that was read stands what is in it, wherever it was
    /// named; in place of one that was not stands a note. A file that may yet be read stays as it is.
    #[must_use]
    pub fn as_read(&self, content: &[Part]) -> Vec<Part> {
        content.iter().flat_map(|part| self.read(part).unwrap_or_else(|| vec![part.clone()])).collect()
    }

    /// The same of what was said before this task that no log has.
    #[must_use]
    pub fn past_as_read(&self, entries: &[Entry]) -> Vec<Entry> {
        let as_read = |entry: &Entry| match entry {
            Entry::User { content } => Entry::User { content: self.as_read(content) },
            other => other.clone(),
        };
        entries.iter().map(as_read).collect()
    }

    fn read(&self, part: &Part) -> Option<Vec<Part>> {
        let url = web(part)?;
        let why = match self.file(url) {
            Some((FileFold { content: Some(content), .. }, _)) => return Some(content.clone()),
            Some((_, file)) if file.status != FileStatus::Processing => {
                file.message.as_deref().unwrap_or("There is nothing in it to read.")
            }
            _ if self.status.is_terminal() => "The run ended before that.",
            None if self.files_listed() >= FILES_MAX => "There were too many files.",
            _ => return None,
        };
        Some(vec![Part::text(format!("[The file {url} could not be read: {why}]"))])
    }

    fn file(&self, url: &str) -> Option<(&FileFold, &ProcessedFile)> {
        let listed = self.items.iter().filter_map(|fold| Some((fold, processing(fold)?)));
        let mut found = listed
            .filter_map(|(fold, item)| Some((fold.files.get(url)?, item.files.iter().find(|file| file.url == url)?)));
        found.next()
    }

    fn files_listed(&self) -> usize {
        self.items.iter().map(|fold| fold.files.len()).sum()
    }
}

const fn processing(fold: &ItemFold) -> Option<&FileProcessing> {
    match &fold.item {
        Item::FileProcessing(item) => Some(item),
        _ => None,
    }
}

/// What a person said, whose files are read. What tools gave is given as it is.
fn said_by_user(entry: &Entry) -> &[Part] {
    match entry {
        Entry::User { content } => content,
        _ => &[],
    }
}

/// Where on the web a part points to.
fn web(part: &Part) -> Option<&str> {
    match part {
        Part::File { file } => file.web(),
        Part::Text { .. } | Part::ImageUrl { .. } => None,
    }
}
