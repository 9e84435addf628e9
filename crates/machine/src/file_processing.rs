//! Reads the files that a user's input refers to before the task calls its model.
//!
//! An item lists them with their progress. Their content is private; in the history of the model it replaces the reference.
//! A file that cannot be read leaves a note there and never ends a run. After a crash a read starts again: it has no side
//! effects.

use crate::close_items::{self, ItemEnd};
use crate::effect::{Effect, EffectId};
use crate::output::{MachineOutput, RunWriter, json_size};
use crate::outstanding::outstanding_file_reads;
use crate::positions::{next_output_index, to_output_index};
use crate::state::RunState;
use crate::task_tree::open_tasks;
use model::content::ContentPart;
use model::event::{Event, FileProcessingUpdated, ItemEvent};
use model::fold::TaskFold;
use model::item::{FileProcessing, FileStatus, Item, ItemStatus, ProcessedFile};
use model::limits::RECORD_BYTES_MAX;
use model::ports::{FileReadOutcome, FileReadRequest};
use model::record::PrivatePayload;
use model::{TaskId, reference};

/// The longest message about a file: one record holds the messages of all files of an item.
const MESSAGE_CHARS_MAX: usize = 300;

/// How far a task is with the files of its input.
pub(crate) enum FileReadStage {
    /// Nothing is left to read.
    Ready,
    /// Some reads have not started.
    Unread,
    /// Some reads have not ended.
    Reading,
    /// All reads have ended, but their item is open.
    Finished,
}

pub(crate) fn file_read_stage(task: &TaskFold) -> FileReadStage {
    match task.open_file_processing() {
        Some((_, _, item)) if item.files.iter().any(|file| file.status == FileStatus::Processing) => {
            FileReadStage::Reading
        }
        Some(_) => FileReadStage::Finished,
        None if task.unread_files().is_empty() => FileReadStage::Ready,
        None => FileReadStage::Unread,
    }
}

/// Starts to read the unread files, as many as one record can list.
pub(crate) fn start_file_reads(writer: &mut RunWriter<'_>, task_id: &TaskId) {
    let Some(task) = writer.run.fold.task(task_id) else { return };
    let mut room = RECORD_BYTES_MAX / 2;
    let fits = |(index, url): &(usize, &str)| {
        let size = json_size(url);
        let fits = *index == 0 || size <= room;
        room = room.saturating_sub(size);
        fits
    };
    let urls = task.unread_files().into_iter().enumerate().take_while(fits);
    let urls: Vec<String> = urls.map(|(_, url)| url.to_owned()).collect();
    let file = |url: &String| ProcessedFile { url: url.clone(), status: FileStatus::Processing, message: None };
    let item = FileProcessing {
        id: writer.run.next_item_id("fp"),
        files: urls.iter().map(file).collect(),
        status: Some(ItemStatus::InProgress),
        reason: None,
        agent: Some(task.agent.clone()),
    };
    let output_index = next_output_index(task);
    let ids: Vec<EffectId> = urls.iter().map(|url| EffectId::file(&item.id, url, 1)).collect();
    let event = ItemEvent { task_id: task_id.clone(), output_index, item: Item::FileProcessing(item) };
    writer.emit(Event::ItemAdded(Box::new(event)));
    for (id, url) in ids.into_iter().zip(urls) {
        request_file_read(writer.run, id, url, writer.out);
    }
}

fn request_file_read(run: &RunState, id: EffectId, url: String, out: &mut MachineOutput) {
    let request = FileReadRequest { user: run.user.clone(), thread: run.thread.clone(), url };
    out.push_effect(Effect::ReadFile { id, request });
}

