//! Calls: when they are shown, and what they wait for.
//!
//! Clients post on their own when every call of the last step that is not `providerExecuted` has an output, or when every
//! approval has an answer. So a call of the server is `providerExecuted` except while it may wait for somebody.
//!
//! A call has one approval in the SDK: the questions of a tool are shown one after the other.

use super::EventProjector;
use crate::ui_stream::UiVersion;
use crate::ui_stream::wire::{UiChunk, UiQuestion, UiToolMetadata};
use model::event::{
    ApprovalDecisionKind, ApprovalRequested, ApprovalResolved, PendingKind, PendingRequest, StopReason, TaskRecovered,
    ToolStarted,
};
use model::fold::{ItemFold, TaskFold};
use model::item::{ApprovalGate, CallKind, Item, ItemStatus, ToolCall};
use model::json::{ExactObject, ExactValue, parse_exact_object};
use model::{ApprovalKey, CallId, TaskId};
use serde_json::json;

/// The calls that the client knows, oldest first.
pub(super) type AnnouncedCalls = Vec<AnnouncedCall>;

#[derive(Clone, Debug)]
pub(super) struct AnnouncedCall {
    pub(super) id: CallId,
    pub(super) task: TaskId,
    pub(super) is_client: bool,
    /// The step of the message in which it was announced.
    pub(super) step: u32,
    /// Whether the client was told that it has nothing to do for the call.
    pub(super) is_executed: bool,
    /// Whether the client has the complete input.
    pub(super) is_available: bool,
    /// The approval request or question that the client was shown last, until it is decided.
    pub(super) shown_key: Option<ApprovalKey>,
    /// Whether its result grows while its tool runs.
    pub(super) is_streamed: bool,
    /// The length of the partial output that was shown last.
    pub(super) partial_bytes: usize,
    /// Whether it is shown as paused.
    pub(super) is_paused: bool,
    /// Whether it has its final output.
    pub(super) has_ended: bool,
}

