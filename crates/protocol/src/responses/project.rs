//! Records → the frames of one response.
//!
//! A response ends where the run waits for people, so that each part of a run between two pauses (a segment) is a response
//! of its own. It shows the root's items alone: a sub-agent is one call, unless people are asked about something below it.
//! `answer` is one response, `object` its JSON object, `item` and `hosted` its items, `said` what happens inside them,
//! `calls` which calls are shown when. Frames are counted by `sequence_number`; they have no ids.

mod builder;
mod calls;
mod hosted;
mod item;
mod item_events;
mod object;

pub(crate) use builder::{ItemStyle, ResponseBuilder};
pub(crate) use item::{approval_arguments, result_text};
pub(crate) use object::{ResponseEnd, ResponseHead};

use crate::record_frames::RecordFrames;
use crate::run_reader::RunReader;
use model::event::Event;
use model::fold::{RunFold, TaskFold};
use model::item::Item;
use model::json::JsonObject;
use model::ports::{Frames, Projection};
use model::{CallId, Millis, Record, TaskId, ThreadId};
use serde_json::{Value, json};

/// One response of a run.
#[derive(Clone, Debug)]
pub struct ResponsesProjection {
    run: TaskId,
    segment: u32,
    reader: RunReader,
    responses: RunResponses,
    finished: bool,
}

/// What is known of a response before its first record.
#[derive(Clone, Copy, Debug)]
pub struct PendingResponse<'a> {
    /// The agent that is asked.
    pub agent: &'a str,
    /// When it was asked.
    pub requested_at: Millis,
    /// Will it never begin?
    pub cancelled: bool,
    /// What the caller's request said.
    pub request_echo: Option<&'a Value>,
}

/// The run's responses so far, of which the last is kept.
#[derive(Clone, Debug)]
struct RunResponses {
    thread: ThreadId,
    segment: u32,
    response: Option<ResponseBuilder>,
    request_echo: Value,
    /// The calls that the last pause cut in two.
    interrupted_calls: Vec<CallId>,
}

impl ResponsesProjection {
    /// The `segment`-th response of a run, from 1: a run's first, or what follows its n-1st pause.
    #[must_use]
    pub fn new(run: TaskId, segment: u32, thread: &ThreadId) -> Self {
        let told = RunResponses {
            thread: thread.clone(),
            segment: 0,
            response: None,
            request_echo: Value::Null,
            interrupted_calls: Vec::new(),
        };
        Self { run, segment: segment.max(1), reader: RunReader::default(), responses: told, finished: false }
    }

    /// The name of a run's `segment`-th response.
    #[must_use]
    pub fn response_id(run: &TaskId, segment: u32) -> String {
        object::response_id(run, segment)
    }

    /// Reads such a name: which run, and which of its responses.
    #[must_use]
    pub fn parse_response_id(text: &str) -> Option<(TaskId, u32)> {
        object::parse_response_id(text)
    }

    /// The object of a response that was announced and has not begun: it waits for its turn, or was given up.
    #[must_use]
    pub fn pending_object(run: &TaskId, segment: u32, asked: PendingResponse<'_>) -> Value {
        let PendingResponse { agent, requested_at: at, cancelled: given_up, request_echo: echo } = asked;
        let about = ResponseHead {
            id: object::response_id(run, segment),
            created_at: at,
            model: agent,
            metadata: &JsonObject::new(),
            request_echo: echo.unwrap_or(&Value::Null),
            previous_id: segment
                .checked_sub(1)
                .filter(|before| *before > 0)
                .map(|before| object::response_id(run, before)),
        };
        object::pending_object(about, given_up)
    }

    /// The events of a response that was given up before it began. No record tells of it, and none ever will.
    #[must_use]
    pub fn cancelled_events(run: &TaskId, asked: PendingResponse<'_>) -> [Value; 2] {
        let event = |number: u64, kind: &str, given_up: bool| {
            let response = Self::pending_object(run, 1, PendingResponse { cancelled: given_up, ..asked });
            json!({"type": kind, "sequence_number": number, "response": response})
        };
        [event(0, "response.created", false), event(1, "response.incomplete", true)]
    }

    /// The response as one object, as far as it is; `None` before it began.
    #[must_use]
    pub fn object(&self) -> Option<Value> {
        Some(self.response()?.object(self.reader.fold()))
    }

