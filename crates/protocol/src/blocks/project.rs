//! Records → frames.
//!
//! Calls and results are sent when they are complete. A complete text of the root stops only when something follows it,
//! because only then is it known whether it was the answer (`is_final`). A text of a sub-agent never is, and stops at once.

use super::frame_writer::BlocksFrameWriter;
use super::tool_blocks;
use super::wire::{
    BlocksDelta, BlocksEvent, BlocksFile, CANCELLED_TEXT, ContentBlock, FAILED_TEXT, MessageEnd, TerminalExtras,
    TextDelta,
};
use crate::event_groups::{native_only_events, terminal_events};
use crate::hosted_calls::has_complete_arguments;
use crate::record_frames::{FrameFormat, RecordFrames};
use crate::run_end::RunEnd;
use crate::run_reader::RunReader;
use model::event::{
    ApprovalRequested, DisplayMode, Event, FileProcessingUpdated, ItemEvent, SummaryEvent, TaskCancelled, TaskFailed,
    TextEvent,
};
use model::fold::{RunFold, TaskFold};
use model::item::{Block, FileProcessing, FileStatus, Item, ItemStatus};
use model::ports::{Frames, Projection};
use model::{ItemId, Record, TaskId};
use std::sync::Arc;

/// The name of this projection in cursors.
pub const BLOCKS_PROJECTION: &str = "blocks";

/// A thread as turns of content blocks. Never ends.
#[derive(Clone, Debug)]
pub struct BlocksProjection {
    session: Arc<str>,
    reader: RunReader,
    turn: BlocksTurn,
}

impl BlocksProjection {
    /// The turns of a thread that clients know as this session.
    pub fn new(session: String) -> Self {
        Self { session: session.into(), reader: RunReader::default(), turn: BlocksTurn::default() }
    }
}

impl Projection for BlocksProjection {
    fn project(&mut self, record: &Record, out: &mut Frames) {
        let Self { session, reader, turn } = self;
        let mut frames = RecordFrames::new(record, FrameFormat::JsonLines(BLOCKS_PROJECTION), out);
        reader.read_record(record, |run, event| {
            let Some(root) = run.root() else { return };
            let out = &mut BlocksFrameWriter { frames: &mut frames, message_id: &root.id };
            if matches!(event, Event::Created(e) if e.task_id == root.id) {
                *turn = BlocksTurn::default();
                out.start_message(session, run, root);
            } else {
                turn.on_event(run, event, out);
            }
        });
    }

    fn boxed_clone(&self) -> Box<dyn Projection> {
        Box::new(self.clone())
    }
}

/// A turn as far as it was sent.
#[derive(Clone, Debug, Default)]
struct BlocksTurn {
    next_index: u32,
    open_blocks: Vec<OpenBlock>,
    /// The block of the root's last complete text, while nothing has followed it.
    held_text: Option<u32>,
    /// Hosted calls that were sent and have no result yet.
    open_hosted_calls: Vec<ItemId>,
}

/// A block that grows.
#[derive(Clone, Debug)]
struct OpenBlock {
    task: TaskId,
    output_index: u32,
    part: u32,
    /// Of the block in its turn.
    index: u32,
}

/// The item, text or summary part that a block shows. The part of an item that has none is 0.
#[derive(Clone, Copy)]
struct BlockSource<'a> {
    task: &'a TaskId,
    output_index: u32,
    part: u32,
}

impl<'a> BlockSource<'a> {
    fn new(task: &'a TaskFold, output_index: u32, part: u32) -> Self {
        Self { task: &task.id, output_index, part }
    }
}

/// Whether a text is the turn's answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TextRole {
    Final,
    Intermediate,
}

