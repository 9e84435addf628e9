//! A run as an agent loop tells it: what the model says, turn by turn, as raw responses; every item once it is whole; who
//! speaks.
//!
//! A raw response ends before any tool runs, so that every call in it is a function call and no result is. An item's event
//! comes as soon as it is true: with the item, not with the end of the turn. At a pause the stream stays open. `told` is
//! what the events look like.

mod events;

use crate::record_frames::RecordFrames;
use crate::responses::{ItemStyle, ResponseBuilder, ResponseEnd, ResponseHead};
use crate::run_reader::RunReader;
use model::error::{ErrorCode, ErrorInfo};
use model::event::{Event, LimitReason, StepDone, StopReason};
use model::fold::{RunFold, TaskFold};
use model::item::Item;
use model::ports::{Frames, Projection};
use model::{Record, TaskId, ThreadId};
use serde_json::{Value, json};

/// The name of this projection in cursors.
pub const RUN_ITEMS_PROJECTION: &str = "run-items";

/// A run, or all runs of a thread, as run items.
#[derive(Clone, Debug)]
pub struct RunItemsProjection {
    /// The one run that is shown; `None` is all of them.
    run: Option<TaskId>,
    thread: ThreadId,
    reader: RunReader,
    /// The turn that is going on.
    response: Option<ResponseBuilder>,
    finished: bool,
}

impl RunItemsProjection {
    /// One run. Ends with it.
    #[must_use]
    pub fn new(run: TaskId, thread: &ThreadId) -> Self {
        Self { run: Some(run), ..Self::for_thread(thread) }
    }

    /// All runs of a thread, one after the other. Never ends.
    #[must_use]
    pub fn for_thread(thread: &ThreadId) -> Self {
        Self { run: None, thread: thread.clone(), reader: RunReader::default(), response: None, finished: false }
    }
}

impl Projection for RunItemsProjection {
    fn project(&mut self, record: &Record, out: &mut Frames) {
        let is_shown = self.run.as_ref().is_none_or(|run| record.run == *run);
        if !self.finished && is_shown {
            let mut turn =
                TurnProjector { thread: &self.thread, response: &mut self.response, record, frames: Vec::new() };
            self.reader.read_record(record, |run, event| turn.on_event(run, event));
            let mut burst = RecordFrames::default();
            for frame in &turn.frames {
                burst.push(frame.get("type").and_then(Value::as_str).unwrap_or_default(), frame);
            }
            burst.write_with_ids(record, RUN_ITEMS_PROJECTION, out);
            self.finished = self.run.is_some() && self.reader.fold().has_ended();
        }
        if self.finished {
            out.finish();
        }
    }

    fn boxed_clone(&self) -> Box<dyn Projection> {
        Box::new(self.clone())
    }
}

/// What one record makes of the turn.
struct TurnProjector<'a> {
    thread: &'a ThreadId,
    response: &'a mut Option<ResponseBuilder>,
    record: &'a Record,
    frames: Vec<Value>,
}

impl TurnProjector<'_> {
    fn on_event(&mut self, run: &RunFold, event: &Event) {
        let Some(root) = run.root().filter(|root| event.task_id() == Some(&root.id)) else { return };
        match event {
            Event::Created(_) => {
                *self.response = None;
                self.frames.push(events::agent_updated(&root.agent));
            }
            Event::Resumed(_) | Event::AgentUpdated(_) => self.frames.push(events::agent_updated(&root.agent)),
            Event::StepStarted(_) => self.start_response(root),
            Event::StepDone(e) => self.finish_response(run, e),
            Event::ItemAdded(e) => {
                let style = match &e.item {
                    Item::Reasoning(_) | Item::Message(_) | Item::HostedCall(_) => ItemStyle::Plain,
                    Item::ToolCall(_) => ItemStyle::Function,
                    Item::ToolResult(_) | Item::FileProcessing(_) => return,
                };
                self.update_response(|answer| answer.add_item(run, e.output_index, style));
            }
            Event::ItemDone(e) => self.on_item_done(run, root, e.output_index),
            Event::Paused(e) => self.frames.push(events::run_paused(run, &e.pending)),
            Event::Completed(_) | Event::Incomplete(_) | Event::Failed(_) | Event::Cancelled(_) => {
                self.frames.push(events::run_ended(root));
            }
            _ => self.update_response(|answer| answer.on_event(run, event)),
        }
    }

    /// The model is asked: a new response.
    fn start_response(&mut self, root: &TaskFold) {
        let about = ResponseHead {
            id: format!("resp_{}_s{}", root.id.run_suffix(), root.steps.len()),
            created_at: self.record.at,
            model: &root.spec.model,
            metadata: &root.spec.metadata,
            request_echo: &Value::Null,
            previous_id: None,
        };
        *self.response = Some(ResponseBuilder::start(about, self.thread));
        self.update_response(|_| ());
    }

    /// The turn ended, and the response with it.
    fn finish_response(&mut self, run: &RunFold, e: &StepDone) {
        let end = match e.stop_reason {
            StopReason::Stop | StopReason::ToolCalls => ResponseEnd::Completed(self.record.at),
            StopReason::MaxTokens => ResponseEnd::Incomplete(LimitReason::MaxTokens),
            StopReason::ContentFilter => ResponseEnd::Incomplete(LimitReason::ContentFilter),
            StopReason::Cancelled => ResponseEnd::Cancelled,
            StopReason::Error => ResponseEnd::Failed(ErrorInfo::new(ErrorCode::ProviderError, "The turn failed.")),
            StopReason::Lost => {
                ResponseEnd::Failed(ErrorInfo::new(ErrorCode::Lost, "The server stopped in the middle of the turn."))
            }
        };
        self.update_response(|answer| {
            answer.add_usage(e.usage);
            if !e.model.is_empty() {
                answer.set_field("model", &e.model);
            }
            if let Some(tier) = &e.service_tier {
                answer.set_field("service_tier", tier);
            }
            answer.finish(run, &end);
        });
        *self.response = None;
    }

    /// An item is whole: its raw end, then what the loop says of it.
    fn on_item_done(&mut self, run: &RunFold, root: &TaskFold, place: u32) {
        let Some(fold) = root.items.get(place as usize) else { return };
        let told = if let Item::ToolResult(result) = &fold.item {
            events::tool_output(run, root, result)
        } else {
            let mut raw = None;
            self.update_response(|answer| raw = answer.on_item_done(run, place));
            raw.and_then(|raw| events::item_created(root, &fold.item, raw))
        };
        self.frames.extend(told);
    }

    /// Lets the response go on, and shows its frames.
    fn update_response(&mut self, go_on: impl FnOnce(&mut ResponseBuilder)) {
        let Some(answer) = self.response.as_mut() else { return };
        go_on(answer);
        let raw = |data: Value| json!({"type": "raw_response_event", "data": data});
        self.frames.extend(answer.take_frames().into_iter().map(raw));
    }
}
