//! Records → frames.

use super::AGENT_RUNS_PROJECTION;
use super::payload::{ToolAgentOutput, WorkerAgentOutput, client_tool_call};
use super::wire::{AgentRunEvent, RunIds};
use crate::record_frames::RecordFrames;
use crate::run_reader::RunReader;
use model::event::{ApprovalRequested, Event, PendingKind, TaskPaused, TextEvent};
use model::fold::{RunFold, TaskFold};
use model::item::Block;
use model::item::{Item, Message};
use model::json::JsonObject;
use model::ports::{Frames, Projection};
use model::{CallId, ItemId, Record, TaskId};
use serde_json::{Value, json};

/// The agent runs of a thread, for somebody who calls it by this name.
#[derive(Clone, Debug)]
pub struct AgentRunsProjection {
    thread_name: String,
    reader: RunReader,
    /// Calls of the run that its client was told to run. A later pause names them again, and nobody need hear it twice.
    announced_calls: Vec<CallId>,
}

impl AgentRunsProjection {
    /// Frames of a thread that is addressed by this name, from the beginning of a run on.
    #[must_use]
    pub fn new(thread_name: String) -> Self {
        Self { thread_name: thread_name, reader: RunReader::default(), announced_calls: Vec::new() }
    }
}

impl Projection for AgentRunsProjection {
    fn project(&mut self, record: &Record, out: &mut Frames) {
        let mut burst = RecordFrames::default();
        let Self { thread_name: thread, reader: reading, announced_calls: told } = self;
        reading.read_record(record, |run, event| {
            let Some(root) = run.root() else { return };
            let of = RunIds { thread_id: thread, run_id: root.id.as_str() };
            EventProjector { run, root, ids: of, announced_calls: &mut *told, frames: &mut burst }.on_event(event);
        });
        burst.write_with_ids(record, AGENT_RUNS_PROJECTION, out);
    }

    fn boxed_clone(&self) -> Box<dyn Projection> {
        Box::new(self.clone())
    }
}

/// The run after a change, and where what is to be said of it goes.
struct EventProjector<'a> {
    run: &'a RunFold,
    root: &'a TaskFold,
    ids: RunIds<'a>,
    announced_calls: &'a mut Vec<CallId>,
    frames: &'a mut RecordFrames,
}

