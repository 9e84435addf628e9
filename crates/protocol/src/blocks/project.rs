//! Records → frames.
//!
//! A call is shown whole, so its block waits for the arguments' end, and a result's for the result's. A text of the root
//! that is whole stops only when something follows it, because only then is it known whether it was the answer
//! (`is_final`). A sub-agent's text never is, so that it stops at once.

use super::result::{self, Whose};
use super::wire::{ContentBlock, Delta, Details, Ending, Extras, File, Frame, StopReason};
use crate::burst::Burst;
use crate::reading::Reading;
use model::block::Block;
use model::event::{ApprovalRequested, DisplayMode, ErrorInfo, Event, FileProcessingUpdated, ItemEvent, TextEvent};
use model::fold::{RunFold, TaskFold};
use model::item::{FileProcessing, FileStatus, Item, ItemStatus};
use model::ports::{Frames, Projection};
use model::{ItemId, Record, TaskId};
use std::sync::Arc;
use std::time::Duration;

/// The projection's name in cursors.
pub const NAME: &str = "blocks";

/// Said at the end of a turn that somebody stopped. Clients know the sentence.
const STOPPED: &str = "Người dùng đã dừng cuộc trò chuyện. Gửi tin nhắn mới để tiếp tục";
/// Said at the end of a turn that went wrong. Clients know the sentence.
const FAILED: &str = "Đã xảy ra lỗi. Vui lòng thử lại.";

/// A thread as turns of content blocks. Never ends.
#[derive(Clone, Debug)]
pub struct Blocks {
    session: Arc<str>,
    reading: Reading,
    turn: Turn,
}

impl Blocks {
    /// The turns of a thread that its viewers know by this name.
    #[must_use]
    pub fn new(session: String) -> Self {
        Self { session: session.into(), reading: Reading::default(), turn: Turn::default() }
    }
}

impl Projection for Blocks {
    fn project(&mut self, record: &Record, out: &mut Frames) {
        let Self { session, reading, turn } = self;
        let mut burst = Burst::default();
        reading.take(record, |run, event| {
            if let Some(root) = run.root() {
                let out = &mut Out { burst: &mut burst, message_id: &root.id };
                match event {
                    Event::Created(e) if e.task_id == root.id => {
                        *turn = Turn::default();
                        out.begin(session, run, root);
                    }
                    _ => turn.see(run, event, out),
                }
            }
        });
        burst.write_lines(record, NAME, out);
    }

    fn boxed_clone(&self) -> Box<dyn Projection> {
        Box::new(self.clone())
    }
}

/// A turn as far as it was shown.
#[derive(Clone, Debug, Default)]
struct Turn {
    /// How many blocks have begun: the next one's index.
    begun: u32,
    /// Blocks that grow.
    open: Vec<Open>,
    /// The root's text that is whole, while nothing has followed it.
    held: Option<u32>,
    /// Calls of the provider's own tools that are shown and have no result yet.
    hosted: Vec<ItemId>,
}

/// A block that grows: which text, summary part or item it shows, and its index.
#[derive(Clone, Debug)]
struct Open {
    task: TaskId,
    output_index: u32,
    part: u32,
    index: u32,
}

