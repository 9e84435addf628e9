//! Records → events of an agent loop.

use super::wire::{
    AgentName, AgentUpdatedEvent, CallOutputItem, Interruption, RawItem, RawResponseEvent, RunEndedEvent, RunError,
    RunItem, RunItemEvent, RunItemsEvent, RunPausedEvent,
};
use crate::computer_calls::{Screenshot, computer_call_item, screenshot_url};
use crate::record_frames::{FrameFormat, RecordFrames};
use crate::responses::{
    ItemStyle, McpApprovalResponseItem, ResponseBuilder, ResponseHead, ResponsesEvent, ResponsesSink, SentItem,
    approval_arguments, approval_request_item, is_shown_whole,
};
use crate::run_end::RunEnd;
use crate::run_reader::RunReader;
use crate::tool_results::result_or_error_text;
use crate::tool_searches::{
    SEARCH_CALL_TYPE, SEARCH_OUTPUT_TYPE, hosted_search_type, is_tool_search, search_output_item,
};
use model::error::{ErrorCode, ErrorInfo};
use model::event::{
    ApprovalDecisionKind, ApprovalRequested, ApprovalResolved, Event, PendingKind, PendingRequest, StepDone, StopReason,
};
use model::fold::{RunFold, TaskFold};
use model::item::{COMPUTER_TOOL, CallKind, Item, ItemStatus, MCP_LIST_TOOLS, ResultStatus, ToolCall, ToolResult};
use model::ports::{Frames, Projection};
use model::task::TaskStatus;
use model::{ApprovalKey, CallId, Record, TaskId, ThreadId};
use serde::Serialize;
use serde_json::Value;

/// The name of this projection in cursors.
pub const RUN_ITEMS_PROJECTION: &str = "run-items";

const RAW_RESPONSE_EVENT: &str = "raw_response_event";

/// The names of the event and of its item.
const SEARCH_CALLED: (&str, &str) = ("tool_search_called", "tool_search_call_item");
const SEARCH_OUTPUT: (&str, &str) = ("tool_search_output_created", "tool_search_output_item");

/// A run, or all runs of a thread, as run items.
#[derive(Clone, Debug)]
pub struct RunItemsProjection {
    /// `None` is all runs.
    run: Option<TaskId>,
    thread: ThreadId,
    reader: RunReader,
    /// The raw response of the current turn.
    response: Option<ResponseBuilder>,
    /// Items of the root that preceded its last turn.
    items_before_turn: usize,
    finished: bool,
}

impl RunItemsProjection {
    /// One run. Ends with it.
    pub fn new(run: TaskId, thread: &ThreadId) -> Self {
        Self { run: Some(run), ..Self::for_thread(thread) }
    }

    /// All runs of a thread, one after the other. Never ends.
    pub fn for_thread(thread: &ThreadId) -> Self {
        Self {
            run: None,
            thread: thread.clone(),
            reader: RunReader::default(),
            response: None,
            items_before_turn: 0,
            finished: false,
        }
    }
}

impl Projection for RunItemsProjection {
    fn project(&mut self, record: &Record, out: &mut Frames) {
        let is_included = self.run.as_ref().is_none_or(|run| record.run == *run);
        if !self.finished && is_included {
            let frames = RecordFrames::new(record, FrameFormat::EventsWithIds(RUN_ITEMS_PROJECTION), out);
            let frames = RunItemFrames(frames);
            let (thread, response) = (&self.thread, &mut self.response);
            let items_before_turn = &mut self.items_before_turn;
            let mut turn = TurnProjector { thread, response, items_before_turn, record, frames };
            self.reader.read_record(record, |run, event| turn.on_event(run, event));
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

/// Applies one record to the current turn.
struct TurnProjector<'a> {
    thread: &'a ThreadId,
    response: &'a mut Option<ResponseBuilder>,
    items_before_turn: &'a mut usize,
    record: &'a Record,
    frames: RunItemFrames<'a>,
}

/// The frames of one record.
struct RunItemFrames<'a>(RecordFrames<'a>);

impl RunItemFrames<'_> {
    fn push_event(&mut self, event_type: &'static str, body: impl Serialize) {
        self.0.push(event_type, &RunItemsEvent { body, event_type });
    }
}

