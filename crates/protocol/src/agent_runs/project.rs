//! Records → frames.

use super::AGENT_RUNS_PROJECTION;
use super::output::find_awaited_result;
use super::wire::{AgentRunEvent, PendingHint, ToolAgentOutput, WorkerAgentOutput, to_object};
use crate::event_groups::{item_progress_events, native_only_events};
use crate::record_frames::{FrameFormat, RecordFrames};
use crate::run_reader::RunReader;
use model::event::{ApprovalRequested, Event, PendingKind, Question, TaskPaused, TextEvent};
use model::fold::{RunFold, TaskFold};
use model::item::{Block, Item, Message};
use model::ports::{Frames, Projection};
use model::{CallId, ItemId, Record, TaskId};

/// The agent runs of a thread.
#[derive(Clone, Debug)]
pub struct AgentRunsProjection {
    thread_name: String,
    reader: RunReader,
    /// Calls of the client's tools that were sent. A later pause names them again.
    announced_calls: Vec<CallId>,
}

impl AgentRunsProjection {
    /// Frames of a thread that the client addresses by this name.
    pub fn new(thread_name: String) -> Self {
        Self { thread_name, reader: RunReader::default(), announced_calls: Vec::new() }
    }
}

impl Projection for AgentRunsProjection {
    fn project(&mut self, record: &Record, out: &mut Frames) {
        let mut frames = RecordFrames::new(record, FrameFormat::EventsWithIds(AGENT_RUNS_PROJECTION), out);
        let Self { thread_name, reader, announced_calls } = self;
        reader.read_record(record, |run, event| {
            let Some(root) = run.root() else { return };
            EventProjector { run, root, thread_name, announced_calls, frames: &mut frames }.on_event(event);
        });
    }

    fn boxed_clone(&self) -> Box<dyn Projection> {
        Box::new(self.clone())
    }
}

/// Projects one event of a run.
struct EventProjector<'a, 'f> {
    run: &'a RunFold,
    root: &'a TaskFold,
    thread_name: &'a str,
    announced_calls: &'a mut Vec<CallId>,
    frames: &'a mut RecordFrames<'f>,
}

