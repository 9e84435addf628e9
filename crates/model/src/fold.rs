//! Records → state, for one run. Pure and total: the only way from the log to anything that clients see.
//!
//! A record that does not fit leaves the state unchanged and is counted; the fold never panics and never guesses.
//! [`crate::thread::ThreadFold`] holds what outlives the run; [`RunFold::task_object`] renders it for clients.
//! `task` has the state of one task, `output` applies item and block events, `file` tracks files that are read before
//! the model is called.

mod file;
mod output;
mod question;
mod task;
mod task_object;

pub use crate::limits::TASK_FILES_MAX;
pub use file::FileFold;
pub use question::QuestionFold;
pub use task::{HandoffFold, InputFold, ItemFold, StartedTool, StepFold, TaskFold};

use crate::event::{ApprovalResolved, Event, StateDelta};
use crate::id::TaskId;
use crate::item::Item;
use crate::record::{PrivatePayload, Record};
use crate::seq::{Millis, Seq};
use serde_json::Value;
use std::collections::BTreeMap;

/// A run: its root task, the sub-agents below it, and their shared state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunFold {
    /// In order of creation; the root is the first.
    pub tasks: Vec<TaskFold>,
    /// The last record that was folded.
    pub seq: Seq,
    /// The time of that record.
    pub at: Millis,
    /// Numbered ids that the run has assigned so far.
    pub id_count: u32,
    /// The highest reference group that a result of this run opened, or zero.
    pub reference_count: u32,
    /// Approval decisions that hold for the rest of the run.
    pub standing_decisions: BTreeMap<StandingKey, ApprovalResolved>,
    /// The shared state, once this run has changed it.
    pub state: Option<Value>,
    /// Records that could not be applied. A run with any is not executed further.
    pub fold_errors: u32,
}

/// What a decision about later calls holds for: the agent that asked, and the tool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StandingKey {
    pub agent: String,
    /// Of the MCP server that has the tool.
    pub server_label: Option<String>,
    pub tool: String,
}

/// The record does not fit the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoldError;

pub type FoldResult = Result<(), FoldError>;

impl RunFold {
    pub fn apply(&mut self, record: &Record) -> FoldResult {
        self.apply_record(record, record.private().as_ref())
    }

    /// Applies a record without its private half.
    pub fn apply_public(&mut self, record: &Record) -> FoldResult {
        self.apply_record(record, None)
    }

    pub fn apply_event(&mut self, seq: Seq, at: Millis, event: &Event, private: Option<&PrivatePayload>) -> FoldResult {
        let gap = self.seq != Seq::ZERO && seq != self.seq.next();
        self.seq = seq;
        self.at = self.at.max(at);
        let fit = if gap { Err(FoldError) } else { self.apply_change(event, private) };
        if fit.is_err() {
            self.fold_errors = self.fold_errors.saturating_add(1);
        }
        fit
    }

    fn apply_record(&mut self, record: &Record, private: Option<&PrivatePayload>) -> FoldResult {
        let merged = u32::try_from(record.record_count()).unwrap_or(u32::MAX).saturating_sub(1);
        // Merged deltas fit together or not at all, because none of them opens or closes anything.
        let fit = self.apply_event(record.first_seq(), record.at, record.event(), private);
        self.seq = record.seq;
        if fit.is_err() {
            self.fold_errors = self.fold_errors.saturating_add(merged);
        }
        fit
    }

    /// The root task, once it was created.
    pub fn root(&self) -> Option<&TaskFold> {
        self.tasks.first()
    }

    pub fn task(&self, id: &TaskId) -> Option<&TaskFold> {
        self.tasks.iter().find(|task| task.id == *id)
    }

    pub fn has_ended(&self) -> bool {
        self.root().is_some_and(|root| root.status.is_terminal())
    }

