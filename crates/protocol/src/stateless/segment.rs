//! One segment of a run, part by part: each part starts, grows and is done before the next one starts.
//!
//! Texts and reasoning of the root are sent as they grow. Calls that the server answers are sent whole: a call when it
//! starts, with the arguments that it runs with, and its result when it ends. A call that the client answers is sent when
//! the run waits for it and not before, because until then it may be interrupted or have invalid arguments. This includes
//! calls that a sub-agent makes of the client's tools; nothing else of sub-agents is sent.
//!
//! The text of a part is read from the fold: nothing is buffered, and parts that overlap in the log wait for their turn.

use super::part_text::{self, PartText, SegmentPart};
use crate::event_groups::{item_progress_events, native_only_events};
use crate::hosted_calls::{hosted_arguments, hosted_call_succeeded};
use crate::run_end::{RunEnd, RunFailure};
use crate::run_reader::RunReader;
use model::content::{Annotation, TextBlock};
use model::event::{Event, PendingKind, PendingRequest, TaskPaused};
use model::fold::{RunFold, TaskFold};
use model::item::{CallKind, Item, ResultStatus, ToolCall, ToolResult};
use model::usage::Usage;
use model::{CallId, Millis, Record, TaskId};
use std::collections::HashSet;

#[derive(Clone, Debug)]
pub(crate) struct Segment {
    run: TaskId,
    number: u32,
    reader: RunReader,
    /// The segment that the log has reached.
    current_number: u32,
    started_at: Option<Millis>,
    parts: Vec<PartProgress>,
    /// The first part that is not done.
    next_part: usize,
    /// How many parts have started.
    next_index: u32,
    /// The server's calls that were sent, in this segment or an earlier one.
    reported_calls: HashSet<CallId>,
    usage: Usage,
    end: Option<RunEnd>,
}

/// A part, and how much of it was sent.
#[derive(Clone, Debug)]
pub(crate) struct PartProgress {
    pub(crate) part: SegmentPart,
    /// Its number among the parts that have started.
    pub(crate) index: Option<u32>,
    bytes_sent: usize,
    annotations_sent: usize,
}

/// The next event to send. Numbers are positions among the parts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SegmentEvent {
    Started,
    PartStarted(usize),
    /// The text of the part from this byte on.
    PartDelta(usize, usize),
    Annotation(usize, Annotation),
    PartDone(usize),
    Finished,
}

