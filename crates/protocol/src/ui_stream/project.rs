//! Records → the chunks of a message.
//!
//! The message shows the root's items; a sub-agent is a call and a data part. `calls` has the calls and what they wait for,
//! `outputs` their results, `hosted` tools that the provider runs, `sources` what texts cite, `subagents` the sub-agents and
//! `ends` pauses and the end.
//!
//! The SDK looks for a call that is announced again in the last step only, and publishes a step with the next chunk that
//! changes the message. Both matter for [`ends`].

mod calls;
mod ends;
mod hosted;
mod outputs;
mod sources;
mod subagents;

pub(super) use ends::cancelled_chunks;

use super::UiVersion;
use super::wire::{UiChunk, UiChunkId, UiMessageMetadata, UiSink, image_media_type, input_parts};
use crate::citations::block_citations;
use crate::event_groups::terminal_events;
use crate::record_frames::{FrameFormat, RecordFrames};
use crate::run_reader::RunReader;
use calls::AnnouncedCalls;
use model::event::{
    Event, ImageDelta, ImageEvent, InputAdded, InputMessage, StepRetrying, SummaryEvent, TextEvent, ToolProgress,
};
use model::fold::{ItemFold, RunFold, TaskFold};
use model::item::{Block, Item, Message};
use model::json::{ExactValue, to_exact_value};
use model::ports::{Frames, Projection};
use model::{ItemId, Record, TaskId};
use serde_json::json;
use std::collections::BTreeSet;

/// The chunks of one run's segments. The stream ends with the last segment, or with the run.
#[derive(Clone, Debug)]
pub struct UiStreamProjection {
    run: TaskId,
    first: u32,
    last: u32,
    version: UiVersion,
    reader: RunReader,
    message: UiMessageState,
}

/// What the client has been shown so far, as far as later chunks depend on it.
#[derive(Clone, Debug, Default)]
struct UiMessageState {
    /// Counted from 1; 0 before the run.
    segment: u32,
    /// Whether the segment has ended, with a pause or with the run.
    has_segment_ended: bool,
    has_run_ended: bool,
    /// The number of steps that the message has.
    step_count: u32,
    calls: AnnouncedCalls,
    /// The open calls of the provider whose input was shown.
    hosted_inputs: Vec<ItemId>,
    /// The ids of the sources that were shown.
    sources: BTreeSet<String>,
    /// Those of the last step.
    step_sources: Vec<String>,
}

impl UiStreamProjection {
    /// The segments from `first` to `last`, counted from 1.
    pub fn new(run: TaskId, first: u32, last: u32, version: UiVersion) -> Self {
        let first = first.max(1);
        let (reader, message) = (RunReader::default(), UiMessageState::default());
        Self { run, first, last: last.max(first), version, reader, message }
    }

    /// Whether every chunk was made.
    pub const fn is_finished(&self) -> bool {
        self.message.has_run_ended || (self.message.has_segment_ended && self.message.segment >= self.last)
    }

    pub(super) fn fold(&self) -> &RunFold {
        self.reader.fold()
    }

    /// Passes the chunks of the next record to a sink.
    pub(super) fn read_record(&mut self, record: &Record, sink: &mut dyn UiSink) {
        if self.is_finished() || record.run != self.run {
            return;
        }
        let Self { reader, message, version, first, last, .. } = self;
        reader.read_record(record, |run, event| {
            let Some(root) = run.root() else { return };
            let mut shown = ShownSegments { sink: &mut *sink, segments: (*first, *last) };
            EventProjector { run, root, record, version: *version, message, sink: &mut shown }.on_event(event);
        });
    }
}

impl Projection for UiStreamProjection {
    fn project(&mut self, record: &Record, out: &mut Frames) {
        let format = FrameFormat::DataWithIds(self.version.projection_name());
        self.read_record(record, &mut RecordFrames::new(record, format, out));
        if self.is_finished() {
            out.finish();
        }
    }

    fn is_hidden(&self) -> bool {
        (1..self.first).contains(&self.message.segment)
    }

    fn boxed_clone(&self) -> Box<dyn Projection> {
        Box::new(self.clone())
    }
}

