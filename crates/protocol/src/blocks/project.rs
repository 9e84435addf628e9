//! Records → frames.
//!
//! A call is shown whole, so its block waits for the arguments' end, and a result's for the result's. A text of the root
//! that is whole stops only when something follows it, because only then is it known whether it was the answer
//! (`is_final`). A sub-agent's text never is, so that it stops at once.

use super::tool_blocks::{self, BlockOwner};
use super::wire::{
    BlocksDelta, BlocksFile, BlocksFrame, BlocksStopReason, ContentBlock, MessageEnd, TerminalErrorDetails,
    TerminalExtras,
};
use crate::record_frames::RecordFrames;
use crate::run_reader::RunReader;
use model::error::ErrorInfo;
use model::event::{ApprovalRequested, DisplayMode, Event, FileProcessingUpdated, ItemEvent, TextEvent};
use model::fold::{RunFold, TaskFold};
use model::item::Block;
use model::item::{FileProcessing, FileStatus, Item, ItemStatus};
use model::ports::{Frames, Projection};
use model::{ItemId, Record, TaskId};
use std::sync::Arc;
use std::time::Duration;

/// The projection's name in cursors.
pub const BLOCKS_PROJECTION: &str = "blocks";

/// Said at the end of a turn that somebody stopped. Clients know the sentence.
const CANCELLED_TEXT: &str = "Người dùng đã dừng cuộc trò chuyện. Gửi tin nhắn mới để tiếp tục";
/// Said at the end of a turn that went wrong. Clients know the sentence.
const FAILED_TEXT: &str = "Đã xảy ra lỗi. Vui lòng thử lại.";

/// A thread as turns of content blocks. Never ends.
#[derive(Clone, Debug)]
pub struct BlocksProjection {
    session: Arc<str>,
    reader: RunReader,
    turn: BlocksTurn,
}

impl BlocksProjection {
    /// The turns of a thread that its viewers know by this name.
    #[must_use]
    pub fn new(session: String) -> Self {
        Self { session: session.into(), reader: RunReader::default(), turn: BlocksTurn::default() }
    }
}

impl Projection for BlocksProjection {
    fn project(&mut self, record: &Record, out: &mut Frames) {
        let Self { session, reader: reading, turn } = self;
        let mut burst = RecordFrames::default();
        reading.read_record(record, |run, event| {
            if let Some(root) = run.root() {
                let out = &mut BlocksFrameWriter { frames: &mut burst, message_id: &root.id };
                match event {
                    Event::Created(e) if e.task_id == root.id => {
                        *turn = BlocksTurn::default();
                        out.start_message(session, run, root);
                    }
                    _ => turn.on_event(run, event, out),
                }
            }
        });
        burst.write_json_lines(record, BLOCKS_PROJECTION, out);
    }

    fn boxed_clone(&self) -> Box<dyn Projection> {
        Box::new(self.clone())
    }
}

/// A turn as far as it was shown.
#[derive(Clone, Debug, Default)]
struct BlocksTurn {
    /// How many blocks have begun: the next one's index.
    next_index: u32,
    /// Blocks that grow.
    open_blocks: Vec<OpenBlock>,
    /// The root's text that is whole, while nothing has followed it.
    held_text: Option<u32>,
    /// Calls of the provider's own tools that are shown and have no result yet.
    open_hosted_calls: Vec<ItemId>,
}

/// A block that grows: which text, summary part or item it shows, and its index.
#[derive(Clone, Debug)]
struct OpenBlock {
    task: TaskId,
    output_index: u32,
    part: u32,
    index: u32,
}

