//! Records → events.
//!
//! `events` has the events of one part, which preludes send too; `items` are texts, reasoning and activities, `calls` calls
//! and results, `agents` sub-agents, `pauses` and `ends` the end of a segment. Everything that a segment opened is closed
//! when it ends, because the log closes its items and steps before.

mod agents;
mod calls;
mod ends;
mod events;
mod items;
mod other_events;
mod pauses;

pub(super) use agents::subagent_started;
pub(super) use ends::{cancelled_end, ended_outcome};
pub(super) use events::{call_start, reasoning_message_id, reasoning_message_start, text_start};
pub(super) use pauses::pause_events;

use super::wire::{AgUiEvent, AgUiMessage, AgUiRunInput, AgUiTokenUsage, EmptyObject};
use super::{AG_UI_PROTOCOL, AgUiVersion};
use crate::event_groups::terminal_events;
use crate::record_frames::{FrameFormat, RecordFrames};
use crate::run_reader::RunReader;
use model::event::{ClientIds, Event, TaskCreated};
use model::fold::{RunFold, TaskFold};
use model::ports::{Frames, Projection};
use model::usage::Usage;
use model::{ItemId, Millis, Record, TaskId};
use std::collections::{BTreeMap, BTreeSet};

/// Which part of a thread a projection shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgUiScope {
    /// All runs. Never ends.
    Thread,
    /// These segments of a run, counted from 1. Ends with the last.
    Segments { run: TaskId, first: u32, last: u32 },
}

/// The AG-UI events of a thread or of a part of a run.
#[derive(Clone, Debug)]
pub struct AgUiProjection {
    options: AgUiOptions,
    scope: AgUiScope,
    reader: RunReader,
    run: AgUiRun,
}

#[derive(Clone, Debug)]
pub(super) struct AgUiOptions {
    pub(super) version: AgUiVersion,
    pub(super) thread_name: String,
}

/// What the fold does not say about a run.
#[derive(Clone, Debug, Default)]
pub(super) struct AgUiRun {
    /// Counted from 1.
    pub(super) segment: u32,
    pub(super) run_id: String,
    /// The id of the segment before.
    pub(super) previous_run_id: Option<String>,
    /// Whether the segment has ended.
    is_over: bool,
    /// Whether the last segment that ended had interrupts: clients keep them until another one finishes.
    has_interrupts: bool,
    /// The tokens of the segment by model, sub-agents included.
    usage: Vec<(String, Usage)>,
    /// The assistant message that has the calls of a task's current step.
    step_messages: BTreeMap<TaskId, String>,
    /// Hosted calls that were sent and have no result yet.
    sent_hosted_calls: Vec<ItemId>,
    /// The activities that applications have set in this run.
    activities: BTreeSet<String>,
}

/// Takes the events of a projection.
pub(super) trait AgUiSink {
    fn push(&mut self, event: &AgUiEvent<'_>);
}

impl AgUiProjection {
    /// Events of a thread that the client addresses by this name.
    pub fn new(version: AgUiVersion, thread_name: String, scope: AgUiScope) -> Self {
        let options = AgUiOptions { version, thread_name };
        Self { options, scope, reader: RunReader::default(), run: AgUiRun::default() }
    }

    pub(super) const fn options(&self) -> &AgUiOptions {
        &self.options
    }

    pub(super) const fn run(&self) -> &AgUiRun {
        &self.run
    }

    pub(super) const fn fold(&self) -> &RunFold {
        self.reader.fold()
    }

    /// Passes the events of the next record to a sink.
    pub(super) fn read_record(&mut self, record: &Record, sink: &mut dyn AgUiSink) {
        let Self { options, scope, reader, run: state, .. } = self;
        let is_piece = matches!(record.event(), Event::TextDelta(_));
        reader.read_record(record, |run, event| {
            let Some(task) = event.task_id().and_then(|id| run.task(id)) else { return };
            EventProjector { run, task, options, scope, state, at: record.at, is_piece, sink }.on_event(event);
        });
    }