/// Passes on the chunks of some segments.
struct ShownSegments<'a> {
    sink: &'a mut dyn UiSink,
    segments: (u32, u32),
}

impl ShownSegments<'_> {
    fn push(&mut self, segment: u32, chunk: &UiChunk<'_>) {
        let (first, last) = self.segments;
        if (first..=last).contains(&segment) {
            self.sink.push(chunk);
        }
    }
}

/// Projects one event of a run.
struct EventProjector<'a, 'f> {
    run: &'a RunFold,
    root: &'a TaskFold,
    record: &'a Record,
    version: UiVersion,
    message: &'a mut UiMessageState,
    sink: &'a mut ShownSegments<'f>,
}

impl<'a> EventProjector<'a, '_> {
    fn on_event(&mut self, event: &Event) {
        match event {
            // These mean the same in every task.
            Event::StateSnapshot(_) | Event::StateDelta(_) => self.show_state(),
            Event::Custom(e) => {
                let data = Some(e.value.clone().into());
                self.push(&UiChunk { data, ..UiChunk::new(custom_chunk_type(&e.name)) });
            }
            Event::ToolProgress(e) => self.on_tool_progress(e),
            Event::Retrying(e) => self.on_retrying(e),
            _ if event.task_id() == Some(&self.root.id) => self.on_root_event(event),
            _ => {
                let Some(task) = event.task_id().and_then(|id| self.run.task(id)) else { return };
                self.on_subagent_event(task, event);
            }
        }
    }

    fn on_root_event(&mut self, event: &Event) {
        match event {
            Event::Created(_) => self.start_message(),
            Event::Resumed(_) => self.on_resumed(),
            Event::StepStarted(_) => self.start_step(),
            Event::StepDone(_) => self.push(&UiChunk::new("finish-step")),
            Event::SummaryAdded(e) => self.on_summary_added(e),
            Event::SummaryDelta(e) => {
                self.push_delta("reasoning-delta", UiChunkId::Part(&e.item_id, e.summary_index), &e.delta);
            }
            Event::SummaryDone(e) => self.push_part("reasoning-end", UiChunkId::Part(&e.item_id, e.summary_index)),
            Event::ItemAdded(e) => self.on_item_added(&e.item),
            Event::ArgumentsDelta(e) => self.on_arguments_delta(e.output_index, &e.delta),
            Event::ArgumentsDone(e) => self.on_arguments_done(e.output_index),
            Event::HostedCallUpdated(e) => self.on_hosted_call_updated(e.output_index),
            Event::FileProcessingUpdated(e) => self.show_files(e.output_index),
            Event::TextAdded(e) => self.on_text_added(e),
            Event::TextDelta(e) => self.on_text_delta(e.output_index, e.block_index, &e.delta),
            Event::AnnotationAdded(e) => {
                if self.message_at(e.output_index).is_some() {
                    self.show_source(&e.annotation);
                }
            }
            Event::TextDone(e) => self.on_text_done(e),
            Event::ImageAdded(e) => {
                if let Some(Item::ToolResult(result)) = self.item_at(e.output_index).map(|fold| &fold.item) {
                    self.on_result_block_added(result, e.block_index);
                }
            }
            Event::ImageDelta(e) => self.on_image_delta(e),
            Event::ImageDone(e) => self.on_image_done(e),
            Event::ItemDone(e) => self.on_item_done(e.output_index),
            Event::ToolStarted(e) => self.on_tool_started(self.root, e),
            Event::AgentUpdated(e) => {
                let data = json!({"agent": e.agent, "from": e.from});
                self.push(&UiChunk { data: Some(data.into()), ..UiChunk::new("data-agent") });
                let agent = Some(e.agent.as_str());
                self.push_metadata(UiMessageMetadata { agent, ..UiMessageMetadata::default() });
            }
            Event::InputAdded(e) => self.on_input_added(e),
            Event::ApprovalRequested(e) => self.on_approval_requested(self.root, e),
            Event::ApprovalResolved(e) => self.on_approval_resolved(self.root, e),
            Event::Recovered(e) => self.on_recovered(e),
            Event::Paused(e) => self.on_paused(&e.pending),
            terminal_events!() => self.on_end(event),
            // Exhaustive on purpose: a new event is either placed above or in `on_event`, or skipped here by name.
            Event::StateSnapshot(_)
            | Event::StateDelta(_)
            | Event::Custom(_)
            | Event::ToolProgress(_)
            | Event::Retrying(_)
            | Event::Started(_)
            | Event::ProviderEvent(_)
            | Event::Cancelling(_)
            | Event::HistoryCompacted(_)
            | Event::RunHidden(_)
            | Event::Unknown(_) => {}
        }
    }

    fn start_message(&mut self) {
        self.message.segment = 1;
        let root = self.root;
        let metadata = UiMessageMetadata {
            run_id: Some(&root.id),
            thread_id: Some(&root.spec.thread_id),
            agent: Some(&root.spec.agent),
            created_at: Some(self.record.at),
            ..UiMessageMetadata::default()
        };
        let message_id = Some(root.id.as_str());
        self.push(&UiChunk { message_id, message_metadata: Some(metadata), ..UiChunk::new("start") });
    }

    fn start_step(&mut self) {
        self.message.step_count = self.message.step_count.saturating_add(1);
        self.message.step_sources.clear();
        self.push(&UiChunk::new("start-step"));
    }

    fn on_summary_added(&mut self, e: &SummaryEvent) {
        let id = UiChunkId::Part(&e.item_id, e.summary_index);
        self.push_part("reasoning-start", id);
        self.push_delta("reasoning-delta", id, e.item.text());
    }

    fn on_item_added(&mut self, item: &Item) {
        match item {
            Item::ToolCall(call) => self.announce_call(call, None),
            Item::HostedCall(call) => self.on_hosted_call_added(call),
            Item::FileProcessing(item) => self.push_files(item),
            Item::Reasoning(_) | Item::ToolResult(_) | Item::Message(_) => {}
        }
    }

    /// The item of a `done` event may be abbreviated; the fold's is complete.
    fn on_item_done(&mut self, output_index: u32) {
        let Some(fold) = self.item_at(output_index) else { return };
        match &fold.item {
            Item::ToolCall(call) => self.on_call_done(fold, call),
            Item::ToolResult(result) => self.on_result_done(self.root, result),
            Item::HostedCall(call) => self.on_hosted_call_done(call),
            Item::FileProcessing(item) => self.push_files(item),
            Item::Reasoning(_) | Item::Message(_) => {}
        }
    }

    fn on_text_added(&mut self, e: &TextEvent) {
        match self.item_at(e.output_index).map(|fold| &fold.item) {
            Some(Item::Message(message)) => {
                let id = UiChunkId::Part(&message.id, e.block_index);
                self.push_part("text-start", id);
                self.push_delta("text-delta", id, e.item.block().text());
            }
            Some(Item::ToolResult(result)) => self.on_result_block_added(result, e.block_index),
            _ => {}
        }
    }

    fn on_text_delta(&mut self, output_index: u32, block_index: u32, delta: &str) {
        match self.item_at(output_index).map(|fold| &fold.item) {
            Some(Item::Message(message)) => {
                self.push_delta("text-delta", UiChunkId::Part(&message.id, block_index), delta);
            }
            Some(Item::ToolResult(result)) => self.show_output_delta(result, block_index, delta),
            _ => {}
        }
    }

    fn on_text_done(&mut self, e: &TextEvent) {
        let Some(fold) = self.item_at(e.output_index) else { return };
        match (&fold.item, fold.item.blocks().get(e.block_index as usize)) {
            (Item::Message(_), Some(Block::Text(block))) => {
                let citations = block_citations(block);
                self.push_text_end(UiChunkId::Part(&e.item_id, e.block_index), citations);
            }
            (Item::ToolResult(result), _) => self.show_partial_output(self.root, result),
            _ => {}
        }
    }

    fn on_image_delta(&mut self, e: &ImageDelta) {
        match self.item_at(e.output_index).map(|fold| &fold.item) {
            Some(Item::ToolResult(result)) => self.show_partial_output(self.root, result),
            Some(Item::HostedCall(call)) => self.show_partial_image(call),
            _ => {}
        }
    }

    fn on_image_done(&mut self, e: &ImageEvent) {
        match self.item_at(e.output_index).map(|fold| &fold.item) {
            Some(Item::Message(_) | Item::HostedCall(_)) => {
                let url = e.item.block().image_url.url.as_str();
                let (url, media_type) = (Some(url), Some(image_media_type(url)));
                self.push(&UiChunk { url, media_type, ..UiChunk::new("file") });
            }
            Some(Item::ToolResult(result)) => self.show_partial_output(self.root, result),
            _ => {}
        }
    }

    fn on_input_added(&mut self, e: &InputAdded) {
        e.input.iter().for_each(|message| self.show_steering(message));
    }

    fn show_steering(&mut self, message: &InputMessage) {
        let parts = input_parts(message);
        let id = Some(UiChunkId::Name(message.id.as_str()));
        let chunk = match self.version {
            UiVersion::Six => {
                let data = Some(to_exact_value(&json!({ "parts": parts })));
                UiChunk { id, data, ..UiChunk::new("data-steering") }
            }
            UiVersion::Seven => UiChunk { id, parts: Some(parts), ..UiChunk::new("steering-message") },
        };
        self.push(&chunk);
    }

    fn on_tool_progress(&mut self, e: &ToolProgress) {
        let ToolProgress { call_id, message, progress, total, .. } = e;
        let data = json!({"toolCallId": call_id, "message": message, "progress": progress, "total": total});
        self.push_transient("data-tool-progress", data.into());
    }

    fn on_retrying(&mut self, e: &StepRetrying) {
        let error = json!({"code": e.error.code, "message": e.error.message});
        let data = json!({"taskId": e.task_id, "attempt": e.attempt, "notBefore": e.not_before, "error": error});
        self.push_transient("data-retry", data.into());
    }

    fn show_state(&mut self) {
        let Some(state) = &self.run.state else { return };
        let (id, data) = (Some(UiChunkId::Name("state")), Some(state.clone().into()));
        self.push(&UiChunk { id, data, ..UiChunk::new("data-state") });
    }

    fn show_files(&mut self, output_index: u32) {
        if let Some(Item::FileProcessing(item)) = self.item_at(output_index).map(|fold| &fold.item) {
            self.push_files(item);
        }
    }

    fn push_files(&mut self, item: &model::item::FileProcessing) {
        let (id, data) =
            (Some(UiChunkId::Name(item.id.as_str())), Some(to_exact_value(&json!({ "files": item.files }))));
        self.push(&UiChunk { id, data, ..UiChunk::new("data-file-processing") });
    }

    fn item_at(&self, output_index: u32) -> Option<&'a ItemFold> {
        self.root.items.get(output_index as usize)
    }

    fn message_at(&self, output_index: u32) -> Option<&'a Message> {
        match &self.item_at(output_index)?.item {
            Item::Message(message) => Some(message),
            _ => None,
        }
    }

    fn push_part(&mut self, chunk_type: &'static str, id: UiChunkId<'_>) {
        self.push(&UiChunk { id: Some(id), ..UiChunk::new(chunk_type) });
    }

    fn push_delta(&mut self, chunk_type: &'static str, id: UiChunkId<'_>, delta: &str) {
        if !delta.is_empty() {
            self.push(&UiChunk { id: Some(id), delta: Some(delta), ..UiChunk::new(chunk_type) });
        }
    }

    fn push_transient(&mut self, chunk_type: &'static str, data: ExactValue) {
        self.push(&UiChunk { data: Some(data), transient: Some(true), ..UiChunk::new(chunk_type) });
    }

    fn push_metadata(&mut self, metadata: UiMessageMetadata<'_>) {
        self.push(&UiChunk { message_metadata: Some(metadata), ..UiChunk::new("message-metadata") });
    }

    fn push(&mut self, chunk: &UiChunk<'_>) {
        self.sink.push(self.message.segment, chunk);
    }
}

/// The type of an application's chunk. The SDK takes any name; front ends use them as identifiers.
fn custom_chunk_type(name: &str) -> String {
    let name = name.strip_prefix("data-").unwrap_or(name);
    let is_plain = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '-');
    let name: String = name.chars().map(|character| if is_plain(character) { character } else { '-' }).collect();
    format!("data-{}", if name.is_empty() { "custom" } else { &name })
}
