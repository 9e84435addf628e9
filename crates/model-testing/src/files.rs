//! Files that users point at: they are read before the next turn begins.

use super::item::Open;
use super::task::{Phase, Task};
use super::text::prose;
use super::world::World;
use model::block::{ContentPart, FileRef};
use model::event::{Event, FileProcessingUpdated, InputMessage};
use model::item::{FileProcessing, FileStatus, Item, ItemStatus, ProcessedFile};
use model::record::PrivatePayload;
use std::collections::VecDeque;

/// A file that was lost so often is not read again.
const LOST_MAX: usize = 3;

/// The files that a task was pointed at.
#[derive(Default)]
pub(super) struct Files {
    /// Those that nobody began to read.
    unread: Vec<String>,
    /// Those that somebody did.
    listed: Vec<String>,
    /// Those that are being read, and how often that began.
    reading: Vec<(String, usize)>,
}

/// A few files, some of them twice, and one that need not be read.
pub(super) fn some(world: &mut World) -> Vec<ContentPart> {
    let file = |url: String| ContentPart::File { file: FileRef { url: Some(url), ..FileRef::default() } };
    let count = world.rng.between(1, 3);
    let mut parts: Vec<ContentPart> =
        (0..count).map(|_| file(format!("https://example.org/{}.pdf", world.rng.between(1, 6)))).collect();
    if world.rng.chance(30) {
        parts.push(file(format!("/v1/blobs/{:064x}", world.rng.bits())));
    }
    parts
}

impl Files {
    pub(super) fn named_in(input: &[InputMessage]) -> Self {
        let mut files = Self::default();
        files.hear(input);
        files
    }

    /// Something more was said.
    pub(super) fn hear(&mut self, input: &[InputMessage]) {
        for part in input.iter().flat_map(|message| &message.content) {
            if let ContentPart::File { file } = part
                && let Some(url) = file.url.as_ref().filter(|url| url.starts_with("https:"))
                && !self.unread.contains(url)
                && !self.listed.contains(url)
            {
                self.unread.push(url.clone());
            }
        }
    }

    pub(super) const fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }
}

impl Task {
    /// All files that nobody began to read are read, side by side.
    pub(super) fn read_files(&mut self, world: &mut World) {
        self.phase = Phase::Reading;
        let urls = std::mem::take(&mut self.files.unread);
        self.files.listed.extend(urls.iter().cloned());
        let of = |url: &String| ProcessedFile { url: url.clone(), status: FileStatus::Processing, message: None };
        let files = urls.iter().map(of).collect();
        self.files.reading = urls.into_iter().map(|url| (url, 1)).collect();
        let (id, status, agent) = (world.next_id("fp"), Some(ItemStatus::InProgress), Some(self.agent.clone()));
        let item = Item::FileProcessing(FileProcessing { id, files, status, reason: None, agent });
        let index = self.next_output();
        self.open = vec![Open::begin(world, &self.id, index, item, VecDeque::new(), None)];
    }

    /// One file is read, or cannot be. After the last one the turn begins.
    pub(super) fn read(&mut self, world: &mut World) {
        let place = world.rng.below(self.files.reading.len());
        let (url, _) = self.files.reading.remove(place);
        let status = world.rng.choose(FileStatus::Completed, &[FileStatus::Completed, FileStatus::Failed]);
        let message = world.rng.chance(50).then(|| prose(&mut world.rng, 0, 4));
        let read = status == FileStatus::Completed;
        let content = read.then(|| vec![ContentPart::text(format!("# {url}\n{}", prose(&mut world.rng, 0, 12)))]);
        self.updated(world, ProcessedFile { url, status, message }, content);
        self.begin_turn_when_read(world);
    }

    /// The process died: whatever was being read is read again, but not for ever.
    pub(super) fn read_again(&mut self, world: &mut World) {
        for (url, tries) in std::mem::take(&mut self.files.reading) {
            let again = tries < LOST_MAX;
            let status = if again { FileStatus::Processing } else { FileStatus::Failed };
            let message = (!again).then(|| "It was lost too often.".to_owned());
            if again {
                self.files.reading.push((url.clone(), tries.saturating_add(1)));
            }
            self.updated(world, ProcessedFile { url, status, message }, None);
        }
        self.begin_turn_when_read(world);
    }

    fn begin_turn_when_read(&mut self, world: &mut World) {
        if self.files.reading.is_empty() {
            for open in std::mem::take(&mut self.open) {
                open.close(world, &self.id);
            }
            self.begin_turn(world);
        }
    }

    fn updated(&mut self, world: &mut World, now: ProcessedFile, content: Option<Vec<ContentPart>>) {
        let Some(open) = self.open.first_mut() else { return };
        let ProcessedFile { url, status, message } = now.clone();
        let event = FileProcessingUpdated { task_id: self.id.clone(), output_index: open.index, url, status, message };
        if let Item::FileProcessing(item) = &mut open.item
            && let Some(file) = item.files.iter_mut().find(|file| file.url == now.url)
        {
            *file = now;
        }
        let private = content.map(|content| PrivatePayload { content: Some(content), ..PrivatePayload::default() });
        world.emit_with(Event::FileProcessingUpdated(event), private);
    }
}
