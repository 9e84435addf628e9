//! Calls in a response: those that the client answers, those that the server answers, those that need an approval.
//!
//! A call that may need an approval is shown late: when it starts, when it gets a result without having started, or as
//! an approval request at every pause that waits for it. A question of its tool is such a request, too, and interrupts it.

use super::super::wire::{ItemObject, ResponsesEvent, SentItem};
use super::builder::{ItemStyle, OutputItem, ResponseBuilder, ResponsesSink, root_item};
use super::item::{self, McpCallOutcome};
use crate::computer_calls::{computer_call_item, is_client_computer_call};
use crate::tool_searches::{self, ToolSearchOutputItem, is_tool_search};
use model::CallId;
use model::event::{ApprovalDecisionKind, PendingKind, PendingRequest};
use model::fold::{RunFold, TaskFold};
use model::item::{ApprovalGate, HostedCall, Item, ItemStatus, ToolCall, ToolResult};
use std::sync::Arc;

impl ResponseBuilder {
    pub(super) fn on_call_added(
        &mut self,
        run: &RunFold,
        root_index: u32,
        call: &ToolCall,
        out: &mut dyn ResponsesSink,
    ) {
        let is_shown_late = may_need_approval(call) || run.root().is_some_and(|root| is_shown_whole(root, call));
        match (is_shown_late, item::is_client_call(call)) {
            (true, _) => {}
            (false, true) => self.add_item(run, root_index, ItemStyle::Function, out),
            (false, false) => self.add_item(run, root_index, ItemStyle::Mcp, out),
        }
    }

    /// A tool starts. A retry starts it again.
    pub(super) fn on_call_started(&mut self, run: &RunFold, call_id: &CallId, out: &mut dyn ResponsesSink) {
        let Some(index) = self.mcp_item_of_call(run, call_id, out) else { return };
        self.mark_call_running(index, out);
    }

    fn mark_call_running(&mut self, index: usize, out: &mut dyn ResponsesSink) {
        let Some(item) = self.items.get_mut(index).filter(|item| item.sent_states.is_empty()) else { return };
        item.sent_states.push("in_progress".to_owned());
        self.push_item_event(index, ResponsesEvent::new("response.mcp_call.in_progress"), out);
    }

    pub(super) fn on_call_result(
        &mut self,
        run: &RunFold,
        task: &TaskFold,
        result: &ToolResult,
        out: &mut dyn ResponsesSink,
    ) {
        let Some((_, call)) = task.call(&result.call_id) else { return };
        // The provider runs what was approved, and shows that itself.
        if item::is_hosted_request(call) {
            return;
        }
        if is_tool_search(call) {
            let item = || tool_searches::search_output_item(result);
            return self.add_search_output(item().in_progress(), item(), out);
        }
        // The item of a client's call was closed when the run paused for it.
        if item::is_client_call(call) && (!may_need_approval(call) || is_approved(task, &call.call_id)) {
            return;
        }
        let Some(index) = self.mcp_item_of_call(run, &result.call_id, out) else { return };
        let outcome = McpCallOutcome::from_result(run, task, result);
        if matches!(outcome.status, "completed" | "failed") {
            self.push_item_event(index, ResponsesEvent::new(format!("response.mcp_call.{}", outcome.status)), out);
        }
        self.close_item(run, index, &outcome, out);
    }

    /// Closes the calls of an interrupted turn: they will never run.
    pub(super) fn close_lost_calls(&mut self, run: &RunFold, out: &mut dyn ResponsesSink) {
        let last = run.root().and_then(|root| root.steps.len().checked_sub(1));
        for index in 0..self.items.len() {
            let root_index =
                self.items.get(index).filter(|item| item.style == ItemStyle::Mcp).and_then(|item| item.root_index);
            if root_index.and_then(|index| root_item(run, index)).is_some_and(|fold| fold.step_index == last) {
                self.close_item(run, index, &McpCallOutcome::INCOMPLETE, out);
            }
        }
    }