impl BlocksTurn {
    fn on_event(&mut self, run: &RunFold, event: &Event, out: &mut BlocksFrameWriter<'_>) {
        let Some(task) = event.task_id().and_then(|id| run.task(id)) else { return };
        let is_root = task.spec.parent_task_id.is_none();
        if is_root && matches!(event, Event::StepStarted(_) | Event::ItemAdded(_)) {
            self.stop_held_text(false, out);
        }
        match event {
            Event::ItemAdded(e) => self.on_item_added(task, e, out),
            Event::ItemDone(e) => self.on_item_done(run, task, e, out),
            Event::SummaryAdded(e) => {
                if shows_thinking(run) {
                    let BlockOwner { subagent, parent_tool_use_id } = task.into();
                    let block = ContentBlock::Thinking { thinking: "", subagent, parent_tool_use_id };
                    self.open_block((task, e.output_index, e.summary_index), block, out);
                    self.send_initial_text(
                        (task, e.output_index, e.summary_index),
                        e.item.text(),
                        BlocksDelta::thinking,
                        out,
                    );
                }
            }
            Event::SummaryDelta(e) => {
                self.send_delta((task, e.output_index, e.summary_index), BlocksDelta::thinking(&e.delta), out);
            }
            Event::SummaryDone(e) => {
                if let Some(index) = self.close_block((task, e.output_index, e.summary_index)) {
                    out.stop_block(index, None);
                }
            }
            Event::TextAdded(e) => self.on_text_added(task, e, out),
            Event::TextDelta(e) => {
                self.send_delta((task, e.output_index, e.block_index), BlocksDelta::text(&e.delta), out)
            }
            Event::TextDone(e) => {
                let Some(index) = self.close_block((task, e.output_index, e.block_index)) else { return };
                // Something may have begun behind this text while it was growing.
                match is_root && is_last_text(task, e) {
                    true => self.held_text = Some(index),
                    false => out.stop_block(index, Some(false)),
                }
            }
            Event::ArgumentsDone(e) => {
                if let Some(Item::ToolCall(call)) = item_at(task, e.output_index) {
                    self.add_complete_block(tool_blocks::tool_use_block(task, call), out);
                }
            }
            Event::HostedCallUpdated(e) if e.action.is_some() => self.show_hosted_call(task, e.output_index, out),
            // A tool that draws has begun; what it was asked for is not said before its end.
            Event::ImageAdded(e) => self.show_hosted_call(task, e.output_index, out),
            Event::FileProcessingUpdated(e) => self.on_file_updated(task, e, out),
            Event::ApprovalRequested(e) => self.add_approval_request(e, out),
            Event::Completed(e) if is_root => self.finish(BlocksStopReason::EndTurn, e.duration_ms, out),
            Event::Incomplete(e) if is_root => self.finish(BlocksStopReason::MaxTokens, e.duration_ms, out),
            Event::Failed(e) if is_root => {
                self.stop_held_text(false, out);
                self.add_terminal_text(BlocksDelta::terminal(FAILED_TEXT, error_extras(&e.error)), out);
                self.finish(BlocksStopReason::Error, e.duration_ms, out);
            }
            Event::Cancelled(e) if is_root => {
                self.stop_held_text(false, out);
                self.add_terminal_text(BlocksDelta::terminal(CANCELLED_TEXT, TerminalExtras::UserStopped), out);
                self.finish(BlocksStopReason::UserStopped, e.duration_ms, out);
            }
            // Exhaustive on purpose: a new event must be placed, or skipped by name.
            Event::Completed(_)
            | Event::Incomplete(_)
            | Event::Failed(_)
            | Event::Cancelled(_)
            | Event::HostedCallUpdated(_)
            | Event::Created(_)
            | Event::Started(_)
            | Event::StepStarted(_)
            | Event::StepDone(_)
            | Event::Retrying(_)
            | Event::ArgumentsDelta(_)
            | Event::AnnotationAdded(_)
            | Event::ImageDelta(_)
            | Event::ImageDone(_)
            | Event::ToolStarted(_)
            | Event::ToolProgress(_)
            | Event::AgentUpdated(_)
            | Event::InputAdded(_)
            | Event::ApprovalResolved(_)
            | Event::Paused(_)
            | Event::Resumed(_)
            | Event::StateSnapshot(_)
            | Event::StateDelta(_)
            | Event::Custom(_)
            | Event::ProviderEvent(_)
            | Event::Cancelling(_)
            | Event::Recovered(_)
            | Event::HistoryCompacted(_)
            | Event::RunHidden(_)
            | Event::Unknown(_) => {}
        }
    }

    fn on_item_added(&mut self, task: &TaskFold, e: &ItemEvent, out: &mut BlocksFrameWriter<'_>) {
        match &e.item {
            Item::HostedCall(call) if call.action.is_some() => self.show_hosted_call(task, e.output_index, out),
            Item::FileProcessing(item) => {
                let files = item.files.iter().map(|file| BlocksFile { url: &file.url }).collect();
                let block = ContentBlock::FileProcessing { status: "processing", files };
                self.open_block((task, e.output_index, 0), block, out);
            }
            _ => {}
        }
    }

    fn on_item_done(&mut self, run: &RunFold, task: &TaskFold, e: &ItemEvent, out: &mut BlocksFrameWriter<'_>) {
        // The fold's, not the event's: that one leaves out what would repeat too much.
        match item_at(task, e.output_index) {
            Some(Item::ToolResult(result)) => {
                if let Some(block) = tool_blocks::tool_result_block(run, task, result) {
                    self.add_complete_block(block, out);
                }
            }
            Some(Item::HostedCall(call)) => {
                self.show_hosted_call(task, e.output_index, out);
                self.open_hosted_calls.retain(|shown| *shown != call.id);
                self.add_complete_block(tool_blocks::hosted_result_block(task, call), out);
            }
            Some(Item::FileProcessing(files)) => {
                if let Some(index) = self.close_block((task, e.output_index, 0)) {
                    let (status, message) = processing_outcome(files);
                    out.send_delta(index, BlocksDelta::file_status(status, &message));
                    out.stop_block(index, None);
                }
            }
            _ => {}
        }
    }