impl Turn {
    fn see(&mut self, run: &RunFold, event: &Event, out: &mut Out<'_>) {
        let Some(task) = event.task_id().and_then(|id| run.task(id)) else { return };
        let is_root = task.spec.parent_task_id.is_none();
        if is_root && matches!(event, Event::StepStarted(_) | Event::ItemAdded(_)) {
            self.release(false, out);
        }
        match event {
            Event::ItemAdded(e) => self.item_added(task, e, out),
            Event::ItemDone(e) => self.item_done(run, task, e, out),
            Event::SummaryAdded(e) => {
                if shows_thinking(run) {
                    let Whose { subagent, parent_tool_use_id } = task.into();
                    let block = ContentBlock::Thinking { thinking: "", subagent, parent_tool_use_id };
                    self.grow((task, e.output_index, e.summary_index), block, out);
                    self.delta((task, e.output_index, e.summary_index), e.item.text(), Delta::thinking, out);
                }
            }
            Event::SummaryDelta(e) => {
                self.grown((task, e.output_index, e.summary_index), Delta::thinking(&e.delta), out);
            }
            Event::SummaryDone(e) => {
                if let Some(index) = self.close((task, e.output_index, e.summary_index)) {
                    out.stop(index, None);
                }
            }
            Event::TextAdded(e) => self.text_added(task, e, out),
            Event::TextDelta(e) => self.grown((task, e.output_index, e.block_index), Delta::text(&e.delta), out),
            Event::TextDone(e) => {
                let Some(index) = self.close((task, e.output_index, e.block_index)) else { return };
                // Something may have begun behind this text while it was growing.
                match is_root && is_last(task, e) {
                    true => self.held = Some(index),
                    false => out.stop(index, Some(false)),
                }
            }
            Event::ArgumentsDone(e) => {
                if let Some(Item::ToolCall(call)) = item(task, e.output_index) {
                    self.whole(result::tool_use(task, call), out);
                }
            }
            Event::HostedCallUpdated(e) if e.action.is_some() => self.hosted(task, e.output_index, out),
            // A tool that draws has begun; what it was asked for is not said before its end.
            Event::ImageAdded(e) => self.hosted(task, e.output_index, out),
            Event::FileProcessingUpdated(e) => self.file(task, e, out),
            Event::ApprovalRequested(e) => self.question(e, out),
            Event::Completed(e) if is_root => self.end(StopReason::EndTurn, e.duration_ms, out),
            Event::Incomplete(e) if is_root => self.end(StopReason::MaxTokens, e.duration_ms, out),
            Event::Failed(e) if is_root => {
                self.release(false, out);
                self.terminal(Delta::terminal(FAILED, went_wrong(&e.error)), out);
                self.end(StopReason::Error, e.duration_ms, out);
            }
            Event::Cancelled(e) if is_root => {
                self.release(false, out);
                self.terminal(Delta::terminal(STOPPED, Extras::UserStopped), out);
                self.end(StopReason::UserStopped, e.duration_ms, out);
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

    fn item_added(&mut self, task: &TaskFold, e: &ItemEvent, out: &mut Out<'_>) {
        match &e.item {
            Item::HostedCall(call) if call.action.is_some() => self.hosted(task, e.output_index, out),
            Item::FileProcessing(item) => {
                let files = item.files.iter().map(|file| File { url: &file.url }).collect();
                let block = ContentBlock::FileProcessing { status: "processing", files };
                self.grow((task, e.output_index, 0), block, out);
            }
            _ => {}
        }
    }

    fn item_done(&mut self, run: &RunFold, task: &TaskFold, e: &ItemEvent, out: &mut Out<'_>) {
        // The fold's, not the event's: that one leaves out what would repeat too much.
        match item(task, e.output_index) {
            Some(Item::ToolResult(result)) => {
                if let Some(block) = result::tool_result(run, task, result) {
                    self.whole(block, out);
                }
            }
            Some(Item::HostedCall(call)) => {
                self.hosted(task, e.output_index, out);
                self.hosted.retain(|shown| *shown != call.id);
                self.whole(result::hosted_result(task, call), out);
            }
            Some(Item::FileProcessing(files)) => {
                if let Some(index) = self.close((task, e.output_index, 0)) {
                    let (status, message) = processed(files);
                    out.delta(index, Delta::files(status, &message));
                    out.stop(index, None);
                }
            }
            _ => {}
        }
    }

    /// A text of a message. Texts of results are shown with their result.
    fn text_added(&mut self, task: &TaskFold, e: &TextEvent, out: &mut Out<'_>) {
        match item(task, e.output_index) {
            Some(item @ Item::Message(_)) => {
                let mut before = item.blocks().iter().take(e.block_index as usize);
                let is_part = before.any(|block| matches!(block, Block::Text(_)));
                let Whose { subagent, parent_tool_use_id } = task.into();
                let block = ContentBlock::Text { text: "", subagent, parent_tool_use_id, is_part };
                if task.spec.parent_task_id.is_none() && is_last(task, e) {
                    self.release(false, out);
                }
                self.grow((task, e.output_index, e.block_index), block, out);
                self.delta((task, e.output_index, e.block_index), e.item.block().text(), Delta::text, out);
            }
            Some(Item::HostedCall(_)) => self.hosted(task, e.output_index, out),
            _ => {}
        }
    }

    /// A tool of the provider's is shown, once.
    fn hosted(&mut self, task: &TaskFold, output_index: u32, out: &mut Out<'_>) {
        if let Some(Item::HostedCall(call)) = item(task, output_index)
            && !self.hosted.contains(&call.id)
        {
            self.hosted.push(call.id.clone());
            self.whole(result::hosted_use(task, call), out);
        }
    }

    /// A file moved on. How all of them came out is said at the end; which one failed, and why, is said here.
    fn file(&self, task: &TaskFold, e: &FileProcessingUpdated, out: &mut Out<'_>) {
        let Some(Item::FileProcessing(item)) = item(task, e.output_index) else { return };
        let message = match &e.message {
            Some(why) if e.status == FileStatus::Failed => format!("{}: {why}", e.url),
            _ if item.files.iter().all(|file| file.status != FileStatus::Processing) => return,
            Some(message) => message.clone(),
            None => processed(item).1,
        };
        self.grown((task, e.output_index, 0), Delta::files("processing", &message), out);
    }

    fn question(&mut self, e: &ApprovalRequested, out: &mut Out<'_>) {
        let block = ContentBlock::ApprovalRequest { approval_key: &e.key, tool_use_id: e.call_id.as_str() };
        let index = self.start(block, out);
        out.delta(index, Delta::question(&e.action_requests, &e.review_configs, e.timeout_seconds));
        out.stop(index, None);
    }

    fn terminal(&mut self, delta: Delta<'_>, out: &mut Out<'_>) {
        let index = self.start(ContentBlock::Terminal { text: "" }, out);
        out.delta(index, delta);
        out.stop(index, None);
    }

    fn end(&mut self, stop_reason: StopReason, duration_ms: u64, out: &mut Out<'_>) {
        // What still waits was the last thing said. Before an early end it was let go already.
        self.release(true, out);
        let message_id = out.message_id;
        out.push(&Frame::MessageDelta { delta: Ending { stop_reason }, message_id });
        out.push(&Frame::MessageStop { duration_ms, message_id });
    }

    /// Something follows the root's last text, or nothing ever will.
    fn release(&mut self, is_final: bool, out: &mut Out<'_>) {
        if let Some(index) = self.held.take() {
            out.stop(index, Some(is_final));
        }
    }

    /// A block that is whole from its start on.
    fn whole(&mut self, block: ContentBlock<'_>, out: &mut Out<'_>) {
        let index = self.start(block, out);
        out.stop(index, None);
    }

    fn start(&mut self, content_block: ContentBlock<'_>, out: &mut Out<'_>) -> u32 {
        let index = self.begun;
        self.begun = index.saturating_add(1);
        let message_id = out.message_id;
        out.push(&Frame::ContentBlockStart { index, content_block, message_id });
        index
    }

    /// A block that grows.
    fn grow(&mut self, (task, output_index, part): Place<'_>, block: ContentBlock<'_>, out: &mut Out<'_>) {
        let index = self.start(block, out);
        self.open.push(Open { task: task.id.clone(), output_index, part, index });
    }

    /// What a block has from its beginning on. Nearly always that is nothing, and clients take their text from deltas.
    fn delta<'a>(&self, place: Place<'_>, text: &'a str, make: impl Fn(&'a str) -> Delta<'a>, out: &mut Out<'_>) {
        if !text.is_empty() {
            self.grown(place, make(text), out);
        }
    }

    fn grown(&self, place: Place<'_>, delta: Delta<'_>, out: &mut Out<'_>) {
        if let Some(open) = self.open.iter().find(|open| open.is_at(place)) {
            out.delta(open.index, delta);
        }
    }

    fn close(&mut self, place: Place<'_>) -> Option<u32> {
        let at = self.open.iter().position(|open| open.is_at(place))?;
        Some(self.open.remove(at).index)
    }
}

/// A task, one of its items, and a part of that.
type Place<'a> = (&'a TaskFold, u32, u32);

