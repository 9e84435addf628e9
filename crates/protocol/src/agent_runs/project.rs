//! Records → frames.

use super::NAME;
use super::payload::{ToolAgentOutput, WorkerAgentOutput, to_run};
use super::wire::{AgentEvent, Names};
use crate::burst::Burst;
use crate::reading::Reading;
use model::block::{Block, JsonObject};
use model::event::{ApprovalRequested, Event, PendingKind, TaskPaused, TextEvent};
use model::fold::{RunFold, TaskFold};
use model::item::{Item, Message};
use model::ports::{Frames, Projection};
use model::{CallId, ItemId, Record, TaskId};
use serde_json::{Value, json};

/// The agent runs of a thread, for somebody who calls it by this name.
#[derive(Clone, Debug)]
pub struct AgentRuns {
    thread: String,
    reading: Reading,
    /// Calls of the run that its client was told to run. A later pause names them again, and nobody need hear it twice.
    told: Vec<CallId>,
}

impl AgentRuns {
    /// Frames of a thread that is addressed by this name, from the beginning of a run on.
    #[must_use]
    pub fn new(thread_name: String) -> Self {
        Self { thread: thread_name, reading: Reading::default(), told: Vec::new() }
    }
}

impl Projection for AgentRuns {
    fn project(&mut self, record: &Record, out: &mut Frames) {
        let mut burst = Burst::default();
        let Self { thread, reading, told } = self;
        reading.take(record, |run, event| {
            let Some(root) = run.root() else { return };
            let of = Names { thread_id: thread, run_id: root.id.as_str() };
            Teller { run, root, of, told: &mut *told, burst: &mut burst }.tell(event);
        });
        burst.write_with_ids(record, NAME, out);
    }

    fn boxed_clone(&self) -> Box<dyn Projection> {
        Box::new(self.clone())
    }
}

/// The run after a change, and where what is to be said of it goes.
struct Teller<'a> {
    run: &'a RunFold,
    root: &'a TaskFold,
    of: Names<'a>,
    told: &'a mut Vec<CallId>,
    burst: &'a mut Burst,
}