/// Handles the outcome of a read. One that is not outstanding is ignored.
pub(crate) fn on_file_event(writer: &mut RunWriter<'_>, id: &EffectId, answer: FileReadOutcome) {
    let EffectId::File { url, .. } = id else { return };
    let task = open_tasks(&writer.run.fold).find(|task| outstanding_file_reads(task).contains(id));
    let Some(task) = task.map(|task| task.id.clone()) else { return };
    match answer {
        FileReadOutcome::Read { content, message } => match validate_file_content(content, url) {
            Ok(content) => {
                let private = PrivatePayload { content: Some(content), ..PrivatePayload::default() };
                emit_file_update(writer, &task, processed_file(url, FileStatus::Completed, message), Some(private));
            }
            Err(why) => {
                emit_file_update(writer, &task, processed_file(url, FileStatus::Failed, Some(why.to_owned())), None);
            }
        },
        FileReadOutcome::Failed { message } => {
            emit_file_update(writer, &task, processed_file(url, FileStatus::Failed, Some(message)), None);
        }
    }
}

/// The content of a file as the model reads it: not empty, small enough for one record, and without anything that reads
/// like a reference group.
fn validate_file_content(mut content: Vec<ContentPart>, url: &str) -> Result<Vec<ContentPart>, &'static str> {
    content.retain(|part| !matches!(part, ContentPart::Text { text, .. } if text.trim().is_empty()));
    if content.is_empty() {
        return Err("There is nothing in it to read.");
    }
    let content = reference::wrap_reference_groups(content);
    let size = json_size(&content).saturating_add(json_size(&url));
    if size <= RECORD_BYTES_MAX / 2 { Ok(content) } else { Err("There is too much in it.") }
}

fn processed_file(url: &str, status: FileStatus, message: Option<String>) -> ProcessedFile {
    let message = message.map(|message| message.chars().take(MESSAGE_CHARS_MAX).collect());
    ProcessedFile { url: url.to_owned(), status, message }
}

fn emit_file_update(writer: &mut RunWriter<'_>, task: &TaskId, file: ProcessedFile, private: Option<PrivatePayload>) {
    let Some((index, ..)) = writer.run.fold.task(task).and_then(|task| task.open_file_processing()) else { return };
    let ProcessedFile { url, status, message } = file;
    let output_index = to_output_index(index);
    let event = FileProcessingUpdated { task_id: task.clone(), output_index, url, status, message };
    writer.emit_with_private(Event::FileProcessingUpdated(event), private);
}

/// Closes the item when all reads have ended. It is complete even when no file could be read: it says so.
pub(crate) fn finish_file_reads(writer: &mut RunWriter<'_>, task: &TaskId) {
    let Some((index, ..)) = writer.run.fold.task(task).and_then(|task| task.open_file_processing()) else { return };
    let output_index = to_output_index(index);
    close_items::close_item(writer, task, output_index, &ItemEnd::default());
}

/// Marks the files that are being read as failed: the run stops.
pub(crate) fn stop_file_reads(writer: &mut RunWriter<'_>, task: &TaskId) {
    for id in writer.run.fold.task(task).map(outstanding_file_reads).unwrap_or_default() {
        let EffectId::File { url, .. } = id else { continue };
        let message = Some("The run was stopped before it was read.".to_owned());
        emit_file_update(writer, task, processed_file(&url, FileStatus::Failed, message), None);
    }
}

/// Starts the interrupted reads again after a crash, unless a file was lost too often.
pub(crate) fn restart_file_reads(writer: &mut RunWriter<'_>, task: &TaskId, lost_max: usize) {
    let lost = writer.run.fold.task(task).map(outstanding_file_reads).unwrap_or_default();
    for id in lost {
        let EffectId::File { item, url, attempt } = id else { continue };
        if attempt as usize >= lost_max {
            let message = format!("The server stopped {lost_max} times while this file was read.");
            emit_file_update(writer, task, processed_file(&url, FileStatus::Failed, Some(message)), None);
        } else {
            emit_file_update(writer, task, processed_file(&url, FileStatus::Processing, None), None);
            request_file_read(writer.run, EffectId::file(&item, &url, attempt + 1), url, writer.out);
        }
    }
}