    /// A text of a message. Texts of results are shown with their result.
    fn on_text_added(&mut self, task: &TaskFold, e: &TextEvent, out: &mut BlocksFrameWriter<'_>) {
        match item_at(task, e.output_index) {
            Some(item @ Item::Message(_)) => {
                let mut before = item.blocks().iter().take(e.block_index as usize);
                let is_part = before.any(|block| matches!(block, Block::Text(_)));
                let BlockOwner { subagent, parent_tool_use_id } = task.into();
                let block = ContentBlock::Text { text: "", subagent, parent_tool_use_id, is_part };
                if task.spec.parent_task_id.is_none() && is_last_text(task, e) {
                    self.stop_held_text(false, out);
                }
                self.open_block((task, e.output_index, e.block_index), block, out);
                self.send_initial_text(
                    (task, e.output_index, e.block_index),
                    e.item.block().text(),
                    BlocksDelta::text,
                    out,
                );
            }
            Some(Item::HostedCall(_)) => self.show_hosted_call(task, e.output_index, out),
            _ => {}
        }
    }

    /// A tool of the provider's is shown, once.
    fn show_hosted_call(&mut self, task: &TaskFold, output_index: u32, out: &mut BlocksFrameWriter<'_>) {
        if let Some(Item::HostedCall(call)) = item_at(task, output_index)
            && !self.open_hosted_calls.contains(&call.id)
        {
            self.open_hosted_calls.push(call.id.clone());
            self.add_complete_block(tool_blocks::hosted_use_block(task, call), out);
        }
    }

    /// A file moved on. How all of them came out is said at the end; which one failed, and why, is said here.
    fn on_file_updated(&self, task: &TaskFold, e: &FileProcessingUpdated, out: &mut BlocksFrameWriter<'_>) {
        let Some(Item::FileProcessing(item)) = item_at(task, e.output_index) else { return };
        let message = match &e.message {
            Some(why) if e.status == FileStatus::Failed => format!("{}: {why}", e.url),
            _ if item.files.iter().all(|file| file.status != FileStatus::Processing) => return,
            Some(message) => message.clone(),
            None => processing_outcome(item).1,
        };
        self.send_delta((task, e.output_index, 0), BlocksDelta::file_status("processing", &message), out);
    }

    fn add_approval_request(&mut self, e: &ApprovalRequested, out: &mut BlocksFrameWriter<'_>) {
        let block = ContentBlock::ApprovalRequest { approval_key: &e.key, tool_use_id: e.call_id.as_str() };
        let index = self.start_block(block, out);
        out.send_delta(index, BlocksDelta::approval_request(&e.action_requests, &e.review_configs, e.timeout_seconds));
        out.stop_block(index, None);
    }

    fn add_terminal_text(&mut self, delta: BlocksDelta<'_>, out: &mut BlocksFrameWriter<'_>) {
        let index = self.start_block(ContentBlock::Terminal { text: "" }, out);
        out.send_delta(index, delta);
        out.stop_block(index, None);
    }

    fn finish(&mut self, stop_reason: BlocksStopReason, duration_ms: u64, out: &mut BlocksFrameWriter<'_>) {
        // What still waits was the last thing said. Before an early end it was let go already.
        self.stop_held_text(true, out);
        let message_id = out.message_id;
        out.push(&BlocksFrame::MessageDelta { delta: MessageEnd { stop_reason }, message_id });
        out.push(&BlocksFrame::MessageStop { duration_ms, message_id });
    }

    /// Something follows the root's last text, or nothing ever will.
    fn stop_held_text(&mut self, is_final: bool, out: &mut BlocksFrameWriter<'_>) {
        if let Some(index) = self.held_text.take() {
            out.stop_block(index, Some(is_final));
        }
    }

    /// A block that is whole from its start on.
    fn add_complete_block(&mut self, block: ContentBlock<'_>, out: &mut BlocksFrameWriter<'_>) {
        let index = self.start_block(block, out);
        out.stop_block(index, None);
    }

    fn start_block(&mut self, content_block: ContentBlock<'_>, out: &mut BlocksFrameWriter<'_>) -> u32 {
        let index = self.next_index;
        self.next_index = index.saturating_add(1);
        let message_id = out.message_id;
        out.push(&BlocksFrame::ContentBlockStart { index, content_block, message_id });
        index
    }

