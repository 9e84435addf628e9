//! Records → the frames of one response.
//!
//! A response ends where the run waits for people, so that each part of a run between two pauses (a segment) is a response
//! of its own. It shows the root's items alone: a sub-agent is one call, unless people are asked about something below it.
//! `answer` is one response, `object` its JSON object, `item` and `hosted` its items, `said` what happens inside them,
//! `calls` which calls are shown when. Frames are counted by `sequence_number`; they have no ids.

mod answer;
mod calls;
mod hosted;
mod item;
mod object;
mod said;

pub(crate) use answer::{Answer, Style};
pub(crate) use item::{asked_arguments, result_text};
pub(crate) use object::{End, Head};

use crate::burst::Burst;
use crate::reading::Reading;
use model::block::JsonObject;
use model::event::Event;
use model::fold::{RunFold, TaskFold};
use model::item::Item;
use model::ports::{Frames, Projection};
use model::{CallId, Millis, Record, TaskId, ThreadId};
use serde_json::{Value, json};

/// One response of a run.
#[derive(Clone, Debug)]
pub struct Segment {
    run: TaskId,
    wanted: u32,
    reading: Reading,
    told: Told,
    over: bool,
}

/// What is known of a response before its first record.
#[derive(Clone, Copy, Debug)]
pub struct Unbegun<'a> {
    /// The agent that is asked.
    pub agent: &'a str,
    /// When it was asked.
    pub at: Millis,
    /// Will it never begin?
    pub given_up: bool,
    /// What the caller's request said.
    pub echo: Option<&'a Value>,
}

/// The run's responses so far, of which the last is kept.
#[derive(Clone, Debug)]
struct Told {
    thread: ThreadId,
    segment: u32,
    answer: Option<Answer>,
    echo: Value,
    /// The calls that the last pause cut in two.
    carried: Vec<CallId>,
}

impl Segment {
    /// The `segment`-th response of a run, from 1: a run's first, or what follows its n-1st pause.
    #[must_use]
    pub fn new(run: TaskId, segment: u32, thread: &ThreadId) -> Self {
        let told = Told { thread: thread.clone(), segment: 0, answer: None, echo: Value::Null, carried: Vec::new() };
        Self { run, wanted: segment.max(1), reading: Reading::default(), told, over: false }
    }

    /// The name of a run's `segment`-th response.
    #[must_use]
    pub fn id(run: &TaskId, segment: u32) -> String {
        object::id(run, segment)
    }

    /// Reads such a name: which run, and which of its responses.
    #[must_use]
    pub fn parse_id(text: &str) -> Option<(TaskId, u32)> {
        object::parse_id(text)
    }

    /// The object of a response that was announced and has not begun: it waits for its turn, or was given up.
    #[must_use]
    pub fn unbegun(run: &TaskId, segment: u32, asked: Unbegun<'_>) -> Value {
        let Unbegun { agent, at, given_up, echo } = asked;
        let about = Head {
            id: object::id(run, segment),
            at,
            model: agent,
            metadata: &JsonObject::new(),
            echo: echo.unwrap_or(&Value::Null),
            previous: segment.checked_sub(1).filter(|before| *before > 0).map(|before| object::id(run, before)),
        };
        object::unbegun(about, given_up)
    }

    /// The events of a response that was given up before it began. No record tells of it, and none ever will.
    #[must_use]
    pub fn given_up(run: &TaskId, asked: Unbegun<'_>) -> [Value; 2] {
        let event = |number: u64, kind: &str, given_up: bool| {
            let response = Self::unbegun(run, 1, Unbegun { given_up, ..asked });
            json!({"type": kind, "sequence_number": number, "response": response})
        };
        [event(0, "response.created", false), event(1, "response.incomplete", true)]
    }

    /// The response as one object, as far as it is; `None` before it began.
    #[must_use]
    pub fn object(&self) -> Option<Value> {
        Some(self.answer()?.object(self.reading.fold()))
    }

