//! Files that users point at are read before their task asks its model.
//!
//! An item lists them and says how far each is; what is in them is private, and stands in the model's history where they
//! were named. A file that cannot be read is a note there and never ends a run. A crash loses nothing but time: reading
//! has no effects, so it begins again.

use crate::effect::{Effect, EffectId};
use crate::state::RunState;
use crate::{MachineOutput, close_items, tool_result};
use model::content::ContentPart;
use model::event::{Event, FileProcessingUpdated, ItemEvent};
use model::fold::TaskFold;
use model::item::{FileProcessing, FileStatus, Item, ItemStatus, ProcessedFile};
use model::limits::RECORD_BYTES_MAX;
use model::ports::{FileReadOutcome, FileReadRequest};
use model::record::PrivatePayload;
use model::{ItemId, TaskId, reference};

/// What is said about a file has at most so many characters: all of it stands in one record at the end.
const MESSAGE_CHARS_MAX: usize = 300;

/// Where a task is with the files that it was pointed at.
pub(crate) enum FileReadStage {
    /// There is nothing to do about any.
    Ready,
    /// Nobody began to read some.
    Unread,
    /// Some are being read.
    Reading,
    /// Those that were being read have ended.
    Finished,
}

pub(crate) fn file_read_stage(task: &TaskFold) -> FileReadStage {
    match task.open_file_processing() {
        Some((_, _, item)) if item.files.iter().any(is_processing) => FileReadStage::Reading,
        Some(_) => FileReadStage::Finished,
        None if task.unread_files().is_empty() => FileReadStage::Ready,
        None => FileReadStage::Unread,
    }
}

fn is_processing(file: &ProcessedFile) -> bool {
    file.status == FileStatus::Processing
}

/// What a task has asked for and has not got.
pub(crate) fn outstanding_file_reads(task: &TaskFold) -> Vec<EffectId> {
    let Some((_, fold, item)) = task.open_file_processing() else { return Vec::new() };
    let going = item.files.iter().filter(|file| is_processing(file));
    let id = |file: &ProcessedFile| {
        let attempt = fold.files.get(&file.url).map_or(0, |file| file.attempts);
        EffectId::file(&item.id, &file.url, attempt)
    };
    going.map(id).collect()
}

/// Begins to read what nobody began to read: all that one record can list.
pub(crate) fn start_file_reads(run: &mut RunState, task_id: &TaskId, out: &mut MachineOutput) {
    let Some(task) = run.fold.task(task_id) else { return };
    let mut room = RECORD_BYTES_MAX / 2;
    let fits = |(place, url): &(usize, &str)| {
        let size = tool_result::json_size(url);
        let fits = *place == 0 || size <= room;
        room = room.saturating_sub(size);
        fits
    };
    let urls = task.unread_files().into_iter().enumerate().take_while(fits);
    let urls: Vec<String> = urls.map(|(_, url)| url.to_owned()).collect();
    let file = |url: &String| ProcessedFile { url: url.clone(), status: FileStatus::Processing, message: None };
    let (suffix, number) = run.next_id_number();
    let item = FileProcessing {
        id: ItemId::numbered("fp", &suffix, number),
        files: urls.iter().map(file).collect(),
        status: Some(ItemStatus::InProgress),
        reason: None,
        agent: Some(task.agent.clone()),
    };
    let output_index = u32::try_from(task.items.len()).unwrap_or(u32::MAX);
    let ids: Vec<EffectId> = urls.iter().map(|url| EffectId::file(&item.id, url, 1)).collect();
    let event = ItemEvent { task_id: task_id.clone(), output_index, item: Item::FileProcessing(item) };
    out.emit(run, Event::ItemAdded(event));
    for (id, url) in ids.into_iter().zip(urls) {
        request_file_read(run, id, url, out);
    }
}

fn request_file_read(run: &RunState, id: EffectId, url: String, out: &mut MachineOutput) {
    let request = FileReadRequest { user: run.user.clone(), thread: run.thread.clone(), url };
    out.push_effect(Effect::ReadFile { id, request });
}

