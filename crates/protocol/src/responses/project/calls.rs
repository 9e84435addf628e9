//! Calls in a response: those that the client answers, those that the server answers, those that people are asked about.
//!
//! A call that people may be asked about is shown when it is known what becomes of it: when it starts, when it gets a
//! result without having started, or as a question at every pause where it is one.

use super::builder::{ItemStyle, OutputItem, ResponseBuilder, root_item};
use super::item::{self, McpCallOutcome};
use model::CallId;
use model::event::{ApprovalDecisionKind, PendingKind, PendingRequest};
use model::fold::{RunFold, TaskFold};
use model::item::{ApprovalGate, Item, ToolCall, ToolResult};
use serde_json::json;

impl ResponseBuilder {
    /// The model began to write a call.
    pub(super) fn on_call_added(&mut self, run: &RunFold, place: u32, call: &ToolCall) {
        match (may_need_approval(call), item::is_client_call(call)) {
            (true, _) => {}
            (false, true) => self.add_item(run, place, ItemStyle::Function),
            (false, false) => self.add_item(run, place, ItemStyle::Mcp),
        }
    }

    /// A tool starts, perhaps not for the first time.
    pub(super) fn on_call_started(&mut self, run: &RunFold, call_id: &CallId) {
        let Some(index) = self.mcp_item_of_call(run, call_id) else { return };
        self.mark_call_running(index);
    }

    fn mark_call_running(&mut self, index: usize) {
        let Some(shown) = self.items.get_mut(index).filter(|shown| shown.sent_states.is_empty()) else { return };
        shown.sent_states.push("in_progress".to_owned());
        self.push_item_event(index, "response.mcp_call.in_progress", json!({}));
    }

    /// A call got its result.
    pub(super) fn on_call_result(&mut self, run: &RunFold, task: &TaskFold, result: &ToolResult) {
        let Some((_, call)) = task.call(&result.call_id) else { return };
        // What the client was given to answer has ended with its question.
        if item::is_client_call(call) && (!may_need_approval(call) || is_approved(task, &call.call_id)) {
            return;
        }
        let Some(index) = self.mcp_item_of_call(run, &result.call_id) else { return };
        let outcome = McpCallOutcome::from_result(run, task, result);
        if matches!(outcome.status, "completed" | "failed") {
            self.push_item_event(index, &format!("response.mcp_call.{}", outcome.status), json!({}));
        }
        self.close_item(run, index, &outcome);
    }

    /// A turn was cut: its calls will never run.
    pub(super) fn close_lost_calls(&mut self, run: &RunFold) {
        let last = run.root().and_then(|root| root.steps.len().checked_sub(1));
        for index in 0..self.items.len() {
            let place =
                self.items.get(index).filter(|shown| shown.style == ItemStyle::Mcp).and_then(|shown| shown.root_index);
            if place.and_then(|place| root_item(run, place)).is_some_and(|fold| fold.step_index == last) {
                self.close_item(run, index, &McpCallOutcome::INCOMPLETE);
            }
        }
    }

    /// Nothing goes on without people: what is open ends here, and what is pending is shown. Gives the calls that go on
    /// by themselves later.
    pub(super) fn on_paused(&mut self, run: &RunFold, pending: &[PendingRequest]) -> Vec<CallId> {
        let mut carried = Vec::new();
        for index in 0..self.items.len() {
            let open = self.items.get(index).filter(|shown| shown.final_item.is_none());
            let fold = open.and_then(|shown| shown.root_index).and_then(|place| root_item(run, place));
            if let Some(Item::ToolCall(call)) = fold.map(|fold| &fold.item)
                && pending.iter().all(|pending| pending.call_id != call.call_id)
            {
                carried.push(call.call_id.clone());
            }
            self.close_item(run, index, &McpCallOutcome::INCOMPLETE);
        }
        for pending in pending {
            let Some(task) = run.task(&pending.task_id) else { continue };
            let Some((_, call)) = task.call(&pending.call_id) else { continue };
            match (pending.kind, task.last_approval(&pending.call_id)) {
                (PendingKind::Approval, Some((asked, _))) => {
                    self.add_complete_item(asked.key.to_string(), &item::approval_request_item(asked, call));
                }
                (PendingKind::Approval, None) => {}
                (PendingKind::ClientTool, _) => self.add_client_call(call),
            }
        }
        carried
    }

    /// Shows a call that the client is to answer, unless this response has it.
    fn add_client_call(&mut self, call: &ToolCall) {
        if self.items.iter().any(|shown| shown.id == call.id.as_str()) {
            return;
        }
        let arguments = call.arguments.as_deref().unwrap_or_default();
        let empty = item::function_call_item(call, "", "in_progress");
        let index = self.open_item_as(OutputItem::new(call.id.to_string(), ItemStyle::Function, None), &empty);
        self.send_arguments(index, arguments);
        self.close_item_as(index, item::function_call_item(call, arguments, "completed"));
    }

    /// A call that a pause cut in two goes on.
    pub(super) fn resume_call(&mut self, run: &RunFold, call_id: &CallId) {
        let Some(index) = self.mcp_item_of_call(run, call_id) else { return };
        if run.root().and_then(|root| root.call(call_id)).is_some_and(|(fold, _)| fold.started.is_some()) {
            self.mark_call_running(index);
        }
    }

    /// The item that shows a call as the server's: the open one, or a new one with the arguments that run.
    fn mcp_item_of_call(&mut self, run: &RunFold, call_id: &CallId) -> Option<usize> {
        let root = run.root()?;
        let is_it = |item: &Item| matches!(item, Item::ToolCall(call) if call.call_id == *call_id);
        let place = root.items.iter().position(|fold| is_it(&fold.item))?;
        let place = u32::try_from(place).ok()?;
        if let Some(index) = self.find_open_item(place) {
            return Some(index);
        }
        let (fold, call) = root.call(call_id)?;
        let ran = fold.started.as_ref().map(|started| started.arguments.as_str());
        let arguments = ran.or(call.arguments.as_deref()).unwrap_or_default().to_owned();
        let mut shown = OutputItem::new(call_id.item_id("mcp").to_string(), ItemStyle::Mcp, Some(place));
        shown.approval_id = root.last_approval(call_id).map(|(asked, _)| asked.key.to_string());
        shown.arguments = Some(String::new());
        let index = self.open_item(run, shown);
        self.send_arguments(index, &arguments);
        Some(index)
    }
}

/// May people be asked about it?
fn may_need_approval(call: &ToolCall) -> bool {
    !matches!(call.gate, None | Some(ApprovalGate::Never))
}

/// Did somebody say yes?
fn is_approved(task: &TaskFold, call_id: &CallId) -> bool {
    let answer = task.last_approval(call_id).and_then(|(_, answer)| answer.as_ref());
    answer.is_some_and(|answer| answer.decisions.iter().all(|decision| decision.kind != ApprovalDecisionKind::Reject))
}