    /// How many frames it has given.
    #[must_use]
    pub fn frames_so_far(&self) -> u64 {
        self.answer().map_or(0, Answer::frames_so_far)
    }

    fn answer(&self) -> Option<&Answer> {
        self.told.answer.as_ref().filter(|_| self.told.segment == self.wanted)
    }
}

impl Projection for Segment {
    fn project(&mut self, record: &Record, out: &mut Frames) {
        if !self.over && record.run == self.run {
            let told = &mut self.told;
            self.reading.take(record, |run, event| told.see(run, event, record));
            let frames = told.answer.as_mut().map(Answer::take_frames).unwrap_or_default();
            if self.told.segment == self.wanted {
                let mut burst = Burst::default();
                for frame in &frames {
                    burst.push(frame.get("type").and_then(Value::as_str).unwrap_or_default(), frame);
                }
                burst.write_without_ids(record, out);
                self.over = self.told.answer.as_ref().is_some_and(Answer::is_over);
            }
        }
        if self.over {
            out.finish();
        }
    }

    fn boxed_clone(&self) -> Box<dyn Projection> {
        Box::new(self.clone())
    }
}

impl Told {
    fn see(&mut self, run: &RunFold, event: &Event, record: &Record) {
        let Some(root) = run.root() else { return };
        let is_roots = event.task_id() == Some(&root.id);
        match event {
            Event::Created(_) | Event::Resumed(_) if is_roots => self.begin(run, root, record),
            Event::StepDone(e) => {
                let Some(answer) = &mut self.answer else { return };
                answer.spend(e.usage);
                if is_roots && e.stop_reason.is_interrupted() {
                    answer.calls_lost(run);
                }
            }
            _ if is_roots => self.see_root(run, root, event, record.at),
            _ => {}
        }
    }

    fn begin(&mut self, run: &RunFold, root: &TaskFold, record: &Record) {
        let previous = (self.segment > 0).then(|| object::id(&root.id, self.segment));
        self.segment = self.segment.saturating_add(1);
        // A run that a clock let go on has nobody's request to show but the one before.
        if let Some(echo) = record.private().and_then(|private| private.request_echo) {
            self.echo = echo;
        }
        let about = Head {
            id: object::id(&root.id, self.segment),
            at: record.at,
            model: &root.spec.agent,
            metadata: &root.spec.metadata,
            echo: &self.echo,
            previous,
        };
        let mut answer = Answer::begin(about, &self.thread);
        for call in std::mem::take(&mut self.carried) {
            answer.carry_on(run, &call);
        }
        self.answer = Some(answer);
    }

    fn see_root(&mut self, run: &RunFold, root: &TaskFold, event: &Event, at: Millis) {
        let Some(answer) = self.answer.as_mut().filter(|answer| !answer.is_over()) else { return };
        match event {
            Event::ItemAdded(e) => match &e.item {
                Item::Reasoning(_) | Item::Message(_) | Item::HostedCall(_) => {
                    answer.add(run, e.output_index, Style::Plain);
                }
                Item::ToolCall(call) => answer.call_added(run, e.output_index, call),
                Item::ToolResult(_) | Item::FileProcessing(_) => {}
            },
            Event::ItemDone(e) => match root.items.get(e.output_index as usize).map(|fold| &fold.item) {
                Some(Item::ToolResult(result)) => answer.call_answered(run, root, result),
                _ => {
                    answer.item_done(run, e.output_index);
                }
            },
            Event::ToolStarted(e) => answer.call_started(run, &e.call_id),
            Event::Paused(e) => {
                self.carried = answer.pause(run, &e.pending);
                answer.end(run, &End::Completed(at));
            }
            Event::Completed(_) => answer.end(run, &End::Completed(at)),
            Event::Incomplete(e) => answer.end(run, &End::Incomplete(e.reason)),
            Event::Failed(e) => answer.end(run, &End::Failed(e.error.clone())),
            Event::Cancelled(_) => answer.end(run, &End::Cancelled),
            _ => answer.hear(run, event),
        }
    }
}
