//! Files that users point at: they are read before the next turn begins.

use super::item_writer::ItemWriter;
use super::log_builder::LogBuilder;
use super::task::{GenPhase, GenTask};
use super::text::random_text;
use model::content::{ContentPart, FileRef};
use model::event::{Event, FileProcessingUpdated, InputMessage};
use model::item::{FileProcessing, FileStatus, Item, ItemStatus, ProcessedFile};
use model::record::PrivatePayload;
use std::collections::VecDeque;

/// A file that was lost so often is not read again.
const READ_ATTEMPTS_MAX: usize = 3;

/// The files that a task was pointed at.
#[derive(Default)]
pub(super) struct InputFiles {
    /// Those that nobody began to read.
    unread: Vec<String>,
    /// Those that somebody did.
    started: Vec<String>,
    /// Those that are being read, and how often that began.
    in_progress: Vec<(String, usize)>,
}

/// A few files, some of them twice, and one that need not be read.
pub(super) fn random_file_parts(world: &mut LogBuilder) -> Vec<ContentPart> {
    let file = |url: String| ContentPart::File { file: FileRef { url: Some(url), ..FileRef::default() } };
    let count = world.rng.between(1, 3);
    let mut parts: Vec<ContentPart> =
        (0..count).map(|_| file(format!("https://example.org/{}.pdf", world.rng.between(1, 6)))).collect();
    if world.rng.chance(30) {
        parts.push(file(format!("/v1/blobs/{:064x}", world.rng.next_u64())));
    }
    parts
}

impl InputFiles {
    pub(super) fn from_input(input: &[InputMessage]) -> Self {
        let mut files = Self::default();
        files.add_input(input);
        files
    }

    /// Something more was said.
    pub(super) fn add_input(&mut self, input: &[InputMessage]) {
        for part in input.iter().flat_map(|message| &message.content) {
            if let ContentPart::File { file } = part
                && let Some(url) = file.url.as_ref().filter(|url| url.starts_with("https:"))
                && !self.unread.contains(url)
                && !self.started.contains(url)
            {
                self.unread.push(url.clone());
            }
        }
    }

    pub(super) const fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }
}

impl GenTask {
    /// All files that nobody began to read are read, side by side.
    pub(super) fn start_reading_files(&mut self, world: &mut LogBuilder) {
        self.phase = GenPhase::ReadingFiles;
        let urls = std::mem::take(&mut self.files.unread);
        self.files.started.extend(urls.iter().cloned());
        let of = |url: &String| ProcessedFile { url: url.clone(), status: FileStatus::Processing, message: None };
        let files = urls.iter().map(of).collect();
        self.files.in_progress = urls.into_iter().map(|url| (url, 1)).collect();
        let (id, status, agent) = (world.next_id("fp"), Some(ItemStatus::InProgress), Some(self.agent.clone()));
        let item = Item::FileProcessing(FileProcessing { id, files, status, reason: None, agent });
        let index = self.next_output_index();
        self.open_items = vec![ItemWriter::add(world, &self.id, index, item, VecDeque::new(), None)];
    }

    /// One file is read, or cannot be. After the last one the turn begins.
    pub(super) fn finish_one_file(&mut self, world: &mut LogBuilder) {
        let place = world.rng.below(self.files.in_progress.len());
        let (url, _) = self.files.in_progress.remove(place);
        let status = world.rng.choose(FileStatus::Completed, &[FileStatus::Completed, FileStatus::Failed]);
        let message = world.rng.chance(50).then(|| random_text(&mut world.rng, 0, 4));
        let read = status == FileStatus::Completed;
        let content = read.then(|| vec![ContentPart::text(format!("# {url}\n{}", random_text(&mut world.rng, 0, 12)))]);
        self.emit_file_update(world, ProcessedFile { url, status, message }, content);
        self.start_turn_when_files_read(world);
    }

    /// The process died: whatever was being read is read again, but not for ever.
    pub(super) fn recover_files(&mut self, world: &mut LogBuilder) {
        for (url, tries) in std::mem::take(&mut self.files.in_progress) {
            let again = tries < READ_ATTEMPTS_MAX;
            let status = if again { FileStatus::Processing } else { FileStatus::Failed };
            let message = (!again).then(|| "It was lost too often.".to_owned());
            if again {
                self.files.in_progress.push((url.clone(), tries.saturating_add(1)));
            }
            self.emit_file_update(world, ProcessedFile { url, status, message }, None);
        }
        self.start_turn_when_files_read(world);
    }

    fn start_turn_when_files_read(&mut self, world: &mut LogBuilder) {
        if self.files.in_progress.is_empty() {
            for open in std::mem::take(&mut self.open_items) {
                open.complete(world, &self.id);
            }
            self.start_turn(world);
        }
    }

    fn emit_file_update(&mut self, world: &mut LogBuilder, now: ProcessedFile, content: Option<Vec<ContentPart>>) {
        let Some(open) = self.open_items.first_mut() else { return };
        let ProcessedFile { url, status, message } = now.clone();
        let event =
            FileProcessingUpdated { task_id: self.id.clone(), output_index: open.output_index, url, status, message };
        if let Item::FileProcessing(item) = &mut open.item
            && let Some(file) = item.files.iter_mut().find(|file| file.url == now.url)
        {
            *file = now;
        }
        let private = content.map(|content| PrivatePayload { content: Some(content), ..PrivatePayload::default() });
        world.emit_with_private(Event::FileProcessingUpdated(event), private);
    }
}
