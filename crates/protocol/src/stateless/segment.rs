//! One segment of a run, part by part: each is opened, grows and is closed before the next one is opened.
//!
//! Only what the root says and thinks is told word by word. What the server does for it is told whole: a call when it
//! starts, with the arguments that it runs with, and its result when it ends. A call that the client answers is told when
//! the run waits for it, never before: one that was cut, or that had the wrong arguments, is none of the client's
//! business. So a sub-agent's call of a client's tool is told, too; else nothing of sub-agents is.
//!
//! Where a part's words are, is known by the fold: nothing is kept twice, and parts that overlap in the log wait their
//! turn without being collected.

use super::failure::{RunFailure, RunFailureKind};
use crate::run_reader::RunReader;
use model::content::{Annotation, TextBlock};
use model::event::{Event, LimitReason, PendingKind, PendingRequest, TaskPaused};
use model::fold::{ItemFold, RunFold, TaskFold};
use model::item::Block;
use model::item::{CallKind, Item, ItemStatus, ResultStatus, ToolCall};
use model::usage::Usage;
use model::{CallId, Millis, Record, TaskId};
use serde_json::{Value, json};
use std::collections::HashSet;

/// A segment, as far as it was read.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    run: TaskId,
    number: u32,
    reader: RunReader,
    /// The segment that the log is in.
    current_number: u32,
    started_at: Option<Millis>,
    /// What is told, in this order.
    parts: Vec<PartProgress>,
    /// The first of them that is not closed.
    next_part: usize,
    /// How many were opened.
    next_index: u32,
    /// The server's calls that were told, in earlier segments, too.
    reported_calls: HashSet<CallId>,
    usage: Usage,
    end: Option<SegmentEnd>,
}

/// A part, and how much of it was told.
#[derive(Clone, Debug)]
pub(crate) struct PartProgress {
    pub(crate) part: SegmentPart,
    /// Its number among those that were opened.
    pub(crate) index: Option<u32>,
    bytes_sent: usize,
    annotations_sent: usize,
}

/// Something that is told. Places are those in the root's output.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SegmentPart {
    /// A part of what was thought.
    Reasoning { item: usize, part: usize },
    /// A text block of a message.
    Text { item: usize, block: usize },
    /// A picture in a message.
    Image { item: usize, block: usize },
    /// A call that the client answers.
    ClientCall { call_id: CallId, name: String, arguments: String },
    /// A call that the server answers.
    ServerCall { id: String, name: String, arguments: String },
    /// What came of it.
    ServerResult { item: usize },
}

/// One thing that is told next. Numbers are places among the parts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SegmentEvent {
    /// The segment begins.
    Started,
    /// A part begins.
    PartStarted(usize),
    /// More of it.
    PartDelta(usize, String),
    /// It refers to something.
    Annotation(usize, Annotation),
    /// It is whole.
    PartDone(usize),
    /// The segment ends.
    Finished,
}

/// How a segment ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SegmentEnd {
    /// All was said.
    Completed,
    /// The model declined.
    Refused,
    /// It is the client's turn to run its tools.
    ToolCalls,
    /// A limit.
    Limit,
    /// The provider's filter.
    ContentFilter,
    /// It went wrong.
    Failed(RunFailure),
}

impl Segment {
    pub(crate) fn new(run: TaskId, segment: u32) -> Self {
        Self {
            run,
            number: segment,
            reader: RunReader::default(),
            current_number: 1,
            started_at: None,
            parts: Vec::new(),
            next_part: 0,
            next_index: 0,
            reported_calls: HashSet::new(),
            usage: Usage::default(),
            end: None,
        }
    }