impl<'a> EventProjector<'a, '_> {
    fn on_event(&mut self, event: &Event) {
        if event.task_id() == Some(&self.root.id) {
            return self.on_visible_event(event);
        }
        // A sub-agent is one call of its parent, except for its calls that wait for a decision or the client.
        match event {
            Event::ApprovalRequested(_) | Event::Paused(_) => self.on_visible_event(event),
            Event::ItemDone(e) => {
                if let Some((task, result)) = find_awaited_result(self.run, &e.task_id, e.output_index) {
                    self.send_result(&result.call_id, ToolAgentOutput::from_result(self.run, task, result));
                }
            }
            _ => {}
        }
    }

    fn on_visible_event(&mut self, event: &Event) {
        match event {
            Event::ApprovalRequested(e) => self.on_approval_requested(e),
            Event::Paused(e) => self.on_paused(e),
            Event::Created(_) => {
                self.announced_calls.clear();
                self.push(&self.new_event("RUN_STARTED"));
            }
            Event::StepStarted(e) => self.push_step("STEP_STARTED", e.step),
            // The turn completed or was interrupted.
            Event::StepDone(e) => self.push_step("STEP_FINISHED", e.step),
            Event::ItemAdded(e) => {
                if let Item::Message(message) = &e.item {
                    let stage = Some(message.agent.as_deref().unwrap_or(&self.root.agent));
                    let (message_id, role) = (Some(&message.id), Some(message.role));
                    self.push(&AgentRunEvent { message_id, role, stage, ..self.new_event("TEXT_MESSAGE_START") });
                }
            }
            Event::TextAdded(e) => self.on_text_added(e),
            Event::TextDelta(e) => self.send_text(e.output_index, &e.item_id, &e.delta),
            Event::ItemDone(e) => self.on_item_done(e.output_index),
            Event::Completed(_) | Event::Incomplete(_) => self.push(&self.new_event("RUN_FINISHED")),
            Event::Failed(e) => self.push_error(&e.error.message),
            Event::Cancelled(_) => self.push_error("cancelled"),
            // Exhaustive on purpose: a new event is either placed above or skipped here by name.
            native_only_events!()
            | item_progress_events!()
            | Event::SummaryAdded(_)
            | Event::SummaryDelta(_)
            | Event::SummaryDone(_)
            | Event::ArgumentsDone(_)
            | Event::FileProcessingUpdated(_)
            | Event::TextDone(_)
            | Event::ImageAdded(_)
            | Event::ImageDone(_)
            | Event::ToolStarted(_)
            | Event::AgentUpdated(_)
            | Event::InputAdded(_)
            | Event::ApprovalResolved(_)
            | Event::Resumed(_)
            | Event::Recovered(_) => {}
        }
    }

    /// The text blocks of a message are lines of one text, in the deltas as in the answer.
    fn on_text_added(&mut self, e: &TextEvent) {
        let Some(message) = self.message_at(e.output_index) else { return };
        let mut before = message.block_list.iter().flatten().take(e.block_index as usize);
        if before.any(|block| matches!(block, Block::Text(_))) {
            self.send_text(e.output_index, &e.item_id, "\n");
        }
        self.send_text(e.output_index, &e.item_id, e.item.block().text());
    }

    fn send_text(&mut self, output_index: u32, message_id: &ItemId, delta: &str) {
        if self.message_at(output_index).is_some() && !delta.is_empty() {
            let (message_id, delta) = (Some(message_id), Some(delta));
            self.push(&AgentRunEvent { message_id, delta, ..self.new_event("TEXT_MESSAGE_CONTENT") });
        }
    }

    fn message_at(&self, output_index: u32) -> Option<&Message> {
        match &self.root.items.get(output_index as usize)?.item {
            Item::Message(message) => Some(message),
            _ => None,
        }
    }

    /// The item of a `done` event may be abbreviated; the fold's is complete.
    fn on_item_done(&mut self, output_index: u32) {
        let root = self.root;
        match root.items.get(output_index as usize).map(|fold| &fold.item) {
            Some(Item::Message(message)) => {
                let worker_agent_output = Some(WorkerAgentOutput::from_message(message));
                let message_id = Some(&message.id);
                self.push(&AgentRunEvent { message_id, worker_agent_output, ..self.new_event("TEXT_MESSAGE_END") });
            }
            Some(Item::ToolResult(result)) => {
                self.send_result(&result.call_id, ToolAgentOutput::from_result(self.run, root, result));
            }
            Some(Item::HostedCall(item)) => {
                let call_id = CallId::from(item.id.as_str());
                self.push_result(&item.id, &call_id, ToolAgentOutput::from_hosted_call(item));
            }
            Some(Item::Reasoning(_) | Item::ToolCall(_) | Item::FileProcessing(_)) | None => {}
        }
    }

    fn on_approval_requested(&mut self, e: &ApprovalRequested) {
        if let Some(Question { message, schema, url }) = &e.question {
            let (key, expires_at, timeout_seconds) = (&e.key, e.expires_at, e.timeout_seconds);
            let (schema, url) = (schema.as_ref(), url.as_deref());
            let hint = PendingHint::Question { expires_at, key, message, schema, timeout_seconds, url };
            return self.send_pending_result(&e.task_id, &e.call_id, "Waiting for an answer", &hint);
        }
        let hint = PendingHint::Approval {
            action_requests: &e.action_requests,
            expires_at: e.expires_at,
            key: &e.key,
            review_configs: &e.review_configs,
            timeout_seconds: e.timeout_seconds,
        };
        self.send_pending_result(&e.task_id, &e.call_id, "Waiting for approval", &hint);
    }

    /// Sends the calls that the client is to run. Approvals were sent when they were requested.
    fn on_paused(&mut self, e: &TaskPaused) {
        for pending in e.pending.iter().filter(|pending| pending.kind == PendingKind::ClientTool) {
            if self.announced_calls.contains(&pending.call_id) {
                continue;
            }
            self.announced_calls.push(pending.call_id.clone());
            let call = self.run.task(&pending.task_id).and_then(|task| task.call(&pending.call_id));
            let Some((_, call)) = call else { continue };
            let arguments = call.arguments.as_deref().unwrap_or_default();
            let hint = PendingHint::ClientTool { arguments, call_id: &call.call_id, name: &call.name };
            self.send_pending_result(&pending.task_id, &pending.call_id, "Waiting for the client", &hint);
        }
    }

    /// Sends a call's pending request, under the ids of that call. Its result follows with the same ids.
    fn send_pending_result(&mut self, task: &TaskId, call: &CallId, summary: &str, hint: &PendingHint<'_>) {
        let Some(task) = self.run.task(task) else { return };
        let output = ToolAgentOutput {
            result_summary: summary.to_owned(),
            ui_hints: Some(to_object(hint)),
            ..ToolAgentOutput::pending(task, call)
        };
        self.send_result(call, output);
    }

    fn send_result(&mut self, call_id: &CallId, output: ToolAgentOutput) {
        // The id that the result item has, or will have.
        self.push_result(&call_id.item_id("fco"), call_id, output);
    }

    fn push_result(&mut self, message_id: &ItemId, call_id: &CallId, output: ToolAgentOutput) {
        let (message_id, tool_call_id, tool_agent_output) = (Some(message_id), Some(call_id), Some(output));
        let event = self.new_event("TOOL_CALL_RESULT");
        self.push(&AgentRunEvent { message_id, tool_call_id, tool_agent_output, ..event });
    }

    fn push_step(&mut self, event_type: &'static str, step: u32) {
        self.push(&AgentRunEvent { step_name: Some(format!("turn-{step}")), ..self.new_event(event_type) });
    }

    fn push_error(&mut self, message: &str) {
        self.push(&AgentRunEvent { message: Some(message), ..self.new_event("RUN_ERROR") });
    }

    fn new_event<'e>(&self, event_type: &'static str) -> AgentRunEvent<'e>
    where
        'a: 'e,
    {
        let (thread_id, run_id) = (self.thread_name, self.root.id.as_str());
        AgentRunEvent { event_type, thread_id, run_id, ..AgentRunEvent::default() }
    }

    fn push(&mut self, event: &AgentRunEvent<'_>) {
        self.frames.push(event.event_type, event);
    }
}
