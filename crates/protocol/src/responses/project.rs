//! Records → the frames of one response.
//!
//! A response ends where the run pauses for input, so each part of a run between pauses (a segment) is a response. It
//! shows the root's items: a sub-agent is one call, unless it needs an approval. `builder` is one response,
//! `object` its start and end, `item` and `hosted` its items, `item_events` the events inside them, `calls` which calls are
//! shown when. Clients count frames by `sequence_number`; frames have no ids.

mod builder;
mod calls;
mod hosted;
mod item;
mod item_events;
mod object;

pub(crate) use builder::{ItemStyle, ResponseBuilder, ResponsesSink};
pub(crate) use calls::is_shown_whole;
pub(crate) use item::{approval_arguments, approval_request_item};
pub use object::PendingStatus;
pub(crate) use object::ResponseHead;

use super::wire::{ResponseObject, ResponsesEvent, SentItem, TextDeltaEvent};
use crate::record_frames::{FrameFormat, RecordFrames, to_json_value};
use crate::run_end::RunEnd;
use crate::run_reader::RunReader;
use crate::tool_searches::is_tool_search;
use bytes::Bytes;
use model::event::Event;
use model::fold::{RunFold, TaskFold};
use model::item::Item;
use model::json::{ExactObject, JsonPieces, write_json};
use model::ports::{Frames, Projection};
use model::{CallId, Millis, Record, TaskId, ThreadId};
use serde_json::Value;

/// One response of a run.
#[derive(Clone, Debug)]
pub struct ResponsesProjection {
    run: TaskId,
    thread: ThreadId,
    segment: u32,
    /// Since the run's first record. Every viewer keeps a projection from before it, and thousands of them wait.
    state: Option<Box<ProjectionState>>,
}

#[derive(Clone, Debug)]
struct ProjectionState {
    reader: RunReader,
    responses: RunResponses,
    finished: bool,
}

/// The data of a response before its first record.
#[derive(Clone, Copy, Debug)]
pub struct PendingResponse<'a> {
    pub agent: &'a str,
    pub requested_at: Millis,
    pub status: PendingStatus,
    /// The fields of the request that a response repeats.
    pub request_echo: Option<&'a Value>,
}

/// Folds the run's responses and retains only the latest.
#[derive(Clone, Debug)]
struct RunResponses {
    thread: ThreadId,
    segment: u32,
    response: Option<ResponseBuilder>,
    request_echo: Value,
    /// The calls that continue after the last pause.
    interrupted_calls: Vec<CallId>,
}

impl ResponsesProjection {
    /// The `segment`-th response of a run, from 1: the run's first, or the one after its n-1st pause.
    pub fn new(run: TaskId, segment: u32, thread: &ThreadId) -> Self {
        Self { run, thread: thread.clone(), segment: segment.max(1), state: None }
    }

    /// The id of a run's `segment`-th response.
    pub fn response_id(run: &TaskId, segment: u32) -> String {
        object::response_id(run, segment)
    }

    /// The run and the segment of a response id.
    pub fn parse_response_id(text: &str) -> Option<(TaskId, u32)> {
        object::parse_response_id(text)
    }

    /// The object of a response that was accepted and has not started.
    pub fn pending_object(run: &TaskId, segment: u32, pending: PendingResponse<'_>) -> Value {
        to_json_value(&build_pending(run, segment, pending))
    }

    /// The events of a response that was cancelled before it started: the log has no record of it.
    pub fn cancelled_events(run: &TaskId, pending: PendingResponse<'_>) -> [Value; 2] {
        let end = RunEnd::cancelled().names().responses_event;
        unlogged_events(run, pending, PendingStatus::Queued, (end, PendingStatus::Cancelled))
    }

    /// The events of a response without output, for which there is no run: the client prepares its next request.
    pub fn empty_events(id: &TaskId, pending: PendingResponse<'_>) -> [Value; 2] {
        let end = RunEnd::Completed.names().responses_event;
        unlogged_events(id, pending, PendingStatus::InProgress, (end, PendingStatus::Completed))
    }

    /// The response so far as one object; `None` before it starts.
    pub fn object(&self) -> Option<Value> {
        // A long text is written by `write_json` alone.
        serde_json::from_slice(&self.object_json()?.concat()).ok()
    }