impl Teller<'_> {
    fn tell(&mut self, event: &Event) {
        match event {
            Event::ApprovalRequested(e) => self.asked(e),
            Event::Paused(e) => self.paused(e),
            event if event.task_id() == Some(&self.root.id) => self.of_root(event),
            // A sub-agent is one call of its parent's.
            _ => {}
        }
    }

    fn of_root(&mut self, event: &Event) {
        let of = self.of;
        match event {
            Event::Created(_) => {
                self.told.clear();
                self.push(&AgentEvent::RunStarted(of));
            }
            Event::StepStarted(e) => self.push(&AgentEvent::StepStarted { of, step_name: turn(e.step) }),
            Event::StepDone(e) => self.push(&AgentEvent::StepFinished { of, step_name: turn(e.step) }),
            Event::ItemAdded(e) => {
                if let Item::Message(message) = &e.item {
                    let stage = message.agent.as_deref().unwrap_or(&self.root.agent);
                    let (message_id, role) = (&message.id, message.role);
                    self.push(&AgentEvent::TextMessageStart { of, message_id, role, stage });
                }
            }
            Event::TextAdded(e) => self.new_text(e),
            Event::TextDelta(e) => self.more_text(e.output_index, &e.item_id, &e.delta),
            Event::ItemDone(e) => self.item_done(e.output_index),
            Event::Completed(_) | Event::Incomplete(_) => self.push(&AgentEvent::RunFinished(of)),
            Event::Failed(e) => self.push(&AgentEvent::RunError { of, message: &e.error.message }),
            Event::Cancelled(_) => self.push(&AgentEvent::RunError { of, message: "cancelled" }),
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
    fn new_text(&mut self, e: &TextEvent) {
        let Some(message) = self.message(e.output_index) else { return };
        let mut before = message.block_list.iter().flatten().take(e.block_index as usize);
        if before.any(|block| matches!(block, Block::Text(_))) {
            self.more_text(e.output_index, &e.item_id, "\n");
        }
        self.more_text(e.output_index, &e.item_id, e.item.block().text());
    }

    fn more_text(&mut self, output_index: u32, message_id: &ItemId, delta: &str) {
        if self.message(output_index).is_some() && !delta.is_empty() {
            self.push(&AgentEvent::TextMessageContent { of: self.of, message_id, delta });
        }
    }

    fn message(&self, output_index: u32) -> Option<&Message> {
        match &self.root.items.get(output_index as usize)?.item {
            Item::Message(message) => Some(message),
            _ => None,
        }
    }

    /// The fold's item is the whole one: a `done` leaves out what would repeat too much.
    fn item_done(&mut self, output_index: u32) {
        let root = self.root;
        match root.items.get(output_index as usize).map(|fold| &fold.item) {
            Some(Item::Message(message)) => {
                let worker_agent_output = Box::new(WorkerAgentOutput::of(message));
                self.push(&AgentEvent::TextMessageEnd { of: self.of, message_id: &message.id, worker_agent_output });
            }
            Some(Item::ToolResult(result)) => {
                self.result(result.call_id.clone(), ToolAgentOutput::of(self.run, root, result));
            }
            Some(Item::HostedCall(item)) => self.push(&AgentEvent::ToolCallResult {
                of: self.of,
                message_id: item.id.clone(),
                tool_call_id: CallId::from(item.id.as_str()),
                tool_agent_output: Box::new(ToolAgentOutput::hosted(item)),
            }),
            Some(Item::Reasoning(_) | Item::ToolCall(_) | Item::FileProcessing(_)) | None => {}
        }
    }

    fn asked(&mut self, e: &ApprovalRequested) {
        let question = json!({
            "key": e.key,
            "expires_at": e.expires_at,
            "timeout_seconds": e.timeout_seconds,
            "action_requests": e.action_requests,
            "review_configs": e.review_configs,
        });
        self.waits(&e.task_id, &e.call_id, "Waiting for approval", ("approval", question));
    }

    /// Only a pause says which calls the client is to run; that a person is asked was said when they were.
    fn paused(&mut self, e: &TaskPaused) {
        for pending in e.pending.iter().filter(|pending| pending.kind == PendingKind::ClientTool) {
            if self.told.contains(&pending.call_id) {
                continue;
            }
            self.told.push(pending.call_id.clone());
            let call = self.run.task(&pending.task_id).and_then(|task| task.call(&pending.call_id));
            let Some((_, call)) = call else { continue };
            let hint = ("client_tool", to_run(call));
            self.waits(&pending.task_id, &pending.call_id, "Waiting for the client", hint);
        }
    }

    /// A call waits for somebody. A sub-agent's stands behind the root's call that asked for the sub-agent.
    fn waits(&mut self, task: &TaskId, call: &CallId, summary: &str, (hint, what): (&str, Value)) {
        let Some(call) = self.call_of_root(task, call) else { return };
        let output = ToolAgentOutput {
            result_summary: summary.to_owned(),
            ui_hints: Some(JsonObject::from_iter([(hint.to_owned(), what)])),
            ..ToolAgentOutput::waiting(self.root, &call)
        };
        self.result(call, output);
    }

    fn call_of_root(&self, task: &TaskId, call: &CallId) -> Option<CallId> {
        let (mut task, mut call) = (self.run.task(task)?, call.clone());
        // A parent was there before its children, so this ends.
        while let Some(parent) = &task.spec.parent_task_id {
            call = CallId::from(task.id.as_str());
            task = self.run.task(parent)?;
        }
        Some(call)
    }

    fn result(&mut self, tool_call_id: CallId, output: ToolAgentOutput) {
        // The name that the result item has, or will have.
        let message_id = tool_call_id.item_id("fco");
        let tool_agent_output = Box::new(output);
        self.push(&AgentEvent::ToolCallResult { of: self.of, message_id, tool_call_id, tool_agent_output });
    }

    fn push(&mut self, event: &AgentEvent<'_>) {
        self.burst.push(event.kind(), event);
    }
}

fn turn(step: u32) -> String {
    format!("turn-{step}")
}