    /// What a record has to tell.
    pub(crate) fn read_record(&mut self, record: &Record) -> Vec<SegmentEvent> {
        let mut told = Vec::new();
        if record.run != self.run || self.end.is_some() {
            return told;
        }
        let had_begun = self.started_at.is_some();
        let mut reading = std::mem::take(&mut self.reader);
        reading.read_record(record, |fold, event| self.on_event(fold, event, record.at));
        if self.started_at.is_some() {
            if !had_begun {
                told.push(SegmentEvent::Started);
            }
            self.emit_events(reading.fold(), &mut told);
            if self.end.is_some() {
                told.push(SegmentEvent::Finished);
            }
        }
        self.reader = reading;
        told
    }

    pub(crate) fn run_and_number(&self) -> (&TaskId, u32) {
        (&self.run, self.number)
    }

    /// The agent that was asked.
    pub(crate) fn model(&self) -> &str {
        self.reader.fold().root().map_or("", |root| root.spec.agent.as_str())
    }

    /// When it began.
    pub(crate) fn started_at(&self) -> Millis {
        self.started_at.unwrap_or_default()
    }

    /// What its turns cost, those of sub-agents included.
    pub(crate) fn usage(&self) -> Usage {
        self.usage
    }

    pub(crate) fn end(&self) -> Option<&SegmentEnd> {
        self.end.as_ref()
    }

    pub(crate) fn failure(&self) -> Option<&RunFailure> {
        match &self.end {
            Some(SegmentEnd::Failed(failure)) => Some(failure),
            _ => None,
        }
    }

    /// A part, by its place.
    pub(crate) fn part_progress(&self, place: usize) -> Option<&PartProgress> {
        self.parts.get(place)
    }

    /// What was told before this place.
    pub(crate) fn parts_before(&self, place: usize) -> impl Iterator<Item = &SegmentPart> {
        let opened = self.parts.iter().take(place).filter(|shown| shown.index.is_some());
        opened.map(|shown| &shown.part)
    }

    /// Everything that was told.
    pub(crate) fn started_parts(&self) -> impl Iterator<Item = &SegmentPart> {
        self.parts_before(self.parts.len())
    }

    /// What was told and still counts: what a crash cut has been said anew.
    pub(crate) fn current_parts(&self) -> impl Iterator<Item = &SegmentPart> {
        let dropped = |place: usize| self.root_item(place).is_some_and(|item| item.superseded);
        self.started_parts().filter(move |part| match part {
            SegmentPart::Reasoning { item, .. } | SegmentPart::Text { item, .. } | SegmentPart::Image { item, .. } => {
                !dropped(*item)
            }
            SegmentPart::ClientCall { .. } | SegmentPart::ServerCall { .. } | SegmentPart::ServerResult { .. } => true,
        })
    }

    fn root_item(&self, place: usize) -> Option<&ItemFold> {
        root_item(self.reader.fold(), place)
    }

    /// The text block that these words are.
    pub(crate) fn text_block(&self, part: &SegmentPart) -> Option<&TextBlock> {
        text_block(self.reader.fold(), part)
    }

    /// A part's text as far as it is: words, thoughts, arguments, or what stands for a picture or a result.
    pub(crate) fn part_text(&self, part: &SegmentPart) -> String {
        match part {
            SegmentPart::Reasoning { .. } | SegmentPart::Text { .. } => {
                growing_text(self.reader.fold(), part).map(|(text, _)| text.to_owned()).unwrap_or_default()
            }
            SegmentPart::Image { item, block } => {
                match self.root_item(*item).and_then(|fold| fold.item.blocks().get(*block)) {
                    Some(Block::Image(image)) => image.image_url.placeholder(),
                    _ => String::new(),
                }
            }
            SegmentPart::ClientCall { arguments, .. } | SegmentPart::ServerCall { arguments, .. } => arguments.clone(),
            SegmentPart::ServerResult { item } => {
                self.root_item(*item).map(|fold| tool_result_text(self.reader.fold(), fold)).unwrap_or_default()
            }
        }
    }

    /// The item that a part is of, where it has a name.
    pub(crate) fn item_id(&self, place: usize) -> &str {
        self.root_item(place).map_or("", |fold| fold.item.id().as_str())
    }