    /// Whether the last segment in scope has ended. A run may end before it.
    fn is_finished(&self) -> bool {
        match &self.scope {
            AgUiScope::Thread => false,
            AgUiScope::Segments { last, .. } => {
                self.run.is_over && (self.run.segment >= *last || self.fold().has_ended())
            }
        }
    }
}

impl Projection for AgUiProjection {
    fn project(&mut self, record: &Record, out: &mut Frames) {
        let is_in_scope = match &self.scope {
            AgUiScope::Thread => true,
            AgUiScope::Segments { run, .. } => record.run == *run && !self.is_finished(),
        };
        if is_in_scope {
            let format = FrameFormat::EventsWithIds(self.options.version.projection_name());
            self.read_record(record, &mut FrameSink { frames: RecordFrames::new(record, format, out) });
        }
        if self.is_finished() {
            out.finish();
        }
    }

    fn is_hidden(&self) -> bool {
        match &self.scope {
            AgUiScope::Thread => false,
            AgUiScope::Segments { first, .. } => (1..*first).contains(&self.run.segment),
        }
    }

    fn boxed_clone(&self) -> Box<dyn Projection> {
        Box::new(self.clone())
    }
}

struct FrameSink<'a> {
    frames: RecordFrames<'a>,
}

impl AgUiSink for FrameSink<'_> {
    fn push(&mut self, event: &AgUiEvent<'_>) {
        self.frames.push(event.event_type, event);
    }
}

/// The id of a segment whose client gave none.
pub fn agui_run_id(run: &TaskId, segment: u32) -> String {
    if segment > 1 { format!("{run}_{segment}") } else { run.to_string() }
}

/// The sub-agent that a task is; `None` for the root.
pub(super) fn subagent_id(task: &TaskFold) -> Option<&str> {
    task.spec.parent_task_id.as_ref().map(|_| task.id.as_str())
}

/// The segment of AG-UI that the run is in.
pub(super) fn run_started<'a>(options: &'a AgUiOptions, state: &'a AgUiRun) -> AgUiEvent<'a> {
    // Clients answer under the id of the interrupted run, which is no parent of itself.
    let parent_run_id = state.previous_run_id.as_deref().filter(|previous| *previous != state.run_id);
    AgUiEvent {
        event_type: "RUN_STARTED",
        thread_id: Some(&options.thread_name),
        run_id: Some(&state.run_id),
        protocol_version: (options.version == AgUiVersion::V1).then_some("1.0"),
        parent_run_id,
        ..AgUiEvent::default()
    }
}

/// Projects one event of a run.
struct EventProjector<'a, 's> {
    run: &'a RunFold,
    /// The task of the event.
    task: &'a TaskFold,
    options: &'a AgUiOptions,
    scope: &'a AgUiScope,
    state: &'a mut AgUiRun,
    at: Millis,
    /// Whether the event is a record of its own and not a part of a short form.
    is_piece: bool,
    sink: &'s mut dyn AgUiSink,
}