    fn apply_change(&mut self, event: &Event, private: Option<&PrivatePayload>) -> FoldResult {
        match event {
            Event::Created(created) => return self.create_task(created, private),
            // These concern the thread, not the run.
            Event::HistoryCompacted(_) | Event::RunHidden(_) => return Ok(()),
            _ => {}
        }
        // The new state is computed first: a record that does not fit must change nothing.
        let state = self.state_after(event)?;
        let at = self.at;
        let id = event.task_id().ok_or(FoldError)?;
        let is_refused = self.has_ended() || (event.is_terminal() && self.has_open_child(id));
        let task = self.tasks.iter_mut().find(|task| task.id == *id).ok_or(FoldError)?;
        if is_refused || task.status.is_terminal() {
            return Err(FoldError);
        }
        task.apply(at, event, private)?;
        if let Event::ApprovalResolved(resolved) = event
            && resolved.decisions.iter().any(|decision| decision.always)
            && let Some((request, _)) = task.approvals.iter().find(|(request, _)| request.key == resolved.key)
            && request.question.is_none()
        {
            let tools = request.action_requests.iter().map(|action| StandingKey {
                agent: task.agent.clone(),
                server_label: action.server_label.clone(),
                tool: action.name.clone(),
            });
            self.standing_decisions.extend(tools.map(|tool| (tool, resolved.clone())));
        }
        if state.is_some() {
            self.state = state;
        }
        self.update_counters(event);
        Ok(())
    }

    /// A task that ended before its sub-agents would leave them without a terminal event (law 9).
    fn has_open_child(&self, id: &TaskId) -> bool {
        let mut children = self.tasks.iter().filter(|task| task.spec.parent_task_id.as_ref() == Some(id));
        children.any(|child| !child.status.is_terminal())
    }

    fn create_task(&mut self, created: &crate::event::TaskCreated, private: Option<&PrivatePayload>) -> FoldResult {
        let fits = match &created.task.parent_task_id {
            None => self.tasks.is_empty(),
            Some(parent) => {
                let has_call =
                    |parent: &TaskFold| parent.calls().any(|(_, call)| call.call_id.child_task_id() == created.task_id);
                !self.has_ended()
                    && self.task(&created.task_id).is_none()
                    && self.task(parent).is_some_and(|parent| !parent.status.is_terminal() && has_call(parent))
            }
        };
        if !fits {
            return Err(FoldError);
        }
        let task = TaskFold::new(created, self.at, private);
        // Reference numbers of the prior history stay valid.
        self.reference_count =
            self.reference_count.max(task.prior_history.as_ref().map_or(0, |before| before.reference_count));
        self.tasks.push(task);
        Ok(())
    }

    /// The shared state after an event; `None` if the event does not change it.
    ///
    /// # Errors
    /// When a patch does not apply to the current state.
    pub fn state_after(&self, event: &Event) -> Result<Option<Value>, FoldError> {
        match event {
            Event::StateSnapshot(snapshot) => Ok(Some(snapshot.state.clone())),
            Event::StateDelta(delta) => self.patched_state(delta).map(Some),
            _ => Ok(None),
        }
    }

    fn patched_state(&self, delta: &StateDelta) -> Result<Value, FoldError> {
        let operations = serde_json::to_value(&delta.delta).map_err(|_| FoldError)?;
        let patch: json_patch::Patch = serde_json::from_value(operations).map_err(|_| FoldError)?;
        let mut state = self.state.clone().unwrap_or(Value::Null);
        json_patch::patch(&mut state, &patch).map_err(|_| FoldError)?;
        Ok(state)
    }

    /// Updates the counters from which ids and reference groups are numbered.
    fn update_counters(&mut self, event: &Event) {
        let assigned = match event {
            // A result shares the number of its call.
            Event::ItemAdded(e) if !matches!(e.item, Item::ToolResult(_)) => 1,
            Event::InputAdded(e) => e.input.len(),
            _ => 0,
        };
        self.id_count = self.id_count.saturating_add(u32::try_from(assigned).unwrap_or(u32::MAX));
        let group = match event {
            Event::TextAdded(e) | Event::TextDone(e) => {
                self.opened_group(&e.task_id, e.output_index, e.item.block().id)
            }
            Event::ImageAdded(e) | Event::ImageDone(e) => {
                self.opened_group(&e.task_id, e.output_index, e.item.block().id)
            }
            _ => 0,
        };
        self.reference_count = self.reference_count.max(group);
    }

    /// The reference group that a block opens. Only results open groups.
    fn opened_group(&self, task: &TaskId, output_index: u32, group: Option<u32>) -> u32 {
        let item = self.task(task).and_then(|task| task.items.get(output_index as usize));
        let of_result = item.is_some_and(|item| matches!(item.item, Item::ToolResult(_)));
        if of_result { group.unwrap_or_default() } else { 0 }
    }
}