impl ResponsesSink for RunItemFrames<'_> {
    fn push(&mut self, event: &ResponsesEvent<'_>) {
        let data = RunItemsEvent { body: RawResponseEvent { data: event }, event_type: RAW_RESPONSE_EVENT };
        event.push_to(&mut self.0, RAW_RESPONSE_EVENT, &data);
    }

    fn frames_per_event(&self) -> u64 {
        self.0.frames_per_event()
    }
}

impl TurnProjector<'_> {
    fn on_event(&mut self, run: &RunFold, event: &Event) {
        let Some(root) = run.root().filter(|root| event.task_id() == Some(&root.id)) else { return };
        match event {
            Event::Created(_) => {
                (*self.response, *self.items_before_turn) = (None, 0);
                self.push_agent_updated(root);
            }
            Event::Resumed(_) | Event::AgentUpdated(_) => self.push_agent_updated(root),
            Event::StepStarted(_) => {
                self.start_response(root);
                self.add_mcp_lists(run, root);
            }
            Event::StepDone(e) => self.finish_response(run, e),
            Event::ItemAdded(e) => {
                let style = match &e.item {
                    Item::Reasoning(_) | Item::Message(_) | Item::HostedCall(_) => ItemStyle::Plain,
                    Item::ToolCall(call) if is_shown_whole(root, call) => return,
                    Item::ToolCall(_) => ItemStyle::Function,
                    Item::ToolResult(_) | Item::FileProcessing(_) => return,
                };
                self.update_response(|response, out| response.add_item(run, e.output_index, style, out));
            }
            Event::ItemDone(e) => self.on_item_done(run, root, e.output_index),
            Event::ApprovalRequested(e) => self.push_approval_request(root, e),
            Event::ApprovalResolved(e) => self.push_approval_decision(root, e),
            Event::Paused(e) => self.push_run_paused(run, &e.pending),
            Event::Completed(_) | Event::Incomplete(_) | Event::Failed(_) | Event::Cancelled(_) => {
                self.push_run_ended(root);
            }
            // `on_item_event` is exhaustive: it places or skips all others.
            other => self.update_response(|response, out| response.on_item_event(run, other, out)),
        }
    }

    /// Each turn has a response of its own.
    fn start_response(&mut self, root: &TaskFold) {
        let head = ResponseHead {
            id: format!("resp_{}_s{}", root.id.run_suffix(), root.steps.len()),
            created_at: self.record.at,
            model: &root.spec.model,
            metadata: &root.spec.metadata,
            request_echo: &Value::Null,
            previous_id: None,
        };
        *self.response = Some(ResponseBuilder::start(head, self.thread, &mut self.frames));
    }

    /// The lists of MCP tools that were written for this turn are the first items of its response.
    fn add_mcp_lists(&mut self, run: &RunFold, root: &TaskFold) {
        let before = std::mem::replace(self.items_before_turn, root.items.len());
        let new = (0..).zip(&root.items).skip(before).filter(|(_, fold)| fold.mcp_list().is_some());
        for (output_index, _) in new {
            self.update_response(|response, out| response.add_item(run, output_index, ItemStyle::Plain, out));
            self.on_item_done(run, root, output_index);
        }
    }

    fn finish_response(&mut self, run: &RunFold, e: &StepDone) {
        let end = match e.stop_reason {
            StopReason::Stop | StopReason::ToolCalls => RunEnd::Completed,
            StopReason::MaxTokens => RunEnd::Limit,
            StopReason::ContentFilter => RunEnd::ContentFilter,
            StopReason::Cancelled => RunEnd::cancelled(),
            StopReason::Error => RunEnd::failed(&ErrorInfo::new(ErrorCode::ProviderError, "The turn failed.")),
            StopReason::Lost => {
                RunEnd::failed(&ErrorInfo::new(ErrorCode::Lost, "The server stopped in the middle of the turn."))
            }
        };
        let at = self.record.at;
        self.update_response(|response, out| {
            response.add_usage(e.usage);
            if !e.model.is_empty() {
                response.set_model(&e.model);
            }
            response.set_service_tier(e.service_tier.as_deref());
            response.finish(run, &end, at, out);
        });
        *self.response = None;
    }

    /// An item is complete: the raw response closes it, then the loop reports it.
    fn on_item_done(&mut self, run: &RunFold, root: &TaskFold, output_index: u32) {
        let Some(fold) = root.items.get(output_index as usize) else { return };
        if let Item::ToolResult(result) = &fold.item {
            return self.push_tool_output(run, root, result);
        }
        let mut raw_item = None;
        self.update_response(|response, out| {
            raw_item = match &fold.item {
                Item::ToolCall(call) if is_shown_whole(root, call) => response.add_whole_call(run, call, out),
                _ => response.on_item_done(run, output_index, out).cloned(),
            };
        });
        if let Some(raw_item) = raw_item {
            self.push_item_created(root, &fold.item, &raw_item);
        }
        let Item::HostedCall(call) = &fold.item else { return };
        let mut found = None;
        self.update_response(|response, out| found = response.add_hosted_search_output(call, out));
        if let Some(found) = found {
            let agent = call.agent.as_deref().unwrap_or(&root.agent);
            self.push_search_output(agent, RawItem::Response(&found));
        }
    }

    /// Changes the response and sends its events.
    fn update_response(&mut self, update: impl FnOnce(&mut ResponseBuilder, &mut dyn ResponsesSink)) {
        if let Some(response) = self.response.as_mut() {
            update(response, &mut self.frames);
        }
    }

    fn push_agent_updated(&mut self, root: &TaskFold) {
        let new_agent = AgentName { name: &root.agent };
        self.frames.push_event("agent_updated_stream_event", AgentUpdatedEvent { new_agent });
    }

    /// Reports an item of a turn, unless it was interrupted.
    fn push_item_created(&mut self, root: &TaskFold, item: &Item, raw_item: &SentItem) {
        let (status, agent) = match item {
            Item::Reasoning(item) => (item.status, &item.agent),
            Item::Message(item) => (item.status, &item.agent),
            Item::ToolCall(item) => (item.status, &item.agent),
            Item::HostedCall(item) => (item.status, &item.agent),
            Item::ToolResult(_) | Item::FileProcessing(_) => return,
        };
        if status == Some(ItemStatus::Incomplete) {
            return;
        }
        let (name, item_type) = match item {
            Item::Reasoning(_) => ("reasoning_item_created", "reasoning_item"),
            Item::Message(_) => ("message_output_created", "message_output_item"),
            Item::ToolCall(call) if call.kind == Some(CallKind::Handoff) => ("handoff_requested", "handoff_call_item"),
            Item::ToolCall(call) if call.kind == Some(CallKind::Hosted) => {
                ("mcp_approval_requested", "mcp_approval_request_item")
            }
            Item::ToolCall(call) if is_tool_search(call) => SEARCH_CALLED,
            Item::HostedCall(call) if hosted_search_type(&call.name) == Some(SEARCH_CALL_TYPE) => SEARCH_CALLED,
            Item::HostedCall(call) if hosted_search_type(&call.name) == Some(SEARCH_OUTPUT_TYPE) => SEARCH_OUTPUT,
            Item::HostedCall(call) if call.name == MCP_LIST_TOOLS => ("mcp_list_tools", "mcp_list_tools_item"),
            Item::ToolCall(_) | Item::HostedCall(_) | Item::ToolResult(_) | Item::FileProcessing(_) => {
                ("tool_called", "tool_call_item")
            }
        };
        let computer_call = match item {
            Item::ToolCall(call) if name == "tool_called" => computer_call_item(call),
            _ => None,
        };
        let raw_item = computer_call.map_or(RawItem::Response(raw_item), RawItem::ComputerCall);
        let agent = AgentName { name: agent.as_deref().unwrap_or(&root.agent) };
        self.push_run_item(name, RunItem { agent, arguments: None, output: None, raw_item, item_type });
    }

    /// Reports the result of a call, unless the call was abandoned.
    fn push_tool_output(&mut self, run: &RunFold, root: &TaskFold, result: &ToolResult) {
        let Some((_, call)) = root.call(&result.call_id) else { return };
        let status = result.status.unwrap_or(ResultStatus::Completed);
        if status == ResultStatus::Incomplete {
            return;
        }
        if call.kind == Some(CallKind::Hosted) {
            return self.push_approval_response(root, call, result, status);
        }
        if is_tool_search(call) {
            let agent = result.agent.as_deref().or(call.agent.as_deref()).unwrap_or(&root.agent);
            return self.push_search_output(agent, RawItem::ToolSearchOutput(search_output_item(result)));
        }
        let (name, item_type) = match call.kind {
            Some(CallKind::Handoff) if status == ResultStatus::Completed => ("handoff_occured", "handoff_output_item"),
            _ => ("tool_output", "tool_call_output_item"),
        };
        let call_id = call.call_id.as_str();
        let text = result_or_error_text(run, root, result, status);
        let screenshot = if call.name == COMPUTER_TOOL { screenshot_url(result) } else { None };
        let (raw_item, output) = match screenshot {
            Some(url) => {
                let (output, item_type) = (Screenshot::new(url), "computer_call_output");
                (RawItem::ComputerCallOutput(CallOutputItem { call_id, output, item_type }), url)
            }
            None => {
                let (output, item_type) = (text.as_str(), "function_call_output");
                (RawItem::FunctionCallOutput(CallOutputItem { call_id, output, item_type }), text.as_str())
            }
        };
        let agent = AgentName { name: result.agent.as_deref().or(call.agent.as_deref()).unwrap_or(&root.agent) };
        let arguments = call.original_arguments.as_ref().and(call.arguments.as_deref());
        self.push_run_item(name, RunItem { agent, arguments, output: Some(output), raw_item, item_type });
    }

    /// Reports that people are asked about a call of an MCP server's tool. What a provider asks was its own item.
    fn push_approval_request(&mut self, root: &TaskFold, request: &ApprovalRequested) {
        let Some(call) = mcp_call_of_server(root, &request.call_id) else { return };
        let raw_item = SentItem::new(&approval_request_item(request, call));
        let agent = AgentName { name: call.agent.as_deref().unwrap_or(&root.agent) };
        let (raw_item, item_type) = (RawItem::Response(&raw_item), "mcp_approval_request_item");
        let item = RunItem { agent, arguments: None, output: None, raw_item, item_type };
        self.push_run_item("mcp_approval_requested", item);
    }

    /// Reports the decision about a call of an MCP server's tool.
    fn push_approval_decision(&mut self, root: &TaskFold, resolved: &ApprovalResolved) {
        let request = root.approvals.iter().find(|(request, _)| request.key == resolved.key);
        let Some(call) = request.and_then(|(request, _)| mcp_call_of_server(root, &request.call_id)) else { return };
        let decision = resolved.decisions.first();
        let approve = decision.is_some_and(|decision| decision.kind != ApprovalDecisionKind::Reject);
        let reason = decision.and_then(|decision| decision.message.as_deref()).filter(|_| !approve);
        self.push_approval_answer(root, call, &resolved.key, approve, reason);
    }

    /// Reports the tools that a search found.
    fn push_search_output(&mut self, agent: &str, raw_item: RawItem<'_>) {
        let (agent, (name, item_type)) = (AgentName { name: agent }, SEARCH_OUTPUT);
        self.push_run_item(name, RunItem { agent, arguments: None, output: None, raw_item, item_type });
    }

    /// Reports the answer to a question of the provider: of a person, of an earlier decision, or of a time-out.
    fn push_approval_response(&mut self, root: &TaskFold, call: &ToolCall, result: &ToolResult, status: ResultStatus) {
        let (key, approve) = (call.call_id.approval_key(), status == ResultStatus::Completed);
        let reason = result.error.as_ref().map(|error| error.message.as_str()).filter(|_| !approve);
        self.push_approval_answer(root, call, &key, approve, reason);
    }

    fn push_approval_answer(
        &mut self,
        root: &TaskFold,
        call: &ToolCall,
        key: &ApprovalKey,
        approve: bool,
        reason: Option<&str>,
    ) {
        let raw_item = RawItem::ApprovalResponse(McpApprovalResponseItem {
            approval_request_id: key.as_str(),
            approve,
            arguments: None,
            id: key.as_str().replacen("apr_", "aprr_", 1),
            reason,
            item_type: "mcp_approval_response",
        });
        let agent = AgentName { name: call.agent.as_deref().unwrap_or(&root.agent) };
        let item_type = "mcp_approval_response_item";
        self.push_run_item(
            "mcp_approval_response",
            RunItem { agent, arguments: None, output: None, raw_item, item_type },
        );
    }

    fn push_run_item(&mut self, name: &'static str, item: RunItem<'_>) {
        let raw_item = match item.raw_item {
            RawItem::Response(raw_item) if raw_item.has_long_text() => Some(raw_item),
            _ => None,
        };
        let event_type = "run_item_stream_event";
        let event = RunItemsEvent { body: RunItemEvent { item, name }, event_type };
        match raw_item {
            Some(raw_item) => self.frames.0.push_sharing(event_type, &event, || raw_item.long_pieces().collect()),
            None => self.frames.0.push(event_type, &event),
        }
    }

    fn push_run_paused(&mut self, run: &RunFold, pending: &[PendingRequest]) {
        let waits_for = |kind: PendingKind| pending.iter().any(|pending| pending.kind == kind);
        let reason = match () {
            () if waits_for(PendingKind::Approval) => "approval",
            () if waits_for(PendingKind::Question) => "question",
            () => "client_tool",
        };
        let interruptions = pending.iter().filter_map(|pending| interruption(run, pending)).collect();
        self.frames.push_event("run_paused", RunPausedEvent { interruptions, reason });
    }

    fn push_run_ended(&mut self, root: &TaskFold) {
        let error = root.error.as_ref().filter(|_| root.status == TaskStatus::Failed);
        let reason = root.reason.as_deref().or(error.map(|error| error.code.as_str()));
        let error = error.map(|error| RunError { code: &error.code, message: &error.message });
        let ended = RunEndedEvent { error, interruptions: [], reason, status: root.status.as_str() };
        self.frames.push_event("run_ended", ended);
    }
}

/// A call that this server makes of an MCP server's tool.
fn mcp_call_of_server<'a>(root: &'a TaskFold, call_id: &CallId) -> Option<&'a ToolCall> {
    let (_, call) = root.call(call_id)?;
    (call.server_label.is_some() && call.kind != Some(CallKind::Hosted)).then_some(call)
}

fn interruption<'a>(run: &'a RunFold, pending: &'a PendingRequest) -> Option<Interruption<'a>> {
    let task = run.task(&pending.task_id)?;
    let (_, call) = task.call(&pending.call_id)?;
    let request = task.last_approval(&pending.call_id).map(|(request, _)| request);
    let arguments = match (pending.kind, request) {
        (PendingKind::Approval, Some(request)) => approval_arguments(request, call),
        _ => call.arguments.clone().unwrap_or_default(),
    };
    Some(Interruption {
        agent: AgentName { name: call.agent.as_deref().unwrap_or(&task.agent) },
        arguments,
        call_id: call.call_id.as_str(),
        key: pending.key.as_ref().map(|key| key.as_str()),
        question: request.and_then(|request| request.question.as_ref()),
        server_label: call.server_label.as_deref(),
        task_id: task.id.as_str(),
        tool_name: call.own_tool_name(),
    })
}