    /// Whose result this is, and whether it is what was hoped for.
    pub(crate) fn call_outcome(&self, place: usize) -> (String, bool) {
        match self.root_item(place).map(|fold| &fold.item) {
            Some(Item::ToolResult(result)) => {
                (result.call_id.to_string(), result.status == Some(ResultStatus::Completed))
            }
            Some(Item::HostedCall(call)) => (call.id.to_string(), call.status == Some(ItemStatus::Completed)),
            _ => (String::new(), false),
        }
    }

    /// Where the words of the thread's references are.
    pub(crate) fn reference_url(&self, number: u32) -> String {
        let thread = self.reader.fold().root().map_or("", |root| root.spec.thread_id.as_str());
        format!("headwater:/threads/{thread}/references/{number}")
    }

    fn is_active(&self) -> bool {
        self.started_at.is_some() && self.end.is_none()
    }

    fn on_event(&mut self, fold: &RunFold, event: &Event, at: Millis) {
        let Some(root) = fold.root() else { return };
        if let Event::StepDone(done) = event
            && self.is_active()
        {
            self.usage.add(done.usage);
        }
        if event.task_id() == Some(&root.id) {
            self.on_root_event(fold, root, event, at);
        }
    }

    fn on_root_event(&mut self, fold: &RunFold, root: &TaskFold, event: &Event, at: Millis) {
        match event {
            Event::Created(_) | Event::Resumed(_) if self.current_number == self.number => {
                self.started_at.get_or_insert(at);
            }
            Event::Paused(paused) => self.on_paused(fold, paused),
            Event::SummaryAdded(e) => {
                self.add_part(SegmentPart::Reasoning { item: e.output_index as usize, part: e.summary_index as usize });
            }
            Event::TextAdded(e) if is_message(root, e.output_index) => {
                self.add_part(SegmentPart::Text { item: e.output_index as usize, block: e.block_index as usize });
            }
            Event::ImageDone(e) if is_message(root, e.output_index) => {
                self.add_part(SegmentPart::Image { item: e.output_index as usize, block: e.block_index as usize });
            }
            Event::ToolStarted(e) => self.add_server_call(root, &e.call_id, Some(&e.arguments)),
            Event::ItemDone(e) => self.on_item_done(root, e.output_index as usize),
            Event::Completed(_) => {
                self.finish(if self.ends_with_refusal(fold) { SegmentEnd::Refused } else { SegmentEnd::Completed })
            }
            Event::Incomplete(e) if e.reason == LimitReason::ContentFilter => self.finish(SegmentEnd::ContentFilter),
            Event::Incomplete(_) => self.finish(SegmentEnd::Limit),
            Event::Failed(e) => self.finish(SegmentEnd::Failed(RunFailure::from(&e.error))),
            Event::Cancelled(_) => {
                let message = "The run was cancelled.".to_owned();
                self.finish(SegmentEnd::Failed(RunFailure {
                    kind: RunFailureKind::Cancelled,
                    message,
                    retryable: false,
                }));
            }
            // Everything else either makes a part that is there already grow, or is not told.
            _ => {}
        }
    }

    /// A pause for the client's tools ends the segment; one for people alone does not.
    fn on_paused(&mut self, fold: &RunFold, paused: &TaskPaused) {
        let of_client: Vec<&PendingRequest> = client_calls(paused).collect();
        if of_client.is_empty() {
            return;
        }
        self.current_number = self.current_number.saturating_add(1);
        for pending in of_client {
            let Some((_, call)) = fold.task(&pending.task_id).and_then(|task| task.call(&pending.call_id)) else {
                continue;
            };
            let (call_id, name) = (call.call_id.clone(), call.name.clone());
            self.add_part(SegmentPart::ClientCall { call_id, name, arguments: call_arguments(call) });
        }
        self.finish(SegmentEnd::ToolCalls);
    }