    /// The JSON text of [`Self::object`] in consecutive pieces: long items are not copied.
    pub fn object_json(&self) -> Option<Vec<Bytes>> {
        let object = self.response()?.object(self.state.as_ref()?.reader.fold());
        let long_pieces = object.output.iter().flat_map(|item| SentItem::long_pieces(item)).collect();
        let mut out = JsonPieces::with_shared(long_pieces);
        // The keys are texts and the numbers finite, so this cannot fail.
        let _written = write_json(&mut out, &object);
        Some(out.into_pieces())
    }

    /// Whether the response can be retrieved later, as its request says.
    pub fn is_stored(&self) -> bool {
        self.response().is_none_or(ResponseBuilder::is_stored)
    }

    pub fn frame_count(&self) -> u64 {
        self.response().map_or(0, ResponseBuilder::frame_count)
    }

    fn response(&self) -> Option<&ResponseBuilder> {
        self.state.as_ref()?.response(self.segment)
    }
}

impl ProjectionState {
    fn new(thread: &ThreadId) -> Self {
        let responses = RunResponses {
            thread: thread.clone(),
            segment: 0,
            response: None,
            request_echo: Value::Null,
            interrupted_calls: Vec::new(),
        };
        Self { reader: RunReader::default(), responses, finished: false }
    }

    /// The `segment`-th response, if it is the latest.
    fn response(&self, segment: u32) -> Option<&ResponseBuilder> {
        self.responses.response.as_ref().filter(|_| self.responses.segment == segment)
    }
}

impl Projection for ResponsesProjection {
    fn project(&mut self, record: &Record, out: &mut Frames) {
        let is_finished = self.state.as_ref().is_some_and(|state| state.finished);
        if !is_finished && record.run == self.run {
            let (thread, segment) = (&self.thread, self.segment);
            let state = self.state.get_or_insert_with(|| Box::new(ProjectionState::new(thread)));
            let ProjectionState { reader, responses, .. } = &mut **state;
            let frames = RecordFrames::new(record, FrameFormat::CountedEvents, out);
            let mut out = SegmentFrames { frames, segment, current_segment: responses.segment };
            reader.read_record(record, |run, event| responses.on_event(run, event, record, &mut out));
            state.finished = state.response(segment).is_some_and(ResponseBuilder::is_finished);
        }
        if self.state.as_ref().is_some_and(|state| state.finished) {
            out.finish();
        }
    }

    fn is_hidden(&self) -> bool {
        self.state.as_ref().is_some_and(|state| (1..self.segment).contains(&state.responses.segment))
    }

    fn counts_condensed_frames(&self) -> bool {
        // A delta has one frame, or none if its item is not shown.
        true
    }

    fn boxed_clone(&self) -> Box<dyn Projection> {
        Box::new(self.clone())
    }
}

/// The frames of one response of the run. Those of the others are not sent.
struct SegmentFrames<'a> {
    frames: RecordFrames<'a>,
    segment: u32,
    /// The response that the events belong to.
    current_segment: u32,
}

impl ResponsesSink for SegmentFrames<'_> {
    fn push(&mut self, event: &ResponsesEvent<'_>) {
        if self.current_segment == self.segment {
            event.push_to(&mut self.frames, &event.event_type, event);
        }
    }

    fn push_text_delta(&mut self, delta: &TextDeltaEvent<'_>) {
        if self.current_segment == self.segment {
            self.frames.push_counted(TextDeltaEvent::TYPE, |out| delta.write_json(out));
        }
    }

    fn frames_per_event(&self) -> u64 {
        self.frames.frames_per_event()
    }
}

impl RunResponses {
    fn on_event(&mut self, run: &RunFold, event: &Event, record: &Record, out: &mut SegmentFrames<'_>) {
        let Some(root) = run.root() else { return };
        let is_root = event.task_id() == Some(&root.id);
        if let (Event::StepDone(e), Some(response)) = (event, &mut self.response) {
            // Usage includes that of sub-agents.
            response.add_usage(e.usage);
        }
        if is_root {
            self.on_root_event(run, root, event, record, out);
        }
    }

