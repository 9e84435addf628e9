//! A run as an agent loop tells it: what the model says, turn by turn, as raw responses; every item once it is whole; who
//! speaks.
//!
//! A raw response ends before any tool runs, so that every call in it is a function call and no result is. An item's event
//! comes as soon as it is true: with the item, not with the end of the turn. At a pause the stream stays open. `told` is
//! what the events look like.

mod told;

use crate::burst::Burst;
use crate::reading::Reading;
use crate::responses::{Answer, End, Head, Style};
use model::event::{ErrorInfo, Event, LimitReason, StepDone, StopReason};
use model::fold::{RunFold, TaskFold};
use model::item::Item;
use model::ports::{Frames, Projection};
use model::{Record, TaskId, ThreadId};
use serde_json::{Value, json};

/// The name of this projection in cursors.
pub const NAME: &str = "run-items";

/// A run, or all runs of a thread, as run items.
#[derive(Clone, Debug)]
pub struct RunItems {
    /// The one run that is shown; `None` is all of them.
    run: Option<TaskId>,
    thread: ThreadId,
    reading: Reading,
    /// The turn that is going on.
    answer: Option<Answer>,
    over: bool,
}

impl RunItems {
    /// One run. Ends with it.
    #[must_use]
    pub fn new(run: TaskId, thread: &ThreadId) -> Self {
        Self { run: Some(run), ..Self::thread(thread) }
    }

    /// All runs of a thread, one after the other. Never ends.
    #[must_use]
    pub fn thread(thread: &ThreadId) -> Self {
        Self { run: None, thread: thread.clone(), reading: Reading::default(), answer: None, over: false }
    }
}

impl Projection for RunItems {
    fn project(&mut self, record: &Record, out: &mut Frames) {
        let is_shown = self.run.as_ref().is_none_or(|run| record.run == *run);
        if !self.over && is_shown {
            let mut turn = Turn { thread: &self.thread, answer: &mut self.answer, record, out: Vec::new() };
            self.reading.take(record, |run, event| turn.see(run, event));
            let mut burst = Burst::default();
            for frame in &turn.out {
                burst.push(frame.get("type").and_then(Value::as_str).unwrap_or_default(), frame);
            }
            burst.write_with_ids(record, NAME, out);
            self.over = self.run.is_some() && self.reading.fold().has_ended();
        }
        if self.over {
            out.finish();
        }
    }

    fn boxed_clone(&self) -> Box<dyn Projection> {
        Box::new(self.clone())
    }
}

/// What one record makes of the turn.
struct Turn<'a> {
    thread: &'a ThreadId,
    answer: &'a mut Option<Answer>,
    record: &'a Record,
    out: Vec<Value>,
}

impl Turn<'_> {
    fn see(&mut self, run: &RunFold, event: &Event) {
        let Some(root) = run.root().filter(|root| event.task_id() == Some(&root.id)) else { return };
        match event {
            Event::Created(_) => {
                *self.answer = None;
                self.out.push(told::agent(&root.agent));
            }
            Event::Resumed(_) | Event::AgentUpdated(_) => self.out.push(told::agent(&root.agent)),
            Event::StepStarted(_) => self.begin(root),
            Event::StepDone(e) => self.end(run, e),
            Event::ItemAdded(e) => {
                let style = match &e.item {
                    Item::Reasoning(_) | Item::Message(_) | Item::HostedCall(_) => Style::Plain,
                    Item::ToolCall(_) => Style::Function,
                    Item::ToolResult(_) | Item::FileProcessing(_) => return,
                };
                self.raw(|answer| answer.add(run, e.output_index, style));
            }
            Event::ItemDone(e) => self.item_done(run, root, e.output_index),
            Event::Paused(e) => self.out.push(told::paused(run, &e.pending)),
            Event::Completed(_) | Event::Incomplete(_) | Event::Failed(_) | Event::Cancelled(_) => {
                self.out.push(told::ended(root));
            }
            _ => self.raw(|answer| answer.hear(run, event)),
        }
    }

    /// The model is asked: a new response.
    fn begin(&mut self, root: &TaskFold) {
        let about = Head {
            id: format!("resp_{}_s{}", root.id.run_suffix(), root.steps.len()),
            at: self.record.at,
            model: &root.spec.model,
            metadata: &root.spec.metadata,
            echo: &Value::Null,
            previous: None,
        };
        *self.answer = Some(Answer::begin(about, self.thread));
        self.raw(|_| ());
    }

    /// The turn ended, and the response with it.
    fn end(&mut self, run: &RunFold, e: &StepDone) {
        let end = match e.stop_reason {
            StopReason::Stop | StopReason::ToolCalls => End::Completed(self.record.at),
            StopReason::MaxTokens => End::Incomplete(LimitReason::MaxTokens),
            StopReason::ContentFilter => End::Incomplete(LimitReason::ContentFilter),
            StopReason::Cancelled => End::Cancelled,
            StopReason::Error => End::Failed(ErrorInfo::new("provider_error", "The turn failed.")),
            StopReason::Lost => End::Failed(ErrorInfo::new("lost", "The server stopped in the middle of the turn.")),
        };
        self.raw(|answer| {
            answer.spend(e.usage);
            if !e.model.is_empty() {
                answer.set("model", &e.model);
            }
            if let Some(tier) = &e.service_tier {
                answer.set("service_tier", tier);
            }
            answer.end(run, &end);
        });
        *self.answer = None;
    }

    /// An item is whole: its raw end, then what the loop says of it.
    fn item_done(&mut self, run: &RunFold, root: &TaskFold, place: u32) {
        let Some(fold) = root.items.get(place as usize) else { return };
        let told = if let Item::ToolResult(result) = &fold.item {
            told::result(run, root, result)
        } else {
            let mut raw = None;
            self.raw(|answer| raw = answer.item_done(run, place));
            raw.and_then(|raw| told::item(root, &fold.item, raw))
        };
        self.out.extend(told);
    }

    /// Lets the response go on, and shows its frames.
    fn raw(&mut self, go_on: impl FnOnce(&mut Answer)) {
        let Some(answer) = self.answer.as_mut() else { return };
        go_on(answer);
        let raw = |data: Value| json!({"type": "raw_response_event", "data": data});
        self.out.extend(answer.take_frames().into_iter().map(raw));
    }
}