    /// An item is whole: a result is told, and what a provider ran itself as a call and its result.
    fn on_item_done(&mut self, root: &TaskFold, place: usize) {
        match root.items.get(place).map(|fold| &fold.item) {
            Some(Item::ToolResult(result)) => {
                let is_clients = root.call(&result.call_id).is_none_or(|(_, call)| call.kind == Some(CallKind::Client));
                if !is_clients {
                    self.add_server_call(root, &result.call_id, None);
                    self.add_part(SegmentPart::ServerResult { item: place });
                }
            }
            Some(Item::HostedCall(call)) => {
                let arguments = call.action.as_ref().filter(|action| action.is_object()).map(Value::to_string);
                let arguments = arguments.unwrap_or_else(|| "{}".to_owned());
                self.add_part(SegmentPart::ServerCall { id: call.id.to_string(), name: call.name.clone(), arguments });
                self.add_part(SegmentPart::ServerResult { item: place });
            }
            _ => {}
        }
    }

    /// A call that the server answers is told once, with the arguments that it runs with.
    fn add_server_call(&mut self, root: &TaskFold, call_id: &CallId, with: Option<&str>) {
        let Some((_, call)) = root.call(call_id).filter(|_| self.reported_calls.insert(call_id.clone())) else {
            return;
        };
        let arguments = with.map_or_else(|| call_arguments(call), str::to_owned);
        self.add_part(SegmentPart::ServerCall { id: call_id.to_string(), name: call.name.clone(), arguments });
    }

    fn add_part(&mut self, part: SegmentPart) {
        if self.is_active() {
            self.parts.push(PartProgress { part, index: None, bytes_sent: 0, annotations_sent: 0 });
        }
    }

    fn finish(&mut self, end: SegmentEnd) {
        if self.is_active() {
            self.end = Some(end);
        }
    }

    /// Were the last words a refusal?
    fn ends_with_refusal(&self, fold: &RunFold) -> bool {
        let last = self.parts.iter().rev().find_map(|shown| text_block(fold, &shown.part));
        last.is_some_and(|block| block.refusal == Some(true))
    }

    /// Tells what there is to tell, until a part that is not whole.
    fn emit_events(&mut self, fold: &RunFold, told: &mut Vec<SegmentEvent>) {
        while let Some(shown) = self.parts.get_mut(self.next_part) {
            let place = self.next_part;
            let (text, is_whole) = match &shown.part {
                SegmentPart::Image { .. }
                | SegmentPart::ClientCall { .. }
                | SegmentPart::ServerCall { .. }
                | SegmentPart::ServerResult { .. } => ("", true),
                part => growing_text(fold, part).unwrap_or(("", true)),
            };
            let may_be_empty = !matches!(shown.part, SegmentPart::Reasoning { .. } | SegmentPart::Text { .. });
            if shown.index.is_none() && (may_be_empty || !text.is_empty()) {
                shown.index = Some(self.next_index);
                self.next_index = self.next_index.saturating_add(1);
                told.push(SegmentEvent::PartStarted(place));
            }
            if let Some(more) = text.get(shown.bytes_sent..).filter(|more| !more.is_empty()) {
                told.push(SegmentEvent::PartDelta(place, more.to_owned()));
                shown.bytes_sent = text.len();
            }
            if shown.index.is_some() {
                let cited =
                    text_block(fold, &shown.part).and_then(|block| block.annotations.as_deref()).unwrap_or_default();
                told.extend(
                    cited
                        .iter()
                        .skip(shown.annotations_sent)
                        .map(|cited| SegmentEvent::Annotation(place, cited.clone())),
                );
                shown.annotations_sent = shown.annotations_sent.max(cited.len());
            }
            if !is_whole && self.end.is_none() {
                return;
            }
            if shown.index.is_some() {
                told.push(SegmentEvent::PartDone(place));
            }
            self.next_part = self.next_part.saturating_add(1);
        }
    }
}