    /// How many frames it has given.
    #[must_use]
    pub fn frame_count(&self) -> u64 {
        self.response().map_or(0, ResponseBuilder::frame_count)
    }

    fn response(&self) -> Option<&ResponseBuilder> {
        self.responses.response.as_ref().filter(|_| self.responses.segment == self.segment)
    }
}

impl Projection for ResponsesProjection {
    fn project(&mut self, record: &Record, out: &mut Frames) {
        if !self.finished && record.run == self.run {
            let told = &mut self.responses;
            self.reader.read_record(record, |run, event| told.on_event(run, event, record));
            let frames = told.response.as_mut().map(ResponseBuilder::take_frames).unwrap_or_default();
            if self.responses.segment == self.segment {
                let mut burst = RecordFrames::default();
                for frame in &frames {
                    burst.push(frame.get("type").and_then(Value::as_str).unwrap_or_default(), frame);
                }
                burst.write_without_ids(record, out);
                self.finished = self.responses.response.as_ref().is_some_and(ResponseBuilder::is_finished);
            }
        }
        if self.finished {
            out.finish();
        }
    }

    fn boxed_clone(&self) -> Box<dyn Projection> {
        Box::new(self.clone())
    }
}

impl RunResponses {
    fn on_event(&mut self, run: &RunFold, event: &Event, record: &Record) {
        let Some(root) = run.root() else { return };
        let is_roots = event.task_id() == Some(&root.id);
        match event {
            Event::Created(_) | Event::Resumed(_) if is_roots => self.start_response(run, root, record),
            Event::StepDone(e) => {
                let Some(answer) = &mut self.response else { return };
                answer.add_usage(e.usage);
                if is_roots && e.stop_reason.is_interrupted() {
                    answer.close_lost_calls(run);
                }
            }
            _ if is_roots => self.on_root_event(run, root, event, record.at),
            _ => {}
        }
    }

    fn start_response(&mut self, run: &RunFold, root: &TaskFold, record: &Record) {
        let previous = (self.segment > 0).then(|| object::response_id(&root.id, self.segment));
        self.segment = self.segment.saturating_add(1);
        // A run that a clock let go on has nobody's request to show but the one before.
        if let Some(echo) = record.private().and_then(|private| private.request_echo) {
            self.request_echo = echo;
        }
        let about = ResponseHead {
            id: object::response_id(&root.id, self.segment),
            created_at: record.at,
            model: &root.spec.agent,
            metadata: &root.spec.metadata,
            request_echo: &self.request_echo,
            previous_id: previous,
        };
        let mut answer = ResponseBuilder::start(about, &self.thread);
        for call in std::mem::take(&mut self.interrupted_calls) {
            answer.resume_call(run, &call);
        }
        self.response = Some(answer);
    }

    fn on_root_event(&mut self, run: &RunFold, root: &TaskFold, event: &Event, at: Millis) {
        let Some(answer) = self.response.as_mut().filter(|answer| !answer.is_finished()) else { return };
        match event {
            Event::ItemAdded(e) => match &e.item {
                Item::Reasoning(_) | Item::Message(_) | Item::HostedCall(_) => {
                    answer.add_item(run, e.output_index, ItemStyle::Plain);
                }
                Item::ToolCall(call) => answer.on_call_added(run, e.output_index, call),
                Item::ToolResult(_) | Item::FileProcessing(_) => {}
            },
            Event::ItemDone(e) => match root.items.get(e.output_index as usize).map(|fold| &fold.item) {
                Some(Item::ToolResult(result)) => answer.on_call_result(run, root, result),
                _ => {
                    answer.on_item_done(run, e.output_index);
                }
            },
            Event::ToolStarted(e) => answer.on_call_started(run, &e.call_id),
            Event::Paused(e) => {
                self.interrupted_calls = answer.on_paused(run, &e.pending);
                answer.finish(run, &ResponseEnd::Completed(at));
            }
            Event::Completed(_) => answer.finish(run, &ResponseEnd::Completed(at)),
            Event::Incomplete(e) => answer.finish(run, &ResponseEnd::Incomplete(e.reason)),
            Event::Failed(e) => answer.finish(run, &ResponseEnd::Failed(e.error.clone())),
            Event::Cancelled(_) => answer.finish(run, &ResponseEnd::Cancelled),
            _ => answer.on_event(run, event),
        }
    }
}
