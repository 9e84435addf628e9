//! Files in the input: they are read before the next turn.

use super::{GenPhase, GenTask, RunContext};
use crate::item_writer::ItemWriter;
use crate::text::random_text;
use model::content::{ContentPart, FileRef};
use model::event::{Event, FileProcessingUpdated, InputMessage};
use model::item::{FileProcessing, FileStatus, Item, ItemStatus, ProcessedFile};
use model::record::PrivatePayload;
use std::collections::VecDeque;

const READ_ATTEMPTS_MAX: usize = 3;

#[derive(Default)]
pub(crate) struct InputFiles {
    unread: Vec<String>,
    started: Vec<String>,
    /// With the number of attempts.
    in_progress: Vec<(String, usize)>,
}

/// A few files with repetitions, and one that is not on the web.
pub(crate) fn random_file_parts(ctx: &mut RunContext<'_>) -> Vec<ContentPart> {
    let file = |url: String| ContentPart::File { file: FileRef { url: Some(url), ..FileRef::default() } };
    let count = ctx.rng.between(1, 3);
    let mut parts: Vec<ContentPart> =
        (0..count).map(|_| file(format!("https://example.org/{}.pdf", ctx.rng.between(1, 6)))).collect();
    if ctx.rng.chance(30) {
        parts.push(file(ctx.random_file_url()));
    }
    parts
}

impl InputFiles {
    pub(crate) fn from_input(input: &[InputMessage]) -> Self {
        let mut files = Self::default();
        files.add_input(input);
        files
    }

    pub(crate) fn add_input(&mut self, input: &[InputMessage]) {
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

    pub(crate) const fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }
}

impl GenTask {
    /// Starts reading all files that are not being read, concurrently.
    pub(crate) fn start_reading_files(&mut self, ctx: &mut RunContext<'_>) {
        self.phase = GenPhase::ReadingFiles;
        let urls = std::mem::take(&mut self.files.unread);
        self.files.started.extend(urls.iter().cloned());
        let of = |url: &String| ProcessedFile { url: url.clone(), status: FileStatus::Processing, message: None };
        let files = urls.iter().map(of).collect();
        self.files.in_progress = urls.into_iter().map(|url| (url, 1)).collect();
        let (id, status, agent) = (ctx.next_id("fp"), Some(ItemStatus::InProgress), Some(self.agent.clone()));
        let item = Item::FileProcessing(FileProcessing { id, files, status, reason: None, agent });
        let index = self.next_output_index();
        self.open_items = vec![ItemWriter::add(ctx, &self.id, index, item, VecDeque::new(), None)];
    }

    /// Finishes one file, successfully or not. After the last one the turn starts.
    pub(crate) fn finish_one_file(&mut self, ctx: &mut RunContext<'_>) {
        let index = ctx.rng.below(self.files.in_progress.len());
        let (url, _) = self.files.in_progress.remove(index);
        let status = ctx.rng.choose(FileStatus::Completed, &[FileStatus::Completed, FileStatus::Failed]);
        let message = ctx.rng.chance(50).then(|| random_text(&mut ctx.rng, 0, 4));
        let read = status == FileStatus::Completed;
        let content = read.then(|| vec![ContentPart::text(format!("# {url}\n{}", random_text(&mut ctx.rng, 0, 12)))]);
        self.emit_file_update(ctx, ProcessedFile { url, status, message }, content);
        self.start_turn_when_files_read(ctx);
    }

    /// After a crash, files are read again, up to a limit.
    pub(crate) fn recover_files(&mut self, ctx: &mut RunContext<'_>) {
        for (url, tries) in std::mem::take(&mut self.files.in_progress) {
            let again = tries < READ_ATTEMPTS_MAX;
            let status = if again { FileStatus::Processing } else { FileStatus::Failed };
            let message = (!again).then(|| "It was lost too often.".to_owned());
            if again {
                self.files.in_progress.push((url.clone(), tries.saturating_add(1)));
            }
            self.emit_file_update(ctx, ProcessedFile { url, status, message }, None);
        }
        self.start_turn_when_files_read(ctx);
    }

    fn start_turn_when_files_read(&mut self, ctx: &mut RunContext<'_>) {
        if self.files.in_progress.is_empty() {
            for open in std::mem::take(&mut self.open_items) {
                open.complete(ctx, &self.id);
            }
            self.start_turn(ctx);
        }
    }

    fn emit_file_update(&mut self, ctx: &mut RunContext<'_>, now: ProcessedFile, content: Option<Vec<ContentPart>>) {
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
        ctx.emit_with_private(Event::FileProcessingUpdated(event), private);
    }
}
