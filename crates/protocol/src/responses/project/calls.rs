//! Calls in a response: those that the client answers, those that the server answers, those that people are asked about.
//!
//! A call that people may be asked about is shown when it is known what becomes of it: when it starts, when it gets a
//! result without having started, or as a question at every pause where it is one.

use super::answer::{Answer, Shown, Style, fold_at};
use super::item::{self, Outcome};
use model::CallId;
use model::event::{ApprovalDecisionKind, PendingKind, PendingRequest};
use model::fold::{RunFold, TaskFold};
use model::item::{ApprovalGate, Item, ToolCall, ToolResult};
use serde_json::json;

impl Answer {
    /// The model began to write a call.
    pub(super) fn call_added(&mut self, run: &RunFold, place: u32, call: &ToolCall) {
        match (is_gated(call), item::is_clients(call)) {
            (true, _) => {}
            (false, true) => self.add(run, place, Style::Function),
            (false, false) => self.add(run, place, Style::Mcp),
        }
    }

    /// A tool starts, perhaps not for the first time.
    pub(super) fn call_started(&mut self, run: &RunFold, call_id: &CallId) {
        let Some(index) = self.call_shown(run, call_id) else { return };
        self.call_runs(index);
    }

    fn call_runs(&mut self, index: usize) {
        let Some(shown) = self.shown.get_mut(index).filter(|shown| shown.states.is_empty()) else { return };
        shown.states.push("in_progress".to_owned());
        self.item_frame(index, "response.mcp_call.in_progress", json!({}));
    }

    /// A call got its result.
    pub(super) fn call_answered(&mut self, run: &RunFold, task: &TaskFold, result: &ToolResult) {
        let Some((_, call)) = task.call(&result.call_id) else { return };
        // What the client was given to answer has ended with its question.
        if item::is_clients(call) && (!is_gated(call) || is_approved(task, &call.call_id)) {
            return;
        }
        let Some(index) = self.call_shown(run, &result.call_id) else { return };
        let outcome = Outcome::of(run, task, result);
        if matches!(outcome.status, "completed" | "failed") {
            self.item_frame(index, &format!("response.mcp_call.{}", outcome.status), json!({}));
        }
        self.close(run, index, &outcome);
    }

    /// A turn was cut: its calls will never run.
    pub(super) fn calls_lost(&mut self, run: &RunFold) {
        let last = run.root().and_then(|root| root.steps.len().checked_sub(1));
        for index in 0..self.shown.len() {
            let place = self.shown.get(index).filter(|shown| shown.style == Style::Mcp).and_then(|shown| shown.place);
            if place.and_then(|place| fold_at(run, place)).is_some_and(|fold| fold.step_index == last) {
                self.close(run, index, &Outcome::CUT);
            }
        }
    }

    /// Nothing goes on without people: what is open ends here, and what is pending is shown. Gives the calls that go on
    /// by themselves later.
    pub(super) fn pause(&mut self, run: &RunFold, pending: &[PendingRequest]) -> Vec<CallId> {
        let mut carried = Vec::new();
        for index in 0..self.shown.len() {
            let open = self.shown.get(index).filter(|shown| shown.done.is_none());
            let fold = open.and_then(|shown| shown.place).and_then(|place| fold_at(run, place));
            if let Some(Item::ToolCall(call)) = fold.map(|fold| &fold.item)
                && pending.iter().all(|pending| pending.call_id != call.call_id)
            {
                carried.push(call.call_id.clone());
            }
            self.close(run, index, &Outcome::CUT);
        }
        for pending in pending {
            let Some(task) = run.task(&pending.task_id) else { continue };
            let Some((_, call)) = task.call(&pending.call_id) else { continue };
            match (pending.kind, task.last_approval(&pending.call_id)) {
                (PendingKind::Approval, Some((asked, _))) => {
                    self.push_whole(asked.key.to_string(), &item::approval_request(asked, call));
                }
                (PendingKind::Approval, None) => {}
                (PendingKind::ClientTool, _) => self.lend(call),
            }
        }
        carried
    }

    /// Shows a call that the client is to answer, unless this response has it.
    fn lend(&mut self, call: &ToolCall) {
        if self.shown.iter().any(|shown| shown.id == call.id.as_str()) {
            return;
        }
        let arguments = call.arguments.as_deref().unwrap_or_default();
        let empty = item::function(call, "", "in_progress");
        let index = self.push_value(Shown::new(call.id.to_string(), Style::Function, None), &empty);
        self.all_arguments(index, arguments);
        self.close_as(index, item::function(call, arguments, "completed"));
    }

    /// A call that a pause cut in two goes on.
    pub(super) fn carry_on(&mut self, run: &RunFold, call_id: &CallId) {
        let Some(index) = self.call_shown(run, call_id) else { return };
        if run.root().and_then(|root| root.call(call_id)).is_some_and(|(fold, _)| fold.started.is_some()) {
            self.call_runs(index);
        }
    }

    /// The item that shows a call as the server's: the open one, or a new one with the arguments that run.
    fn call_shown(&mut self, run: &RunFold, call_id: &CallId) -> Option<usize> {
        let root = run.root()?;
        let is_it = |item: &Item| matches!(item, Item::ToolCall(call) if call.call_id == *call_id);
        let place = root.items.iter().position(|fold| is_it(&fold.item))?;
        let place = u32::try_from(place).ok()?;
        if let Some(index) = self.open(place) {
            return Some(index);
        }
        let (fold, call) = root.call(call_id)?;
        let ran = fold.started.as_ref().map(|started| started.arguments.as_str());
        let arguments = ran.or(call.arguments.as_deref()).unwrap_or_default().to_owned();
        let mut shown = Shown::new(call_id.item_id("mcp").to_string(), Style::Mcp, Some(place));
        shown.approval = root.last_approval(call_id).map(|(asked, _)| asked.key.to_string());
        shown.arguments = Some(String::new());
        let index = self.push(run, shown);
        self.all_arguments(index, &arguments);
        Some(index)
    }
}

/// May people be asked about it?
fn is_gated(call: &ToolCall) -> bool {
    !matches!(call.gate, None | Some(ApprovalGate::Never))
}

/// Did somebody say yes?
fn is_approved(task: &TaskFold, call_id: &CallId) -> bool {
    let answer = task.last_approval(call_id).and_then(|(_, answer)| answer.as_ref());
    answer.is_some_and(|answer| answer.decisions.iter().all(|decision| decision.kind != ApprovalDecisionKind::Reject))
}