impl<'a> EventProjector<'a, '_> {
    pub(super) fn known_call(&mut self, call: &CallId) -> Option<&mut AnnouncedCall> {
        self.message.calls.iter_mut().find(|known| known.id == *call)
    }

    /// Shows a call that begins. `subagent` has made it, if not the root.
    pub(super) fn announce_call(&mut self, call: &ToolCall, subagent: Option<&TaskId>) {
        let is_executed = subagent.is_none() && !is_client_call(call) && !may_need_approval(call);
        self.message.calls.push(AnnouncedCall {
            id: call.call_id.clone(),
            task: subagent.unwrap_or(&self.root.id).clone(),
            is_client: is_client_call(call),
            step: self.message.step_count,
            is_executed,
            is_available: false,
            shown_key: None,
            is_streamed: false,
            partial_bytes: 0,
            is_paused: false,
            has_ended: false,
        });
        let metadata = UiToolMetadata {
            kind: call.kind,
            server_label: call.server_label.as_deref(),
            server_tool: call.server_tool.as_deref(),
            agent: call.agent.as_deref(),
            subagent: subagent.map(TaskId::as_str),
        };
        self.push(&UiChunk {
            provider_executed: is_executed.then_some(true),
            title: call.display_name.as_deref().map(Into::into),
            tool_metadata: Some(metadata),
            ..new_tool_chunk("tool-input-start", call)
        });
    }

    pub(super) fn on_arguments_delta(&mut self, output_index: u32, delta: &str) {
        if let Some(Item::ToolCall(call)) = self.item_at(output_index).map(|fold| &fold.item) {
            self.push_input_delta(call, delta);
        }
    }

    fn push_input_delta(&mut self, call: &ToolCall, delta: &str) {
        if !delta.is_empty() {
            let tool_call_id = Some(call.call_id.as_str());
            let input_text_delta = Some(delta);
            self.push(&UiChunk { tool_call_id, input_text_delta, ..UiChunk::new("tool-input-delta") });
        }
    }

    /// The input of a call that may wait for somebody is shown when that is known.
    pub(super) fn on_arguments_done(&mut self, output_index: u32) {
        if let Some(Item::ToolCall(call)) = self.item_at(output_index).map(|fold| &fold.item)
            && self.known_call(&call.call_id).is_some_and(|known| known.is_executed)
        {
            self.show_input(call, CallRunner::Server);
        }
    }

    /// Shows the complete input. Shown again, it replaces the one before.
    pub(super) fn show_input(&mut self, call: &ToolCall, runner: CallRunner) {
        let Some(known) = self.known_call(&call.call_id) else { return };
        let provider_executed = match (runner, known.is_executed) {
            (CallRunner::Server, _) => Some(true),
            // Without the member the SDK would keep what it has.
            (CallRunner::Unknown, true) => Some(false),
            (CallRunner::Unknown, false) => None,
        };
        known.is_executed = runner == CallRunner::Server;
        known.is_available = true;
        let input = Some(shown_input(call));
        self.push(&UiChunk { input, provider_executed, ..new_tool_chunk("tool-input-available", call) });
    }

    /// A call whose turn was interrupted never runs.
    pub(super) fn on_call_done(&mut self, fold: &ItemFold, call: &ToolCall) {
        if fold.arguments_complete && !matches!(call.status, Some(ItemStatus::Incomplete | ItemStatus::Failed)) {
            return;
        }
        let is_client = is_client_call(call);
        let Some(known) = self.known_call(&call.call_id) else { return };
        known.has_ended = true;
        known.is_executed |= !is_client;
        let text = call.arguments.clone().unwrap_or_default();
        self.push(&UiChunk {
            input: Some(ExactValue::String(text)),
            error_text: Some("The model did not finish the call.".into()),
            provider_executed: (!is_client).then_some(true),
            ..new_tool_chunk("tool-input-error", call)
        });
    }

    pub(super) fn on_tool_started(&mut self, task: &'a TaskFold, e: &ToolStarted) {
        let Some((_, call)) = task.call(&e.call_id) else { return };
        let Some(known) = self.known_call(&e.call_id) else { return };
        if !known.is_executed || !known.is_available || e.original_arguments.is_some() {
            self.show_input(call, CallRunner::Server);
        }
    }

    pub(super) fn on_approval_requested(&mut self, task: &'a TaskFold, e: &ApprovalRequested) {
        let Some((_, call)) = task.call(&e.call_id) else { return };
        self.announce_subagent_call(task, call);
        if self.known_call(&e.call_id).is_some_and(|known| known.shown_key.is_none()) {
            self.show_approval(call, e);
        }
    }

    /// Shows a call of a sub-agent, which the client has to know in order to answer it.
    fn announce_subagent_call(&mut self, task: &TaskFold, call: &ToolCall) {
        if self.known_call(&call.call_id).is_some() {
            return;
        }
        self.announce_call(call, Some(&task.id));
        if is_client_call(call) {
            self.push_input_delta(call, call.arguments.as_deref().unwrap_or_default());
        }
    }

    fn show_approval(&mut self, call: &ToolCall, e: &ApprovalRequested) {
        let Some(known) = self.known_call(&call.call_id) else { return };
        known.shown_key = Some(e.key.clone());
        let is_shown = known.is_available && !known.is_executed;
        // The client would run its tool as soon as it has the input.
        if !is_shown && !is_client_call(call) {
            self.show_input(call, CallRunner::Unknown);
        }
        let question = e.question.as_ref().map(|question| UiQuestion {
            descriptor_type: "question",
            message: &question.message,
            schema: question.schema.as_ref(),
            url: question.url.as_deref(),
        });
        self.push(&UiChunk {
            approval_id: Some(e.key.as_str()),
            tool_call_id: Some(call.call_id.as_str()),
            approval_descriptor: question,
            reason: e.action_requests.iter().find_map(|action| action.note.as_deref()),
            ..UiChunk::new("tool-approval-request")
        });
    }

    pub(super) fn on_approval_resolved(&mut self, task: &'a TaskFold, e: &ApprovalResolved) {
        let request = task.approvals.iter().find(|(request, _)| request.key == e.key);
        let Some((fold, call)) = request.and_then(|(request, _)| task.call(&request.call_id)) else { return };
        let Some(known) = self.known_call(&call.call_id) else { return };
        if known.shown_key.as_ref() != Some(&e.key) {
            return;
        }
        known.shown_key = None;
        let approved = e.decisions.iter().all(|decision| decision.kind != ApprovalDecisionKind::Reject);
        match self.version {
            UiVersion::Seven => self.push(&UiChunk {
                approval_id: Some(e.key.as_str()),
                approved: Some(approved),
                reason: e.decisions.iter().find_map(|decision| decision.message.as_deref()),
                ..UiChunk::new("tool-approval-response")
            }),
            // There is no chunk for the answer, and the tool does not start again: it has been running.
            UiVersion::Six if fold.started.is_some() => self.show_input(call, CallRunner::Server),
            UiVersion::Six => {}
        }
    }

    /// The items of the interrupted attempt are written again.
    pub(super) fn on_recovered(&mut self, e: &TaskRecovered) {
        let is_lost = self.root.steps.last().is_some_and(|step| step.stop_reason == Some(StopReason::Lost));
        if !is_lost {
            return;
        }
        match self.version {
            UiVersion::Six => self.close_lost_calls(e),
            UiVersion::Seven => self.reset_step(),
        }
    }

    fn close_lost_calls(&mut self, e: &TaskRecovered) {
        let lost = self.root.calls().filter(|(_, call)| e.cut.contains(&call.id));
        for (_, call) in lost {
            let Some(known) = self.known_call(&call.call_id).filter(|known| !known.has_ended) else { continue };
            known.has_ended = true;
            let is_client = is_client_call(call);
            known.is_executed |= !is_client;
            self.push(&UiChunk {
                tool_call_id: Some(call.call_id.as_str()),
                error_text: Some("The server restarted. The turn is done again.".into()),
                provider_executed: (!is_client).then_some(true),
                ..UiChunk::new("tool-output-error")
            });
        }
    }

    /// Removes the parts of the last step. Those that the next attempt does not write are shown again.
    fn reset_step(&mut self) {
        let step = self.message.step_count;
        self.message.calls.retain(|known| known.step != step);
        for source in std::mem::take(&mut self.message.step_sources) {
            self.message.sources.remove(&source);
        }
        self.push(&UiChunk::new("reset-step"));
        self.show_state();
        let step_index = self.root.steps.len();
        let steered = self.root.inputs.iter().filter(|input| input.after_steps == step_index);
        for input in steered {
            self.show_steering(&input.message);
        }
    }

    /// Shows what the pause waits for.
    pub(super) fn show_pending(&mut self, pending: &[PendingRequest]) {
        for request in pending {
            let Some(task) = self.run.task(&request.task_id) else { continue };
            let Some((_, call)) = task.call(&request.call_id) else { continue };
            self.announce_subagent_call(task, call);
            match request.kind {
                PendingKind::ClientTool => self.show_client_call(call),
                PendingKind::Approval | PendingKind::Question => {
                    let asked = task.approvals.iter().find(|(asked, _)| Some(&asked.key) == request.key.as_ref());
                    let is_hidden = self.known_call(&call.call_id).is_some_and(|known| known.shown_key.is_none());
                    if let Some((asked, _)) = asked.filter(|_| is_hidden) {
                        self.show_approval(call, asked);
                    }
                }
            }
        }
    }

    /// The client runs its tool as soon as it has the input: once, and not before the turn is complete.
    fn show_client_call(&mut self, call: &ToolCall) {
        if self.known_call(&call.call_id).is_some_and(|known| !known.is_available) {
            self.show_input(call, CallRunner::Unknown);
        }
    }

    /// Shows an output for every call that neither has one nor waits itself: with an open call the client would not send
    /// its answers.
    pub(super) fn pause_open_calls(&mut self, pending: &[PendingRequest]) {
        let mut paused = Vec::new();
        for known in self.message.calls.iter_mut().filter(|known| !known.has_ended) {
            if !pending.iter().any(|request| request.call_id == known.id) {
                known.is_paused = true;
                known.is_executed = true;
                paused.push(known.id.clone());
            }
        }
        for call in paused {
            self.push(&UiChunk {
                tool_call_id: Some(call.as_str()),
                output: Some(json!({"status": "paused"}).into()),
                provider_executed: Some(true),
                ..UiChunk::new("tool-output-available")
            });
        }
    }

    /// Takes the outputs of the pause back.
    pub(super) fn resume_paused_calls(&mut self) {
        let take_paused = |known: &mut AnnouncedCall| {
            let place = (known.task.clone(), known.id.clone());
            std::mem::take(&mut known.is_paused).then_some(place)
        };
        let paused: Vec<(TaskId, CallId)> = self.message.calls.iter_mut().filter_map(take_paused).collect();
        for (task, call) in paused {
            if let Some((_, call)) = self.run.task(&task).and_then(|task| task.call(&call)) {
                self.show_input(call, CallRunner::Server);
            }
        }
    }
}

/// Who is to act on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallRunner {
    Server,
    /// The client, a person who decides, or nobody yet.
    Unknown,
}

pub(super) fn is_client_call(call: &ToolCall) -> bool {
    call.kind == Some(CallKind::Client)
}

fn may_need_approval(call: &ToolCall) -> bool {
    !matches!(call.gate, None | Some(ApprovalGate::Never))
}

/// A chunk about a call. Only tools of the client are known to it by name.
fn new_tool_chunk<'c>(chunk_type: &'static str, call: &'c ToolCall) -> UiChunk<'c> {
    UiChunk {
        tool_call_id: Some(call.call_id.as_str()),
        tool_name: Some(&call.name),
        dynamic: (!is_client_call(call)).then_some(true),
        ..UiChunk::new(chunk_type)
    }
}

/// The arguments as a value. Those that are not JSON are shown as text.
fn shown_input(call: &ToolCall) -> ExactValue {
    let text = call.arguments.as_deref().unwrap_or_default();
    if text.trim().is_empty() {
        return ExactValue::Object(ExactObject::new());
    }
    let other = || ExactValue::parse(text).unwrap_or_else(|_| ExactValue::String(text.to_owned()));
    parse_exact_object(text).map_or_else(|_| other(), ExactValue::Object)
}