/// A file was read, or cannot be. What answers nothing outstanding is ignored.
pub(crate) fn on_file_event(run: &mut RunState, id: &EffectId, answer: FileReadOutcome, out: &mut MachineOutput) {
    let EffectId::File { url, .. } = id else { return };
    let going = run.fold.tasks.iter().filter(|task| !task.status.is_terminal());
    let Some(task) = going.filter(|task| outstanding_file_reads(task).contains(id)).map(|task| task.id.clone()).next()
    else {
        return;
    };
    match answer {
        FileReadOutcome::Read { content, message } => match validate_file_content(content, url) {
            Ok(content) => {
                let private = PrivatePayload { content: Some(content), ..PrivatePayload::default() };
                emit_file_update(run, &task, processed_file(url, FileStatus::Completed, message), Some(private), out);
            }
            Err(why) => {
                emit_file_update(run, &task, processed_file(url, FileStatus::Failed, Some(why.to_owned())), None, out)
            }
        },
        FileReadOutcome::Failed { message } => {
            emit_file_update(run, &task, processed_file(url, FileStatus::Failed, Some(message)), None, out)
        }
    }
}

/// What a model can be given of a file: something, and so much that it fits the one record where it stands. Nothing in it
/// reads like a group that could be cited.
fn validate_file_content(mut content: Vec<ContentPart>, url: &str) -> Result<Vec<ContentPart>, &'static str> {
    content.retain(|part| !matches!(part, ContentPart::Text { text, .. } if text.trim().is_empty()));
    if content.is_empty() {
        return Err("There is nothing in it to read.");
    }
    let content = reference::wrap_reference_groups(content);
    let size = tool_result::json_size(&content).saturating_add(tool_result::json_size(&url));
    if size <= RECORD_BYTES_MAX / 2 { Ok(content) } else { Err("There is too much in it.") }
}

fn processed_file(url: &str, status: FileStatus, message: Option<String>) -> ProcessedFile {
    let message = message.map(|message| message.chars().take(MESSAGE_CHARS_MAX).collect());
    ProcessedFile { url: url.to_owned(), status, message }
}

fn emit_file_update(
    run: &mut RunState,
    task: &TaskId,
    now: ProcessedFile,
    private: Option<PrivatePayload>,
    out: &mut MachineOutput,
) {
    let Some((place, ..)) = run.fold.task(task).and_then(|task| task.open_file_processing()) else { return };
    let ProcessedFile { url, status, message } = now;
    let output_index = u32::try_from(place).unwrap_or(u32::MAX);
    let event = FileProcessingUpdated { task_id: task.clone(), output_index, url, status, message };
    out.emit_with_private(run, Event::FileProcessingUpdated(event), private);
}

/// All have ended, each in its way. The item is whole even when none could be read: it says so.
pub(crate) fn finish_file_reads(run: &mut RunState, task: &TaskId, out: &mut MachineOutput) {
    let Some((place, ..)) = run.fold.task(task).and_then(|task| task.open_file_processing()) else { return };
    let output_index = u32::try_from(place).unwrap_or(u32::MAX);
    close_items::close_item(run, task, output_index, &close_items::ItemEnd::default(), out);
}

/// The run is stopped: what was being read will not be, and nobody waits for it.
pub(crate) fn stop_file_reads(run: &mut RunState, task: &TaskId, out: &mut MachineOutput) {
    for id in run.fold.task(task).map(outstanding_file_reads).unwrap_or_default() {
        let EffectId::File { url, .. } = id else { continue };
        let message = Some("The run was stopped before it was read.".to_owned());
        emit_file_update(run, task, processed_file(&url, FileStatus::Failed, message), None, out);
    }
}

/// The process died: what was being read is read again, unless it was lost too often.
pub(crate) fn restart_file_reads(run: &mut RunState, task: &TaskId, lost_max: usize, out: &mut MachineOutput) {
    let lost = run.fold.task(task).map(outstanding_file_reads).unwrap_or_default();
    for id in lost {
        let EffectId::File { item, url, attempt } = id else { continue };
        if attempt as usize >= lost_max {
            let message = format!("The server stopped {lost_max} times while this file was read.");
            emit_file_update(run, task, processed_file(&url, FileStatus::Failed, Some(message)), None, out);
        } else {
            emit_file_update(run, task, processed_file(&url, FileStatus::Processing, None), None, out);
            request_file_read(run, EffectId::file(&item, &url, attempt + 1), url, out);
        }
    }
}