impl EventProjector<'_> {
    fn on_event(&mut self, event: &Event) {
        match event {
            Event::ApprovalRequested(e) => self.on_approval_requested(e),
            Event::Paused(e) => self.on_paused(e),
            event if event.task_id() == Some(&self.root.id) => self.on_root_event(event),
            // A sub-agent is one call of its parent's.
            _ => {}
        }
    }

    fn on_root_event(&mut self, event: &Event) {
        let of = self.ids;
        match event {
            Event::Created(_) => {
                self.announced_calls.clear();
                self.push(&AgentRunEvent::RunStarted(of));
            }
            Event::StepStarted(e) => self.push(&AgentRunEvent::StepStarted { ids: of, step_name: step_name(e.step) }),
            Event::StepDone(e) => self.push(&AgentRunEvent::StepFinished { ids: of, step_name: step_name(e.step) }),
            Event::ItemAdded(e) => {
                if let Item::Message(message) = &e.item {
                    let stage = message.agent.as_deref().unwrap_or(&self.root.agent);
                    let (message_id, role) = (&message.id, message.role);
                    self.push(&AgentRunEvent::TextMessageStart { ids: of, message_id, role, stage });
                }
            }
            Event::TextAdded(e) => self.on_text_added(e),
            Event::TextDelta(e) => self.send_text(e.output_index, &e.item_id, &e.delta),
            Event::ItemDone(e) => self.on_item_done(e.output_index),
            Event::Completed(_) | Event::Incomplete(_) => self.push(&AgentRunEvent::RunFinished(of)),
            Event::Failed(e) => self.push(&AgentRunEvent::RunError { ids: of, message: &e.error.message }),
            Event::Cancelled(_) => self.push(&AgentRunEvent::RunError { ids: of, message: "cancelled" }),
            // Nothing of these can be said in this protocol.
            Event::Started(_)
            | Event::Retrying(_)
            | Event::SummaryAdded(_)
            | Event::SummaryDelta(_)
            | Event::SummaryDone(_)
            | Event::ArgumentsDelta(_)
            | Event::ArgumentsDone(_)
            | Event::HostedCallUpdated(_)
            | Event::FileProcessingUpdated(_)
            | Event::AnnotationAdded(_)
            | Event::TextDone(_)
            | Event::ImageAdded(_)
            | Event::ImageDelta(_)
            | Event::ImageDone(_)
            | Event::ToolStarted(_)
            | Event::ToolProgress(_)
            | Event::AgentUpdated(_)
            | Event::InputAdded(_)
            | Event::ApprovalRequested(_)
            | Event::ApprovalResolved(_)
            | Event::Paused(_)
            | Event::Resumed(_)
            | Event::StateSnapshot(_)
            | Event::StateDelta(_)
            | Event::Custom(_)
            | Event::ProviderEvent(_)
            | Event::Cancelling(_)
            | Event::Recovered(_)
            | Event::HistoryCompacted(_)
            | Event::RunHidden(_)
            | Event::Unknown(_) => {}
        }
    }

    /// The text blocks of a message are lines of one text, in the pieces as in the answer. What a block has from its
    /// beginning on is nearly always nothing.
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
            self.push(&AgentRunEvent::TextMessageContent { ids: self.ids, message_id, delta });
        }
    }

    fn message_at(&self, output_index: u32) -> Option<&Message> {
        match &self.root.items.get(output_index as usize)?.item {
            Item::Message(message) => Some(message),
            _ => None,
        }
    }

    /// The fold's item is the whole one: a `done` leaves out what would repeat too much.
    fn on_item_done(&mut self, output_index: u32) {
        let root = self.root;
        match root.items.get(output_index as usize).map(|fold| &fold.item) {
            Some(Item::Message(message)) => {
                let worker_agent_output = Box::new(WorkerAgentOutput::from_message(message));
                self.push(&AgentRunEvent::TextMessageEnd {
                    ids: self.ids,
                    message_id: &message.id,
                    worker_agent_output,
                });
            }
            Some(Item::ToolResult(result)) => {
                self.send_result(result.call_id.clone(), ToolAgentOutput::from_result(self.run, root, result));
            }
            Some(Item::HostedCall(item)) => self.push(&AgentRunEvent::ToolCallResult {
                ids: self.ids,
                message_id: item.id.clone(),
                tool_call_id: CallId::from(item.id.as_str()),
                tool_agent_output: Box::new(ToolAgentOutput::from_hosted_call(item)),
            }),
            Some(Item::Reasoning(_) | Item::ToolCall(_) | Item::FileProcessing(_)) | None => {}
        }
    }

    fn on_approval_requested(&mut self, e: &ApprovalRequested) {
        let question = json!({
            "key": e.key,
            "expires_at": e.expires_at,
            "timeout_seconds": e.timeout_seconds,
            "action_requests": e.action_requests,
            "review_configs": e.review_configs,
        });
        self.send_pending_result(&e.task_id, &e.call_id, "Waiting for approval", ("approval", question));
    }

    /// Only a pause says which calls the client is to run; that a person is asked was said when they were.
    fn on_paused(&mut self, e: &TaskPaused) {
        for pending in e.pending.iter().filter(|pending| pending.kind == PendingKind::ClientTool) {
            if self.announced_calls.contains(&pending.call_id) {
                continue;
            }
            self.announced_calls.push(pending.call_id.clone());
            let call = self.run.task(&pending.task_id).and_then(|task| task.call(&pending.call_id));
            let Some((_, call)) = call else { continue };
            let hint = ("client_tool", client_tool_call(call));
            self.send_pending_result(&pending.task_id, &pending.call_id, "Waiting for the client", hint);
        }
    }

    /// A call waits for somebody. A sub-agent's stands behind the root's call that asked for the sub-agent.
    fn send_pending_result(&mut self, task: &TaskId, call: &CallId, summary: &str, (hint, what): (&str, Value)) {
        let Some(call) = self.root_call_of(task, call) else { return };
        let output = ToolAgentOutput {
            result_summary: summary.to_owned(),
            ui_hints: Some(JsonObject::from_iter([(hint.to_owned(), what)])),
            ..ToolAgentOutput::pending(self.root, &call)
        };
        self.send_result(call, output);
    }

    fn root_call_of(&self, task: &TaskId, call: &CallId) -> Option<CallId> {
        let (mut task, mut call) = (self.run.task(task)?, call.clone());
        // A parent was there before its children, so this ends.
        while let Some(parent) = &task.spec.parent_task_id {
            call = CallId::from(task.id.as_str());
            task = self.run.task(parent)?;
        }
        Some(call)
    }

    fn send_result(&mut self, tool_call_id: CallId, output: ToolAgentOutput) {
        // The name that the result item has, or will have.
        let message_id = tool_call_id.item_id("fco");
        let tool_agent_output = Box::new(output);
        self.push(&AgentRunEvent::ToolCallResult { ids: self.ids, message_id, tool_call_id, tool_agent_output });
    }

    fn push(&mut self, event: &AgentRunEvent<'_>) {
        self.frames.push(event.event_type(), event);
    }
}

fn step_name(step: u32) -> String {
    format!("turn-{step}")
}