/// The calls of a client's tools that a pause waits for.
fn client_calls(paused: &TaskPaused) -> impl Iterator<Item = &PendingRequest> {
    paused.pending.iter().filter(|pending| pending.kind == PendingKind::ClientTool)
}

fn root_item(fold: &RunFold, place: usize) -> Option<&ItemFold> {
    fold.root()?.items.get(place)
}

fn is_message(root: &TaskFold, output_index: u32) -> bool {
    root.items.get(output_index as usize).is_some_and(|fold| matches!(fold.item, Item::Message(_)))
}

fn text_block<'a>(fold: &'a RunFold, part: &SegmentPart) -> Option<&'a TextBlock> {
    let SegmentPart::Text { item: place, block } = part else { return None };
    match root_item(fold, *place)?.item.blocks().get(*block)? {
        Block::Text(block) => Some(block),
        _ => None,
    }
}

/// The text of a part that grows, as far as it is, and whether that is all of it.
fn growing_text<'a>(fold: &'a RunFold, part: &SegmentPart) -> Option<(&'a str, bool)> {
    let (place, inner) = match part {
        SegmentPart::Reasoning { item, part } => (*item, *part),
        SegmentPart::Text { item, block } => (*item, *block),
        SegmentPart::Image { .. }
        | SegmentPart::ClientCall { .. }
        | SegmentPart::ServerCall { .. }
        | SegmentPart::ServerResult { .. } => return None,
    };
    let item = root_item(fold, place)?;
    let text = match &item.item {
        Item::Reasoning(reasoning) => reasoning.summary.as_deref()?.get(inner)?.text(),
        _ => text_block(fold, part)?.text(),
    };
    let is_open = !item.done && item.open_parts.iter().any(|open| *open as usize == inner);
    Some((text, !is_open))
}

/// A call's arguments; none are an empty object.
fn call_arguments(call: &ToolCall) -> String {
    let arguments = call.arguments.as_deref().filter(|arguments| !arguments.trim().is_empty());
    arguments.unwrap_or("{}").to_owned()
}

/// Arguments as the object that they have to be.
pub(crate) fn parse_arguments_object(arguments: &str) -> Value {
    model::json::parse_lenient_json(arguments).ok().filter(Value::is_object).unwrap_or_else(|| json!({}))
}

/// What a call gave, in words: of a sub-agent, the last that it said.
fn tool_result_text(fold: &RunFold, item: &ItemFold) -> String {
    let mut text = blocks_text(item.item.blocks());
    if let Item::ToolResult(result) = &item.item {
        if let Some(child) = fold.task(&result.call_id.child_task_id()) {
            text = last_message_text(child);
        }
        // The reader must learn something: if nothing else, what went wrong.
        if let Some(error) = result.error.as_ref().filter(|_| text.trim().is_empty()) {
            text.clone_from(&error.message);
        }
    }
    text
}

fn last_message_text(task: &TaskFold) -> String {
    let said = task.items.iter().rev().filter(|fold| !fold.superseded).find_map(|fold| match &fold.item {
        Item::Message(message) => Some(message.text()),
        _ => None,
    });
    said.unwrap_or_default()
}

/// Blocks in words.
fn blocks_text(blocks: &[Block]) -> String {
    let named = blocks.iter().filter_map(|block| match block {
        Block::Text(block) => Some(block.text().to_owned()),
        Block::Image(image) => Some(image.image_url.placeholder()),
        _ => None,
    });
    named.collect::<Vec<_>>().join("\n")
}

/// Does an answer end here, and the next one begin when the run goes on? A pause for the client's tools is such a place,
/// one for people alone is not.
#[must_use]
pub fn is_client_tool_pause(event: &Event) -> bool {
    matches!(event, Event::Paused(paused) if client_calls(paused).next().is_some())
}