impl Open {
    fn is_at(&self, (task, output_index, part): Place<'_>) -> bool {
        self.output_index == output_index && self.part == part && self.task == task.id
    }
}

/// The frames of one record, all of one turn.
struct Out<'a> {
    burst: &'a mut Burst,
    message_id: &'a TaskId,
}

impl Out<'_> {
    fn begin(&mut self, session_id: &str, run: &RunFold, root: &TaskFold) {
        self.push(&Frame::MessageStart {
            session_id,
            timestamp: Duration::from_millis(run.at).as_secs_f64(),
            display_mode: root.spec.display_mode,
            is_new_session_from_share: root.spec.origin.as_ref().is_some_and(|origin| origin.get("share").is_some()),
            message_id: self.message_id,
        });
    }

    fn delta(&mut self, index: u32, delta: Delta<'_>) {
        let message_id = self.message_id;
        self.push(&Frame::ContentBlockDelta { index, delta, message_id });
    }

    fn stop(&mut self, index: u32, is_final: Option<bool>) {
        let message_id = self.message_id;
        self.push(&Frame::ContentBlockStop { index, is_final, message_id });
    }

    fn push(&mut self, frame: &Frame<'_>) {
        // A line says itself what it is.
        self.burst.push("", frame);
    }
}

fn item(task: &TaskFold, output_index: u32) -> Option<&Item> {
    task.items.get(output_index as usize).map(|fold| &fold.item)
}

/// Is nothing behind this text in its task's output?
fn is_last(task: &TaskFold, e: &TextEvent) -> bool {
    let (item, block) = (e.output_index as usize, e.block_index as usize);
    let behind = task.items.get(item).map(|fold| fold.item.blocks().iter().skip(block + 1));
    item + 1 == task.items.len()
        && behind.is_some_and(|mut behind| !behind.any(|block| matches!(block, Block::Text(_))))
}

fn shows_thinking(run: &RunFold) -> bool {
    run.root().is_some_and(|root| root.spec.display_mode == DisplayMode::Agent)
}

fn went_wrong(error: &ErrorInfo) -> Extras<'_> {
    Extras::Error {
        code: &error.code,
        can_retry: error.retryable.unwrap_or_default(),
        error_type: "terminal",
        details: Details { error: &error.message },
    }
}

/// How the files came out. The run goes on with those that could be read.
fn processed(item: &FileProcessing) -> (&'static str, String) {
    let all = item.files.len();
    let read = item.files.iter().filter(|file| file.status == FileStatus::Completed).count();
    let cut = matches!(item.status, Some(ItemStatus::Incomplete | ItemStatus::Failed));
    let status = if cut || (read == 0 && all > 0) { "failed" } else { "completed" };
    let message =
        if read == all { format!("Processed {}", files(all)) } else { format!("Processed {read} of {}", files(all)) };
    (status, message)
}

fn files(count: usize) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}