impl<'a> EventProjector<'a, '_> {
    fn on_event(&mut self, event: &'a Event) {
        let is_root = self.task.spec.parent_task_id.is_none();
        match event {
            Event::Created(e) if is_root => self.start_run(e),
            Event::Created(_) => self.start_subagent(self.task),
            Event::Resumed(e) => self.start_segment(e.client.as_ref()),
            Event::Paused(_) => self.pause(),
            terminal_events!() if is_root => self.end_run(event),
            terminal_events!() => self.end_subagent(event),
            Event::StepStarted(e) => {
                self.state.step_messages.remove(&self.task.id);
                self.push_step("STEP_STARTED", e.step);
            }
            // The turn completed or was interrupted.
            Event::StepDone(e) => {
                self.state.add_usage(&e.model, e.usage);
                self.push_step("STEP_FINISHED", e.step);
            }
            other => self.on_item_event(other),
        }
    }

    fn start_run(&mut self, created: &'a TaskCreated) {
        let client = created.task.client.as_ref().filter(|client| client.protocol == AG_UI_PROTOCOL);
        let run_id = client.and_then(|client| client.run_id.clone());
        let run_id = run_id.unwrap_or_else(|| agui_run_id(&self.task.id, 1));
        *self.state = AgUiRun { segment: 1, run_id: run_id.clone(), ..AgUiRun::default() };
        let messages = input_messages(created, client);
        let thread_name: &'a str = &self.options.thread_name;
        let input = (!messages.is_empty()).then_some(AgUiRunInput {
            thread_id: thread_name,
            run_id: &run_id,
            messages,
            tools: [],
            context: [],
            forwarded_props: EmptyObject {},
        });
        let previous = created.task.previous.as_ref().filter(|previous| !previous.is_no_run());
        let state = AgUiRun { run_id: run_id.clone(), ..AgUiRun::default() };
        let started = run_started(self.options, &state);
        self.push(AgUiEvent { parent_run_id: previous.map(TaskId::as_str), input, ..started });
    }

    fn start_segment(&mut self, client: Option<&ClientIds>) {
        let client = client.filter(|client| client.protocol == AG_UI_PROTOCOL);
        let segment = self.state.segment.saturating_add(1);
        let run_id = client.and_then(|client| client.run_id.clone());
        let run_id = run_id.unwrap_or_else(|| agui_run_id(&self.task.id, segment));
        let state = AgUiRun {
            segment,
            previous_run_id: Some(std::mem::replace(&mut self.state.run_id, run_id.clone())),
            run_id,
            has_interrupts: self.state.has_interrupts,
            activities: std::mem::take(&mut self.state.activities),
            ..AgUiRun::default()
        };
        *self.state = state.clone();
        self.push(run_started(self.options, &state));
        let children = self.run.tasks.iter().skip(1).filter(|task| !task.status.is_terminal());
        children.for_each(|child| self.start_subagent(child));
    }

    fn push_step(&mut self, event_type: &'static str, step: u32) {
        self.push_tagged(AgUiEvent { step_name: Some(step_name(step)), ..AgUiEvent::new(event_type) });
    }

    /// Sends an event of the task.
    fn push_tagged(&mut self, event: AgUiEvent<'_>) {
        let task = self.task;
        self.push(AgUiEvent { subagent_run_id: subagent_id(task), ..event });
    }

    fn push(&mut self, event: AgUiEvent<'_>) {
        let is_shown = match self.scope {
            AgUiScope::Thread => true,
            AgUiScope::Segments { first, last, .. } => (*first..=*last).contains(&self.state.segment),
        };
        if is_shown {
            self.sink.push(&AgUiEvent { timestamp: Some(self.at), ..event });
        }
    }
}

impl AgUiRun {
    fn add_usage(&mut self, model: &str, usage: Usage) {
        match self.usage.iter_mut().find(|(known, _)| known == model) {
            Some((_, total)) => total.add(usage),
            None => self.usage.push((model.to_owned(), usage)),
        }
    }

    fn token_usage(&self) -> Option<Vec<AgUiTokenUsage>> {
        let usage: Vec<_> = self.usage.iter().map(|(model, usage)| AgUiTokenUsage::new(model, *usage)).collect();
        (!usage.is_empty()).then_some(usage)
    }
}

pub(super) fn step_name(step: u32) -> String {
    format!("turn-{step}")
}

/// The messages of a run's input. The ids that the client gave are those of the last ones.
fn input_messages(created: &TaskCreated, client: Option<&ClientIds>) -> Vec<AgUiMessage> {
    let input = &created.task.input;
    let ids: &[String] = client.map_or(&[], |client| &client.message_ids);
    let skipped = input.len().saturating_sub(ids.len());
    let ids = std::iter::repeat_n(None, skipped)
        .chain(ids.iter().skip(ids.len().saturating_sub(input.len())).map(|id| Some(id.as_str())));
    input.iter().zip(ids).map(|(message, id)| AgUiMessage::from_input(message, id)).collect()
}