/// The result of a call, without its content.
pub(crate) struct CallOutcome<'a> {
    pub(crate) call_id: &'a str,
    pub(crate) succeeded: bool,
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

    /// Replaces `events` by those of the record. The caller keeps the list from record to record.
    pub(crate) fn read_record(&mut self, record: &Record, events: &mut Vec<SegmentEvent>) {
        events.clear();
        if record.run != self.run || self.end.is_some() {
            return;
        }
        let had_started = self.started_at.is_some();
        let mut reader = std::mem::take(&mut self.reader);
        reader.read_record(record, |run, event| self.on_event(run, event, record.at));
        if self.started_at.is_some() {
            if !had_started {
                events.push(SegmentEvent::Started);
            }
            self.emit_events(reader.fold(), events);
            if self.end.is_some() {
                events.push(SegmentEvent::Finished);
            }
        }
        self.reader = reader;
    }

    pub(crate) fn run_and_number(&self) -> (&TaskId, u32) {
        (&self.run, self.number)
    }

    /// The agent, which clients know as the model.
    pub(crate) fn model(&self) -> &str {
        self.run_fold().root().map_or("", |root| root.spec.agent.as_str())
    }

    /// Whether the run is in an earlier segment.
    pub(crate) fn is_ahead(&self) -> bool {
        self.started_at.is_none() && self.run_fold().root().is_some()
    }

    pub(crate) fn started_at(&self) -> Millis {
        self.started_at.unwrap_or_default()
    }

    /// The usage of its turns, including those of sub-agents.
    pub(crate) const fn usage(&self) -> Usage {
        self.usage
    }

    pub(crate) const fn end(&self) -> Option<&RunEnd> {
        self.end.as_ref()
    }

    pub(crate) fn failure(&self) -> Option<&RunFailure> {
        self.end.as_ref().and_then(RunEnd::failure)
    }

    pub(crate) fn part_progress(&self, position: usize) -> Option<&PartProgress> {
        self.parts.get(position)
    }

    /// The parts before this position that have started.
    pub(crate) fn parts_before(&self, position: usize) -> impl Iterator<Item = &SegmentPart> {
        let started = self.parts.iter().take(position).filter(|progress| progress.index.is_some());
        started.map(|progress| &progress.part)
    }

    pub(crate) fn started_parts(&self) -> impl Iterator<Item = &SegmentPart> {
        self.parts_before(self.parts.len())
    }

    /// The parts that have started, without those that a later attempt replaced.
    pub(crate) fn current_parts(&self) -> impl Iterator<Item = &SegmentPart> {
        let is_superseded =
            |item: usize| part_text::root_item(self.run_fold(), item).is_some_and(|fold| fold.superseded);
        self.started_parts().filter(move |part| match part {
            SegmentPart::Reasoning { item, .. } | SegmentPart::Text { item, .. } | SegmentPart::Image { item, .. } => {
                !is_superseded(*item)
            }
            SegmentPart::ClientCall { .. } | SegmentPart::ServerCall { .. } | SegmentPart::ServerResult { .. } => true,
        })
    }

    pub(crate) fn text_block(&self, part: &SegmentPart) -> Option<&TextBlock> {
        part_text::text_block(self.run_fold(), part)
    }

    pub(crate) fn annotations(&self, part: &SegmentPart) -> &[Annotation] {
        self.text_block(part).and_then(|block| block.annotations.as_deref()).unwrap_or_default()
    }

    /// The text of a part so far; for an image or a result, a textual substitute.
    pub(crate) fn part_text(&self, part: &SegmentPart) -> String {
        part_text::part_text(self.run_fold(), part)
    }

    /// The text of a part that grows, from a byte on.
    pub(crate) fn text_from(&self, part: &SegmentPart, byte: usize) -> &str {
        part_text::growing_text(self.run_fold(), part).and_then(|part| part.text.get(byte..)).unwrap_or_default()
    }

    /// The id of an item of the root's output.
    pub(crate) fn item_id(&self, item: usize) -> &str {
        part_text::root_item(self.run_fold(), item).map_or("", |fold| fold.item.id().as_str())
    }

    /// The outcome of the call at this item of the root's output: the item is its result, or a hosted call.
    pub(crate) fn call_outcome(&self, item: usize) -> CallOutcome<'_> {
        match part_text::root_item(self.run_fold(), item).map(|fold| &fold.item) {
            Some(Item::ToolResult(result)) => CallOutcome {
                call_id: result.call_id.as_str(),
                succeeded: result.status == Some(ResultStatus::Completed),
            },
            Some(Item::HostedCall(call)) => {
                CallOutcome { call_id: call.id.as_str(), succeeded: hosted_call_succeeded(call) }
            }
            _ => CallOutcome { call_id: "", succeeded: false },
        }
    }

    /// The address of one of the thread's own references.
    pub(crate) fn reference_url(&self, number: u32) -> String {
        let thread = self.run_fold().root().map_or("", |root| root.spec.thread_id.as_str());
        format!("headwater:/threads/{thread}/references/{number}")
    }

    const fn run_fold(&self) -> &RunFold {
        self.reader.fold()
    }

    fn is_active(&self) -> bool {
        self.started_at.is_some() && self.end.is_none()
    }

    fn on_event(&mut self, run: &RunFold, event: &Event, at: Millis) {
        let Some(root) = run.root() else { return };
        if let Event::StepDone(done) = event
            && self.is_active()
        {
            self.usage.add(done.usage);
        }
        if event.task_id() == Some(&root.id) {
            self.on_root_event(run, root, event, at);
        }
    }

    fn on_root_event(&mut self, run: &RunFold, root: &TaskFold, event: &Event, at: Millis) {
        match event {
            Event::Created(_) | Event::Resumed(_) => {
                if self.current_number == self.number {
                    self.started_at.get_or_insert(at);
                }
            }
            Event::Paused(paused) => self.on_paused(run, paused),
            Event::SummaryAdded(e) => {
                self.add_part(SegmentPart::Reasoning { item: e.output_index as usize, part: e.summary_index as usize });
            }
            Event::TextAdded(e) => self.add_message_part(
                root,
                SegmentPart::Text { item: e.output_index as usize, block: e.block_index as usize },
            ),
            Event::ImageDone(e) => self.add_message_part(
                root,
                SegmentPart::Image { item: e.output_index as usize, block: e.block_index as usize },
            ),
            Event::ToolStarted(e) => self.add_server_call(root, &e.call_id, Some(&e.arguments)),
            Event::ItemDone(e) => self.on_item_done(root, e.output_index as usize),
            Event::Completed(_) => {
                self.finish(if self.ends_with_refusal(run) { RunEnd::Refused } else { RunEnd::Completed });
            }
            Event::Incomplete(e) => self.finish(e.reason.into()),
            Event::Failed(e) => self.finish(RunEnd::failed(&e.error)),
            Event::Cancelled(_) => self.finish(RunEnd::cancelled()),
            // Exhaustive on purpose: a new event is either placed above or skipped here by name. Deltas are read from the
            // fold.
            native_only_events!()
            | item_progress_events!()
            | Event::StepStarted(_)
            | Event::ItemAdded(_)
            | Event::SummaryDelta(_)
            | Event::SummaryDone(_)
            | Event::ArgumentsDone(_)
            | Event::FileProcessingUpdated(_)
            | Event::TextDelta(_)
            | Event::TextDone(_)
            | Event::ImageAdded(_)
            | Event::StepDone(_)
            | Event::AgentUpdated(_)
            | Event::InputAdded(_)
            | Event::ApprovalRequested(_)
            | Event::ApprovalResolved(_)
            | Event::Recovered(_) => {}
        }
    }

    /// A pause for the client's tools ends the segment; a pause for approvals alone does not.
    fn on_paused(&mut self, run: &RunFold, paused: &TaskPaused) {
        let pending: Vec<&PendingRequest> = pending_client_calls(paused).collect();
        if pending.is_empty() {
            return;
        }
        self.current_number = self.current_number.saturating_add(1);
        for pending in pending {
            let call = run.task(&pending.task_id).and_then(|task| task.call(&pending.call_id));
            let Some((_, call)) = call else { continue };
            let (call_id, name) = (call.call_id.clone(), call.name.clone());
            self.add_part(SegmentPart::ClientCall { call_id, name, arguments: part_text::call_arguments(call) });
        }
        self.finish(RunEnd::ToolCalls);
    }

    /// A result is sent when it is complete, and so is a hosted call with its result.
    fn on_item_done(&mut self, root: &TaskFold, item: usize) {
        match root.items.get(item).map(|fold| &fold.item) {
            Some(Item::ToolResult(result)) => {
                let is_sent = root.call(&result.call_id).is_some_and(|(_, call)| is_server_result(call, result));
                if is_sent {
                    self.add_server_call(root, &result.call_id, None);
                    self.add_part(SegmentPart::ServerResult { item });
                }
            }
            Some(Item::HostedCall(call)) => {
                let (name, server) = (call.tool_name().to_owned(), call.server_label().map(str::to_owned));
                let arguments = hosted_arguments(call);
                self.add_part(SegmentPart::ServerCall { id: call.id.to_string(), name, server, arguments });
                self.add_part(SegmentPart::ServerResult { item });
            }
            Some(Item::Reasoning(_) | Item::Message(_) | Item::ToolCall(_) | Item::FileProcessing(_)) | None => {}
        }
    }

    /// Adds a call that the server answers, once, with the arguments that it runs with.
    fn add_server_call(&mut self, root: &TaskFold, call_id: &CallId, started_with: Option<&str>) {
        let Some((_, call)) = root.call(call_id).filter(|_| self.reported_calls.insert(call_id.clone())) else {
            return;
        };
        let arguments = started_with.map_or_else(|| part_text::call_arguments(call), str::to_owned);
        let (name, arguments) = (call.own_tool_name().to_owned(), part_text::parse_arguments_object(&arguments));
        let server = call.server_label.clone();
        self.add_part(SegmentPart::ServerCall { id: call_id.to_string(), name, server, arguments });
    }

    /// Adds a block of a message. Blocks of results are sent with their result.
    fn add_message_part(&mut self, root: &TaskFold, part: SegmentPart) {
        let (SegmentPart::Text { item, .. } | SegmentPart::Image { item, .. }) = part else { return };
        if root.items.get(item).is_some_and(|fold| matches!(fold.item, Item::Message(_))) {
            self.add_part(part);
        }
    }

    fn add_part(&mut self, part: SegmentPart) {
        if self.is_active() {
            self.parts.push(PartProgress { part, index: None, bytes_sent: 0, annotations_sent: 0 });
        }
    }

    fn finish(&mut self, end: RunEnd) {
        if self.is_active() {
            self.end = Some(end);
        }
    }

    fn ends_with_refusal(&self, run: &RunFold) -> bool {
        let last = self.parts.iter().rev().find_map(|progress| part_text::text_block(run, &progress.part));
        last.is_some_and(|block| block.refusal == Some(true))
    }

    /// Emits unsent content up to the first part that may still grow.
    fn emit_events(&mut self, run: &RunFold, events: &mut Vec<SegmentEvent>) {
        while let Some(progress) = self.parts.get_mut(self.next_part) {
            let position = self.next_part;
            let growing = part_text::growing_text(run, &progress.part);
            let PartText { text, is_complete } = growing.unwrap_or(PartText { text: "", is_complete: true });
            let may_be_empty = !matches!(progress.part, SegmentPart::Reasoning { .. } | SegmentPart::Text { .. });
            if progress.index.is_none() && (may_be_empty || !text.is_empty()) {
                progress.index = Some(self.next_index);
                self.next_index = self.next_index.saturating_add(1);
                events.push(SegmentEvent::PartStarted(position));
            }
            if text.get(progress.bytes_sent..).is_some_and(|delta| !delta.is_empty()) {
                events.push(SegmentEvent::PartDelta(position, progress.bytes_sent));
                progress.bytes_sent = text.len();
            }
            if progress.index.is_some() {
                let block = part_text::text_block(run, &progress.part);
                let annotations = block.and_then(|block| block.annotations.as_deref()).unwrap_or_default();
                let unsent = annotations.iter().skip(progress.annotations_sent);
                events.extend(unsent.map(|annotation| SegmentEvent::Annotation(position, annotation.clone())));
                progress.annotations_sent = progress.annotations_sent.max(annotations.len());
            }
            if !is_complete && self.end.is_none() {
                return;
            }
            if progress.index.is_some() {
                events.push(SegmentEvent::PartDone(position));
            }
            self.next_part = self.next_part.saturating_add(1);
        }
    }
}

/// Whether the result of a call is sent: not that of the client's own call, and not the approval of a call that the provider
/// runs and shows next.
fn is_server_result(call: &ToolCall, result: &ToolResult) -> bool {
    match call.kind {
        Some(CallKind::Client) => false,
        Some(CallKind::Hosted) => result.status != Some(ResultStatus::Completed),
        Some(CallKind::Tool | CallKind::Agent | CallKind::Handoff | CallKind::ToolSearch) | None => true,
    }
}

fn pending_client_calls(paused: &TaskPaused) -> impl Iterator<Item = &PendingRequest> {
    paused.pending.iter().filter(|pending| pending.kind == PendingKind::ClientTool)
}

/// Whether this event ends a segment but not the run: a pause for client tools does, a pause for approvals does not.
pub fn is_client_tool_pause(event: &Event) -> bool {
    matches!(event, Event::Paused(paused) if pending_client_calls(paused).next().is_some())
}