impl BlocksTurn {
    fn on_event(&mut self, run: &RunFold, event: &Event, out: &mut BlocksFrameWriter<'_, '_>) {
        let Some(task) = event.task_id().and_then(|id| run.task(id)) else { return };
        let is_root = task.spec.parent_task_id.is_none();
        if is_root && matches!(event, Event::StepStarted(_) | Event::ItemAdded(_)) {
            self.stop_held_text(TextRole::Intermediate, out);
        }
        match event {
            Event::ItemAdded(e) => self.on_item_added(task, e, out),
            Event::ItemDone(e) => self.on_item_done(run, task, e, out),
            Event::SummaryAdded(e) => self.on_summary_added(run, task, e, out),
            Event::SummaryDelta(e) => {
                let source = BlockSource::new(task, e.output_index, e.summary_index);
                self.send_text_delta(source, TextDelta::Thinking(&e.delta), out);
            }
            Event::SummaryDone(e) => {
                if let Some(index) = self.close_block(BlockSource::new(task, e.output_index, e.summary_index)) {
                    out.stop_block(index, None);
                }
            }
            Event::TextAdded(e) => self.on_text_added(task, e, out),
            Event::TextDelta(e) => {
                let source = BlockSource::new(task, e.output_index, e.block_index);
                self.send_text_delta(source, TextDelta::Text(&e.delta), out);
            }
            Event::TextDone(e) => self.on_text_done(task, e, out),
            Event::ArgumentsDone(e) => self.on_arguments_done(task, e.output_index, out),
            Event::HostedCallUpdated(e) => self.show_ready_hosted_call(task, e.output_index, out),
            // An image tool has started; its arguments are only known at its end.
            Event::ImageAdded(e) => self.show_hosted_call(task, e.output_index, out),
            Event::FileProcessingUpdated(e) => self.on_file_updated(task, e, out),
            Event::ApprovalRequested(e) => self.add_approval_request(e, out),
            Event::ApprovalResolved(e) => {
                out.push(&BlocksEvent::ApprovalResolved { approval_key: &e.key, decisions: &e.decisions, by: e.by });
            }
            Event::InputAdded(e) => {
                out.push(&BlocksEvent::InputAdded { input: e.input.iter().map(Into::into).collect() });
            }
            Event::Completed(e) if is_root => self.finish(&RunEnd::Completed, e.duration_ms, out),
            Event::Incomplete(e) if is_root => self.finish(&e.reason.into(), e.duration_ms, out),
            Event::Failed(e) if is_root => self.on_failed(e, out),
            Event::Cancelled(e) if is_root => self.on_cancelled(e, out),
            // Exhaustive on purpose: a new event is either placed above or skipped here by name.
            native_only_events!()
            | terminal_events!()
            | Event::ArgumentsDelta(_)
            | Event::AnnotationAdded(_)
            | Event::ImageDelta(_)
            | Event::Created(_)
            | Event::StepStarted(_)
            | Event::StepDone(_)
            | Event::ImageDone(_)
            | Event::ToolStarted(_)
            | Event::AgentUpdated(_)
            | Event::Paused(_)
            | Event::Resumed(_)
            | Event::Recovered(_) => {}
        }
    }

    fn on_failed(&mut self, e: &TaskFailed, out: &mut BlocksFrameWriter<'_, '_>) {
        self.add_terminal_text(BlocksDelta::terminal(FAILED_TEXT, TerminalExtras::error(&e.error)), out);
        self.finish(&RunEnd::failed(&e.error), e.duration_ms, out);
    }

    fn on_cancelled(&mut self, e: &TaskCancelled, out: &mut BlocksFrameWriter<'_, '_>) {
        self.add_terminal_text(BlocksDelta::terminal(CANCELLED_TEXT, TerminalExtras::UserStopped), out);
        self.finish(&RunEnd::cancelled(), e.duration_ms, out);
    }

    fn on_item_added(&mut self, task: &TaskFold, e: &ItemEvent, out: &mut BlocksFrameWriter<'_, '_>) {
        match &e.item {
            Item::HostedCall(_) => self.show_ready_hosted_call(task, e.output_index, out),
            Item::FileProcessing(item) => {
                let files = item.files.iter().map(|file| BlocksFile { url: &file.url }).collect();
                let block = ContentBlock::FileProcessing { status: "processing", files };
                self.open_block(BlockSource::new(task, e.output_index, 0), block, out);
            }
            _ => {}
        }
    }

    fn on_item_done(&mut self, run: &RunFold, task: &TaskFold, e: &ItemEvent, out: &mut BlocksFrameWriter<'_, '_>) {
        // The item of a `done` event may be abbreviated; the fold's is complete.
        match item_at(task, e.output_index) {
            Some(Item::ToolResult(result)) => {
                if let Some(block) = tool_blocks::tool_result_block(run, task, result) {
                    self.add_complete_block(block, out);
                }
            }
            Some(Item::HostedCall(call)) => {
                self.show_hosted_call(task, e.output_index, out);
                self.open_hosted_calls.retain(|open| *open != call.id);
                self.add_complete_block(tool_blocks::hosted_result_block(task, call), out);
            }
            Some(Item::FileProcessing(files)) => {
                if let Some(index) = self.close_block(BlockSource::new(task, e.output_index, 0)) {
                    let outcome = processing_outcome(files);
                    out.send_delta(index, BlocksDelta::file_status(outcome.status, &outcome.message));
                    out.stop_block(index, None);
                }
            }
            _ => {}
        }
    }