    /// A block that grows.
    fn open_block(
        &mut self,
        (task, output_index, part): BlockSource<'_>,
        block: ContentBlock<'_>,
        out: &mut BlocksFrameWriter<'_>,
    ) {
        let index = self.start_block(block, out);
        self.open_blocks.push(OpenBlock { task: task.id.clone(), output_index, part, index });
    }

    /// What a block has from its beginning on. Nearly always that is nothing, and clients take their text from deltas.
    fn send_initial_text<'a>(
        &self,
        place: BlockSource<'_>,
        text: &'a str,
        make: impl Fn(&'a str) -> BlocksDelta<'a>,
        out: &mut BlocksFrameWriter<'_>,
    ) {
        if !text.is_empty() {
            self.send_delta(place, make(text), out);
        }
    }

    fn send_delta(&self, place: BlockSource<'_>, delta: BlocksDelta<'_>, out: &mut BlocksFrameWriter<'_>) {
        if let Some(open) = self.open_blocks.iter().find(|open| open.is_at(place)) {
            out.send_delta(open.index, delta);
        }
    }

    fn close_block(&mut self, place: BlockSource<'_>) -> Option<u32> {
        let at = self.open_blocks.iter().position(|open| open.is_at(place))?;
        Some(self.open_blocks.remove(at).index)
    }
}

/// A task, one of its items, and a part of that.
type BlockSource<'a> = (&'a TaskFold, u32, u32);

impl OpenBlock {
    fn is_at(&self, (task, output_index, part): BlockSource<'_>) -> bool {
        self.output_index == output_index && self.part == part && self.task == task.id
    }
}

/// The frames of one record, all of one turn.
struct BlocksFrameWriter<'a> {
    frames: &'a mut RecordFrames,
    message_id: &'a TaskId,
}

impl BlocksFrameWriter<'_> {
    fn start_message(&mut self, session_id: &str, run: &RunFold, root: &TaskFold) {
        self.push(&BlocksFrame::MessageStart {
            session_id,
            timestamp: Duration::from_millis(run.at).as_secs_f64(),
            display_mode: root.spec.display_mode,
            is_new_session_from_share: root.spec.origin.as_ref().is_some_and(|origin| origin.get("share").is_some()),
            message_id: self.message_id,
        });
    }

    fn send_delta(&mut self, index: u32, delta: BlocksDelta<'_>) {
        let message_id = self.message_id;
        self.push(&BlocksFrame::ContentBlockDelta { index, delta, message_id });
    }

    fn stop_block(&mut self, index: u32, is_final: Option<bool>) {
        let message_id = self.message_id;
        self.push(&BlocksFrame::ContentBlockStop { index, is_final, message_id });
    }

    fn push(&mut self, frame: &BlocksFrame<'_>) {
        // A line says itself what it is.
        self.frames.push("", frame);
    }
}

fn item_at(task: &TaskFold, output_index: u32) -> Option<&Item> {
    task.items.get(output_index as usize).map(|fold| &fold.item)
}

/// Is nothing behind this text in its task's output?
fn is_last_text(task: &TaskFold, e: &TextEvent) -> bool {
    let (item, block) = (e.output_index as usize, e.block_index as usize);
    let behind = task.items.get(item).map(|fold| fold.item.blocks().iter().skip(block + 1));
    item + 1 == task.items.len()
        && behind.is_some_and(|mut behind| !behind.any(|block| matches!(block, Block::Text(_))))
}

fn shows_thinking(run: &RunFold) -> bool {
    run.root().is_some_and(|root| root.spec.display_mode == DisplayMode::Agent)
}

fn error_extras(error: &ErrorInfo) -> TerminalExtras<'_> {
    TerminalExtras::Error {
        code: &error.code,
        can_retry: error.retryable.unwrap_or_default(),
        error_type: "terminal",
        details: TerminalErrorDetails { error: &error.message },
    }
}

/// How the files came out. The run goes on with those that could be read.
fn processing_outcome(item: &FileProcessing) -> (&'static str, String) {
    let all = item.files.len();
    let read = item.files.iter().filter(|file| file.status == FileStatus::Completed).count();
    let cut = matches!(item.status, Some(ItemStatus::Incomplete | ItemStatus::Failed));
    let status = if cut || (read == 0 && all > 0) { "failed" } else { "completed" };
    let message = if read == all {
        format!("Processed {}", count_files(all))
    } else {
        format!("Processed {read} of {}", count_files(all))
    };
    (status, message)
}

fn count_files(count: usize) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}