    /// Closes open items and shows the pending requests. Returns the calls that continue after the pause.
    pub(super) fn on_paused(
        &mut self,
        run: &RunFold,
        pending: &[PendingRequest],
        out: &mut dyn ResponsesSink,
    ) -> Vec<CallId> {
        let mut interrupted = Vec::new();
        for index in 0..self.items.len() {
            let open = self.items.get(index).filter(|item| item.final_item.is_none());
            let fold = open.and_then(|item| item.root_index).and_then(|index| root_item(run, index));
            if let Some(Item::ToolCall(call)) = fold.map(|fold| &fold.item)
                && !pending
                    .iter()
                    .any(|pending| pending.call_id == call.call_id && pending.kind != PendingKind::Question)
            {
                interrupted.push(call.call_id.clone());
            }
            self.close_item(run, index, &McpCallOutcome::INCOMPLETE, out);
        }
        for pending in pending {
            let Some(task) = run.task(&pending.task_id) else { continue };
            let Some((_, call)) = task.call(&pending.call_id) else { continue };
            match (pending.kind, task.last_approval(&pending.call_id)) {
                (PendingKind::Approval | PendingKind::Question, Some((request, _))) => {
                    self.add_complete_item(request.key.to_string(), &item::approval_request_item(request, call), out);
                }
                (PendingKind::Approval | PendingKind::Question, None) => {}
                (PendingKind::ClientTool, _) => self.add_client_call(task, call, out),
            }
        }
        interrupted
    }

    /// Shows a call that the client is to answer, unless this response has shown it.
    fn add_client_call(&mut self, task: &TaskFold, call: &ToolCall, out: &mut dyn ResponsesSink) {
        if self.items.iter().any(|item| item.id == call.id.as_str()) {
            return;
        }
        if let Some(item) = computer_call_item(call).filter(|_| is_client_computer_call(task, call)) {
            return self.add_complete_item(call.id.to_string(), &ItemObject::ComputerCall(Box::new(item)), out);
        }
        let arguments = call.arguments.as_deref().unwrap_or_default();
        let empty = SentItem::new(&item::function_call_item(call, "", "in_progress"));
        let index = self.open_item_as(OutputItem::new(call.id.to_string(), ItemStyle::Function, None), &empty, out);
        self.send_arguments(index, arguments, out);
        self.close_item_as(index, SentItem::new(&item::function_call_item(call, arguments, "completed")), out);
    }

    /// Shows a complete call in one piece (see [`is_shown_whole`]). Returns the item, unless the call was interrupted.
    pub(crate) fn add_whole_call(
        &mut self,
        run: &RunFold,
        call: &ToolCall,
        out: &mut dyn ResponsesSink,
    ) -> Option<Arc<SentItem>> {
        let (key, arguments) = (call.call_id.approval_key(), call.arguments.as_deref().unwrap_or_default());
        if call.status == Some(ItemStatus::Incomplete) {
            return None;
        }
        if is_tool_search(call) {
            return self.add_search_call(run, call, out);
        }
        let (id, object) = match computer_call_item(call) {
            _ if item::is_hosted_request(call) => (key.to_string(), item::hosted_request_item(call, key.as_str())),
            Some(item) => (call.id.to_string(), ItemObject::ComputerCall(Box::new(item))),
            None => (call.id.to_string(), item::function_call_item(call, arguments, "completed")),
        };
        self.add_complete_item(id, &object, out);
        self.items.last()?.final_item.clone()
    }

    /// Shows a search of tools, unless its turn was interrupted. A later attempt may replace it.
    pub(super) fn add_search_call(
        &mut self,
        run: &RunFold,
        call: &ToolCall,
        out: &mut dyn ResponsesSink,
    ) -> Option<Arc<SentItem>> {
        if call.status == Some(ItemStatus::Incomplete) {
            return None;
        }
        let begun = tool_searches::search_call_item(call).in_progress();
        let root_index = run.root()?.items.iter().position(|fold| *fold.item.id() == call.id)?;
        let shown = OutputItem::new(begun.id().to_owned(), ItemStyle::Plain, u32::try_from(root_index).ok());
        let begun = SentItem::new(&ItemObject::ToolSearchCall(Box::new(begun)));
        let index = self.open_item_as(shown, &begun, out);
        let item = ItemObject::ToolSearchCall(Box::new(tool_searches::search_call_item(call)));
        self.close_item_as(index, SentItem::new(&item), out);
        self.items.last()?.final_item.clone()
    }