    fn on_root_event(
        &mut self,
        run: &RunFold,
        root: &TaskFold,
        event: &Event,
        record: &Record,
        out: &mut SegmentFrames<'_>,
    ) {
        if matches!(event, Event::Created(_) | Event::Resumed(_)) {
            return self.start_response(run, root, record, out);
        }
        let Some(response) = &mut self.response else { return };
        if let Event::StepDone(e) = event {
            response.set_service_tier(e.service_tier.as_deref());
            if e.stop_reason.is_interrupted() {
                response.close_lost_calls(run, out);
            }
            return;
        }
        if response.is_finished() {
            return;
        }
        match event {
            Event::ItemAdded(e) => match &e.item {
                Item::Reasoning(_) | Item::Message(_) | Item::HostedCall(_) => {
                    response.add_item(run, e.output_index, ItemStyle::Plain, out);
                }
                Item::ToolCall(call) => response.on_call_added(run, e.output_index, call, out),
                Item::ToolResult(_) | Item::FileProcessing(_) => {}
            },
            Event::ItemDone(e) => match root.items.get(e.output_index as usize).map(|fold| &fold.item) {
                Some(Item::ToolResult(result)) => response.on_call_result(run, root, result, out),
                Some(Item::ToolCall(call)) if is_tool_search(call) => drop(response.add_search_call(run, call, out)),
                Some(Item::HostedCall(call)) => {
                    response.on_item_done(run, e.output_index, out);
                    response.add_hosted_search_output(call, out);
                }
                _ => drop(response.on_item_done(run, e.output_index, out)),
            },
            Event::ToolStarted(e) => response.on_call_started(run, &e.call_id, out),
            Event::Paused(e) => {
                self.interrupted_calls = response.on_paused(run, &e.pending, out);
                response.finish(run, &RunEnd::Completed, record.at, out);
            }
            Event::Completed(_) => response.finish(run, &RunEnd::Completed, record.at, out),
            Event::Incomplete(e) => response.finish(run, &e.reason.into(), record.at, out),
            Event::Failed(e) => response.finish(run, &RunEnd::failed(&e.error), record.at, out),
            Event::Cancelled(_) => response.finish(run, &RunEnd::cancelled(), record.at, out),
            // `on_item_event` is exhaustive: it places or skips all others.
            other => response.on_item_event(run, other, out),
        }
    }

    fn start_response(&mut self, run: &RunFold, root: &TaskFold, record: &Record, out: &mut SegmentFrames<'_>) {
        let previous_id = (self.segment > 0).then(|| object::response_id(&root.id, self.segment));
        self.segment = self.segment.saturating_add(1);
        out.current_segment = self.segment;
        // A run that a time-out resumed has no request of its own, and repeats the one before.
        if let Some(request_echo) = record.private().and_then(|private| private.request_echo) {
            self.request_echo = request_echo;
        }
        let head = ResponseHead {
            id: object::response_id(&root.id, self.segment),
            created_at: record.at,
            model: &root.spec.agent,
            metadata: &root.spec.metadata,
            request_echo: &self.request_echo,
            previous_id,
        };
        let mut response = ResponseBuilder::start(head, &self.thread, out);
        for call in std::mem::take(&mut self.interrupted_calls) {
            response.resume_call(run, &call, out);
        }
        self.response = Some(response);
    }
}

/// The first and the last event of a response that is not in the log.
fn unlogged_events(
    run: &TaskId,
    pending: PendingResponse<'_>,
    first: PendingStatus,
    (end, last): (&'static str, PendingStatus),
) -> [Value; 2] {
    let event = |sequence_number: u64, event_type: &'static str, status: PendingStatus| {
        let response = build_pending(run, 1, PendingResponse { status, ..pending });
        let response = Some(&response);
        to_json_value(&ResponsesEvent { response, sequence_number, ..ResponsesEvent::new(event_type) })
    };
    [event(0, "response.created", first), event(1, end, last)]
}

fn build_pending(run: &TaskId, segment: u32, pending: PendingResponse<'_>) -> ResponseObject {
    let previous = segment.checked_sub(1).filter(|previous| *previous > 0);
    let head = ResponseHead {
        id: object::response_id(run, segment),
        created_at: pending.requested_at,
        model: pending.agent,
        metadata: &ExactObject::new(),
        request_echo: pending.request_echo.unwrap_or(&Value::Null),
        previous_id: previous.map(|previous| object::response_id(run, previous)),
    };
    object::pending_object(head, pending.status)
}