    fn on_summary_added(
        &mut self,
        run: &RunFold,
        task: &TaskFold,
        e: &SummaryEvent,
        out: &mut BlocksFrameWriter<'_, '_>,
    ) {
        if run.root().is_none_or(|root| root.spec.display_mode != DisplayMode::Agent) {
            return;
        }
        let block = ContentBlock::Thinking { thinking: "", owner: task.into() };
        let source = BlockSource::new(task, e.output_index, e.summary_index);
        self.open_block(source, block, out);
        if !e.item.text().is_empty() {
            self.send_text_delta(source, TextDelta::Thinking(e.item.text()), out);
        }
    }

    /// Adds a text of a message. Texts of results are sent with their result.
    fn on_text_added(&mut self, task: &TaskFold, e: &TextEvent, out: &mut BlocksFrameWriter<'_, '_>) {
        match item_at(task, e.output_index) {
            Some(item @ Item::Message(_)) => {
                let mut before = item.blocks().iter().take(e.block_index as usize);
                let is_part = before.any(|block| matches!(block, Block::Text(_)));
                let block = ContentBlock::Text { text: "", owner: task.into(), is_part };
                if task.spec.parent_task_id.is_none() && is_last_text(task, e) {
                    self.stop_held_text(TextRole::Intermediate, out);
                }
                let source = BlockSource::new(task, e.output_index, e.block_index);
                self.open_block(source, block, out);
                // Clients read text from deltas only, so an initial text is sent as a delta.
                let text = e.item.block().text();
                if !text.is_empty() {
                    self.send_text_delta(source, TextDelta::Text(text), out);
                }
            }
            Some(Item::HostedCall(_)) => self.show_hosted_call(task, e.output_index, out),
            Some(Item::Reasoning(_) | Item::ToolCall(_) | Item::ToolResult(_) | Item::FileProcessing(_)) | None => {}
        }
    }

    fn on_text_done(&mut self, task: &TaskFold, e: &TextEvent, out: &mut BlocksFrameWriter<'_, '_>) {
        let source = BlockSource::new(task, e.output_index, e.block_index);
        let Some(index) = self.close_block(source) else { return };
        // Something may have started behind this text while it was growing.
        if task.spec.parent_task_id.is_none() && is_last_text(task, e) {
            self.held_text = Some(index);
        } else {
            out.stop_block(index, Some(false));
        }
    }

    fn on_arguments_done(&mut self, task: &TaskFold, output_index: u32, out: &mut BlocksFrameWriter<'_, '_>) {
        if let Some(Item::ToolCall(call)) = item_at(task, output_index) {
            self.add_complete_block(tool_blocks::tool_use_block(task, call), out);
        }
    }

    /// Sends a hosted call as soon as its arguments are complete: a `tool_use` block does not grow.
    fn show_ready_hosted_call(&mut self, task: &TaskFold, output_index: u32, out: &mut BlocksFrameWriter<'_, '_>) {
        if let Some(Item::HostedCall(call)) = item_at(task, output_index)
            && has_complete_arguments(call)
        {
            self.show_hosted_call(task, output_index, out);
        }
    }

    /// Sends a hosted call, once.
    fn show_hosted_call(&mut self, task: &TaskFold, output_index: u32, out: &mut BlocksFrameWriter<'_, '_>) {
        if let Some(Item::HostedCall(call)) = item_at(task, output_index)
            && !self.open_hosted_calls.contains(&call.id)
        {
            self.open_hosted_calls.push(call.id.clone());
            self.add_complete_block(tool_blocks::hosted_use_block(task, call), out);
        }
    }

    /// Sends the progress of one file, and the reason if it failed. The outcome of all files is sent at the end.
    fn on_file_updated(&self, task: &TaskFold, e: &FileProcessingUpdated, out: &mut BlocksFrameWriter<'_, '_>) {
        let Some(Item::FileProcessing(item)) = item_at(task, e.output_index) else { return };
        let message = match &e.message {
            Some(reason) if e.status == FileStatus::Failed => format!("{}: {reason}", e.url),
            _ if item.files.iter().all(|file| file.status != FileStatus::Processing) => return,
            Some(message) => message.clone(),
            None => processing_outcome(item).message,
        };
        let source = BlockSource::new(task, e.output_index, 0);
        if let Some(index) = self.open_index(source) {
            out.send_delta(index, BlocksDelta::file_status("processing", &message));
        }
    }