    /// Shows the tools that a provider's search found, if its call has them itself.
    pub(crate) fn add_hosted_search_output(
        &mut self,
        call: &HostedCall,
        out: &mut dyn ResponsesSink,
    ) -> Option<Arc<SentItem>> {
        let item = || tool_searches::hosted_search_output(call);
        if call.status == Some(ItemStatus::Incomplete) {
            return None;
        }
        self.add_search_output(item()?.in_progress(), item()?, out);
        self.items.last()?.final_item.clone()
    }

    /// Shows the tools that a search found.
    fn add_search_output(
        &mut self,
        begun: ToolSearchOutputItem<'_>,
        found: ToolSearchOutputItem<'_>,
        out: &mut dyn ResponsesSink,
    ) {
        let shown = OutputItem::new(begun.id().to_owned(), ItemStyle::Plain, None);
        let begun = SentItem::new(&ItemObject::ToolSearchOutput(Box::new(begun)));
        let index = self.open_item_as(shown, &begun, out);
        self.close_item_as(index, SentItem::new(&ItemObject::ToolSearchOutput(Box::new(found))), out);
    }

    /// Continues a call that a pause interrupted.
    pub(super) fn resume_call(&mut self, run: &RunFold, call_id: &CallId, out: &mut dyn ResponsesSink) {
        let Some(index) = self.mcp_item_of_call(run, call_id, out) else { return };
        if run.root().and_then(|root| root.call(call_id)).is_some_and(|(fold, _)| fold.started.is_some()) {
            self.mark_call_running(index, out);
        }
    }

    /// The open item of a call that the server answers, or a new one with the arguments that it runs with.
    fn mcp_item_of_call(&mut self, run: &RunFold, call_id: &CallId, out: &mut dyn ResponsesSink) -> Option<usize> {
        let root = run.root()?;
        let is_it = |item: &Item| matches!(item, Item::ToolCall(call) if call.call_id == *call_id);
        let root_index = root.items.iter().position(|fold| is_it(&fold.item))?;
        let root_index = u32::try_from(root_index).ok()?;
        if let Some(index) = self.find_open_item(root_index) {
            return Some(index);
        }
        let (fold, call) = root.call(call_id)?;
        let ran = fold.started.as_ref().map(|started| started.arguments.as_str());
        let arguments = ran.or(call.arguments.as_deref()).unwrap_or_default().to_owned();
        let mut item = OutputItem::new(call_id.item_id("mcp").to_string(), ItemStyle::Mcp, Some(root_index));
        let approvals = root.approvals.iter().rev().map(|(request, _)| request);
        let mut approvals = approvals.filter(|request| request.call_id == *call_id && request.question.is_none());
        item.approval_id = approvals.next().map(|request| request.key.to_string());
        item.arguments = Some(String::new());
        let index = self.open_item(run, item, out);
        self.send_arguments(index, &arguments, out);
        Some(index)
    }
}

/// Whether the item of a call has no deltas: a question of the provider, actions for the client, or a search of tools.
pub(crate) fn is_shown_whole(task: &TaskFold, call: &ToolCall) -> bool {
    item::is_hosted_request(call) || is_client_computer_call(task, call) || is_tool_search(call)
}

fn may_need_approval(call: &ToolCall) -> bool {
    !matches!(call.gate, None | Some(ApprovalGate::Never))
}

fn is_approved(task: &TaskFold, call_id: &CallId) -> bool {
    let answer = task.last_approval(call_id).and_then(|(_, answer)| answer.as_ref());
    answer.is_some_and(|answer| answer.decisions.iter().all(|decision| decision.kind != ApprovalDecisionKind::Reject))
}