    fn add_approval_request(&mut self, e: &ApprovalRequested, out: &mut BlocksFrameWriter<'_, '_>) {
        let block = ContentBlock::ApprovalRequest { approval_key: &e.key, tool_use_id: e.call_id.as_str() };
        let index = self.start_block(block, out);
        out.send_delta(index, BlocksDelta::approval_request(e));
        out.stop_block(index, None);
    }

    /// Adds the reason why the turn ended early. No text before it was the answer.
    fn add_terminal_text(&mut self, delta: BlocksDelta<'_>, out: &mut BlocksFrameWriter<'_, '_>) {
        self.stop_held_text(TextRole::Intermediate, out);
        let index = self.start_block(ContentBlock::Terminal { text: "" }, out);
        out.send_delta(index, delta);
        out.stop_block(index, None);
    }

    fn finish(&mut self, end: &RunEnd, duration_ms: u64, out: &mut BlocksFrameWriter<'_, '_>) {
        self.stop_held_text(TextRole::Final, out);
        let stop_reason = end.names().blocks_stop_reason;
        out.push(&BlocksEvent::MessageDelta { delta: MessageEnd { stop_reason } });
        out.push(&BlocksEvent::MessageStop { duration_ms });
    }

    /// Stops the root's last text, now that its role is known.
    fn stop_held_text(&mut self, role: TextRole, out: &mut BlocksFrameWriter<'_, '_>) {
        if let Some(index) = self.held_text.take() {
            out.stop_block(index, Some(role == TextRole::Final));
        }
    }

    /// Adds a block that does not grow.
    fn add_complete_block(&mut self, block: ContentBlock<'_>, out: &mut BlocksFrameWriter<'_, '_>) {
        let index = self.start_block(block, out);
        out.stop_block(index, None);
    }

    fn start_block(&mut self, content_block: ContentBlock<'_>, out: &mut BlocksFrameWriter<'_, '_>) -> u32 {
        let index = self.next_index;
        self.next_index = index.saturating_add(1);
        out.push(&BlocksEvent::ContentBlockStart { index, content_block });
        index
    }

    fn open_block(&mut self, source: BlockSource<'_>, block: ContentBlock<'_>, out: &mut BlocksFrameWriter<'_, '_>) {
        let index = self.start_block(block, out);
        let BlockSource { task, output_index, part } = source;
        self.open_blocks.push(OpenBlock { task: task.clone(), output_index, part, index });
    }

    fn send_text_delta(&self, source: BlockSource<'_>, delta: TextDelta<'_>, out: &mut BlocksFrameWriter<'_, '_>) {
        if let Some(index) = self.open_index(source) {
            out.send_text_delta(index, delta);
        }
    }

    fn open_index(&self, source: BlockSource<'_>) -> Option<u32> {
        self.open_blocks.iter().find(|open| open.shows(source)).map(|open| open.index)
    }

    fn close_block(&mut self, source: BlockSource<'_>) -> Option<u32> {
        let position = self.open_blocks.iter().position(|open| open.shows(source))?;
        Some(self.open_blocks.remove(position).index)
    }
}

impl OpenBlock {
    fn shows(&self, source: BlockSource<'_>) -> bool {
        self.output_index == source.output_index && self.part == source.part && self.task == *source.task
    }
}

fn item_at(task: &TaskFold, output_index: u32) -> Option<&Item> {
    task.items.get(output_index as usize).map(|fold| &fold.item)
}

/// Whether this is the last text of its task's output.
fn is_last_text(task: &TaskFold, e: &TextEvent) -> bool {
    let (item, block) = (e.output_index as usize, e.block_index as usize);
    let following = task.items.get(item).map(|fold| fold.item.blocks().iter().skip(block + 1));
    item + 1 == task.items.len()
        && following.is_some_and(|mut following| !following.any(|block| matches!(block, Block::Text(_))))
}

struct ProcessingOutcome {
    status: &'static str,
    message: String,
}

/// The outcome of reading files. The run continues with those that could be read.
fn processing_outcome(item: &FileProcessing) -> ProcessingOutcome {
    let total = item.files.len();
    let read = item.files.iter().filter(|file| file.status == FileStatus::Completed).count();
    let interrupted = matches!(item.status, Some(ItemStatus::Incomplete | ItemStatus::Failed));
    let status = if interrupted || (read == 0 && total > 0) { "failed" } else { "completed" };
    let message = if read == total {
        format!("Processed {}", count_files(total))
    } else {
        format!("Processed {read} of {}", count_files(total))
    };
    ProcessingOutcome { status, message }
}

fn count_files(count: usize) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}
